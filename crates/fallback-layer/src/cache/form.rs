//! One answer in two forms: whole, and as the events of a stream. Chat completions as OpenAI has them; what is not understood
//! to the last field is not converted.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::key::Want;
#[cfg(test)]
use crate::answer::ends_as_a_stream;
use crate::answer::{Answer, is_type};

const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";

/// The content type and the body of an answer in the form that is wanted.
pub(super) fn convert(answer: &Answer, want: Want) -> Option<(&'static str, Bytes)> {
    let events = is_type(&answer.headers, EVENTS);
    let whole = if events {
        to_whole(&answer.bytes)?
    } else if is_type(&answer.headers, JSON) {
        serde_json::from_slice(&answer.bytes).ok()?
    } else {
        return None;
    };
    match want {
        Want::Unsaid => None,
        Want::Whole => Some((JSON, serde_json::to_vec(&whole).ok()?.into())),
        Want::Stream { usage } => Some((EVENTS, to_events(&whole, usage)?.into())),
    }
}

/// The chunks: for each choice its message in one piece and its end; then the usage, where it is asked for.
fn to_events(whole: &Value, usage: bool) -> Option<String> {
    let whole = whole
        .as_object()
        .filter(|whole| whole.get("object").is_some_and(|object| object == "chat.completion"))?;
    let mut head = whole.clone();
    let choices = head.remove("choices")?;
    let used = head.remove("usage").filter(|used| !used.is_null());
    if usage && used.is_none() {
        return None;
    }
    head.insert("object".to_owned(), "chat.completion.chunk".into());
    let mut events = String::new();
    let mut push = |choices: Value, used: Option<&Value>| {
        let mut chunk = head.clone();
        chunk.insert("choices".to_owned(), choices);
        if usage {
            chunk.insert("usage".to_owned(), used.cloned().unwrap_or_default());
        }
        events.push_str("data: ");
        events.push_str(&Value::Object(chunk).to_string());
        events.push_str("\n\n");
    };
    for choice in choices.as_array()? {
        let mut choice = choice.as_object()?.clone();
        let Value::Object(mut delta) = choice.remove("message")? else { return None };
        if let Some(Value::Array(calls)) = delta.get_mut("tool_calls") {
            for (index, call) in calls.iter_mut().enumerate() {
                call.as_object_mut()?.insert("index".to_owned(), index.into());
            }
        }
        let finish =
            choice.insert("finish_reason".to_owned(), Value::Null).filter(|finish| finish.is_string())?;
        let index = choice.get("index").cloned().unwrap_or_else(|| 0.into());
        choice.insert("delta".to_owned(), Value::Object(delta));
        push(json!([choice]), None);
        push(json!([{"index": index, "delta": {}, "finish_reason": finish}]), None);
    }
    if usage {
        push(json!([]), used.as_ref());
    }
    events.push_str("data: [DONE]\n\n");
    Some(events)
}

/// The chunks put together.
fn to_whole(events: &[u8]) -> Option<Value> {
    let events = std::str::from_utf8(events).ok()?;
    let mut whole: Option<Map<String, Value>> = None;
    let (mut choices, mut used, mut is_over) = (Vec::new(), Value::Null, false);
    for line in events.lines().map(str::trim_end) {
        let Some(data) = line.strip_prefix("data:").map(str::trim) else {
            // Comments keep the connection open, and the name of an event is the same for all chunks.
            if line.is_empty() || line.starts_with(':') {
                continue;
            }
            return None;
        };
        if data == "[DONE]" {
            is_over = true;
            break;
        }
        let mut chunk: Map<String, Value> = serde_json::from_str(data).ok()?;
        if chunk.get("object").is_none_or(|object| object != "chat.completion.chunk") {
            return None;
        }
        for choice in chunk.remove("choices")?.as_array()? {
            add_choice(&mut choices, choice)?;
        }
        if let Some(last) = chunk.remove("usage").filter(|last| !last.is_null()) {
            used = last;
        }
        // Made up so that the chunks do not tell how long they are.
        chunk.remove("obfuscation");
        whole.get_or_insert(chunk);
    }
    let mut whole = whole.filter(|_| is_over)?;
    whole.insert("object".to_owned(), "chat.completion".into());
    whole.insert("choices".to_owned(), choices.into_iter().map(Choice::into_whole).collect::<Option<_>>()?);
    if !used.is_null() {
        whole.insert("usage".to_owned(), used);
    }
    Some(Value::Object(whole))
}

