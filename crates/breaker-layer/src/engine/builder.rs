//! The builder of the settings: ranges, defaults, contradictions.

use std::time::Duration;

use failsoft_core::ConfigError;

use super::check::Check;
use super::half_open::Decision;
use super::open_time::{Growth, OpenTime};
use super::outcome::Weight;
use super::report::Mode;
use super::settings::{Over, Probes, Settings, TripOn};

/// Makes [`Settings`]. Every method states its range and default; [`build`](Self::build) checks.
#[derive(Debug, Clone)]
#[must_use]
pub struct SettingsBuilder {
    over: Over,
    min_calls: u32,
    slow_min_calls: Option<u32>,
    failure_rate: Option<f64>,
    slow_rate: Option<f64>,
    failures: Option<u32>,
    consecutive_failures: Option<u32>,
    trip_on: TripOn,
    soft_weight: f64,
    soft_alone_may_not_open: bool,
    slow_after: Option<Duration>,
    open_time: Duration,
    open_time_factor: f64,
    open_times: Option<Vec<Duration>>,
    max_open_time: Option<Duration>,
    jitter: f64,
    at_once_open_time: Option<Duration>,
    hold_from: Duration,
    max_advice: Duration,
    rate_limited_in_a_row: u32,
    probes: Probes,
    slow_probes_to_open: Option<u32>,
    lease: Duration,
    last_resort: u32,
    mode: Mode,
    seed: Option<u64>,
}

