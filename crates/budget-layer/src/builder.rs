//! The builder of a layer.

use std::{fmt, sync::Arc};

use failsoft_core::{ByResponse, ConfigError, DEFAULT_KEYS};

use crate::{
    AllPass, BudgetLayer, Estimate, EstimateFn, FromRequest, KeyFn, Ledger, OneForAll, PassFn,
    account::Lines, budget::SOFT_LINE, estimate::Fixed,
};

const BUILDER: &str = "BudgetLayer";

/// The limit of a session that is told nothing else, in tokens.
const SESSION: u64 = 50_000;

/// Makes a [`BudgetLayer`]; [`build`](Self::build) checks.
///
/// ```
/// use budget_layer::BudgetLayer;
///
/// let layer = BudgetLayer::builder()
///     .name("session")
///     .tokens(20_000)
///     .key_fn(|request: &http::Request<String>| match request.headers().get("x-session") {
///         Some(id) => String::from_utf8_lossy(id.as_bytes()).into_owned(),
///         None => String::new(),
///     })
///     .allow_restricted(|request: &http::Request<String>| request.method() == http::Method::GET)
///     .closing_reserve(2_000)
///     .build()?;
/// # let _ = layer;
///
/// let err = BudgetLayer::builder().soft_line(1.2).build().unwrap_err();
/// assert_eq!(err.to_string(), "BudgetLayer: `soft_line` is 1.2, expected a number from 0 to 1");
/// # Ok::<(), failsoft_core::ConfigError>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct BudgetBuilder<K = OneForAll, E = FromRequest, R = AllPass, C = ByResponse> {
    budgets: Budgets,
    cut_in_full: bool,
    keyed: K,
    estimator: E,
    pass_soft: R,
    classify: C,
}

/// What is set of the budgets themselves; `None` is the default.
#[derive(Clone, Debug, Default)]
struct Budgets {
    name: Option<Arc<str>>,
    tokens: Option<u64>,
    soft_line: Option<f64>,
    closing_reserve: Option<u64>,
    max_keys: Option<usize>,
    shared: Option<Ledger>,
}

impl BudgetBuilder {
    pub(crate) fn new() -> Self {
        Self {
            budgets: Budgets::default(),
            cut_in_full: false,
            keyed: OneForAll,
            estimator: FromRequest::new(),
            pass_soft: AllPass,
            classify: ByResponse,
        }
    }
}

/// The same builder with one of its parts replaced.
macro_rules! with {
    ($this:ident, $($part:ident: $value:expr),+) => {{
        let Self { budgets, cut_in_full, .. } = $this;
        BudgetBuilder { budgets, cut_in_full, $($part: $value),+ }
    }};
}

