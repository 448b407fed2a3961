//! A [`tower`](https://docs.rs/tower) layer that takes the next route when one fails.
//!
//! The service under the layer is the first route. When it fails, the further routes are asked in their order: those
//! in poor health last, those that cannot help with what went wrong not at all. When all have failed, an earlier good
//! answer to the same request may stand in. You want it when another region, model, account or a cached answer is
//! better than an error.
//!
//! ```
//! use std::{convert::Infallible, io};
//! use failsoft_core::ErrorsOnly;
//! use fallback_layer::{FallbackLayer, Route};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let main = service_fn(|_: u32| async { Err::<&str, _>(io::Error::from(io::ErrorKind::ConnectionReset)) });
//! let backup = service_fn(|_: u32| async { Ok::<_, Infallible>("from the backup") });
//!
//! let layer = FallbackLayer::builder()
//!     .classify(ErrorsOnly) // plain values; `http::Response` and `reqwest::Response` need no classifier
//!     .route(Route::new("backup", backup))
//!     .build()?;
//! let service = ServiceBuilder::new().layer(layer).service(main);
//! assert_eq!(service.oneshot(7).await.unwrap(), "from the backup");
//! # Ok::<_, failsoft_core::ConfigError>(())
//! # }).unwrap();
//! ```
//!
//! | to | look at |
//! |---|---|
//! | set it up, with all defaults | [`Builder`] |
//! | describe a route: name, health, credential, window, cost | [`Route`] |
//! | change requests and answers for a route | [`adapt`] |
//! | rename the model, prune the messages, give examples, translate tool ids | `adapt::chat` (feature `http`) |
//! | go on with another route when a stream breaks off, and say so | `restart` (feature `http`) |
//! | ask routes now and then whether they work | [`check`] |
//! | build a route for each request | [`Route::by_request`] |
//! | start the next route beside one that is slow | [`Builder::slow_start`] |
//! | keep prompts from windows that they do not fit into | [`Builder::estimate`] |
//! | know which failures go on, and where to; change it | [`table`] |
//! | let an earlier answer stand in | [`last_good`] |
//! | let something computed stand in, or the promise of an answer | [`tier`] |
//! | ask once for what many ask, and keep good answers | `cache` (feature `cache`) |
//! | spread calls by weight or latency, or keep a conversation where it is | [`order`] |
//! | count how often what stood in, and at what cost | [`metrics`] |
//! | choose what the caller gets when all fail | [`Return`] |
//! | choose what happens when all are in poor health | [`WhenAllPoor`] |
//!
//! # What a call does
//!
//! - A response whose verdict comes with the end of its body counts as good and is passed on at once, unchanged; what
//!   its body does later is the business of the layers inside. Only [`last_good::http`](last_good::http()) reads
//!   bodies.
//! - The service is always ready. Each attempt readies a clone of the route that no other call has touched; when
//!   that fails or takes [too long](Builder::ready_within), the clone is dropped and the next route is taken.
//! - The request is kept as [`Replay`](failsoft_core::Replay) says: one cheap clone while the first route works, and
//!   the last route gets the original. One that cannot be repeated is sent to one route.
//! - Each route is asked at most once a call. Fallbacks inside each other's routes share what was asked, by the
//!   routes' names, until the outermost one is done, so that circles of them end; a call that is begun
//!   [isolated](failsoft_core::CallOptions::isolated) starts anew. Each further route is asked of the
//!   [`Call`](failsoft_core::Call)'s cap on attempts.
//! - A further route runs in a scope whose deadline is that route's limit, so that a retry in it stops in time.
//! - What was tried, skipped and why is in the [`Trail`](failsoft_core::Trail) of the call, from the second step on
//!   or when a `Call` is current.
//! - A retry around, which waits to ask once more, is told when there is nobody to ask: when each route that may serve the call has
//!   failed or refused it through a circuit breaker, and all those circuits are open. Then it ends at once, as it does directly around
//!   a breaker. While one route may still answer it waits on: one that was not reached, that has no breaker, whose circuit is probing, or
//!   that [`WhenAllPoor`] would let through as the last resort or wait for; and where a last tier may stand in.
//! - First route good, typed routes, fixed order: no allocation, no further yield, and no clock is read unless the route is
//!   seen to wait. Then a timer of tokio's is used: call it inside a tokio runtime with time enabled.
//! - A future that is dropped drops the attempt that is running, and holds nothing else.
//!
//! # Errors
//!
//! The error type is [`BoxError`](failsoft_core::BoxError). A failure that stayed the only one is passed on as it is:
//! an error unwrapped, a response with its body. What several failures become is [`Return`]'s choice. Faults that
//! originate here:
//!
//! | class | when |
//! |---|---|
//! | the deciding route's | all routes failed, [`Return::Combined`] |
//! | `Timeout(Total)` | a route used up its time; the caller is to blame when its deadline was the nearer limit |
//! | `Overloaded` | a route was not ready in time; nothing was sent |
//! | `Denied(Circuit)` | all routes are in poor health, [`WhenAllPoor::FailFast`], or [`Wait`](WhenAllPoor::Wait) and none recovers in time; with the earliest recovery as advice |
//! | `Denied(Budget)` | only free routes may serve the call, and there is none |
//! | `Denied(Loop)` | fallbacks around this one have asked all its routes already |
//!
//! # Features
//!
//! `http` (default): the default classifier on `http::Response`, and [`last_good::http`](last_good::http()).
//! `cache`: a cache of good answers over HTTP, in front or as the last tier.
//! `reqwest-013`: the same for reqwest 0.13 (needs Rust 1.88).
//! `metrics`: counters, see [`metrics`].

#![cfg_attr(docsrs, feature(doc_cfg))]
// The README is tested with the crate.
#![cfg_attr(all(doctest, feature = "reqwest-013"), doc = include_str!("../README.md"))]

pub mod adapt;
#[cfg(feature = "http")]
mod answer;
mod boxed;
mod by_request;
#[cfg(feature = "cache")]
pub mod cache;
mod cascade;
pub mod check;
mod events;
mod future;
#[cfg(feature = "http")]
mod in_memory;
#[cfg(feature = "http")]
mod json;
pub mod last_good;
mod layer;
pub mod metrics;
pub mod order;
mod plan;
#[cfg(feature = "http")]
pub mod restart;
pub mod route;
mod service;
mod store;
pub mod table;
pub mod tier;

/// Who originates this crate's faults and records its attempts.
const LAYER: &str = "fallback-layer";

pub use self::{
    boxed::{BoxRoute, BoxRouteFuture},
    by_request::{ByRequest, ByRequestFuture},
    future::ResponseFuture,
    layer::{Builder, FallbackLayer},
    order::{Affinity, ByKey, Estimating, NoAffinity, Order},
    plan::{Return, WhenAllPoor},
    route::{NoRoute, Route},
    service::Fallback,
    table::{Row, To},
};
