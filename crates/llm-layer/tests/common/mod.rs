//! The samples in `tests/wire`, and what is right for each.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::Path;

use failsoft_core::Facts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use llm_layer::{Offered, Provider};

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

pub(crate) fn samples() -> Vec<Sample> {
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
    index.lines().skip(1).map(row).collect()
}

pub(crate) fn sample(file: &str) -> Sample {
    samples().into_iter().find(|sample| sample.file == file).unwrap()
}
