//! Requests of http and reqwest, read for their estimate.

use std::{
    any::Any,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use failsoft_core::{estimate_tokens, is_encoded};
use http_body::Body;
use http_body_util::Full;
use serde::Deserialize;
use serde_json::Value;

use super::{Average, Estimate, Estimator, FromRequest, TokenizerFn, prompt::count_prompt};

/// Text is compressed to a quarter, and JSON with its names over and over to less; what is more than that is not known before it is
/// decoded.
const EXPANDS_BY: u64 = 4;

impl<B: Body + 'static> Estimator<http::Request<B>> for FromRequest {
    fn estimate(&self, request: &http::Request<B>) -> Estimate {
        let (body, path) = (request.body(), request.uri().path());
        if is_encoded(request.headers()) {
            return self.of_encoded(body.size_hint().exact(), path);
        }
        match in_memory(body) {
            Some(bytes) => self.of_bytes(&bytes, path),
            None => self.of_length(body.size_hint().exact(), path),
        }
    }
}

#[cfg(feature = "reqwest-013")]
impl Estimator<reqwest::Request> for FromRequest {
    fn estimate(&self, request: &reqwest::Request) -> Estimate {
        let path = request.url().path();
        match request.body() {
            None => self.of_length(None, path),
            Some(body) if is_encoded(request.headers()) => self.of_encoded(body.size_hint().exact(), path),
            Some(body) => match body.as_bytes() {
                Some(bytes) => self.of_bytes(bytes, path),
                None => self.of_length(body.size_hint().exact(), path),
            },
        }
    }
}

impl FromRequest {
    fn of_bytes(&self, bytes: &[u8], path: &str) -> Estimate {
        if bytes.is_empty() {
            return self.of_length(None, path);
        }
        let asked = Asked::read(bytes);
        let input = self.exactly(bytes).unwrap_or_else(|| estimate_tokens(bytes));
        match asked.output() {
            Some(output) => self.of_parts(input, output),
            None => self.guessed(input, asked.answers(), asked.model().unwrap_or(path)),
        }
    }

    /// The tokens of a prompt, where there is a tokenizer for it.
    fn exactly(&self, bytes: &[u8]) -> Option<u64> {
        let TokenizerFn(tokenizer) =
            self.tokenizer.as_ref().filter(|_| bytes.len() <= self.tokenize_up_to)?;
        count_prompt(bytes, &**tokenizer)
    }

    fn of_length(&self, length: Option<u64>, path: &str) -> Estimate {
        match length {
            None | Some(0) => {
                let estimate = Estimate::whole(self.unknown);
                let most = self.max_input.saturating_add(self.max_output);
                match self.average(path, most) {
                    Some(average) => estimate.expecting(average),
                    None => estimate,
                }
            }
            Some(length) => self.guessed(length.div_ceil(4), 1, path),
        }
    }

    /// The bytes are not those of the text.
    fn of_encoded(&self, length: Option<u64>, path: &str) -> Estimate {
        self.of_length(length.map(|length| length.saturating_mul(EXPANDS_BY)), path)
    }

    /// Nothing says how long the answers may be.
    fn guessed(&self, input: u64, answers: u64, key: &str) -> Estimate {
        let least = (self.default_output / 10).min(self.max_output);
        let average = self.average(key, self.max_output).map(|average| average.at_least(least));
        let expected = average.as_ref().and_then(Average::expected);
        let output = expected.unwrap_or(self.default_output).saturating_mul(answers);
        let estimate = self.of_parts(input, output);
        // Of several answers nobody says how long each one is.
        match average.filter(|_| answers == 1) {
            Some(average) => estimate.learning(average),
            None => estimate,
        }
    }

