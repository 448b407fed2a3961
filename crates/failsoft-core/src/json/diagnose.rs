//! Why a text is not JSON, in the words that tell what to do about it.

use std::ops::Range;

use serde::de::IgnoredAny;
use serde_json::{Deserializer, error::Category};

use super::{Flaw, FlawKind, MAX_DEPTH, is_blank, is_html, scan, start};

/// A run of whitespace at a text's end that no indentation explains.
const BLANK_RUN: usize = 100;

/// How much of a text's end is searched for a period.
const TAIL: usize = 4096;

/// How many places in a longer text are tried as the start of a value.
const TRIES: usize = 32;

/// Tags in which models think aloud before they answer.
const THOUGHTS: [(&str, &str); 3] =
    [("<think>", "</think>"), ("<thinking>", "</thinking>"), ("<reasoning>", "</reasoning>")];

/// The flaw of a text that `serde_json` refused with `err`.
pub(super) fn diagnose(text: &str, err: &serde_json::Error) -> Flaw {
    if is_blank(text) {
        return Flaw::new(FlawKind::Empty, 0, "nothing but whitespace");
    }
    let offset = offset(text, err);
    if scan::depth(text, offset.saturating_add(1)) >= MAX_DEPTH {
        let deep = format!("nested deeper than {} levels", MAX_DEPTH - 1);
        return Flaw::new(FlawKind::Depth, offset, deep);
    }
    let overflown = overflown(text, offset);
    // A number too large in an object that has no end: nobody knows how it would have gone on.
    let open = overflown.as_ref().is_some_and(|number| number.start > 0 && number.end == text.len());
    if (open || err.classify() == Category::Eof) && is_degenerate(text) {
        return Flaw::new(FlawKind::Degenerate, text.len(), "the same again and again, then cut");
    }
    if let Some(number) = overflown.filter(|_| !open) {
        return Flaw::new(FlawKind::Lossy, number.start, "a number out of range");
    }
    let from = start(text);
    let body = &text[from..];
    if let Some(flaw) = after_prelude(body) {
        return flaw.shifted(from);
    }
    let first = body.as_bytes().first();
    if !matches!(first, Some(b'{' | b'[')) {
        let in_value = matches!(first, Some(b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n'));
        if in_value && err.classify() == Category::Eof {
            return Flaw::new(FlawKind::Truncated, text.len(), "it breaks off");
        }
        return among_words(body).shifted(from);
    }
    if let Some(rest) = after_value(body) {
        return followed(body, rest).shifted(from);
    }
    if open || err.classify() == Category::Eof {
        return Flaw::new(FlawKind::Truncated, text.len(), "it breaks off");
    }
    if let Some(label) = label(body) {
        let rest = &body[label..];
        let flaw = match serde_json::from_str::<IgnoredAny>(rest) {
            Ok(_) => Flaw::new(FlawKind::Wrapped, label, "words before the JSON"),
            Err(_) => among_words(rest).shifted(label),
        };
        if flaw.kind() != FlawKind::NonObject {
            return flaw.shifted(from);
        }
    }
    syntax(offset, err)
}

fn syntax(offset: usize, err: &serde_json::Error) -> Flaw {
    let mut message = err.to_string();
    // Its own words only: the line and column are said by the offset.
    if let Some(end) = message.rfind(" at line ") {
        message.truncate(end);
    }
    Flaw::new(FlawKind::Syntax, offset, message)
}

/// The byte at which `serde_json` stopped.
fn offset(text: &str, err: &serde_json::Error) -> usize {
    if err.classify() == Category::Eof {
        return text.len();
    }
    let before: usize = text.split_inclusive('\n').take(err.line().saturating_sub(1)).map(str::len).sum();
    before.saturating_add(err.column().saturating_sub(1)).min(text.len())
}

/// Where a number stands that is right by the grammar and that no double holds, if the parser stopped there.
fn overflown(text: &str, offset: usize) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
    let from = bytes[..offset].iter().rposition(|byte| !is_part(byte)).map_or(0, |at| at + 1);
    let end = scan::after_number(bytes, from);
    let number = &text[from..end];
    // The largest double has 309 digits; what is shorter and has no exponent is in range.
    let long = number.len() > 308 || number.contains(['e', 'E']);
    let value = if long { number.parse::<f64>().ok()? } else { return None };
    let exponent = |c: char| c == 'e' || c == 'E';
    let whole = number.trim_start_matches('-').split(['.', 'e', 'E']).next()?;
    let grammar = number.ends_with(|c: char| c.is_ascii_digit())
        && (whole == "0" || !whole.starts_with('0') && !whole.is_empty())
        && !number.starts_with('+')
        && number.split(exponent).next().is_some_and(|mantissa| !mantissa.ends_with('.'));
    (value.is_infinite() && grammar).then_some(from..end)
}

/// What follows the first value of a text, if there is a whole one.
fn after_value(text: &str) -> Option<usize> {
    let mut values = Deserializer::from_str(text).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    Some(values.byte_offset())
}

/// A whole value, and then something.
fn followed(text: &str, at: usize) -> Flaw {
    let rest = text[at..].trim_start();
    let at = text.len() - rest.len();
    let next = rest.trim_start_matches(|c: char| c == ',' || c.is_whitespace());
    if next.starts_with(['{', '[']) {
        return Flaw::new(FlawKind::Multiple, text.len() - next.len(), "more than one value");
    }
    if rest.starts_with(['}', ']', ',', ':']) || !rest.contains(|c: char| c.is_alphabetic() || c == '`') {
        return Flaw::new(FlawKind::Syntax, at, "characters after the JSON");
    }
    match among_words(rest).kind() {
        FlawKind::Wrapped | FlawKind::Multiple => Flaw::new(FlawKind::Multiple, at, "more than one value"),
        _ => Flaw::new(FlawKind::Wrapped, at, "words after the JSON"),
    }
}

/// A text that begins with a byte order mark, or with thinking aloud. What is left after all of it begins with
/// neither, so that this goes one level deep only.
fn after_prelude(text: &str) -> Option<Flaw> {
    let (mut rest, mut thought) = (text, false);
    loop {
        if let Some((open, close)) = THOUGHTS.into_iter().find(|(open, _)| rest.starts_with(open)) {
            let Some(end) = rest[open.len()..].find(close) else {
                return Some(Flaw::new(FlawKind::Truncated, text.len(), "it breaks off while reasoning"));
            };
            rest = &rest[open.len() + end + close.len()..];
            thought = true;
        } else if let Some(after) = rest.strip_prefix('\u{feff}') {
            rest = after;
        } else {
            break;
        }
        rest = rest.trim_start();
    }
    if rest.len() == text.len() {
        return None;
    }
    let at = text.len() - rest.len();
    let flaw = match super::strict(rest) {
        Err(flaw) if flaw.kind() == FlawKind::Empty => {
            Flaw::new(FlawKind::Empty, at, "nothing but reasoning")
        }
        Err(flaw) if flaw.value.is_none() => flaw.shifted(at),
        _ if thought => Flaw::new(FlawKind::Wrapped, 0, "reasoning before the JSON"),
        _ => Flaw::new(FlawKind::Syntax, 0, "a byte order mark before the JSON"),
    };
    Some(flaw)
}

/// The length of a bracketed word that only looks like the start of a value: `{placeholder}`, `[Note]`.
fn label(text: &str) -> Option<usize> {
    let end = text.find(['}', ']'])?;
    let word = text[1..end].chars().all(|c| c.is_alphanumeric() || matches!(c, ' ' | '_' | '-'));
    (word && !is_blank(&text[end + 1..])).then_some(end + 1)
}

/// A text that begins with something else than a value: is there one in it?
fn among_words(text: &str) -> Flaw {
    if is_html(text) {
        return Flaw::new(FlawKind::NonObject, 0, "an HTML page in place of JSON");
    }
    let mut found = None;
    let mut at = 0;
    for _ in 0..TRIES {
        let Some(next) = next_start(text, at) else { break };
        let candidate = &text[next..];
        let mut values = Deserializer::from_str(candidate).into_iter::<IgnoredAny>();
        match values.next() {
            Some(Ok(_)) if found.is_some() => {
                return Flaw::new(FlawKind::Multiple, next, "more than one value among words");
            }
            Some(Ok(_)) => {
                found = Some(next);
                at = next + values.byte_offset();
            }
            Some(Err(err)) if err.is_eof() && is_degenerate(candidate) => {
                return Flaw::new(FlawKind::Degenerate, text.len(), "the same again and again, then cut");
            }
            Some(Err(err)) if err.is_eof() && found.is_none() => {
                return Flaw::new(FlawKind::Truncated, text.len(), "it breaks off");
            }
            Some(Err(err)) if found.is_none() && looks_like_json(candidate) => {
                return syntax(next + offset(candidate, &err), &err);
            }
            _ => at = next + 1,
        }
    }
    match found {
        Some(at) => Flaw::new(FlawKind::Wrapped, at, "words or a code fence around the JSON"),
        None if is_degenerate(text) => {
            Flaw::new(FlawKind::Degenerate, text.len(), "the same again and again")
        }
        None => Flaw::new(FlawKind::NonObject, 0, "no JSON in it"),
    }
}

/// The next brace, or the next bracket that begins a line or an argument: `[1]` in the middle of prose is a note.
fn next_start(text: &str, from: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    (from..bytes.len()).find(|&at| match bytes[at] {
        b'{' => true,
        b'[' => {
            let before = bytes[..at].iter().rev().find(|byte| !matches!(byte, b' ' | b'\t'));
            matches!(before, Some(b'\n' | b'(' | b':' | b'`' | b'>' | b']'))
        }
        _ => false,
    })
}

fn looks_like_json(text: &str) -> bool {
    let second = text[1..].trim_start();
    text.starts_with('{') && second.starts_with(['"', '\'', '}', '“'])
}

/// Whether a text that breaks off ends in a runaway: whitespace, or a short piece repeated exactly.
fn is_degenerate(text: &str) -> bool {
    if text.len() - text.trim_end().len() >= BLANK_RUN {
        return true;
    }
    let tail: Vec<char> = text.chars().rev().take(TAIL).collect();
    let Some((period, length)) = tail_period(&tail) else { return false };
    // An open array of equal numbers is data.
    let piece = &tail[..period.min(length)];
    let numbers =
        piece.contains(&',') && piece.iter().all(|c| c.is_ascii_digit() || ",.- \n\t[]".contains(*c));
    !numbers
}

/// The period and the length of the longest repetition at the start of `reversed`, if it is long enough to be no
/// accident: five copies over 200 characters, or eight over 100.
fn tail_period(reversed: &[char]) -> Option<(usize, usize)> {
    let mut borders = vec![0; reversed.len()];
    let mut found = None;
    for at in 1..reversed.len() {
        let mut border: usize = borders[at - 1];
        while border > 0 && reversed[at] != reversed[border] {
            border = borders[border - 1];
        }
        if reversed[at] == reversed[border] {
            border += 1;
        }
        borders[at] = border;
        let (length, period) = (at + 1, at + 1 - border);
        let copies = length / period;
        if copies >= 5 && length >= 200 || copies >= 8 && length >= 100 {
            found = Some((period, length));
        }
    }
    found
}
