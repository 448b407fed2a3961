//! Which layer goes around which.
//!
//! ```text
//!  request  ─▶ call ─▶ budget ─▶ fallback ─▶ retry ─▶ breaker ─▶ validate ─▶ llm or stream ─▶ client
//!  response ◀─ trail ◀─ settle ◀─ next route ◀─ again? ◀─ count ◀─ good answer? ◀─ verdict ◀────┘
//! ```
//!
//! One rule explains it: a layer acts on what comes out of the layers inside it, and knows nothing of what those outside do. So whoever
//! reads stands inside of whoever acts on what was read, and whoever counts attempts stands inside of whoever makes them.
//!
//! | outside | inside | so that | the other way round |
//! |---|---|---|---|
//! | validate | llm | a wrong answer, and an error in a 200, becomes an error | validate sees bytes of a dialect that it does not know, and checks their JSON alone |
//! | breaker | validate | wrong answers count, at 0.6 of a failure | the circuit stays closed over a target that answers nonsense |
//! | retry | breaker | each attempt counts, and an open circuit ends the retrying | three attempts are one outcome; the circuit learns a third of it, and late |
//! | retry | validate | an answer that was wrong by chance is asked for again | only statuses and errors are retried |
//! | reflect | retry | what a plain repeat does not cure is asked for in other words | each changed request is repeated as it is, one in another |
//! | hedge | breaker | both attempts count, and an open circuit refuses the second, whose token goes back | two attempts are one outcome |
//! | fallback | retry | a route is left once its retries are spent | each retry begins the cascade anew |
//! | fallback | breaker, one for each route | routes whose circuit is open are asked last | one circuit opens for all routes, the healthy ones too |
//! | cache | fallback | a hit costs nothing, and asks no route | each route has a cache of its own answers |
//! | budget | fallback, retry | all attempts of a call come out of one budget | each attempt makes a reservation of its own |
//! | call | everything | one deadline, one cap on attempts, one trail | each retry has the whole time |
//!
//! Nothing breaks in another order: nothing is lost, wedged or counted twice. It does less, as the last column says.
//!
//! # Seen
//!
//! Three attempts of one call, once with the retry around the circuit, once inside of it:
//!
//! ```
//! use failsoft::prelude::*;
//! use tower::{ServiceBuilder, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), BoxError> {
//! async fn down(_: http::Request<String>) -> Result<http::Response<String>, BoxError> {
//!     Ok(http::Response::builder().status(500).body(String::new())?)
//! }
//! let retry = RetryLayer::builder().max_retries(2).repeat_unanswered(true).build()?;
//! let (inside, outside) = (BreakerLayer::builder().build()?, BreakerLayer::builder().build()?);
//! let (counts_attempts, counts_calls) = (inside.circuit().clone(), outside.circuit().clone());
//!
//! let recommended = ServiceBuilder::new().layer(retry.clone()).layer(inside).service_fn(down);
//! let other = ServiceBuilder::new().layer(outside).layer(retry).service_fn(down);
//! for service_is_recommended in [true, false] {
//!     let request = http::Request::new(String::new());
//!     let status = match service_is_recommended {
//!         true => recommended.clone().oneshot(request).await?.status(),
//!         false => other.clone().oneshot(request).await?.status(),
//!     };
//!     assert_eq!(status, 500); // the upstream's own answer, in both
//! }
//! assert_eq!(counts_attempts.counts().failed, 3);
//! assert_eq!(counts_calls.counts().failed, 1);
//! # Ok(())
//! # }
//! ```
//!
//! # With tower's and tower-http's layers
//!
//! | layer | where | because |
//! |---|---|---|
//! | `timeout` for one attempt | between breaker and validate | outside of the breaker it drops the call, which then counts only by a slow rule; innermost it ends with the head of the response |
//! | a limit for the whole call | [`CallLayer::timeout`](crate::core::CallLayer::timeout), outermost | the layers divide what is left; tower's would cut them off |
//! | `concurrency_limit` | innermost, one for each route | a permit is held while the upstream works and not while a retry waits |
//! | `rate_limit` | innermost; outside of a retry it lets each call send several | it counts what is sent |
//! | `load_shed` | right around the limit | its error is ours and not the upstream's: with the feature `tower-05` no breaker counts it |
//! | `buffer` | outside of everything, or with [`CarryLayer`](crate::core::CarryLayer) around it and [`UncarryLayer`](crate::core::UncarryLayer) inside | its worker is another task, on which deadline and trail are not to be found by themselves |
//! | `balance` | its endpoints each have a breaker with [`pending_while_open`](crate::breaker::BreakerBuilder::pending_while_open) | it asks those that are ready |
//! | tower's `retry` | none beside ours | the attempts of two multiply |
//! | decompression | inside of llm and validate | they read no encoded bodies |
//! | `trace`, `request-id`, `set-header` | outermost for one span a call, innermost for one an attempt | |
//!
//! On a server the same holds from the handler outward: [`presets::Server`](crate::presets::Server) is respond, call and breaker.
