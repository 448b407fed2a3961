//! [`Allowance`]: a limit, over which time it holds, for whom, and what happens near its end.
//!
//! ```
//! use std::time::Duration;
//! use budget_layer::{Allowance, BudgetLayer, Window};
//!
//! let header = |name: &'static str| move |request: &http::Request<String>| {
//!     request.headers().get(name).map(|id| String::from_utf8_lossy(id.as_bytes()).into_owned()).unwrap_or_default()
//! };
//! // A session has 50 000 tokens, its tenant 5 $ in any hour, and the provider's own limit holds for all together.
//! let layer = BudgetLayer::builder()
//!     .key_fn(header("x-session"))
//!     .price(budget_layer::Price::new(3_000_000, 15_000_000))
//!     .also(Allowance::money(5_000_000).named("tenant").within(Window::sliding(Duration::from_secs(3_600))).key_fn(header("x-tenant")))
//!     .also(Allowance::calls(60).named("rpm").within(Window::sliding(Duration::from_secs(60))))
//!     .build()?;
//! assert_eq!(layer.ledgers().iter().map(|ledger| ledger.name()).collect::<Vec<_>>(), ["session", "tenant", "rpm"]);
//! # Ok::<(), failsoft_core::ConfigError>(())
//! ```

use std::{fmt, sync::Arc, time::Duration};

use failsoft_core::{ConfigError, DEFAULT_KEYS};

use crate::{
    KeyFn, Leases, Ledger, OneForAll, Unit, Window,
    account::{Lines, MAX_LINES, Pause, Rules},
    budget::SOFT_LINE,
    estimate::millis,
    leasing::Shared,
    metrics::Meters,
};

/// The limit of a session that is told nothing else, in tokens.
pub(crate) const SESSION: u64 = 50_000;

/// A limit on what calls spend together, see [`BudgetBuilder::also`](crate::BudgetBuilder::also). Until it is told otherwise it holds
/// for a lifetime, and for all calls together.
#[derive(Clone)]
#[must_use]
pub struct Allowance<K = OneForAll> {
    pub(crate) terms: Terms,
    pub(crate) keyed: K,
}

/// An allowance, but for its keys; `None` is the default.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) unit: Unit,
    pub(crate) limit: Option<u64>,
    pub(crate) name: Option<Arc<str>>,
    pub(crate) window: Option<Window>,
    pub(crate) soft_line: Option<f64>,
    pub(crate) alerts: Vec<f64>,
    pub(crate) closing_reserve: Option<u64>,
    pub(crate) per_call: Option<u64>,
    pub(crate) pause: Option<Pause>,
    pub(crate) heeds_quota: bool,
    pub(crate) max_keys: Option<usize>,
    pub(crate) shared: Option<Ledger>,
    pub(crate) store: Option<Leases>,
}

impl Allowance {
    /// So many tokens. 0 denies every call, here and below.
    pub fn tokens(limit: u64) -> Self {
        Self::of(Unit::Tokens, limit)
    }

    /// So much money, in millionths. Calls need a price, see [`BudgetBuilder::prices`](crate::BudgetBuilder::prices); one that has
    /// none is denied.
    pub fn money(limit: u64) -> Self {
        Self::of(Unit::Money, limit)
    }

    /// So many calls; each further attempt that a retry, a hedge or a fallback further in makes counts as one more. A call that a layer
    /// further in refuses counts for nothing.
    pub fn calls(limit: u64) -> Self {
        Self::of(Unit::Calls, limit)
    }

    /// So much time of calls, from their beginning to the end of their bodies; of two at the same time both count. In whole
    /// milliseconds.
    pub fn time(limit: Duration) -> Self {
        Self::of(Unit::Time, millis(limit))
    }

    /// So many calls at the same time, each to the end of its body.
    pub fn concurrent(limit: u64) -> Self {
        Self::of(Unit::Concurrent, limit)
    }

    /// The budgets of another layer, with their limits, their lines and their name: what a session's model uses and what its tools
    /// use is then one sum.
    pub fn shared(ledger: Ledger) -> Self {
        let unit = ledger.unit();
        Self { terms: Terms { limit: None, shared: Some(ledger), ..Terms::of(unit) }, keyed: OneForAll }
    }

