//! The builder of a layer.

use std::{fmt, sync::Arc, time::Duration};

use failsoft_core::{ByResponse, ConfigError};

use crate::{
    AllPass, Allowance, And, Book, BudgetLayer, Estimate, EstimateFn, FromRequest, KeyFn, Labelled, Labels,
    LearnBy, Leases, Ledger, OneForAll, PassFn, Price, Priced, Unit, Window,
    account::{Pause, Rules},
    allowance::{Checked, Terms},
    estimate::{Fixed, millis},
    parts::MAX_PARTS,
};

const BUILDER: &str = "BudgetLayer";

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
    /// What holds of the first budget is set on the builder itself.
    first: Terms,
    more: Vec<Terms>,
    options: Options,
    book: Option<Book>,
    keyed: K,
    estimator: E,
    pass_soft: R,
    classify: C,
}

/// What holds of all budgets of a layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) cut_in_full: bool,
    /// Past a limit, a call goes on to routes that cost nothing.
    pub(crate) free_routes: bool,
    /// What a call without a price costs; none: it is denied.
    pub(crate) unpriced: Option<Price>,
    /// How long a call may take that says nothing of it, in milliseconds.
    pub(crate) time: u64,
    /// How long a call may wait for its turn.
    pub(crate) wait: Option<Duration>,
    /// How many may wait for one budget.
    pub(crate) max_waiting: usize,
    /// Some budget is tightened by what servers say.
    pub(crate) heeds_quota: bool,
    /// Some budget is leased from a store.
    pub(crate) leases: bool,
}

/// So many wait for one budget, unless it is told otherwise.
const MAX_WAITING: usize = 1_000;

/// How long a call may take that says nothing of it: what most calls of models stay below.
const TIME: Duration = Duration::from_secs(30);

impl BudgetBuilder {
    pub(crate) fn new() -> Self {
        Self {
            first: Terms::of(Unit::Tokens),
            more: Vec::new(),
            options: Options {
                cut_in_full: false,
                free_routes: false,
                unpriced: None,
                time: millis(TIME),
                wait: None,
                max_waiting: MAX_WAITING,
                heeds_quota: false,
                leases: false,
            },
            book: None,
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
        let Self { first, more, options, book, .. } = $this;
        BudgetBuilder { first, more, options, book, $($part: $value),+ }
    }};
}