impl<K, E, R, C> BudgetBuilder<K, E, R, C> {
    /// What the budgets are called: the target of denials, and the label of events. Default `session`. Not a key.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.budgets.name = Some(name.into());
        self
    }

    /// The limit of each budget, in tokens; 0 denies every call. Default 50 000. A single budget's can be changed while it runs:
    /// [`Budget::set_limit`](crate::Budget::set_limit).
    pub fn tokens(mut self, limit: u64) -> Self {
        self.budgets.tokens = Some(limit);
        self
    }

    /// At which share of the limit, without the closing reserve, calls are restricted: 0 to 1. Default 0.85. Reservations of
    /// calls in flight count as used.
    pub fn soft_line(mut self, share: f64) -> Self {
        self.budgets.soft_line = Some(share);
        self
    }

    /// Keeps the last part of the limit, in tokens, for calls that are marked [`Mark::Final`](failsoft_core::Mark::Final): the
    /// one in which a session concludes. Such calls also pass the soft line. Default 0; must be less than the limit.
    pub fn closing_reserve(mut self, tokens: u64) -> Self {
        self.budgets.closing_reserve = Some(tokens);
        self
    }

    /// For how many keys there are budgets: at least 1. Default 10 000. The least recently used goes for a new one, but never one
    /// that has spent something or has a limit of its own; when none can go, the calls of new keys are denied. See
    /// [`Ledger::close`].
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.budgets.max_keys = Some(keys);
        self
    }

    /// Charges the budgets of another layer, with their limits, their lines and their name: what a session's model uses and what
    /// its tools use is then one sum. Default: budgets of its own.
    pub fn ledger(mut self, ledger: Ledger) -> Self {
        self.budgets.shared = Some(ledger);
        self
    }

    /// Books a call that is cut off, or that its caller drops, with at least its whole estimate. Default: its input, and the output
    /// that was seen, which leaves out what the provider wrote while nobody read.
    pub fn charge_cut_in_full(mut self) -> Self {
        self.cut_in_full = true;
        self
    }

    /// Gives each key its own budget: a session, a tenant, a tool. Default: one budget for all calls.
    pub fn key_fn<Req, O, F>(self, key: F) -> BudgetBuilder<KeyFn<F, O>, E, R, C>
    where
        F: Fn(&Req) -> O,
        O: Into<Arc<str>>,
    {
        let Self { estimator, pass_soft, classify, .. } = self;
        with!(self, keyed: KeyFn::new(key), estimator: estimator, pass_soft: pass_soft, classify: classify)
    }

    /// Estimates what a call costs in all, in tokens, by a function of the request. At least 1 is counted. Default:
    /// [`FromRequest`].
    pub fn estimate<Req, F>(self, estimate: F) -> BudgetBuilder<K, EstimateFn<F>, R, C>
    where
        F: Fn(&Req) -> u64,
    {
        self.estimator(EstimateFn::new(estimate))
    }

    /// Estimates the same for every call, in tokens.
    pub fn estimate_fixed(self, tokens: u64) -> BudgetBuilder<K, Fixed, R, C> {
        self.estimator(Fixed(Estimate::whole(tokens)))
    }

    /// Estimates with an [`Estimator`](crate::Estimator), which may tell input and output apart.
    pub fn estimator<F>(self, estimator: F) -> BudgetBuilder<K, F, R, C> {
        let Self { keyed, pass_soft, classify, .. } = self;
        with!(self, keyed: keyed, estimator: estimator, pass_soft: pass_soft, classify: classify)
    }

    /// Past the soft line only calls pass for which this is true, such as those that only read or cost nothing; the others are
    /// denied. Default: all pass, and the crossing is told as an event.
    pub fn allow_restricted<Req, F>(self, passes: F) -> BudgetBuilder<K, E, PassFn<F>, C>
    where
        F: Fn(&Req) -> bool,
    {
        let Self { keyed, estimator, classify, .. } = self;
        with!(self, keyed: keyed, estimator: estimator, pass_soft: PassFn::new(passes), classify: classify)
    }

    /// Who says what an outcome means. Default: [`ByResponse`], for `http::Response` and `reqwest::Response`; plain values
    /// take [`ErrorsOnly`](failsoft_core::ErrorsOnly) or [`classify_fn`](failsoft_core::classify_fn()).
    pub fn classify<D>(self, classify: D) -> BudgetBuilder<K, E, R, D> {
        let Self { keyed, estimator, pass_soft, .. } = self;
        with!(self, keyed: keyed, estimator: estimator, pass_soft: pass_soft, classify: classify)
    }

    /// Checks everything and makes the budgets.
    ///
    /// # Errors
    ///
    /// Names the first setting that is out of its range or contradicts another.
    pub fn build(self) -> Result<BudgetLayer<K, E, R, C>, ConfigError> {
        Ok(BudgetLayer {
            ledger: self.budgets.build()?,
            cut_in_full: self.cut_in_full,
            keyed: self.keyed,
            estimator: self.estimator,
            pass_soft: self.pass_soft,
            classify: self.classify,
        })
    }
}

impl Budgets {
    fn build(self) -> Result<Ledger, ConfigError> {
        if let Some(shared) = &self.shared {
            return self.nothing_set().map(|()| shared.clone());
        }
        let limit = self.tokens.unwrap_or(SESSION);
        let soft_line = self.soft_line.unwrap_or(SOFT_LINE);
        ConfigError::check_range(BUILDER, "soft_line", soft_line, 0.0, 1.0)?;
        let max_keys = self.max_keys.unwrap_or(DEFAULT_KEYS);
        if max_keys == 0 {
            return Err(ConfigError::new(BUILDER, "max_keys", 0, "at least 1"));
        }
        let closing_reserve = self.closing_reserve.unwrap_or(0);
        if closing_reserve > 0 && closing_reserve >= limit {
            let expected = format_args!("less than `tokens`, {limit}");
            return Err(ConfigError::new(BUILDER, "closing_reserve", closing_reserve, expected));
        }
        let name = self.name.unwrap_or_else(|| "session".into());
        let lines = Lines { soft_millionths: (soft_line * 1e6).round() as u32, closing_reserve };
        Ok(Ledger::new(name, limit, lines, max_keys))
    }

    /// The budgets of another layer are as they are.
    fn nothing_set(&self) -> Result<(), ConfigError> {
        let set = [
            ("name", self.name.as_ref().map(ToString::to_string)),
            ("tokens", self.tokens.map(|tokens| tokens.to_string())),
            ("soft_line", self.soft_line.map(|share| share.to_string())),
            ("closing_reserve", self.closing_reserve.map(|tokens| tokens.to_string())),
            ("max_keys", self.max_keys.map(|keys| keys.to_string())),
        ];
        match set.into_iter().find_map(|(field, value)| Some((field, value?))) {
            None => Ok(()),
            Some((field, value)) => {
                Err(ConfigError::new(BUILDER, field, value, "nothing, beside the `ledger` of another layer"))
            }
        }
    }
}

impl<K, E, R, C> fmt::Debug for BudgetBuilder<K, E, R, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BudgetBuilder")
            .field("budgets", &self.budgets)
            .field("charge_cut_in_full", &self.cut_in_full)
            .finish_non_exhaustive()
    }
}
