//! Streams of 1 MB in small deltas, as servers send them.

use bytes::Bytes;
use llm_layer::Provider;

/// A stream, and the text in it.
pub(crate) struct Sample {
    pub(crate) name: &'static str,
    pub(crate) provider: Provider,
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
        messages(),
        responses(),
    ]
}

/// Anthropic's.
fn messages() -> Sample {
    let mut sample = Sample::new("Messages", Provider::Anthropic);
    sample.event(
        "message_start",
        r#"{"type":"message_start","message":{"id":"msg_01XFDUDYJgAACzvnptvVoYEL","type":"message","role":"assistant","content":[],"model":"claude-sonnet-4-5","stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":25,"output_tokens":1}}}"#,
    );
    sample.event(
        "content_block_start",
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
    );
    sample.deltas("content_block_delta", |token, _| {
        format!(
            r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{token}"}}}}"#
        )
    });
    sample.event("content_block_stop", r#"{"type":"content_block_stop","index":0}"#);
    sample.event(
        "message_delta",
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":9000}}"#,
    );
    sample.event("message_stop", r#"{"type":"message_stop"}"#);
    sample
}

/// OpenAI's newer interface.
fn responses() -> Sample {
    let mut sample = Sample::new("Responses", Provider::OpenAiResponses);
    let item = "msg_67c9fdcf37fc8190ba82116e33fb28c507b8b0ad4e5eb654";
    sample.deltas("response.output_text.delta", |token, at| {
        let padding = &"aB3dE5gH7jK9mN1p"[..1 + at % 16];
        format!(
            r#"{{"type":"response.output_text.delta","sequence_number":{at},"item_id":"{item}","output_index":0,"content_index":0,"delta":"{token}","logprobs":[],"obfuscation":"{padding}"}}"#
        )
    });
    let usage = r#"{"input_tokens":25,"output_tokens":9000,"total_tokens":9025}"#;
    let end = format!(
        r#"{{"type":"response.completed","response":{{"id":"resp_1","object":"response","status":"completed","output":[],"usage":{usage}}}}}"#
    );
    sample.event("response.completed", &end);
    sample
}

impl Sample {
    fn new(name: &'static str, provider: Provider) -> Self {
        Self { name, provider, stream: String::with_capacity(SIZE + 1024), text: String::new(), events: 0 }
    }

    fn event(&mut self, name: &str, data: &str) {
        if !name.is_empty() {
            self.stream.push_str("event: ");
            self.stream.push_str(name);
            self.stream.push('\n');
        }
        self.stream.push_str("data: ");
        self.stream.push_str(data);
        self.stream.push_str("\n\n");
        self.events += 1;
    }

    fn deltas(&mut self, name: &str, delta: impl Fn(&str, usize) -> String) {
        while self.stream.len() < SIZE {
            let at = self.events;
            let token = TOKENS[(at * 7 + at / 16) % TOKENS.len()];
            self.event(name, &delta(token, at));
            self.text.push_str(&token.replace("\\n", "\n").replace("\\\"", "\""));
        }
    }
}

fn sample(name: &'static str, delta: impl Fn(&str, usize) -> String) -> Sample {
    let mut sample = Sample::new(name, Provider::OpenAiCompatible);
    sample.deltas("", delta);
    sample.event("", r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#);
    sample.event("", "[DONE]");
    sample
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
