use std::{fmt, sync::Arc, time::Duration};

use failsoft_core::{Auto, ByResponse, ConfigError};

use super::policy::{Policy, Shared};
use crate::{HedgeLayer, RetryBudget};

const NAME: &str = "HedgeLayer";

/// Below this a client's own scheduling looks like a slow target, and tokio's timer does not tell two times apart.
const MIN_DELAY: Duration = Duration::from_millis(10);
/// "The Tail at Scale" (Dean and Barroso, 2013): about 5 % more requests take most of the tail away.
const QUANTILE: f64 = 0.95;
/// A higher quantile is known only after tens of thousands of calls.
const QUANTILES: (f64, f64) = (0.5, 0.999);
const MIN_CALLS: u32 = 100;
/// More copies of one request at once are an attack.
const MOST_HEDGES: u32 = 8;

/// Sets up a [`HedgeLayer`]. Nothing is checked before [`build`](Self::build).
///
/// ```
/// use std::time::Duration;
/// use retry_layer::{HedgeLayer, RetryBudget, RetryLayer};
///
/// // One budget for the retries and the hedges in front of one target.
/// let budget = RetryBudget::default();
/// let retry = RetryLayer::builder().budget(budget.clone()).build()?;
/// let hedge = HedgeLayer::builder()
///     .delay(Duration::from_secs(3)) // until a quantile is known
///     .quantile(0.95)
///     .repeat_unanswered(true) // chat completions: to ask twice costs twice, and does no harm
///     .shared_budget(budget)
///     .build()?;
/// # let _ = (retry, hedge);
/// # Ok::<(), failsoft_core::ConfigError>(())
/// ```
#[derive(Clone)]
#[must_use = "nothing is made before `build`"]
pub struct HedgeBuilder<C = ByResponse, R = Auto> {
    policy: Policy,
    classify: C,
    replay: R,
}

impl Default for HedgeBuilder {
    fn default() -> Self {
        let policy = Policy {
            delay: None,
            quantile: None,
            min_calls: MIN_CALLS,
            min_delay: MIN_DELAY,
            max_hedges: 1,
            budget: Some(RetryBudget::default()),
            deposits: true,
            repeat_unanswered: false,
            target: None,
        };
        Self { policy, classify: ByResponse, replay: Auto }
    }
}

impl<C, R> HedgeBuilder<C, R> {
    /// A fixed time after which a call that has no answer is sent once more; with zero, at once. Together with
    /// [`quantile`](Self::quantile) it counts until that is known. Default: none.
    pub const fn delay(mut self, delay: Duration) -> Self {
        self.policy.delay = Some(delay);
        self
    }

    /// Sends a call once more when it takes longer than this share of the calls before: of the first attempts of the last 500
    /// to 1000 calls that were answered (more, for a share above 0.98). From 0.5 to 0.999; default 0.95 if there is no
    /// [`delay`](Self::delay), as in "The Tail at Scale" (Dean and Barroso, 2013): about 5 % more requests.
    ///
    /// The estimate is at most a sixteenth too long and never too short. A first attempt that another overtook counts with
    /// the time it had taken by then, so that hedging does not make its own delay shorter and shorter.
    pub const fn quantile(mut self, share: f64) -> Self {
        self.policy.quantile = Some(share);
        self
    }

    /// How many answers must have come before a [`quantile`](Self::quantile) is known; at least as many as let one lie
    /// beyond it. Default 100.
    pub const fn min_calls(mut self, calls: u32) -> Self {
        self.policy.min_calls = calls;
        self
    }

    /// The shortest delay that a [`quantile`](Self::quantile) gives. Default 10 ms: below that, a client's own scheduling
    /// looks like a slow target.
    pub const fn min_delay(mut self, delay: Duration) -> Self {
        self.policy.min_delay = delay;
        self
    }

    /// The requests that a call may send beside its first, one after each delay: 0 to 8, default 1.
    pub const fn max_hedges(mut self, hedges: u32) -> Self {
        self.policy.max_hedges = hedges;
        self
    }

