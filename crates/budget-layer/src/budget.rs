//! [`Budget`]: what there is, what is spent, and what is reserved for calls in flight.
//!
//! ```
//! use budget_layer::{BudgetLayer, Line, Snapshot};
//!
//! let layer = BudgetLayer::builder().tokens(50_000).build()?;
//! let budget = layer.budget();
//! assert_eq!((budget.limit(), budget.remaining(), budget.line()), (50_000, 50_000, Line::Open));
//!
//! // A session goes on after a restart with what it had spent before.
//! budget.restore(&Snapshot { limit: 50_000, spent: 45_000, reserved: 0 });
//! assert_eq!((budget.remaining(), budget.line()), (5_000, Line::Soft));
//! budget.set_limit(80_000);
//! assert_eq!((budget.remaining(), budget.line()), (35_000, Line::Open));
//! # Ok::<(), failsoft_core::ConfigError>(())
//! ```

use std::{fmt, sync::Arc};

use crate::{Spend, account::Account, account::Lines};

/// The soft line of a budget that is told nothing else.
pub(crate) const SOFT_LINE: f64 = 0.85;

/// A handle on one budget; clones are the same budget. All figures are tokens.
#[derive(Clone)]
pub struct Budget(Arc<Account>);

/// How much of a budget is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Line {
    /// Below the soft line.
    Open,
    /// At or past the soft line: calls are restricted.
    Soft,
    /// Nothing is left but what is kept for calls that are marked final.
    Hard,
}

/// The state of a budget, to be stored and restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The limit.
    pub limit: u64,
    /// What is spent.
    pub spent: u64,
    /// What is reserved for calls in flight. Not restored: those calls settle where they are. To be safe across a crash,
    /// store it and add it to `spent` before restoring.
    pub reserved: u64,
}

impl Budget {
    pub(crate) fn new(limit: u64, lines: Lines) -> Self {
        Self(Arc::new(Account::new(limit, lines)))
    }

    pub(crate) const fn from_account(account: Arc<Account>) -> Self {
        Self(account)
    }

    pub(crate) fn account(&self) -> &Account {
        &self.0
    }

    /// The limit: what may be spent in all, the closing reserve included.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.0.limit()
    }

    /// Sets the limit, from the next call on. Below what is already spent it denies every call.
    pub fn set_limit(&self, limit: u64) {
        self.0.set_limit(limit);
    }

    /// What is spent: the usage of all calls that have ended, estimated where a call did not tell.
    #[must_use]
    pub fn spent(&self) -> u64 {
        self.0.spent()
    }

    /// What is reserved for calls in flight.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        // In this order: what is spent only grows, so the difference is never negative.
        let spent = self.0.spent();
        self.0.committed().saturating_sub(spent)
    }

    /// What is neither spent nor reserved, the closing reserve included.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.0.limit().saturating_sub(self.0.committed())
    }

    /// How much is used up, counting what is reserved.
    #[must_use]
    pub fn line(&self) -> Line {
        let (committed, limit, lines) = (self.0.committed(), self.0.limit(), self.0.lines());
        if committed >= lines.hard(limit) {
            Line::Hard
        } else if committed >= lines.soft(limit) {
            Line::Soft
        } else {
            Line::Open
        }
    }

    /// What was spent on what.
    #[must_use]
    pub fn spend(&self) -> Spend {
        self.0.spend()
    }

    /// The state, to be stored.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let spent = self.0.spent();
        Snapshot { limit: self.limit(), spent, reserved: self.0.committed().saturating_sub(spent) }
    }

    /// Sets the limit and what is spent. Calls in flight keep what they reserved, and their usage is added.
    pub fn restore(&self, state: &Snapshot) {
        self.0.set_limit(state.limit);
        self.0.restore(state.spent);
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget")
            .field("limit", &self.limit())
            .field("spent", &self.spent())
            .field("reserved", &self.reserved())
            .finish_non_exhaustive()
    }
}
