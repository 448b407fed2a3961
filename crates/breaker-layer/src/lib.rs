//! A [`tower_layer::Layer`] that stops calling a target that fails: a circuit breaker.
//!
//! Take it in front of a target that costs time or money when it is down, such as a hosted model. It opens
//! when too many calls fail, refuses calls while open, and lets a few probes decide when to close again.
//!
//! ```
//! use std::time::Duration;
//! use breaker_layer::{BreakerLayer, engine::State};
//! use failsoft_core::{BoxError, Class, Denier, ErrorsOnly, Fault};
//! use tower::{Service, ServiceBuilder, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let layer = BreakerLayer::builder()
//!     .name("model-a")
//!     .min_calls(5)
//!     .open_time(Duration::from_secs(30))
//!     .classify(ErrorsOnly) // plain values: errors tell all
//!     .build()?;
//! let circuit = layer.circuit().clone();
//! let mut service = ServiceBuilder::new()
//!     .layer(layer)
//!     .service_fn(|_: &'static str| async { Err::<(), _>(BoxError::from("it is down")) });
//!
//! for _ in 0..5 {
//!     assert_eq!(service.ready().await?.call("hello").await.unwrap_err().to_string(), "it is down");
//! }
//! assert_eq!(circuit.state(), State::Open);
//! let refused = service.ready().await?.call("hello").await.unwrap_err();
//! let fault = Fault::find(&*refused).expect("a refusal is a fault");
//! assert_eq!(fault.class(), Class::Denied(Denier::Circuit));
//! assert_eq!(fault.target(), Some("model-a"));
//! # Ok(())
//! # }
//! ```
//!
//! # The parts
//!
//! | to | look at |
//! |---|---|
//! | put a breaker around a service | [`BreakerLayer`], [`BreakerBuilder`] |
//! | start from numbers that fit a model, a tool, a database | [`presets`] |
//! | give each host, model, tool or tenant a circuit | [`BreakerBuilder::key_fn`], [`KeyedBreakerLayer`], [`Circuits`] |
//! | watch and steer it | [`Circuit`] |
//! | see all circuits of a process, for a health endpoint | [`Registry`] |
//! | count what happens | [`metrics`] |
//! | answer an agent instead of failing | [`ObserveLayer`](failsoft_core::ObserveLayer) |
//! | say what counts as a failure | [`BreakerBuilder::classify`], [`BreakerBuilder::on`] |
//! | use it without tower | [`engine`] |
//!
//! # What counts
//!
//! | class | counts as |
//! |---|---|
//! | success | success |
//! | transient, overloaded, timeout, unknown | a failure, if the target is to blame |
//! | soft | a failure of weight 0.6 |
//! | rate limited | neutral, but a failed probe; opens for a long advice, or after five in a row without one |
//! | quota | opens at once |
//! | invalid | neutral, but a good probe: the target lives |
//! | auth, model not found, context length, refused | neutral |
//! | cancelled | neutral; slow, if there is a slow rule and nothing came for longer than its limit |
//! | denied by our own layers | never an outcome |
//!
//! # Features
//!
//! `http` (default) follows the bodies of `http::Response`, so that a failure in the middle of a body counts;
//! `reqwest-013` those of reqwest 0.13; `tower-05` recognises the errors of tower's own timeout and
//! load_shed; `metrics` counts through the crate `metrics` what the module [`metrics`] lists; `serde` makes snapshots
//! serialisable.

#![cfg_attr(docsrs, feature(doc_cfg))]
// The README is tested with the crate.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

mod builder;
mod circuit;
pub mod engine;
mod events;
mod future;
mod keyed;
mod layer;
mod lent;
mod listeners;
pub mod metrics;
pub mod presets;
mod registry;
#[cfg(feature = "serde")]
mod serialize;
mod service;
mod shared;
mod table;
mod ticket;
mod waiters;

#[cfg(feature = "http")]
pub use self::keyed::ByAuthority;
pub use self::{
    builder::BreakerBuilder,
    circuit::Circuit,
    future::ResponseFuture,
    keyed::{Circuits, KeyFn, KeyRef, Keyed, KeyedBreaker, KeyedBreakerLayer, Keys, OneForAll},
    layer::BreakerLayer,
    listeners::Subscription,
    registry::{CircuitSnapshot, KeyedSnapshot, MAX_LISTED, Registry, RegistrySnapshot},
    service::Breaker,
    table::Row,
    ticket::Ticket,
};
