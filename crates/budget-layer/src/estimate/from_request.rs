//! Requests of http and reqwest, read for their estimate.

use std::{
    any::Any,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use failsoft_core::estimate_tokens;
use http_body::Body;
use http_body_util::Full;
use serde::Deserialize;
use serde_json::Value;

use super::{Estimate, Estimator, FromRequest};

impl<B: Body + 'static> Estimator<http::Request<B>> for FromRequest {
    fn estimate(&self, request: &http::Request<B>) -> Estimate {
        let body = request.body();
        match in_memory(body) {
            Some(bytes) => self.of_bytes(&bytes),
            None => self.of_length(body.size_hint().exact()),
        }
    }
}

#[cfg(feature = "reqwest-013")]
impl Estimator<reqwest::Request> for FromRequest {
    fn estimate(&self, request: &reqwest::Request) -> Estimate {
        match request.body() {
            None => self.of_length(None),
            Some(body) => match body.as_bytes() {
                Some(bytes) => self.of_bytes(bytes),
                None => self.of_length(body.size_hint().exact()),
            },
        }
    }
}

impl FromRequest {
    fn of_bytes(&self, bytes: &[u8]) -> Estimate {
        if bytes.is_empty() {
            return self.of_length(None);
        }
        let output = asked_output(bytes).unwrap_or(self.default_output);
        self.of_parts(estimate_tokens(bytes), output)
    }

    fn of_length(&self, length: Option<u64>) -> Estimate {
        match length {
            None | Some(0) => Estimate::whole(self.unknown),
            Some(length) => self.of_parts(length.div_ceil(4), self.default_output),
        }
    }

    fn of_parts(&self, input: u64, output: u64) -> Estimate {
        Estimate::parts(input.min(self.max_input), output.min(self.max_output))
    }
}

/// The bytes of the bodies that are known to be in memory; cheap to clone.
fn in_memory<B: Body + 'static>(body: &B) -> Option<Bytes> {
    let body: &dyn Any = body;
    if let Some(text) = body.downcast_ref::<String>() {
        return Some(Bytes::copy_from_slice(text.as_bytes()));
    }
    let mut body = body.downcast_ref::<Full<Bytes>>()?.clone();
    match Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Some(Ok(frame))) => frame.into_data().ok(),
        _ => None,
    }
}

/// How many tokens of output a request allows, under the names that providers have for it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Limits {
    max_tokens: Value,
    max_completion_tokens: Value,
    max_output_tokens: Value,
    max_new_tokens: Value,
    n: Value,
    #[serde(rename = "generationConfig")]
    generation_config: Value,
    #[serde(rename = "inferenceConfig")]
    inference_config: Value,
    options: Value,
}

fn asked_output(bytes: &[u8]) -> Option<u64> {
    let limits: Limits = serde_json::from_slice(bytes).ok()?;
    let named = [
        &limits.max_tokens,
        &limits.max_completion_tokens,
        &limits.max_output_tokens,
        &limits.max_new_tokens,
        &limits.generation_config["maxOutputTokens"],
        &limits.inference_config["maxTokens"],
        &limits.options["num_predict"],
    ];
    let most = named.into_iter().filter_map(Value::as_u64).max()?;
    Some(most.saturating_mul(limits.n.as_u64().unwrap_or(1).max(1)))
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use super::*;

    fn output(json: &str) -> Option<u64> {
        asked_output(json.as_bytes())
    }

    #[test]
    fn a_limit_of_the_answer_is_found_under_each_providers_name() {
        for json in [
            r#"{"max_tokens": 7}"#,
            r#"{"messages": [{"max_tokens": 9}], "max_completion_tokens": 7}"#,
            r#"{"max_output_tokens": 7}"#,
            r#"{"generationConfig": {"maxOutputTokens": 7}}"#,
            r#"{"inferenceConfig": {"maxTokens": 7}}"#,
            r#"{"options": {"num_predict": 7}}"#,
        ] {
            assert_eq!(output(json), Some(7), "{json}");
        }
        assert_eq!(output(r#"{"max_tokens": 7, "n": 3}"#), Some(21));
    }

    #[test]
    fn what_is_no_limit_is_none() {
        for json in
            ["", "[]", "7", "{", r#"{"max_tokens": null}"#, r#"{"max_tokens": -1}"#, r#"{"max_tokens": "7"}"#]
        {
            assert_eq!(output(json), None, "{json}");
        }
        assert_eq!(output(r#"{"max_tokens": 18446744073709551615, "n": 2}"#), Some(u64::MAX));
    }

    // G104
    #[test]
    fn a_missing_limit_reserves_the_default_and_a_huge_one_is_clamped() {
        let estimate = |json: &str| {
            FromRequest::new().estimate(&http::Request::new(Full::<Bytes>::from(json.to_owned()))).split()
        };
        assert_eq!(estimate("{}"), Some((1, 1_000)));
        assert_eq!(estimate(r#"{"max_tokens": 64000}"#), Some((6, 8_192)));
    }

    #[test]
    fn a_request_of_which_nothing_is_known_counts_500() {
        let request = http::Request::new(http_body_util::Empty::<Bytes>::new());
        assert_eq!(FromRequest::new().estimate(&request), Estimate::whole(500));
        let request = http::Request::new(Full::<Bytes>::default());
        assert_eq!(FromRequest::new().estimate(&request), Estimate::whole(500));
        let streamed = http_body_util::StreamBody::new(futures_util::stream::pending::<
            Result<http_body::Frame<Bytes>, std::io::Error>,
        >());
        assert_eq!(FromRequest::new().estimate(&http::Request::new(streamed)), Estimate::whole(500));
    }

    #[test]
    fn a_body_that_cannot_be_read_counts_by_its_length() {
        let body = http_body_util::Limited::new(Full::<Bytes>::from("{\"max_tokens\": 3}"), 99);
        assert_eq!(FromRequest::new().estimate(&http::Request::new(body)).split(), Some((5, 1_000)));
    }

    #[cfg(feature = "reqwest-013")]
    #[test]
    fn a_request_of_reqwest_is_read() {
        let client = reqwest::Client::new();
        let post = client.post("http://localhost").body(r#"{"max_tokens": 30}"#).build().unwrap();
        assert_eq!(FromRequest::new().estimate(&post).split(), Some((5, 30)));
        let get = client.get("http://localhost").build().unwrap();
        assert_eq!(FromRequest::new().estimate(&get), Estimate::whole(500));
    }
}
