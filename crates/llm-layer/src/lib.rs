//! A tower layer that reads what a model endpoint really answered.
//!
//! Model endpoints fail in ways that a status does not show: an error object inside a 200, an answer cut at the limit
//! of tokens, a tool call whose arguments are half a JSON object, `null` where an answer should be, a stream that stops in
//! the middle. [`LlmLayer`] holds each whole JSON body up to a cap, and each stream until its first content or to its
//! end, judges it, and hands it on byte for byte, with what it learnt in the response's extensions as an
//! [`Insight`](failsoft_core::Insight): verdict, report, usage, finish reason, text and tool calls. The layers outside of
//! it (retry, breaker, fallback) look there first.
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
//! | success of any type, also 204, to a chat request that asked for no stream | held, judged; a stream is no answer to it, is known by its type, and passes unread |
//! | any failed status | held, judged: a typed code in the body first, then the status |
//! | success, `text/event-stream`, or the way in which its [dialect](#dialects) streams | held to the first content or [to the end](LlmLayerBuilder::hold_to_end), judged while it passes |
//! | the same, to a request that is known to be neither a chat nor to ask for a stream | passes unread |
//! | success, another dialect's stream, sound, pictures, other types, to another request | passes unread |
//! | success, neither events nor JSON by its type, to a request with `"stream": true` | passes unread |
//! | encoded (`content-encoding`), longer than [`max_body`](LlmLayerBuilder::max_body), 204 to another request than a chat | passes, judged by its status by others |
//! | already judged by a reader further inside, or read by another layer of this kind | passes unread |
//!
//! What passes unread leaves the attempt's [`Slot`](failsoft_core::Slot) unknown.
//!
//! # Dialects
//!
//! [`Provider::Auto`], the default, recognises which one it is for each call.
//!
//! | [`Provider`] | streams as | ends with |
//! |---|---|---|
//! | `OpenAiCompatible` | server-sent events | `[DONE]`, or the body after every choice's finish reason |
//! | `OpenAiResponses` | server-sent events | `response.completed`, `response.incomplete`: both repeat the whole answer, and that is judged |
//! | `Anthropic` | server-sent events; from Bedrock's `InvokeModelWithResponseStream` in chunks of `application/vnd.amazon.eventstream` | `message_stop`; a stream that ends before it was cut, also after its stop reason |
//! | `Gemini` | server-sent events; one JSON array | `]`, or the body after every candidate's finish reason, of which old versions of the API send one with every chunk |
//! | `Bedrock` | `application/vnd.amazon.eventstream`; in chunks, a model's own events are read where their dialect is known | `metadata` after `messageStop`, or the body after that |
//! | `Ollama` | lines of JSON, by default | `"done": true` |
//!
//! What those say of failures, beside error bodies and finish reasons:
//!
//! | found | class |
//! |---|---|
//! | Responses: `response.failed`, an `error` event | that of the error, else transient |
//! | Responses: all tokens of `max_output_tokens` used for nothing, though `completed` | soft: truncated |
//! | Responses: `queued`, `in_progress` | success, with a note: it is asked for again by its id |
//! | Anthropic: an `error` event | that of its type: `overloaded_error` as a 529 has it |
//! | Anthropic: `pause_turn` | success, to be [sent back](failsoft_core::Hint::Continue) |
//! | Anthropic: `refusal` | refused; the finish reason tells it from a filter |
//! | Anthropic: nothing at `end_turn` | soft: empty, and only a changed request is answered better |
//! | Anthropic: a tool called without a fragment of arguments | they are `{}`, unless the tool is known to need some |
//! | Anthropic: ``input length and `max_tokens` exceed context limit`` | context length; the report says how much is left for the answer |
//! | Gemini: `promptFeedback.blockReason` and no candidate | refused |
//! | Gemini: a limit by the day or of zero in a 429, whatever its `RetryInfo` says | quota |
//! | Gemini: a limit by the minute | rate limited, with the `retryDelay` |
//! | Gemini: a bare error object after the last event | that of the error |
//! | Bedrock: the exception in `x-amzn-ErrorType`, in `__type` or in a message of the stream | that of the exception; `ThrottlingException` is never a context length, and quota where it speaks of a day |
//! | Bedrock: a wrong checksum, or no event stream | transient |
//! | Ollama: a line with an `error` | that of the error, else transient |
//! | Ollama: `done_reason` `load` or `unload` | success: a model was loaded, and nothing was asked of it |
//!
//! # Streams
//!
//! Content is a piece of text, reasoning, a refusal, a tool call's name or arguments; not a keepalive, a role, or a chunk
//! without choices. Until the first content, the response future is pending and every failure is one of the call. After it
//! the bytes pass as they come:
//!
//! | what comes | before content, or held to the end | after content |
//! |---|---|---|
//! | an error event, in every shape; a finish reason such as `error`; an event that is no JSON | `Err`, a fault of its class | an error at the end of the body |
//! | a clean end before every choice has a finish reason | `Err`, soft: truncated | an error at the end of the body |
//! | a connection that breaks, a limit of time that passes | `Err` | an error at the end of the body |
//! | `[DONE]`, or a clean end after the finish reasons: some servers leave `[DONE]` out | the answer is judged as below: a failing verdict is on the response | the verdict comes with the last bytes, and the body ends cleanly: whatever is wrong is in plain sight |
//!
//! `[DONE]` is the end, whatever the socket does after it. Usage is read from any chunk, the last value counts, and is set
//! in the current call's [`Slot`](failsoft_core::Slot) as it comes: a caller who hangs up is billed for what was seen. Of an answer
//! that did not come to its end, what came counts for a token of output for each 4 bytes, unless more was told, or other attempts of the
//! call were made; of one that came to its end without a word of usage, [`Facts::output_bytes`](failsoft_core::Facts::output_bytes) is what an estimate can be made of.
//! Arguments are put together by index and parsed once, strictly, at the end.
//!
//! The limits of time are those of [`stream_layer`]; the one on [first content](LlmLayerBuilder::first_content) is off
//! for requests that are not known to ask for a stream. They need a tokio runtime with time enabled.
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
//! A wrong call that is there to be shown to the model is asked for changed, with what is wrong with it: the same request
//! mostly gets the same call. One that the provider kept back (Groq's `tool_use_failed`, Gemini's
//! `MALFORMED_FUNCTION_CALL`) leaves nothing to show, and is asked for again as it was.
//!
//! Of several choices, the first that is wrong decides; text and tool calls are the first choice's.
//!
//! A whole response whose body breaks off while it is held becomes an error: the client's own, unwrapped, where
//! [`Verdict::of_error`](failsoft_core::Verdict::of_error) knows it, else a [`Fault`](failsoft_core::Fault).
//!
//! # Prices
//!
//! [`price::PriceTable`] turns the tokens in an insight into money, from a price map of yours.
//!
//! # Features
//!
//! `reqwest-013`: the layer around a `reqwest::Client`. Features add, and never change what is there.

#![cfg_attr(docsrs, feature(doc_cfg))]
// The README is tested with the crate.
#![cfg_attr(all(doctest, feature = "reqwest-013"), doc = include_str!("../README.md"))]

mod anthropic;
mod attempt;
mod bedrock;
mod chat;
mod choice;
mod decoder;
mod draft;
mod error;
mod events;
mod finish;
mod form;
mod framing;
mod gemini;
mod include_usage;
mod layer;
mod lens;
mod mould;
mod offered;
mod ollama;
mod pieces;
pub mod price;
mod protocol;
mod provider;
mod recognise;
mod request;
mod responses;
mod service;
mod tools;
mod usage;
mod whole;

pub use stream_layer::Beyond;

pub use self::{
    decoder::LlmDecoder,
    layer::{DEFAULT_MAX_BODY, LlmLayer, LlmLayerBuilder},
    offered::{MAX_TOOLS, Offered},
    protocol::{LlmProtocol, LlmReader},
    provider::Provider,
    service::{Llm, LlmBody, LlmFuture},
};
