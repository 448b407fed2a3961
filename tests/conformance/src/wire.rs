//! Kind `wire`: what providers send, whole and streamed, read by `llm-layer` however the bytes are cut.
//!
//! Each sample is read twice: by the dialect that its provider speaks, and by a layer that has to recognise it. What passes there
//! goes on to a `validate-layer` around.

mod request;
mod validation;
mod wanted;

use std::path::Path;

use bytes::Bytes;
use failsoft_core::{Class, End, Facts, Insight, Verdict};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header::CONTENT_TYPE};
use llm_layer::{LlmDecoder, LlmProtocol, LlmReader, Offered, Provider};
use serde_json::{Map, Value};
use stream_layer::{Decoder, Mode, Protocol, Reader, Until};

use crate::case::{Difference, Fields, Outcome};

const COLUMNS: [&str; 11] = [
    "file",
    "provider",
    "api",
    "http_status",
    "headers_json",
    "what_it_is",
    "expected",
    "retry_hint",
    "retry_after_ms",
    "expected_usage_json",
    "precondition",
];

/// Reads the table in a folder of samples: a case is a row, its id the file.
pub(crate) fn load(folder: &Path) -> Result<Vec<Value>, String> {
    let table = std::fs::read_to_string(folder.join("index.tsv")).map_err(|problem| problem.to_string())?;
    let mut lines = table.lines();
    if lines.next().is_none_or(|header| header.split('\t').ne(COLUMNS)) {
        return Err(format!("index.tsv has other columns than {}", COLUMNS.join(", ")));
    }
    let row = |(index, line): (usize, &str)| {
        let cells: Vec<&str> = line.split('\t').collect();
        if cells.len() != COLUMNS.len() {
            return Err(format!("index.tsv, line {}: {} columns", index + 2, cells.len()));
        }
        let mut row: Map<String, Value> =
            COLUMNS.iter().zip(cells).map(|(name, cell)| ((*name).to_owned(), cell.into())).collect();
        let file = row.get("file").cloned().unwrap_or_default();
        row.insert("path".into(), folder.join(file.as_str().unwrap_or("")).to_string_lossy().into());
        row.insert("id".into(), file);
        Ok(Value::Object(row))
    };
    lines.enumerate().filter(|(_, line)| !line.trim().is_empty()).map(row).collect()
}

/// Runs one case.
pub(crate) fn run(case: &Value) -> Outcome {
    match replay(case) {
        Ok(differences) => Outcome::of(differences),
        Err(problem) => Outcome::unreadable(problem),
    }
}

fn replay(case: &Value) -> Result<Vec<Difference>, String> {
    let fields = Fields::of(case, "row")?;
    fields.ignore(&["id", "what_it_is"]);
    let sample = Sample::read(&fields)?;
    let wanted = wanted::Wanted::read(&fields)?;
    fields.all_known()?;
    let mut differences = Vec::new();
    for provider in [sample.asked.provider, Provider::Auto] {
        for (cut, pieces) in sample.cuts() {
            let said = validation::behind(sample.answer(provider, &pieces)?, &sample.asked)?;
            wanted.compare(&format!("{provider:?}, {cut}"), &said, &mut differences);
        }
        if !sample.asked.streams {
            let said = validation::behind(sample.judgement(provider), &sample.asked)?;
            wanted.compare(&format!("{provider:?}, as a function"), &said, &mut differences);
            let is_inside = sample.status.is_success() && !said.verdict.is_success();
            if said.facts.inside_success != is_inside {
                differences.push(Difference {
                    at: format!("{provider:?}: found inside a success"),
                    wanted: is_inside.to_string(),
                    got: said.facts.inside_success.to_string(),
                });
            }
        }
    }
    Ok(differences)
}

/// What a decoder said of a sample.
pub(crate) struct Said {
    pub(crate) verdict: Verdict,
    pub(crate) facts: Facts,
}

struct Sample {
    asked: request::Asked,
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Sample {
    fn read(fields: &Fields<'_>) -> Result<Self, String> {
        let file = fields.need("file", Value::as_str)?;
        let path = fields.need("path", Value::as_str)?;
        let status = fields.need("http_status", |value| value.as_str()?.parse().ok())?;
        let status = StatusCode::from_u16(status).map_err(|problem| problem.to_string())?;
        let sent: Map<String, Value> =
            fields.need("headers_json", |value| serde_json::from_str(value.as_str()?).ok())?;
        let mut headers = HeaderMap::new();
        for (name, value) in &sent {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|problem| problem.to_string())?;
            let value = HeaderValue::from_str(value.as_str().unwrap_or_default());
            headers.append(name, value.map_err(|problem| problem.to_string())?);
        }
        let kind = match file.rsplit_once('.') {
            Some((_, "json")) => Some("application/json"),
            Some((_, "sse")) => Some("text/event-stream"),
            Some((_, "ndjson")) => Some("application/x-ndjson"),
            Some((_, "bin")) => Some("application/vnd.amazon.eventstream"),
            Some((_, "txt")) => None,
            _ => return Err(format!("{file}: a file of an unknown kind")),
        };
        if let Some(kind) = kind {
            headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static(kind));
        }
        let body = std::fs::read(path).map_err(|problem| format!("{path}: {problem}"))?;
        Ok(Self { asked: request::Asked::read(fields)?, status, headers, body })
    }

    fn cuts(&self) -> [(&'static str, Vec<&[u8]>); 3] {
        let lines = self.body.split_inclusive(|byte| *byte == b'\n').collect();
        [("whole", vec![&*self.body]), ("byte by byte", self.body.chunks(1).collect()), ("by lines", lines)]
    }

    fn judgement(&self, provider: Provider) -> Said {
        let offered = self.asked.request().map_or(Offered::unknown(), |request| Offered::of(&request));
        let facts = provider.judge(self.status, &self.headers, &self.body, &offered);
        Said { verdict: facts.verdict.unwrap_or(Verdict::of(Class::Unknown)), facts }
    }

    fn answer(&self, provider: Provider, pieces: &[&[u8]]) -> Result<Said, String> {
        let protocol = LlmProtocol::new(provider);
        let reader: LlmReader = match self.asked.request() {
            Some(request) => protocol.request(&request),
            None => protocol.request(&()),
        };
        let (mut parts, ()) = Response::new(()).into_parts();
        parts.status = self.status;
        parts.headers = self.headers.clone();
        let (Mode::Hold { decoder, .. } | Mode::Watch(decoder)) = reader.head(&mut parts, Until::default())
        else {
            return Err("the response passed unread".to_owned());
        };
        let insight = Insight::of(&parts.extensions).cloned().unwrap_or_default();
        let verdict = verdict(decoder, pieces);
        Ok(Said { verdict, facts: insight.facts() })
    }
}

/// A clean end of which nobody knows better is a success.
fn verdict(mut decoder: LlmDecoder, pieces: &[&[u8]]) -> Verdict {
    for piece in pieces {
        let seen = decoder.feed(&Bytes::copy_from_slice(piece));
        if let Some(fault) = seen.fault {
            return fault.verdict();
        }
        if let Some(verdict) = seen.end {
            return verdict;
        }
    }
    match decoder.end(End::Clean(None)) {
        Ok(verdict) => verdict.unwrap_or(Verdict::SUCCESS),
        Err(fault) => fault.verdict(),
    }
}
