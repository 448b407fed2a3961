//! How a call ended, as far as a circuit cares.

use std::time::Duration;

/// How a call ended, as far as a circuit cares. `advice` is how long the server asked to be left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The target did its work.
    Success,
    /// The target failed.
    Failure {
        /// How much: 1 for a hard failure, less for a soft one.
        weight: Weight,
        /// A floor for the open time, should it open.
        advice: Option<Duration>,
    },
    /// The target asked for fewer calls: neutral for rates, but a failed probe. Opens until the advice is
    /// over if that is long enough, or after some in a row without advice.
    RateLimited {
        /// How long.
        advice: Option<Duration>,
    },
    /// Further calls are pointless, such as after a spent quota: opens whatever was counted before.
    AtOnce {
        /// A floor for the open time.
        advice: Option<Duration>,
    },
    /// The caller's own fault, such as an invalid request: neutral, but a good probe, because the target lives.
    Alive,
    /// Says nothing of the target: gives a probe back.
    Neutral,
    /// Dropped by the caller before the target showed anything. Neutral, but slow if it lasted longer than
    /// the slow limit, where there is a rule on slow calls: else a timeout outside of the breaker would hide every
    /// hung call from it.
    Cancelled,
}

impl Outcome {
    /// A failure of full weight, without advice.
    pub const FAILURE: Self = Self::Failure { weight: Weight::FULL, advice: None };

    /// Whether it leaves a circuit that is not half-open as it is.
    pub(super) fn is_neutral(self, slow: bool) -> bool {
        match self {
            Self::Alive | Self::Neutral => true,
            Self::Cancelled => !slow,
            Self::Success | Self::Failure { .. } | Self::RateLimited { .. } | Self::AtOnce { .. } => false,
        }
    }

    /// What it counts for as a probe: how much of a failure, in thousandths, and whether it was slow. None for what
    /// tells nothing of the target, or decides by itself. A dropped call is only ever slow: where slow probes decide
    /// nothing it would be a good one, though nobody answered.
    pub(super) fn as_probe(self, slow: bool, slow_decides: bool) -> Option<(u16, bool)> {
        match self {
            Self::Success | Self::Alive => Some((0, slow)),
            Self::Failure { weight, .. } => Some((weight.bits(), slow)),
            Self::RateLimited { .. } => Some((Weight::FULL.bits(), slow)),
            Self::Cancelled => (slow && slow_decides).then_some((0, true)),
            Self::AtOnce { .. } | Self::Neutral => None,
        }
    }

    pub(super) fn advice(self) -> Option<Duration> {
        match self {
            Self::Failure { advice, .. } | Self::RateLimited { advice } | Self::AtOnce { advice } => advice,
            Self::Success | Self::Alive | Self::Neutral | Self::Cancelled => None,
        }
    }
}

/// How much a failure weighs: above 0, up to 1, kept in thousandths.
///
/// The weight counts everywhere: in rates (weights by calls), in counts and in streaks. At a weight of 0.6 a
/// rule of 3 failures, or of 3 in a row, is met by 5 soft failures. Only a half-open period that is decided
/// by counts takes every failure as a whole one: a probe that answers wrongly is not a good one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(u16);

impl Weight {
    /// A hard failure: 1.
    pub const FULL: Self = Self(1000);
    /// A soft failure by default: 0.6. One odd answer must not open a circuit, many must.
    pub const SOFT: Self = Self(600);

    /// A weight above 0 and up to 1, rounded to thousandths; none for any other number.
    pub fn new(weight: f64) -> Option<Self> {
        let thousandths = (weight * 1000.0).round();
        (1.0..=1000.0).contains(&thousandths).then_some(Self(thousandths as u16))
    }

    pub(super) fn thousandths(self) -> u64 {
        u64::from(self.0)
    }

    pub(super) fn bits(self) -> u16 {
        self.0
    }
}

impl From<Weight> for f64 {
    fn from(weight: Weight) -> Self {
        Self::from(weight.0) / 1000.0
    }
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_weights_that_mean_something_can_be_made() {
        assert_eq!(Weight::new(0.6), Some(Weight::SOFT));
        assert_eq!(Weight::new(1.0), Some(Weight::FULL));
        for nonsense in [0.0, -0.5, 1.01, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0004] {
            assert_eq!(Weight::new(nonsense), None, "{nonsense}");
        }
    }
}
