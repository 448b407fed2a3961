//! [`RetryBudget`]: how many retries there may be for the calls that are made.
//!
//! Without a budget, a target in outage gets every call several times, just when it can bear it least. With one, retries are at
//! most a fifth of the calls, and a few a second where there are hardly any calls.
//!
//! ```
//! use std::time::Duration;
//! use failsoft_core::Class;
//! use retry_layer::RetryBudget;
//!
//! let budget = RetryBudget::builder().ratio(0.1).min_per_sec(1.0).ttl(Duration::from_secs(5)).build()?;
//! let granted = (0..100).filter(|_| budget.try_withdraw(Class::Transient)).count();
//! assert_eq!(granted, 5);
//! # Ok::<(), failsoft_core::ConfigError>(())
//! ```
//!
//! A budget is a handle: its clones are the same budget, and several layers may share one.

use std::{fmt, sync::Arc, time::Duration};

use failsoft_core::{Class, ConfigError};
use tokio::time::Instant;

use bucket::{Bucket, Cap, Rules, TOKEN};
use place::Place;

mod bucket;
#[cfg(all(test, failsoft_loom))]
mod loom;
mod place;
#[cfg(all(test, not(failsoft_loom)))]
mod tests;
mod withdrawal;

pub use withdrawal::Withdrawal;

const NAME: &str = "RetryBudget";
/// The most tokens that any setting may speak of.
const MOST: f64 = 1e9;
/// A smaller ratio would be rounded by more than a percent.
const SMALLEST: f64 = 1e-7;

/// A lock-free token bucket that calls fill and retries empty.
///
/// By default each call brings 0.2 tokens and each retry costs one; 10 tokens a second come by themselves, those of 10 s are
/// there at the beginning, and no more is kept than about 10 s bring in both ways. (These are the defaults of Finagle's
/// `RetryBudget`.)
#[derive(Clone)]
pub struct RetryBudget(Arc<Shared>);

struct Shared {
    bucket: Bucket,
    deposit_on: Option<Deposit>,
    costs: Box<[(Class, i64)]>,
    /// A gRPC throttle charges every failure, and gives while more than this is left.
    throttle_above: Option<i64>,
    born: Instant,
}

/// What brings tokens into a [`RetryBudget`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Deposit {
    /// Each call, once, whatever its outcome: retries stay a fixed share of the calls. The default.
    PerRequest,
    /// Each success: in a full outage retries soon stop altogether.
    PerSuccess,
}

impl RetryBudget {
    /// A budget of the caller's own proportions.
    pub fn builder() -> RetryBudgetBuilder {
        RetryBudgetBuilder {
            ratio: 0.2,
            deposit_on: Deposit::PerRequest,
            min_per_sec: 10.0,
            ttl: Duration::from_secs(10),
            initial: None,
            cap: None,
            costs: Vec::new(),
        }
    }

    /// gRPC's retry throttle: begins with `max_tokens` (above 0, at most 1000); each failure that could be retried takes one,
    /// each success brings `token_ratio` (above 0, to three decimals); retries are allowed while more than half is left.
    ///
    /// # Errors
    ///
    /// Names the argument that is out of its range.
    pub fn grpc_throttle(max_tokens: f64, token_ratio: f64) -> Result<Self, ConfigError> {
        const NAME: &str = "RetryBudget::grpc_throttle";
        check(NAME, "max_tokens", max_tokens, 1e-3, 1e3)?;
        check(NAME, "token_ratio", token_ratio, 1e-3, 1e3)?;
        let max = tokens(max_tokens);
        // gRPC itself cuts further decimals off.
        let deposit = tokens((token_ratio * 1e3 + 1e-6).floor() / 1e3);
        let rules = Rules { deposit, initial: max, cap: Cap::Fixed(max), trickle: 0.0 };
        Ok(Self::of(rules, Some(Deposit::PerSuccess), Box::default(), Some(max / 2)))
    }

