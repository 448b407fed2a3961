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

use failsoft_core::Evict;

use crate::{
    account::{Account, Rules},
    leasing::Leasing,
};

/// Accounts behind one lock: the one of a key, or all those of a layer that are no key's. Every call is charged to all of the latter
/// together, so one lock costs it less, and makes it wait for others less often, than one for each would.
pub(crate) struct Cell {
    /// Of all ledgers of a layer; those of the first account are at `first`.
    rules: Arc<[Rules]>,
    first: usize,
    is_keyed: bool,
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
        Self { rules: Arc::clone(rules), first: 0, is_keyed: false, accounts: Mutex::new(accounts), leasing }
    }

    /// The account of a key, by the rules at `first`; with its name, where it leases from a store.
    pub(crate) fn of_key(rules: &Arc<[Rules]>, first: usize, leases: Option<Arc<str>>) -> Self {
        let accounts = Accounts { first: Account::new(&rules[first]), more: Box::default() };
        let leasing = leases.into_iter().map(|key| Leasing::new(Some(key))).collect();
        Self { rules: Arc::clone(rules), first, is_keyed: true, accounts: Mutex::new(accounts), leasing }
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
