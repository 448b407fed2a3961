//! The samples in `tests/wire`, and what is right for each.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod aws;
pub(crate) mod native;

use std::path::Path;

use bytes::Bytes;
use failsoft_core::{Class, End, Facts, Fault, Hint, Insight, Verdict};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use llm_layer::{LlmDecoder, LlmProtocol, Offered, Provider};
use stream_layer::{Decoder as _, Mode, Protocol as _, Reader as _, Until};

/// A row of the table, and the bytes it is about.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) file: String,
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) expected: String,
    pub(crate) hint: String,
    pub(crate) retry_after_ms: Option<u64>,
    pub(crate) usage: Option<serde_json::Value>,
    pub(crate) precondition: String,
    pub(crate) body: Vec<u8>,
}

impl Sample {
    pub(crate) fn judge(&self) -> Facts {
        self.judge_bytes(&self.body)
    }

    pub(crate) fn judge_bytes(&self, body: &[u8]) -> Facts {
        let status = StatusCode::from_u16(self.status).unwrap();
        Provider::OpenAiCompatible.judge(status, &self.headers, body, &self.offered())
    }

    /// What the precondition says that the request had offered.
    pub(crate) fn offered(&self) -> Offered {
        if self.precondition == "response_format JSON" {
            return Offered::unknown().with_json();
        }
        let tools = self.precondition.strip_prefix("tools=[").and_then(|rest| rest.strip_suffix(']'));
        tools.map_or_else(Offered::unknown, |tool| {
            Offered::unknown().with_tool(tool.split('(').next().unwrap_or(tool))
        })
    }
}

/// Those that are whole bodies.
pub(crate) fn samples() -> Vec<Sample> {
    rows(|file| !file.ends_with(".sse"))
}

/// Those that are streams.
pub(crate) fn streams() -> Vec<Sample> {
    rows(|file| file.ends_with(".sse"))
}

fn rows(wanted: impl Fn(&str) -> bool) -> Vec<Sample> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire");
    let index = std::fs::read_to_string(folder.join("index.tsv")).unwrap();
    let row = |line: &str| {
        let columns: Vec<&str> = line.split('\t').collect();
        let [file, _, _, status, headers, _, expected, hint, retry_after_ms, usage, precondition] =
            columns[..]
        else {
            panic!("a row with other columns: {line}")
        };
        let headers: serde_json::Map<String, serde_json::Value> = serde_json::from_str(headers).unwrap();
        let header = |(name, value): (&String, &serde_json::Value)| {
            let value = HeaderValue::from_str(value.as_str().unwrap()).unwrap();
            (HeaderName::from_bytes(name.as_bytes()).unwrap(), value)
        };
        Sample {
            file: file.to_owned(),
            status: status.parse().unwrap(),
            headers: headers.iter().map(header).collect(),
            expected: expected.to_owned(),
            hint: hint.to_owned(),
            retry_after_ms: retry_after_ms.parse().ok(),
            usage: (!usage.is_empty()).then(|| serde_json::from_str(usage).unwrap()),
            precondition: precondition.to_owned(),
            body: std::fs::read(folder.join(file)).unwrap(),
        }
    };
    index.lines().skip(1).map(row).filter(|sample| wanted(&sample.file)).collect()
}

pub(crate) fn sample(file: &str) -> Sample {
    samples().into_iter().find(|sample| sample.file == file).unwrap()
}

/// What a decoder said of a stream.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) end: Result<Option<Verdict>, Fault>,
    /// Whether there was content.
    pub(crate) content: bool,
    pub(crate) facts: Facts,
}

impl Told {
    /// What it means: the verdict, or that of the fault. A clean end that nobody knows better is a success.
    pub(crate) fn verdict(&self) -> Verdict {
        match &self.end {
            Ok(verdict) => verdict.unwrap_or(Verdict::SUCCESS),
            Err(fault) => fault.verdict(),
        }
    }

    pub(crate) fn class(&self) -> Class {
        self.verdict().class()
    }

    pub(crate) fn said(&self) -> (&'static str, Hint) {
        (self.class().as_str(), self.verdict().hint())
    }
}

/// The decoder that reads the events of the answer to `request`, and the insight that it completes.
pub(crate) fn decoder<Req: 'static>(request: &Req) -> (LlmDecoder, Insight) {
    decoder_of(Provider::OpenAiCompatible, request)
}

/// The same in another dialect.
pub(crate) fn decoder_of<Req: 'static>(provider: Provider, request: &Req) -> (LlmDecoder, Insight) {
    let (mut parts, ()) =
        Response::builder().header("content-type", "text/event-stream").body(()).unwrap().into_parts();
    let reader = LlmProtocol::new(provider).request(request);
    let Mode::Hold { decoder, until } = reader.head(&mut parts, Until::default()) else { panic!("not held") };
    assert_eq!(until, Until::default());
    (decoder, Insight::of(&parts.extensions).unwrap().clone())
}

/// Reads pieces of a stream to a clean end.
pub(crate) fn read<'a, Req: 'static>(request: &Req, pieces: impl IntoIterator<Item = &'a [u8]>) -> Told {
    read_of(Provider::OpenAiCompatible, request, pieces)
}

/// The same in another dialect.
pub(crate) fn read_of<'a, Req: 'static>(
    provider: Provider,
    request: &Req,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Told {
    let (mut decoder, insight) = decoder_of(provider, request);
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
