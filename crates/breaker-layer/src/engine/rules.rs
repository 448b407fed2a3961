//! When a closed circuit opens: rates, counts and streaks, each with its own minimum of calls.

use super::report::Reason;
use super::window::Sums;

/// Every rule that may open, by what was counted. At least one is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Rules {
    pub(super) failure_rate: Option<Rate>,
    pub(super) soft_failure_rate: Option<Rate>,
    pub(super) slow_rate: Option<Rate>,
    /// By weight, in thousandths of a failure, as the streak.
    pub(super) failures: Option<Count>,
    /// Each as one.
    pub(super) soft_failures: Option<Count>,
    pub(super) consecutive: Option<Count>,
    /// The minima for the rates that are told, also where no rule needs them.
    pub(super) least: u64,
    pub(super) soft_least: u64,
    pub(super) slow_least: u64,
}

/// A share of the calls, in millionths, once there are `least` of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rate {
    pub(super) share: u64,
    pub(super) least: u64,
    /// Reached only above the share, not at it.
    pub(super) above: bool,
}

/// A number, once there are `least` calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) number: u64,
    pub(super) least: u64,
}

impl Rules {
    /// The first rule that is met; `streak` is the weight of the failures in a row.
    pub(super) fn met(&self, sums: &Sums, streak: u64) -> Option<Reason> {
        let rate = |rule: Option<Rate>, part| rule.is_some_and(|rule| rule.is_met(part, sums.total));
        let count = |rule: Option<Count>, number| rule.is_some_and(|rule| rule.is_met(number, sums.total));
        if count(self.consecutive, streak) {
            Some(Reason::ConsecutiveFailures)
        } else if count(self.failures, sums.weight) {
            Some(Reason::Failures)
        } else if rate(self.failure_rate, sums.weight) {
            Some(Reason::FailureRate)
        } else if count(self.soft_failures, sums.soft) {
            Some(Reason::SoftFailures)
        } else if rate(self.soft_failure_rate, sums.soft * 1000) {
            Some(Reason::SoftFailureRate)
        } else if rate(self.slow_rate, sums.slow * 1000) {
            Some(Reason::SlowRate)
        } else {
            None
        }
    }
}

impl Rules {
    /// Whether nothing but quick successes, however many, meets no rule: not so with a threshold of 0.
    pub(super) fn spare_successes(&self) -> bool {
        self.met(&Sums { total: u64::MAX, ..Sums::default() }, 0).is_none()
    }
}

impl Rate {
    /// Exact: `part` in thousandths of a call.
    fn is_met(self, part: u64, total: u64) -> bool {
        let (part, share) = (u128::from(part) * 1000, u128::from(self.share) * u128::from(total));
        total >= self.least.max(1) && if self.above { part > share } else { part >= share }
    }
}

impl Count {
    fn is_met(self, number: u64, total: u64) -> bool {
        number >= self.number && total >= self.least
    }
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use super::*;

    fn sums(total: u64, failed: u64, soft: u64, slow: u64) -> Sums {
        let weight = failed * 1000 + soft * 600;
        Sums { total, failed: failed + soft, weight, soft, slow, slow_failed: 0 }
    }

    #[test]
    fn each_rule_waits_for_its_own_minimum() {
        let at = |least| Some(Count { number: 2, least });
        let half = |least| Some(Rate { share: 500_000, least, above: false });
        let of = |rules: Rules, sums: &Sums, streak| rules.met(sums, streak);
        let rules = [
            (
                Rules { failures: Some(Count { number: 2000, least: 9 }), ..Rules::default() },
                Reason::Failures,
            ),
            (Rules { failure_rate: half(9), ..Rules::default() }, Reason::FailureRate),
            (Rules { soft_failures: at(9), ..Rules::default() }, Reason::SoftFailures),
            (Rules { soft_failure_rate: half(9), ..Rules::default() }, Reason::SoftFailureRate),
            (Rules { slow_rate: half(9), ..Rules::default() }, Reason::SlowRate),
            (
                Rules { consecutive: Some(Count { number: 2000, least: 9 }), ..Rules::default() },
                Reason::ConsecutiveFailures,
            ),
        ];
        for (rules, reason) in rules {
            assert_eq!(of(rules, &sums(8, 4, 4, 8), 2000), None, "{reason}");
            assert_eq!(of(rules, &sums(9, 4, 5, 9), 2000), Some(reason));
        }
    }

    #[test]
    fn a_share_that_must_be_passed_is_not_met_at_itself() {
        let rate = |above| Rate { share: 10_000, least: 100, above };
        assert!(rate(false).is_met(1000, 100) && !rate(true).is_met(1000, 100));
        assert!(
            rate(true).is_met(2000, 100) && rate(true).is_met(3000, 299) && !rate(true).is_met(3000, 300)
        );
    }

    #[test]
    fn nothing_is_a_share_of_nothing() {
        let any = Rate { share: 0, least: 0, above: false };
        assert!(!any.is_met(0, 0) && any.is_met(0, 1));
    }
}