impl<K, E, R, C> BudgetBuilder<K, E, R, C> {
    /// What the budgets are called: the target of denials, and the label of events. Default `session`. Not a key.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.first.name = Some(name.into());
        self
    }

    /// The limit of each budget, in tokens; 0 denies every call. Default 50 000. A single budget's can be changed while it runs:
    /// [`Budget::set_limit`](crate::Budget::set_limit).
    pub fn tokens(self, limit: u64) -> Self {
        self.limit(Unit::Tokens, limit)
    }

    /// Counts money instead, in millionths: see [`Allowance::money`].
    pub fn money(self, limit: u64) -> Self {
        self.limit(Unit::Money, limit)
    }

    /// Counts calls instead: see [`Allowance::calls`].
    pub fn calls(self, limit: u64) -> Self {
        self.limit(Unit::Calls, limit)
    }

    /// Counts the time of calls instead: see [`Allowance::time`].
    pub fn time(self, limit: Duration) -> Self {
        self.limit(Unit::Time, millis(limit))
    }

    /// Counts calls at the same time instead: see [`Allowance::concurrent`].
    pub fn concurrent(self, limit: u64) -> Self {
        self.limit(Unit::Concurrent, limit)
    }

    fn limit(mut self, unit: Unit, limit: u64) -> Self {
        (self.first.unit, self.first.limit) = (unit, Some(limit));
        self
    }

    /// Over which time the limit holds. Default: a lifetime.
    pub fn within(mut self, window: Window) -> Self {
        self.first.window = Some(window);
        self
    }

    /// Charges each call to one budget more: it is admitted by all of them or by none. At most 8 in all.
    pub fn also<K2>(self, allowance: Allowance<K2>) -> BudgetBuilder<And<K, K2>, E, R, C> {
        let Allowance { terms, keyed: second } = allowance;
        let Self { first, mut more, options, book, keyed, estimator, pass_soft, classify } = self;
        more.push(terms);
        BudgetBuilder {
            first,
            more,
            options,
            book,
            keyed: And(keyed, second),
            estimator,
            pass_soft,
            classify,
        }
    }

    /// Tells, as an event, when this share of the limit without the closing reserve is used up: 0 to 1. As often as it is called, up
    /// to 15 lines; each is told once, until the window renews or the limit is raised.
    pub fn alert_at(mut self, share: f64) -> Self {
        self.first.alerts.push(share);
        self
    }

    /// No single call may reserve more than this, its further attempts included. At least 1. Default: no such limit.
    pub fn per_call(mut self, most: u64) -> Self {
        self.first.per_call = Some(most);
        self
    }

    /// Pauses a budget for `pause` once more than `most` was spent within `within`: a loop that has run wild. Only calls that are
    /// marked final pass then. See [`Budget::resume`](crate::Budget::resume). Default: never.
    pub fn pause_above(mut self, most: u64, within: Duration, pause: Duration) -> Self {
        self.first.pause = Some(Pause { most, within, pause });
        self
    }

    /// Lets a call wait for its turn where time, or the end of another call, brings what it needs: over a sliding window or a calendar,
    /// and for a place among the calls at once. At most so long, never beyond the deadline of its [`Call`](failsoft_core::Call), and not at all where
    /// it is known that that will not do. First come, first served, but each within its own budgets. Default: it is denied at once.
    pub fn wait(mut self, most: Duration) -> Self {
        self.options.wait = Some(most);
        self
    }

    /// How many calls may wait for one budget; those that come after are denied. Default 1 000.
    pub fn max_waiting(mut self, calls: usize) -> Self {
        self.options.max_waiting = calls;
        self
    }

    /// Says that there are routes further in that cost nothing: a call for which there is not enough is not denied, but goes on with
    /// [`Mark::FreeOnly`](failsoft_core::Mark::FreeOnly), by which a fallback takes only those. It reserves nothing and is charged
    /// nothing. Default: it is denied.
    pub fn free_routes(mut self) -> Self {
        self.options.free_routes = true;
        self
    }

    /// The price of every call's tokens, for budgets of money.
    pub fn price(mut self, price: Price) -> Self {
        self.options.unpriced = Some(price);
        self
    }

    /// How long a call may take, for budgets of time, where its [`Estimate`] does not say. Default 30 s.
    pub fn time_estimate(mut self, time: Duration) -> Self {
        self.options.time = millis(time).max(1);
        self
    }

    /// The price of each call's tokens by a function of the request, such as by its model. One for which this is `None` costs
    /// [`price`](Self::price); without that it is denied: nothing is free because nobody knows what it costs. Call it after the
    /// estimate was chosen.
    pub fn prices<Req, F>(self, price: F) -> BudgetBuilder<K, Priced<E, F>, R, C>
    where
        F: Fn(&Req) -> Option<Price>,
    {
        let Self { keyed, estimator, pass_soft, classify, .. } = self;
        let estimator = Priced::new(estimator, price);
        with!(self, keyed: keyed, estimator: estimator, pass_soft: pass_soft, classify: classify)
    }

    /// At which share of the limit, without the closing reserve, calls are restricted: 0 to 1. Default 0.85. Reservations of
    /// calls in flight count as used.
    pub fn soft_line(mut self, share: f64) -> Self {
        self.first.soft_line = Some(share);
        self
    }

    /// Keeps the last part of the limit, in tokens, for calls that are marked [`Mark::Final`](failsoft_core::Mark::Final): the
    /// one in which a session concludes. Such calls also pass the soft line. Default 0; must be less than the limit.
    pub fn closing_reserve(mut self, tokens: u64) -> Self {
        self.first.closing_reserve = Some(tokens);
        self
    }

    /// Lets what the server says in its answers make the limit tighter, never looser: a sliding window of tokens or calls then lets no more
    /// through than the server has left (`x-ratelimit-remaining-tokens`, `anthropic-ratelimit-requests-remaining` and the like, see
    /// [`failsoft_core::advice::remaining`]), until the reset that it names, or for the length of the window where that is shorter or
    /// none is named. What was reserved since the call whose answer says so is subtracted. Calls wait, or are denied, as
    /// over any window. What stands in for an answer, such as another route's or a cached one, is not looked at. Default: no headers are.
    #[cfg(feature = "http")]
    pub fn heed_quota_headers(mut self) -> Self {
        self.first.heeds_quota = true;
        self
    }

    /// For how many keys there are budgets: at least 1. Default 10 000. The least recently used goes for a new one, but never one
    /// that has spent something or has a limit of its own; when none can go, the calls of new keys are denied. See
    /// [`Ledger::close`].
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.first.max_keys = Some(keys);
        self
    }

    /// Charges the budgets of another layer, with their limits, their lines and their name: what a session's model uses and what
    /// its tools use is then one sum. Default: budgets of its own.
    pub fn ledger(mut self, ledger: Ledger) -> Self {
        self.first.shared = Some(ledger);
        self
    }

    /// Leases its budgets from a [`Store`](crate::Store), which several processes share, by their name and their keys: see the module
    /// [`store`](crate::store). The limit is then that of all together. Default: each budget is in memory, and has its limit to itself.
    pub fn store(mut self, leases: Leases) -> Self {
        self.first.store = Some(leases);
        self
    }

    /// Books a call that is cut off, or that its caller drops, with at least its whole estimate. Default: its input, and the output
    /// that was seen, which leaves out what the provider wrote while nobody read.
    pub fn charge_cut_in_full(mut self) -> Self {
        self.options.cut_in_full = true;
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

    /// Writes into a [`Book`] what each call spends, under what a function of the request says: its tool, its model, a route. The session
    /// is the key, unless that function says another; the route is the one whose answer was read, where the reader says it. Call it after
    /// [`key_fn`](Self::key_fn). Default: only the sums of each budget are kept, see [`Spend`](crate::Spend).
    pub fn book<Req, F>(mut self, book: Book, labels: F) -> BudgetBuilder<Labelled<K, F>, E, R, C>
    where
        F: Fn(&Req) -> Labels,
    {
        self.book = Some(book);
        let Self { first, more, options, book, keyed, estimator, pass_soft, classify } = self;
        BudgetBuilder {
            first,
            more,
            options,
            book,
            keyed: Labelled(keyed, labels),
            estimator,
            pass_soft,
            classify,
        }
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

    /// Learns how long answers are by a function of the request, such as by its agent or tool, and no longer by its model. Of those only
    /// whose length the estimate guesses: with [`FromRequest`], where nothing limits it. Call it after the estimate was chosen.
    pub fn learn_by<Req, O, F>(self, key: F) -> BudgetBuilder<K, LearnBy<E, F>, R, C>
    where
        F: Fn(&Req) -> O,
        O: AsRef<str>,
    {
        let Self { keyed, estimator, pass_soft, classify, .. } = self;
        let estimator = LearnBy::new(estimator, key);
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
        if self.more.len() >= MAX_PARTS {
            let expected = format_args!("at most {MAX_PARTS} budgets");
            return Err(ConfigError::new(BUILDER, "also", self.more.len() + 1, expected));
        }
        let Self { first, more, options, book, keyed, estimator, pass_soft, classify } = self;
        let mut checked = vec![first.check(BUILDER, "session")?];
        for terms in more {
            let name = terms.unit.name();
            checked.push(terms.check("Allowance", name)?);
        }
        let mut ledgers: Vec<Ledger> = Vec::new();
        for ledger in ledgers_of(checked) {
            if ledgers.iter().any(|other| ledger.is(other)) {
                return Err(ConfigError::new(
                    BUILDER,
                    "also",
                    ledger.name(),
                    "budgets that are not there already",
                ));
            }
            let leases_as = |other: &&Ledger| other.rules().shared.is_some() && other.name() == ledger.name();
            if ledger.rules().shared.is_some() && ledgers.iter().any(|other| leases_as(&other)) {
                let expected = "another name: budgets of one name lease from one in the store";
                return Err(ConfigError::new(BUILDER, "named", ledger.name(), expected));
            }
            ledgers.push(ledger);
        }
        Ok(BudgetLayer::new(ledgers, options, book, keyed, estimator, pass_soft, classify))
    }
}

failsoft_core::unbuilt!([K, E, R, C] BudgetBuilder<K, E, R, C>);

/// Makes those that are new, together, and leaves all in their order.
fn ledgers_of(checked: Vec<Checked>) -> Vec<Ledger> {
    let mut new: Vec<(Rules, usize)> = Vec::new();
    let shared: Vec<Option<Ledger>> = checked
        .into_iter()
        .map(|checked| match checked {
            Checked::Shared(ledger) => Some(ledger),
            Checked::New(rules, max_keys) => {
                new.push((*rules, max_keys));
                None
            }
        })
        .collect();
    let mut new = Ledger::together(new).into_iter();
    shared.into_iter().filter_map(|shared| shared.or_else(|| new.next())).collect()
}

impl<K, E, R, C> fmt::Debug for BudgetBuilder<K, E, R, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BudgetBuilder")
            .field("first", &self.first)
            .field("more", &self.more)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
