//! From `reqwest-retry`: what becomes of the middleware.
//!
//! `reqwest-middleware` puts retries into a client of its own type. Here the client is a `reqwest::Client`, which is a `tower::Service`, and the retry a
//! layer around it; other layers fit between and around them. What you call is `oneshot(request)` or `ready().await?.call(request)` instead of
//! `send()`; a request comes from `client.post(…).build()?`.
//!
//! | in reqwest-retry | here | note |
//! |---|---|---|
//! | `RetryTransientMiddleware::new_with_policy(policy)` | [`RetryLayer::builder()`](crate::retry::RetryLayer::builder) … `.build()?` | |
//! | `build_with_max_retries(n)` | [`max_retries(n)`](crate::retry::RetryBuilder::max_retries), 3 | both count further attempts |
//! | `build_with_total_retry_duration(d)` | [`deadline(d)`](crate::retry::RetryBuilder::deadline) | ours ends the attempt that runs, too, and begins no wait that would end after it |
//! | `retry_bounds(min, max)`, 1 s and 30 min | [`Backoff::exponential(min).max(max)`](crate::core::Backoff), 1 s and 60 s | |
//! | `base(n)`, 2 | [`factor(n)`](crate::core::Backoff::factor), 2 | |
//! | `Jitter::Full`, its default | [`Jitter::Full`](crate::core::Jitter::Full), ours too | |
//! | `Jitter::Bounded` | [`Backoff::min`](crate::core::Backoff::min) is the floor of full jitter, 0.1 s | |
//! | `Jitter::None` | [`Jitter::None`](crate::core::Jitter::None) | for tests |
//! | a `RetryableStrategy` | [`classify`](crate::retry::RetryBuilder::classify), see [`classifier`](super::classifier) | `Transient` has become a class, `Fatal` is `Invalid`, `None` is `Success` |
//! | the default strategy: 5xx, 408, 429, timeouts, failed and cut connections | the default classifier: these, 409 and 425; and bodies that break off, for a breaker | |
//! | `with_retry_log_level` | your subscriber's filter: retries are `tracing` events | |
//! | a request whose body is a stream is refused | is sent once; other bodies of `reqwest` are kept | |
//!
//! # What is different, and on
//!
//! | | reqwest-retry | here |
//! |---|---|---|
//! | `Retry-After` | is not looked at | is a floor, and ends the retrying where it asks for more than 2 min |
//! | a POST that was not answered | is sent again | only with [`repeat_unanswered(true)`](crate::retry::RetryBuilder::repeat_unanswered) or an [idempotency key](crate::retry::RetryBuilder::idempotency_key). One that was answered 503 is |
//! | an outage | each call is sent `n` times more | a [`RetryBudget`](crate::retry::RetryBudget): a fifth of the calls, and 10 a second |
//! | the failed response | is held through the wait, with its connection | is dropped before |
//! | reqwest's own retries | count on top | turn them off: `reqwest::retry::never()` |
//!
//! ```no_run
//! use failsoft::{core::{Backoff, BoxError}, retry::RetryLayer};
//! use std::time::Duration;
//! use tower::{Service, ServiceBuilder, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! // let policy = ExponentialBackoff::builder().retry_bounds(Duration::from_millis(500), Duration::from_secs(20)).build_with_max_retries(3);
//! // let client = ClientBuilder::new(reqwest::Client::new()).with(RetryTransientMiddleware::new_with_policy(policy)).build();
//! let backoff = Backoff::exponential(Duration::from_millis(500)).max(Duration::from_secs(20));
//! let client = reqwest::Client::builder().retry(reqwest::retry::never()).build()?;
//! let mut service = ServiceBuilder::new()
//!     .layer(RetryLayer::builder().max_retries(3).backoff(backoff).build()?)
//!     .service(client.clone());
//!
//! // let response = client.get("https://example.com/").send().await?;
//! let request = client.get("https://example.com/").build()?;
//! let response: reqwest::Response = service.ready().await?.call(request).await?;
//! # drop(response);
//! # Ok(())
//! # }
//! ```
//!
//! The error is a [`BoxError`](crate::core::BoxError); where it comes from `reqwest` it is that error, not wrapped: `err.is::<reqwest::Error>()`.
//!
//! Other middleware stays where it is: a `reqwest_middleware::ClientWithMiddleware` is a `tower::Service` of the same requests and responses, so that it
//! can stand inside while you move.
