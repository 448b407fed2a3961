//! Builders that start from numbers for one kind of call.
//!
//! ```
//! use retry_layer::presets;
//!
//! let layer = presets::interactive().target("model-a").build()?;
//! # let _ = layer;
//! # Ok::<(), failsoft_core::ConfigError>(())
//! ```
//!
//! | preset | further attempts | waits, with full jitter | advice up to | deadline | budget | without an answer |
//! |---|---|---|---|---|---|---|
//! | [`critical`] | 5 | 1 s, doubled to 60 s | 120 s | – | 20 % of calls, 10 a second | repeated |
//! | [`interactive`] | 1 | 0.25 s, doubled to 2 s | 5 s | 60 s | 20 % of calls, 10 a second | repeated |
//! | [`batch`] | 5 | 5 s, doubled to 300 s | 600 s | – | 10 % of successes, 1 a second | repeated |
//! | [`tool`] | 2 | 0.5 s, doubled to 5 s | 5 s | 20 s | 20 % of calls, 10 a second | only what is declared harmless |
//! | the defaults | 3 | 1 s, doubled to 60 s | 120 s | – | 20 % of calls, 10 a second | what is idempotent |
//!
//! The first three are for calls to models: a chat completion may be asked for twice, at the price of its tokens. Where one
//! client also uploads files or starts jobs, say `.repeat_unanswered(false)`, which leaves that to the request's method and its
//! `Idempotency-Key`. Everything can be changed on the builder that a preset gives.

use std::time::Duration;

use failsoft_core::Backoff;

use crate::{Deposit, RetryBudget, RetryBuilder, RetryLayer};

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A model call that must succeed if it can: 5 further attempts, which leave under 0.5 % of the failures that pass by
/// themselves (3 leave 3 %). No deadline: the caller's counts.
pub fn critical() -> RetryBuilder {
    RetryLayer::builder().max_retries(5).repeat_unanswered(true)
}

/// A model call that a person waits for: 1 further attempt, soon. Beyond a few seconds another route serves them better than
/// patience, so that advice is honoured to 5 s only (from there on a breaker holds its circuit open, too), and after 60 s,
/// what a cascade of routes has in all, nobody is there any more.
pub fn interactive() -> RetryBuilder {
    RetryLayer::builder()
        .max_retries(1)
        .backoff(Backoff::exponential(Duration::from_millis(250)).max(seconds(2)))
        .max_advice(seconds(5))
        .deadline(seconds(60))
        .repeat_unanswered(true)
}

/// A model call that nobody waits for: it can sit out a rate limit of minutes, and must not crowd out those that somebody waits
/// for. So waits are long, and retries are paid by successes and at half the usual rate: in a full outage they soon stop
/// altogether.
pub fn batch() -> RetryBuilder {
    let budget = RetryBudget::builder().ratio(0.1).deposit_on(Deposit::PerSuccess).min_per_sec(1.0);
    RetryLayer::builder()
        .max_retries(5)
        .backoff(Backoff::exponential(seconds(5)).max(seconds(300)))
        .max_advice(seconds(600))
        .budget(budget.unchecked())
        .repeat_unanswered(true)
}

/// A tool, which may do something: nothing that may have been done is done again, unless the request declares that to be
/// harmless or you do (`.repeat_unanswered(true)`), see [`side_effects`](RetryBuilder::side_effects). A model waits for the
/// result, and somebody for the model: 20 s in all, what a cascade has for tools and searches.
pub fn tool() -> RetryBuilder {
    RetryLayer::builder()
        .max_retries(2)
        .backoff(Backoff::exponential(Duration::from_millis(500)).max(seconds(5)))
        .max_advice(seconds(5))
        .deadline(seconds(20))
        .side_effects()
}
