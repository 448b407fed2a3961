//! [`Hedge`]: a slow call is sent once more, beside the first, and the first good answer wins.
//!
//! Take it where a few calls take far longer than the others and nobody knows why: a busy replica, a cold cache, a lost packet.
//! It does nothing for a target that is slow for everybody, and costs up to twice the tokens of the calls that it hedges.
//!
//! ```
//! use std::time::Duration;
//! use retry_layer::HedgeLayer;
//! use tower::{Service, ServiceBuilder, ServiceExt};
//!
//! # use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
//! # #[derive(Clone, Default)] struct Odd(std::sync::Arc<AtomicU32>);
//! # impl Odd { async fn answer(self, _: http::Request<String>) -> Result<http::Response<String>, std::io::Error> {
//! #     if self.0.fetch_add(1, Relaxed) == 0 { tokio::time::sleep(Duration::from_secs(60)).await }
//! #     Ok(http::Response::new("hello".to_owned()))
//! # } }
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
//! # let (odd, began) = (Odd::default(), tokio::time::Instant::now());
//! # let client = tower::service_fn(move |request| odd.clone().answer(request)); // its first answer takes a minute
//! let hedge = HedgeLayer::builder().delay(Duration::from_secs(2)).build()?;
//! let mut service = ServiceBuilder::new().layer(hedge).service(client);
//!
//! let request = http::Request::get("https://models.example/v1/models").body(String::new())?;
//! let response = service.ready().await?.call(request).await?; // after two seconds it is sent again, and answered
//! assert_eq!(response.into_body(), "hello");
//! # assert_eq!(began.elapsed().as_secs(), 2);
//! # Ok::<(), failsoft_core::BoxError>(())
//! # }).unwrap();
//! ```
//!
//! # When a call is sent once more
//!
//! When it has no answer after a [fixed time](HedgeBuilder::delay), or after a time that is longer than
//! [a share](HedgeBuilder::quantile) of the calls before took; by default than 95 % of them, once 100 are known. Of those calls
//! are sent again only the ones that pass all of these:
//!
//! | question | else |
//! |---|---|
//! | May the request be sent twice ([`Replay`](failsoft_core::Replay)), and does that do no harm: is it idempotent, or [marked](HedgeBuilder::repeat_unanswered)? | sent once, without a copy and without a timer |
//! | Has nobody been told by the target lately that it is too much ([`RateLimited`](failsoft_core::Class::RateLimited), [`Overloaded`](failsoft_core::Class::Overloaded))? That holds hedges back until the advice is over, at most two minutes; without advice, a second | the first goes on alone |
//! | Is the deadline of the current [`Call`](failsoft_core::Call) still ahead? | the first goes on alone |
//! | Is the service ready again? The first goes on meanwhile | the first goes on alone |
//! | Is there an attempt left, of [`max_hedges`](HedgeBuilder::max_hedges), of the current `Call`'s, and of a retry's around, for which a hedge is a retry? | the first goes on alone |
//! | Does the [budget](crate::RetryBudget) have a token? | the first goes on alone |
//!
//! # Who wins
//!
//! | outcome | while others run | when it is the last |
//! |---|---|---|
//! | good: the head of a response that is not a failure | the call's; all others are dropped | the same |
//! | refused for what the request is: `Invalid`, `ContextLength`, `Auth`, `Quota`, `ModelNotFound`, `Refused` | the call's: the others would be told the same | the same |
//! | any other failure | let go; the others may still be good | the call's |
//! | denied by a layer of ours, such as a circuit | let go, and no further hedge begins | what the target itself answered before, if it did; a response that is gone by then as a [`Fault`](failsoft_core::Fault) with its class, status and advice |
//!
//! A failure that comes before the delay is returned at once: to send again what has failed is the retry's business, around this
//! layer. To be dropped closes an HTTP/1 connection and resets an HTTP/2 stream, so that the server can stop. What a loser used
//! up to then is added up like any other attempt's, each hedge in a [`Call`](failsoft_core::Call) of its own; a breaker inside
//! takes it for cancelled, which is neutral. All attempts of a hedged call are in its [`Trail`](failsoft_core::Trail).
//!
//! # Where to put it
//!
//! Inside of a retry, so that each attempt can be hedged and its limit of time holds; outside of a breaker, so that each request
//! counts. With a `stream-layer` inside, a call is answered by its first content: then it is the time to first content that is
//! hedged, and nothing that has begun to flow is sent twice.
//!
//! The layer needs a tokio runtime with its timer. Dropping the future drops every attempt.

mod builder;
mod events;
mod future;
mod latency;
mod layer;
mod policy;
mod race;
mod service;

pub use self::{builder::HedgeBuilder, future::ResponseFuture, layer::HedgeLayer, service::Hedge};
