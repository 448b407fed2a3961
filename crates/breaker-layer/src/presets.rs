//! Where to start, by what stands behind the breaker. Each is a [`BreakerBuilder`] to be changed further.
//!
//! ```
//! use breaker_layer::presets;
//!
//! let layer = presets::hosted_model().name("model-a").min_calls(20).build()?;
//! # Ok::<(), failsoft_core::ConfigError>(())
//! ```
//!
//! | preset | window, from calls | opens at failures | slow, to first content | refuses | probes | lease |
//! |---|---|---|---|---|---|---|
//! | [`hosted_model`] | 60 s, 10 | 40 % | 4 s in 50 % | 30 s to 5 min | 3, 85 % | 60 s |
//! | [`reasoning_model`] | 5 min, 10 | 40 % | 60 s in 50 % | 30 s to 5 min | 2, all | 3 min |
//! | [`multimodal_model`] | 60 s, 10 | 40 %, wrong ones weigh 0.7 | 10 s in 50 % | 30 s to 5 min | 3, 85 % | 2 min |
//! | [`aggregator`] | 2 min, 20 | 50 % | 6 s in 50 % | 30 s to 5 min | 5, 80 % | 60 s |
//! | [`self_hosted_model`] | 60 s, 10 | 40 %, or 5 in a row | 10 s in 50 % | 15 s to 2 min | 3, 85 % | 2 min |
//! | [`embedding`] | 60 s, 20 | 30 % | 2 s in 50 % | 15 s to 2 min | 3, 85 % | 15 s |
//! | [`tool`] | 5 min, 5 | 50 % | 10 s in 50 % | 30 s to 5 min | 1 | 60 s |
//! | [`database`] | 10 s, 20 | 50 % | 1 s in 50 % | 5 s to 1 min | 5, 80 % | 10 s |
//! | [`router`] | 5 min, 10 | 30 % | – | never; told for 30 s to 5 min | 3, 85 % | 60 s |
//!
//! What is not in the table is as [`BreakerLayer::builder`](crate::BreakerLayer::builder) has it. Practice for model
//! endpoints, from which the first row comes, is 20 to 100 calls or 60 s to 5 min, and 30 to 50 %; below 30 s of open
//! time circuits flap at peak hours. The other rows say where they part from it, and why.
//!
//! Every row but the last has a slow rule, for which two clocks are read on each call (about 50 ns);
//! `.slow_after(None).slow_rate(None)` takes them away. With a limit and no rate the clocks are still read, to count slow
//! calls, and those decide nothing.

use std::time::Duration;

use crate::BreakerBuilder;
use crate::engine::{Mode, Over, Probes};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A model behind somebody else's API, which streams its answers: the defaults, and half of the calls with a first
/// content later than 4 s.
///
/// Such an endpoint mostly fails softly before it fails: queues grow, and first content comes late. 4 s is where people
/// who wait for a stream begin to leave.
pub fn hosted_model() -> BreakerBuilder {
    BreakerBuilder::new().slow_after(4 * SECOND).slow_rate(0.5)
}

/// A model that thinks before it answers.
///
/// It is silent for 45 s and well; a minute is late. Its calls last minutes, of which few end in one minute: so the window
/// is five minutes, and two probes decide instead of three. The lease of three minutes is longer than a probe thinks.
pub fn reasoning_model() -> BreakerBuilder {
    BreakerBuilder::new()
        .over(Over::Time { span: 5 * MINUTE, buckets: 10 })
        .slow_after(MINUTE)
        .slow_rate(0.5)
        .probes(Probes::Failures { probes: 2, to_open: 1 })
        .lease(3 * MINUTE)
}

/// A model that takes or makes images, sound or video.
///
/// Reading them takes seconds before the first content: 10 s are late. A wrong answer is dearer to find out and weighs
/// 0.7. The lease of two minutes is longer than an upload and its reading.
pub fn multimodal_model() -> BreakerBuilder {
    BreakerBuilder::new().soft_weight(0.7).slow_after(10 * SECOND).slow_rate(0.5).lease(2 * MINUTE)
}

