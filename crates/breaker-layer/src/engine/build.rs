//! The settings are checked: ranges, and what contradicts itself.

use std::num::NonZeroU32;
use std::time::Duration;

use failsoft_core::ConfigError;

use super::SettingsBuilder;
use super::check::Check;
use super::half_open::Decision;
use super::open_time::{Growth, OpenTime};
use super::outcome::Weight;
use super::rules::{Count, Rate, Rules};
use super::settings::{Over, Probes, Settings};

const BUILDER: &str = "BreakerLayer";
const YEAR: Duration = Duration::from_secs(365 * 86_400);
const MILLIONTH: f64 = 1e-6;

impl SettingsBuilder {
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
        let slow_after = self.slow_limit(check)?;
        let rules = self.rules(check, soft_weight)?;
        let open = self.open(check)?;
        let decision = self.decision(check, &rules)?;
        check.at_most("hold_from", self.hold_from, YEAR)?;
        check.at_most("max_advice", self.max_advice, YEAR)?;
        check.count("rate_limited_in_a_row", self.rate_limited_in_a_row, 1..=u32::MAX)?;
        check.within("lease", self.lease, Duration::from_millis(1), YEAR)?;
        check.count("last_resort", self.last_resort, 0..=1_000_000)?;
        let at_once = self.at_once_open_time.unwrap_or(open.cap);
        check.at_most("at_once_open_time", at_once, YEAR)?;
        Ok(Settings {
            over: self.over,
            rules,
            trip_on: self.trip_on,
            soft_weight,
            slow_after,
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

    /// The limit above which a call is slow, by whichever of the two settings.
    fn slow_limit(&self, check: Check) -> Result<Option<Duration>, ConfigError> {
        let Some((quantile, limit)) = self.slow_quantile else {
            let Some(limit) = self.slow_after else { return Ok(None) };
            check.at_most("slow_after", limit, YEAR)?;
            return Ok(Some(limit));
        };
        if !(MILLIONTH..=1.0 - MILLIONTH).contains(&quantile) {
            return Err(check.error("slow_quantile", quantile, "above 0 and below 1"));
        }
        if self.slow_after.is_some() || self.slow_rate.is_some() {
            let expected = "none beside slow_after or slow_rate, which say the same";
            return Err(check.error("slow_quantile", quantile, expected));
        }
        check.at_most("slow_quantile (limit)", limit, YEAR)?;
        Ok(Some(limit))
    }

    fn rules(&self, check: Check, soft: Weight) -> Result<Rules, ConfigError> {
        let count = |field, number: Option<u32>, least| match number {
            None => Ok(None),
            Some(number) => {
                check.count(field, number, 1..=u32::MAX)?;
                Ok(Some(Count { number: u64::from(number), least: self.clamped(least) }))
            }
        };
        let rate = |field, share, least| {
            let share = check.optional_share(field, share)?;
            Ok(share.map(|share| Rate { share: millionths(share), least, above: false }))
        };
        let weighted = |count: Count| Count { number: count.number * 1000, ..count };
        let least = self.clamped(self.min_calls);
        let soft_least = self.soft_min_calls.map_or(least, |calls| self.clamped(calls));
        let slow_least = self.slow_min_calls.map_or(least, |calls| self.clamped(calls));
        let rules = Rules {
            failure_rate: rate("failure_rate", self.failure_rate, least)?,
            soft_failure_rate: rate("soft_failure_rate", self.soft_failure_rate, soft_least)?,
            slow_rate: match self.slow_quantile {
                None => rate("slow_rate", self.slow_rate, slow_least)?,
                Some((quantile, _)) => Some(quantile_rule(check, quantile, slow_least)?),
            },
            failures: count("failures", self.failures, self.failures_min_calls)?.map(weighted),
            soft_failures: count("soft_failures", self.soft_failures, self.failures_min_calls)?,
            consecutive: count(
                "consecutive_failures",
                self.consecutive_failures,
                self.consecutive_min_calls,
            )?
            .map(weighted),
            least,
            soft_least,
            slow_least,
        };
        self.check_contradictions(check, &rules, soft)?;
        Ok(rules)
    }

    fn check_contradictions(&self, check: Check, rules: &Rules, soft: Weight) -> Result<(), ConfigError> {
        let rates = [rules.failure_rate, rules.soft_failure_rate, rules.slow_rate];
        let counts = [rules.failures, rules.soft_failures, rules.consecutive];
        if rates.iter().all(Option::is_none) && counts.iter().all(Option::is_none) {
            let expected = "at least one rule that opens";
            return Err(check.error("failure_rate", "none, as every other rule", expected));
        }
        if let Some(rate) = self.slow_rate.filter(|_| self.slow_after.is_none()) {
            return Err(check.error("slow_rate", rate, "none without slow_after"));
        }
        if let Over::Calls(size) = self.over {
            for (field, number) in [("failures", self.failures), ("soft_failures", self.soft_failures)] {
                if let Some(number) = number.filter(|number| *number > size) {
                    let expected = format_args!("at most the {size} calls of the window");
                    return Err(check.error(field, number, expected));
                }
            }
        }
        let has_soft_rule = rules.soft_failure_rate.is_some() || rules.soft_failures.is_some();
        if has_soft_rule && soft == Weight::FULL {
            let expected = "less than 1, as soft failures have rules of their own";
            return Err(check.error("soft_weight", self.soft_weight, expected));
        }
        if self.soft_alone_may_not_open || has_soft_rule {
            return Ok(());
        }
        self.check_soft_reach(check, soft)
    }

    /// Whether wrong answers alone could ever open it.
    fn check_soft_reach(&self, check: Check, soft: Weight) -> Result<(), ConfigError> {
        if let (Over::Calls(size), Some(failures)) = (self.over, self.failures) {
            if u64::from(size) * soft.thousandths() < in_thousandths(failures) {
                let reach = soft_reach(f64::from(size) * self.soft_weight);
                return Err(check.error("failures", failures, reach));
            }
        }
        match self.failure_rate {
            Some(rate) if millionths(rate) > soft.thousandths() * 1000 => {
                Err(check.error("failure_rate", rate, soft_reach(self.soft_weight)))
            }
            _ => Ok(()),
        }
    }

    /// No more calls than a window of calls holds.
    fn clamped(&self, calls: u32) -> u64 {
        match self.over {
            Over::Calls(size) => u64::from(calls.min(size)),
            Over::Time { .. } | Over::SinceEntered => u64::from(calls),
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

    fn decision(&self, check: Check, rules: &Rules) -> Result<Decision, ConfigError> {
        // more than what may be missing
        let ratio = |probes, good| {
            let good = thousandths(check.share("probes (good)", good)?);
            Ok((probes, u64::from(probes) * (1000 - good) + 1, false))
        };
        let (probes, open_at, whole) = match self.probes {
            Probes::Ratio { probes, good } => {
                check.probes("probes", probes)?;
                ratio(probes, good)?
            }
            Probes::Canary { one_in, calls, good } => {
                check.count("probes (one_in)", one_in, 1..=1_000_000)?;
                check.probes("probes (calls)", calls)?;
                ratio(calls, good)?
            }
            Probes::Failures { probes, to_open } => {
                check.probes("probes", probes)?;
                check.count("probes (to_open)", to_open, 1..=probes)?;
                (probes, in_thousandths(to_open), true)
            }
            Probes::Successes { probes, to_close } => {
                check.probes("probes", probes)?;
                check.count("probes (to_close)", to_close, 1..=probes)?;
                (probes, in_thousandths(probes - to_close + 1), true)
            }
        };
        let slow_to_open = match self.slow_probes_to_open {
            Some(slow) if self.slow_after.is_none() && self.slow_quantile.is_none() => {
                return Err(check.error("slow_probes_to_open", slow, "none without slow_after"));
            }
            Some(slow) => {
                check.count("slow_probes_to_open", slow, 1..=probes)?;
                Some(slow)
            }
            None => rules.slow_rate.map(|rate| slow_share(probes, rate)),
        };
        let one_in = match self.probes {
            Probes::Canary { one_in, .. } => NonZeroU32::new(one_in),
            _ => None,
        };
        Ok(Decision { probes, open_at, whole, slow_to_open, one_in })
    }
}

/// "This quantile is over the limit": more than the rest of the calls are slow.
fn quantile_rule(check: Check, quantile: f64, least: u64) -> Result<Rate, ConfigError> {
    let share = 1_000_000 - millionths(quantile);
    let needed = 1_000_000_u64.div_ceil(share);
    if least < needed {
        let expected =
            format_args!("at least {needed} calls, also in the window, to see the quantile {quantile}");
        return Err(check.error("slow_min_calls", least, expected));
    }
    Ok(Rate { share, least, above: true })
}

/// How many of the probes make this share, at least one.
fn slow_share(probes: u32, rate: Rate) -> u32 {
    let slow = u64::from(probes) * rate.share;
    let slow = if rate.above { slow / 1_000_000 + 1 } else { slow.div_ceil(1_000_000) };
    u32::try_from(slow).unwrap_or(probes).clamp(1, probes)
}

fn soft_reach(reach: f64) -> String {
    format!("at most {reach}, which soft failures alone can reach, or soft_alone_may_not_open()")
}

fn in_thousandths(failures: u32) -> u64 {
    u64::from(failures) * 1000
}

fn thousandths(share: f64) -> u64 {
    parts(share, 1e3)
}

fn millionths(share: f64) -> u64 {
    parts(share, 1e6)
}

/// A share as so many parts. However small, it is not none: a rate of none is reached by any success.
fn parts(share: f64, of: f64) -> u64 {
    let parts = (share * of).round() as u64;
    if share > 0.0 { parts.max(1) } else { parts }
}