struct Choice {
    index: u64,
    message: Map<String, Value>,
    calls: Vec<Map<String, Value>>,
    finish: Value,
}

/// More of them in one answer are no answer.
const MAX_PARTS: usize = 128;

fn add_choice(choices: &mut Vec<Choice>, choice: &Value) -> Option<()> {
    let index = choice.get("index").and_then(Value::as_u64).unwrap_or(0);
    let place = choices.iter().position(|choice| choice.index == index);
    let place = place.unwrap_or_else(|| {
        choices.push(Choice { index, message: Map::new(), calls: Vec::new(), finish: Value::Null });
        choices.len() - 1
    });
    let into = choices.get_mut(place).filter(|_| place < MAX_PARTS)?;
    for (name, value) in choice.as_object()? {
        match (&**name, value) {
            ("index", _) | (_, Value::Null) => {}
            ("finish_reason", _) => into.finish = value.clone(),
            ("delta", Value::Object(delta)) => {
                for (name, value) in delta {
                    match (&**name, value) {
                        ("tool_calls", Value::Array(calls)) => {
                            calls.iter().try_for_each(|call| add_call(&mut into.calls, call))?;
                        }
                        ("role", Value::String(_)) => {
                            into.message.insert(name.clone(), value.clone());
                        }
                        _ => add(&mut into.message, name, value)?,
                    }
                }
            }
            // Such as the probabilities of tokens.
            _ => return None,
        }
    }
    Some(())
}

fn add_call(calls: &mut Vec<Map<String, Value>>, call: &Value) -> Option<()> {
    let index = usize::try_from(call.get("index")?.as_u64()?)
        .ok()
        .filter(|index| *index <= calls.len() && *index < MAX_PARTS)?;
    if index == calls.len() {
        calls.push(Map::new());
    }
    let into = calls.get_mut(index)?;
    for (name, value) in call.as_object()? {
        match (&**name, value) {
            ("index", _) | (_, Value::Null) => {}
            ("id" | "type", Value::String(text)) if !text.is_empty() => {
                into.insert(name.clone(), value.clone());
            }
            ("id" | "type", Value::String(_)) => {}
            ("function", Value::Object(part)) => {
                let function = into.entry("function").or_insert_with(|| json!({})).as_object_mut()?;
                part.iter().try_for_each(|(name, value)| add(function, name, value))?;
            }
            _ => return None,
        }
    }
    Some(())
}

/// Texts are joined; nothing else comes in pieces.
fn add(into: &mut Map<String, Value>, name: &str, value: &Value) -> Option<()> {
    match (into.get_mut(name), value) {
        (_, Value::Null) => {
            into.entry(name).or_insert(Value::Null);
        }
        (Some(Value::String(text)), Value::String(more)) => text.push_str(more),
        (None | Some(Value::Null), Value::String(_)) => {
            into.insert(name.to_owned(), value.clone());
        }
        _ => return None,
    }
    Some(())
}

