//! A store in the memory of one process.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use failsoft_core::{BoxError, DEFAULT_KEYS, Evict, KeyMap};

use super::{Exchange, Grant, LONGEST, Store, pool::Pool};
use crate::Unit;

/// A store for the layers of one process, and for tests: whatever leases from it spends together. Clones are the same store. It
/// shows the rules that another [`Store`] has to keep.
#[derive(Clone)]
pub struct MemoryStore(Arc<Budgets>);

struct Budgets {
    lasts: Duration,
    pools: KeyMap<Name, Entry>,
}

/// What a budget is called, whose it is, and what it counts: tokens and calls do not add up.
type Name = (Arc<str>, Option<Arc<str>>, Unit);

struct Entry(Mutex<Pool>);

impl MemoryStore {
    /// Leases last 30 s, which is longer than most calls take.
    #[must_use]
    pub fn new() -> Self {
        Self::lasting(Duration::from_secs(30))
    }

    /// Leases last so long, at most ten years: the shorter, the sooner what a dead process held is known to be lost, and the more often one that lives
    /// has to ask.
    #[must_use]
    pub fn lasting(leases: Duration) -> Self {
        Self(Arc::new(Budgets { lasts: leases.min(LONGEST), pools: KeyMap::refusing(DEFAULT_KEYS) }))
    }

    /// How many budgets there are: at most 10 000. One that has spent something is never forgotten.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.pools.len()
    }

    /// Whether there is no budget.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.pools.is_empty()
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for MemoryStore {
    async fn exchange(&self, exchange: Exchange) -> Result<Grant, BoxError> {
        let name = (Arc::clone(&exchange.budget), exchange.key.clone(), exchange.unit);
        let entry = self.0.pools.get_or_insert_with(name, || Entry(Mutex::new(Pool::new(&exchange))))?;
        let mut pool = entry.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = pool.clocks().now();
        pool.exchange(&exchange, self.0.lasts, now).ok_or_else(|| "no lease lasts that long".into())
    }
}

impl Evict for Entry {
    fn may_go(&self) -> bool {
        let mut pool = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = pool.clocks().now();
        pool.may_go(now)
    }
}

impl fmt::Debug for MemoryStore {
    /// Without the keys, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("lasts", &self.0.lasts).field("budgets", &self.len()).finish()
    }
}
