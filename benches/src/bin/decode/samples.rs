//! Streams of 1 MB in small deltas, as servers send them.

use bytes::Bytes;

/// A stream, and the text in it.
pub(crate) struct Sample {
    pub(crate) name: &'static str,
    pub(crate) stream: String,
    pub(crate) text: String,
    pub(crate) events: usize,
}

const SIZE: usize = 1_000_000;

const ID: &str = "chatcmpl-BxQyZ3gC5u0m8rWq7T1nVbKpLsHdA";

const TOKENS: [&str; 16] = [
    " the",
    " answer",
    ",",
    " is",
    " in",
    "\\n\\n",
    " Zürich",
    " and",
    " it",
    " says",
    " \\\"so\\\"",
    ".",
    " While",
    " 42",
    " of",
    " a",
];

pub(crate) fn all() -> Vec<Sample> {
    vec![
        sample("OpenAI", |token, at| {
            let padding = &"aB3dE5gH7jK9mN1p"[..1 + at % 16];
            format!(
                r#"{{"id":"{ID}","object":"chat.completion.chunk","created":1750000000,"model":"gpt-4o-mini-2024-07-18","service_tier":"default","system_fingerprint":"fp_34a54ae93c","choices":[{{"index":0,"delta":{{"content":"{token}"}},"logprobs":null,"finish_reason":null}}],"usage":null,"obfuscation":"{padding}"}}"#
            )
        }),
        sample("vLLM", |token, _| {
            format!(
                r#"{{"id":"{ID}","object":"chat.completion.chunk","created":1750000000,"model":"llama-3.1-8b","choices":[{{"index":0,"delta":{{"content":"{token}"}},"logprobs":null,"finish_reason":null}}]}}"#
            )
        }),
        sample("smallest", |token, _| {
            format!(
                r#"{{"id":"{ID}","choices":[{{"index":0,"delta":{{"content":"{token}"}},"finish_reason":null}}]}}"#
            )
        }),
        sample("usage in each", |token, at| {
            format!(
                r#"{{"id":"{ID}","object":"chat.completion.chunk","created":1750000000,"model":"llama-3.1-8b","choices":[{{"index":0,"delta":{{"content":"{token}"}},"logprobs":null,"finish_reason":null}}],"usage":{{"prompt_tokens":31,"total_tokens":{},"completion_tokens":{at}}}}}"#,
                31 + at
            )
        }),
    ]
}

fn sample(name: &'static str, delta: impl Fn(&str, usize) -> String) -> Sample {
    let (mut stream, mut text, mut events) = (String::with_capacity(SIZE + 1024), String::new(), 0);
    while stream.len() < SIZE {
        let token = TOKENS[(events * 7 + events / 16) % TOKENS.len()];
        stream.push_str(&format!("data: {}\n\n", delta(token, events)));
        text.push_str(&token.replace("\\n", "\n").replace("\\\"", "\""));
        events += 1;
    }
    let end = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    stream.push_str(&format!("data: {end}\n\ndata: [DONE]\n\n"));
    Sample { name, stream, text, events: events + 2 }
}

/// How a stream arrives.
#[derive(Clone, Copy)]
pub(crate) enum Cut {
    /// An event in each piece, as servers flush.
    Events,
    /// Pieces of so many bytes.
    Bytes(usize),
}

impl Cut {
    pub(crate) fn name(self) -> String {
        match self {
            Self::Events => "event by event".to_owned(),
            Self::Bytes(size) => format!("{size} B pieces"),
        }
    }

    pub(crate) fn pieces(self, stream: &str) -> Vec<Bytes> {
        match self {
            Self::Events => {
                stream.split_inclusive("\n\n").map(|text| Bytes::copy_from_slice(text.as_bytes())).collect()
            }
            Self::Bytes(size) => stream.as_bytes().chunks(size).map(Bytes::copy_from_slice).collect(),
        }
    }
}
