//! The builder of the settings: what can be set, with ranges and defaults.

use std::time::Duration;

use super::report::Mode;
use super::settings::{Over, Probes, TripOn};

/// Makes [`Settings`](super::Settings). Every method states its range and default; [`build`](Self::build) checks.
#[derive(Debug, Clone)]
#[must_use]
pub struct SettingsBuilder {
    pub(super) over: Over,
    pub(super) min_calls: u32,
    pub(super) slow_min_calls: Option<u32>,
    pub(super) soft_min_calls: Option<u32>,
    pub(super) failures_min_calls: u32,
    pub(super) consecutive_min_calls: u32,
    pub(super) failure_rate: Option<f64>,
    pub(super) soft_failure_rate: Option<f64>,
    pub(super) slow_rate: Option<f64>,
    pub(super) slow_quantile: Option<(f64, Duration)>,
    pub(super) failures: Option<u32>,
    pub(super) soft_failures: Option<u32>,
    pub(super) consecutive_failures: Option<u32>,
    pub(super) trip_on: TripOn,
    pub(super) soft_weight: f64,
    pub(super) soft_alone_may_not_open: bool,
    pub(super) slow_after: Option<Duration>,
    pub(super) open_time: Duration,
    pub(super) open_time_factor: f64,
    pub(super) open_times: Option<Vec<Duration>>,
    pub(super) max_open_time: Option<Duration>,
    pub(super) jitter: f64,
    pub(super) at_once_open_time: Option<Duration>,
    pub(super) hold_from: Duration,
    pub(super) max_advice: Duration,
    pub(super) rate_limited_in_a_row: u32,
    pub(super) probes: Probes,
    pub(super) slow_probes_to_open: Option<u32>,
    pub(super) lease: Duration,
    pub(super) last_resort: u32,
    pub(super) mode: Mode,
    pub(super) seed: Option<u64>,
}

impl Default for SettingsBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl SettingsBuilder {
    /// The defaults: 40 % of weighted failures over the last minute, from 10 calls.
    pub fn new() -> Self {
        Self {
            over: Over::MINUTE,
            min_calls: 10,
            slow_min_calls: None,
            soft_min_calls: None,
            failures_min_calls: 0,
            consecutive_min_calls: 0,
            failure_rate: Some(0.4),
            soft_failure_rate: None,
            slow_rate: None,
            slow_quantile: None,
            failures: None,
            soft_failures: None,
            consecutive_failures: None,
            trip_on: TripOn::AnyOutcome,
            soft_weight: 0.6,
            soft_alone_may_not_open: false,
            slow_after: None,
            open_time: Duration::from_secs(30),
            open_time_factor: 2.0,
            open_times: None,
            max_open_time: None,
            jitter: 0.1,
            at_once_open_time: None,
            hold_from: Duration::from_secs(5),
            max_advice: Duration::from_secs(3600),
            rate_limited_in_a_row: 5,
            probes: Probes::Ratio { probes: 3, good: 0.85 },
            slow_probes_to_open: None,
            lease: Duration::from_secs(60),
            last_resort: 3,
            mode: Mode::Enforcing,
            seed: None,
        }
    }

    /// Which past calls are looked at. Default: the last 60 s in 10 buckets. Practice for model endpoints is
    /// 20 to 100 calls, or 60 s to 5 min; longer than 5 min holds a grudge.
    pub fn over(mut self, over: Over) -> Self {
        self.over = over;
        self
    }

    /// The calls below which no rate is formed. Default 10; clamped to the size of a window of calls, as the
    /// other minima. Counts and streaks have minima of their own.
    ///
    /// A call counts when it ends, and failures are often quicker than answers. So the first outcomes of a
    /// circuit that was just made, or has just closed, can be all the failures there are among the calls that
    /// run, and look like a dead target; later, the calls that ended before stand beside them. Nothing is
    /// subtracted for that: knowing how many calls run would cost an atomic write on each call, and waiting for
    /// a time would leave a dead target uncovered for just as long. Where many calls begin at once, take a
    /// minimum above the number of calls that run at the same time: then the slow answers are among them.
    pub fn min_calls(mut self, calls: u32) -> Self {
        self.min_calls = calls;
        self
    }

    /// The minimum for the slow rate alone. Default: as for the failure rate.
    pub fn slow_min_calls(mut self, calls: u32) -> Self {
        self.slow_min_calls = Some(calls);
        self
    }

    /// Opens at this share of weighted failures, 0 to 1. Default 0.4; `None` for no such rule.
    pub fn failure_rate(mut self, rate: impl Into<Option<f64>>) -> Self {
        self.failure_rate = rate.into();
        self
    }

    /// The minimum for the share of soft failures alone. Default: as for the failure rate.
    pub fn soft_min_calls(mut self, calls: u32) -> Self {
        self.soft_min_calls = Some(calls);
        self
    }

    /// The calls in the window below which no number of failures opens, soft ones included. Default 0.
    pub fn failures_min_calls(mut self, calls: u32) -> Self {
        self.failures_min_calls = calls;
        self
    }

    /// The calls in the window below which no streak opens: 20 keeps a circuit that has hardly begun from
    /// opening at its first few failures. Default 0.
    pub fn consecutive_min_calls(mut self, calls: u32) -> Self {
        self.consecutive_min_calls = calls;
        self
    }

    /// Opens at this share of soft failures, 0 to 1, each counted as one whatever it weighs. Default none: they
    /// count by their weight in the failure rate. Soft are those of less than full weight.
    pub fn soft_failure_rate(mut self, rate: impl Into<Option<f64>>) -> Self {
        self.soft_failure_rate = rate.into();
        self
    }

