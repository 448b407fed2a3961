//! [`Cell`]: accounts behind one lock.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::{Arc, PoisonError},
};

#[cfg(failsoft_loom)]
use loom::sync::Mutex;
#[cfg(failsoft_loom)]
pub(crate) use loom::sync::MutexGuard;
#[cfg(not(failsoft_loom))]
use std::sync::Mutex;
#[cfg(not(failsoft_loom))]
pub(crate) use std::sync::MutexGuard;

use failsoft_core::{Evict, lent::Place};

use crate::{
    Outcome,
    account::{Account, Ask, Rules, Share},
    leasing::Leasing,
    window::Clocks,
};

/// Accounts behind one lock: the one of a key, or all those of a layer that are no key's. Every call is charged to all of the latter
/// together, so one lock costs it less, and makes it wait for others less often, than one for each would.
pub(crate) struct Cell {
    /// Of all ledgers of a layer; those of the first account are at `first`.
    rules: Arc<[Rules]>,
    first: usize,
    is_keyed: bool,
    /// Where a thread keeps it for its next call.
    pub(crate) place: Place,
    accounts: Mutex<Accounts>,
    /// Of accounts that lease from a store, one for each account; or of none.
    leasing: Box<[Leasing]>,
}

/// The accounts of a cell: at least one, and most often no more.
pub(crate) struct Accounts {
    first: Account,
    more: Box<[Account]>,
}

/// One account, while its cell is locked.
pub(crate) struct Locked<'a> {
    pub(crate) accounts: MutexGuard<'a, Accounts>,
    pub(crate) at: usize,
}

impl Cell {
    /// An account for each of the rules; there is at least one.
    pub(crate) fn of_all(rules: &Arc<[Rules]>) -> Self {
        let accounts =
            Accounts { first: Account::new(&rules[0]), more: rules[1..].iter().map(Account::new).collect() };
        let leases = rules.iter().any(|rules| rules.shared.is_some());
        let leasing = rules.iter().filter(|_| leases).map(|_| Leasing::new(None)).collect();
        Self { first: 0, is_keyed: false, ..Self::of(rules, accounts, leasing) }
    }

    /// The account of a key, by the rules at `first`; with its name, where it leases from a store.
    pub(crate) fn of_key(rules: &Arc<[Rules]>, first: usize, leases: Option<Arc<str>>) -> Self {
        let accounts = Accounts { first: Account::new(&rules[first]), more: Box::default() };
        let leasing = leases.into_iter().map(|key| Leasing::new(Some(key))).collect();
        Self { first, is_keyed: true, ..Self::of(rules, accounts, leasing) }
    }

    fn of(rules: &Arc<[Rules]>, accounts: Accounts, leasing: Box<[Leasing]>) -> Self {
        let (rules, accounts) = (Arc::clone(rules), Mutex::new(accounts));
        Self { rules, first: 0, is_keyed: false, place: Place::next(), accounts, leasing }
    }

    /// Those of its accounts, in their order.
    #[inline]
    pub(crate) fn all_rules(&self) -> &[Rules] {
        &self.rules[self.first..][..self.len()]
    }

    /// Whether every figure of a call follows from its tokens, for as long as it is far from all lines and limits.
    pub(crate) fn is_plain(&self) -> bool {
        self.leasing.is_empty()
            && self
                .all_rules()
                .iter()
                .all(|rules| rules.unit.is_plain() && rules.clocks() == Clocks::NONE && !rules.heeds_quota)
    }

    /// Reserves for a call of so many tokens in every account, where that is far from every line and limit, and nobody waits: a few sums
    /// are all there is to it. `false` where there may be more to it; then nothing has changed.
    #[inline(always)]
    pub(crate) fn reserve_plainly(&self, tokens: u64, ask: Ask) -> bool {
        let mut accounts = self.lock();
        let plain = accounts.all(|account| account.takes_plainly(account.unit().plainly(tokens), ask));
        if plain {
            accounts.each(|account| {
                account.reserve_plainly(account.unit().plainly(tokens));
            });
        }
        plain
    }

    /// Settles a call that reserved for so many tokens in every account, and `used` so many; on the same terms.
    #[inline(always)]
    pub(crate) fn settle_plainly(&self, tokens: u64, used: u64, outcome: Outcome, unknown: bool) -> bool {
        let share = |account: &Account| Share::plain(account.unit().plainly(tokens));
        let mut accounts = self.lock();
        let plain = accounts
            .all(|account| account.settles_plainly(&share(account), account.unit().plainly_used(used)));
        if plain {
            accounts.each(|account| {
                account.settle_plainly(&share(account), account.unit().plainly_used(used), outcome, unknown);
            });
        }
        plain
    }

    #[inline]
    pub(crate) fn rules(&self, at: usize) -> &Rules {
        &self.rules[self.first + at]
    }

    /// How many accounts there are.
    pub(crate) fn len(&self) -> usize {
        if self.is_keyed { 1 } else { self.rules.len() }
    }

    pub(crate) fn leasing(&self, at: usize) -> Option<&Leasing> {
        self.leasing.get(at)
    }

    pub(crate) const fn is_keyed(&self) -> bool {
        self.is_keyed
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, Accounts> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Evict for Cell {
    fn may_go(&self) -> bool {
        let rules = self.rules(0);
        let now = rules.clocks().now();
        let account = &mut self.lock().first;
        account.advance(rules, now);
        account.advance_pause(now);
        account.may_go(rules)
    }
}

impl Accounts {
    #[inline(always)]
    fn all(&self, mut holds: impl FnMut(&Account) -> bool) -> bool {
        holds(&self.first) && self.more.iter().all(holds)
    }

    #[inline(always)]
    fn each(&mut self, mut change: impl FnMut(&mut Account)) {
        change(&mut self.first);
        self.more.iter_mut().for_each(change);
    }

    #[inline]
    pub(crate) fn at(&self, at: usize) -> &Account {
        at.checked_sub(1).map_or(&self.first, |at| &self.more[at])
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, at: usize) -> &mut Account {
        match at.checked_sub(1) {
            None => &mut self.first,
            Some(at) => &mut self.more[at],
        }
    }
}

impl Deref for Locked<'_> {
    type Target = Account;

    fn deref(&self) -> &Account {
        self.accounts.at(self.at)
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Account {
        self.accounts.at_mut(self.at)
    }
}

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cell").field("is_keyed", &self.is_keyed).finish_non_exhaustive()
    }
}
