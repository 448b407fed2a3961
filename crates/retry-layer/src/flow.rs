//! One call's way from attempt to attempt.

mod waits;

use std::{pin::Pin, sync::Arc, time::Duration};

use failsoft_core::{
    Blockers, BoxError, Call, Class, Classify, Fault, Insight, Limit, Next, Replay, Stamp, Step, Usage,
    Verdict,
};
use tokio::time::{Instant, Sleep, sleep_until};
use tower_service::Service;

use crate::{
    RetryBudget, events,
    layer::Shared,
    lent::Lent,
    more::{Grant, More, Previous},
    policy::{Ends, LAYER, Repeatable, is_unanswered, may_have_acted},
};

pub(crate) struct Flow<S, Req, C, R: Replay<Req>> {
    pub(crate) inner: S,
    pub(crate) shared: Lent,
    pub(crate) classify: C,
    pub(crate) replay: R,
    pub(crate) kept: Option<R::Kept>,
    /// Apart, because most calls succeed at once and a future is moved about: they pay for a pointer.
    pub(crate) more: Option<Box<More<Req>>>,
}

/// What a call does next.
pub(crate) enum Then<Res, Req> {
    Return(Result<Res, BoxError>),
    Wait(Duration),
    Call(Req),
}

/// How a call begins.
pub(crate) enum First<Req> {
    Call(Req),
    /// The target has asked others to wait.
    Wait(Duration),
    /// Not at all.
    Refuse,
}

