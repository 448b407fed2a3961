//! [`Store`]: where budgets are kept that several processes spend from.
//!
//! Without one, an account is kept in memory, and has its whole limit to itself. With one, it has what the store has *leased* to
//! it: it reserves from that as it would from a limit, without asking anybody, and asks for more when a call does not fit. So
//! a call in a hundred waits for the store, and all processes together never spend more than there is.
//!
//! ```
//! use budget_layer::{Allowance, BudgetLayer, Leases, MemoryStore, StoreFailure};
//!
//! // Two processes in one, for the sake of an example; a store of your own talks to a database.
//! let store = MemoryStore::new();
//! let process = || {
//!     let leases = Leases::from(store.clone()).each(5_000).on_failure(StoreFailure::LocalCap(1_000));
//!     BudgetLayer::builder().also(Allowance::tokens(1_000_000).named("all").store(leases)).build()
//! };
//! let (one, other) = (process()?, process()?);
//! # let _ = (one, other);
//! # Ok::<(), failsoft_core::ConfigError>(())
//! ```
//!
//! # Leases
//!
//! | question | answer |
//! |---|---|
//! | who holds a lease | one account of one process, for as long as it lives: a [`Holder`] |
//! | what is leased | a part of what is there, out of reach for all others |
//! | what an account tells | what it has spent since it began, what it has reserved, and how much more it wants ([`Exchange`]): sums, not differences, so that an exchange that is lost or made twice does no harm |
//! | what an expiry means | its holder reserves nothing from the lease any more, and what it did not say counts as spent, because nobody knows what a process that died had sent. Of calls at once it is given back: they died too |
//! | what a holder that comes back can do | say what it really spent: then the rest is there again |
//! | what is written back | with each exchange, all that was spent until then; with [`Ledger::write_back`](crate::Ledger::write_back), now and then, also where no call comes; with [`Ledger::give_back`](crate::Ledger::give_back), at the end, the leases too |
//! | what is a failure | an error, or no answer within the [time](Leases::timeout): then [`StoreFailure`] decides |
//!
//! A further attempt that a retry, a hedge or a fallback makes further in cannot wait: it takes what is leased or is not made. So as
//! much is leased ahead as the largest attempt in flight has reserved, or a fifth of what all have, if that is more: a fifth of all calls is
//! what a retry's own budget lets it make again by default. Whenever less is left, a call in flight asks for it while its inner service is
//! at work. A further attempt is refused, although the store has more, where more than that fail at the same moment, where an attempt
//! fails sooner than the store answers, and where the lease has expired meanwhile.
//!
//! Calls that wait for a lease are served in the order in which they came: what the store gives is reserved for them when it comes.
//! Lines and limits are those of all processes together, as of the last exchange; what others hold counts there as used. What a
//! [`Budget`](crate::Budget) has spent, its [`Spend`](crate::Spend) and its pauses are those of its own process.

mod memory;
mod pool;

use std::{
    fmt,
    hash::{BuildHasher as _, RandomState},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use failsoft_core::{BoxError, ConfigError};

pub use self::memory::MemoryStore;
use crate::{Unit, Window};

/// Keeps budgets for several processes.
///
/// It counts what all have spent in the window, and what is leased to whom, for each [budget](Exchange::budget),
/// [key](Exchange::key) and [unit](Exchange::unit). [`MemoryStore`] is one whose source shows
/// the rules; they are few:
///
/// - the exchanges of one holder are numbered: one whose [number](Exchange::number) is not above the last is answered with how
///   things stand, and changes nothing;
/// - what its holder has spent since the last exchange is added to what all have spent, also beyond the limit; of one that it does not
///   know, what it has spent beyond [`told`](Exchange::told);
/// - the lease is then made anew, whatever it was before: at least [`reserved`](Exchange::reserved), and otherwise as much of
///   [`wants`](Exchange::wants) beyond it as the limit leaves, less what all have spent and what others hold;
/// - a lease that has expired counts as spent (of [`Unit::Concurrent`]: as nothing), until its holder tells what it really spent.
pub trait Store: Send + Sync + 'static {
    /// Takes in what a holder has spent, and leases to it what it wants, as far as it is there.
    ///
    /// # Errors
    ///
    /// The store cannot be asked. What becomes of the calls is the [`StoreFailure`]'s to say; the next exchange tells all that this
    /// one told.
    fn exchange(&self, exchange: Exchange) -> impl Future<Output = Result<Grant, BoxError>> + Send;
}

/// Who holds a lease: one account of one process, never the same again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Holder(u128);

