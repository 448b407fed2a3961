//! Reads single fields out of JSON text, and leaves the rest unread.
//!
//! A peer's body may have any shape and nest as deep as it likes: nothing here builds a tree, nothing recurses with
//! the depth of the text, and a field of an unexpected type is simply not there. What a body costs in memory is what is
//! asked of it.

use std::{borrow::Cow, fmt};

use failsoft_core::{Finding, SoftKind};
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The raw text of the named fields of an object; `None` when `text` is no object. Of a field sent twice the last
/// counts, as with most readers; `null` counts as absent.
pub(crate) fn fields<'a, const N: usize>(text: &'a str, names: [&str; N]) -> Option<[Option<&'a str>; N]> {
    struct Fields<'n, const N: usize>([&'n str; N]);

    impl<'de, const N: usize> Visitor<'de> for Fields<'_, N> {
        type Value = [Option<&'de str>; N];

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut found = [None; N];
            while let Some(Key(key)) = map.next_key()? {
                match self.0.iter().zip(&mut found).find(|(name, _)| **name == key) {
                    Some((_, slot)) => {
                        let raw = map.next_value::<&RawValue>()?.get();
                        *slot = (raw != "null").then_some(raw);
                    }
                    None => drop(map.next_value::<IgnoredAny>()?),
                }
            }
            Ok(found)
        }
    }

    if !text.trim_start().starts_with('{') {
        return None;
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    let found = reader.deserialize_map(Fields(names)).ok()?;
    reader.end().ok()?;
    Some(found)
}

/// A key, borrowed where it can be.
struct Key<'a>(Cow<'a, str>);

impl<'de> serde::Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_bytes(Text).map(Self)
    }
}

/// Calls `f` with the raw text of each element of an array; `None` when `text` is no array. Stops early when `f` says
/// so.
pub(crate) fn each<'a>(text: &'a str, f: impl FnMut(&'a str) -> bool) -> Option<()> {
    struct Elements<F>(F);

    impl<'de, F: FnMut(&'de str) -> bool> Visitor<'de> for Elements<F> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array")
        }

        fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
            while let Some(element) = seq.next_element::<&RawValue>()? {
                if !(self.0)(element.get()) {
                    while seq.next_element::<IgnoredAny>()?.is_some() {}
                }
            }
            Ok(())
        }
    }

    if !text.trim_start().starts_with('[') {
        return None;
    }
    serde_json::Deserializer::from_str(text).deserialize_seq(Elements(f)).ok()
}

/// Whether an array has an element.
pub(crate) fn has_elements(text: &str) -> bool {
    let mut any = false;
    each(text, |_| {
        any = true;
        false
    });
    any
}

/// A string. An escape that stands for half a character becomes U+FFFD, where a strict reader fails: to judge an answer
/// is not to hand it on.
pub(crate) fn string(text: &str) -> Option<Cow<'_, str>> {
    if !text.starts_with('"') {
        return None;
    }
    serde_json::Deserializer::from_str(text).deserialize_bytes(Text).ok()
}

struct Text;

impl<'de> Visitor<'de> for Text {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_bytes<E>(self, bytes: &'de [u8]) -> Result<Self::Value, E> {
        Ok(String::from_utf8_lossy(bytes))
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Self::Value, E> {
        Ok(Cow::Owned(String::from_utf8_lossy(bytes).into_owned()))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// A string that is not empty.
pub(crate) fn some_string(text: Option<&str>) -> Option<Cow<'_, str>> {
    text.and_then(string).filter(|text| !text.is_empty())
}

/// A count: a whole number that is not negative. One too large saturates, one with a fraction is cut.
pub(crate) fn count(text: &str) -> Option<u64> {
    text.parse().ok().or_else(|| {
        let number: f64 = text.parse().ok().filter(|number: &f64| *number >= 0.0)?;
        // `as` saturates.
        Some(number as u64)
    })
}

/// A longer text is not made a value of: that takes many times its bytes.
pub(crate) const MAX_VALUE: usize = 1 << 20;

/// What is wrong with a text that should be JSON, and is too long to look at closely.
pub(crate) fn flaw_of_long(text: &str, first: char) -> Option<Finding> {
    let message = match serde_json::from_str::<IgnoredAny>(text) {
        Ok(_) if text.trim_start().starts_with(first) => return None,
        Ok(_) => "not the kind of JSON value that was asked for",
        Err(err) if err.is_eof() => "JSON that is cut",
        Err(_) => "no JSON",
    };
    Some(Finding::new(SoftKind::Malformed, "json.long", message))
}

/// The start of a text, of at most so many bytes.
pub(crate) fn head(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Whether a field says anything: `null`, `false`, `0`, `""`, `{}` and `[]` do not.
pub(crate) fn truthy(text: &str) -> bool {
    let bare = text.trim();
    match bare.as_bytes() {
        [b'{', inner @ .., b'}'] | [b'[', inner @ .., b']'] => !inner.trim_ascii().is_empty(),
        _ => !matches!(bare, "" | "null" | "false" | "0" | "\"\""),
    }
}

/// Whether a value says anything, or of an object any of its fields: some servers send an error object always, and
/// nothing in it where there is none.
pub(crate) fn tells(text: &str) -> bool {
    struct Fields;

    impl<'de> Visitor<'de> for Fields {
        type Value = bool;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
            let mut any = false;
            while let Some((_, value)) = map.next_entry::<IgnoredAny, &RawValue>()? {
                any |= truthy(value.get());
            }
            Ok(any)
        }
    }

    if !text.starts_with('{') {
        return truthy(text);
    }
    serde_json::Deserializer::from_str(text).deserialize_map(Fields).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_field_sent_twice_the_last_counts_and_null_is_absent() {
        let found = fields(r#" {"a": 1, "b": null, "a": [2, 3], "\u0063": "x"} "#, ["a", "b", "c"]);
        assert_eq!(found, Some([Some("[2, 3]"), None, Some("\"x\"")]));
        for no_object in ["null", "[]", "{", "{} x", "{\"a\"}", ""] {
            assert_eq!(fields(no_object, ["a"]), None, "{no_object}");
        }
    }

    #[test]
    fn half_a_surrogate_pair_is_read_as_a_replacement_character() {
        assert_eq!(string(r#""ok \ud83d""#).as_deref(), Some("ok \u{fffd}\u{fffd}\u{fffd}"));
        assert_eq!(string("12"), None);
    }

    #[test]
    fn a_hundred_thousand_levels_are_no_trouble() {
        let deep = format!(r#"{{"a":{}{},"b":1}}"#, "[".repeat(100_000), "]".repeat(100_000));
        let [a, b] = fields(&deep, ["a", "b"]).unwrap();
        assert_eq!((a.map(str::len), b), (Some(200_000), Some("1")));
    }

    #[test]
    fn counts_saturate_and_are_never_negative() {
        assert_eq!(count("12"), Some(12));
        assert_eq!(count("1e400"), Some(u64::MAX));
        assert_eq!(count("3.0"), Some(3));
        assert_eq!(count("-1"), None);
        assert_eq!(count("\"7\""), None);
    }

    #[test]
    fn each_stops_when_told() {
        let mut seen = Vec::new();
        assert!(
            each("[1, 2, 3]", |element| {
                seen.push(element);
                seen.len() < 2
            })
            .is_some()
        );
        assert_eq!(seen, ["1", "2"]);
        assert!(each("{}", |_| true).is_none());
        assert!(has_elements("[0]") && !has_elements("[]") && !has_elements("7"));
    }
}
