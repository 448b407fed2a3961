//! From `tower-resilience`: what becomes of its layers.
//!
//! Names and defaults of its release 0.13. What differs most:
//!
//! - outcomes have one of fifteen [classes](crate::core::Class) and not two: a 429 is no failure, a caller's mistake counts against nobody, a wrong
//!   answer weighs 0.6;
//! - state is in the layer and not in what `layer()` makes: an axum router that applies a layer for each route or connection has one circuit;
//! - requests, responses and errors need not be `Clone`; over HTTP nothing needs to be said of them;
//! - errors pass as they are: no `CircuitBreakerError<E>` around yours. What a layer says itself is a [`Fault`](crate::core::Fault), found by `Fault::find`.
//!
//! # `CircuitBreakerLayer`
//!
//! | there | here | note |
//! |---|---|---|
//! | `standard()`, `fast_fail()`, `tolerant()` | [`breaker::presets`](crate::breaker::presets), by what stands behind | |
//! | `failure_rate_threshold`, 0.5 | [`failure_rate`](crate::breaker::BreakerBuilder::failure_rate), 0.4 | |
//! | `sliding_window_type`, `sliding_window_size`, `sliding_window_duration`: 100 calls | [`over`](crate::breaker::BreakerBuilder::over): [`Over::Calls(100)`](crate::breaker::engine::Over) or `Over::Time`; 60 s in 10 buckets | theirs counts all calls since the last transition, which is `Over::SinceEntered` here |
//! | `minimum_number_of_calls`, the window's size | [`min_calls`](crate::breaker::BreakerBuilder::min_calls), 10 | |
//! | `wait_duration_in_open`, 30 s | [`open_time`](crate::breaker::BreakerBuilder::open_time), 30 s, doubled to 5 min, jitter 0.1 | `.open_time_factor(1.0).jitter(0.0)` for a fixed one |
//! | `permitted_calls_in_half_open`, 1 | [`probes`](crate::breaker::BreakerBuilder::probes), 3 of which 85 % are good | a probe that hangs has a [`lease`](crate::breaker::BreakerBuilder::lease), 60 s |
//! | `slow_call_duration_threshold`, `slow_call_rate_threshold` | [`slow_after`](crate::breaker::BreakerBuilder::slow_after), [`slow_rate`](crate::breaker::BreakerBuilder::slow_rate) | of the first content, where there is a body |
//! | `consecutive_failures(k)` | [`consecutive_failures(k)`](crate::breaker::BreakerBuilder::consecutive_failures) with `failure_rate(None)` | |
//! | `failure_classifier`, `classify_response` | [`classify`](crate::breaker::BreakerBuilder::classify) | see [`classifier`](super::classifier) |
//! | `name` | [`name`](crate::breaker::BreakerBuilder::name) | |
//! | `backpressure()` | [`pending_while_open()`](crate::breaker::BreakerBuilder::pending_while_open) | readiness holds the permit |
//! | `on_state_transition` | [`Circuit::subscribe`](crate::breaker::Circuit::subscribe), outside of the lock | the other callbacks are events and metrics |
//! | `build_with_handle()`; `state`, `metrics`, `force_open`, `force_closed`, `reset` | [`layer.circuit()`](crate::breaker::BreakerLayer::circuit); `state`, `snapshot`, `open`, `set_mode`, `reset` | none of them is `async` |
//! | `manual_mode()` | [`Circuit::set_mode`](crate::breaker::Circuit::set_mode) | |
//!
//! # `RetryLayer`
//!
//! | there | here | note |
//! |---|---|---|
//! | `max_attempts`, 3 with the first | [`max_retries`](crate::retry::RetryBuilder::max_retries), 3 without it | one less than theirs |
//! | `max_attempts_fn(&Req)` | a [`Call`](crate::core::CallOptions::max_attempts) with that cap around the call | |
//! | `fixed_backoff`, `exponential_backoff` (no cap, no jitter), `ExponentialRandomBackoff` | [`backoff`](crate::retry::RetryBuilder::backoff) | 1 s, doubled to 60 s, full jitter |
//! | `backoff(impl IntervalFunction)` | [`Backoff::custom`](crate::core::Backoff::custom) | from 1, where theirs begins with 0 |
//! | `retry_on(&E)`, every error; `retry_on_response(&Res)` | [`classify`](crate::retry::RetryBuilder::classify), [`retry_on`](crate::retry::RetryBuilder::retry_on) for a class, [`retry_if`](crate::retry::RetryBuilder::retry_if) for a verdict | |
//! | `budget(Arc<dyn RetryBudget>)`, none | [`budget`](crate::retry::RetryBuilder::budget), on | |
//! | token bucket: one token for each success | [`Deposit::PerSuccess`](crate::retry::Deposit), by default each call | |
//! | AIMD budget | none: a share of the calls follows the load by itself | |
//! | `on_retry` and the like | events, the feature `metrics`, the [`Trail`](crate::core::Trail) | |
//!
//! # The others
//!
//! | there | here |
//! |---|---|
//! | `FallbackLayer`: `value`, `value_fn`, `from_error` | [`tier::computed`](crate::fallback::tier) as the last tier |
//! | `FallbackLayer`: `service`, `tower_service` | a [`Route`](crate::fallback::Route), of which there can be several |
//! | `handle`, `handle_response` | the table of [`fallback::Row`](crate::fallback::Row), changed by `next` |
//! | `TimeLimiterLayer`, 5 s to the head | [`attempt_timeout`](crate::retry::RetryBuilder::attempt_timeout), the timers of [`stream`](super::streams#timers), or tower's `timeout` |
//! | `HedgeLayer` | [`HedgeLayer`](crate::retry::HedgeLayer), by a quantile and out of the retry budget |
//! | `CacheLayer`, `CoalesceLayer` | [`fallback::cache`](crate::fallback::cache) over HTTP |
//! | `RateLimiterLayer` | [`BudgetLayer`](crate::budget::BudgetLayer) of `calls` over a sliding [`Window`](crate::budget::Window), with `wait` |
//! | `BulkheadLayer` | `BudgetLayer` of `concurrent`, with `wait`; or tower's `concurrency_limit` |
//! | `ReconnectLayer`, `AdaptiveLimiterLayer`, `OutlierDetectionLayer`, `ExecutorLayer`, chaos | none: theirs go together with ours, as any tower layer does |
//!
//! ```
//! use failsoft::breaker::{BreakerLayer, engine::{Over, Probes}};
//! use failsoft::core::{Backoff, ErrorsOnly, Jitter};
//! use failsoft::retry::RetryLayer;
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), failsoft::core::ConfigError> {
//! // CircuitBreakerLayer::builder().failure_rate_threshold(0.5).sliding_window_size(100).minimum_number_of_calls(20)
//! //     .wait_duration_in_open(Duration::from_secs(30)).permitted_calls_in_half_open(1)
//! let breaker = BreakerLayer::builder()
//!     .failure_rate(0.5)
//!     .over(Over::Calls(100))
//!     .min_calls(20)
//!     .open_time(Duration::from_secs(30))
//!     .open_time_factor(1.0)
//!     .jitter(0.0)
//!     .probes(Probes::Successes { probes: 1, to_close: 1 })
//!     .classify(ErrorsOnly) // plain values; over HTTP leave this out
//!     .build()?;
//! // RetryLayer::builder().max_attempts(3).exponential_backoff(Duration::from_millis(100))
//! let retry = RetryLayer::builder()
//!     .max_retries(2)
//!     .backoff(Backoff::exponential(Duration::from_millis(100)).jitter(Jitter::None))
//!     .without_budget()
//!     .build()?;
//! # drop((breaker, retry));
//! # Ok(())
//! # }
//! ```
//!
//! That is the same behaviour, as near as it comes. Then take the settings away one by one: the defaults have their reasons.
