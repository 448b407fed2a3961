//! Texts that leave the process: cut to a size, and escaped where they are written without a JSON library.

use std::borrow::Cow;

/// Cuts a text at so many bytes, at a character, with an ellipsis within the limit.
pub(crate) fn capped(text: Cow<'static, str>, max: usize) -> Cow<'static, str> {
    if text.len() <= max {
        return text;
    }
    let end =
        (0..=max.saturating_sub('…'.len_utf8())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    format!("{}…", &text[..end]).into()
}

/// Adds `text` as a JSON string, in quotes.
pub(crate) fn push_json_str(json: &mut String, text: &str) {
    json.push('"');
    for c in text.chars() {
        match c {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            c if c < ' ' => json.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => json.push(c),
        }
    }
    json.push('"');
}
