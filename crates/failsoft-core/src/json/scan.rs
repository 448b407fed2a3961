//! What a text says that its parsed value no longer shows: keys given twice, digits that were lost.

use std::collections::HashSet;

use serde_json::Value;

/// What one pass over a text that is JSON gives.
pub(super) struct Scan {
    /// How many keys are written in it.
    pub(super) keys: usize,
    /// Where the first number stands that loses digits as a double.
    pub(super) lossy: Option<usize>,
}

/// Looks at the tokens of a text that is known to be JSON.
pub(super) fn of_json(text: &str) -> Scan {
    let bytes = text.as_bytes();
    let mut scan = Scan { keys: 0, lossy: None };
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => at = after_string(bytes, at),
            b':' => {
                scan.keys += 1;
                at += 1;
            }
            b'-' | b'0'..=b'9' => {
                let end = after_number(bytes, at);
                if scan.lossy.is_none() && is_lossy(&text[at..end]) {
                    scan.lossy = Some(at);
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    scan
}

/// How many keys a value has: fewer than its text where one was given twice. The parser has bounded the depth.
pub(super) fn keys(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(keys).sum(),
        Value::Object(map) => map.len() + map.values().map(keys).sum::<usize>(),
        _ => 0,
    }
}

/// The first key that its object has already, in a text that is known to be JSON.
pub(super) fn duplicate(text: &str) -> Option<(usize, String)> {
    let bytes = text.as_bytes();
    let mut open = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'{' | b'[' => open.push(HashSet::new()),
            b'}' | b']' => drop(open.pop()),
            b'"' => {
                let end = after_string(bytes, at);
                let next = bytes[end..].iter().find(|byte| !byte.is_ascii_whitespace());
                if next == Some(&b':') {
                    // Two spellings of one key (`a`, `\u0061`) are one key.
                    let key: String = serde_json::from_str(&text[at..end]).ok()?;
                    if let Some(key) = open.last_mut().and_then(|keys| keys.replace(key)) {
                        return Some((at, key));
                    }
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// How deep the nesting is at the end of the first `length` bytes of a text that may be anything.
pub(super) fn depth(text: &str, length: usize) -> usize {
    let bytes = &text.as_bytes()[..length.min(text.len())];
    let (mut depth, mut deepest, mut at) = (0_usize, 0, 0);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => {
                at = after_string(bytes, at);
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
        at += 1;
    }
    deepest
}

/// Just after the string that begins at `at`, or the end of the bytes where it does not end.
pub(super) fn after_string(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    loop {
        match bytes.get(at) {
            None => return bytes.len(),
            Some(b'"') => return at + 1,
            Some(b'\\') => at += 2,
            Some(_) => at += 1,
        }
    }
}

/// Just after the number that begins at `at`.
pub(super) fn after_number(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let length = rest.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'));
    at + length.unwrap_or(rest.len())
}

/// Whether a double, or a 64-bit integer, is not the number that was written.
pub(super) fn is_lossy(number: &str) -> bool {
    let digits = number.strip_prefix('-').unwrap_or(number);
    if digits.len() <= 15 && !digits.contains(['e', 'E']) {
        return false;
    }
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let limit = if number.starts_with('-') { 1 << 63 } else { u128::from(u64::MAX) };
        return digits.parse::<u128>().map_or(true, |exact| exact > limit || !is_exact(exact));
    }
    let Ok(value) = number.parse::<f64>() else { return true };
    let mantissa = digits.split(['e', 'E']).next().unwrap_or_default();
    let significant = mantissa.trim_start_matches(['0', '.']);
    let significant = if mantissa.contains('.') { significant.trim_end_matches('0') } else { significant };
    let count = significant.bytes().filter(u8::is_ascii_digit).count();
    // 17 digits name every double; beyond that some are lost. A number that became zero lost all of them.
    value.is_infinite() || count > 17 || value == 0.0 && count > 0
}

/// Whether a double holds the integer as it is.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "asked here"
)]
fn is_exact(integer: u128) -> bool {
    (integer as f64) as u128 == integer
}
