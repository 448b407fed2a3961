//! One call's way from wrong answer to changed request.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
};

use failsoft_core::{
    Attempt, BoxError, Call, Class, Classify, Fault, Mark, Next, Replay, Step, Told, Verdict,
};
use tokio::time::{Instant, Sleep, sleep_until};
use tower_service::Service;

use super::{BadAnswer, Reask, events, layer::Shared};
use crate::{
    metrics::{REASKS_CURED, REASKS_GIVEN_UP, REASKS_SENT},
    more::Grant,
    policy::LAYER,
};

pub(super) struct Flow<S, Req, A, C, R: Replay<Req>> {
    inner: S,
    shared: Arc<Shared<A, C, R>>,
    kept: Option<R::Kept>,
    /// Changed requests that were sent.
    reasks: u32,
    /// The changed request; there from the decision until it is sent.
    next: Option<Req>,
    /// What is returned if it is not sent after all, or refused by a layer of ours.
    previous: Option<Previous>,
    /// What it takes; dropped, it goes back, unless the request was sent.
    grant: Option<Grant>,
    target: Option<Arc<str>>,
}

/// What is left of a wrong answer while the next request is prepared: an error as it came, of a response what it meant.
struct Previous {
    verdict: Verdict,
    outcome: Result<Option<u16>, BoxError>,
    told: Told,
}

/// What became of sending a changed request.
pub(super) enum Sending<F, Res> {
    Begun(Call, F),
    Ended(Result<Res, BoxError>),
}

