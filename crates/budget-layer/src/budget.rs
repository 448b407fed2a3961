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

use std::{fmt, future::poll_fn, sync::Arc, task::Waker, time::Duration};

use failsoft_core::{BoxError, Evict as _};

use crate::{
    Spend, Unit,
    account::{Account, Rules},
    cell::{Cell, Locked},
    leasing::{Leasing, Shared, Sparing},
    window::Now,
};

/// The soft line of a budget that is told nothing else.
pub(crate) const SOFT_LINE: f64 = 0.85;

/// A handle on one budget; clones are the same budget. All figures are in its [`unit`](Self::unit); of a window that is not a
/// lifetime, they are those of the present window.
#[derive(Clone)]
pub struct Budget {
    pub(crate) cell: Arc<Cell>,
    /// Which account of the cell.
    pub(crate) at: usize,
}

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

/// How a budget stands, to be shown, or restored in the same process. Another process takes up more: [`State`](crate::State).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
    pub(crate) const fn new(cell: Arc<Cell>, at: usize) -> Self {
        Self { cell, at }
    }

    /// Whether they are all accounts of one cell, in their order.
    pub(crate) fn are_together<'a>(budgets: impl ExactSizeIterator<Item = &'a Self> + Clone) -> bool {
        let Some(first) = budgets.clone().next() else { return false };
        budgets.len() == first.cell.len()
            && budgets
                .enumerate()
                .all(|(at, budget)| budget.at == at && Arc::ptr_eq(&budget.cell, &first.cell))
    }

    /// Whether it is the same.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.at == other.at && Arc::ptr_eq(&self.cell, &other.cell)
    }

    pub(crate) fn rules(&self) -> &Rules {
        self.cell.rules(self.at)
    }

    /// Where it leases from, and how.
    pub(crate) fn leasing(&self) -> Option<(&Leasing, &Shared)> {
        self.cell.leasing(self.at).zip(self.rules().shared.as_ref())
    }

    fn ask_store_at_once(&self) {
        if let Some((leasing, _)) = self.leasing() {
            leasing.ask_at_once();
        }
    }

    /// Whether the store was ever asked.
    pub(crate) fn has_leased(&self) -> bool {
        self.leasing().is_some_and(|(leasing, _)| leasing.has_asked())
    }

    /// Tells the store what was spent, if there is one.
    pub(crate) async fn tell_store(&self, sparing: Sparing) -> Result<(), BoxError> {
        let Some((leasing, shared)) = self.leasing() else { return Ok(()) };
        let mut telling = leasing.telling(sparing);
        poll_fn(|cx| telling.poll(self, shared, cx)).await
    }

    /// Whether nothing of it would be missed.
    pub(crate) fn may_go(&self) -> bool {
        self.cell.may_go()
    }

    /// Locks the account; nothing foreign runs meanwhile.
    pub(crate) fn lock(&self) -> Locked<'_> {
        Locked { accounts: self.cell.lock(), at: self.at }
    }

    /// As of now.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&mut Account, &Rules, Now) -> R) -> R {
        let now = self.rules().clocks().now();
        let mut account = self.lock();
        account.advance(self.rules(), now);
        look(&mut account, self.rules(), now)
    }

    /// Changes something for which somebody may have waited.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Account, &Rules, Now)) {
        let next = self.look(|account, rules, now| {
            change(account, rules, now);
            account.first_in_line()
        });
        next.into_iter().for_each(Waker::wake);
    }

    /// What it counts.
    #[must_use]
    pub fn unit(&self) -> Unit {
        self.rules().unit
    }

    /// The limit: what may be spent in all, the closing reserve included.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.lock().limit_of_all()
    }

    /// Sets the limit, from the next call on. Below what is already spent it denies every call. Where the budget is leased from a
    /// [store](crate::Store), the limit of all together: the next call, or [`write_back`](crate::Ledger::write_back), tells it.
    pub fn set_limit(&self, limit: u64) {
        self.change(|account, rules, _| account.set_limit(rules, limit));
        self.ask_store_at_once();
    }

    /// What is spent: the usage of all calls that have ended, estimated where a call did not tell.
    #[must_use]
    pub fn spent(&self) -> u64 {
        self.look(|account, _, _| account.committed() - account.reserved())
    }

    /// What is reserved for calls in flight.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        self.look(|account, _, _| account.reserved())
    }

    /// What is neither spent nor reserved, the closing reserve included.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.look(|account, _, _| account.own_limit().saturating_sub(account.committed()))
    }

    /// How much is used up, counting what is reserved.
    #[must_use]
    pub fn line(&self) -> Line {
        self.look(|account, rules, _| {
            if account.committed() >= account.own_hard(rules) {
                Line::Hard
            } else if account.committed() >= account.own_line(rules, 0) {
                Line::Soft
            } else {
                Line::Open
            }
        })
    }

    /// In how long all of it is there again, if nothing more is spent. `None` for a lifetime.
    #[must_use]
    pub fn renews_in(&self) -> Option<Duration> {
        self.look(|account, _, now| account.renews_in(now))
    }

    /// What the server said is left of its own limit, less what was reserved since, where that still holds: see
    /// [`heed_quota_headers`](crate::BudgetBuilder::heed_quota_headers).
    #[must_use]
    pub fn server_left(&self) -> Option<u64> {
        self.look(|account, _, now| account.server_left(now))
    }

    /// For how long it is paused yet, because too much was spent in a short time.
    #[must_use]
    pub fn paused_for(&self) -> Option<Duration> {
        self.look(|account, _, now| account.paused_for(now))
    }

    /// How many calls wait for their turn.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.lock().queue.len()
    }

    /// Ends a pause.
    pub fn resume(&self) {
        self.change(|account, _, _| account.resume());
    }

    /// What was spent on what, since the beginning.
    #[must_use]
    pub fn spend(&self) -> Spend {
        self.lock().spend()
    }

    /// The state, to be stored.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.look(|account, _, _| Snapshot {
            limit: account.limit_of_all(),
            spent: account.committed() - account.reserved(),
            reserved: account.reserved(),
        })
    }

    /// Sets the limit and what is spent. Calls in flight keep what they reserved, and their usage is added. What is spent of a budget
    /// that is leased from a [store](crate::Store) that store knows: there only the limit is set.
    pub fn restore(&self, state: &Snapshot) {
        self.change(|account, rules, _| {
            account.set_limit(rules, state.limit);
            account.restore(rules, state.spent);
        });
        self.ask_store_at_once();
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget")
            .field("unit", &self.unit())
            .field("limit", &self.limit())
            .field("spent", &self.spent())
            .field("reserved", &self.reserved())
            .finish_non_exhaustive()
    }
}
