//! [`RetryBuilder`]: the settings of a [`RetryLayer`].

use std::{fmt, sync::Arc, time::Duration};

use failsoft_core::{Auto, Backoff, ByResponse, Class, ConfigError, Verdict, backoff::Rng};

use crate::{RetryBudget, RetryLayer, policy::Policy};

const NAME: &str = "RetryLayer";

/// Sets up a [`RetryLayer`]. Nothing is checked before [`build`](Self::build).
///
/// ```
/// use std::time::Duration;
/// use failsoft_core::{Backoff, Class, Jitter};
/// use retry_layer::RetryLayer;
///
/// let layer = RetryLayer::builder()
///     .max_retries(2)
///     .backoff(Backoff::exponential(Duration::from_millis(200)).jitter(Jitter::Equal))
///     .deadline(Duration::from_secs(30))
///     .attempt_timeout(Duration::from_secs(12))
///     .retry_on(Class::RateLimited, false)
///     .build()?;
/// # let _ = layer;
/// # Ok::<(), failsoft_core::ConfigError>(())
/// ```
#[derive(Clone)]
#[must_use = "nothing is made before `build`"]
pub struct RetryBuilder<C = ByResponse, R = Auto> {
    policy: Policy,
    classify: C,
    replay: R,
}

impl Default for RetryBuilder {
    fn default() -> Self {
        let policy = Policy {
            max_retries: 3,
            backoff: Backoff::default(),
            rng: Rng::new(),
            budget: Some(RetryBudget::default()),
            deadline: None,
            attempt_timeout: None,
            ready_within: Duration::from_secs(1),
            max_advice: Duration::from_secs(120),
            advice_jitter: 0.2,
            repeat_unanswered: false,
            rows: Vec::new(),
            retry_if: None,
            target: None,
        };
        Self { policy, classify: ByResponse, replay: Auto }
    }
}

impl<C, R> RetryBuilder<C, R> {
    /// The further attempts that a call may have after its first. Default 3: they catch 97 % of the failures that pass, and
    /// more than 5 hardly catch another. A cap that the current [`Call`](failsoft_core::Call) carries counts as well.
    pub const fn max_retries(mut self, max_retries: u32) -> Self {
        self.policy.max_retries = max_retries;
        self
    }