impl Choice {
    fn into_whole(mut self) -> Option<Value> {
        if !self.finish.is_string() {
            return None;
        }
        self.message.entry("role").or_insert_with(|| "assistant".into());
        self.message.entry("content").or_insert(Value::Null);
        if !self.calls.is_empty() {
            self.message.insert("tool_calls".to_owned(), self.calls.into_iter().map(Value::Object).collect());
        }
        Some(json!({"index": self.index, "message": self.message, "finish_reason": self.finish}))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole() -> Value {
        json!({
            "id": "c1", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [
                {"index": 0, "message": {"role": "assistant", "content": "Hi \u{1f600}\n", "refusal": null}, "finish_reason": "stop"},
                {"index": 1, "finish_reason": "tool_calls", "message": {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}},
                    {"id": "t2", "type": "function", "function": {"name": "g", "arguments": "{}"}}]}},
            ],
            "usage": {"prompt_tokens": 9, "completion_tokens": 3}
        })
    }

    // G119
    #[test]
    fn there_and_back_again_is_the_same_answer() {
        let events = to_events(&whole(), true).unwrap();
        assert!(ends_as_a_stream(events.as_bytes()));
        assert_eq!(to_whole(events.as_bytes()).unwrap(), whole());
        let mut without = whole();
        without.as_object_mut().unwrap().remove("usage");
        assert_eq!(to_whole(to_events(&whole(), false).unwrap().as_bytes()).unwrap(), without);
        assert_eq!(to_events(&without, true), None, "usage that nobody knows is not made up");
    }

    #[test]
    fn the_chunks_of_a_real_stream_are_put_together() {
        let chunk = |delta: &str, finish: &str| {
            format!(
                "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"obfuscation\":\"x\",\
                 \"choices\":[{{\"index\":0,\"delta\":{delta},\"logprobs\":null,\"finish_reason\":{finish}}}]}}\r\n\r\n"
            )
        };
        let mut events = ": keepalive\n\n".to_owned();
        events += &chunk(r#"{"role":"assistant","content":null}"#, "null");
        events += &chunk(
            r#"{"tool_calls":[{"index":0,"id":"t","type":"function","function":{"name":"f","arguments":""}}]}"#,
            "null",
        );
        events += &chunk(r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\""}}]}"#, "null");
        events += &chunk(r#"{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}"#, "null");
        events += &chunk("{}", "\"tool_calls\"");
        let cut = events.clone();
        events += "data: [DONE]\n\n";
        let whole = to_whole(events.as_bytes()).unwrap();
        assert_eq!(whole["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], "{\"a\":1}");
        assert_eq!(whole["choices"][0]["finish_reason"], "tool_calls");
        assert_eq!(to_whole(cut.as_bytes()), None);
    }

    #[test]
    fn what_is_not_understood_is_not_converted() {
        let odd = |choice: &str| {
            to_whole(format!("data: {{\"object\":\"chat.completion.chunk\",\"choices\":[{choice}]}}\n\ndata: [DONE]\n\n").as_bytes())
        };
        assert!(odd(r#"{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}"#).is_some());
        for choice in [
            r#"{"index":0,"delta":{"content":"a"}}"#,
            r#"{"index":0,"delta":{"audio":{}},"finish_reason":"stop"}"#,
            r#"{"index":0,"delta":{},"logprobs":{"content":[]},"finish_reason":"stop"}"#,
            r#"{"index":0,"delta":{"tool_calls":[{"index":7}]},"finish_reason":"stop"}"#,
            "7",
        ] {
            assert_eq!(odd(choice), None, "{choice}");
        }
        for whole in [
            json!([]),
            json!({"object": "list", "choices": []}),
            json!({"object": "chat.completion", "choices": [{"message": 1}]}),
        ] {
            assert_eq!(to_events(&whole, false), None);
        }
    }

    #[test]
    fn a_stream_is_over_after_its_own_last_event_and_only_then() {
        for over in [
            "data: [DONE]\n\n",
            "data:[DONE]\r\n\r\n",
            "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        ] {
            assert!(ends_as_a_stream(format!("data: x\n\n{over}").as_bytes()), "{over}");
        }
        for on in [
            "",
            "data: [DONE]",
            "data: [DONE]\n",
            "data: x\n\n",
            "data: say [DONE]\n\n",
            "data: {\"type\":\"message_stop\"}\n\n",
            "data: [DONE]\n\ndata: x\n\n",
        ] {
            assert!(!ends_as_a_stream(on.as_bytes()), "{on}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80), text in "(data: |\\[DONE\\]|\\{|\\}|\n|\"choices\":|\\[|\\]|1){0,20}") {
            let _ = (to_whole(&bytes), ends_as_a_stream(&bytes), to_whole(text.as_bytes()), ends_as_a_stream(text.as_bytes()));
        }
    }
}
