//! The future of a call.

mod judge;
mod stage;

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use failsoft_core::{BoxError, Classify, Replay};
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep};
use tower_service::Service;

use self::{
    judge::{Judged, failure, judge},
    stage::{Outcome, Progress, Stage, drive},
};
use crate::{
    cascade::{Begun, Cascade, Due, Failed, FellShort, Lane, Then},
    last_good::{Keep, Kept, Replayed},
    layer::Shared,
    order::{Affinity, NoAffinity},
    plan::Plan,
    table::To,
};

pin_project! {
    /// The future of a [`Fallback`](crate::Fallback)'s call: asks one route after the other, or beside it. Dropped
    /// anywhere, it drops the attempts that are running.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, R, Req, C, P, K, O = NoAffinity>
    where
        S: Service<Req>,
        R: Service<Req>,
        P: Replay<Req>,
        K: Keep<Req, S::Response>,
    {
        #[pin]
        first: Stage<S, S::Future, K::Keeping>,
        // While the first route is asked.
        lane: Option<Lane>,
        cascade: Cascade<S::Response>,
        // The one for the next attempt.
        request: Option<Req>,
        kept: Option<P::Kept>,
        key: Option<K::Key>,
        shared: Arc<Shared<R, C, P, K, O>>,
        // Those on further routes, in the order in which they were started. Boxed, so that a first route that answers
        // carries nothing of them.
        others: Others<R, Req, K::Keeping>,
        // Made when an attempt is first seen to wait.
        #[pin]
        sleep: Option<Sleep>,
        // When all have failed: looks for an earlier answer.
        replaying: Option<(Pin<Box<K::Replaying>>, FellShort)>,
    }
}

type Others<R, Req, KF> = Vec<BoxOther<R, <R as Service<Req>>::Future, Req, KF>>;

type BoxOther<R, RF, Req, KF> = Pin<Box<Other<R, RF, Req, KF>>>;

pin_project! {
    /// An attempt on a further route.
    struct Other<R, RF, Req, KF> {
        lane: Lane,
        #[pin]
        stage: Stage<R, RF, KF>,
        request: Option<Req>,
    }
}

/// One of the attempts that run.
#[derive(Clone, Copy)]
enum Which {
    First,
    Other(usize),
}

/// What came of a poll of an attempt.
enum Came<T> {
    /// It waits.
    Waits,
    /// It has come further, or is gone: all are looked at once more.
    Further,
    /// The call is over.
    Over(T),
}

impl<S, R, Req, C, P, K, O> ResponseFuture<S, R, Req, C, P, K, O>
where
    S: Service<Req>,
    R: Service<Req>,
    P: Replay<Req>,
    K: Keep<Req, S::Response>,
    O: Affinity<Req>,
{
    #[inline]
    pub(crate) fn new(first: S, request: Req, shared: Arc<Shared<R, C, P, K, O>>) -> Self {
        let key = shared.keep.key(&request);
        let affinity = shared.affinity.key(&request);
        let tokens = shared.affinity.tokens(&request);
        let (request, kept) =
            if shared.plan.repeats() { shared.replay.keep(request) } else { (request, None) };
        Self {
            first: Stage::Ready { service: first },
            lane: None,
            cascade: Cascade::new(kept.is_some(), affinity, tokens),
            request: Some(request),
            kept,
            key,
            shared,
            others: Vec::new(),
            sleep: None,
            replaying: None,
        }
    }
}

