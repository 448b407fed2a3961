//! One call's attempts beside each other: when another begins, which of them wins, and what is told of it.

use std::{
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use failsoft_core::{Attempt, BoxError, Call, Classify, Fault, Next, Replay, Step, Told, Usage, Verdict};
use tokio::time::{Instant, Sleep, sleep_until};
use tower_service::Service;

use super::{
    events,
    policy::{Shared, ends_all},
};
use crate::{more::Grant, policy::LAYER};

pub(super) struct Race<S: Service<Req>, Req, C, R: Replay<Req>> {
    shared: Arc<Shared<C, R>>,
    /// What the next hedge needs; `None` where there will be none.
    spare: Option<Spare<S, R::Kept>>,
    /// When the first attempt was first seen to wait; the clock is read where somebody needs it.
    began: Option<Instant>,
    /// How the first attempt ended, if that was before the others.
    first: Option<Lap>,
    hedges: Vec<Hedged<S::Future>>,
    /// A failure that came while others still ran, for the case that those are only refused.
    failed: Option<Failed>,
    target: Option<Arc<str>>,
    /// That of the call, and of the first attempt; known from the first hedge on.
    scope: Option<Call>,
}

/// What a further attempt is made of.
pub(super) struct Spare<S, K> {
    inner: S,
    kept: Option<K>,
    delay: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    /// The delay is over, and the service is not ready yet.
    readying: bool,
}

/// An attempt after the first. Boxed, because it begins only now and then, and the future of a call that is not hedged is half
/// the size without a place for it.
struct Hedged<F> {
    /// `None` when it is over.
    future: Option<Pin<Box<F>>>,
    call: Call,
    began: Instant,
    end: Option<Lap>,
    /// What it has taken.
    grant: Option<Grant>,
}

#[derive(Clone, Copy)]
struct Lap {
    verdict: Verdict,
    took: Duration,
}

/// An error as it came; of a response, what it meant.
struct Failed {
    which: Which,
    verdict: Verdict,
    outcome: Result<Option<u16>, BoxError>,
}

/// Which attempt it is: the hedges are counted from zero.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Which {
    First,
    Hedge(usize),
}

type Outcome<S, Req> = Result<<S as Service<Req>>::Response, <S as Service<Req>>::Error>;

impl<S, K> Spare<S, K> {
    pub(super) const fn new(inner: S, kept: K, delay: Duration) -> Self {
        Self { inner, kept: Some(kept), delay, timer: None, readying: false }
    }
}

