//! [`RetryBuilder`]: the settings of a [`RetryLayer`].

use std::{fmt, sync::Arc, time::Duration};

use failsoft_core::{Auto, Backoff, ByResponse, Class, ConfigError, Verdict, backoff::Rng};

use crate::{
    RetryBudget, RetryLayer,
    keys::Keys,
    policy::{Policy, Repeatable},
};

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
            backoffs: Vec::new(),
            rng: Rng::new(),
            budget: Some(RetryBudget::default()),
            deadline: None,
            attempt_timeout: None,
            ready_within: Duration::from_secs(1),
            max_advice: Duration::from_secs(120),
            advice_jitter: 0.2,
            share_advice: true,
            repeat: Repeatable::ByRequest,
            trust_client_retries: true,
            attempt_number: true,
            forward_deadline: false,
            keys: None,
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
    ///
    /// Retry layers inside each other add up and do not multiply: this is also the most that this layer and all retries inside
    /// it make together for one call. A call inside that is none of its attempts, such as a tool's own, begins an
    /// [isolated](failsoft_core::CallOptions::isolated) `Call`.
    pub const fn max_retries(mut self, max_retries: u32) -> Self {
        self.policy.max_retries = max_retries;
        self
    }

    /// The waits. Default: 1 s, doubled to 60 s, with full jitter, never below 0.1 s.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.policy.backoff = backoff;
        self
    }

    /// Other waits after failures of one class; throttling, say, can have a base of its own:
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use failsoft_core::{Backoff, Class};
    /// # use retry_layer::RetryLayer;
    /// let layer = RetryLayer::builder()
    ///     .backoff(Backoff::exponential(Duration::from_millis(50)))
    ///     .backoff_on(Class::RateLimited, Backoff::exponential(Duration::from_secs(1)))
    ///     .build()?;
    /// # Ok::<(), failsoft_core::ConfigError>(())
    /// ```
    pub fn backoff_on(mut self, class: Class, backoff: Backoff) -> Self {
        self.policy.backoffs.push((class, backoff));
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
    /// [`Call`](failsoft_core::Call) or of the request (`grpc-timeout`); the nearest counts. An attempt that runs into it ends
    /// as a [`Class::Timeout`]; a wait that would end after it is not begun; and where nothing is left of it, nothing is sent
    /// at all. This one begins when the first attempt is first seen to wait, or fails.
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.policy.deadline = Some(deadline);
        self
    }

    /// The time for each attempt, until its response is there; above zero and at most the deadline. Default: none. It takes the place
    /// of a timeout layer inside, for less: the first attempt's begins when it is first seen to wait, and one that
    /// answers at once needs no clock and no timer.
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

    /// Whether advice that one call gets holds back the layer's other calls to the same target: those that begin meanwhile
    /// wait as the one does that was told, and fail at once, with the class and the rest of the advice, where it is longer
    /// than [`max_advice`](Self::max_advice) or their deadline. Only failures for want of room mean all calls
    /// ([`Class::RateLimited`], [`Class::Overloaded`]), and for at most `max_advice`. Inside a fallback's route they wait for
    /// less than 5 s only, so that the next route is taken; and advice that opens a circuit further in is left to that, which
    /// refuses at once. Default yes; set `false` where one layer
    /// serves many credentials that have limits of their own.
    pub const fn share_advice(mut self, share: bool) -> Self {
        self.policy.share_advice = share;
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
    ///
    /// The request itself says that it is idempotent by its HTTP method or an `Idempotency-Key`; requests of other types are
    /// taken for idempotent unless they say otherwise ([`Repeat::is_idempotent`](failsoft_core::Repeat::is_idempotent)).
    pub const fn repeat_unanswered(mut self, harmless: bool) -> Self {
        self.policy.repeat = if harmless { Repeatable::Always } else { Repeatable::ByRequest };
        self
    }

    /// Says that calls do something that must not be done twice, as tools do. Then a failure that leaves open whether
    /// anything was done, also a failure *response* such as a 500, is followed by another attempt only where the request
    /// declares itself idempotent: by its HTTP method or an `Idempotency-Key`. What was certainly not begun may always be
    /// repeated: no connection, 429, 503. The last of this and [`repeat_unanswered`](Self::repeat_unanswered) counts.
    pub const fn side_effects(mut self) -> Self {
        self.policy.repeat = Repeatable::Declared;
        self
    }

    /// Puts an `Idempotency-Key` on each HTTP request that is not idempotent by its method and has none: the same for all
    /// attempts of a call, and for no other call. The request then counts as idempotent, so set it only where the target
    /// honours such keys. Default no.
    pub fn idempotency_key(mut self, on: bool) -> Self {
        self.policy.keys = on.then(Keys::new);
        self
    }

    /// Whether HTTP requests are told how many attempts there were before them, from the second attempt on: in
    /// `x-retry-count`, or for gRPC in `grpc-previous-rpc-attempts`. Default yes.
    pub const fn attempt_number(mut self, on: bool) -> Self {
        self.policy.attempt_number = on;
        self
    }

    /// Whether each attempt of a gRPC request says in `grpc-timeout` how much time is left for it. Default no: a header that
    /// is there stays as it is.
    pub const fn forward_deadline(mut self, on: bool) -> Self {
        self.policy.forward_deadline = on;
        self
    }

    /// Whether a request that says it is itself a client's retry is sent once only: `x-stainless-retry-count` (OpenAI's and
    /// Anthropic's own clients), `x-retry-count` or `grpc-previous-rpc-attempts` above 0. Otherwise a client's 3 attempts and
    /// 4 here make 12. Default yes; better still, one place retries and the client's own retries are off.
    pub const fn trust_client_retries(mut self, on: bool) -> Self {
        self.policy.trust_client_retries = on;
        self
    }

    /// Changes the row of one class: whether its failures may be tried again, whatever their usual hint. Our own layers'
    /// denials never are, nor what the target itself forbids (`x-should-retry: false`, a negative gRPC pushback).
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
        let Policy { backoff, backoffs, deadline, attempt_timeout, advice_jitter, rows, .. } = &self.policy;
        backoff.check()?;
        for (_, backoff) in backoffs {
            backoff.check()?;
        }
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

failsoft_core::unbuilt!([C, R] RetryBuilder<C, R>);

impl<C, R> fmt::Debug for RetryBuilder<C, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RetryBuilder").field(&self.policy).finish()
    }
}