impl<S, R, Req, C, P, K, O> Future for ResponseFuture<S, R, Req, C, P, K, O>
where
    S: Service<Req, Error: Into<BoxError>>,
    R: Service<Req, Response = S::Response, Error: Into<BoxError>> + Clone,
    C: Classify<S::Response>,
    P: Replay<Req>,
    K: Keep<Req, S::Response>,
{
    type Output = Result<K::Out, BoxError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.as_mut().project();
        if !this.cascade.is_new() {
            return self.poll_on(cx);
        }
        let shared = &**this.shared;
        match this.cascade.begin(&shared.plan) {
            // The way of most calls: nothing is noted, and nothing made, for a first route that answers at once.
            Begun::Plain => {
                let progress = this.cascade.scope().enter(|| drive(this.first, this.request, cx));
                let Progress::Done(Outcome::Response(response)) = progress else {
                    return self.begun_with(progress, cx);
                };
                if let Some(verdict) = failure(shared, &response) {
                    return self.begun_with(Progress::Done(Outcome::Bad(response, verdict)), cx);
                }
                match shared.keep.keep(this.key.as_ref(), response) {
                    Kept::Now(answer) => {
                        this.cascade.first_answered(&shared.plan);
                        Poll::Ready(Ok(answer))
                    }
                    Kept::Later(future) => self.begun_with(Progress::Later(future), cx),
                }
            }
            Begun::By(lane) => {
                self.as_mut().place(*lane);
                self.poll_on(cx)
            }
            Begun::Refused(fault) => match self.as_mut().fall_short(FellShort::Refused(*fault)) {
                Came::Over(result) => Poll::Ready(result),
                Came::Waits | Came::Further => self.poll_on(cx),
            },
        }
    }
}

