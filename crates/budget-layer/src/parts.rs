//! [`Parts`]: the budgets that one call is charged to, and what is reserved in each.

use std::{sync::Arc, task::Waker};

use crate::{
    Budget, Ledger, Outcome, Unit,
    account::{Account, Ask, Crossed, Denied, Rules, Share, queue::Turn},
    cell::{Accounts, Cell, MutexGuard},
    window::Now,
};

/// So many budgets a call may be charged to.
pub(crate) const MAX_PARTS: usize = 8;

/// One of the budgets that a call is charged to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Part {
    /// In which of the call's cells it is, and where there.
    cell: u8,
    at: u8,
    unit: Unit,
    /// What one attempt may cost.
    pub(crate) each: u64,
    pub(crate) share: Share,
    /// What it was charged in the end.
    pub(crate) used: u64,
    /// What the last change crossed, until it is told.
    pub(crate) crossed: Crossed,
}

impl Part {
    /// What one attempt reserves.
    #[inline]
    const fn amount(&self, is_first: bool) -> u64 {
        if is_first || self.unit.adds_up() { self.each } else { 0 }
    }

    fn is_of(&self, cells: &Cells, budget: &Budget) -> bool {
        usize::from(self.at) == budget.at
            && cells[usize::from(self.cell)].as_ref().is_some_and(|cell| Arc::ptr_eq(cell, &budget.cell))
    }

    /// Whether it was reserved while the call waits, which asks for the rest now.
    const fn is_taken(&self, is_first: bool) -> bool {
        is_first && self.share.all() > 0
    }
}

/// The budgets that one call is charged to, in place: no allocation.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    len: usize,
    parts: [Part; MAX_PARTS],
    cells: Cells,
    /// Of the call before, which had the same place: most often this one's too, and to count it takes two atomic steps.
    kept: Option<Arc<Cell>>,
}

/// The cells of one call, those that are there first.
type Cells = [Option<Arc<Cell>>; MAX_PARTS];

/// What is locked of each.
type Locked<'a> = [Option<MutexGuard<'a, Accounts>>];

impl Parts {
    /// Charges the call to a budget more; nothing is reserved yet. There are at most [`MAX_PARTS`], by what the builder checks.
    pub(crate) fn push(&mut self, budget: &Budget, each: u64) {
        let is_it = |cell: &Option<Arc<Cell>>| match cell {
            Some(cell) => Arc::ptr_eq(cell, &budget.cell),
            None => true,
        };
        let Some(which) = self.cells.iter().position(is_it) else { return };
        if self.cells[which].is_none() {
            self.cells[which] = Some(self.take_kept(&budget.cell));
        }
        if let Some(part) = self.parts.get_mut(self.len) {
            let unit = budget.unit();
            *part = Part { cell: which as u8, at: budget.at as u8, unit, each, ..Part::default() };
            self.len += 1;
        }
    }

    /// The same as to [`push`](Self::push) all budgets of a cell, in their order.
    #[inline]
    pub(crate) fn push_all<E>(
        &mut self,
        cell: &Arc<Cell>,
        ledgers: &[Ledger],
        each: impl Fn(&Ledger, Unit) -> Result<u64, E>,
    ) -> Result<(), E> {
        self.cells[0] = Some(self.take_kept(cell));
        for ((part, ledger), at) in self.parts.iter_mut().zip(ledgers).zip(0_u8..) {
            let unit = cell.rules(at.into()).unit;
            *part = Part { cell: 0, at, unit, each: each(ledger, unit)?, ..Part::default() };
            self.len += 1;
        }
        Ok(())
    }

    /// All budgets of a cell, in each of which one attempt of so many tokens has [reserved plainly](Cell::reserve_plainly).
    pub(crate) fn push_plain(&mut self, cell: Arc<Cell>, tokens: u64) {
        for ((part, rules), at) in self.parts.iter_mut().zip(cell.all_rules()).zip(0_u8..) {
            let each = rules.unit.plainly(tokens);
            *part =
                Part { cell: 0, at, unit: rules.unit, each, share: Share::plain(each), ..Part::default() };
            self.len += 1;
        }
        self.cells[0] = Some(cell);
    }

    #[inline]
    fn take_kept(&mut self, cell: &Arc<Cell>) -> Arc<Cell> {
        match self.kept.take() {
            Some(kept) if Arc::ptr_eq(&kept, cell) => kept,
            _ => Arc::clone(cell),
        }
    }

