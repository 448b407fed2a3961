//! How this program reads answers, whole ones and streams, for both runs alike: what it finds, and no questions asked.

use crate::job::{Answer, ToolCall};
use reqwest::Response;
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

/// An answer as far as it was read.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Reading {
    pub(crate) answer: Answer,
    /// From the call to the first word of a stream.
    pub(crate) first_content: Option<Duration>,
    /// The reader had enough and hung up.
    pub(crate) left: bool,
}

/// A stream that broke off.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) error: reqwest::Error,
    /// What had come until then.
    pub(crate) reading: Reading,
}

/// Reads a stream up to `[DONE]` or its end, or until so many bytes of text are there.
pub(crate) async fn read(
    mut response: Response,
    begun: Instant,
    leave_after: Option<usize>,
) -> Result<Reading, Broken> {
    let mut reading = Reading::default();
    let mut lines = Lines::default();
    loop {
        let bytes = match response.chunk().await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(reading),
            Err(error) => return Err(Broken { error, reading }),
        };
        lines.0.extend_from_slice(&bytes);
        while let Some(line) = lines.next() {
            let Some(data) = line.strip_prefix("data:").map(str::trim) else { continue };
            if data == "[DONE]" {
                return Ok(reading);
            }
            if reading.answer.append(data) && reading.first_content.is_none() {
                reading.first_content = Some(begun.elapsed());
            }
        }
        if leave_after.is_some_and(|bytes| reading.answer.content.len() >= bytes) {
            reading.left = true;
            return Ok(reading);
        }
    }
}

/// Lines out of bytes that are cut anywhere.
#[derive(Debug, Default)]
struct Lines(Vec<u8>);

impl Lines {
    fn next(&mut self) -> Option<String> {
        let end = self.0.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = self.0.drain(..=end).collect();
        Some(String::from_utf8_lossy(&line).trim_end().to_owned())
    }
}

impl Answer {
    /// Adds what stands in one event, and says whether that was anything.
    fn append(&mut self, data: &str) -> bool {
        let Ok(event) = serde_json::from_str::<Value>(data) else { return false };
        let Some(delta) = event.pointer("/choices/0/delta") else { return false };
        let text = |pointer: &str| delta.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let content = text("/content");
        self.content.push_str(content);
        if delta.pointer("/tool_calls/0").is_none() {
            return !content.is_empty();
        }
        let call = self.call.get_or_insert_with(ToolCall::default);
        call.id.push_str(text("/tool_calls/0/id"));
        call.name.push_str(text("/tool_calls/0/function/name"));
        call.arguments.push_str(text("/tool_calls/0/function/arguments"));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_however_they_are_cut() {
        let mut lines = Lines::default();
        let mut found = Vec::new();
        for byte in "data: a\r\n\n: ping\ndata: bä\nrest".bytes() {
            lines.0.push(byte);
            found.extend(std::iter::from_fn(|| lines.next()));
        }
        assert_eq!(found, ["data: a", "", ": ping", "data: bä"]);
    }

    #[test]
    fn deltas_add_up() {
        let mut answer = Answer::default();
        let delta = |delta: Value| serde_json::json!({"choices": [{"delta": delta}]}).to_string();
        assert!(!answer.append(&delta(serde_json::json!({"role": "assistant", "content": ""}))));
        assert!(answer.append(&delta(serde_json::json!({"content": "He"}))));
        assert!(answer.append(&delta(serde_json::json!({"content": "llo"}))));
        assert!(!answer.append(r#"{"choices": [], "usage": {}}"#) && !answer.append("{"));
        let call = |id: Value, name: Value, arguments: &str| {
            let function = serde_json::json!({"name": name, "arguments": arguments});
            delta(serde_json::json!({"tool_calls": [{"index": 0, "id": id, "function": function}]}))
        };
        assert!(answer.append(&call("c1".into(), "quote".into(), "")));
        assert!(answer.append(&call(Value::Null, Value::Null, "{}")));
        assert_eq!(answer.content, "Hello");
        let expected = ToolCall { id: "c1".into(), name: "quote".into(), arguments: "{}".into() };
        assert_eq!(answer.call, Some(expected));
    }
}