impl<S, Req, C, R> Race<S, Req, C, R>
where
    S: Service<Req, Error: Into<BoxError>>,
    C: Classify<S::Response>,
    R: Replay<Req>,
{
    pub(super) const fn new(shared: Arc<Shared<C, R>>, spare: Option<Spare<S, R::Kept>>) -> Self {
        Self {
            shared,
            spare,
            began: None,
            first: None,
            hedges: Vec::new(),
            failed: None,
            target: None,
            scope: None,
        }
    }

    /// The next hedge that has an outcome.
    pub(super) fn poll_hedges(&mut self, cx: &mut Context<'_>) -> Option<(Which, Outcome<S, Req>)> {
        self.hedges.iter_mut().enumerate().find_map(|(i, hedge)| {
            let future = hedge.future.as_mut()?;
            let Poll::Ready(outcome) = hedge.call.enter(|| future.as_mut().poll(cx)) else { return None };
            hedge.call.enter(|| hedge.future = None);
            Some((Which::Hedge(i), outcome))
        })
    }

    /// An attempt has an outcome. It is the call's if it is good, if it tells that of the others, or if no other attempt is
    /// left that it could wait for. `drop_first` drops the first attempt, which may still run then.
    pub(super) fn ended(
        &mut self,
        which: Which,
        first_runs: bool,
        outcome: Outcome<S, Req>,
        drop_first: impl FnOnce(),
    ) -> Option<Result<S::Response, BoxError>> {
        let (outcome, verdict) = self.judge(outcome);
        if verdict.is_success() && self.hedges.is_empty() {
            // The way of most calls.
            if self.shared.measures() {
                self.shared.record(self.began.map_or(Duration::ZERO, |began| began.elapsed()));
            }
            self.shared.on_success();
            return Some(outcome);
        }
        self.shared.hear(&verdict);
        if self.hedges.is_empty() {
            return Some(outcome);
        }
        let now = Instant::now();
        self.note(which, verdict, now);
        if verdict.is_success() {
            drop_first();
            return Some(self.won(which, verdict, outcome, first_runs, now));
        }
        if verdict.class().is_denied() {
            // A refusal of ours is no attempt, and the next would be refused as well.
            self.spare = None;
            if let Which::Hedge(i) = which {
                let grant = self.hedges.get_mut(i).and_then(|hedge| hedge.grant.take());
                grant.into_iter().for_each(Grant::give_back);
            }
        }
        let runs = first_runs || self.hedges.iter().any(|hedge| hedge.future.is_some());
        if runs && !ends_all(&verdict) {
            // The others may still be good. A response goes now, and with it the connection that it may hold.
            if self.failed.is_none() || !verdict.class().is_denied() {
                let outcome = outcome.map(|response| self.shared.classify.status_code(&response));
                self.failed = Some(Failed { which, verdict, outcome });
            }
            return None;
        }
        drop_first();
        Some(self.lost(which, verdict, outcome, now))
    }

    /// The call has its outcome: nothing is learnt of it any more.
    pub(super) const fn over(&mut self) {
        self.began = None;
    }

    fn judge(&self, outcome: Outcome<S, Req>) -> (Result<S::Response, BoxError>, Verdict) {
        match outcome {
            Ok(response) => {
                let verdict = match self.shared.classify.response(&response) {
                    Step::Now(verdict) => verdict,
                    // What comes after the head is passed on: it cannot be taken back.
                    Step::AtEnd(_) => Verdict::SUCCESS,
                };
                (Ok(response), verdict)
            }
            Err(error) => {
                let error = error.into();
                let verdict = self.shared.classify.error(&*error);
                (Err(error), verdict)
            }
        }
    }

    fn note(&mut self, which: Which, verdict: Verdict, now: Instant) {
        match which {
            Which::First => {
                let took = self.began.map_or(Duration::ZERO, |began| now - began);
                self.first = Some(Lap { verdict, took });
            }
            Which::Hedge(i) => {
                if let Some(hedge) = self.hedges.get_mut(i) {
                    hedge.end = Some(Lap { verdict, took: now - hedge.began });
                }
            }
        }
    }

    fn won(
        &mut self,
        which: Which,
        verdict: Verdict,
        outcome: Result<S::Response, BoxError>,
        first_runs: bool,
        now: Instant,
    ) -> Result<S::Response, BoxError> {
        // How long the first would have taken nobody knows: at least so long.
        if which == Which::First || first_runs {
            self.shared.record(self.began.map_or(Duration::ZERO, |began| now - began));
        }
        self.shared.on_success();
        events::won(self.target.as_deref(), &verdict, which);
        if which != Which::First {
            self.shared.count_won();
        }
        self.tell(which, None, now);
        outcome
    }

    /// No attempt was good: the outcome of the last, unless that is only a refusal of ours after the target's own word.
    fn lost(
        &mut self,
        which: Which,
        verdict: Verdict,
        outcome: Result<S::Response, BoxError>,
        now: Instant,
    ) -> Result<S::Response, BoxError> {
        events::lost(self.target.as_deref(), &verdict, self.hedges.len());
        let failed = self.failed.take().filter(|_| verdict.class().is_denied());
        let told = self.tell(which, failed.as_ref().map(|failed| failed.which), now);
        let Some(failed) = failed else { return outcome };
        told.iter().for_each(Told::hand_on);
        let status = failed.outcome?;
        let fault = Fault::with_verdict(failed.verdict, LAYER)
            .with_target_if(self.target.clone())
            .with_message("the answer was let go while another attempt ran");
        Err(match status {
            Some(status) => fault.with_status(status).into(),
            None => fault.into(),
        })
    }

    /// Waits until another attempt begins. `Ready` when one has; it has not been polled then.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.began.is_none() && (self.spare.is_some() || self.shared.measures()) {
            self.began = Some(Instant::now());
        }
        let (Some(spare), Some(began)) = (&mut self.spare, self.began) else { return Poll::Pending };
        if !spare.readying {
            let since = self.hedges.last().map_or(began, |hedge| hedge.began);
            let Some(at) = since.checked_add(spare.delay) else {
                self.spare = None;
                return Poll::Pending;
            };
            ready!(spare.timer.get_or_insert_with(|| Box::pin(sleep_until(at))).as_mut().poll(cx));
            spare.timer = None;
            spare.readying = true;
            // Whom the target has just told that it is too much takes no place in its queue, either.
            if let Some(why) = self.suppressed() {
                return self.no_more(why);
            }
        }
        let Some(spare) = &mut self.spare else { return Poll::Pending };
        let is_ready = ready!(spare.inner.poll_ready(cx)).is_ok();
        // To become ready may have taken long, and much may have been heard of the target meanwhile.
        let hindrance = if is_ready { self.suppressed() } else { Some(Next::NotReady) };
        match hindrance.map_or_else(|| self.hedge(), Err) {
            Ok(()) => Poll::Ready(()),
            Err(why) => self.no_more(why),
        }
    }

    fn suppressed(&self) -> Option<Next> {
        self.shared.suppressed(Instant::now(), Call::current_deadline())
    }

    /// Begins another attempt on a service that is ready, or says why there is none.
    fn hedge(&mut self) -> Result<(), Next> {
        let Shared { policy, replay, .. } = &*self.shared;
        let begun = u32::try_from(self.hedges.len()).unwrap_or(u32::MAX).saturating_add(1);
        let last = begun >= policy.max_hedges;
        let spare = self.spare.as_mut().ok_or(Next::AttemptsSpent)?;
        let request = replay.again(&mut spare.kept, last).ok_or(Next::NotRepeatable)?;
        let retry = Call::take_retry()?;
        let mut grant = Grant { retry, charge: self.shared.withdraw()? };
        if self.target.is_none() {
            self.target = policy.target.clone().or_else(|| replay.target(&request));
        }
        if self.scope.is_none() {
            self.scope = Call::current();
        }
        let call = Call::options().beside().begin();
        let future = Some(Box::pin(call.enter(|| spare.inner.call(request))));
        grant.sent();
        spare.readying = false;
        let began = Instant::now();
        self.hedges.push(Hedged { future, call, began, end: None, grant: Some(grant) });
        events::begun(
            self.target.as_deref(),
            begun,
            self.began.map_or(Duration::ZERO, |first| began - first),
        );
        self.shared.count_sent();
        if last {
            self.spare = None;
        }
        Ok(())
    }

    /// There will be no further attempt: lets the copy of the request go, and the readiness with its service.
    fn no_more(&mut self, why: Next) -> Poll<()> {
        events::suppressed(self.shared.policy.target.as_deref(), why);
        self.shared.count_suppressed(why);
        self.spare = None;
        Poll::Pending
    }
}

