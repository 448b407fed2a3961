//! What is decided about an attempt that failed, without doing anything.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use failsoft_core::{Backoff, Blame, Call, Class, Fault, Limit, Mark, Next, Verdict, backoff::Rng};
use tokio::time::Instant;

use crate::{RetryBudget, holds::Hold, keys::Keys};

/// The crate's name in faults and trails.
pub(crate) const LAYER: &str = "retry-layer";

/// From so long on, advice is a reason to take another route: there a breaker opens its circuit for it, too.
const PATIENCE: Duration = Duration::from_secs(5);

/// Everything about a [`RetryLayer`](crate::RetryLayer) that does not depend on the types of the service.
#[derive(Clone)]
pub(crate) struct Policy {
    pub(crate) max_retries: u32,
    pub(crate) backoff: Backoff,
    pub(crate) backoffs: Vec<(Class, Backoff)>,
    pub(crate) rng: Rng,
    pub(crate) budget: Option<RetryBudget>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) attempt_timeout: Option<Duration>,
    pub(crate) ready_within: Duration,
    pub(crate) max_advice: Duration,
    pub(crate) advice_jitter: f64,
    pub(crate) share_advice: bool,
    pub(crate) repeat: Repeatable,
    pub(crate) trust_client_retries: bool,
    pub(crate) attempt_number: bool,
    pub(crate) forward_deadline: bool,
    pub(crate) keys: Option<Keys>,
    pub(crate) rows: Vec<(Class, bool)>,
    pub(crate) retry_if: Option<Predicate>,
    pub(crate) target: Option<Arc<str>>,
}

pub(crate) type Predicate = Arc<dyn Fn(&Verdict) -> bool + Send + Sync>;

/// Which attempts may be repeated although the target may have acted on them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Repeatable {
    /// Those of which the request says so, or says nothing.
    ByRequest,
    /// All: it does no harm.
    Always,
    /// Only those of which the request says so; a failure response leaves it open as well.
    Declared,
}

impl Policy {
    /// Whether the verdict itself allows the same request again: its class's row where it was set, else the hint.
    pub(crate) fn wants(&self, verdict: &Verdict) -> bool {
        let class = verdict.class();
        // No setting makes us hammer what our own layers deny.
        if class.is_denied() || class.is_success() || class == Class::Cancelled {
            return false;
        }
        let hinted = verdict.hint().same_again();
        // What is usually worth it, and is not this time, was forbidden by the target: `x-should-retry: false`, a pushback.
        let forbidden = !hinted && Verdict::of(class).hint().same_again();
        let row = self.rows.iter().rev().find(|(of, _)| *of == class).map(|(_, again)| *again);
        row.map_or(hinted, |again| again && !forbidden)
            && self.retry_if.as_ref().is_none_or(|ask| ask(verdict))
    }

    /// The wait before the `attempt`-th further attempt, or why there is none.
    pub(crate) fn wait(&self, verdict: &Verdict, attempt: u32, previous: Duration) -> Result<Duration, Next> {
        let row = self.backoffs.iter().rev().find(|(of, _)| *of == verdict.class());
        let backoff = row.map_or(&self.backoff, |(_, backoff)| backoff);
        let own = backoff.delay(attempt, previous, &self.rng);
        match verdict.retry_after() {
            Some(advice) if advice > self.max_advice => Err(Next::AdviceTooLong),
            Some(advice) => Ok(own.max(self.later(advice, self.spread(advice)))),
            None => Ok(own),
        }
    }

    /// The wait before an attempt on a target that is held, or why there is none. `held` is for how long the call has been
    /// held already: who is held again and again gives up as if he had been told at once.
    pub(crate) fn held(&self, hold: &Hold, held: Duration, now: Instant) -> Result<Duration, Next> {
        let advised = hold.advised.saturating_duration_since(now);
        if held.saturating_add(advised) > self.max_advice {
            return Err(Next::AdviceTooLong);
        }
        // In a fallback's route the next one serves better than patience, unless there is none.
        if advised >= PATIENCE && Call::is_routed() && !Call::is_marked(Mark::LastResort) {
            return Err(Next::AdviceTooLong);
        }
        Ok(self.later(hold.until.saturating_duration_since(now), hold.spread))
    }

    /// Clients that were all told the same time come back spread, and none before it.
    fn later(&self, advice: Duration, spread: Duration) -> Duration {
        advice.saturating_add(share(spread, self.rng.unit()))
    }

    fn spread(&self, advice: Duration) -> Duration {
        share(advice, self.advice_jitter)
    }

