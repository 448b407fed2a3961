//! Between two attempts, and before a first one that is held: what is waited for, and how a wait ends without an attempt.

use std::{
    task::{Context, Poll, ready},
    time::Duration,
};

use failsoft_core::{Blockers, BoxError, Call, Class, Classify, Fault, Next, Replay, Verdict};
use tokio::time::Instant;
use tower_service::Service;

use super::{Flow, Then};
use crate::{events, layer::Shared, more::Previous, policy::LAYER};

impl<S, Req, C, R> Flow<S, Req, C, R>
where
    S: Service<Req, Error: Into<BoxError>>,
    C: Classify<S::Response>,
    R: Replay<Req>,
{
    /// Whether what others have learnt holds the next attempt for longer than it waits anyway: the wait, or why there is
    /// none, with what it means.
    pub(super) fn held(&self, anyway: Duration) -> Option<(Verdict, Result<Duration, Next>)> {
        let Shared { policy, holds, .. } = &*self.shared;
        if !holds.any() {
            return None;
        }
        let more = self.more.as_ref();
        let target = policy.target.as_deref().or_else(|| more.and_then(|more| more.target.as_deref()));
        let now = Instant::now();
        let hold = holds.find(target, now)?;
        if hold.until.saturating_duration_since(now) <= anyway {
            return None;
        }
        let verdict = hold.verdict.with_retry_after(hold.advised.saturating_duration_since(now));
        let wait = policy.held(&hold, more.map_or(Duration::ZERO, |more| more.held), now);
        let late =
            |wait: &Duration| more.and_then(|more| more.ends).is_some_and(|ends| ends.is_before(*wait));
        Some((verdict, wait.and_then(|wait| if late(&wait) { Err(Next::DeadlineNear) } else { Ok(wait) })))
    }

    /// The wait is over; what follows it, if not the attempt: others may have learnt something meanwhile.
    pub(crate) fn waited(&mut self) -> Option<Then<S::Response, Req>> {
        let (verdict, wait) = self.held(Duration::ZERO)?;
        let more = self.more.get_or_insert_default();
        Some(match wait {
            Ok(wait) => {
                more.held = more.held.saturating_add(wait);
                Then::Wait(wait)
            }
            Err(why) if more.attempts == 0 => {
                more.refusal = Some((verdict.with_unsent(), why));
                self.refuse()
            }
            Err(why) => self.undone(why),
        })
    }

    /// The call ends before its first attempt.
    pub(crate) fn refuse(&mut self) -> Then<S::Response, Req> {
        let target = self.target();
        let more = self.more.get_or_insert_default();
        let (verdict, why) = more.refusal.take().unwrap_or((Verdict::CANCELLED, Next::Final));
        events::gave_up(target.as_deref(), &verdict, more.attempts, why);
        self.shared.meters.gave_up(why);
        if Call::is_current() {
            let _told = more.tell(verdict, why, None, None);
        }
        let message = match verdict.class() {
            Class::Timeout(_) => "no time was left for an attempt",
            _ => "not sent: the target has asked other calls to wait",
        };
        let fault = Fault::with_verdict(verdict, LAYER).with_target_if(target).with_message(message);
        Then::Return(Err(fault.into()))
    }

    /// Until when an attempt waits for the service to be ready. For a first attempt that was held there is nothing better
    /// than to wait, as whoever called would have.
    pub(crate) fn ready_bound(&self) -> Option<Instant> {
        let more = self.more.as_ref();
        let own = if more.is_some_and(|more| more.attempts == 0) {
            None
        } else {
            Instant::now().checked_add(self.shared.policy.ready_within)
        };
        own.into_iter().chain(more.and_then(|more| more.ends).map(|ends| ends.at)).min()
    }

    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Then<S::Response, Req>> {
        let ready = ready!(self.inner.poll_ready(cx));
        let more = self.more.get_or_insert_default();
        Poll::Ready(match (ready, more.next.take()) {
            (Ok(()), Some(request)) => Then::Call(request),
            (Err(error), _) if more.attempts == 0 => Then::Return(Err(error.into())),
            _ => self.not_ready(),
        })
    }

    /// The service is not ready in time.
    pub(crate) fn not_ready(&mut self) -> Then<S::Response, Req> {
        let more = self.more.get_or_insert_default();
        match more.ends {
            Some(ends) if more.attempts == 0 => {
                more.refusal = Some((ends.verdict().with_unsent(), Next::DeadlineNear));
                self.refuse()
            }
            _ => self.undone(Next::NotReady),
        }
    }

    /// Ready when what the attempt before came through would refuse the next one: there is nothing to wait for.
    pub(crate) fn poll_refused(&mut self, cx: &Context<'_>) -> Poll<()> {
        self.more.as_mut().map_or(Poll::Pending, |more| more.blockers.poll_refused(cx))
    }

    /// The next attempt would be refused.
    pub(crate) fn refused(&mut self) -> Then<S::Response, Req> {
        self.undone(Next::Final)
    }

    /// The attempt that was decided on is not made, and what it took goes back.
    fn undone(&mut self, why: Next) -> Then<S::Response, Req> {
        let more = self.more.get_or_insert_default();
        (more.grant, more.next, more.timer, more.blockers) = (None, None, None, Blockers::default());
        self.return_previous(Some(why))
    }

    /// Returns the outcome of the attempt before: its error, or a fault that stands for its response. `why` no other one was made, where
    /// that is not told by what came of it.
    pub(super) fn return_previous(&mut self, why: Option<Next>) -> Then<S::Response, Req> {
        let target = self.target();
        let more = self.more.get_or_insert_default();
        let Some(Previous { verdict, outcome, told }) = more.previous.take() else {
            return Then::Return(Err(Fault::new(Class::Unknown, LAYER).with_target_if(target).into()));
        };
        match why {
            Some(why) => {
                events::gave_up(target.as_deref(), &verdict, more.attempts, why);
                self.shared.meters.gave_up(why);
                told.then(why);
            }
            None => told.hand_on(),
        }
        let status = match outcome {
            Ok(status) => status,
            Err(error) => return Then::Return(Err(error)),
        };
        let mut fault = Fault::with_verdict(verdict, LAYER)
            .with_target_if(target)
            .with_message("the answer was let go before a retry that could not be made");
        if let Some(status) = status {
            fault = fault.with_status(status);
        }
        if let Some(call) = Call::current() {
            fault = fault.with_trail(call.trail());
        }
        Then::Return(Err(fault.into()))
    }
}