impl<S: Service<Req>, Req, C, R: Replay<Req>> Race<S, Req, C, R> {
    /// Drops the hedges that still run, each in its own scope, and writes all attempts into the trail; which of them was the one that is
    /// wanted. What was dropped while it waited to be made again is told by what it waited after.
    fn tell(&mut self, last: Which, wanted: Option<Which>, now: Instant) -> Option<Told> {
        let mut found = None;
        for (scope, which, attempt) in self.attempts(Some(last), now) {
            let told = match scope {
                Some(scope) => scope.enter(|| Call::decide(attempt)),
                None => Call::decide(attempt),
            };
            if wanted == Some(which) {
                found = Some(told);
            }
        }
        found
    }

    /// The call is cut off by a layer around, which tells of one attempt: that it was cut. All but one that still runs are told here.
    fn tell_cut(&mut self) {
        let runs = self.hedges.iter().rposition(|hedge| hedge.end.is_none());
        let left = runs.map_or(Which::First, Which::Hedge);
        for (scope, _, attempt) in
            self.attempts(None, Instant::now()).into_iter().filter(|(_, which, _)| *which != left)
        {
            let _told = match scope {
                Some(scope) => scope.enter(|| Call::decide(attempt)),
                None => Call::decide(attempt),
            };
        }
    }

