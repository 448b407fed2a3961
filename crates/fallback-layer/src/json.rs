//! JSON texts: read strictly, and taken apart no further than is needed.

#[cfg(feature = "cache")]
mod node;
mod raw;

use std::borrow::Cow;

#[cfg(feature = "cache")]
pub(crate) use self::node::Node;
pub(crate) use self::raw::{Raw, Splices};

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    const fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    const fn at(&self) -> usize {
        self.at
    }

    const fn is_over(&self) -> bool {
        self.at == self.text.len()
    }

    /// What was read since.
    fn since(&self, start: usize) -> Option<&'a str> {
        self.text.get(start..self.at)
    }

    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    fn space(&mut self) {
        self.at += self.rest().iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.rest().first() == Some(&byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn bare(&mut self) -> Option<&'a str> {
        let length = self
            .rest()
            .iter()
            .take_while(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte))
            .count();
        let text = self.text.get(self.at..self.at + length)?;
        self.at += length;
        (matches!(text, "true" | "false" | "null") || is_number(text)).then_some(text)
    }

    /// At a quote.
    fn string(&mut self) -> Option<Cow<'a, str>> {
        self.at += 1;
        let plain = self.plain()?;
        if self.take(b'"') {
            return Some(Cow::Borrowed(plain));
        }
        let mut text = plain.to_owned();
        while !self.take(b'"') {
            // `plain` stops at a quote and at a backslash.
            self.at += 1;
            text.push(self.escape()?);
            text.push_str(self.plain()?);
        }
        Some(Cow::Owned(text))
    }

    /// Up to the next quote or backslash; `None` where there is none, or a control character before it.
    fn plain(&mut self) -> Option<&'a str> {
        let length = self.rest().iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f))?;
        let text = self.text.get(self.at..self.at + length)?;
        self.at += length;
        (!self.rest().first().is_some_and(u8::is_ascii_control)).then_some(text)
    }

    /// After the backslash.
    fn escape(&mut self) -> Option<char> {
        let byte = *self.rest().first()?;
        self.at += 1;
        Some(match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.unit()?;
                if !(0xd800..0xdc00).contains(&first) {
                    // A lone half of a pair is no character.
                    return char::from_u32(first);
                }
                (self.take(b'\\') && self.take(b'u')).then_some(())?;
                let second = self.unit()?.checked_sub(0xdc00).filter(|second| *second < 0x400)?;
                return char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + second);
            }
            _ => return None,
        })
    }

    fn unit(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        let hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        self.at += 4;
        hex.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
    }
}

fn is_number(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let text = text.strip_prefix('-').unwrap_or(text);
    let (base, exponent) =
        text.split_once(['e', 'E']).map_or((text, None), |(base, exponent)| (base, Some(exponent)));
    let (whole, fraction) =
        base.split_once('.').map_or((base, None), |(whole, fraction)| (whole, Some(fraction)));
    digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(digits)
        && exponent.is_none_or(|exponent| digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)))
}

/// A text as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 2);
    json.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => json.extend(['\\', c]),
            c if c < ' ' => json.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => json.push(c),
        }
    }
    json.push('"');
    json
}
