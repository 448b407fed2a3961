//! What only a call has that has limits, or more than one attempt.

use std::{pin::Pin, sync::Arc, time::Duration};

use failsoft_core::{Attempt, Blockers, BoxError, Call, Next, TakenRetry, Told, Usage, Verdict};
use tokio::time::{Instant, Sleep};

use crate::{
    budget::Withdrawal,
    policy::{Ends, LAYER, Policy},
};

pub(crate) struct More<Req> {
    /// Of the attempt, the wait, or the readiness: there is one at a time.
    pub(crate) timer: Option<Pin<Box<Sleep>>>,
    /// What the attempt before came through, and may refuse the next one before its wait is over.
    pub(crate) blockers: Blockers,
    /// The request that is sent next; there from the decision to the attempt.
    pub(crate) next: Option<Req>,
    /// What is returned if the next attempt is not made after all, or refused by a layer of ours.
    pub(crate) previous: Option<Previous>,
    /// What the attempt after the first has taken; dropped, it goes back, unless that was sent.
    pub(crate) grant: Option<Grant>,
    /// Why the call is refused before its first attempt.
    pub(crate) refusal: Option<(Verdict, Next)>,
    pub(crate) target: Option<Arc<str>>,
    /// The attempts that were begun.
    pub(crate) attempts: u32,
    /// The wait before the attempt, and for how much longer the target's advice to others held it.
    pub(crate) waited: Duration,
    pub(crate) held: Duration,
    pub(crate) ends: Option<Ends>,
    /// When the attempt began; only known where the clock was read anyway.
    pub(crate) began: Option<Instant>,
    /// Whether the attempt's timer is the end of the whole call.
    pub(crate) limit_is_last: bool,
    pub(crate) over: bool,
}

impl<Req> More<Req> {
    /// Of a call that has not begun its first attempt.
    pub(crate) fn before(ends: Option<Ends>, target: Option<Arc<str>>) -> Self {
        Self { attempts: 0, ends, target, ..Self::default() }
    }

    /// Of a call whose first attempt runs, where it has a target's name to remember.
    pub(crate) fn on(target: Option<Arc<str>>) -> Option<Box<Self>> {
        target.map(|target| Box::new(Self { target: Some(target), ..Self::default() }))
    }

    /// An attempt begins: when its time is over.
    pub(crate) fn limit(&mut self, policy: &Policy, now: Instant) -> Option<Instant> {
        let own = policy.attempt_timeout.and_then(|timeout| now.checked_add(timeout));
        let end = self.ends.map(|ends| ends.at);
        self.limit_is_last = end.is_some_and(|end| own.is_none_or(|own| end <= own));
        self.began = Some(now);
        if self.limit_is_last { end } else { own }
    }

    /// Tells of the attempt that has ended, and what is known of it.
    pub(crate) fn tell(
        &self,
        verdict: Verdict,
        next: Next,
        delay: Option<Duration>,
        usage: Option<Usage>,
    ) -> Told {
        let mut attempt = Attempt::new(LAYER, verdict).on(self.target.clone()).then(next);
        attempt.took = self.began.map(|began| began.elapsed());
        (attempt.delay, attempt.usage) = (delay, usage);
        Call::decide(attempt)
    }
}

impl<Req> Default for More<Req> {
    /// Of a call whose first attempt runs.
    fn default() -> Self {
        Self {
            timer: None,
            blockers: Blockers::default(),
            next: None,
            previous: None,
            grant: None,
            refusal: None,
            target: None,
            attempts: 1,
            waited: Duration::ZERO,
            held: Duration::ZERO,
            ends: None,
            began: None,
            limit_is_last: false,
            over: false,
        }
    }
}

/// What is left of a failure while the next attempt is prepared: an error as it came, of a response what it meant.
pub(crate) struct Previous {
    pub(crate) verdict: Verdict,
    pub(crate) outcome: Result<Option<u16>, BoxError>,
    pub(crate) told: Told,
}

/// What one retry takes: of the call's cap, and of the budget.
pub(crate) struct Grant {
    pub(crate) retry: TakenRetry,
    pub(crate) charge: Option<Withdrawal>,
}

impl Grant {
    pub(crate) fn sent(&mut self) {
        self.retry.sent();
        if let Some(charge) = &mut self.charge {
            charge.sent();
        }
    }

    /// It was sent, and a layer of ours refused it: nobody was asked.
    pub(crate) fn give_back(self) {
        self.retry.give_back();
        if let Some(charge) = self.charge {
            charge.refund();
        }
    }
}