    fn average(&self, key: &str, most: u64) -> Option<Average> {
        self.learned.as_ref().map(|learned| learned.of(key).up_to(most))
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

/// What a request asks for, under the names that providers have for it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Asked {
    model: Value,
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

impl Asked {
    /// Nothing, where it cannot be read.
    fn read(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes).unwrap_or_default()
    }

    fn model(&self) -> Option<&str> {
        self.model.as_str().filter(|model| !model.is_empty())
    }

    /// How many answers.
    fn answers(&self) -> u64 {
        self.n.as_u64().unwrap_or(1).max(1)
    }

    /// How many tokens of output it allows.
    fn output(&self) -> Option<u64> {
        let named = [
            &self.max_tokens,
            &self.max_completion_tokens,
            &self.max_output_tokens,
            &self.max_new_tokens,
            &self.generation_config["maxOutputTokens"],
            &self.inference_config["maxTokens"],
            &self.options["num_predict"],
        ];
        let most = named.into_iter().filter_map(Value::as_u64).max()?;
        Some(most.saturating_mul(self.answers()))
    }
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use super::*;
    use crate::Learned;

    fn whole(estimate: &Estimate) -> Option<u64> {
        estimate.split().is_none().then(|| estimate.total())
    }

    fn output(json: &str) -> Option<u64> {
        Asked::read(json.as_bytes()).output()
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
    fn what_nothing_limits_counts_for_what_was_learnt_of_its_model_or_its_path() {
        let (estimator, learned) = {
            let learned = Learned::new();
            (FromRequest::new().max_output(2_000).learned(learned.clone()), learned)
        };
        let estimate = |path: &str, json: &str| {
            let request = http::Request::builder().uri(path).body(json.to_owned()).unwrap();
            estimator.estimate(&request)
        };
        let output = |path, json| estimate(path, json).split().map(|(_, output)| output);
        (0..50).for_each(|_| {
            learned.of("small").learn(97);
            learned.of("/v1/models/large:generate").learn(9_000);
            learned.of("/search").learn(37);
        });
        assert_eq!(output("/", r#"{"model": "small"}"#), Some(100));
        assert_eq!(output("/", r#"{"model": "small", "n": 4}"#), Some(400));
        assert_eq!(output("/", r#"{"model": "small", "max_tokens": 7}"#), Some(7));
        assert_eq!(output("/v1/models/large:generate?key=1", "{}"), Some(2_000), "never more than the most");
        assert_eq!(output("/", r#"{"model": "other"}"#), Some(1_000));
        assert_eq!(estimate("/search", "").split(), None);
        assert_eq!((estimate("/search", "").total(), estimate("/fetch", "").total()), (40, 500));
        // Several answers teach nothing, nor does one that was limited.
        for json in [r#"{"model": "small", "n": 4}"#, r#"{"model": "small", "max_tokens": 7}"#] {
            assert_eq!(estimate("/", json).learns(), None);
        }
        let never = FromRequest::new().learned(learned).without_learning();
        let request = http::Request::new(r#"{"model": "small"}"#.to_owned());
        assert_eq!(never.estimate(&request), Estimate::parts(5, 1_000));
    }

    #[test]
    fn a_prompt_is_given_to_the_tokenizer_unless_it_is_large_or_none_that_is_known() {
        let estimator = FromRequest::new().tokenizer(|_| 1_000).tokenize_up_to(60);
        let input = |body: &str| estimator.estimate(&http::Request::new(body.to_owned())).split().unwrap().0;
        assert_eq!(input(r#"{"messages": [{"content": "hello"}]}"#), 1_000 + 3 + 3);
        assert_eq!(input(r#"{"query": "hello"}"#), 5);
        let large = format!(r#"{{"messages": [{{"content": "{}"}}]}}"#, "a ".repeat(20));
        assert_eq!(input(&large), estimate_tokens(&large));
        // A tokenizer that says too much is held to the most.
        let wrong = FromRequest::new().tokenizer(|_| u64::MAX);
        let most = wrong.estimate(&http::Request::new(r#"{"messages": [{"content": "hello"}]}"#.to_owned()));
        assert_eq!(most.split().unwrap().0, 200_000);
    }

    #[test]
    fn a_request_of_which_nothing_is_known_counts_500() {
        let request = http::Request::new(http_body_util::Empty::<Bytes>::new());
        assert_eq!(whole(&FromRequest::new().estimate(&request)), Some(500));
        let request = http::Request::new(Full::<Bytes>::default());
        assert_eq!(whole(&FromRequest::new().estimate(&request)), Some(500));
        let streamed = http_body_util::StreamBody::new(futures_util::stream::pending::<
            Result<http_body::Frame<Bytes>, std::io::Error>,
        >());
        assert_eq!(whole(&FromRequest::new().estimate(&http::Request::new(streamed))), Some(500));
    }

    #[test]
    fn a_body_that_cannot_be_read_counts_by_its_length() {
        let body = http_body_util::Limited::new(Full::<Bytes>::from("{\"max_tokens\": 3}"), 99);
        assert_eq!(FromRequest::new().estimate(&http::Request::new(body)).split(), Some((5, 1_000)));
    }

    // Its bytes were counted as text, a quarter of what was in it.
    #[test]
    fn of_an_encoded_body_each_byte_counts_as_a_token_and_nothing_in_it_as_a_limit() {
        let of = |encoding: &str, body: &str| {
            let request = http::Request::builder().header("content-encoding", encoding);
            FromRequest::new().estimate(&request.body(body.to_owned()).unwrap())
        };
        assert_eq!(of("gzip", r#"{"max_tokens": 7}"#).split(), Some((17, 1_000)));
        assert_eq!(of("identity", r#"{"max_tokens": 7}"#).split(), Some((5, 7)));
        assert_eq!(whole(&of("gzip", "")), Some(500));
        #[cfg(feature = "reqwest-013")]
        {
            let post = reqwest::Client::new().post("http://localhost").header("content-encoding", "gzip");
            let post = post.body(r#"{"max_tokens": 7}"#).build().unwrap();
            assert_eq!(FromRequest::new().estimate(&post).split(), Some((17, 1_000)));
        }
    }

    #[cfg(feature = "reqwest-013")]
    #[test]
    fn a_request_of_reqwest_is_read() {
        let client = reqwest::Client::new();
        let post = client.post("http://localhost").body(r#"{"max_tokens": 30}"#).build().unwrap();
        assert_eq!(FromRequest::new().estimate(&post).split(), Some((5, 30)));
        let get = client.get("http://localhost").build().unwrap();
        assert_eq!(whole(&FromRequest::new().estimate(&get)), Some(500));
    }
}
