//! What is told of a call on its way: to the trail, to events and counters, and to the order of later calls.

use std::time::Duration;

use failsoft_core::{Attempt, Call, Next, Told, Verdict};
use tokio::time::Instant;

use super::{Cascade, Lane, Untold};
use crate::{
    LAYER, events,
    plan::{Plan, name},
};

impl<Res> Cascade<Res> {
    /// A route answered.
    pub(crate) fn answered(&mut self, plan: &Plan, lane: &Lane) {
        if plan.standing.is_some() && !plan.is_tier(lane.route()) {
            let now = Instant::now();
            plan.answered(lane.route(), self.affinity, lane.took(now).unwrap_or_default(), now);
        }
        // Whatever is to be told beside the answer itself lies in the past.
        if self.recording || self.past.is_some() || self.started > 1 || lane.has_scope() {
            self.tell_answer(plan, lane);
        }
    }

    #[cold]
    fn tell_answer(&mut self, plan: &Plan, lane: &Lane) {
        let took = lane.run().map(|run| Instant::now().saturating_duration_since(run.since));
        let attempt = lane.attempt(plan, Verdict::SUCCESS, Next::Answered, took);
        let _told = lane.enter(&mut self.deferred, || Call::decide(attempt));
    }

    /// Another attempt answered before this one, which was dropped.
    pub(crate) fn overtaken(&mut self, plan: &Plan, lane: &Lane) {
        let now = Instant::now();
        let took = lane.took(now);
        if let Some(took) = took {
            plan.overtaken(lane.route(), took);
        }
        let verdict = if lane.is_called() { Verdict::CANCELLED } else { Verdict::CANCELLED.with_unsent() };
        let attempt = lane.attempt(plan, verdict, Next::Overtaken, took);
        let _told = lane.enter(&mut self.deferred, || Call::decide(attempt));
    }

    /// An attempt was dropped with the whole call, which a layer around has cut off: that one tells of the youngest, and of the others
    /// nobody would.
    pub(crate) fn cut_off(&mut self, lane: &Lane) {
        let attempt = lane.cut(Instant::now());
        let _told = lane.enter(&mut self.deferred, || Call::decide(attempt));
    }

    /// An earlier answer stands in for all routes.
    pub(crate) fn stood_in(&mut self, plan: &Plan, verdict: Verdict) {
        events::last_good(verdict);
        plan.meters.last_good(verdict.class());
        if self.failures().last().is_some_and(|failure| failure.untold.is_some()) {
            self.tell_failure(Next::Cached);
        } else {
            let attempt = Attempt::new(LAYER, verdict.with_unsent()).then(Next::Cached);
            self.deferred.enter(|| Call::record(attempt));
        }
    }

    /// Tells the trail of the last failure, once.
    pub(super) fn tell_failure(&mut self, next: Next) -> Option<Told> {
        let Untold { attempt, scope } = self.past().failures.last_mut()?.untold.take()?;
        // A layer inside the route may have told of its last attempt, and why it gave up.
        let decide = || Call::decide(attempt.then(next));
        Some(match scope {
            Some(scope) => scope.enter(decide),
            None => self.deferred.enter(decide),
        })
    }

    pub(super) fn flush_skipped(&mut self, plan: &Plan) {
        let Some(past) = &mut self.past else { return };
        for (route, verdict) in past.skipped.drain(..) {
            events::skipped(name(plan, route), verdict);
            let attempt = attempt(plan, route, verdict.with_unsent(), Next::Skipped, None);
            self.deferred.enter(|| Call::record(attempt));
        }
    }
}

pub(super) fn attempt(
    plan: &Plan,
    route: usize,
    verdict: Verdict,
    next: Next,
    took: Option<Duration>,
) -> Attempt {
    let attempt = Attempt::new(LAYER, verdict).on(plan.name(route).cloned()).then(next);
    match took {
        Some(took) => attempt.with_took(took),
        None => attempt,
    }
}
