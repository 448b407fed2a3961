//! A `tower` layer that makes a streamed answer fail like a call: a commit point and timers.
//!
//! A stream that breaks after its status line is a failure that no retry, fallback or circuit breaker sees. This layer
//! holds the answer back until its first content is there: until then the response future is pending, and whatever
//! goes wrong is the error of a call. The first content commits the answer; after that nothing is repeated or spliced,
//! and a failure is one error at the end of the body.
//!
//! ```
//! use std::{convert::Infallible, time::Duration};
//! use failsoft_core::{Class, Fault, SoftKind};
//! use http_body_util::Full;
//! use stream_layer::{AnyEvent, StreamLayer};
//! use tower::{Service, ServiceBuilder, ServiceExt as _};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let layer = StreamLayer::builder(AnyEvent::new().error_event("error"))
//!     .first_content(Duration::from_secs(5))
//!     .build()?;
//! let mut service = ServiceBuilder::new().layer(layer).service_fn(|_: http::Request<()>| async {
//!     let answer = Full::<bytes::Bytes>::from("event: error\ndata: overloaded\n\n");
//!     let response = http::Response::builder().header("content-type", "text/event-stream").body(answer);
//!     Ok::<_, http::Error>(response?)
//! });
//!
//! // A 200 by its status, and yet a failed call, which a layer outside can retry.
//! let err = service.ready().await?.call(http::Request::new(())).await.unwrap_err();
//! assert_eq!(Fault::find(&*err).map(|fault| fault.class()), Some(Class::Transient));
//! # Ok::<(), failsoft_core::BoxError>(())
//! # }).unwrap();
//! ```
//!
//! # What is content
//!
//! | protocol | content |
//! |---|---|
//! | [`AnyContent`] | any byte of any body |
//! | [`AnyEvent`] | a server-sent event with data, but a [keepalive](AnyEvent::keepalive_events) such as `event: ping` |
//! | [`AnyLine`] | a line that is not blank: NDJSON |
//! | your own, or `llm-layer`'s | what your [`Decoder`] says: see [`Protocol`] |
//!
//! [`SseFramer`], [`LineFramer`], [`ArrayFramer`] (a JSON array sent element by element) and [`EventStreamFramer`] (AWS's
//! binary messages) cut bytes into events for a decoder of your own.
//!
//! # The limits
//!
//! | what | default | when it passes |
//! |---|---|---|
//! | held until the first content | 64 events, 256 KiB | the answer is handed on without it |
//! | [first content](StreamLayerBuilder::first_content), from the call | 10 s | the call fails: `Timeout(FirstContent)` |
//! | the same, [soft](StreamLayerBuilder::soft_first_content) | 4 s | [told](failsoft_core::Facts::slow) |
//! | [idle](StreamLayerBuilder::idle), the upstream's silence | 30 s | `Timeout(Idle)` |
//! | the same, [soft](StreamLayerBuilder::soft_idle) | 0.5 s | [told](failsoft_core::Facts::slow) |
//! | [total](StreamLayerBuilder::total), from the call to the end | none | `Timeout(Total)` |
//! | one event | 8 MiB | `Soft(Malformed)` |
//!
//! Each names itself in its fault, with the time that passed and the limit. As long as the answer is held, the
//! deadline of the current [`Call`](failsoft_core::Call) holds too; where it is the smaller, the caller is to blame and
//! not the target. Once the answer is handed on it does not end a stream that flows. The timers are tokio's: the future
//! and the body must be polled in a tokio runtime that has time enabled.
//!
//! On a route that took over from another, the first content has [twice](StreamLayerBuilder::cold_grace) the time, hard and
//! soft: fallback-layer marks such calls [`Mark::Cold`](failsoft_core::Mark::Cold), and so can you.
//!
//! [Held to the end](StreamLayerBuilder::hold_to_end), an answer fails as a whole, wherever it breaks.
//!
//! # What is learnt
//!
//! The [`Insight`](failsoft_core::Insight) on the response's extensions gets the time to first content, the soft limits that
//! passed, and the verdict: once, when the bytes that show it are handed on. The default classifier of the layers outside reads it
//! there, also of a client that drops the body right at the protocol's end.
//!
//! # Features
//!
//! `reqwest-013`: `reqwest::Response` of reqwest 0.13, whose URL and other metadata survive. Its body is boxed once.
//! `metrics`: counts through the crate `metrics`, see [`mod@metrics`].

#![cfg_attr(docsrs, feature(doc_cfg))]
// The README is tested with the crate.
#![cfg_attr(all(doctest, feature = "reqwest-013"), doc = include_str!("../README.md"))]

mod any;
mod any_event;
mod array;
mod body;
mod clock;
mod events;
mod eventstream;
mod framing;
mod future;
mod layer;
mod lines;
pub mod metrics;
mod protocol;
mod reading;
mod service;
mod sse;

pub use self::{
    any::{AnyContent, AnyContentDecoder},
    any_event::{AnyEvent, AnyEventDecoder},
    array::{ArrayElements, ArrayError, ArrayFramer},
    body::StreamedBody,
    eventstream::{
        EventStreamError, EventStreamFramer, EventStreamHeaders, EventStreamMessage, EventStreamMessages,
        EventStreamValue,
    },
    framing::{MAX_EVENT, TooLong},
    future::StreamedFuture,
    layer::{StreamLayer, StreamLayerBuilder},
    lines::{AnyLine, AnyLineDecoder, LineFramer, Lines},
    protocol::{Beyond, Decoder, Limits, Mode, Protocol, Reader, Seen, Until},
    service::Streamed,
    sse::{SseEvent, SseEvents, SseFramer},
};

/// The name of this crate in the faults that it originates.
const LAYER: &str = "stream-layer";