impl Holder {
    pub(crate) fn new() -> Self {
        // Each is seeded at random.
        let half = || u128::from(RandomState::new().hash_one(std::process::id()));
        Self(half() << 64 | half())
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// What one holder tells a store of one budget, and wants of it. All amounts are in the unit.
#[derive(Clone)]
#[non_exhaustive]
pub struct Exchange {
    /// What the budget is called.
    pub budget: Arc<str>,
    /// Whose budget it is; `None` for the one of calls without a key.
    pub key: Option<Arc<str>>,
    /// What it counts.
    pub unit: Unit,
    /// Over which time the limit holds.
    pub window: Window,
    /// The limit, where nobody has set another.
    pub limit: u64,
    /// The limit from now on, for all holders: somebody has called [`Budget::set_limit`](crate::Budget::set_limit).
    pub set_limit: Option<u64>,
    /// Who tells this.
    pub holder: Holder,
    /// Counts the exchanges of this holder, from 1.
    pub number: u64,
    /// What it has spent since it began.
    pub spent: u64,
    /// What of that it has told before, in an exchange that was answered. Of a holder that the store knows nothing of, because it has
    /// forgotten it, or all that came before was lost, what is spent beyond this is new.
    pub told: u64,
    /// What it has reserved for calls in flight.
    pub reserved: u64,
    /// How much more it needs, at the least: what calls wait for.
    pub needs: u64,
    /// How much more it wants.
    pub wants: u64,
}

impl fmt::Debug for Exchange {
    /// Without the key, which may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange")
            .field("budget", &self.budget)
            .field("is_keyed", &self.key.is_some())
            .field("unit", &self.unit)
            .field("window", &self.window)
            .field("limit", &self.limit)
            .field("set_limit", &self.set_limit)
            .field("holder", &self.holder)
            .field("number", &self.number)
            .field("spent", &self.spent)
            .field("told", &self.told)
            .field("reserved", &self.reserved)
            .field("needs", &self.needs)
            .field("wants", &self.wants)
            .finish()
    }
}

/// What a store leases to a holder, and how things stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// So much may its holder spend from now on, what it has reserved included: all that is leased to it, not only what is new.
    pub leased: u64,
    /// For how long: at most ten years.
    pub lasts: Duration,
    /// The limit.
    pub limit: u64,
    /// What all have spent in the window, and what others hold.
    pub committed: u64,
    /// In how long there may be as much as is needed, where time alone brings it.
    pub renews_in: Option<Duration>,
}

impl Grant {
    /// A lease of so much for so long, of a budget with this limit, of which so much is committed without it.
    #[must_use]
    pub const fn new(leased: u64, lasts: Duration, limit: u64, committed: u64) -> Self {
        Self { leased, lasts, limit, committed, renews_in: None }
    }

    /// Says when there may be enough.
    #[must_use]
    pub const fn renewing_in(mut self, renews_in: Option<Duration>) -> Self {
        self.renews_in = renews_in;
        self
    }
}

/// What becomes of a call that does not fit into what is leased, while the store fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreFailure {
    /// It is denied, with a 503: nothing is ever overspent. The default.
    #[default]
    Deny,
    /// It passes, whatever it costs, for so long after the failures began; then it is denied until the store has answered. One such
    /// time an outage, which for each account lasts until the store has answered that one.
    Allow(Duration),
    /// Each account may spend so much beyond its lease, once an outage, as above; what goes beyond that is denied.
    LocalCap(u64),
}

/// Leases from a store, for [`BudgetBuilder::store`](crate::BudgetBuilder::store) and [`Allowance::store`](crate::Allowance::store).
#[derive(Clone)]
#[must_use]
pub struct Leases {
    pub(crate) store: Arc<dyn AnyStore>,
    pub(crate) each: Option<u64>,
    pub(crate) timeout: Duration,
    pub(crate) ask_again: Duration,
    pub(crate) on_failure: StoreFailure,
}

impl<S: Store> From<S> for Leases {
    fn from(store: S) -> Self {
        Self {
            store: Arc::new(store),
            each: None,
            timeout: Duration::from_secs(1),
            ask_again: Duration::from_secs(1),
            on_failure: StoreFailure::default(),
        }
    }
}

impl Leases {
    /// How much is leased at once, beyond what calls wait for: at least 1. The larger, the less often a call waits for the store;
    /// the more is out of reach for others, and lost for the budget where a process dies. Where further attempts of the calls in flight
    /// [may need](self) more than that, it is as much as those may need. Default: a hundredth of the limit, at least 1: with ten
    /// processes, nine tenths of the budget are spent before any is refused what another holds.
    pub const fn each(mut self, amount: u64) -> Self {
        self.each = Some(amount);
        self
    }

    /// A store that has not answered for so long has failed. More than 0; default 1 s, which a call to a model hides.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How soon a store that has failed, or had not enough, is asked again by the next call that does not fit; until then such calls
    /// are answered without it. Default 1 s. 0: at once.
    pub const fn ask_again(mut self, after: Duration) -> Self {
        self.ask_again = after;
        self
    }

    /// What becomes of calls while the store fails. Default: [`StoreFailure::Deny`].
    pub const fn on_failure(mut self, policy: StoreFailure) -> Self {
        self.on_failure = policy;
        self
    }

    pub(crate) fn check(&self, builder: &'static str) -> Result<(), ConfigError> {
        if self.each == Some(0) {
            return Err(ConfigError::new(builder, "store.each", 0, "at least 1"));
        }
        if self.timeout.is_zero() {
            return Err(ConfigError::new(builder, "store.timeout", "0s", "more than 0"));
        }
        Ok(())
    }
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leases")
            .field("each", &self.each)
            .field("timeout", &self.timeout)
            .field("ask_again", &self.ask_again)
            .field("on_failure", &self.on_failure)
            .finish_non_exhaustive()
    }
}

/// A lease that lasts longer lasts so long: a time that no clock can tell is over at once.
pub(crate) const LONGEST: Duration = Duration::from_secs(10 * 366 * 86_400);

pub(crate) type Exchanging = Pin<Box<dyn Future<Output = Result<Grant, BoxError>> + Send>>;

/// A store of any type. Boxed, because few calls come here.
pub(crate) trait AnyStore: Send + Sync {
    fn exchange(self: Arc<Self>, exchange: Exchange) -> Exchanging;
}

impl<S: Store> AnyStore for S {
    fn exchange(self: Arc<Self>, exchange: Exchange) -> Exchanging {
        Box::pin(async move { Store::exchange(&*self, exchange).await })
    }
}