    /// Drops the hedges that still run, each in its own scope; what there is to tell of all attempts, each with its scope where that is
    /// another than that of the call. `last` has ended the race.
    fn attempts(&mut self, last: Option<Which>, now: Instant) -> Vec<(Option<Call>, Which, Attempt)> {
        self.spare = None;
        let mut hedges = mem::take(&mut self.hedges);
        hedges.iter_mut().for_each(|hedge| hedge.call.enter(|| hedge.future = None));
        let took = self.began.map_or(Duration::ZERO, |began| now - began);
        let end = self.first.unwrap_or(Lap { verdict: Verdict::CANCELLED, took });
        // After how long another attempt followed.
        let delay = |began: Option<Instant>, next: Option<&Hedged<S::Future>>| {
            next.map(|next| began.map_or(Duration::ZERO, |began| next.began - began))
        };
        let first = self.attempt(last == Some(Which::First), end, None, delay(self.began, hedges.first()));
        let mut attempts = vec![(None, Which::First, first)];
        for (i, hedge) in hedges.iter().enumerate() {
            let end = hedge.end.unwrap_or(Lap { verdict: Verdict::CANCELLED, took: now - hedge.began });
            let delay = delay(Some(hedge.began), hedges.get(i + 1));
            let attempt = self.attempt(last == Some(Which::Hedge(i)), end, Some(hedge.call.usage()), delay);
            attempts.push((Some(hedge.call.clone()), Which::Hedge(i), attempt));
        }
        attempts
    }

    fn attempt(&self, is_last: bool, lap: Lap, usage: Option<Usage>, delay: Option<Duration>) -> Attempt {
        let next = match (is_last, delay) {
            (true, _) if lap.verdict.is_success() => Next::Answered,
            (true, _) => Next::Final,
            (false, Some(_)) => Next::Hedge,
            (false, None) => Next::Overtaken,
        };
        let mut attempt =
            Attempt::new(LAYER, lap.verdict).on(self.target.clone()).then(next).with_took(lap.took);
        attempt.delay = delay.filter(|_| next == Next::Hedge);
        attempt.usage = usage.filter(|usage| !usage.is_unknown());
        attempt
    }
}

impl<S: Service<Req>, Req, C, R: Replay<Req>> Drop for Race<S, Req, C, R> {
    /// An outer limit has ended the call. To know nothing of those that are slowest would make the target look quick.
    fn drop(&mut self) {
        if let Some(scope) = self.scope.take().filter(|_| !self.hedges.is_empty()) {
            scope.enter(|| self.tell_cut());
        }
        if let (Some(began), None, true) = (self.began, self.first, self.shared.measures()) {
            self.shared.record_unfinished(began.elapsed());
        }
    }
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use failsoft_core::{Class, SoftKind};

    use super::*;

    #[test]
    fn only_what_is_said_of_the_request_itself_ends_all_attempts() {
        for class in [Class::Invalid, Class::Auth, Class::Quota, Class::ContextLength, Class::Refused] {
            assert!(ends_all(&Verdict::of(class)), "{class}");
        }
        for class in [Class::Transient, Class::Overloaded, Class::RateLimited, Class::Soft(SoftKind::Empty)] {
            assert!(!ends_all(&Verdict::of(class)), "{class}");
        }
    }
}
