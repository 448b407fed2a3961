//! A tower layer that reads what a model endpoint really answered.
//!
//! Model endpoints fail in ways that a status does not show: an error object inside a 200, an answer cut at the limit
//! of tokens, a tool call whose arguments are half a JSON object, `null` where an answer should be. [`LlmLayer`] holds
//! each whole JSON body up to a cap, judges it, and hands it on byte for byte, with what it learnt in the response's
//! extensions as an [`Insight`](failsoft_core::Insight): verdict, report, usage, finish reason, text and tool calls.
//! The layers outside of it (retry, breaker, fallback) look there first.
//!
//! ```
//! use bytes::Bytes;
//! use failsoft_core::{BoxError, Insight};
//! use http_body_util::Full;
//! use llm_layer::{LlmLayer, Provider};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! // In place of a client:
//! let target = service_fn(async |_: http::Request<String>| {
//!     let body = r#"{"choices": [{"message": {"content": "The answer is"}, "finish_reason": "length"}],
//!                    "usage": {"prompt_tokens": 9, "completion_tokens": 3}}"#;
//!     Ok::<_, BoxError>(http::Response::new(Full::<Bytes>::from(body)))
//! });
//! let service = ServiceBuilder::new().layer(LlmLayer::new(Provider::OpenAiCompatible)).service(target);
//!
//! let request = http::Request::new(r#"{"messages": [{"role": "user", "content": "?"}]}"#.to_owned());
//! let response = service.oneshot(request).await.unwrap();
//! let facts = Insight::of(response.extensions()).unwrap().facts();
//! assert_eq!(facts.verdict.unwrap().class().as_str(), "soft.truncated");
//! assert_eq!(facts.usage.total(), 12);
//! # });
//! ```
//!
//! # What is judged, and what passes
//!
//! | response | |
//! |---|---|
//! | success, JSON or text or HTML or no content type | held, judged |
//! | success of any type, also 204, to a chat request that asked for no stream | held, judged; a stream is known by its type and not held |
//! | any failed status | held, judged: a typed code in the body first, then the status |
//! | success, `text/event-stream`, `application/x-ndjson`, sound, pictures, other types, to another request | passes unread |
//! | success, no JSON by its type, to a request with `"stream": true` | passes unread |
//! | encoded (`content-encoding`), longer than [`max_body`](LlmLayerBuilder::max_body) | passes, judged by its status by others |
//! | already judged by a reader further inside | passes unread |
//!
//! # What an answer's verdict is
//!
//! | found | class | the same again? |
//! |---|---|---|
//! | an error object, also inside a success | that of the error | |
//! | `null`, HTML, a stream, text that is no JSON, cut JSON | transient | yes |
//! | an empty body, no choices, no content and no tool call | soft: empty | yes |
//! | nothing but reasoning | soft: empty | changed |
//! | `finish_reason` is `length`, or all tokens were used for nothing | soft: truncated | changed |
//! | `content_filter`, a refusal | refused; [`Finish`](failsoft_core::Finish) tells them apart | |
//! | arguments that are cut, no JSON, no object, or a string in a string; no name | soft: tool call | changed |
//! | a tool that was not offered | soft: unknown tool | changed |
//! | a call of an offered tool left as text | soft: leaked tool call | yes |
//! | stopped to call tools, and calls none | soft: tool call | yes |
//! | `response_format` asked for JSON, and it is none | soft: malformed | changed |
//! | a finish reason that nobody knows | soft: low confidence | yes |
//!
//! Of several choices, the first that is wrong decides; text and tool calls are the first choice's.
//!
//! A response whose body breaks off while it is held becomes an error: the client's own, unwrapped, where
//! [`Verdict::of_error`](failsoft_core::Verdict::of_error) knows it, else a [`Fault`](failsoft_core::Fault).
//!
//! # Features
//!
//! `reqwest-013`: the layer around a `reqwest::Client`. Features add, and never change what is there.

#![cfg_attr(docsrs, feature(doc_cfg))]
// The README is tested with the crate.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

mod attempt;
mod chat;
mod choice;
mod decoder;
mod error;
mod events;
mod layer;
mod lens;
mod offered;
mod pieces;
mod protocol;
mod provider;
mod service;
mod tools;
mod usage;

pub use stream_layer::Beyond;

pub use self::{
    decoder::LlmDecoder,
    layer::{DEFAULT_MAX_BODY, LlmLayer, LlmLayerBuilder},
    offered::{MAX_TOOLS, Offered},
    protocol::{LlmProtocol, LlmReader},
    provider::Provider,
    service::{Llm, LlmBody, LlmFuture},
};
