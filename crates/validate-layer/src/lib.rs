//! A [`tower_layer::Layer`] that turns a wrong answer into a failure.
//!
//! Take it around a client whose answers can be wrong although the status says success: a model that stops in the middle
//! of its JSON, leaves out a field, calls a tool that does not exist, or says nothing at all. A wrong answer becomes
//! a [`Fault`](failsoft_core::Fault) of [`Class::Soft`](failsoft_core::Class::Soft), with a report, so that a breaker
//! counts it, a retry repeats it where that can help, and a fallback takes the next route.
//!
//! ```
//! use failsoft_core::{BoxError, Class, Fault, SoftKind};
//! use tower::{Service, ServiceBuilder, ServiceExt};
//! use validate_layer::{Answer, ValidateLayer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let layer = ValidateLayer::values(|reply: &String| Answer::new(reply.as_str()))
//!     .name("model-a")
//!     .json_object()
//!     .require("/city")
//!     .build()?;
//! let mut service = ServiceBuilder::new()
//!     .layer(layer)
//!     .service_fn(|reply: &'static str| async move { Ok::<_, BoxError>(reply.to_owned()) });
//!
//! assert!(service.ready().await?.call(r#"{"city": "Oslo"}"#).await.is_ok());
//!
//! let err = service.ready().await?.call(r#"{"town": "Oslo"}"#).await.unwrap_err();
//! let fault = Fault::find(&*err).expect("a wrong answer is a fault");
//! assert_eq!(fault.class(), Class::Soft(SoftKind::MissingField));
//! assert_eq!(fault.report().unwrap().findings()[0].path(), Some("/city"));
//! # Ok(())
//! # }
//! ```
//!
//! # What is looked at
//!
//! | response | what happens |
//! |---|---|
//! | its `Insight` carries a failure, and the status says success | a fault with that verdict: an error inside a 200 never passes for an answer. One that is cut at the limit of tokens because it goes round in circles is a loop |
//! | its `Insight` carries text, tool calls, or why it ended | those are checked; the body is not read |
//! | another success | the body is held up to [`max_body`](ValidateBuilder::max_body) and checked as text; a stream that does not say so, such as Gemini's as one JSON array, by what a reader inside has made of it until then |
//! | a failure by its status, 1xx, 204, 205 | passes untouched, unread |
//! | a stream (`text/event-stream`, NDJSON, JSON lines, gRPC) whose `Insight` has a good verdict and the answer: it was held to its end | that answer is checked; the body is not read |
//! | a stream whose `Insight` is completed while it runs | as [`StreamMode`] says: judged at its end, where a failure is an error in the body (the default), or held and judged before anything is handed on |
//! | a stream that nobody reads | passes unread |
//! | a plain value | what the function given to [`ValidateLayer::values`] makes of it is checked |
//!
//! Requests are looked at where that is asked for: a call that breaks a [rail](rails) is not sent, and calls of tools are held to the
//! schemas that the request has offered.
//!
//! A finding about a tool call is at `/tool_calls/0` and so on, or below: `retry-layer`'s `ChatReask` gives each call the findings of its own
//! for a result, and tells the others that they were not made.
//!
//! What passes reaches the caller byte for byte, with the report (warnings, if any) and the verdict in its
//! [`Insight`](failsoft_core::Insight). A body that fails while it is held gives its own error, where that says what it
//! means, else a fault of [`Class::Transient`](failsoft_core::Class::Transient) with the error as its source.
//!
//! # The parts
//!
//! | to | look at |
//! |---|---|
//! | put checks around a service | [`ValidateLayer`], [`ValidateBuilder`] |
//! | use a check by itself | [`checks`], [`Check`] |
//! | write a check | [`check_fn()`], [`Check`], [`Answer`] |
//! | begin with what fits a kind of endpoint | [`presets`] |
//! | ask another model, or any service | [`judge`] |
//! | see that answers have become others | [`drift`] |
//! | forbid tools, and check their arguments before they are called | [`rails`] |
//! | tell a model what was wrong, call by call | [`reask`] |
//! | know what may be sent again | [`Validator`] |
//!
//! # Features
//!
//! `http` (default) holds the bodies of `http::Response`; `reqwest-013` those of reqwest 0.13. Without either, plain
//! values can be checked. `schema` brings JSON Schema, `regex` regular expressions;
//! `http-body-util-01` looks at chat requests whose body is a `Full<Bytes>`. `metrics` counts what was found, see
//! [`metrics`].

#![cfg_attr(docsrs, feature(doc_cfg))]
// The README is tested with the crate.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

mod answer;
mod asked;
#[cfg(feature = "http")]
mod bodies;
mod builder;
mod check;
pub mod checks;
mod confidence;
pub mod drift;
mod events;
mod future;
pub mod judge;
mod layer;
pub mod metrics;
mod mode;
#[cfg(all(feature = "http", feature = "schema"))]
mod offered;
mod options;
pub mod presets;
pub mod rails;
pub mod reask;
mod service;
#[cfg(feature = "http")]
mod streams;
mod validator;

#[cfg(all(feature = "http", feature = "schema"))]
pub use self::offered::{BodyText, ChatRequests, RequestText};
pub use self::{
    answer::Answer,
    asked::{Asked, Inspect, InspectFn, Unseen},
    builder::ValidateBuilder,
    check::{Check, CheckFn, Complaint, check_fn},
    drift::Drift,
    future::ResponseFuture,
    judge::{Judge, JudgeFailure},
    layer::ValidateLayer,
    mode::{Bodies, Mode, Values},
    rails::{Rail, Rails},
    service::Validate,
    validator::{Beyond, Compressed, StreamMode, Validator},
};
