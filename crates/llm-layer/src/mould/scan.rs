//! Finds where strings and numbers end in JSON text, as strictly as a JSON reader.

pub(super) fn is_string(bytes: &[u8]) -> bool {
    string(bytes).is_some_and(|(length, _)| length == bytes.len())
}

/// The length of the JSON string, with its quotes, that some bytes begin with, and whether there are escapes in it. Control
/// characters have no place in one.
#[inline]
pub(super) fn string(bytes: &[u8]) -> Option<(usize, bool)> {
    let inner = bytes.strip_prefix(b"\"")?;
    let (mut at, mut is_escaped) = (0, false);
    loop {
        at += stop(inner.get(at..)?)?;
        match inner.get(at)? {
            b'"' => return Some((at + 2, is_escaped)),
            b'\\' => {
                is_escaped = true;
                at += 2;
            }
            _ => return None,
        }
    }
}

/// How many bytes come before the first that does not stand for itself in a string: a quote, a backslash, a control
/// character.
#[inline]
pub(super) fn stop(bytes: &[u8]) -> Option<usize> {
    let (mut rest, mut at) = (bytes, 0);
    while let Some((eight, more)) = rest.split_first_chunk::<8>() {
        let stops = stops_in(u64::from_le_bytes(*eight));
        if stops != 0 {
            return Some(at + stops.trailing_zeros() as usize / 8);
        }
        (rest, at) = (more, at + 8);
    }
    let left = rest.iter().position(|byte| matches!(byte, 0..0x20 | b'"' | b'\\'))?;
    Some(at + left)
}

/// Eight bytes at once: the highest bit of each that is a quote, a backslash or a control character. A borrow may set it in
/// bytes after the first of these too.
const fn stops_in(eight: u64) -> u64 {
    const fn all(byte: u8) -> u64 {
        u64::from_le_bytes([byte; 8])
    }
    const fn below(eight: u64, limit: u8) -> u64 {
        eight.wrapping_sub(all(limit)) & !eight
    }
    let quotes = below(eight ^ all(b'"'), 1);
    let backslashes = below(eight ^ all(b'\\'), 1);
    (below(eight, 0x20) | quotes | backslashes) & all(0x80)
}

/// The length of the whole number that some bytes begin with.
pub(super) fn number(bytes: &[u8]) -> Option<usize> {
    count(bytes).map(|(length, _)| length)
}

/// The same, and the number. No number of 19 digits is too large.
pub(super) fn count(bytes: &[u8]) -> Option<(usize, u64)> {
    let (mut digits, mut number) = (0, 0_u64);
    while let Some(digit) = bytes.get(digits).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10)
    {
        if digits == 19 {
            return None;
        }
        number = number * 10 + u64::from(digit);
        digits += 1;
    }
    let is_padded = digits > 1 && bytes.first() == Some(&b'0');
    (digits > 0 && !is_padded).then_some((digits, number))
}

/// The length of the number of any kind that some bytes begin with, as JSON writes them.
pub(super) fn any_number(bytes: &[u8]) -> Option<usize> {
    let digits = |at: usize| bytes.iter().skip(at).take_while(|byte| byte.is_ascii_digit()).count();
    let start = usize::from(bytes.first() == Some(&b'-'));
    let whole = digits(start);
    if whole == 0 || whole > 1 && bytes.get(start) == Some(&b'0') {
        return None;
    }
    let mut end = start + whole;
    if bytes.get(end) == Some(&b'.') {
        let fraction = digits(end + 1);
        end += if fraction == 0 { return None } else { 1 + fraction };
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits(end + 1 + sign);
        end += if exponent == 0 { return None } else { 1 + sign + exponent };
    }
    Some(end)
}

/// Writes what a JSON string says. `None` where an escape is not valid, or is half of a surrogate pair.
pub(super) fn unescape(inner: &str, text: &mut String) -> Option<()> {
    let mut rest = inner;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        text.push_str(rest.get(..at)?);
        let escape = *rest.as_bytes().get(at + 1)?;
        rest = rest.get(at + 2..)?;
        text.push(match escape {
            b'"' | b'\\' | b'/' => char::from(escape),
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'u' => {
                let unit = hex(&mut rest)?;
                match unit {
                    0xD800..=0xDBFF => {
                        rest = rest.strip_prefix("\\u")?;
                        let low = hex(&mut rest)?;
                        char::decode_utf16([unit, low]).next()?.ok()?
                    }
                    _ => char::from_u32(u32::from(unit))?,
                }
            }
            _ => return None,
        });
    }
    text.push_str(rest);
    Some(())
}

/// Takes four hexadecimal digits.
fn hex(rest: &mut &str) -> Option<u16> {
    let digits = rest.get(..4).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    *rest = rest.get(4..)?;
    u16::from_str_radix(digits, 16).ok()
}
