//! [`Ledger`]: budgets with one limit, by their keys, and what they spent.
//!
//! ```
//! use budget_layer::BudgetLayer;
//!
//! let layer = BudgetLayer::builder().tokens(10_000).key_fn(|request: &http::Request<()>| request.uri().path().to_owned()).build()?;
//! let ledger = layer.ledger();
//! assert!(ledger.budget("/session/7").is_none(), "nothing was called");
//!
//! // Before the first call: state from elsewhere, or a limit of its own.
//! let budget = ledger.open("/session/7")?;
//! budget.set_limit(90_000);
//! assert_eq!(ledger.budget("/session/7").map(|budget| budget.limit()), Some(90_000));
//!
//! // When the session is over, its place is free for another.
//! let state = ledger.close("/session/7").expect("it was open");
//! assert_eq!((state.spent, ledger.len()), (0, 0));
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```

use std::{fmt, sync::Arc};

use failsoft_core::{BoxError, KeyMap, KeysFull};

use crate::{Budget, Snapshot, Spend, Unit, account::Rules, cell::Cell, leasing::Sparing};

/// Many keys are bounded memory only if each of them is. They are not shortened: they are saved, and told to a store.
const MAX_KEY: usize = 4 * 1024;

/// A handle on all budgets that one limit makes, one for each key; clones are the same ledger.
#[derive(Clone)]
pub struct Ledger(Arc<Budgets>);

struct Budgets {
    /// Of all ledgers that were made together; its own are at `at`.
    rules: Arc<[Rules]>,
    at: usize,
    /// The budget of calls without a key.
    one: Budget,
    keyed: KeyMap<Arc<str>, Cell>,
}

impl Ledger {
    /// Ledgers for so many keys each. Their budgets of calls without a key stand together, behind one lock.
    pub(crate) fn together(all: Vec<(Rules, usize)>) -> Vec<Self> {
        let (rules, max_keys): (Vec<Rules>, Vec<usize>) = all.into_iter().unzip();
        if rules.is_empty() {
            return Vec::new();
        }
        let rules: Arc<[Rules]> = rules.into();
        let unkeyed = Arc::new(Cell::of_all(&rules));
        let ledger = |(at, max_keys)| {
            let one = Budget::new(Arc::clone(&unkeyed), at);
            Self(Arc::new(Budgets { rules: Arc::clone(&rules), at, one, keyed: KeyMap::refusing(max_keys) }))
        };
        max_keys.into_iter().enumerate().map(ledger).collect()
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.0.rules[self.0.at]
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// What its budgets are called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.rules().name
    }

    /// What its budgets count.
    #[must_use]
    pub fn unit(&self) -> Unit {
        self.rules().unit
    }

    /// The budget of calls without a key: all calls, where the layer has no key function.
    #[must_use]
    pub fn unkeyed(&self) -> &Budget {
        &self.0.one
    }

    /// The budget of a key, if there is one.
    #[must_use]
    pub fn budget(&self, key: &str) -> Option<Budget> {
        self.0.keyed.get(key).map(|cell| Budget::new(cell, 0))
    }

    /// The budget of a key, made with the layer's limit where there is none.
    ///
    /// # Errors
    ///
    /// When there is no room for another key: all that are there have spent something, have a limit of their own, or
    /// are in use; and for none of more than 4 KiB, which is as long as headers and tokens of credentials usually get.
    pub fn open(&self, key: impl Into<Arc<str>>) -> Result<Budget, KeysFull> {
        let (key, rules) = (key.into(), &self.0.rules);
        if key.len() > MAX_KEY {
            return self.0.keyed.turn_away().map(|cell| Budget::new(cell, 0));
        }
        let name = self.rules().shared.is_some().then(|| Arc::clone(&key));
        let made = || Cell::of_key(rules, self.0.at, name);
        self.0.keyed.get_or_insert_with(key, made).map(|cell| Budget::new(cell, 0))
    }

    /// Forgets a key and gives its last state. A session that has spent something is kept until this is called. Calls in flight go on
    /// and are settled into handles that are still held, but no longer into this ledger.
    pub fn close(&self, key: &str) -> Option<Snapshot> {
        self.0.keyed.remove(key).map(|cell| Budget::new(cell, 0).snapshot())
    }

    /// Tells the [store](crate::Store) what was spent, one budget after the other; renews the leases of those that are in use, and gives
    /// back the others. Without a store this does nothing. Call it now and then, more often than leases expire: what an account does
    /// not tell counts as spent then, until it does.
    ///
    /// # Errors
    ///
    /// The first failure of the store. The rest was tried all the same.
    pub async fn write_back(&self) -> Result<(), BoxError> {
        self.tell_store(Sparing::Idle).await
    }

    /// The same, and gives back all that is leased and not reserved: before a process ends. The next call leases anew.
    ///
    /// # Errors
    ///
    /// As [`write_back`](Self::write_back).
    pub async fn give_back(&self) -> Result<(), BoxError> {
        self.tell_store(Sparing::All).await
    }

    async fn tell_store(&self, sparing: Sparing) -> Result<(), BoxError> {
        if self.rules().shared.is_none() {
            return Ok(());
        }
        let keyed = self.entries().into_iter().map(|(_, budget)| budget);
        let mut all = Ok(());
        for budget in keyed.chain([self.unkeyed().clone()]) {
            // What has not been used has nothing to tell.
            if budget.has_leased() {
                all = all.and(budget.tell_store(sparing).await);
            }
        }
        all
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.keyed.len()
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.keyed.is_empty()
    }

    /// How often a new key was denied because there was no room.
    #[must_use]
    pub fn turned_away(&self) -> u64 {
        self.0.keyed.turned_away()
    }

    /// All keys with their budgets, in no order. This looks at everything.
    #[must_use]
    pub fn entries(&self) -> Vec<(Arc<str>, Budget)> {
        let entries = self.0.keyed.entries().into_iter();
        entries.map(|(key, cell)| (key, Budget::new(cell, 0))).collect()
    }

    /// Sets the gauges of the feature [`metrics`](crate::metrics), such as before a scrape; nothing without it. This looks at
    /// everything.
    pub fn publish(&self) {
        if cfg!(feature = "metrics") {
            let keyed = self.entries();
            let in_flight = keyed.iter().map(|(_, budget)| budget.reserved());
            let in_flight = in_flight.fold(self.0.one.reserved(), u64::saturating_add);
            self.rules().meters.publish(self.name(), in_flight, keyed.len());
        }
    }

    /// What all budgets that are kept spent together. This looks at everything.
    #[must_use]
    pub fn total(&self) -> Spend {
        let mut total = self.0.one.spend();
        for (_, budget) in self.entries() {
            total += budget.spend();
        }
        total
    }
}

impl fmt::Debug for Ledger {
    /// Without the keys, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger")
            .field("name", &self.rules().name)
            .field("unkeyed", &self.0.one)
            .field("keys", &self.0.keyed)
            .finish_non_exhaustive()
    }
}