    fn of(
        rules: Rules,
        deposit_on: Option<Deposit>,
        costs: Box<[(Class, i64)]>,
        throttle_above: Option<i64>,
    ) -> Self {
        let bucket = Bucket::new(rules);
        Self(Arc::new(Shared { bucket, deposit_on, costs, throttle_above, born: Instant::now() }))
    }

    /// A call begins. Once for each call, not for each of its attempts.
    #[inline]
    pub fn on_request(&self) {
        if self.deposit_on() == Some(Deposit::PerRequest) {
            self.deposit();
        }
    }

    /// An attempt has succeeded.
    #[inline]
    pub fn on_success(&self) {
        if self.deposit_on() == Some(Deposit::PerSuccess) {
            self.deposit();
        }
    }

    /// What fills it, if anything does.
    #[inline]
    pub(crate) fn deposit_on(&self) -> Option<Deposit> {
        self.0.deposit_on
    }

    #[inline]
    pub(crate) fn deposit(&self) {
        self.0.bucket.deposit(Place::of_thread());
    }

    /// An attempt has failed in a way that could be retried, but for another reason it is not. Only a
    /// [gRPC throttle](Self::grpc_throttle) counts this.
    pub fn on_failure(&self) {
        if self.0.throttle_above.is_some() {
            self.0.bucket.charge(TOKEN, 0);
        }
    }

    /// Asks for a retry of an attempt that failed with this class, and takes its cost where there is enough. The
    /// [`Withdrawal`] gives it back if it is dropped before the retry was [sent](Withdrawal::sent).
    pub fn withdraw(&self, class: Class) -> Option<Withdrawal> {
        let Shared { bucket, costs, throttle_above, .. } = &*self.0;
        if let Some(above) = throttle_above {
            // It is the failure that costs, not the retry: there is nothing to give back.
            return (bucket.charge(TOKEN, 0) > *above).then(|| Withdrawal::new(self, 0));
        }
        let cost = costs.iter().rev().find(|(of, _)| *of == class).map_or(TOKEN, |(_, cost)| *cost);
        let now = if bucket.needs_time() { self.0.born.elapsed().as_nanos() } else { 0 };
        bucket.withdraw(cost, u64::try_from(now).unwrap_or(u64::MAX)).then(|| Withdrawal::new(self, cost))
    }

    /// Like [`withdraw`](Self::withdraw), for good.
    #[must_use = "a retry that was refused must not be made"]
    pub fn try_withdraw(&self, class: Class) -> bool {
        self.withdraw(class).map(|mut withdrawal| withdrawal.sent()).is_some()
    }

    /// The tokens that are there, without those that the time since the last retry has brought or expired.
    #[must_use]
    pub fn balance(&self) -> f64 {
        self.0.bucket.balance() as f64 / TOKEN as f64
    }
}

impl Default for RetryBudget {
    /// The default proportions, in a budget of its own.
    fn default() -> Self {
        RetryBudgetBuilder::budget(&Self::builder())
    }
}

impl fmt::Debug for RetryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(NAME).field("balance", &self.balance()).finish_non_exhaustive()
    }
}

/// Sets the proportions of a [`RetryBudget`].
#[derive(Clone, Debug)]
#[must_use = "no budget is made before `build`"]
pub struct RetryBudgetBuilder {
    ratio: f64,
    deposit_on: Deposit,
    min_per_sec: f64,
    ttl: Duration,
    initial: Option<f64>,
    cap: Option<f64>,
    costs: Vec<(Class, f64)>,
}

impl RetryBudgetBuilder {
    /// The tokens that each deposit brings: 0.2 by default, for one retry in five calls. 0, or from 10⁻⁷ to 1000.
    pub const fn ratio(mut self, ratio: f64) -> Self {
        self.ratio = ratio;
        self
    }

    /// What is a deposit. Default: each call.
    pub const fn deposit_on(mut self, deposit_on: Deposit) -> Self {
        self.deposit_on = deposit_on;
        self
    }

