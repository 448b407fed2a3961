//! One call's way from attempt to attempt.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use failsoft_core::{Attempt, BoxError, Call, Class, Classify, Fault, Limit, Next, Replay, Step, Verdict};
use tokio::time::{Instant, Sleep, sleep_until};
use tower_service::Service;

use crate::{
    events,
    layer::Shared,
    policy::{Ends, LAYER, is_unanswered},
};

pub(crate) struct Flow<S, Req, C, R: Replay<Req>> {
    inner: S,
    shared: Arc<Shared<C, R>>,
    kept: Option<R::Kept>,
    /// The copy that the next attempt sends; there from the decision to the attempt.
    next: Option<Req>,
    /// What is returned if the next attempt is not made after all, or refused by a layer of ours.
    previous: Option<Previous>,
    target: Option<Arc<str>>,
    /// Attempts after the first.
    further: u32,
    waited: Duration,
    ends: Option<Ends>,
    /// When the attempt began; only known where the clock was read anyway.
    began: Option<Instant>,
    /// Whether the attempt's timer is the end of the whole call.
    limit_is_last: bool,
    over: bool,
}

/// What is left of a failure while the next attempt is prepared: an error as it came, of a response what it meant.
struct Previous {
    verdict: Verdict,
    outcome: Result<Option<u16>, BoxError>,
}

/// What a call does next.
pub(crate) enum Then<Res, Req> {
    Return(Result<Res, BoxError>),
    Wait(Duration),
    Call(Req),
}

