//! Streams of 1 MB in small deltas, as servers send them.

use bytes::Bytes;
use llm_layer::Provider;

/// A stream, and the text in it.
pub(crate) struct Sample {
    pub(crate) name: &'static str,
    pub(crate) provider: Provider,
    pub(crate) framing: Framing,
    /// Of the request.
    pub(crate) path: &'static str,
    pub(crate) stream: Vec<u8>,
    pub(crate) text: String,
    pub(crate) events: usize,
    /// Where each event ends.
    ends: Vec<usize>,
}

/// How events are framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Server-sent events.
    Sse,
    /// Lines of JSON.
    Lines,
    /// The elements of a JSON array.
    Array,
    /// AWS's messages.
    Binary,
}

impl Framing {
    pub(crate) const fn media_type(self) -> &'static str {
        match self {
            Self::Sse => "text/event-stream",
            Self::Lines => "application/x-ndjson",
            Self::Array => "application/json",
            Self::Binary => "application/vnd.amazon.eventstream",
        }
    }
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
        gemini("Gemini events", Framing::Sse),
        gemini("Gemini array", Framing::Array),
        ollama(),
        bedrock(),
    ]
}

/// Google's. The counts come with every chunk.
fn gemini(name: &'static str, framing: Framing) -> Sample {
    let mut sample = Sample::new(name, Provider::Gemini);
    sample.framing = framing;
    sample.path = "/v1beta/models/gemini-2.5-flash:streamGenerateContent";
    let usage = |at: usize| {
        format!(
            r#""usageMetadata": {{"promptTokenCount": 31,"candidatesTokenCount": {at},"totalTokenCount": {},"promptTokensDetails": [{{"modality": "TEXT","tokenCount": 31}}]}},"modelVersion": "gemini-2.5-flash","responseId": "mNUXaOqzF5ehz7IPr8mRmAE""#,
            31 + at
        )
    };
    sample.deltas("", |token, at| {
        format!(
            r#"{{"candidates": [{{"content": {{"parts": [{{"text": "{token}"}}],"role": "model"}},"index": 0}}],{}}}"#,
            usage(at)
        )
    });
    let at = sample.events;
    sample.event("", &format!(r#"{{"candidates": [{{"finishReason": "STOP","index": 0}}],{}}}"#, usage(at)));
    if framing == Framing::Array {
        sample.stream.push(b']');
        sample.ends.pop();
        sample.ends.push(sample.stream.len());
    }
    sample
}

/// Ollama's own.
fn ollama() -> Sample {
    let mut sample = Sample::new("Ollama", Provider::Ollama);
    sample.framing = Framing::Lines;
    sample.path = "/api/chat";
    sample.deltas("", |token, at| {
        format!(
            r#"{{"model":"llama3.2","created_at":"2026-08-22T10:00:{:02}.{:09}Z","message":{{"role":"assistant","content":"{token}"}},"done":false}}"#,
            at / 60 % 60,
            at * 16_777_213 % 1_000_000_000
        )
    });
    sample.event(
        "",
        r#"{"model":"llama3.2","created_at":"2026-08-22T10:01:00.1Z","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","prompt_eval_count":31,"eval_count":9000}"#,
    );
    sample
}

/// Bedrock's `ConverseStream`. Its events are padded, so that their length tells nothing.
fn bedrock() -> Sample {
    let mut sample = Sample::new("Bedrock", Provider::Bedrock);
    sample.framing = Framing::Binary;
    sample.path = "/model/eu.anthropic.claude/converse-stream";
    sample.event("messageStart", r#"{"p":"abcdefgh","role":"assistant"}"#);
    sample.deltas("contentBlockDelta", |token, at| {
        let padding = &"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"[..1 + at * 7 % 52];
        format!(r#"{{"contentBlockIndex":0,"delta":{{"text":"{token}"}},"p":"{padding}"}}"#)
    });
    sample.event("contentBlockStop", r#"{"contentBlockIndex":0,"p":"abc"}"#);
    sample.event("messageStop", r#"{"p":"abcdef","stopReason":"end_turn"}"#);
    sample.event(
        "metadata",
        r#"{"metrics":{"latencyMs":551},"p":"abc","usage":{"inputTokens":31,"outputTokens":9000,"totalTokens":9031}}"#,
    );
    sample
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
        Self {
            name,
            provider,
            framing: Framing::Sse,
            path: "/v1/chat/completions",
            stream: Vec::with_capacity(SIZE + 1024),
            text: String::new(),
            events: 0,
            ends: Vec::new(),
        }
    }

    fn event(&mut self, name: &str, data: &str) {
        let stream = &mut self.stream;
        let event = match self.framing {
            Framing::Sse if name.is_empty() => format!("data: {data}\n\n").into_bytes(),
            Framing::Sse => format!("event: {name}\ndata: {data}\n\n").into_bytes(),
            Framing::Lines => format!("{data}\n").into_bytes(),
            Framing::Array if self.events == 0 => format!("[{data}").into_bytes(),
            Framing::Array => format!("\n,\r\n{data}").into_bytes(),
            Framing::Binary => message(name, data),
        };
        stream.extend_from_slice(&event);
        self.ends.push(stream.len());
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

    pub(crate) fn pieces(self, sample: &Sample) -> Vec<Bytes> {
        match self {
            Self::Events => {
                let starts = [0].into_iter().chain(sample.ends.iter().copied());
                let pieces = starts.zip(&sample.ends).map(|(start, end)| &sample.stream[start..*end]);
                pieces.map(Bytes::copy_from_slice).collect()
            }
            Self::Bytes(size) => sample.stream.chunks(size).map(Bytes::copy_from_slice).collect(),
        }
    }
}

/// A message of AWS's, with the headers that Bedrock's events have.
fn message(name: &str, payload: &str) -> Vec<u8> {
    let mut headers = Vec::new();
    let all = [(":event-type", name), (":content-type", "application/json"), (":message-type", "event")];
    for (name, value) in all {
        headers.push(name.len() as u8);
        headers.extend_from_slice(name.as_bytes());
        headers.push(7);
        headers.extend_from_slice(&(value.len() as u16).to_be_bytes());
        headers.extend_from_slice(value.as_bytes());
    }
    let length = 12 + headers.len() + payload.len() + 4;
    let mut message = [(length as u32).to_be_bytes(), (headers.len() as u32).to_be_bytes()].concat();
    message.extend_from_slice(&crc32fast::hash(&message).to_be_bytes());
    message.extend_from_slice(&headers);
    message.extend_from_slice(payload.as_bytes());
    message.extend_from_slice(&crc32fast::hash(&message).to_be_bytes());
    message
}