/// One API in front of many providers, which moves on to another by itself.
///
/// What comes through to us is what it could not mend, of one provider among many: half of 20 calls in two minutes, not
/// 40 % of 10, and one bad probe of five is that one provider's. Its own hop and its own tries take time: 6 s. Better still,
/// give each model behind it a circuit of its own, with [`key_fn`](BreakerBuilder::key_fn).
pub fn aggregator() -> BreakerBuilder {
    BreakerBuilder::new()
        .over(Over::Time { span: 2 * MINUTE, buckets: 12 })
        .min_calls(20)
        .failure_rate(0.5)
        .slow_after(6 * SECOND)
        .slow_rate(0.5)
        .probes(Probes::Ratio { probes: 5, good: 0.8 })
}

/// A model on machines of your own.
///
/// One process serves it, and when that is gone every call fails: five in a row are enough. It comes back in the time of
/// a restart, there is no peak hour of strangers, and probing costs nothing: 15 s, at most two minutes. Until its weights
/// are loaded a first answer takes long: late after 10 s, and a lease of two minutes.
pub fn self_hosted_model() -> BreakerBuilder {
    BreakerBuilder::new()
        .consecutive_failures(5)
        .slow_after(10 * SECOND)
        .slow_rate(0.5)
        .open_time(15 * SECOND)
        .max_open_time(2 * MINUTE)
        .lease(2 * MINUTE)
}

/// An endpoint that makes embeddings.
///
/// Its calls are many, short and alike, so that 30 % of 20 is no accident; 2 s are late where 200 ms are usual. They are
/// cheap to try again: 15 s, at most two minutes, and a probe that says nothing for 15 s is lost.
pub fn embedding() -> BreakerBuilder {
    BreakerBuilder::new()
        .min_calls(20)
        .failure_rate(0.3)
        .slow_after(2 * SECOND)
        .slow_rate(0.5)
        .open_time(15 * SECOND)
        .max_open_time(2 * MINUTE)
        .lease(15 * SECOND)
}

/// A tool that an agent calls: a search, a weather service, a browser.
///
/// It is called seldom: half of five calls in five minutes, and one good probe closes, because three would take an hour.
/// 10 s are half of what a cascade of tools has. Give each tool a circuit of its own, with
/// [`key_fn`](BreakerBuilder::key_fn).
pub fn tool() -> BreakerBuilder {
    BreakerBuilder::new()
        .over(Over::Time { span: 5 * MINUTE, buckets: 10 })
        .min_calls(5)
        .failure_rate(0.5)
        .slow_after(10 * SECOND)
        .slow_rate(0.5)
        .probes(Probes::Failures { probes: 1, to_open: 1 })
}

/// A database, a cache, a vector store: something close by that answers in milliseconds.
///
/// Seconds hold many calls, so everything is shorter: half of 20 in 10 s, late after 1 s, refused for 5 s and at most a
/// minute. Many processes come back to it at once: jitter of 0.2. One bad probe of five may be one lock that was held.
pub fn database() -> BreakerBuilder {
    BreakerBuilder::new()
        .over(Over::Time { span: 10 * SECOND, buckets: 10 })
        .min_calls(20)
        .failure_rate(0.5)
        .slow_after(SECOND)
        .slow_rate(0.5)
        .open_time(5 * SECOND)
        .max_open_time(MINUTE)
        .jitter(0.2)
        .probes(Probes::Ratio { probes: 5, good: 0.8 })
        .lease(10 * SECOND)
}

/// A target of a router that prefers rather than blocks: [`Mode::Advisory`], so nothing is ever refused, and the router
/// asks the circuit's [`Health`](failsoft_core::Health).
///
/// To prefer another target costs less than to refuse, so it begins earlier, at 30 %; and it looks at five minutes,
/// because a router that turns at each bad minute turns all the time.
pub fn router() -> BreakerBuilder {
    BreakerBuilder::new()
        .over(Over::Time { span: 5 * MINUTE, buckets: 30 })
        .failure_rate(0.3)
        .mode(Mode::Advisory)
}