impl<S, Req, A, C, R> Flow<S, Req, A, C, R>
where
    S: Service<Req, Error: Into<BoxError>>,
    A: Reask<Req>,
    C: Classify<S::Response>,
    R: Replay<Req>,
{
    pub(super) const fn new(inner: S, shared: Arc<Shared<A, C, R>>, kept: Option<R::Kept>) -> Self {
        Self { inner, shared, kept, reasks: 0, next: None, previous: None, grant: None, target: None }
    }

    /// The outcome of an attempt: that of the call, or `None` when a changed request is to follow.
    pub(super) fn after(
        &mut self,
        outcome: Result<S::Response, S::Error>,
    ) -> Option<Result<S::Response, BoxError>> {
        let classify = &self.shared.classify;
        let (outcome, verdict) = match outcome {
            Ok(response) => match classify.response(&response) {
                Step::Now(verdict) => (Ok(response), verdict),
                // What comes after the head is passed on: it cannot be taken back.
                Step::AtEnd(_) => (Ok(response), Verdict::SUCCESS),
            },
            Err(error) => {
                let error = error.into();
                let verdict = classify.error(&*error);
                (Err(error), verdict)
            }
        };
        if verdict.is_success() {
            self.succeeded(verdict);
            return Some(outcome);
        }
        if verdict.class().is_denied() && self.previous.is_some() {
            // A refusal of ours is no outcome, and no attempt: the upstream's own, from before, is.
            self.gave_up(verdict, Next::Final);
            self.grant.take().into_iter().for_each(Grant::give_back);
            return Some(self.return_previous(None));
        }
        match self.change(&outcome, verdict) {
            Ok(request) => {
                let policy = &self.shared.policy;
                if self.target.is_none() {
                    self.target = policy.target.clone().or_else(|| self.shared.replay.target(&request));
                }
                events::reask(self.target.as_deref(), &verdict, self.reasks.saturating_add(1));
                let told = self.tell(verdict, Next::Reask);
                self.grant.iter_mut().for_each(|grant| grant.retry.after(&told));
                self.next = Some(request);
                // A response goes now, and with it the connection that it may hold.
                let outcome = outcome.map(|response| self.shared.classify.status_code(&response));
                self.previous = Some(Previous { verdict, outcome, told });
                None
            }
            Err(why) => {
                self.gave_up(verdict, why);
                Some(outcome)
            }
        }
    }

    /// The changed request, or why there is none.
    fn change(&mut self, outcome: &Result<S::Response, BoxError>, verdict: Verdict) -> Result<Req, Next> {
        let Shared { policy, reask, classify, replay, .. } = &*self.shared;
        if !policy.wants(&verdict) {
            return Err(Next::Final);
        }
        if self.reasks >= policy.max_reasks {
            return Err(Next::AttemptsSpent);
        }
        if Call::current_deadline().is_some_and(|deadline| deadline <= Instant::now()) {
            return Err(Next::DeadlineNear);
        }
        let number = self.reasks.saturating_add(1);
        let copy = replay.again(&mut self.kept, number == policy.max_reasks).ok_or(Next::NotRepeatable)?;
        let bad = match outcome {
            Ok(response) => {
                let facts = classify.insight(response).map(|insight| insight.facts()).unwrap_or_default();
                BadAnswer::new(verdict, facts.report.clone(), &facts)
            }
            Err(error) => BadAnswer::of_error(verdict, &**error),
        };
        let request = reask.reask(copy, &bad.with_number(number)).ok_or(Next::Final)?;
        // Another route may still have it when the budget is empty: dropped, it goes back.
        let retry = Call::take_retry()?;
        let budget = policy.budget.as_ref();
        let charge =
            budget.map(|budget| budget.withdraw(verdict.class()).ok_or(Next::BudgetEmpty)).transpose()?;
        self.grant = Some(Grant { retry, charge });
        Ok(request)
    }

    /// Until when the changed request waits for the service to be ready.
    pub(super) fn ready_bound(&self) -> Option<Sleep> {
        let own = Instant::now().checked_add(self.shared.policy.ready_within);
        own.into_iter().chain(Call::current_deadline()).min().map(sleep_until)
    }

    /// Sends the changed request once the service is ready for it, in a call of its own that no cache may answer.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Sending<S::Future, S::Response>> {
        let ready = ready!(self.inner.poll_ready(cx));
        Poll::Ready(match (ready, self.next.take()) {
            (Ok(()), Some(request)) => {
                self.reasks = self.reasks.saturating_add(1);
                let call = Call::options().mark(Mark::NoCache).begin();
                let future = call.enter(|| self.inner.call(request));
                self.grant.iter_mut().for_each(Grant::sent);
                self.shared.counts.sent.add(REASKS_SENT, self.shared.policy.target.as_deref());
                Sending::Begun(call, future)
            }
            _ => Sending::Ended(self.not_ready()),
        })
    }

    /// The changed request is not sent.
    pub(super) fn not_ready(&mut self) -> Result<S::Response, BoxError> {
        (self.next, self.grant) = (None, None);
        self.return_previous(Some(Next::NotReady))
    }

    /// Returns the outcome of the attempt before: its error, or a fault that stands for its response. `why` no other one was made, where
    /// that is not told by what came of it.
    fn return_previous(&mut self, why: Option<Next>) -> Result<S::Response, BoxError> {
        let Some(Previous { verdict, outcome, told }) = self.previous.take() else {
            return Err(Fault::new(Class::Unknown, LAYER).with_target_if(self.target.clone()).into());
        };
        match why {
            Some(why) => {
                self.count_given_up(verdict, why);
                told.then(why);
            }
            None => told.hand_on(),
        }
        let status = outcome?;
        let fault = Fault::with_verdict(verdict, LAYER)
            .with_target_if(self.target.clone())
            .with_message("the answer was let go before a changed request that could not be sent");
        Err(match status {
            Some(status) => fault.with_status(status).into(),
            None => fault.into(),
        })
    }

    fn succeeded(&self, verdict: Verdict) {
        let policy = &self.shared.policy;
        if let Some(budget) = policy.budget.as_ref().filter(|_| policy.deposits) {
            budget.on_success();
        }
        if self.reasks > 0 {
            events::cured(self.target.as_deref(), self.reasks);
            self.shared.counts.cured.add(REASKS_CURED, policy.target.as_deref());
            let _told = self.tell(verdict, Next::Answered);
        }
    }

    fn gave_up(&mut self, verdict: Verdict, why: Next) {
        self.count_given_up(verdict, why);
        // What this layer has nothing to do with is told by those around it.
        if self.reasks > 0 || why != Next::Final {
            let _told = self.tell(verdict, why);
        }
    }

    fn count_given_up(&mut self, verdict: Verdict, why: Next) {
        if self.target.is_none() {
            self.target.clone_from(&self.shared.policy.target);
        }
        events::gave_up(self.target.as_deref(), &verdict, self.reasks, why);
        if self.reasks > 0 || why != Next::Final || self.shared.policy.wants(&verdict) {
            self.shared.counts.given_up.add(REASKS_GIVEN_UP, self.shared.policy.target.as_deref(), why);
        }
    }

    fn tell(&self, verdict: Verdict, next: Next) -> Told {
        Call::decide(Attempt::new(LAYER, verdict).on(self.target.clone()).then(next))
    }
}
