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

#[cfg(all(test, failsoft_loom))]
mod loom;

use std::{
    fmt,
    future::poll_fn,
    sync::{Arc, PoisonError},
    task::Waker,
    time::Duration,
};

#[cfg(failsoft_loom)]
use ::loom::sync::{Mutex, MutexGuard};
#[cfg(not(failsoft_loom))]
use std::sync::{Mutex, MutexGuard};

use failsoft_core::{BoxError, Evict};

use crate::{
    Spend, Unit,
    account::{Account, Ask, Crossed, Denied, Rules, Share, queue::Turn},
    leasing::{Leasing, Shared, Sparing},
    window::Now,
};

/// The soft line of a budget that is told nothing else.
pub(crate) const SOFT_LINE: f64 = 0.85;

/// A handle on one budget; clones are the same budget. All figures are in its [`unit`](Self::unit); of a window that is not a
/// lifetime, they are those of the present window.
#[derive(Clone)]
pub struct Budget(Arc<Cell>);

/// One account, behind its lock.
pub(crate) struct Cell {
    rules: Arc<Rules>,
    account: Mutex<Account>,
    /// Of an account that leases from a store.
    leasing: Option<Box<Leasing>>,
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
    pub(crate) fn new(rules: Arc<Rules>) -> Self {
        Self(Arc::new(Cell::new(rules, None)))
    }

    pub(crate) const fn from_cell(cell: Arc<Cell>) -> Self {
        Self(cell)
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.0.rules
    }

    /// Where it leases from, and how.
    pub(crate) fn leasing(&self) -> Option<(&Leasing, &Shared)> {
        self.0.leasing.as_deref().zip(self.0.rules.shared.as_ref())
    }

    /// Whether the store was ever asked.
    pub(crate) fn has_leased(&self) -> bool {
        self.leasing().is_some_and(|(leasing, _)| leasing.has_asked())
    }

    /// Tells the store what was spent, if there is one.
    pub(crate) async fn tell_store(&self, sparing: Sparing) -> Result<(), BoxError> {
        let Some((leasing, shared)) = self.leasing() else { return Ok(()) };
        let mut number = None;
        poll_fn(|cx| leasing.poll_telling(self, shared, sparing, &mut number, cx)).await
    }

    /// Whether nothing of it would be missed.
    pub(crate) fn may_go(&self) -> bool {
        self.0.may_go()
    }

    /// Locks the account; nothing foreign runs meanwhile.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, Account> {
        self.0.account.lock().unwrap_or_else(PoisonError::into_inner)
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
    }
}

impl Cell {
    /// Of a key, for whoever it is leased to.
    pub(crate) fn new(rules: Arc<Rules>, key: Option<Arc<str>>) -> Self {
        let account = Mutex::new(Account::new(&rules));
        let leasing = rules.shared.is_some().then(|| Box::new(Leasing::new(key)));
        Self { rules, account, leasing }
    }
}

impl Evict for Cell {
    fn may_go(&self) -> bool {
        let now = self.rules.clocks().now();
        let mut account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        account.advance(&self.rules, now);
        account.may_go(&self.rules)
    }
}

/// One of the budgets that a call is charged to.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) budget: Budget,
    /// What one attempt may cost.
    pub(crate) each: u64,
    pub(crate) share: Share,
    /// What the last reservation crossed, until it is told.
    pub(crate) crossed: Crossed,
}

impl Part {
    pub(crate) fn new(budget: Budget, each: u64) -> Self {
        Self { budget, each, share: Share::default(), crossed: Crossed::default() }
    }

    fn release(&mut self, amount: u64) {
        let mut account = self.budget.lock();
        account.release(&mut self.share, amount);
        let next = account.first_in_line();
        drop(account);
        next.into_iter().for_each(Waker::wake);
    }

    /// What one more attempt of the same call may cost.
    fn again(&self) -> u64 {
        if self.budget.unit().adds_up() { self.each } else { 0 }
    }
}

/// So many budgets a call may be charged to.
pub(crate) const MAX_PARTS: usize = 8;

/// The budgets that one call is charged to, in place: no allocation.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    few: [Option<Part>; 3],
    more: Vec<Part>,
}

