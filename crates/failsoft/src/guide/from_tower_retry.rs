//! From tower's `retry`: what becomes of a policy.
//!
//! With `tower::retry` you write a [`Policy`](https://docs.rs/tower/0.5/tower/retry/trait.Policy.html): what to repeat, how often, after which wait, out of which
//! budget. [`RetryLayer`](crate::retry::RetryLayer) is such a policy, written, whose parts are options. Like tower's it boxes nothing, and asks for readiness
//! before each attempt; it drops the failed response before it waits, too.
//!
//! | in your policy | here | by default |
//! |---|---|---|
//! | `retry`, its match on the result | the verdict: [`classify`](crate::retry::RetryBuilder::classify), and for a single class [`retry_on`](crate::retry::RetryBuilder::retry_on) or [`retry_if`](crate::retry::RetryBuilder::retry_if) | most 5xx, 408, 409, 425, 429, failed connections, and what a layer inside says |
//! | the counter in it | [`max_retries`](crate::retry::RetryBuilder::max_retries): further attempts, so tower's `Attempts(n)` is `n` | 3 |
//! | the future that it returns; `ExponentialBackoffMaker` (from 50 ms, no end, jitter 0.99) | [`backoff`](crate::retry::RetryBuilder::backoff) | 1 s, doubled to 60 s, full jitter, never below 0.1 s |
//! | `clone_request` that gives `Some` | [`replay`](crate::retry::RetryBuilder::replay): `Auto` for http and reqwest, [`Cloned`](crate::core::Cloned), [`Buffered`](crate::core::Buffered) for bodies that are streams | `Auto` |
//! | `clone_request` that gives `None` | `.replay(`[`Once`](crate::core::Once)`)` | |
//! | `TpsBudget::new(ttl, min_per_sec, ratio)` | [`RetryBudget::builder()`](crate::retry::RetryBudget::builder) with `ttl`, `min_per_sec`, `ratio`; refused by an error, where tower's panics | the same figures: 10 s, 10 a second, 0.2 |
//! | `deposit`, `withdraw` | by the layer: once a call, and once a retry | |
//! | a look at `Retry-After` | by the layer: a floor for the wait | up to 2 min |
//! | a change of the request | [`ReflectLayer`](crate::retry::ReflectLayer) | |
//! | tower's `hedge` | [`HedgeLayer`](crate::retry::HedgeLayer) | |
//!
//! What is new, and on: a POST that may have arrived and was not answered is not sent again, unless you say that it is harmless. A policy that
//! repeated every error was repeating those too.
//!
//! Before:
//!
//! ```
//! use std::{future::Future, pin::Pin, sync::Arc, time::Duration};
//! use tower::{BoxError, ServiceBuilder, ServiceExt, retry::{Policy, budget::{Budget, TpsBudget}}};
//!
//! type Request = http::Request<String>;
//! type Response = http::Response<String>;
//!
//! #[derive(Clone)]
//! struct Attempts { left: u32, budget: Arc<TpsBudget> }
//!
//! impl Policy<Request, Response, BoxError> for Attempts {
//!     type Future = Pin<Box<dyn Future<Output = ()> + Send>>;
//!
//!     fn retry(&mut self, _: &mut Request, result: &mut Result<Response, BoxError>) -> Option<Self::Future> {
//!         if matches!(result, Ok(response) if !response.status().is_server_error()) {
//!             self.budget.deposit();
//!             return None;
//!         }
//!         if self.left == 0 || !self.budget.withdraw() {
//!             return None;
//!         }
//!         self.left -= 1;
//!         Some(Box::pin(tokio::time::sleep(Duration::from_millis(200))))
//!     }
//!
//!     fn clone_request(&mut self, request: &Request) -> Option<Request> {
//!         Some(request.clone())
//!     }
//! }
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), BoxError> {
//! let budget = Arc::new(TpsBudget::new(Duration::from_secs(10), 10, 0.2));
//! let service = ServiceBuilder::new()
//!     .retry(Attempts { left: 3, budget })
//!     .service_fn(async |_: Request| Ok::<_, BoxError>(Response::new(String::new())));
//! # service.oneshot(Request::new(String::new())).await?;
//! # Ok(())
//! # }
//! ```
//!
//! After:
//!
//! ```
//! use failsoft::{core::{Backoff, BoxError}, retry::{RetryBudget, RetryLayer}};
//! use std::time::Duration;
//! use tower::{ServiceBuilder, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), BoxError> {
//! let budget = RetryBudget::builder().ttl(Duration::from_secs(10)).min_per_sec(10.0).ratio(0.2).build()?; // the default
//! let retry = RetryLayer::builder()
//!     .max_retries(3)
//!     .backoff(Backoff::fixed(Duration::from_millis(200))) // with full jitter, unless told otherwise
//!     .budget(budget)
//!     .build()?;
//! let service = ServiceBuilder::new()
//!     .layer(retry)
//!     .service_fn(async |_: http::Request<String>| Ok::<_, BoxError>(http::Response::new(String::new())));
//! # service.oneshot(http::Request::new(String::new())).await?;
//! # Ok(())
//! # }
//! ```
//!
//! A call that succeeds costs about half of what it does with tower's retry and its budget: 21 ns and 38 ns over the bare call, as `benches/README.md` has
//! them. Keep tower's where your policy is one of its own: a request that is changed on the way, a result that is.