    /// What an outcome tells the layer's other calls. Only a target that refuses for want of room means all of them; one that
    /// was never reached has said nothing.
    pub(crate) fn hold(&self, verdict: &Verdict) -> Option<Hold> {
        let means_all = matches!(verdict.class(), Class::RateLimited | Class::Overloaded);
        let advice = verdict.retry_after().filter(|advice| !advice.is_zero())?;
        if !self.share_advice || !means_all || verdict.is_unsent() {
            return None;
        }
        let now = Instant::now();
        let advised = now.checked_add(advice)?;
        // Nobody is kept from asking for longer than anybody would wait: a century is a mistake.
        let bounded = advice.min(self.max_advice);
        let until = now.checked_add(bounded)?;
        Some(Hold { verdict: *verdict, until, advised, spread: self.spread(bounded) })
    }

    /// When a call that begins now must be over: by the layer's own limit, its `Call`'s, or the request's.
    #[inline]
    pub(crate) fn ends(&self, call: Option<Instant>, request: Option<Duration>) -> Option<Ends> {
        let from_now = |limit: Duration| Instant::now().checked_add(limit);
        let own = self.deadline.and_then(from_now);
        let caller = match request.and_then(from_now) {
            Some(request) => Some(call.map_or(request, |call| call.min(request))),
            None => call,
        };
        match (own, caller) {
            (Some(own), Some(caller)) if caller < own => Some(Ends { at: caller, by_caller: true }),
            (Some(at), _) => Some(Ends { at, by_caller: false }),
            (None, Some(at)) => Some(Ends { at, by_caller: true }),
            (None, None) => None,
        }
    }

    /// Whether nothing of it concerns a call before its first attempt waits or fails.
    pub(crate) const fn is_plain(&self) -> bool {
        let stamps_limit = self.forward_deadline && self.is_limited();
        self.keys.is_none() && !stamps_limit
    }

    /// Whether it holds closures of the user's.
    pub(crate) fn holds_closures(&self) -> bool {
        let mut backoffs = self.backoffs.iter().map(|(_, backoff)| backoff).chain([&self.backoff]);
        self.retry_if.is_some() || backoffs.any(Backoff::is_custom)
    }

    /// Whether an attempt has a limit of this layer's.
    pub(crate) const fn is_limited(&self) -> bool {
        self.deadline.is_some() || self.attempt_timeout.is_some()
    }
}

/// A share of a time; none where it is too long to be represented.
fn share(of: Duration, share: f64) -> Duration {
    Duration::try_from_secs_f64(of.as_secs_f64() * share).unwrap_or_default()
}

/// The end of the whole call, whichever limit that is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) at: Instant,
    by_caller: bool,
}

impl Ends {
    /// The call ran into it. Whose limit it was is to blame: a target need not know how little time a caller has.
    pub(crate) const fn verdict(self) -> Verdict {
        let blame = if self.by_caller { Blame::Caller } else { Blame::Target };
        Verdict::of(Class::Timeout(Limit::Total)).with_blame(blame)
    }

    /// Whether nothing is left of it before the call has begun; the layer's own limit is never that short.
    pub(crate) fn is_over(self) -> bool {
        self.by_caller && Instant::now() >= self.at
    }

    /// Whether it comes before the end of a wait that begins now. Too long to be represented is too long for any deadline.
    pub(crate) fn is_before(self, wait: Duration) -> bool {
        Instant::now().checked_add(wait).is_none_or(|then| then >= self.at)
    }
}

/// Whether an error leaves open if the target has acted on the request. Most classes are only known from an answer.
pub(crate) fn is_unanswered(verdict: &Verdict, error: &(dyn Error + 'static)) -> bool {
    let unclear = matches!(verdict.class(), Class::Transient | Class::Timeout(_) | Class::Unknown);
    unclear && !verdict.is_unsent() && Fault::find(error).is_none_or(|fault| fault.status().is_none())
}

/// Whether a failure leaves open if something was done before it failed: all but those that say that nothing was begun.
pub(crate) const fn may_have_acted(verdict: &Verdict) -> bool {
    !verdict.is_unsent() && !matches!(verdict.class(), Class::Overloaded | Class::RateLimited)
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("max_retries", &self.max_retries)
            .field("backoff", &self.backoff)
            .field("budget", &self.budget)
            .field("deadline", &self.deadline)
            .field("attempt_timeout", &self.attempt_timeout)
            .field("max_advice", &self.max_advice)
            .field("repeat", &self.repeat)
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}
