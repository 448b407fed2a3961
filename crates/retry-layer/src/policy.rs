//! What is decided about an attempt that failed, without doing anything.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use failsoft_core::{Backoff, Blame, Class, Fault, Limit, Next, Verdict, backoff::Rng};
use tokio::time::Instant;

use crate::RetryBudget;

/// The crate's name in faults and trails.
pub(crate) const LAYER: &str = "retry-layer";

/// Everything about a [`RetryLayer`](crate::RetryLayer) that does not depend on the types of the service.
#[derive(Clone)]
pub(crate) struct Policy {
    pub(crate) max_retries: u32,
    pub(crate) backoff: Backoff,
    pub(crate) rng: Rng,
    pub(crate) budget: Option<RetryBudget>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) attempt_timeout: Option<Duration>,
    pub(crate) ready_within: Duration,
    pub(crate) max_advice: Duration,
    pub(crate) advice_jitter: f64,
    pub(crate) repeat_unanswered: bool,
    pub(crate) rows: Vec<(Class, bool)>,
    pub(crate) retry_if: Option<Predicate>,
    pub(crate) target: Option<Arc<str>>,
}

pub(crate) type Predicate = Arc<dyn Fn(&Verdict) -> bool + Send + Sync>;

impl Policy {
    /// Whether the verdict itself allows the same request again: its class's row where it was set, else the hint.
    pub(crate) fn wants(&self, verdict: &Verdict) -> bool {
        let class = verdict.class();
        // No setting makes us hammer what our own layers deny.
        if class.is_denied() || class.is_success() || class == Class::Cancelled {
            return false;
        }
        let row = self.rows.iter().rev().find(|(of, _)| *of == class).map(|(_, again)| *again);
        row.unwrap_or_else(|| verdict.hint().same_again())
            && self.retry_if.as_ref().is_none_or(|ask| ask(verdict))
    }

    /// The wait before the `attempt`-th further attempt, or why there is none.
    pub(crate) fn wait(
        &self,
        verdict: &Verdict,
        attempt: u32,
        previous: Duration,
        ends: Option<Ends>,
    ) -> Result<Duration, Next> {
        let own = self.backoff.delay(attempt, previous, &self.rng);
        let wait = match verdict.retry_after() {
            Some(advice) if advice > self.max_advice => return Err(Next::AdviceTooLong),
            Some(advice) => own.max(self.later(advice)),
            None => own,
        };
        match ends {
            // Too long to be represented is too long for any deadline.
            Some(ends) if Instant::now().checked_add(wait).is_none_or(|then| then >= ends.at) => {
                Err(Next::DeadlineNear)
            }
            _ => Ok(wait),
        }
    }

    /// Clients that were all told the same time come back spread, and none before it.
    fn later(&self, advice: Duration) -> Duration {
        let more = advice.as_secs_f64() * self.advice_jitter * self.rng.unit();
        advice.saturating_add(Duration::try_from_secs_f64(more).unwrap_or_default())
    }

    /// When a call that begins now must be over.
    #[inline]
    pub(crate) fn ends(&self, call: Option<Instant>) -> Option<Ends> {
        let own = self.deadline.and_then(|limit| Instant::now().checked_add(limit));
        match (own, call) {
            (Some(own), Some(call)) if call < own => Some(Ends { at: call, by_caller: true }),
            (Some(at), _) => Some(Ends { at, by_caller: false }),
            (None, Some(at)) => Some(Ends { at, by_caller: true }),
            (None, None) => None,
        }
    }

    #[inline]
    pub(crate) fn on_request(&self) {
        if let Some(budget) = &self.budget {
            budget.on_request();
        }
    }

    #[inline]
    pub(crate) fn on_success(&self) {
        if let Some(budget) = &self.budget {
            budget.on_success();
        }
    }
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
}

/// Whether an error leaves open if the target has acted on the request. Most classes are only known from an answer.
pub(crate) fn is_unanswered(verdict: &Verdict, error: &(dyn Error + 'static)) -> bool {
    let unclear = matches!(verdict.class(), Class::Transient | Class::Timeout(_) | Class::Unknown);
    unclear && !verdict.is_unsent() && Fault::find(error).is_none_or(|fault| fault.status().is_none())
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
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}