const BUILDER: &str = "BreakerLayer";
const YEAR: Duration = Duration::from_secs(365 * 86_400);

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
            failure_rate: Some(0.4),
            slow_rate: None,
            failures: None,
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

    /// The calls below which no rate is formed. Default 10; clamped to the size of a window of calls. Counts
    /// and streaks need no minimum.
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

    /// Opens at so many failures in the window, by weight; from 1. Default none.
    pub fn failures(mut self, failures: impl Into<Option<u32>>) -> Self {
        self.failures = failures.into();
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

    /// The part of the open time that is added at random, 0 to 1, inside the longest. Default 0.1.
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
    /// Default 60 s. After that it opens again, for the same time as before; but if all its probes came back
    /// good, it goes on waiting for more calls. It should be longer than a probe needs to its first content.
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

    /// Checks everything.
    ///
    /// # Errors
    ///
    /// Names the first setting that is out of its range or contradicts another.
    pub fn build(self) -> Result<Settings, ConfigError> {
        let check = Check(BUILDER);
        self.check_window(check)?;
        let soft_weight = Weight::new(self.soft_weight)
            .ok_or_else(|| check.error("soft_weight", self.soft_weight, "above 0 and up to 1"))?;
        self.check_rules(check, soft_weight)?;
        let failure_rate = check.optional_share("failure_rate", self.failure_rate)?.map(millionths);
        let slow_rate = check.optional_share("slow_rate", self.slow_rate)?.map(millionths);
        let open = self.open(check)?;
        let decision = self.decision(check)?;
        check.at_most("hold_from", self.hold_from, YEAR)?;
        check.at_most("max_advice", self.max_advice, YEAR)?;
        check.count("rate_limited_in_a_row", self.rate_limited_in_a_row, 1..=u32::MAX)?;
        check.within("lease", self.lease, Duration::from_millis(1), YEAR)?;
        check.count("last_resort", self.last_resort, 0..=1_000_000)?;
        let at_once = self.at_once_open_time.unwrap_or(open.cap);
        check.at_most("at_once_open_time", at_once, YEAR)?;

        let clamp = |calls: u32| match self.over {
            Over::Calls(size) => u64::from(calls.min(size)),
            Over::Time { .. } | Over::SinceEntered => u64::from(calls),
        };
        Ok(Settings {
            over: self.over,
            min_calls: clamp(self.min_calls),
            slow_min_calls: clamp(self.slow_min_calls.unwrap_or(self.min_calls)),
            failure_rate,
            slow_rate,
            failures: self.failures.map(in_thousandths),
            consecutive: self.consecutive_failures.map(in_thousandths),
            trip_on: self.trip_on,
            soft_weight,
            slow_after: self.slow_after,
            open,
            at_once,
            hold_from: self.hold_from,
            max_advice: self.max_advice,
            rate_limited_in_a_row: self.rate_limited_in_a_row,
            decision,
            lease: self.lease,
            last_resort: self.last_resort,
            mode: self.mode,
            seed: self.seed,
        })
    }

    fn check_window(&self, check: Check) -> Result<(), ConfigError> {
        match self.over {
            Over::Calls(size) => check.count("over (calls)", size, 1..=1_000_000),
            Over::Time { span, buckets } => {
                check.within("over (span)", span, Duration::from_millis(1), Duration::from_secs(86_400))?;
                check.count("over (buckets)", buckets, 1..=3_600)
            }
            Over::SinceEntered => Ok(()),
        }
    }

    fn check_rules(&self, check: Check, soft: Weight) -> Result<(), ConfigError> {
        let Self { failure_rate, slow_rate, failures, consecutive_failures, .. } = *self;
        if failure_rate.is_none()
            && slow_rate.is_none()
            && failures.is_none()
            && consecutive_failures.is_none()
        {
            return Err(check.error(
                "failure_rate",
                "none, as every other rule",
                "at least one rule that opens",
            ));
        }
        if let Some(limit) = self.slow_after {
            check.at_most("slow_after", limit, YEAR)?;
        } else if let Some(rate) = slow_rate {
            return Err(check.error("slow_rate", rate, "none without slow_after"));
        }
        if let Some(failures) = failures {
            check.count("failures", failures, 1..=u32::MAX)?;
        }
        if let Some(failures) = consecutive_failures {
            check.count("consecutive_failures", failures, 1..=u32::MAX)?;
        }
        let Over::Calls(size) = self.over else { return self.check_soft_rate(check, soft) };
        if let Some(failures) = failures {
            if failures > size {
                return Err(check.error(
                    "failures",
                    failures,
                    format_args!("at most the {size} calls of the window"),
                ));
            }
            if !self.soft_alone_may_not_open
                && u64::from(size) * soft.thousandths() < in_thousandths(failures)
            {
                return Err(check.error(
                    "failures",
                    failures,
                    soft_reach(f64::from(size) * self.soft_weight),
                ));
            }
        }
        self.check_soft_rate(check, soft)
    }

    fn check_soft_rate(&self, check: Check, soft: Weight) -> Result<(), ConfigError> {
        match check.optional_share("failure_rate", self.failure_rate)? {
            Some(rate) if !self.soft_alone_may_not_open && millionths(rate) > soft.thousandths() * 1000 => {
                Err(check.error("failure_rate", rate, soft_reach(self.soft_weight)))
            }
            _ => Ok(()),
        }
    }

    fn open(&self, check: Check) -> Result<OpenTime, ConfigError> {
        let list = self.open_times.as_deref();
        let base = match list {
            None => self.open_time,
            Some(list) => {
                *list.first().ok_or_else(|| check.error("open_times", "empty", "at least one time"))?
            }
        };
        let longest = list.unwrap_or_default().iter().copied().fold(base, Duration::max);
        check.at_most(if list.is_some() { "open_times" } else { "open_time" }, longest, YEAR)?;
        let cap = self.max_open_time.unwrap_or_else(|| longest.max(Duration::from_secs(300)));
        check.at_most("max_open_time", cap, YEAR)?;
        if cap < longest {
            return Err(check.error(
                "max_open_time",
                format_args!("{cap:?}"),
                format_args!("at least the open time, {longest:?}"),
            ));
        }
        if !(1.0..=1000.0).contains(&self.open_time_factor) {
            return Err(check.error("open_time_factor", self.open_time_factor, "1 to 1000"));
        }
        check.share("jitter", self.jitter)?;
        let growth = match list {
            None => Growth::Factor(self.open_time_factor),
            Some(list) => Growth::List(list.into()),
        };
        Ok(OpenTime { base, growth, cap, jitter: self.jitter })
    }

    fn decision(&self, check: Check) -> Result<Decision, ConfigError> {
        let (probes, open_at, whole) = match self.probes {
            Probes::Ratio { probes, good } => {
                check.probes(probes)?;
                let good = thousandths(check.share("probes (good)", good)?);
                // more than what may be missing
                (probes, u64::from(probes) * (1000 - good) + 1, false)
            }
            Probes::Failures { probes, to_open } => {
                check.probes(probes)?;
                check.count("probes (to_open)", to_open, 1..=probes)?;
                (probes, in_thousandths(to_open), true)
            }
            Probes::Successes { probes, to_close } => {
                check.probes(probes)?;
                check.count("probes (to_close)", to_close, 1..=probes)?;
                (probes, in_thousandths(probes - to_close + 1), true)
            }
        };
        let slow_to_open = match (self.slow_probes_to_open, self.slow_after, self.slow_rate) {
            (Some(slow), None, _) => {
                return Err(check.error("slow_probes_to_open", slow, "none without slow_after"));
            }
            (Some(slow), Some(_), _) => {
                check.count("slow_probes_to_open", slow, 1..=probes)?;
                Some(slow)
            }
            (None, Some(_), Some(rate)) => Some(slow_share(probes, rate)),
            (None, ..) => None,
        };
        Ok(Decision { probes, open_at, whole, slow_to_open })
    }
}

/// How many of the probes make this share, at least one.
fn slow_share(probes: u32, rate: f64) -> u32 {
    let slow = (u64::from(probes) * millionths(rate)).div_ceil(1_000_000);
    u32::try_from(slow).unwrap_or(probes).clamp(1, probes)
}

fn soft_reach(reach: f64) -> String {
    format!("at most {reach}, which soft failures alone can reach, or soft_alone_may_not_open()")
}

fn in_thousandths(failures: u32) -> u64 {
    u64::from(failures) * 1000
}

fn thousandths(share: f64) -> u64 {
    (share * 1e3).round() as u64
}

fn millionths(share: f64) -> u64 {
    (share * 1e6).round() as u64
}