    /// The waits. Default: 1 s, doubled to 60 s, with full jitter, never below 0.1 s.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.policy.backoff = backoff;
        self
    }

    /// The budget that retries are taken from; give several layers clones of one to let them share it. Default: one of the
    /// layer's own, see [`RetryBudget`].
    pub fn budget(mut self, budget: RetryBudget) -> Self {
        self.policy.budget = Some(budget);
        self
    }

    /// No budget: in an outage every call is then sent as often as [`max_retries`](Self::max_retries) says.
    pub fn without_budget(mut self) -> Self {
        self.policy.budget = None;
        self
    }

    /// The time for a call with all its attempts and waits, above zero. Default: none but that of the current
    /// [`Call`](failsoft_core::Call), the nearer of which counts. An attempt that runs into it ends as a
    /// [`Class::Timeout`]; a wait that would end after it is not begun.
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.policy.deadline = Some(deadline);
        self
    }

    /// The time for each attempt, until its response is there; above zero and at most the deadline. Default: none.
    pub const fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.policy.attempt_timeout = Some(timeout);
        self
    }

    /// How long a further attempt waits for the service to be ready before the outcome of the one before is returned.
    /// Default 1 s.
    pub const fn ready_within(mut self, bound: Duration) -> Self {
        self.policy.ready_within = bound;
        self
    }

    /// The longest server advice that is waited for. Beyond it the outcome is returned, advice and all: neither is slept so
    /// long, nor is the server asked before its time. Default 120 s, as in OpenAI's own clients.
    pub const fn max_advice(mut self, longest: Duration) -> Self {
        self.policy.max_advice = longest;
        self
    }

    /// By how much of the server's advice a wait may exceed it, so that clients that were told the same do not come back at
    /// once: 0 to 1, default 0.2.
    pub const fn advice_jitter(mut self, share: f64) -> Self {
        self.policy.advice_jitter = share;
        self
    }

    /// Says that sending a request again does no harm even where the target may have acted on it already: where an attempt
    /// ended without an answer. Default no: then only idempotent requests are, and those that were certainly never sent.
    /// A failure *response* is an answer, and may be followed by another attempt whatever the method.
    pub const fn repeat_unanswered(mut self, harmless: bool) -> Self {
        self.policy.repeat_unanswered = harmless;
        self
    }

    /// Changes the row of one class: whether its failures may be tried again, whatever their hint. Our own layers' denials
    /// never are.
    pub fn retry_on(mut self, class: Class, again: bool) -> Self {
        self.policy.rows.push((class, again));
        self
    }

    /// A last word on each verdict that would be tried again: `false` stops.
    pub fn retry_if(mut self, again: impl Fn(&Verdict) -> bool + Send + Sync + 'static) -> Self {
        self.policy.retry_if = Some(Arc::new(again));
        self
    }

    /// The target's name in faults, trails and events. Default: the request's authority.
    pub fn target(mut self, name: impl Into<Arc<str>>) -> Self {
        self.policy.target = Some(name.into());
        self
    }

    /// Makes the jitter repeatable, for tests.
    pub const fn seed(mut self, seed: u64) -> Self {
        self.policy.rng = Rng::seeded(seed);
        self
    }

    /// Who gives outcomes their verdict. Default [`ByResponse`], for HTTP responses; for plain values
    /// [`ErrorsOnly`](failsoft_core::ErrorsOnly) or [`classify_fn`](failsoft_core::classify_fn()).
    pub fn classify<D>(self, classify: D) -> RetryBuilder<D, R> {
        RetryBuilder { policy: self.policy, classify, replay: self.replay }
    }

    /// How a request is kept to be sent again. Default [`Auto`], for HTTP requests, strings and the like; for other `Clone`
    /// types [`Cloned`](failsoft_core::Cloned).
    pub fn replay<Q>(self, replay: Q) -> RetryBuilder<C, Q> {
        RetryBuilder { policy: self.policy, classify: self.classify, replay }
    }

    /// Makes the layer.
    ///
    /// # Errors
    ///
    /// Names the first setting that cannot work: a zero `deadline` or `attempt_timeout`, an `attempt_timeout` above the
    /// `deadline`, a blank `target`, an `advice_jitter` that is no share, a `retry_on` for what is no failure of a target, or what
    /// [`Backoff::check`] finds.
    pub fn build(self) -> Result<RetryLayer<C, R>, ConfigError> {
        let Policy { backoff, deadline, attempt_timeout, advice_jitter, rows, .. } = &self.policy;
        backoff.check()?;
        for (field, limit) in [("deadline", deadline), ("attempt_timeout", attempt_timeout)] {
            if limit.is_some_and(|limit| limit.is_zero()) {
                return Err(ConfigError::new(NAME, field, "0s", "a time above zero"));
            }
        }
        if let (Some(deadline), Some(attempt)) = (deadline, attempt_timeout) {
            if attempt > deadline {
                let expected = format_args!("at most the deadline, {deadline:?}");
                return Err(ConfigError::new(NAME, "attempt_timeout", format_args!("{attempt:?}"), expected));
            }
        }
        if self.policy.target.as_ref().is_some_and(|target| target.trim().is_empty()) {
            return Err(ConfigError::new(NAME, "target", "blank", "a name"));
        }
        ConfigError::check_range(NAME, "advice_jitter", *advice_jitter, 0.0, 1.0)?;
        let never = |class: Class| class.is_denied() || class.is_success() || class == Class::Cancelled;
        if let Some((class, _)) = rows.iter().find(|(class, again)| *again && never(*class)) {
            return Err(ConfigError::new(
                NAME,
                "retry_on",
                class,
                "the class of a failure that a target can have",
            ));
        }
        Ok(self.unchecked())
    }

    pub(crate) fn unchecked(self) -> RetryLayer<C, R> {
        RetryLayer::of(self.policy, self.classify, self.replay)
    }
}

impl<C, R> fmt::Debug for RetryBuilder<C, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RetryBuilder").field(&self.policy).finish()
    }
}