    /// As if nothing had ever been in it. A cell that calls without a key share is kept for the next call. That of a key is not, because a
    /// key whose cell somebody holds is never forgotten; nor is one that leases, because it holds a store of the user's, which goes with
    /// its layers and not with the threads that called them.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.len = 0;
        for cell in self.cells.iter_mut().map_while(Option::take) {
            if !cell.is_keyed() && cell.leasing(0).is_none() {
                self.kept = Some(cell);
            }
        }
    }

    /// Whether nothing is charged.
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether anything is, or was, reserved.
    pub(crate) fn has_reserved(&self) -> bool {
        self.all().iter().any(|part| part.share.all() > 0)
    }

    #[inline]
    fn all(&self) -> &[Part] {
        &self.parts[..self.len.min(MAX_PARTS)]
    }

    /// The budgets that lease from a store.
    pub(crate) fn leased(&self) -> Vec<Budget> {
        let budgets = self.all().iter().filter_map(|part| {
            let cell = self.cells[usize::from(part.cell)].as_ref()?;
            let leases = cell.rules(part.at.into()).shared.is_some();
            leases.then(|| Budget::new(Arc::clone(cell), part.at.into()))
        });
        budgets.collect()
    }

    /// What one attempt may cost in a budget.
    pub(crate) fn needed(&self, of: &Budget) -> u64 {
        self.all().iter().find(|part| part.is_of(&self.cells, of)).map_or(0, |part| part.each)
    }

    /// Takes what was reserved in a budget for the call while it waits: then it needs no more there. What it cannot take it gives back.
    pub(crate) fn take(&mut self, of: &Budget, share: Share, crossed: Crossed) -> Option<Share> {
        let Self { cells, parts, len, .. } = self;
        let mut parts = parts.iter_mut().take(*len);
        match parts.find(|part| part.is_of(cells, of) && part.share.all() == 0) {
            Some(part) => {
                (part.share, part.crossed) = (share, crossed);
                None
            }
            None => Some(share),
        }
    }

    /// Whether anything was crossed that has not been told.
    #[inline]
    pub(crate) fn has_crossed(&self) -> bool {
        self.all().iter().any(|part| !part.crossed.is_nothing())
    }

    /// What was crossed, and where, and has not been told.
    pub(crate) fn take_crossed(&mut self) -> Vec<(Budget, Crossed)> {
        let Self { cells, parts, .. } = self;
        let crossed = parts.iter_mut().take(self.len).filter(|part| !part.crossed.is_nothing());
        let taken = crossed.filter_map(|part| {
            let cell = cells[usize::from(part.cell)].clone()?;
            Some((Budget::new(cell, part.at.into()), std::mem::take(&mut part.crossed)))
        });
        taken.collect()
    }

    /// Reserves what one attempt may cost in every budget, or in none: then it says which refused, and why. All are locked
    /// meanwhile, always in the same order, so nobody sees half of it.
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
        let Self { cells, parts, len, .. } = self;
        let parts = &mut parts[..(*len).min(MAX_PARTS)];
        reserve_in(cells, parts, &mut lock_all(cells), ask, now, wait)
    }

    /// The same for a call that begins, where that is far from every line and limit, and nobody waits: a few sums are all there is to it.
    /// `false` where there may be more to it; then nothing has changed.
    #[inline]
    pub(crate) fn reserve_plainly(&mut self, ask: Ask) -> bool {
        let Self { cells, parts, len, .. } = self;
        let ([Some(cell), None, ..], parts) = (cells, &mut parts[..(*len).min(MAX_PARTS)]) else {
            return false;
        };
        let mut accounts = cell.lock();
        let plain = parts.iter().all(|part| accounts.at(part.at.into()).takes_plainly(part.each, ask));
        if plain {
            for part in parts {
                part.share = accounts.at_mut(part.at.into()).reserve_plainly(part.each);
            }
        }
        plain
    }

    /// Settles a call that used `tokens` and made `calls`, where that is far from every line and limit, and nobody waits: a few sums are
    /// all there is to it. `false` where there may be more to it; then nothing has changed.
    #[inline]
    pub(crate) fn settle_plainly(
        &mut self,
        (tokens, calls): (u64, u64),
        outcome: Outcome,
        unknown: bool,
    ) -> bool {
        let Self { cells, parts, len, .. } = self;
        let ([Some(cell), None, ..], parts) = (cells, &mut parts[..(*len).min(MAX_PARTS)]) else {
            return false;
        };
        for part in &mut *parts {
            part.used = match part.unit {
                Unit::Tokens => tokens,
                Unit::Calls => calls,
                Unit::Concurrent => 0,
                Unit::Money | Unit::Time => return false,
            };
        }
        let mut accounts = cell.lock();
        let plain =
            parts.iter().all(|part| accounts.at(part.at.into()).settles_plainly(&part.share, part.used));
        if plain {
            for part in parts {
                accounts.at_mut(part.at.into()).settle_plainly(&part.share, part.used, outcome, unknown);
            }
        }
        plain
    }

    /// Changes each account of the call as of now, those of a cell together. Whoever is first in a line then may have its turn.
    #[inline]
    pub(crate) fn each(&mut self, now: Now, mut change: impl FnMut(&mut Account, &Rules, &mut Part)) {
        let Self { cells, parts, len, .. } = self;
        for (which, cell) in cells.iter().map_while(Option::as_ref).enumerate() {
            let mut next: Vec<Waker> = Vec::new();
            let mut accounts = cell.lock();
            for part in parts.iter_mut().take(*len).filter(|part| usize::from(part.cell) == which) {
                let (rules, account) = (cell.rules(part.at.into()), accounts.at_mut(part.at.into()));
                account.advance(rules, now);
                change(account, rules, part);
                if let Some(waker) = account.first_in_line() {
                    next.push(waker);
                }
            }
            drop(accounts);
            next.into_iter().for_each(Waker::wake);
        }
    }

    /// Visits each part with its rules; nothing is locked.
    #[inline]
    pub(crate) fn visit(&self, mut visit: impl FnMut(&Rules, &Part)) {
        for part in self.all() {
            if let Some(cell) = &self.cells[usize::from(part.cell)] {
                visit(cell.rules(part.at.into()), part);
            }
        }
    }

    /// Gives up all places in the lines; whoever is first now may have its turn.
    pub(crate) fn leave(&mut self, turn: Turn, now: Now) {
        self.each(now, |account, _, _| account.queue.leave(turn));
    }

    /// Gives back what one attempt had reserved.
    pub(crate) fn release(&mut self, now: Now) {
        self.each(now, |account, _, part| {
            let again = part.amount(false);
            account.release(&mut part.share, again);
        });
    }

    /// Gives everything back, as if the call had never been.
    pub(crate) fn release_all(&mut self, now: Now) {
        self.each(now, |account, _, part| account.release(&mut part.share, u64::MAX));
    }
}