    fn of(unit: Unit, limit: u64) -> Self {
        Self { terms: Terms { limit: Some(limit), ..Terms::of(unit) }, keyed: OneForAll }
    }
}

impl<K> Allowance<K> {
    /// What its budgets are called: the target of denials, and the label of events. Default: its unit, such as `tokens`. Not a key.
    pub fn named(mut self, name: impl Into<Arc<str>>) -> Self {
        self.terms.name = Some(name.into());
        self
    }

    /// Over which time the limit holds. Default: a lifetime.
    pub fn within(mut self, window: Window) -> Self {
        self.terms.window = Some(window);
        self
    }

    /// As [`BudgetBuilder::soft_line`](crate::BudgetBuilder::soft_line).
    pub const fn soft_line(mut self, share: f64) -> Self {
        self.terms.soft_line = Some(share);
        self
    }

    /// As [`BudgetBuilder::alert_at`](crate::BudgetBuilder::alert_at).
    pub fn alert_at(mut self, share: f64) -> Self {
        self.terms.alerts.push(share);
        self
    }

    /// As [`BudgetBuilder::closing_reserve`](crate::BudgetBuilder::closing_reserve), in this allowance's unit.
    pub const fn closing_reserve(mut self, amount: u64) -> Self {
        self.terms.closing_reserve = Some(amount);
        self
    }

    /// As [`BudgetBuilder::per_call`](crate::BudgetBuilder::per_call), in this allowance's unit.
    pub const fn per_call(mut self, most: u64) -> Self {
        self.terms.per_call = Some(most);
        self
    }

    /// As [`BudgetBuilder::pause_above`](crate::BudgetBuilder::pause_above), in this allowance's unit.
    pub const fn pause_above(mut self, most: u64, within: Duration, pause: Duration) -> Self {
        self.terms.pause = Some(Pause { most, within, pause });
        self
    }

    /// As [`BudgetBuilder::heed_quota_headers`](crate::BudgetBuilder::heed_quota_headers).
    #[cfg(feature = "http")]
    pub const fn heed_quota_headers(mut self) -> Self {
        self.terms.heeds_quota = true;
        self
    }

    /// As [`BudgetBuilder::max_keys`](crate::BudgetBuilder::max_keys).
    pub const fn max_keys(mut self, keys: usize) -> Self {
        self.terms.max_keys = Some(keys);
        self
    }

    /// As [`BudgetBuilder::store`](crate::BudgetBuilder::store).
    pub fn store(mut self, leases: Leases) -> Self {
        self.terms.store = Some(leases);
        self
    }

    /// Gives each key its own budget: a session, a tenant, a tool, a model. Default: one for all calls.
    pub fn key_fn<Req, O, F>(self, key: F) -> Allowance<KeyFn<F, O>>
    where
        F: Fn(&Req) -> O,
        O: Into<Arc<str>>,
    {
        Allowance { terms: self.terms, keyed: KeyFn::new(key) }
    }
}

impl Terms {
    pub(crate) const fn of(unit: Unit) -> Self {
        Self {
            unit,
            limit: None,
            name: None,
            window: None,
            soft_line: None,
            alerts: Vec::new(),
            closing_reserve: None,
            per_call: None,
            pause: None,
            heeds_quota: false,
            max_keys: None,
            shared: None,
            store: None,
        }
    }

