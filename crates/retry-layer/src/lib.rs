//! A tower layer that calls again, when that can help, and stops when it cannot.
//!
//! Put a [`RetryLayer`] around any `tower::Service` whose target fails now and then. By default it understands HTTP:
//!
//! ```
//! use retry_layer::RetryLayer;
//! use tower::{Service, ServiceBuilder, ServiceExt};
//!
//! # #[derive(Clone, Default)] struct Flaky(std::sync::Arc<std::sync::atomic::AtomicU32>);
//! # impl Flaky { async fn answer(self, _: http::Request<String>) -> Result<http::Response<String>, std::io::Error> {
//! #     let first = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
//! #     Ok(http::Response::builder().status(if first { 503 } else { 200 }).body(String::new()).unwrap())
//! # } }
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
//! # let flaky = Flaky::default();
//! # let client = tower::service_fn(move |request| flaky.clone().answer(request));
//! let mut service = ServiceBuilder::new().layer(RetryLayer::new()).service(client);
//!
//! let request = http::Request::post("https://models.example/v1/chat").body("{}".to_owned())?;
//! let response = service.ready().await?.call(request).await?; // a 503, a short wait, and then
//! assert_eq!(response.status(), 200);
//! # Ok::<(), failsoft_core::BoxError>(())
//! # }).unwrap();
//! ```
//!
//! # When it tries again
//!
//! The [verdict](failsoft_core::Verdict) on an outcome says whether the same request may work: by default after most 5xx,
//! 408, 409, 425, 429 and failed connections, and after whatever a layer further in says is worth it. Of those are tried
//! again only the ones that pass all of these:
//!
//! | question | else |
//! |---|---|
//! | Has the attempt opened no circuit further in? | the outcome, at once |
//! | Is there an attempt left, of [`max_retries`](RetryBuilder::max_retries), of a retry layer's around and of the current [`Call`](failsoft_core::Call)'s? | the outcome |
//! | Is the request not itself the [retry of a client](RetryBuilder::trust_client_retries)? | the outcome |
//! | Can the request be sent again ([`Replay`](failsoft_core::Replay))? If nothing was answered, and it may have been acted on: is it idempotent, or [marked](RetryBuilder::repeat_unanswered)? | the outcome |
//! | Is the server's advice within [`max_advice`](RetryBuilder::max_advice)? It is a floor: nobody asks earlier, and it [holds](RetryBuilder::share_advice) the layer's other calls to the target, too | the outcome, at once, with its advice |
//! | Does the wait end before the [deadline](RetryBuilder::deadline)? | the outcome, at once |
//! | Does the [budget](RetryBudget) have a token? It is taken before the wait, and goes back if nothing is sent | the outcome, at once |
//! | During the wait: does no circuit open that the attempt came through? It wakes the call, without any setting. Through a fallback it does when the circuits of all its routes are open, and nothing stands in for them: see its README. Through a buffer it needs [`CarryLayer`](failsoft_core::CarryLayer); else it is asked after the wait | at that moment, what is said in the next row |
//! | After the wait: is the service ready [in time](RetryBuilder::ready_within), and no circuit open? | the outcome: an error as it was, for a response a [`Fault`](failsoft_core::Fault) with its class, status and advice |
//!
//! "The outcome" is always the upstream's own. Why there was no other attempt is in the [`Trail`](failsoft_core::Trail) of
//! the current `Call`, and in a `tracing` event. The response of a failed attempt is dropped before the wait, so that no
//! connection is held through it. What fails after the head of a response was passed on is not retried.
//!
//! # Beside it
//!
//! | to | look at |
//! |---|---|
//! | start from numbers for models, batches or tools | [`presets`] |
//! | send a slow call once more, beside the first | [`hedge`] |
//! | answer a wrong answer by a changed request | [`reflect`] |
//!
//! # What is sent
//!
//! The first attempt is the request as it came; each further one says [how many there were
//! before](RetryBuilder::attempt_number). By option all attempts carry one [idempotency
//! key](RetryBuilder::idempotency_key), and gRPC's tell [the time left](RetryBuilder::forward_deadline). A body that is a
//! stream is sent again by [`.replay(Buffered::new(…))`](failsoft_core::Buffered), which records it as it is sent.
//!
//! # Where to put it
//!
//! Outside of a circuit breaker, so that each attempt counts and an open circuit ends the retrying; inside of a fallback, which
//! takes over when it gives up. Retry layers inside each other share the outermost one's
//! [`max_retries`](RetryBuilder::max_retries). A client inside that retries by itself multiplies the attempts, and nobody sees
//! them: turn that off (`reqwest::retry::never()`). One outside says so in a header, and what it sends again is sent once.
//!
//! The layer needs a tokio runtime with its timer. Dropping the future at any point drops the attempt or the wait with it, and
//! gives back what the attempt had taken.
//!
//! # Features
//!
//! `http` (default), `reqwest-013`, `chat`, `http-body-util-01`, and `metrics`, for what is counted see [`metrics`].

#![cfg_attr(docsrs, feature(doc_cfg))]
// The README is tested in `tests/stacks`: it has code of several layers.

pub mod budget;
mod builder;
mod events;
mod flow;
mod future;
pub mod hedge;
mod holds;
mod keys;
mod layer;
mod lent;
pub mod metrics;
mod more;
mod policy;
pub mod presets;
pub mod reflect;
mod service;

pub use self::{
    budget::{Deposit, RetryBudget, RetryBudgetBuilder, Withdrawal},
    builder::RetryBuilder,
    future::ResponseFuture,
    hedge::{Hedge, HedgeBuilder, HedgeLayer},
    layer::RetryLayer,
    reflect::{Reflect, ReflectBuilder, ReflectLayer},
    service::Retry,
};
