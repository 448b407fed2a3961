//! The attempts of one call that run, one after the other or beside each other.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use failsoft_core::{BoxError, Classify, Replay};
use tokio::time::{Instant, Sleep};
use tower_service::Service;

use super::{
    BoxOther, Came, Other, ResponseFuture, Which,
    judge::{Judged, judge},
    stage::{Outcome, Progress, Stage, drive},
};
use crate::{
    cascade::{Cascade, Due, Failed, FellShort, Lane, Then},
    last_good::{Keep, Kept},
    plan::Plan,
    table::To,
};

impl<S, R, Req, C, P, K, O> ResponseFuture<S, R, Req, C, P, K, O>
where
    S: Service<Req, Error: Into<BoxError>>,
    R: Service<Req, Response = S::Response, Error: Into<BoxError>> + Clone,
    C: Classify<S::Response>,
    P: Replay<Req>,
    K: Keep<Req, S::Response>,
{
    /// Begins an attempt, with the request that is there for it.
    pub(super) fn place(self: Pin<&mut Self>, lane: Lane) {
        let Some(this) = self.parts() else { return };
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
    pub(super) fn poll_attempts(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Option<Result<K::Out, BoxError>> {
        loop {
            let this = self.as_mut().parts()?;
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
            let Some(this) = self.as_mut().parts() else { break };
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
    pub(super) fn poll_time(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<K::Out, BoxError>>> {
        let Some(mut this) = self.as_mut().parts() else { return Poll::Pending };
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
        let this = self.as_mut().parts()?;
        let called = lane_mut(this.lane, this.others, which).is_some_and(|lane| lane.is_called());
        let outcome = if called { Outcome::TimedOut } else { Outcome::NotReadyInTime };
        match self.came(which, Progress::Done(outcome)) {
            Came::Over(result) => Some(result),
            Came::Waits | Came::Further => None,
        }
    }

    /// Takes in how far an attempt has come.
    pub(super) fn came(
        mut self: Pin<&mut Self>,
        which: Which,
        progress: Progress<S::Response, K::Out, K::Keeping>,
    ) -> Came<Result<K::Out, BoxError>> {
        let Some(this) = self.as_mut().parts() else { return Came::Waits };
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
        let Some(mut this) = self.parts() else { return };
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
        let Some(mut this) = self.as_mut().parts() else { return };
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
        let Some(this) = self.parts() else { return };
        this.cascade.answered(&this.shared.plan, &lane);
    }

    /// Drops the attempts that still run, each in its scope.
    #[cold]
    fn drop_the_others(self: Pin<&mut Self>) {
        let Some(mut this) = self.parts() else { return };
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
        let Some(mut this) = self.as_mut().parts() else { return Came::Waits };
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
pub(super) fn youngest<R, RF, Req, KF>(
    first: Option<&Lane>,
    others: &[BoxOther<R, RF, Req, KF>],
) -> Option<u32> {
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
