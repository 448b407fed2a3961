//! What is known of a route from its checks, and when the next one is: pure.

use std::time::Duration;

use failsoft_core::{Class, Condition, ConfigError, Verdict, backoff::Rng};
use tokio::time::Instant;

use super::NAME;

#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) every: Duration,
    pub(super) jitter: f64,
    pub(super) timeout: Duration,
    pub(super) fall: u32,
    pub(super) rise: u32,
}

impl Default for Settings {
    fn default() -> Self {
        let (every, timeout) = (Duration::from_secs(60), Duration::from_secs(10));
        Self { every, jitter: 0.1, timeout, fall: 2, rise: 1 }
    }
}

impl Settings {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        ConfigError::check_range(NAME, "jitter", self.jitter, 0.0, 1.0)?;
        if self.every < Duration::from_millis(1) {
            return Err(ConfigError::new(NAME, "every", format!("{:?}", self.every), "at least 1 ms"));
        }
        if self.timeout.is_zero() {
            return Err(ConfigError::new(NAME, "timeout", "0 s", "more than zero"));
        }
        for (field, count) in [("fall", self.fall), ("rise", self.rise)] {
            if count == 0 {
                return Err(ConfigError::new(NAME, field, count, "at least 1"));
            }
        }
        Ok(())
    }
}

pub(super) struct State {
    settings: Settings,
    condition: Condition,
    /// How many of one kind came in a row.
    failed: u32,
    good: u32,
    next: Instant,
    rng: Rng,
}

impl State {
    pub(super) fn new(settings: Settings, rng: Rng, now: Instant) -> Self {
        let later = settings.every.mul_f64(settings.jitter * rng.unit());
        let next = now.checked_add(later).unwrap_or(now);
        Self { settings, condition: Condition::Good, failed: 0, good: 0, next, rng }
    }

    pub(super) const fn condition(&self) -> Condition {
        self.condition
    }

    /// When the next check begins.
    pub(super) const fn next(&self) -> Instant {
        self.next
    }

    pub(super) fn plan_next(&mut self, now: Instant) {
        let Settings { every, jitter, .. } = self.settings;
        let share = jitter.mul_add(self.rng.unit().mul_add(2.0, -1.0), 1.0);
        // A wait too long to be told is as good as none: a day.
        let wait = Duration::try_from_secs_f64(every.as_secs_f64() * share).unwrap_or(Duration::MAX);
        self.next = now.checked_add(wait).unwrap_or(now + Duration::from_secs(86_400));
    }

    /// Takes in what came of a check: whether it was good, and `None` when it says nothing.
    pub(super) fn record(&mut self, verdict: Verdict) -> Option<bool> {
        let class = verdict.class();
        if class.is_denied() || class == Class::Cancelled {
            return None;
        }
        let good = verdict.is_success() || class == Class::Invalid;
        if good {
            (self.good, self.failed) = (self.good.saturating_add(1), 0);
        } else {
            (self.good, self.failed) = (0, self.failed.saturating_add(1));
        }
        self.condition = match self.condition {
            _ if self.failed >= self.settings.fall => Condition::Poor,
            Condition::Good if good => Condition::Good,
            Condition::Poor if !good => Condition::Poor,
            _ if self.good >= self.settings.rise => Condition::Good,
            _ => Condition::Degraded,
        };
        Some(good)
    }
}

#[cfg(test)]
mod tests {
    use failsoft_core::Denier;
    use proptest::{prop_assert, proptest};

    use super::*;

    fn state(fall: u32, rise: u32) -> State {
        State::new(Settings { fall, rise, ..Settings::default() }, Rng::seeded(1), Instant::now())
    }

    fn conditions(mut state: State, checks: &str) -> String {
        let check = |check| {
            state.record(Verdict::of(if check == '+' { Class::Success } else { Class::Transient }));
            match state.condition() {
                Condition::Good => 'g',
                Condition::Degraded => 'd',
                Condition::Poor => 'p',
            }
        };
        checks.chars().map(check).collect()
    }

    #[test]
    fn so_many_failures_make_it_poor_and_so_many_good_checks_good_again() {
        assert_eq!(conditions(state(2, 1), "+-+--+"), "gdgdpg");
        assert_eq!(conditions(state(1, 2), "-+-++"), "pdpdg");
        assert_eq!(conditions(state(3, 2), "--+--+-++"), "ddddddddg");
    }

    #[test]
    fn what_our_own_layers_deny_says_nothing_and_a_refused_request_says_that_it_is_alive() {
        let mut state = state(1, 1);
        assert_eq!(state.record(Verdict::of(Class::Denied(Denier::Budget))), None);
        assert_eq!(state.record(Verdict::CANCELLED), None);
        assert_eq!(state.record(Verdict::of(Class::Invalid)), Some(true));
        assert_eq!(state.record(Verdict::of(Class::RateLimited)), Some(false));
        assert_eq!(state.condition(), Condition::Poor);
    }

    proptest! {
        #[test]
        fn waits_lie_within_the_jitter(share in 0.0..=1.0_f64, millis in 1_u64..1_000_000, seed: u64) {
            let (every, now) = (Duration::from_millis(millis), Instant::now());
            let settings = Settings { every, jitter: share, ..Settings::default() };
            let mut state = State::new(settings, Rng::seeded(seed), now);
            prop_assert!(state.next() - now <= every.mul_f64(share));
            state.plan_next(now);
            let wait = (state.next() - now).as_secs_f64() / every.as_secs_f64();
            prop_assert!(wait >= 1.0 - share - 1e-6 && wait <= 1.0 + share + 1e-6, "{wait}");
        }
    }
}
