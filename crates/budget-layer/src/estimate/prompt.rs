//! The texts of a request in which a model sees its prompt, for an exact tokenizer.

use std::fmt;

use failsoft_core::estimate_tokens;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// What each message has around it, and the beginning of the answer: by what OpenAI documents of its chat format.
const MESSAGE: u64 = 3;
const ANSWER: u64 = 3;

/// How many tokens the prompt of a request has, by a tokenizer. `None` where it is none that is known: it is no JSON, or has
/// none of the members that prompts stand in.
pub(super) fn count_prompt(body: &[u8], tokenizer: &dyn Fn(&str) -> u64) -> Option<u64> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let request = Texts { tokenizer, place: Place::Request };
    let Counted { tokens, is_prompt } = request.deserialize(&mut deserializer).ok()?;
    deserializer.end().ok()?;
    is_prompt.then(|| tokens.saturating_add(ANSWER))
}

/// Where in a request a value stands.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Request,
    /// A list of messages, or a single text.
    Messages,
    /// Part of a prompt, of which only values count under the names that the dialects have.
    Prompt,
    /// Tools, schemas and arguments, of which names count too.
    Schema,
    /// An image, or a file.
    Data,
}

impl Place {
    /// Where the value of a member stands; `None` where the model does not see it.
    fn of(self, name: &str) -> Option<Self> {
        match (self, name) {
            (Self::Request, "messages" | "contents" | "input") => Some(Self::Messages),
            (
                Self::Request,
                "prompt" | "system" | "instructions" | "systemInstruction" | "system_instruction",
            ) => Some(Self::Prompt),
            (Self::Request, "tools" | "functions" | "toolConfig" | "response_format" | "text" | "format") => {
                Some(Self::Schema)
            }
            // The answer's schema is among its settings.
            (Self::Request, "generationConfig") => Some(Self::Schema),
            (Self::Request, _) => None,
            (Self::Data, _) => Some(Self::Data),
            (Self::Schema, _) => Some(Self::Schema),
            (
                _,
                "type" | "cache_control" | "cachePoint" | "detail" | "media_type" | "mimeType" | "mime_type",
            ) => None,
            (
                _,
                "image_url" | "image" | "inlineData" | "inline_data" | "source" | "input_audio" | "file"
                | "file_data" | "document" | "video",
            ) => Some(Self::Data),
            _ => Some(Self::Prompt),
        }
    }