impl<S, Req, C, R> Flow<S, Req, C, R>
where
    S: Service<Req, Error: Into<BoxError>>,
    C: Classify<S::Response>,
    R: Replay<Req>,
{
    /// `inner` is ready.
    pub(crate) const fn new(inner: S, shared: Lent, classify: C, replay: R) -> Self {
        Self { inner, shared, classify, replay, kept: None, more: None }
    }

    /// A call that has a deadline, or whose target may be held, or whose request is stamped. One that does not begin at once takes
    /// a clone of the service, and lets its readiness go.
    pub(crate) fn begin(&mut self, mut request: Req) -> First<Req>
    where
        S: Clone,
    {
        let Self { shared, replay, .. } = self;
        let Shared { policy, holds, .. } = &**shared;
        let ends = policy.ends(Call::current_deadline(), replay.timeout(&request));
        if let Some(keys) = &policy.keys {
            replay.stamp(&mut request, &Stamp::new().with_idempotency_key(&keys.next()));
        }
        let held = holds.any();
        let (request, kept) = replay.keep(request);
        let target = if held || kept.is_none() {
            policy.target.clone().or_else(|| replay.target(&request))
        } else {
            policy.target.clone()
        };
        self.kept = kept;
        self.more = Some(Box::new(More::before(ends, target)));
        if ends.is_some_and(Ends::is_over) {
            return self.refuse_later(ends.map_or(Verdict::SUCCESS, Ends::verdict), Next::DeadlineNear);
        }
        match self.held(Duration::ZERO) {
            None => First::Call(request),
            Some((_, Ok(wait))) => {
                let more = self.more.get_or_insert_default();
                more.next = Some(request);
                more.held = wait;
                self.shared.meters.held();
                self.inner = self.inner.clone();
                First::Wait(wait)
            }
            Some((verdict, Err(why))) => self.refuse_later(verdict, why),
        }
    }

    fn refuse_later(&mut self, verdict: Verdict, why: Next) -> First<Req>
    where
        S: Clone,
    {
        self.inner = self.inner.clone();
        self.more.get_or_insert_default().refusal = Some((verdict.with_unsent(), why));
        First::Refuse
    }

    /// Sends the request on a service that is ready; when the attempt's time is over.
    pub(crate) fn call(&mut self, mut request: Req) -> (S::Future, Option<Instant>) {
        let Self { inner, shared, replay, more, .. } = self;
        let policy = &shared.policy;
        let more = more.get_or_insert_with(|| Box::new(More::before(None, None)));
        if more.attempts == 0 {
            shared.plain.on_request();
        }
        let now = Instant::now();
        let limit = more.limit(policy, now);
        let sent_before = if policy.attempt_number { more.attempts } else { 0 };
        let left = limit.filter(|_| policy.forward_deadline).map(|at| at.saturating_duration_since(now));
        if sent_before > 0 || left.is_some() {
            replay.stamp(&mut request, &Stamp::new().with_sent_before(sent_before).with_time_left(left));
        }
        more.attempts = more.attempts.saturating_add(1);
        more.blockers = Blockers::default();
        if let Some(grant) = &mut more.grant {
            grant.sent();
        }
        (inner.call(request), limit)
    }

    /// What a response means, where that is no success.
    #[inline(always)]
    pub(crate) fn failure(&self, response: &S::Response) -> Option<Verdict> {
        match self.classify.response(response) {
            Step::Now(verdict) if !verdict.is_success() => Some(verdict),
            // What comes after the head is passed on: it cannot be taken back.
            Step::Now(_) | Step::AtEnd(_) => None,
        }
    }

    pub(crate) fn judge(
        &self,
        outcome: Result<S::Response, S::Error>,
    ) -> (Result<S::Response, BoxError>, Verdict) {
        match outcome {
            Ok(response) => {
                let verdict = self.failure(&response).unwrap_or(Verdict::SUCCESS);
                (Ok(response), verdict)
            }
            Err(error) => {
                let error = error.into();
                let verdict = self.classify.error(&*error);
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

    /// A success, and nothing but an attempt was ever made.
    #[inline(always)]
    pub(crate) fn plain_success(&self) -> bool {
        let is_plain = self.more.is_none();
        if is_plain {
            self.shared.plain.on_success();
        }
        is_plain
    }

    /// Whether a success is the first attempt's, of which there is nothing to tell.
    pub(crate) fn at_once(&self) -> bool {
        let at_once = self.more.as_ref().is_none_or(|more| more.attempts <= 1);
        if at_once {
            self.shared.plain.on_success();
        }
        at_once
    }

    /// An attempt has this outcome.
    pub(crate) fn after(
        &mut self,
        outcome: Result<S::Response, BoxError>,
        verdict: Verdict,
    ) -> Then<S::Response, Req> {
        if self.is_to_be_limited() {
            self.limit_first();
        }
        let grant = self.more.as_mut().and_then(|more| more.grant.take());
        let usage = self.usage(&outcome);
        if verdict.is_success() {
            self.succeeded(verdict, usage);
            return Then::Return(outcome);
        }
        if verdict.class().is_denied() && self.more.as_ref().is_some_and(|more| more.previous.is_some()) {
            // A refusal of ours is no outcome, and no attempt: the upstream's own, from before, is.
            self.gave_up(verdict, Next::Final, None);
            grant.into_iter().for_each(Grant::give_back);
            return self.return_previous(None);
        }
        self.share(&verdict);
        match self.another(&outcome, &verdict) {
            Ok((request, delay, mut grant)) => {
                let Self { shared, classify, replay, .. } = self;
                let Shared { policy, meters, .. } = &**shared;
                let more = self.more.get_or_insert_default();
                if more.target.is_none() {
                    more.target = policy.target.clone().or_else(|| replay.target(&request));
                }
                events::again(more.target.as_deref(), &verdict, more.attempts, delay);
                meters.retry(verdict.class(), delay, policy.budget.as_ref());
                let told = more.tell(verdict, Next::Retry, Some(delay), usage);
                grant.retry.after(&told);
                (more.next, more.grant, more.blockers) = (Some(request), Some(grant), Call::take_blockers());
                (more.waited, more.held) = (delay, Duration::ZERO);
                // A response goes now, and with it the connection that it may hold.
                let outcome = outcome.map(|response| classify.status_code(&response));
                more.previous = Some(Previous { verdict, outcome, told });
                Then::Wait(delay)
            }
            Err(why) => {
                self.gave_up(verdict, why, usage);
                Then::Return(outcome)
            }
        }
    }

    /// The next request, the wait before it is sent, and what it takes; or why there is none.
    fn another(
        &mut self,
        outcome: &Result<S::Response, BoxError>,
        verdict: &Verdict,
    ) -> Result<(Req, Duration, Grant), Next> {
        if self.more.as_ref().is_some_and(|more| more.over) {
            return Err(Next::DeadlineNear);
        }
        if !self.shared.policy.wants(verdict) {
            return Err(Next::Final);
        }
        let prepared = self.prepare(outcome, verdict);
        let budget = self.shared.policy.budget.as_ref();
        match prepared {
            Ok((request, delay)) => {
                // Another route may still have it when the budget is empty: dropped, it goes back.
                let retry = Call::take_retry().inspect_err(|_| {
                    budget.into_iter().for_each(RetryBudget::on_failure);
                })?;
                let charge = budget
                    .map(|budget| budget.withdraw(verdict.class()).ok_or(Next::BudgetEmpty))
                    .transpose()?;
                Ok((request, delay, Grant { retry, charge }))
            }
            Err(why) => {
                budget.into_iter().for_each(RetryBudget::on_failure);
                Err(why)
            }
        }
    }

    /// Everything but what it takes.
    fn prepare(
        &mut self,
        outcome: &Result<S::Response, BoxError>,
        verdict: &Verdict,
    ) -> Result<(Req, Duration), Next> {
        if Call::refuses_next() {
            return Err(Next::Final);
        }
        let (attempts, waited, ends) = self
            .more
            .as_ref()
            .map_or((1, Duration::ZERO, None), |more| (more.attempts, more.waited, more.ends));
        let policy = &self.shared.policy;
        if attempts > policy.max_retries {
            return Err(Next::AttemptsSpent);
        }
        let mut delay = policy.wait(verdict, attempts, waited)?;
        if let Some((_, held)) = self.held(delay) {
            delay = held?;
        }
        if ends.is_some_and(|ends| ends.is_before(delay)) {
            return Err(Next::DeadlineNear);
        }
        let Self { shared, replay, .. } = self;
        let policy = &shared.policy;
        let request =
            replay.again(&mut self.kept, attempts == policy.max_retries).ok_or(Next::NotRepeatable)?;
        let unanswered = matches!(outcome, Err(error) if is_unanswered(verdict, &**error));
        let harmless = match policy.repeat {
            Repeatable::Always => true,
            Repeatable::ByRequest => !unanswered || replay.is_idempotent(&request),
            Repeatable::Declared => {
                !(unanswered || may_have_acted(verdict)) || replay.declares_idempotent(&request)
            }
        };
        if !harmless {
            return Err(Next::NotRepeatable);
        }
        if policy.trust_client_retries && replay.sent_before(&request) > 0 {
            return Err(Next::ClientRetries);
        }
        Ok((request, delay))
    }

    /// Lets the layer's other calls to the target know what it asks for, unless a circuit further in acts on it.
    fn share(&mut self, verdict: &Verdict) {
        let Some(hold) = self.shared.policy.hold(verdict) else { return };
        let target = self.target();
        if Call::has_opened() {
            // It refuses at once, and tries with a probe: better than to let everybody wait.
            self.shared.holds.end(target.as_deref());
        } else {
            events::held(target.as_deref(), verdict, hold.until.saturating_duration_since(Instant::now()));
            self.shared.holds.learn(target, hold);
        }
    }

    /// The timer of an attempt that waits.
    #[inline]
    pub(crate) fn attempt_timer(&mut self) -> Option<Pin<&mut Sleep>> {
        if self.is_to_be_limited() {
            let limit = self.limit_first();
            self.set_timer(limit);
        }
        self.timer()
    }

    /// Whether the limits of the first attempt are still to be set: most answer at once, and need no clock.
    #[inline]
    fn is_to_be_limited(&self) -> bool {
        self.shared.plain.is_limited && self.more.as_ref().is_none_or(|more| more.began.is_none())
    }

    /// Sets the limits of the first attempt, and of the call, which count from now on.
    #[cold]
    fn limit_first(&mut self) -> Option<Instant> {
        let policy = &self.shared.policy;
        let more = self.more.get_or_insert_default();
        more.ends = policy.ends(None, None);
        more.limit(policy, Instant::now())
    }

    /// The timer that runs.
    #[inline]
    pub(crate) fn timer(&mut self) -> Option<Pin<&mut Sleep>> {
        Some(self.more.as_mut()?.timer.as_mut()?.as_mut())
    }

    pub(crate) fn set_timer(&mut self, at: Option<Instant>) {
        if at.is_some() || self.more.is_some() {
            self.more.get_or_insert_default().timer = at.map(|at| Box::pin(sleep_until(at)));
        }
    }

    /// The tokens that an attempt has used, as far as a reader further inside knows them by now.
    fn usage(&self, outcome: &Result<S::Response, BoxError>) -> Option<Usage> {
        let usage = match outcome {
            Ok(response) => self.classify.insight(response).map(Insight::usage),
            Err(error) => Fault::find(&**error).and_then(|fault| fault.answer()).map(|answer| answer.usage),
        };
        usage.filter(|usage| !usage.is_unknown())
    }

    fn succeeded(&mut self, verdict: Verdict, usage: Option<Usage>) {
        self.shared.plain.on_success();
        let more = self.more.get_or_insert_default();
        events::recovered(more.target.as_deref(), more.attempts);
        self.shared.meters.recovered();
        let _told = more.tell(verdict, Next::Answered, None, usage);
    }

    fn gave_up(&mut self, verdict: Verdict, why: Next, usage: Option<Usage>) {
        // A failure that was final at once leaves no trace unless somebody looks.
        let attempts = self.more.as_ref().map_or(1, |more| more.attempts);
        let told = attempts > 1 || why != Next::Final || Call::is_current();
        let target = if told { self.target() } else { self.shared.policy.target.clone() };
        events::gave_up(target.as_deref(), &verdict, attempts, why);
        self.shared.meters.gave_up(why);
        if told {
            let _told = self.more.get_or_insert_default().tell(verdict, why, None, usage);
        }
    }

    /// The target's name, worked out when it is first needed.
    fn target(&mut self) -> Option<Arc<str>> {
        let more = self.more.get_or_insert_default();
        if more.target.is_none() {
            let replay = &self.replay;
            more.target = self
                .shared
                .policy
                .target
                .clone()
                .or_else(|| more.next.as_ref().and_then(|request| replay.target(request)))
                .or_else(|| replay.again(&mut self.kept, false).and_then(|request| replay.target(&request)));
        }
        more.target.clone()
    }
}