    /// Checks everything.
    pub(crate) fn check(
        self,
        builder: &'static str,
        default_name: &'static str,
    ) -> Result<Checked, ConfigError> {
        let wrong = |field, value: &dyn fmt::Display, expected: &dyn fmt::Display| {
            Err(ConfigError::new(builder, field, value, expected))
        };
        if let Some(shared) = &self.shared {
            return match self.first_set() {
                None => Ok(Checked::Shared(shared.clone())),
                Some((field, value)) => {
                    wrong(field, &value, &"nothing, beside the `ledger` of another layer")
                }
            };
        }
        let limit = self.limit.unwrap_or(SESSION);
        let soft_line = self.soft_line.unwrap_or(SOFT_LINE);
        ConfigError::check_range(builder, "soft_line", soft_line, 0.0, 1.0)?;
        for &share in &self.alerts {
            ConfigError::check_range(builder, "alert_at", share, 0.0, 1.0)?;
        }
        if self.alerts.len() >= MAX_LINES {
            return wrong("alert_at", &self.alerts.len(), &format_args!("at most {} lines", MAX_LINES - 1));
        }
        let max_keys = self.max_keys.unwrap_or(DEFAULT_KEYS);
        if max_keys == 0 {
            return wrong("max_keys", &0, &"at least 1");
        }
        let closing_reserve = self.closing_reserve.unwrap_or(0);
        if closing_reserve > 0 && closing_reserve >= limit {
            return wrong("closing_reserve", &closing_reserve, &format_args!("less than the limit, {limit}"));
        }
        if self.per_call == Some(0) {
            return wrong("per_call", &0, &"at least 1");
        }
        let window = self.window.unwrap_or(const { Window::lifetime() });
        if !window.is_fit() {
            return wrong(
                "within",
                &format_args!("{window:?}"),
                &"a window of at least 1 ms and at most 10 years",
            );
        }
        if let Some(Pause { within, pause, .. }) = self.pause {
            if !Window::sliding(within).is_fit() || pause.is_zero() {
                let value = format_args!("within {within:?} for {pause:?}");
                return wrong(
                    "pause_above",
                    &value,
                    &"at least 1 ms and at most 10 years, for more than nothing",
                );
            }
            if self.unit == Unit::Concurrent {
                return wrong("pause_above", &"set", &"nothing: calls at once spend nothing");
            }
        }
        if self.unit == Unit::Concurrent && !window.is_lifetime() {
            return wrong(
                "within",
                &format_args!("{window:?}"),
                &"nothing: calls at once are counted at any time",
            );
        }
        if let Some(leases) = &self.store {
            leases.check(builder)?;
        }
        if self.heeds_quota && window.length().is_none() {
            return wrong("heed_quota_headers", &format_args!("with {window:?}"), &"a sliding window");
        }
        if self.heeds_quota && !matches!(self.unit, Unit::Tokens | Unit::Calls) {
            return wrong("heed_quota_headers", &format_args!("with {}", self.unit), &"tokens or calls");
        }
        let millionths = |share: &f64| (share * 1e6).round() as u32;
        let lines = [soft_line].iter().chain(&self.alerts).map(millionths).collect();
        let rules = Rules {
            name: self.name.unwrap_or_else(|| default_name.into()),
            unit: self.unit,
            window,
            limit,
            lines: Lines { millionths: lines, closing_reserve },
            per_call: self.per_call,
            pause: self.pause,
            heeds_quota: self.heeds_quota,
            meters: Meters::default(),
            shared: self.store.map(|leases| Shared::new(leases, limit)),
        };
        Ok(Checked::New(Box::new(rules), max_keys))
    }

    /// The budgets of another layer are as they are.
    fn first_set(&self) -> Option<(&'static str, String)> {
        let set = [
            ("name", self.name.as_ref().map(ToString::to_string)),
            ("tokens", self.limit.map(|limit| limit.to_string())),
            ("within", self.window.as_ref().map(|window| format!("{window:?}"))),
            ("soft_line", self.soft_line.map(|share| share.to_string())),
            ("alert_at", self.alerts.first().map(ToString::to_string)),
            ("closing_reserve", self.closing_reserve.map(|amount| amount.to_string())),
            ("per_call", self.per_call.map(|most| most.to_string())),
            ("pause_above", self.pause.map(|pause| pause.most.to_string())),
            ("store", self.store.as_ref().map(|_| "set".to_owned())),
            ("heed_quota_headers", self.heeds_quota.then(|| "set".to_owned())),
            ("max_keys", self.max_keys.map(|keys| keys.to_string())),
        ];
        set.into_iter().find_map(|(field, value)| Some((field, value?)))
    }
}

/// An allowance without a fault.
pub(crate) enum Checked {
    /// The budgets of another layer.
    Shared(Ledger),
    /// Budgets of its own, for so many keys.
    New(Box<Rules>, usize),
}

impl<K> fmt::Debug for Allowance<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allowance").field("terms", &self.terms).finish_non_exhaustive()
    }
}
