//! Asks Gemini, Bedrock and Ollama, and reads their streams through the public decoder.

#![allow(dead_code, reason = "each test file uses a part of it")]

use bytes::Bytes;
use failsoft_core::{End, Insight};
use http::{Request, Response};
use llm_layer::{LlmDecoder, LlmProtocol, Provider};
use stream_layer::{Decoder as _, Mode, Protocol as _, Reader as _, Until};

use super::{Told, aws::event};

pub(crate) const GEMINI: &str = "/v1beta/models/gemini-2.5-flash:streamGenerateContent";
pub(crate) const BEDROCK: &str = "/model/eu.anthropic.claude/converse-stream";
pub(crate) const OLLAMA: &str = "/api/chat";

/// What was asked, and how it is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) provider: Provider,
    pub(crate) path: &'static str,
    pub(crate) body: &'static str,
    pub(crate) kind: &'static str,
}

pub(crate) const SSE: Ask =
    Ask { provider: Provider::Gemini, path: GEMINI, body: r#"{"contents":[]}"#, kind: "text/event-stream" };
pub(crate) const ARRAY: Ask = Ask { kind: "application/json; charset=UTF-8", ..SSE };
pub(crate) const BINARY: Ask = Ask {
    provider: Provider::Bedrock,
    path: BEDROCK,
    body: r#"{"messages":[]}"#,
    kind: "application/vnd.amazon.eventstream",
};
pub(crate) const LINES: Ask = Ask {
    provider: Provider::Ollama,
    path: OLLAMA,
    body: r#"{"messages":[]}"#,
    kind: "application/x-ndjson",
};

impl Ask {
    pub(crate) fn with(self, body: &'static str) -> Self {
        Self { body, ..self }
    }

    pub(crate) fn decoder(self) -> (LlmDecoder, Insight) {
        let request = Request::post(self.path).body(self.body).unwrap();
        let (mut parts, ()) =
            Response::builder().header("content-type", self.kind).body(()).unwrap().into_parts();
        let reader = LlmProtocol::new(self.provider).request(&request);
        let Mode::Hold { decoder, until } = reader.head(&mut parts, Until::default()) else {
            panic!("not held")
        };
        assert_eq!(until, Until::default(), "read as a stream");
        (decoder, Insight::of(&parts.extensions).unwrap().clone())
    }

    pub(crate) fn read_pieces<'a>(self, pieces: impl IntoIterator<Item = &'a [u8]>) -> Told {
        let (mut decoder, insight) = self.decoder();
        let mut content = false;
        for piece in pieces {
            let seen = decoder.feed(&Bytes::copy_from_slice(piece));
            content |= seen.content;
            if seen.is_over() {
                drop(decoder);
                let end = match (seen.fault, seen.end) {
                    (Some(fault), _) => Err(fault),
                    (None, end) => Ok(end),
                };
                return Told { end, content, facts: insight.facts() };
            }
        }
        let end = decoder.end(End::Clean(None));
        drop(decoder);
        Told { end, content, facts: insight.facts() }
    }

    /// Reads a stream, and makes sure that it says the same however it is cut.
    pub(crate) fn read(self, body: &[u8]) -> Told {
        let whole = self.read_pieces([body]);
        let essence = |told: &Told| {
            let facts = &told.facts;
            let verdict = told.verdict();
            (
                (verdict, told.end.is_ok(), told.content, facts.usage, facts.finish.clone()),
                (facts.text.clone(), facts.tool_calls.clone(), facts.output_bytes),
            )
        };
        for pieces in [
            body.chunks(1).collect::<Vec<_>>(),
            body.chunks(7).collect(),
            body.split_inclusive(|byte| *byte == b'\n').collect(),
        ] {
            assert_eq!(essence(&self.read_pieces(pieces)), essence(&whole));
        }
        whole
    }
}

/// The same chunks in both of Gemini's forms.
pub(crate) fn gemini(chunks: &[&str]) -> [(Ask, Vec<u8>); 2] {
    let events = chunks.iter().map(|chunk| format!("data: {chunk}\r\n\r\n")).collect::<String>();
    let array = format!("[{}\n]\n", chunks.join("\n,\r\n"));
    [(SSE, events.into_bytes()), (ARRAY, array.into_bytes())]
}

/// A `ConverseStream` in messages: text, then its end.
pub(crate) fn converse(events: &[(&str, &str)]) -> Vec<u8> {
    events.iter().flat_map(|(name, payload)| event(name, payload)).collect()
}
