//! [`Spend`]: what was spent on what.
//!
//! ```
//! use budget_layer::{BudgetLayer, Outcome};
//!
//! let spend = BudgetLayer::builder().build()?.budget().spend();
//! assert_eq!((spend.spent(), spend.calls(), spend.unknown()), (0, 0, 0));
//! for (outcome, tally) in spend.outcomes() {
//!     assert_eq!((tally.calls, tally.spent), (0, 0), "{outcome}");
//! }
//! assert_eq!(spend.of(Outcome::Cancelled).spent, 0);
//! # Ok::<(), failsoft_core::ConfigError>(())
//! ```

#[cfg(feature = "serde")]
mod serial;

use std::fmt;

use failsoft_core::Class;

/// How a call ended, as far as a ledger tells calls apart: the classes, without their kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Outcome {
    /// A good answer.
    Success,
    /// A fault that may pass.
    Transient,
    /// No capacity.
    Overloaded,
    /// A limit of time.
    Timeout,
    /// Too high a rate.
    RateLimited,
    /// The provider's own allowance is used up.
    Quota,
    /// A refused credential.
    Auth,
    /// No such model.
    ModelNotFound,
    /// Too long a prompt.
    ContextLength,
    /// Refused content.
    Refused,
    /// A wrong request.
    Invalid,
    /// A wrong answer.
    Soft,
    /// An error that nobody recognises.
    Unknown,
    /// Dropped by the caller.
    Cancelled,
    /// Refused by a layer further in, after something was spent.
    Denied,
}

impl Outcome {
    /// All of them, in the order of the classes.
    pub const ALL: [Self; 15] = [
        Self::Success,
        Self::Transient,
        Self::Overloaded,
        Self::Timeout,
        Self::RateLimited,
        Self::Quota,
        Self::Auth,
        Self::ModelNotFound,
        Self::ContextLength,
        Self::Refused,
        Self::Invalid,
        Self::Soft,
        Self::Unknown,
        Self::Cancelled,
        Self::Denied,
    ];

    pub(crate) const COUNT: usize = Self::ALL.len();

    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// A short stable name, for labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Transient => "transient",
            Self::Overloaded => "overloaded",
            Self::Timeout => "timeout",
            Self::RateLimited => "rate_limited",
            Self::Quota => "quota",
            Self::Auth => "auth",
            Self::ModelNotFound => "model_not_found",
            Self::ContextLength => "context_length",
            Self::Refused => "refused",
            Self::Invalid => "invalid",
            Self::Soft => "soft",
            Self::Unknown => "unknown",
            Self::Cancelled => "cancelled",
            Self::Denied => "denied",
        }
    }
}

impl From<Class> for Outcome {
    fn from(class: Class) -> Self {
        match class {
            Class::Success => Self::Success,
            Class::Transient => Self::Transient,
            Class::Overloaded => Self::Overloaded,
            Class::Timeout(_) => Self::Timeout,
            Class::RateLimited => Self::RateLimited,
            Class::Quota => Self::Quota,
            Class::Auth => Self::Auth,
            Class::ModelNotFound => Self::ModelNotFound,
            Class::ContextLength => Self::ContextLength,
            Class::Refused => Self::Refused,
            Class::Invalid => Self::Invalid,
            Class::Soft(_) => Self::Soft,
            Class::Cancelled => Self::Cancelled,
            Class::Denied(_) => Self::Denied,
            // `Class` may grow.
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Calls, and what they spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Tally {
    /// How many calls were settled.
    pub calls: u64,
    /// What they spent, in the budget's unit.
    pub spent: u64,
}

/// What one budget spent, by the outcome of the calls. Read one figure after the other: exact when no call ends meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spend {
    pub(crate) spent: u64,
    pub(crate) tallies: [Tally; Outcome::COUNT],
    pub(crate) denied: u64,
    pub(crate) unknown: u64,
    pub(crate) late: u64,
}

impl Spend {
    #[inline]
    pub(crate) const fn settled(&mut self, outcome: Outcome, used: u64, unknown: bool) {
        let tally = &mut self.tallies[outcome.index()];
        tally.calls = tally.calls.saturating_add(1);
        tally.spent = tally.spent.saturating_add(used);
        self.spent = self.spent.saturating_add(used);
        self.unknown = self.unknown.saturating_add(unknown as u64);
    }

    pub(crate) fn booked_late(&mut self, outcome: Outcome, more: u64) {
        let tally = &mut self.tallies[outcome.index()];
        tally.spent = tally.spent.saturating_add(more);
        self.spent = self.spent.saturating_add(more);
        self.late = self.late.saturating_add(1);
    }

    /// All that was spent, in the budget's unit.
    #[must_use]
    pub const fn spent(&self) -> u64 {
        self.spent
    }

    /// The calls of one outcome.
    #[must_use]
    pub const fn of(&self, outcome: Outcome) -> Tally {
        self.tallies[outcome.index()]
    }

    /// Each outcome with its calls.
    pub fn outcomes(&self) -> impl Iterator<Item = (Outcome, Tally)> + '_ {
        Outcome::ALL.into_iter().map(|outcome| (outcome, self.of(outcome)))
    }

    /// How many calls were settled. A denied call is none.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.tallies.iter().fold(0, |calls, tally| calls.saturating_add(tally.calls))
    }

    /// What was spent before the state was restored, of which this ledger knows the sum only.
    #[must_use]
    pub fn carried(&self) -> u64 {
        self.tallies.iter().fold(self.spent, |left, tally| left.saturating_sub(tally.spent))
    }

    /// How many calls this budget denied.
    #[must_use]
    pub const fn denied(&self) -> u64 {
        self.denied
    }

    /// How many calls did not say, or not fully, what they used: their estimate stands in.
    #[must_use]
    pub const fn unknown(&self) -> u64 {
        self.unknown
    }

    /// How often usage was booked for a call that had already been settled.
    #[must_use]
    pub const fn late(&self) -> u64 {
        self.late
    }
}

impl std::ops::AddAssign for Spend {
    /// Adds figure by figure, saturating.
    fn add_assign(&mut self, other: Self) {
        let add = |mine: &mut u64, other: u64| *mine = mine.saturating_add(other);
        add(&mut self.spent, other.spent);
        add(&mut self.denied, other.denied);
        add(&mut self.unknown, other.unknown);
        add(&mut self.late, other.late);
        for (mine, other) in self.tallies.iter_mut().zip(other.tallies) {
            add(&mut mine.calls, other.calls);
            add(&mut mine.spent, other.spent);
        }
    }
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use failsoft_core::{Denier, Limit, SoftKind};

    use super::*;

    #[test]
    fn each_outcome_has_its_place_and_the_name_of_its_class() {
        for (index, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome.index(), index);
        }
        for class in [
            Class::Success,
            Class::Transient,
            Class::Overloaded,
            Class::Timeout(Limit::Idle),
            Class::RateLimited,
            Class::Quota,
            Class::Auth,
            Class::ModelNotFound,
            Class::ContextLength,
            Class::Refused,
            Class::Invalid,
            Class::Soft(SoftKind::Empty),
            Class::Unknown,
            Class::Cancelled,
            Class::Denied(Denier::Circuit),
        ] {
            assert!(class.as_str().starts_with(Outcome::from(class).as_str()), "{class}");
        }
    }
}
