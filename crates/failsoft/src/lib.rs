//! Layers that make calls to unreliable endpoints fail softly: foundation models, agent tools, any `tower` service.
//!
//! This crate brings the others together, each behind a feature and as a module of its short name, with a [`prelude`] of
//! what one writes most, and with [`presets`] that assemble a whole stack.
//!
//! ```
//! use failsoft::{breaker::BreakerLayer, core::BoxError, retry::RetryLayer};
//! use tower::{ServiceBuilder, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let service = ServiceBuilder::new()
//!     .layer(RetryLayer::builder().target("search").build()?)
//!     .layer(BreakerLayer::builder().name("search").build()?)
//!     .service_fn(async |_: http::Request<String>| Ok::<_, BoxError>(http::Response::new(String::from("found"))));
//!
//! let response = service.oneshot(http::Request::new("?".to_owned())).await?;
//! assert_eq!(response.body().get_ref(), "found");
//! # Ok(())
//! # }
//! ```
//!
//! | feature | module | the layer |
//! |---|---|---|
//! | always | `core` | what an outcome means: `Class`, `Verdict`, `Fault`, `Insight`, `Call`, `Trail`; `CallLayer`, `RespondLayer` |
//! | `breaker`, on by default | `breaker` | stops calling a target that fails |
//! | `retry`, on by default | `retry` | calls again, when that can help |
//! | `fallback`, on by default | `fallback` | takes the next route |
//! | `validate` | `validate` | turns a wrong answer into a failure |
//! | `stream` | `stream` | makes a streamed answer fail like a call |
//! | `llm`, brings `stream` | `llm` | knows the model providers' wire formats |
//! | `budget` | `budget` | stops spending |
//! | `full` | | all of them |
//!
//! `reqwest-013`, `tonic-014`, `tower-05`, `serde` and `metrics` are handed on to each layer that is on.
//! `schema` and `regex` are validate-layer's.
//!
//! The module `guide` says which layer goes around which, what becomes of streams, how to write a classifier, how to move here from
//! tower's retry, reqwest-retry or tower-resilience, when to share state, and how to bring it all into a service that runs.
//!
//! Where one layer is enough, its own crate is: `breaker-layer`, `retry-layer` and so on are the same types.

#![cfg_attr(docsrs, feature(doc_cfg))]
// The README is tested with the crate.
#![cfg_attr(all(doctest, feature = "full", feature = "reqwest-013"), doc = include_str!("../README.md"))]

// Only text and examples, which name things of every layer: there when docs are made with all features, as those on docs.rs are.
#[cfg(all(any(doc, doctest), feature = "full", feature = "reqwest-013"))]
pub mod guide;
pub mod prelude;
pub mod presets;

#[cfg(feature = "breaker")]
pub use breaker_layer as breaker;
#[cfg(feature = "budget")]
pub use budget_layer as budget;
pub use failsoft_core as core;
#[cfg(feature = "fallback")]
pub use fallback_layer as fallback;
#[cfg(feature = "llm")]
pub use llm_layer as llm;
#[cfg(feature = "retry")]
pub use retry_layer as retry;
#[cfg(feature = "stream")]
pub use stream_layer as stream;
#[cfg(feature = "validate")]
pub use validate_layer as validate;
