//! [`State`] and [`Saved`]: budgets that outlive their process. With the feature `serde` they can be written anywhere.
//!
//! ```
//! use budget_layer::{BudgetLayer, State};
//!
//! let layer = || BudgetLayer::builder().tokens(50_000).key_fn(|session: &String| session.clone()).build();
//! let before = layer()?;
//! # before.ledger().open("7")?.load(&State::new(50_000, 1_200));
//! // … a session has spent 1 200 tokens, and the process ends:
//! let saved = before.ledger().save();
//!
//! let after = layer()?;
//! after.ledger().load(&saved)?;
//! assert_eq!(after.ledger().budget("7").map(|budget| budget.remaining()), Some(48_800));
//!
//! // A limit that was set while the process ran is saved too; one of the configuration follows the configuration.
//! let saved = after.ledger().save();
//! let raised = BudgetLayer::builder().tokens(80_000).key_fn(|session: &String| session.clone()).build()?;
//! raised.ledger().load(&saved)?;
//! assert_eq!(raised.ledger().budget("7").map(|budget| budget.remaining()), Some(78_800));
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```

use std::{error::Error, fmt, sync::Arc};

use crate::{Budget, Ledger, Spend, Unit};

/// All of one budget: what [`Budget::save`] gives, for [`Budget::load`] in another process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct State {
    /// The limit.
    pub limit: u64,
    /// Whether somebody has set that, by [`Budget::set_limit`], [`Budget::restore`] or a state that was loaded. Then it is loaded. A limit
    /// that came from the configuration is not: it follows the configuration of whoever loads it. `None`, as in what was saved before there
    /// was this: it is loaded, and counts as set where the configuration has another.
    #[cfg_attr(feature = "serde", serde(default))]
    pub limit_is_set: Option<bool>,
    /// What is spent, in the window.
    pub spent: u64,
    /// What was reserved for calls in flight. Whoever loads it counts it as spent: nobody knows what became of those calls. But
    /// of calls at once it counts as nothing: they have ended with their process.
    #[cfg_attr(feature = "serde", serde(default))]
    pub reserved: u64,
    /// What was spent on what, since the beginning.
    #[cfg_attr(feature = "serde", serde(default))]
    pub spend: Spend,
    /// For how many milliseconds it was paused yet.
    #[cfg_attr(feature = "serde", serde(default))]
    pub paused_ms: Option<u64>,
    /// When the day or the month ends in which it was saved, in milliseconds since 1970: from then on nothing of that one is spent.
    #[cfg_attr(feature = "serde", serde(default))]
    pub period_ends_ms: Option<i64>,
}

impl State {
    /// A limit, which is loaded, and what is spent of it.
    #[must_use]
    pub fn new(limit: u64, spent: u64) -> Self {
        Self { limit, spent, ..Self::default() }
    }
}

/// All budgets of a ledger: what [`Ledger::save`] gives, for [`Ledger::load`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Saved {
    /// What its budgets are called.
    pub name: String,
    /// What they count.
    pub unit: Unit,
    /// The one of calls without a key.
    pub unkeyed: State,
    /// Those of keys, but for such as would be forgotten anyway.
    pub keyed: Vec<(String, State)>,
}

/// Why a ledger was not loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// It counts something else.
    Unit {
        /// What was saved.
        saved: Unit,
        /// What this ledger counts.
        own: Unit,
    },
    /// There was no room for so many of its keys; the others were loaded. See
    /// [`max_keys`](crate::BudgetBuilder::max_keys).
    KeysFull {
        /// How many were left out.
        left_out: usize,
    },
}

impl Budget {
    /// All that it knows.
    #[must_use]
    pub fn save(&self) -> State {
        self.look(|account, _, now| account.save(now))
    }

    /// Goes on where another process was when it saved. What was spent in a sliding window counts from now on; a pause takes up where it
    /// was. The limit is loaded where somebody had [set](State::limit_is_set) it; otherwise it stays as it is here. Calls in flight here keep
    /// what they reserved. Of a budget that is leased from a [store](crate::Store), only what was spent on what, and a limit that the store
    /// was not told of yet: it knows the rest.
    pub fn load(&self, state: &State) {
        self.change(|account, rules, now| account.load(rules, state, now));
    }
}

impl Ledger {
    /// All that its budgets know, without those that would be forgotten for a new key. This looks at everything; calls that run
    /// meanwhile are in it or not.
    #[must_use]
    pub fn save(&self) -> Saved {
        let keyed = self.entries().into_iter().filter(|(_, budget)| !budget.may_go());
        Saved {
            name: self.name().to_owned(),
            unit: self.unit(),
            unkeyed: self.unkeyed().save(),
            keyed: keyed.map(|(key, budget)| (key.to_string(), budget.save())).collect(),
        }
    }

    /// Goes on where another process was: call it before the first call. The name may be another.
    ///
    /// # Errors
    ///
    /// It counts something else, and nothing is loaded; or there was no room for all keys.
    pub fn load(&self, saved: &Saved) -> Result<(), LoadError> {
        if saved.unit != self.unit() {
            return Err(LoadError::Unit { saved: saved.unit, own: self.unit() });
        }
        self.unkeyed().load(&saved.unkeyed);
        let mut left_out = 0;
        for (key, state) in &saved.keyed {
            match self.open(Arc::<str>::from(key.as_str())) {
                Ok(budget) => budget.load(state),
                Err(_) => left_out += 1,
            }
        }
        if left_out == 0 { Ok(()) } else { Err(LoadError::KeysFull { left_out }) }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unit { saved, own } => write!(f, "what was saved counts {saved}, and this ledger {own}"),
            Self::KeysFull { left_out } => write!(f, "there was no room for {left_out} keys"),
        }
    }
}

impl Error for LoadError {}