    /// Whether the name of a member is seen too, in this place.
    fn shows(self, name: &str) -> bool {
        match self {
            Self::Schema => true,
            Self::Messages | Self::Prompt => !matches!(name, "role" | "content" | "text" | "parts" | "name"),
            Self::Request | Self::Data => false,
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Counted {
    tokens: u64,
    /// There was one of the members that prompts stand in.
    is_prompt: bool,
}

impl Counted {
    fn add(&mut self, tokens: u64) {
        self.tokens = self.tokens.saturating_add(tokens);
    }
}

/// Counts the texts of a value as they are read, and keeps none.
#[derive(Clone, Copy)]
struct Texts<'a> {
    tokenizer: &'a dyn Fn(&str) -> u64,
    place: Place,
}

impl<'de> DeserializeSeed<'de> for Texts<'_> {
    type Value = Counted;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Counted, D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// A number or another short word.
const WORD: Counted = Counted { tokens: 1, is_prompt: false };

impl<'de> Visitor<'de> for Texts<'_> {
    type Value = Counted;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Counted, E> {
        let tokens = match self.place {
            Place::Data => estimate_tokens(text),
            Place::Request => 0,
            Place::Messages => MESSAGE.saturating_add((self.tokenizer)(text)),
            Place::Prompt | Place::Schema => (self.tokenizer)(text),
        };
        Ok(Counted { tokens, is_prompt: false })
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Counted, E> {
        Ok(WORD)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Counted, E> {
        Ok(WORD)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Counted, E> {
        Ok(WORD)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Counted, E> {
        Ok(WORD)
    }

    fn visit_unit<E: Error>(self) -> Result<Counted, E> {
        Ok(Counted::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Counted, A::Error> {
        let mut counted = Counted::default();
        let (each, place) = match self.place {
            Place::Messages => (MESSAGE, Place::Prompt),
            place => (0, place),
        };
        while let Some(value) = values.next_element_seed(Texts { place, ..self })? {
            counted.add(value.tokens.saturating_add(each));
        }
        Ok(counted)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Counted, A::Error> {
        let mut counted = Counted::default();
        while let Some(name) = members.next_key::<String>()? {
            let Some(place) = self.place.of(&name) else {
                members.next_value::<IgnoredAny>()?;
                continue;
            };
            if self.place == Place::Request && place != Place::Schema {
                counted.is_prompt = true;
            }
            if self.place.shows(&name) {
                // With what stands between it and its value.
                counted.add((self.tokenizer)(&name).saturating_add(1));
            } else if name == "name" {
                counted.add(1);
            }
            let value = members.next_value_seed(Texts { place, ..self })?;
            counted.add(value.tokens);
        }
        Ok(counted)
    }
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use super::*;

    /// Words, so that sums can be done by hand.
    fn count(json: &str) -> Option<u64> {
        count_prompt(json.as_bytes(), &|text| text.split_whitespace().count() as u64)
    }

    #[test]
    fn the_texts_of_messages_count_and_what_stands_around_them() {
        let two = r#"{"model": "m", "temperature": 1, "messages": [
            {"role": "user", "content": "a b c"}, {"role": "user", "name": "n", "content": "d"}]}"#;
        assert_eq!(count(two), Some((3 + 1 + 3) + (3 + 1 + 1 + 1 + 1) + 3));
        let parts = r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": "a b"}]}], "system": "c d e"}"#;
        assert_eq!(count(parts), Some(3 + 1 + 2 + 3 + 3));
    }

    #[test]
    fn each_dialects_prompt_is_found() {
        for json in [
            r#"{"contents": [{"parts": [{"text": "a b"}]}]}"#,
            r#"{"input": "a b"}"#,
            r#"{"input": [{"content": "a b"}]}"#,
            r#"{"messages": [{"content": [{"text": "a b"}]}]}"#,
        ] {
            assert_eq!(count(json), Some(3 + 2 + 3), "{json}");
        }
        assert_eq!(count(r#"{"prompt": "a b"}"#), Some(2 + 3));
        assert_eq!(count(r#"{"input": "a", "instructions": "b c"}"#), Some(3 + 1 + 2 + 3));
    }

    #[test]
    fn of_tools_and_arguments_names_count_too() {
        let tools =
            r#"{"messages": [], "tools": [{"name": "f", "parameters": {"required": ["x"], "n": 7}}]}"#;
        // name f, parameters, required x, n 7
        assert_eq!(count(tools), Some((2 + 1) + 2 + (2 + 1) + (2 + 1) + 3));
        let call = r#"{"messages": [{"content": [{"type": "tool_use", "input": {"city": "Bern"}}]}]}"#;
        assert_eq!(count(call), Some(3 + 2 + 2 + 1 + 3));
    }

    #[test]
    fn an_image_is_estimated_and_a_long_word_in_a_text_is_counted() {
        let image = "a".repeat(1_000_000);
        let of_image = format!(
            r#"{{"messages": [{{"content": [{{"image_url": {{"url": "data:image/png;base64,{image}"}}}}]}}]}}"#
        );
        let tokens = count(&of_image).unwrap();
        assert!((1_100..1_120).contains(&tokens), "{tokens}");
        let of_text = format!(r#"{{"messages": [{{"content": "{image}"}}]}}"#);
        let by_bytes = count_prompt(of_text.as_bytes(), &|text| text.len() as u64);
        assert_eq!(by_bytes, Some(3 + 1_000_000 + 3));
    }

    #[test]
    fn what_is_no_prompt_is_none() {
        for json in [
            "",
            "[]",
            "7",
            "{}",
            r#"{"query": "a"}"#,
            r#"{"tools": []}"#,
            r#"{"messages": []"#,
            r#"{"messages": []} x"#,
        ] {
            assert_eq!(count(json), None, "{json}");
        }
        let deep = format!(r#"{{"messages": {}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(count(&deep), None);
        assert_eq!(count(r#"{"messages": null}"#), Some(3));
    }
}