    /// The tokens a second that come without any deposit, for targets with few calls: 10 by default, 0 to 10⁹.
    pub const fn min_per_sec(mut self, min_per_sec: f64) -> Self {
        self.min_per_sec = min_per_sec;
        self
    }

    /// For how long tokens are kept, about: 10 s by default, above zero.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// The tokens at the beginning: by default what [`min_per_sec`](Self::min_per_sec) brings in [`ttl`](Self::ttl).
    pub const fn initial(mut self, tokens: f64) -> Self {
        self.initial = Some(tokens);
        self
    }

    /// A fixed cap, 0 to 10⁹ tokens, instead of what came in about the last [`ttl`](Self::ttl).
    pub const fn cap(mut self, tokens: f64) -> Self {
        self.cap = Some(tokens);
        self
    }

    /// The cost of a retry after a failure of this class: 1 by default, 0 to 10⁹.
    pub fn cost(mut self, class: Class, tokens: f64) -> Self {
        self.costs.push((class, tokens));
        self
    }

    /// Makes the budget.
    ///
    /// # Errors
    ///
    /// Names the setting that is no number or out of its range, or an `initial` above the `cap`.
    pub fn build(self) -> Result<RetryBudget, ConfigError> {
        if self.ratio != 0.0 {
            check(NAME, "ratio", self.ratio, SMALLEST, 1e3)?;
        }
        check(NAME, "min_per_sec", self.min_per_sec, 0.0, MOST)?;
        if self.ttl.is_zero() {
            return Err(ConfigError::new(NAME, "ttl", "0s", "a time above zero"));
        }
        check(NAME, "ttl", self.min_per_sec * self.ttl.as_secs_f64(), 0.0, MOST).map_err(|_| {
            ConfigError::new(NAME, "ttl", format_args!("{:?}", self.ttl), "less: it holds 10⁹ tokens")
        })?;
        if let Some(initial) = self.initial {
            check(NAME, "initial", initial, 0.0, MOST)?;
        }
        if let Some(cap) = self.cap {
            check(NAME, "cap", cap, 0.0, MOST)?;
            if self.first() > cap {
                return Err(ConfigError::new(
                    NAME,
                    "initial",
                    self.first(),
                    format_args!("at most cap, {cap}"),
                ));
            }
        }
        for (_, cost) in &self.costs {
            check(NAME, "cost", *cost, 0.0, MOST)?;
        }
        Ok(self.budget())
    }

    /// For settings that are known to be right.
    pub(crate) fn unchecked(self) -> RetryBudget {
        self.budget()
    }

    fn first(&self) -> f64 {
        self.initial.unwrap_or(self.min_per_sec * self.ttl.as_secs_f64())
    }

    fn budget(&self) -> RetryBudget {
        let span = u64::try_from(self.ttl.as_nanos()).unwrap_or(u64::MAX);
        let base = tokens(self.first().max(self.min_per_sec * self.ttl.as_secs_f64()));
        let rules = Rules {
            deposit: tokens(self.ratio),
            initial: tokens(self.first()),
            cap: self.cap.map_or(Cap::Recent { base, span }, |cap| Cap::Fixed(tokens(cap))),
            trickle: self.min_per_sec,
        };
        let costs = self.costs.iter().map(|(class, cost)| (*class, tokens(*cost))).collect();
        let deposit_on = (rules.deposit > 0).then_some(self.deposit_on);
        RetryBudget::of(rules, deposit_on, costs, None)
    }
}

fn check(
    builder: &'static str,
    field: &'static str,
    value: f64,
    min: f64,
    max: f64,
) -> Result<(), ConfigError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(ConfigError::new(builder, field, value, format_args!("a number from {min} to {max}")))
}

/// The cast saturates, and takes what is no number for zero.
fn tokens(tokens: f64) -> i64 {
    (tokens * TOKEN as f64).round() as i64
}