/// A place in a line.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) waker: &'a Waker,
    /// So many may wait for one budget.
    pub(crate) most: usize,
    /// Also where the store has said that there is not enough: until it has been asked, nobody stands in line for a lease.
    pub(crate) of_leases: bool,
}

/// Locks every cell, by their addresses, whatever order the layer has them in: two that wait for each other would wait for ever.
fn lock_all(cells: &Cells) -> [Option<MutexGuard<'_, Accounts>>; MAX_PARTS] {
    let mut order: [(usize, usize); MAX_PARTS] = std::array::from_fn(|which| {
        (cells[which].as_ref().map_or(usize::MAX, |cell| Arc::as_ptr(cell).addr()), which)
    });
    order.sort_unstable();
    let mut locked = [const { None }; MAX_PARTS];
    for (_, which) in order {
        locked[which] = cells[which].as_ref().map(|cell| cell.lock());
    }
    locked
}

/// Of each cell, what is locked has the same place.
#[inline(never)]
fn reserve_in(
    cells: &Cells,
    parts: &mut [Part],
    locked: &mut Locked<'_>,
    ask: Ask,
    now: Now,
    wait: Option<Place<'_>>,
) -> Result<(), (Budget, Denied)> {
    for part in parts.iter_mut().filter(|part| !part.is_taken(ask.is_first)) {
        let which = usize::from(part.cell);
        if let (Some(cell), Some(accounts)) = (&cells[which], &mut locked[which]) {
            let (rules, account) = (cell.rules(part.at.into()), accounts.at_mut(part.at.into()));
            account.advance(rules, now);
            let amount = part.amount(ask.is_first);
            if let Err(denied) = account.check(rules, &part.share, amount, ask, now) {
                let waits = wait.is_some_and(|place| {
                    denied.stands_in_line(rules, place.of_leases)
                        && account.queue.wait(ask.turn, place.waker, amount, place.most)
                });
                return Err((Budget::new(Arc::clone(cell), part.at.into()), Denied { waits, ..denied }));
            }
        }
    }
    for part in parts.iter_mut().filter(|part| !part.is_taken(ask.is_first)) {
        let which = usize::from(part.cell);
        if let (Some(cell), Some(accounts)) = (&cells[which], &mut locked[which]) {
            let rules = cell.rules(part.at.into());
            let amount = part.amount(ask.is_first);
            part.crossed = accounts.at_mut(part.at.into()).reserve(rules, &mut part.share, amount);
        }
    }
    Ok(())
}
