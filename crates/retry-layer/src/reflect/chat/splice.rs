//! Changing a JSON text in one place: everything else stays byte for byte, numbers, order and spaces included. A model's
//! provider caches prompts by their beginning, and a schema whose fields were sorted is another schema.

use std::{fmt::Write as _, ops::Range};

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

/// The parts of a chat request that matter here. A body that has one of them twice is not read: which of them counts, nobody knows.
#[derive(Deserialize)]
pub(super) struct Top<'a> {
    #[serde(borrow, default)]
    pub(super) messages: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) contents: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) input: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) max_output_tokens: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) max_tokens: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) max_completion_tokens: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "generationConfig", alias = "generation_config")]
    pub(super) generation_config: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) thinking: Option<&'a RawValue>,
}

/// Gemini's limit lies deeper.
#[derive(Deserialize)]
pub(super) struct GenerationConfig<'a> {
    #[serde(borrow, default, rename = "maxOutputTokens", alias = "max_output_tokens")]
    pub(super) max_output_tokens: Option<&'a RawValue>,
}

impl<'a> Top<'a> {
    pub(super) fn read(body: &'a str) -> Option<Self> {
        // A list of fields would pass for them as well.
        body.trim_start().starts_with('{').then(|| serde_json::from_str(body).ok())?
    }
}

/// A limit of tokens where it stands.
pub(super) struct Limit<'a> {
    raw: &'a RawValue,
    value: u64,
}

impl<'a> Limit<'a> {
    pub(super) fn read(raw: &'a RawValue) -> Option<Self> {
        Some(Self { raw, value: raw.get().parse().ok()? })
    }

    pub(super) const fn value(&self) -> u64 {
        self.value
    }

    pub(super) fn replaced(&self, value: u64) -> Edit<'a> {
        Edit { part: self.raw.get(), at: 0..self.raw.get().len(), text: value.to_string() }
    }
}

/// Text in place of a range of a part of the body.
pub(super) struct Edit<'a> {
    part: &'a str,
    at: Range<usize>,
    text: String,
}

impl<'a> Edit<'a> {
    /// More elements at the end of a list. A text stands for a list of one turn of the user's, as in OpenAI's `input`; `None` for
    /// anything else.
    pub(super) fn append(list: &'a RawValue, elements: &[Value]) -> Option<Self> {
        let part = list.get();
        if part.starts_with('"') {
            let mut text = format!("[{{\"role\":\"user\",\"content\":{part}}}");
            elements.iter().for_each(|element| text.push_str(&format!(",{element}")));
            return Some(Self { part, at: 0..part.len(), text: text + "]" });
        }
        let inside = part.strip_prefix('[')?.strip_suffix(']')?;
        let mut text = String::new();
        let mut is_first = inside.trim().is_empty();
        for element in elements {
            let comma = if std::mem::take(&mut is_first) { "" } else { "," };
            // Writing to a `String` cannot fail.
            let _ = write!(text, "{comma}{element}");
        }
        let end = 1 + inside.trim_end().len();
        Some(Self { part, at: end..end, text })
    }

    /// The body with the edit; `None` if the part is not a part of it.
    pub(super) fn apply(&self, body: &str) -> Option<String> {
        let start = (self.part.as_ptr() as usize).checked_sub(body.as_ptr() as usize)?;
        let at = start.checked_add(self.at.start)?..start.checked_add(self.at.end)?;
        let (before, after) = (body.get(..at.start)?, body.get(at.end..)?);
        Some([before, &self.text, after].concat())
    }
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_but_the_new_elements_stays_byte_for_byte() {
        let body =
            "{ \"n\": 1e0,\n \"messages\" : [ {\"b\":1, \"a\":2}\n ] , \"z\": 12345678901234567890123 }";
        let top = Top::read(body).unwrap();
        let edit = Edit::append(top.messages.unwrap(), &[json!(1), json!("x")]).unwrap();
        assert_eq!(
            edit.apply(body).unwrap(),
            "{ \"n\": 1e0,\n \"messages\" : [ {\"b\":1, \"a\":2},1,\"x\"\n ] , \"z\": 12345678901234567890123 }"
        );
        assert_eq!(edit.apply("another"), None);
    }

    #[test]
    fn an_empty_list_gets_no_comma_before_its_first_element() {
        let body = r#"{"messages":[ ]}"#;
        let top = Top::read(body).unwrap();
        let edit = Edit::append(top.messages.unwrap(), &[json!(1), json!(2)]).unwrap();
        assert_eq!(edit.apply(body).unwrap(), r#"{"messages":[1,2 ]}"#);
    }

    #[test]
    fn what_is_no_object_or_says_a_thing_twice_is_not_read() {
        for body in ["", "[]", "{", "x", r#"{"messages":[],"messages":[]}"#] {
            assert!(Top::read(body).is_none(), "{body}");
        }
        let top = Top::read(r#"{"messages":{}}"#).unwrap();
        assert!(Edit::append(top.messages.unwrap(), &[]).is_none());
        let top = Top::read(r#"{"messages":null,"max_tokens":-1}"#).unwrap();
        assert!(top.messages.is_none() && Limit::read(top.max_tokens.unwrap()).is_none());
    }
}