    /// The budget that hedges are taken from, and calls bring tokens into: clones of one let the layers in front of one target
    /// share it. Default: one of the layer's own, see [`RetryBudget`]. Empty: no hedge, and the first attempt goes on.
    pub fn budget(mut self, budget: RetryBudget) -> Self {
        self.policy.budget = Some(budget);
        self.policy.deposits = true;
        self
    }

    /// The budget of a [`RetryLayer`](crate::RetryLayer) around or inside of this layer: hedges are taken from it, and the
    /// calls' tokens are left to that layer, which sees the same calls.
    pub fn shared_budget(mut self, budget: RetryBudget) -> Self {
        self.policy.budget = Some(budget);
        self.policy.deposits = false;
        self
    }

    /// No budget: when the target is slow for everybody, every call is sent [`max_hedges`](Self::max_hedges) times more.
    pub fn without_budget(mut self) -> Self {
        self.policy.budget = None;
        self
    }

    /// Says that sending a request twice does no harm. Default no: then only those are hedged that say so themselves, such as
    /// a GET, or a POST with an `Idempotency-Key`.
    pub const fn repeat_unanswered(mut self, harmless: bool) -> Self {
        self.policy.repeat_unanswered = harmless;
        self
    }

    /// The target's name in trails and events. Default: the request's authority.
    pub fn target(mut self, name: impl Into<Arc<str>>) -> Self {
        self.policy.target = Some(name.into());
        self
    }

    /// Who gives outcomes their verdict. Default [`ByResponse`], for HTTP responses; for plain values
    /// [`ErrorsOnly`](failsoft_core::ErrorsOnly) or [`classify_fn`](failsoft_core::classify_fn()).
    pub fn classify<D>(self, classify: D) -> HedgeBuilder<D, R> {
        HedgeBuilder { policy: self.policy, classify, replay: self.replay }
    }

    /// How a request is kept to be sent again. Default [`Auto`], for HTTP requests, strings and the like; for other `Clone`
    /// types [`Cloned`](failsoft_core::Cloned).
    pub fn replay<Q>(self, replay: Q) -> HedgeBuilder<C, Q> {
        HedgeBuilder { policy: self.policy, classify: self.classify, replay }
    }

    /// Makes the layer.
    ///
    /// # Errors
    ///
    /// Names the first setting that cannot work: a `quantile` out of its range, `min_calls` too few for it, too many
    /// `max_hedges`, a blank `target`.
    pub fn build(self) -> Result<HedgeLayer<C, R>, ConfigError> {
        let Policy { quantile, min_calls, max_hedges, target, .. } = &self.policy;
        if let Some(share) = quantile {
            ConfigError::check_range(NAME, "quantile", *share, QUANTILES.0, QUANTILES.1)?;
            // A hair less, so that 0.99 asks for 100 and not for 101.
            let least = (1.0 / (1.0 - share) - 1e-6).ceil();
            if f64::from(*min_calls) < least {
                let expected =
                    format_args!("at least {least}: with fewer, none lies beyond a quantile of {share}");
                return Err(ConfigError::new(NAME, "min_calls", min_calls, expected));
            }
        }
        if *max_hedges > MOST_HEDGES {
            let expected = format_args!("0 to {MOST_HEDGES}");
            return Err(ConfigError::new(NAME, "max_hedges", max_hedges, expected));
        }
        if target.as_ref().is_some_and(|target| target.trim().is_empty()) {
            return Err(ConfigError::new(NAME, "target", "blank", "a name"));
        }
        Ok(self.unchecked())
    }

    pub(super) fn unchecked(mut self) -> HedgeLayer<C, R> {
        if self.policy.delay.is_none() {
            self.policy.quantile.get_or_insert(QUANTILE);
        }
        HedgeLayer::of(Shared::new(self.policy, self.classify, self.replay))
    }
}

failsoft_core::unbuilt!([C, R] HedgeBuilder<C, R>);

impl<C, R> fmt::Debug for HedgeBuilder<C, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HedgeBuilder").field(&self.policy).finish()
    }
}
