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
    /// Apart, because most calls succeed at once and a future is moved about: they pay for a pointer.
    more: Option<Box<More<Req>>>,
}

/// What only a call has that has limits or a second step.
struct More<Req> {
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

impl<Req> Default for More<Req> {
    fn default() -> Self {
        Self {
            next: None,
            previous: None,
            target: None,
            further: 0,
            waited: Duration::ZERO,
            ends: None,
            began: None,
            limit_is_last: false,
            over: false,
        }
    }
}

impl<Req> More<Req> {
    fn attempts(&self) -> u32 {
        self.further.saturating_add(1)
    }

    fn record(&self, verdict: Verdict, next: Next, delay: Option<Duration>) {
        let mut attempt = Attempt::new(LAYER, verdict).on(self.target.clone()).then(next);
        attempt.took = self.began.map(|began| began.elapsed());
        attempt.delay = delay;
        Call::record(attempt);
    }
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
        let more = ends.map(|ends| Box::new(More { ends: Some(ends), ..More::default() }));
        Self { inner, shared, kept, more }
    }

    /// The timer of the attempt that has just begun.
    #[inline]
    pub(crate) fn limit(&mut self) -> Option<Sleep> {
        let timeout = self.shared.policy.attempt_timeout;
        if self.more.is_none() && timeout.is_none() {
            return None;
        }
        let more = self.more.get_or_insert_default();
        let own =
            timeout.and_then(|timeout| more.began.get_or_insert_with(Instant::now).checked_add(timeout));
        let end = more.ends.map(|ends| ends.at);
        more.limit_is_last = end.is_some_and(|end| own.is_none_or(|own| end <= own));
        let at = if more.limit_is_last { end } else { own };
        at.map(sleep_until)
    }

    /// Sends the request again, on a service that is ready.
    pub(crate) fn call(&mut self, request: Req) -> S::Future {
        let more = self.more.get_or_insert_default();
        more.further = more.attempts();
        more.began = Some(Instant::now());
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
        let target = self.target();
        let more = self.more.get_or_insert_default();
        more.over = more.limit_is_last;
        let verdict = match more.ends {
            Some(ends) if more.over => ends.verdict(),
            _ => Verdict::of(Class::Timeout(Limit::Total)),
        };
        let mut fault = Fault::with_verdict(verdict, LAYER).with_target_if(target);
        if more.over {
            // The failure that took the time before is the better half of the explanation.
            if let Some(Previous { outcome: Err(earlier), .. }) = more.previous.take() {
                fault = fault.with_source(earlier);
            }
        }
        (Err(fault.into()), verdict)
    }

    /// Whether a success is the first attempt's, of which there is nothing to tell.
    #[inline]
    pub(crate) fn at_once(&self) -> bool {
        let at_once = self.more.as_ref().is_none_or(|more| more.further == 0);
        if at_once {
            self.shared.policy.on_success();
        }
        at_once
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
        if verdict.class().is_denied() && self.more.as_ref().is_some_and(|more| more.previous.is_some()) {
            // A refusal of ours is no outcome, and no attempt: the upstream's own, from before, is.
            Call::give_attempt_back();
            return self.return_previous(verdict, Next::Final);
        }
        match self.another(&outcome, &verdict) {
            Ok((request, delay)) => {
                let Shared { policy, classify, replay } = &*self.shared;
                let more = self.more.get_or_insert_default();
                if more.target.is_none() {
                    more.target = policy.target.clone().or_else(|| replay.target(&request));
                }
                events::again(more.target.as_deref(), &verdict, more.attempts(), delay);
                more.record(verdict, Next::Retry, Some(delay));
                more.next = Some(request);
                more.waited = delay;
                // A response goes now, and with it the connection that it may hold.
                let outcome = outcome.map(|response| classify.status_code(&response));
                more.previous = Some(Previous { verdict, outcome });
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
        if self.more.as_ref().is_some_and(|more| more.over) {
            return Err(Next::DeadlineNear);
        }
        if !self.shared.policy.wants(verdict) {
            return Err(Next::Final);
        }
        let prepared = self.prepare(outcome, verdict);
        match (&self.shared.policy.budget, prepared) {
            (Some(budget), Ok(_)) if !budget.try_withdraw(verdict.class()) => {
                // Another route may still have it.
                Call::give_attempt_back();
                Err(Next::BudgetEmpty)
            }
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
        let (attempt, waited, ends) = self
            .more
            .as_ref()
            .map_or((1, Duration::ZERO, None), |more| (more.attempts(), more.waited, more.ends));
        if attempt > policy.max_retries {
            return Err(Next::AttemptsSpent);
        }
        let delay = policy.wait(verdict, attempt, waited, ends)?;
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
        let end = self.more.as_ref().and_then(|more| more.ends).map(|ends| ends.at);
        own.into_iter().chain(end).min().map(sleep_until)
    }

    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Then<S::Response, Req>> {
        let ready = ready!(self.inner.poll_ready(cx));
        Poll::Ready(match (ready, self.more.as_mut().and_then(|more| more.next.take())) {
            (Ok(()), Some(request)) => Then::Call(request),
            _ => self.not_ready(),
        })
    }

    /// The attempt that was decided on is not made.
    pub(crate) fn not_ready(&mut self) -> Then<S::Response, Req> {
        Call::give_attempt_back();
        let previous = self.more.as_ref().and_then(|more| more.previous.as_ref());
        let verdict = previous.map_or(Verdict::of(Class::Unknown), |previous| previous.verdict);
        self.return_previous(verdict, Next::NotReady)
    }

    /// Returns the outcome of the attempt before: its error, or a fault that stands for its response.
    fn return_previous(&mut self, verdict: Verdict, why: Next) -> Then<S::Response, Req> {
        self.gave_up(verdict, why);
        let (verdict, status) = match self.more.as_mut().and_then(|more| more.previous.take()) {
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
        self.shared.policy.on_success();
        let more = self.more.get_or_insert_default();
        events::recovered(more.target.as_deref(), more.attempts());
        more.record(verdict, Next::Answered, None);
    }

    fn gave_up(&mut self, verdict: Verdict, why: Next) {
        // A failure that was final at once leaves no trace unless somebody looks.
        let attempts = self.more.as_ref().map_or(1, |more| more.attempts());
        let told = attempts > 1 || why != Next::Final || Call::is_current();
        let target = if told { self.target() } else { self.shared.policy.target.clone() };
        events::gave_up(target.as_deref(), &verdict, attempts, why);
        if told {
            self.more.get_or_insert_default().record(verdict, why, None);
        }
    }

    /// The target's name, worked out when it is first needed.
    fn target(&mut self) -> Option<Arc<str>> {
        let more = self.more.get_or_insert_default();
        if more.target.is_none() {
            let Shared { policy, replay, .. } = &*self.shared;
            more.target = policy
                .target
                .clone()
                .or_else(|| replay.again(&mut self.kept, false).and_then(|request| replay.target(&request)));
        }
        more.target.clone()
    }
}
