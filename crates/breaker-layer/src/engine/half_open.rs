//! Deciding a half-open period as early as its result is certain.

use std::num::NonZeroU32;

use super::report::Reason;
use super::window::{Sample, Sums};

/// When a half-open period is over, worked out from the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Decision {
    /// How many probes are let through in all.
    pub(super) probes: u32,
    /// The weight of failures that opens, in thousandths.
    pub(super) open_at: u64,
    /// Whether each failure counts as a whole one.
    pub(super) whole: bool,
    /// How many slow probes open; none if slowness does not matter.
    pub(super) slow_to_open: Option<u32>,
    /// A canary: only one in so many calls becomes a probe.
    pub(super) one_in: Option<NonZeroU32>,
}

impl Decision {
    pub(super) fn is_canary(&self) -> bool {
        self.one_in.is_some()
    }

    /// Whether slow probes decide anything.
    pub(super) fn minds_slow(&self) -> bool {
        self.slow_to_open.is_some()
    }

    /// How many calls are passed over after one that was let through.
    pub(super) fn passed_over(&self) -> u32 {
        self.one_in.map_or(0, |one_in| one_in.get() - 1)
    }
}

/// What the probes of one period came to. It does not age.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) sums: Sums,
    /// By the decision's own weights, in thousandths.
    bad: u64,
}

impl Tally {
    pub(super) fn record(&mut self, weight: u16, slow: bool, decision: &Decision) {
        self.sums.record(Sample::new(weight, slow));
        self.bad += if decision.whole && weight > 0 { 1000 } else { u64::from(weight) };
    }

    /// Whether so many probes were taken and all came back, and good.
    pub(super) fn is_all_good(&self, taken: u32, decision: &Decision) -> bool {
        let is_quick = self.sums.slow == 0 || !decision.minds_slow();
        self.sums.total > 0 && self.is_all_back(taken) && self.sums.failed == 0 && is_quick
    }

    /// Whether none of the probes that were taken still runs.
    pub(super) fn is_all_back(&self, taken: u32) -> bool {
        self.sums.total == u64::from(taken)
    }

    /// Why it is over and how, or none while it is still open to both.
    pub(super) fn decide(&self, decision: &Decision) -> Option<Reason> {
        if self.bad >= decision.open_at {
            return Some(Reason::ProbesFailed);
        }
        if decision.slow_to_open.is_some_and(|limit| self.sums.slow >= u64::from(limit)) {
            return Some(Reason::ProbesSlow);
        }
        let to_come = u64::from(decision.probes).saturating_sub(self.sums.total);
        let can_fail = self.bad + to_come * 1000 >= decision.open_at;
        let can_be_slow =
            decision.slow_to_open.is_some_and(|limit| self.sums.slow + to_come >= u64::from(limit));
        (!can_fail && !can_be_slow).then_some(Reason::ProbesGood)
    }
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use super::*;

    const BY_COUNT: Decision =
        Decision { probes: 3, open_at: 2000, whole: true, slow_to_open: None, one_in: None };
    /// 3 probes of which at least 85 % must be good.
    const BY_RATIO: Decision =
        Decision { probes: 3, open_at: 451, whole: false, slow_to_open: None, one_in: None };

    fn after(weights: &[u16], decision: &Decision) -> Option<Reason> {
        let mut tally = Tally::default();
        weights.iter().for_each(|weight| tally.record(*weight, false, decision));
        tally.decide(decision)
    }

    #[test]
    fn it_is_decided_as_early_as_it_is_certain() {
        assert_eq!(after(&[], &BY_COUNT), None);
        assert_eq!(after(&[1000, 0], &BY_COUNT), None);
        assert_eq!(after(&[0, 0], &BY_COUNT), Some(Reason::ProbesGood));
        assert_eq!(after(&[1000, 1000], &BY_COUNT), Some(Reason::ProbesFailed));
    }

    #[test]
    fn one_soft_failure_of_three_is_less_than_85_percent_good() {
        assert_eq!(after(&[600], &BY_RATIO), Some(Reason::ProbesFailed));
        assert_eq!(after(&[0, 0], &BY_RATIO), None);
        assert_eq!(after(&[0, 0, 0], &BY_RATIO), Some(Reason::ProbesGood));
    }

    #[test]
    fn by_counts_a_soft_failure_is_a_failed_probe() {
        assert_eq!(after(&[600, 600], &BY_COUNT), Some(Reason::ProbesFailed));
    }

    #[test]
    fn slow_probes_open_by_their_own_limit() {
        let decision = Decision { slow_to_open: Some(2), ..BY_COUNT };
        let mut tally = Tally::default();
        tally.record(0, true, &decision);
        tally.record(0, false, &decision);
        assert_eq!(tally.decide(&decision), None, "the last one may be slow");
        tally.record(0, true, &decision);
        assert_eq!(tally.decide(&decision), Some(Reason::ProbesSlow));
    }
}