impl<S, R, Req, C, P, K, O> ResponseFuture<S, R, Req, C, P, K, O>
where
    S: Service<Req, Error: Into<BoxError>>,
    R: Service<Req, Response = S::Response, Error: Into<BoxError>> + Clone,
    C: Classify<S::Response>,
    P: Replay<Req>,
    K: Keep<Req, S::Response>,
{
    /// The first route was asked at once, and has not just answered.
    #[inline(never)]
    fn begun_with(
        mut self: Pin<&mut Self>,
        progress: Progress<S::Response, K::Out, K::Keeping>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<K::Out, BoxError>> {
        let this = self.as_mut().project();
        *this.lane = Some(Lane::first());
        match self.as_mut().came(Which::First, progress) {
            Came::Over(result) => return Poll::Ready(result),
            Came::Further => return self.poll_on(cx),
            Came::Waits => {}
        }
        // One that waits need not be polled again at once.
        match ready!(self.as_mut().poll_time(cx)) {
            Some(result) => Poll::Ready(result),
            None => self.poll_on(cx),
        }
    }

    #[inline(never)]
    fn poll_on(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<K::Out, BoxError>> {
        loop {
            if let Some(result) = self.as_mut().poll_attempts(cx) {
                return Poll::Ready(result);
            }
            if self.replaying.is_some() {
                match ready!(self.as_mut().poll_replaying(cx)) {
                    Came::Over(result) => return Poll::Ready(result),
                    Came::Waits | Came::Further => continue,
                }
            }
            if let Some(result) = ready!(self.as_mut().poll_time(cx)) {
                return Poll::Ready(result);
            }
        }
    }

    /// Begins an attempt, with the request that is there for it.
    fn place(self: Pin<&mut Self>, lane: Lane) {
        let this = self.project();
        let further = lane.route().checked_sub(1).and_then(|place| this.shared.services.get(place));
        match further {
            Some(service) => {
                // A clone that no other call has touched.
                let stage = Stage::Ready { service: service.clone() };
                this.others.push(Box::pin(Other { lane, stage, request: this.request.take() }));
            }
            None => *this.lane = Some(lane),
        }
    }

    /// Takes each attempt as far as it goes.
    fn poll_attempts(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Option<Result<K::Out, BoxError>> {
        loop {
            let this = self.as_mut().project();
            if let Some(lane) = this.lane.as_ref().filter(|lane| !lane.is_waiting()) {
                // One scope for all that the attempt does in this poll.
                let progress = lane.enter(this.cascade.scope(), || drive(this.first, this.request, cx));
                match self.as_mut().came(Which::First, progress) {
                    Came::Waits => {}
                    Came::Further => continue,
                    Came::Over(result) => return Some(result),
                }
            }
            match self.as_mut().poll_others(cx) {
                Came::Waits => return None,
                Came::Further => {}
                Came::Over(result) => return Some(result),
            }
        }
    }

    fn poll_others(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Came<Result<K::Out, BoxError>> {
        for at in 0.. {
            let this = self.as_mut().project();
            let Some(other) = this.others.get_mut(at) else { break };
            let other = other.as_mut().project();
            if other.lane.is_waiting() {
                continue;
            }
            let progress = other.lane.enter(this.cascade.scope(), || drive(other.stage, other.request, cx));
            match self.as_mut().came(Which::Other(at), progress) {
                Came::Waits => {}
                further => return further,
            }
        }
        Came::Waits
    }

    /// Waits until something of an attempt is due.
    fn poll_time(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<K::Out, BoxError>>> {
        let mut this = self.as_mut().project();
        let Some((at, which, due)) =
            next_due(this.cascade, this.lane.as_ref(), this.others, &this.shared.plan)
        else {
            return Poll::Pending;
        };
        ready!(poll_sleep(this.sleep.as_mut(), at, cx));
        Poll::Ready(match due {
            Due::Limit => self.out_of_time(which),
            Due::Recovery => {
                if let Some(lane) = lane_mut(this.lane, this.others, which) {
                    this.cascade.recovered(&this.shared.plan, lane);
                }
                None
            }
            Due::Slow => {
                let (kept, request, shared) = (this.kept, this.request, &**this.shared);
                let again = |last| {
                    *request = shared.replay.again(kept, last);
                    request.is_some()
                };
                let lane = lane_mut(this.lane, this.others, which);
                let beside = lane.and_then(|lane| this.cascade.start_beside(&shared.plan, lane, again));
                if let Some(lane) = beside {
                    self.place(lane);
                }
                None
            }
        })
    }

    fn out_of_time(mut self: Pin<&mut Self>, which: Which) -> Option<Result<K::Out, BoxError>> {
        let this = self.as_mut().project();
        let called = lane_mut(this.lane, this.others, which).is_some_and(|lane| lane.is_called());
        let outcome = if called { Outcome::TimedOut } else { Outcome::NotReadyInTime };
        match self.came(which, Progress::Done(outcome)) {
            Came::Over(result) => Some(result),
            Came::Waits | Came::Further => None,
        }
    }

    /// Takes in how far an attempt has come.
    fn came(
        mut self: Pin<&mut Self>,
        which: Which,
        progress: Progress<S::Response, K::Out, K::Keeping>,
    ) -> Came<Result<K::Out, BoxError>> {
        let this = self.as_mut().project();
        let shared = &**this.shared;
        let outcome = match progress {
            Progress::Waits { called } => {
                let lane = lane_mut(this.lane, this.others, which);
                let again = lane.is_some_and(|lane| this.cascade.waits(&shared.plan, lane, called));
                return if again { Came::Further } else { Came::Waits };
            }
            Progress::Kept(answer) => {
                self.won(which);
                return Came::Over(Ok(answer));
            }
            Progress::Later(future) => {
                self.set_stage(which, future);
                return Came::Further;
            }
            Progress::Done(outcome) => outcome,
        };
        let Some(lane) = lane_mut(this.lane, this.others, which) else { return Came::Waits };
        match judge(outcome, this.cascade, lane, shared) {
            Judged::Good(mut response) => {
                if let Some(mark) = shared.plan.mark(lane.route(), this.cascade.has_failed()) {
                    shared.classify.degrade(&mut response, &mark, shared.plan.degraded_header);
                }
                match shared.keep.keep(this.key.as_ref(), response) {
                    Kept::Now(answer) => {
                        self.won(which);
                        Came::Over(Ok(answer))
                    }
                    Kept::Later(future) => {
                        self.set_stage(which, future);
                        Came::Further
                    }
                }
            }
            Judged::Failed(failed, to) => self.lost(which, failed, to),
        }
    }

    /// An answer is there, or its head, and is read to its end.
    fn set_stage(self: Pin<&mut Self>, which: Which, future: K::Keeping) {
        let mut this = self.project();
        match which {
            Which::First => this.first.set(Stage::Keep { future }),
            Which::Other(at) => {
                if let Some(other) = this.others.get_mut(at) {
                    other.as_mut().project().stage.set(Stage::Keep { future });
                }
            }
        }
    }

    /// The answer of an attempt is the call's.
    fn won(mut self: Pin<&mut Self>, which: Which) {
        let mut this = self.as_mut().project();
        let won = match which {
            Which::First => {
                this.first.set(Stage::Over);
                this.lane.take()
            }
            Which::Other(at) => take_other(this.others, at),
        };
        let Some(lane) = won else { return };
        if this.lane.is_some() || !this.others.is_empty() {
            self.as_mut().drop_the_others();
        }
        let this = self.project();
        this.cascade.answered(&this.shared.plan, &lane);
    }

    /// Drops the attempts that still run, each in its scope.
    #[cold]
    fn drop_the_others(self: Pin<&mut Self>) {
        let mut this = self.project();
        let plan = &this.shared.plan;
        if let Some(lane) = this.lane.take() {
            lane.enter(this.cascade.scope(), || this.first.set(Stage::Over));
            this.cascade.overtaken(plan, &lane);
        }
        for mut other in this.others.drain(..) {
            let mut other = other.as_mut().project();
            other.lane.enter(this.cascade.scope(), || other.stage.set(Stage::Over));
            this.cascade.overtaken(plan, other.lane);
        }
    }

    /// An attempt has failed.
    #[cold]
    fn lost(
        mut self: Pin<&mut Self>,
        which: Which,
        failed: Failed<S::Response>,
        to: To,
    ) -> Came<Result<K::Out, BoxError>> {
        let mut this = self.as_mut().project();
        // What the attempt holds is given back before another one begins.
        let lane = match which {
            Which::First => {
                this.first.set(Stage::Over);
                this.lane.take()
            }
            Which::Other(at) => take_other(this.others, at),
        };
        let Some(lane) = lane else { return Came::Waits };
        let beside = youngest(this.lane.as_ref(), this.others);
        let (kept, request, shared) = (this.kept, this.request, &**this.shared);
        let again = |last| {
            *request = shared.replay.again(kept, last);
            request.is_some()
        };
        match this.cascade.fail(&shared.plan, &lane, to, failed, beside, again) {
            Then::Next(lane) => {
                self.place(lane);
                Came::Further
            }
            Then::Wait => Came::Further,
            Then::End(why) => {
                self.as_mut().drop_the_others();
                self.fall_short(FellShort::Failed(why))
            }
        }
    }
}

impl<S, R, Req, C, P, K, O> ResponseFuture<S, R, Req, C, P, K, O>
where
    S: Service<Req, Error: Into<BoxError>>,
    R: Service<Req, Response = S::Response, Error: Into<BoxError>> + Clone,
    C: Classify<S::Response>,
    P: Replay<Req>,
    K: Keep<Req, S::Response>,
{
    /// No route has answered: an earlier answer, a last tier, or the failure.
    #[cold]
    fn fall_short(mut self: Pin<&mut Self>, why: FellShort) -> Came<Result<K::Out, BoxError>> {
        let this = self.as_mut().project();
        let why = this.cascade.first_of(why);
        let (_, row) = this.cascade.failed_of(&why);
        if !this.shared.plan.table.stand_in(row) {
            return Came::Over(fail(this.cascade, this.shared, why));
        }
        let answer = match this.key.take().map(|key| this.shared.keep.replay(key)) {
            None => None,
            Some(Replayed::Now(answer)) => answer,
            Some(Replayed::Later(future)) => {
                *this.replaying = Some((Box::pin(future), why));
                return Came::Further;
            }
        };
        self.stand_in(why, answer)
    }

    #[cold]
    fn poll_replaying(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Came<Result<K::Out, BoxError>>> {
        let this = self.as_mut().project();
        let Some((replaying, _)) = this.replaying.as_mut() else { return Poll::Ready(Came::Waits) };
        let answer = ready!(this.cascade.scope().enter(|| replaying.as_mut().poll(cx)));
        Poll::Ready(match this.replaying.take() {
            Some((_, why)) => self.stand_in(why, answer),
            None => Came::Waits,
        })
    }

    fn stand_in(
        mut self: Pin<&mut Self>,
        why: FellShort,
        answer: Option<K::Out>,
    ) -> Came<Result<K::Out, BoxError>> {
        let this = self.as_mut().project();
        let plan = &this.shared.plan;
        if let Some(answer) = answer {
            let (verdict, _) = this.cascade.failed_of(&why);
            this.cascade.stood_in(plan, verdict);
            return Came::Over(Ok(answer));
        }
        let (kept, request, shared) = (this.kept, this.request, &**this.shared);
        let again = |last| {
            *request = shared.replay.again(kept, last);
            request.is_some()
        };
        match this.cascade.next_tier(plan, why, again) {
            Ok(lane) => {
                self.place(lane);
                Came::Further
            }
            Err(why) => Came::Over(fail(this.cascade, this.shared, why)),
        }
    }
}

/// Nothing has answered, and nothing stands in.
fn fail<Req, Res, R, C, P, K: Keep<Req, Res>, O>(
    cascade: &mut Cascade<Res>,
    shared: &Shared<R, C, P, K, O>,
    why: FellShort,
) -> Result<K::Out, BoxError> {
    match why {
        FellShort::Refused(fault) => Err(fault.into()),
        FellShort::Failed(why) => {
            cascade.end_with(&shared.plan, why).map(|response| shared.keep.pass(response))
        }
    }
}

fn take_other<R, RF, Req, KF>(others: &mut Vec<BoxOther<R, RF, Req, KF>>, at: usize) -> Option<Lane> {
    if at >= others.len() {
        return None;
    }
    let mut other = others.remove(at);
    let mut other = other.as_mut().project();
    other.stage.set(Stage::Over);
    Some(std::mem::replace(other.lane, Lane::first()))
}

fn lane_mut<'a, R, RF, Req, KF>(
    first: &'a mut Option<Lane>,
    others: &'a mut [BoxOther<R, RF, Req, KF>],
    which: Which,
) -> Option<&'a mut Lane> {
    match which {
        Which::First => first.as_mut(),
        Which::Other(at) => others.get_mut(at).map(|other| other.as_mut().project().lane),
    }
}

/// The number of the last attempt that was started of those that run.
fn youngest<R, RF, Req, KF>(first: Option<&Lane>, others: &[BoxOther<R, RF, Req, KF>]) -> Option<u32> {
    let others = others.iter().map(|other| other.lane.number());
    others.chain(first.map(Lane::number)).max()
}

/// What comes first of all that the attempts wait for.
fn next_due<Res, R, RF, Req, KF>(
    cascade: &Cascade<Res>,
    first: Option<&Lane>,
    others: &[BoxOther<R, RF, Req, KF>],
    plan: &Plan,
) -> Option<(Instant, Which, Due)> {
    let youngest = youngest(first, others);
    let others = others.iter().enumerate().map(|(at, other)| (Which::Other(at), &other.lane));
    let lanes = first.map(|lane| (Which::First, lane)).into_iter().chain(others);
    lanes
        .filter_map(|(which, lane)| {
            let (at, due) = cascade.due(plan, lane, youngest == Some(lane.number()))?;
            Some((at, which, due))
        })
        .min_by_key(|(at, ..)| *at)
}

fn poll_sleep(mut sleep: Pin<&mut Option<Sleep>>, limit: Instant, cx: &mut Context<'_>) -> Poll<()> {
    match sleep.as_mut().as_pin_mut() {
        Some(mut sleep) => {
            if sleep.deadline() != limit {
                sleep.as_mut().reset(limit);
            }
            sleep.poll(cx)
        }
        None => {
            sleep.set(Some(tokio::time::sleep_until(limit)));
            sleep.as_pin_mut().map_or(Poll::Pending, |sleep| sleep.poll(cx))
        }
    }
}

impl<S, R, Req, C, P, K, O> fmt::Debug for ResponseFuture<S, R, Req, C, P, K, O>
where
    S: Service<Req>,
    R: Service<Req>,
    P: Replay<Req>,
    K: Keep<Req, S::Response>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lanes = self.lane.iter().chain(self.others.iter().map(|other| &other.lane));
        let routes: Vec<_> = lanes.map(|lane| self.shared.plan.name(lane.route())).collect();
        f.debug_struct("ResponseFuture").field("asks", &routes).finish_non_exhaustive()
    }
}