impl<S, Req, C, R> Flow<S, Req, C, R>
where
    S: Service<Req, Error: Into<BoxError>>,
    C: Classify<S::Response>,
    R: Replay<Req>,
{
    pub(crate) fn new(
        inner: S,
        shared: Arc<Shared<C, R>>,
        kept: Option<R::Kept>,
        ends: Option<Ends>,
    ) -> Self {
        Self {
            inner,
            shared,
            kept,
            next: None,
            previous: None,
            target: None,
            further: 0,
            waited: Duration::ZERO,
            ends,
            began: None,
            limit_is_last: false,
            over: false,
        }
    }

    /// The timer of the attempt that has just begun.
    pub(crate) fn limit(&mut self) -> Option<Sleep> {
        let own = self.shared.policy.attempt_timeout.and_then(|limit| {
            let now = *self.began.get_or_insert_with(Instant::now);
            now.checked_add(limit)
        });
        let end = self.ends.map(|ends| ends.at);
        self.limit_is_last = end.is_some_and(|end| own.is_none_or(|own| end <= own));
        let at = if self.limit_is_last { end } else { own };
        at.map(sleep_until)
    }

    /// Sends the request again, on a service that is ready.
    pub(crate) fn call(&mut self, request: Req) -> S::Future {
        self.further = self.further.saturating_add(1);
        self.began = Some(Instant::now());
        self.inner.call(request)
    }

    pub(crate) fn judge(
        &self,
        outcome: Result<S::Response, S::Error>,
    ) -> (Result<S::Response, BoxError>, Verdict) {
        let classify = &self.shared.classify;
        match outcome {
            Ok(response) => {
                let verdict = match classify.response(&response) {
                    Step::Now(verdict) => verdict,
                    // What comes after the head is passed on: it cannot be taken back.
                    Step::AtEnd(_) => Verdict::SUCCESS,
                };
                (Ok(response), verdict)
            }
            Err(error) => {
                let error = error.into();
                let verdict = classify.error(&*error);
                (Err(error), verdict)
            }
        }
    }

    /// The attempt's timer has fired.
    pub(crate) fn timed_out(&mut self) -> (Result<S::Response, BoxError>, Verdict) {
        self.over = self.limit_is_last;
        let verdict = match self.ends {
            Some(ends) if self.over => ends.verdict(),
            _ => Verdict::of(Class::Timeout(Limit::Total)),
        };
        let mut fault = Fault::with_verdict(verdict, LAYER).with_target_if(self.target());
        if self.over {
            // The failure that took the time before is the better half of the explanation.
            if let Some(Previous { outcome: Err(earlier), .. }) = self.previous.take() {
                fault = fault.with_source(earlier);
            }
        }
        (Err(fault.into()), verdict)
    }

    /// An attempt has this outcome.
    pub(crate) fn after(
        &mut self,
        outcome: Result<S::Response, BoxError>,
        verdict: Verdict,
    ) -> Then<S::Response, Req> {
        if verdict.is_success() {
            self.succeeded(verdict);
            return Then::Return(outcome);
        }
        if verdict.class().is_denied() && self.previous.is_some() {
            // A refusal of ours is no outcome: the upstream's own, from before, is.
            return self.return_previous(verdict, Next::Final);
        }
        match self.another(&outcome, &verdict) {
            Ok((request, delay)) => {
                let target = self.target_of(&request);
                events::again(target.as_deref(), &verdict, self.further.saturating_add(1), delay);
                Call::record(self.attempt(verdict).then(Next::Retry).with_delay(delay));
                self.next = Some(request);
                self.waited = delay;
                // A response goes now, and with it the connection that it may hold.
                let outcome = outcome.map(|response| self.shared.classify.status_code(&response));
                self.previous = Some(Previous { verdict, outcome });
                Then::Wait(delay)
            }
            Err(why) => {
                self.gave_up(verdict, why);
                Then::Return(outcome)
            }
        }
    }

    /// Another copy of the request and the wait before it is sent, or why there is none.
    fn another(
        &mut self,
        outcome: &Result<S::Response, BoxError>,
        verdict: &Verdict,
    ) -> Result<(Req, Duration), Next> {
        if self.over {
            return Err(Next::DeadlineNear);
        }
        if !self.shared.policy.wants(verdict) {
            return Err(Next::Final);
        }
        let prepared = self.prepare(outcome, verdict);
        match (&self.shared.policy.budget, prepared) {
            (Some(budget), Ok(_)) if !budget.try_withdraw(verdict.class()) => Err(Next::BudgetEmpty),
            (Some(budget), Err(why)) => {
                budget.on_failure();
                Err(why)
            }
            (_, prepared) => prepared,
        }
    }

    /// Everything but the budget.
    fn prepare(
        &mut self,
        outcome: &Result<S::Response, BoxError>,
        verdict: &Verdict,
    ) -> Result<(Req, Duration), Next> {
        let Shared { policy, replay, .. } = &*self.shared;
        if self.further >= policy.max_retries {
            return Err(Next::AttemptsSpent);
        }
        let attempt = self.further.saturating_add(1);
        let delay = policy.wait(verdict, attempt, self.waited, self.ends)?;
        let request =
            replay.again(&mut self.kept, attempt == policy.max_retries).ok_or(Next::NotRepeatable)?;
        let unanswered = matches!(outcome, Err(error) if is_unanswered(verdict, &**error));
        if unanswered && !policy.repeat_unanswered && !replay.is_idempotent(&request) {
            return Err(Next::NotRepeatable);
        }
        if !Call::take_attempt() {
            return Err(Next::AttemptsSpent);
        }
        Ok((request, delay))
    }

    /// Until when a further attempt waits for the service to be ready.
    pub(crate) fn ready_bound(&self) -> Option<Sleep> {
        let own = Instant::now().checked_add(self.shared.policy.ready_within);
        let end = self.ends.map(|ends| ends.at);
        own.into_iter().chain(end).min().map(sleep_until)
    }

    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Then<S::Response, Req>> {
        let ready = ready!(self.inner.poll_ready(cx));
        Poll::Ready(match (ready, self.next.take()) {
            (Ok(()), Some(request)) => Then::Call(request),
            _ => self.not_ready(),
        })
    }

    pub(crate) fn not_ready(&mut self) -> Then<S::Response, Req> {
        let verdict = self.previous.as_ref().map_or(Verdict::of(Class::Unknown), |previous| previous.verdict);
        self.return_previous(verdict, Next::NotReady)
    }

    /// Returns the outcome of the attempt before: its error, or a fault that stands for its response.
    fn return_previous(&mut self, verdict: Verdict, why: Next) -> Then<S::Response, Req> {
        self.gave_up(verdict, why);
        let (verdict, status) = match self.previous.take() {
            Some(Previous { outcome: Err(error), .. }) => return Then::Return(Err(error)),
            Some(Previous { verdict, outcome: Ok(status) }) => (verdict, status),
            None => (verdict, None),
        };
        let mut fault = Fault::with_verdict(verdict, LAYER)
            .with_target_if(self.target())
            .with_message("the answer was let go before a retry that could not be made");
        if let Some(status) = status {
            fault = fault.with_status(status);
        }
        if let Some(call) = Call::current() {
            fault = fault.with_trail(call.trail());
        }
        Then::Return(Err(fault.into()))
    }

    fn succeeded(&mut self, verdict: Verdict) {
        if let Some(budget) = &self.shared.policy.budget {
            budget.on_success();
        }
        if self.further > 0 {
            events::recovered(self.target.as_deref(), self.further.saturating_add(1));
            Call::record(self.attempt(verdict).then(Next::Answered));
        }
    }

    fn gave_up(&mut self, verdict: Verdict, why: Next) {
        let attempts = self.further.saturating_add(1);
        events::gave_up(self.target.as_deref(), &verdict, attempts, why);
        // A failure that was final at once leaves no trace unless somebody looks.
        if self.further > 0 || why != Next::Final || Call::is_current() {
            self.target();
            Call::record(self.attempt(verdict).then(why));
        }
    }

    fn attempt(&self, verdict: Verdict) -> Attempt {
        let attempt = Attempt::new(LAYER, verdict).on(self.target.clone());
        match self.began {
            Some(began) => attempt.with_took(began.elapsed()),
            None => attempt,
        }
    }

    /// The target's name, worked out when it is first needed.
    fn target(&mut self) -> Option<Arc<str>> {
        if self.target.is_none() {
            let Shared { policy, replay, .. } = &*self.shared;
            self.target = policy
                .target
                .clone()
                .or_else(|| replay.again(&mut self.kept, false).and_then(|request| replay.target(&request)));
        }
        self.target.clone()
    }

    fn target_of(&mut self, request: &Req) -> Option<Arc<str>> {
        if self.target.is_none() {
            let Shared { policy, replay, .. } = &*self.shared;
            self.target = policy.target.clone().or_else(|| replay.target(request));
        }
        self.target.clone()
    }
}