impl Parts {
    #[inline]
    pub(crate) fn push(&mut self, part: Part) {
        match self.few.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(part),
            None => self.more.push(part),
        }
    }

    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Part> {
        self.few.iter().flatten().chain(&self.more)
    }

    #[inline]
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Part> {
        self.few.iter_mut().flatten().chain(&mut self.more)
    }

    /// What one attempt may cost in a budget.
    pub(crate) fn needed(&self, of: &Budget) -> u64 {
        self.iter().find(|part| Arc::ptr_eq(&part.budget.0, &of.0)).map_or(0, |part| part.each)
    }

    /// Whether nothing is charged.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.few[0].is_none()
    }

    /// What was crossed, and where, and has not been told.
    pub(crate) fn take_crossed(&mut self) -> Vec<(Budget, Crossed)> {
        let crossed = self.iter_mut().filter(|part| !part.crossed.is_nothing());
        crossed.map(|part| (part.budget.clone(), std::mem::take(&mut part.crossed))).collect()
    }

    /// Reserves what one attempt may cost in every budget, or in none: then it says which refused, and why. All are locked
    /// meanwhile, always in the same order, so nobody sees half of it.
    #[inline]
    pub(crate) fn reserve(&mut self, ask: Ask, now: Now) -> Result<(), (Budget, Denied)> {
        self.reserve_or_wait(ask, now, None)
    }

    /// The same; a caller for whom there may be enough in a while takes a place among those that wait for the budget that refuses,
    /// and is woken when it may be its turn.
    pub(crate) fn reserve_or_wait(
        &mut self,
        ask: Ask,
        now: Now,
        wait: Option<Place<'_>>,
    ) -> Result<(), (Budget, Denied)> {
        if self.more.is_empty() {
            reserve_in::<3>(self.few.iter_mut().flatten(), ask, now, wait)
        } else {
            reserve_in::<MAX_PARTS>(self.iter_mut(), ask, now, wait)
        }
    }

    /// Gives up all places in the lines; whoever is first now may have its turn.
    pub(crate) fn leave(&self, turn: Turn) {
        for part in self.iter() {
            let mut account = part.budget.lock();
            account.queue.leave(turn);
            let next = account.first_in_line();
            drop(account);
            next.into_iter().for_each(Waker::wake);
        }
    }

    /// Gives back what one attempt had reserved.
    pub(crate) fn release(&mut self) {
        for part in self.iter_mut() {
            let again = part.again();
            part.release(again);
        }
    }

    /// Gives everything back, as if the call had never been.
    pub(crate) fn release_all(&mut self) {
        for part in self.iter_mut() {
            part.release(u64::MAX);
        }
    }
}

/// A place in a line.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) waker: &'a Waker,
    /// So many may wait for one budget.
    pub(crate) most: usize,
}

/// A part while all are looked at together.
struct Held<'a> {
    budget: &'a Budget,
    amount: u64,
    share: &'a mut Share,
    crossed: &'a mut Crossed,
    account: Option<MutexGuard<'a, Account>>,
}

impl Held<'_> {
    fn address(&self) -> usize {
        Arc::as_ptr(&self.budget.0).addr()
    }
}

fn reserve_in<'a, const N: usize>(
    parts: impl Iterator<Item = &'a mut Part>,
    ask: Ask,
    now: Now,
    wait: Option<Place<'_>>,
) -> Result<(), (Budget, Denied)> {
    let mut held = [const { None::<Held<'a>> }; N];
    for (place, part) in held.iter_mut().zip(parts) {
        let amount = if ask.is_first { part.each } else { part.again() };
        let Part { budget, share, crossed, .. } = part;
        *place = Some(Held { budget, amount, share, crossed, account: None });
    }
    // By their addresses, whatever order the layer has them in: two that wait for each other would wait for ever.
    let mut order: [(usize, usize); N] =
        std::array::from_fn(|place| (held[place].as_ref().map_or(usize::MAX, Held::address), place));
    // Few, and mostly in order: what a general sort does first takes longer than this in all.
    for end in 1..N {
        let mut place = end;
        while place > 0 && order[place] < order[place - 1] {
            order.swap(place, place - 1);
            place -= 1;
        }
    }
    for (_, place) in order {
        if let Some(held) = &mut held[place] {
            held.account = Some(held.budget.lock());
        }
    }
    for Held { budget, amount, share, account, .. } in held.iter_mut().flatten() {
        if let Some(account) = account {
            account.advance(budget.rules(), now);
            if let Err(denied) = account.check(budget.rules(), share, *amount, ask, now) {
                let passes = denied.passes(budget.rules());
                let waits =
                    wait.is_some_and(|place| passes && account.queue.wait(ask.turn, place.waker, place.most));
                return Err((budget.clone(), Denied { waits, ..denied }));
            }
        }
    }
    for Held { budget, amount, share, crossed, account } in held.iter_mut().flatten() {
        if let Some(account) = account {
            **crossed = account.reserve(budget.rules(), share, *amount);
        }
    }
    Ok(())
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