    /// Opens at this share of slow calls, 0 to 1. Default none; needs [`slow_after`](Self::slow_after).
    pub fn slow_rate(mut self, rate: impl Into<Option<f64>>) -> Self {
        self.slow_rate = rate.into();
        self
    }

    /// A call that takes longer is slow; up to a year. Default none: then no clock is read for it. For bodies
    /// it is the time to first content.
    pub fn slow_after(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.slow_after = limit.into();
        self
    }

    /// Opens when this quantile of the times to first content, above 0 and below 1, is over a limit, up to a
    /// year: `slow_quantile(0.99, 4 s)` for "the p99 is over 4 s". The same as a limit by
    /// [`slow_after`](Self::slow_after) and a rate of more than 1 % of slow calls, and instead of those two.
    /// Default none.
    ///
    /// Needs a minimum that can see it, by [`slow_min_calls`](Self::slow_min_calls) and in the window: one call
    /// must be no larger a share than what may be slow, so 100 calls for a p99.
    pub fn slow_quantile(mut self, quantile: f64, limit: Duration) -> Self {
        self.slow_quantile = Some((quantile, limit));
        self
    }

    /// Opens at so many failures in the window, by weight; from 1. Default none. At a weight of 0.6, five soft
    /// failures are three.
    pub fn failures(mut self, failures: impl Into<Option<u32>>) -> Self {
        self.failures = failures.into();
        self
    }

    /// Opens at so many soft failures in the window, each counted as one whatever it weighs; from 1. Default
    /// none.
    pub fn soft_failures(mut self, failures: impl Into<Option<u32>>) -> Self {
        self.soft_failures = failures.into();
        self
    }

    /// Opens at so many failures in a row, by weight; from 1. Default none: three timeouts in a quiet minute
    /// must not open a circuit.
    pub fn consecutive_failures(mut self, failures: impl Into<Option<u32>>) -> Self {
        self.consecutive_failures = failures.into();
        self
    }

    /// Which outcomes may open it. Default: any.
    pub fn trip_on(mut self, trip_on: TripOn) -> Self {
        self.trip_on = trip_on;
        self
    }

    /// How much a soft failure weighs, above 0 and up to 1. Default 0.6.
    pub fn soft_weight(mut self, weight: f64) -> Self {
        self.soft_weight = weight;
        self
    }

    /// Accepts thresholds that soft failures alone could never reach. Default: they are refused.
    pub fn soft_alone_may_not_open(mut self) -> Self {
        self.soft_alone_may_not_open = true;
        self
    }

    /// The first open time, 0 to a year. Default 30 s; below that circuits flap at peak hours. 0 admits the
    /// next call as a probe.
    pub fn open_time(mut self, time: Duration) -> Self {
        self.open_time = time;
        self
    }

    /// By how much the open time grows with each opening in a row, 1 to 1000. Default 2. Closing starts over.
    pub fn open_time_factor(mut self, factor: f64) -> Self {
        self.open_time_factor = factor;
        self
    }

    /// The open times one by one instead: the first, after one failed half-open period, after two, …; the
    /// last one stays.
    pub fn open_times(mut self, times: impl IntoIterator<Item = Duration>) -> Self {
        self.open_times = Some(times.into_iter().collect());
        self
    }

    /// The longest open time it grows to, up to a year. Default 5 min, or the open time if that is longer.
    pub fn max_open_time(mut self, time: Duration) -> Self {
        self.max_open_time = Some(time);
        self
    }

    /// The part of the open time that is added at random, 0 to 1, inside the longest; and of the server's
    /// advice, whose end many are told alike, and which it never shortens. Default 0.1.
    pub fn jitter(mut self, jitter: f64) -> Self {
        self.jitter = jitter;
        self
    }

    /// The open time after an outcome that opens at once, such as a spent quota: at least this, up to a year.
    /// Default: the longest open time, because a quota does not come back in seconds.
    pub fn at_once_open_time(mut self, time: Duration) -> Self {
        self.at_once_open_time = Some(time);
        self
    }

    /// The advice of a rate limit from which on the circuit opens until it is over. Default 5 s: shorter
    /// waits are the retry's.
    pub fn hold_from(mut self, advice: Duration) -> Self {
        self.hold_from = advice;
        self
    }

    /// The longest advice that is believed, up to a year. Default 1 h: a wrong header must not shut a circuit
    /// for days.
    pub fn max_advice(mut self, advice: Duration) -> Self {
        self.max_advice = advice;
        self
    }

    /// So many rate limits in a row without advice open it; from 1. Default 5.
    pub fn rate_limited_in_a_row(mut self, calls: u32) -> Self {
        self.rate_limited_in_a_row = calls;
        self
    }

    /// How a half-open period is decided. Default: 3 probes, at least 85 % good.
    pub fn probes(mut self, probes: Probes) -> Self {
        self.probes = probes;
        self
    }

    /// So many slow probes open, 1 to the number of probes. Default: the slow rate's share of the probes.
    pub fn slow_probes_to_open(mut self, probes: u32) -> Self {
        self.slow_probes_to_open = Some(probes);
        self
    }

    /// How long a half-open period may last without decision and without progress of a probe, 1 ms to a year.
    /// Default 60 s. After that it opens again, for the same time as before, and not before the server's advice is
    /// over; but if all its probes came back good, it goes on waiting for more calls. It should be longer than a
    /// probe needs to its first content.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How many last-resort calls may run at once while it refuses, 0 to 1 000 000. Default 3. While it is
    /// open, enough good ones close it, as probes would; see
    /// [`acquire_as_last_resort`](super::Engine::acquire_as_last_resort).
    pub fn last_resort(mut self, calls: u32) -> Self {
        self.last_resort = calls;
        self
    }

    /// The mode it starts in. Default enforcing.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Makes jitter repeatable. Default: another one each time.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }
}
