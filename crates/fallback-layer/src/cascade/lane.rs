//! One attempt of a call: which route it is on, in which scope, and how long it may take.

use std::{sync::Arc, time::Duration};

use failsoft_core::{Attempt, Call, Deferred, Next, Verdict};
use tokio::time::Instant;

use super::{Cascade, telling::attempt};
use crate::{
    LAYER, events,
    plan::{Choice, Plan, name},
};

pub(crate) struct Lane {
    route: usize,
    /// Which attempt of the call it is, from 1.
    number: u32,
    /// It took over from another route, so that nothing is in its caches.
    cold: bool,
    /// Whether the service has been called; until then it becomes ready.
    called: bool,
    /// Whether another route may still be started beside it.
    spare: bool,
    run: Option<Running>,
    /// The route is in poor health, and is asked then.
    waits_until: Option<Instant>,
    /// Of a further attempt, or of a last resort.
    scope: Option<Call>,
    /// Of its route, where another one runs beside it: what is told when all are cut off.
    name: Option<Arc<str>>,
}

#[derive(Clone, Copy)]
pub(super) struct Running {
    pub(super) since: Instant,
    ready_by: Option<Instant>,
    pub(super) limit: Option<Instant>,
}

/// What a lane waits for, beside its route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// The recovery of its route.
    Recovery,
    /// The end of its time.
    Limit,
    /// That it has taken so long that another route is started beside it.
    Slow,
}

impl Lane {
    /// The first attempt, on the first route.
    #[inline]
    pub(crate) const fn first() -> Self {
        Self::on(0, 1, false, None)
    }

    #[inline]
    pub(super) const fn on(route: usize, number: u32, cold: bool, waits_until: Option<Instant>) -> Self {
        Self {
            route,
            number,
            cold,
            called: false,
            spare: true,
            run: None,
            waits_until,
            scope: None,
            name: None,
        }
    }

    /// The place of its route.
    #[inline]
    pub(crate) const fn route(&self) -> usize {
        self.route
    }

    /// A later attempt has a higher number.
    pub(crate) const fn number(&self) -> u32 {
        self.number
    }

    /// Whether it is still waiting for its route to recover.
    #[inline]
    pub(crate) const fn is_waiting(&self) -> bool {
        self.waits_until.is_some()
    }

    pub(super) const fn has_scope(&self) -> bool {
        self.scope.is_some()
    }

    pub(super) const fn scope(&self) -> Option<&Call> {
        self.scope.as_ref()
    }

    pub(super) const fn run(&self) -> Option<Running> {
        self.run
    }

    pub(super) const fn started_beside(&mut self) {
        self.spare = false;
    }

    pub(super) fn runs_beside(&mut self, plan: &Plan) {
        self.name = plan.name(self.route).cloned();
    }

    /// Whether it was called, as was seen when it waited.
    pub(crate) const fn is_called(&self) -> bool {
        self.called
    }

    /// Runs a part of the attempt in its scope.
    #[inline]
    pub(crate) fn enter<T>(&self, deferred: &mut Deferred, f: impl FnOnce() -> T) -> T {
        match &self.scope {
            Some(scope) => scope.enter(f),
            None => deferred.enter(f),
        }
    }

    /// How long it has run, where somebody read the clock.
    pub(super) fn took(&self, now: Instant) -> Option<Duration> {
        self.run.map(|run| now.saturating_duration_since(run.since))
    }

    /// What the trail tells of it when it was dropped because all attempts were, and another one had begun after it.
    pub(super) fn cut(&self, now: Instant) -> Attempt {
        let verdict = if self.called { Verdict::CANCELLED } else { Verdict::CANCELLED.with_unsent() };
        let attempt = Attempt::new(LAYER, verdict).on(self.name.clone()).then(Next::NextRoute);
        match self.took(now) {
            Some(took) => attempt.with_took(took),
            None => attempt,
        }
    }

    /// What the trail tells of it.
    pub(super) fn attempt(
        &self,
        plan: &Plan,
        verdict: Verdict,
        next: Next,
        took: Option<Duration>,
    ) -> Attempt {
        let mut attempt = attempt(plan, self.route, verdict, next, took);
        attempt.usage = self.scope.as_ref().map(Call::usage).filter(|usage| !usage.is_unknown());
        attempt
    }
}

/// What a last tier has where the time is used up: whatever it does is near, and the caller waits for it already.
const TIER_GRACE: Duration = Duration::from_secs(2);

impl<Res> Cascade<Res> {
    /// An attempt is seen to wait: only now somebody needs the clock. Whether fallbacks inside it should look at it once
    /// more.
    pub(crate) fn waits(&mut self, plan: &Plan, lane: &mut Lane, called: bool) -> bool {
        lane.called = called;
        let seen = lane.run.is_some();
        let mut limit = self.running(plan, lane).limit;
        let mut is_shorter = false;
        if self.nested && seen && !plan.is_tier(lane.route) {
            is_shorter = self.shorten(plan, lane);
            limit = lane.run.and_then(|run| run.limit);
        }
        if let Some(scope) = &lane.scope {
            // Its deadline was told when it began.
            if is_shorter {
                scope.set_route_limit(limit);
            }
            return is_shorter;
        }
        // Where nothing was recorded there is no fallback inside.
        if (self.told_limit && !is_shorter) || self.deferred.call().is_none() {
            return false;
        }
        self.tell_limit(limit);
        true
    }

    pub(super) fn tell_limit(&mut self, until: Option<Instant>) {
        if let Some(call) = self.deferred.call() {
            call.set_route_limit(until);
        }
        self.told_limit = until.is_some();
    }

    /// The route around may have told its limit since: whether this one's is another now.
    fn shorten(&mut self, plan: &Plan, lane: &mut Lane) -> bool {
        let (Some(end), Some(run)) = (self.end, lane.run) else { return false };
        let within = end.within(Call::route_limit());
        let is_news = within.at != end.at;
        if is_news {
            self.end = Some(within);
            lane.run = Some(Running::new(run.since, within.at, self.is_last(plan), plan));
        }
        is_news
    }

    /// What is next of an attempt, and when, if nothing comes before.
    pub(crate) fn due(&self, plan: &Plan, lane: &Lane, youngest: bool) -> Option<(Instant, Due)> {
        if let Some(until) = lane.waits_until {
            return Some((until, Due::Recovery));
        }
        let run = lane.run?;
        let limit = if lane.called { run.limit } else { run.ready_by };
        let limit = limit.map(|at| (at, Due::Limit));
        let threshold = plan.slow_start.filter(|_| youngest && lane.spare && self.repeatable);
        // What has to be read into its caches anew is not slow yet, see `Mark::Cold`.
        let threshold = threshold.map(|after| if lane.cold { after.saturating_mul(2) } else { after });
        let slow = threshold.and_then(|after| Some((run.since.checked_add(after)?, Due::Slow)));
        match (limit, slow) {
            (Some(limit), Some(slow)) => Some(if slow.0 < limit.0 { slow } else { limit }),
            (limit, slow) => limit.or(slow),
        }
    }

    /// The wait for the recovery of a route is over.
    pub(crate) fn recovered(&mut self, plan: &Plan, lane: &mut Lane) {
        lane.waits_until = None;
        self.open_scope(plan, lane, plan.is_poor(lane.route));
    }

    pub(super) fn start(&mut self, plan: &Plan, choice: Choice, waits_until: Option<Instant>) -> Lane {
        self.tried = self.tried.saturating_add(1);
        self.started = self.started.saturating_add(1);
        // It stands in for the first route: what that had in its caches is not in this one's.
        let cold = self.tried > 1 || (choice.route != 0 && plan.standing.is_none());
        let mut lane = Lane::on(choice.route, self.started, cold, waits_until);
        if waits_until.is_none() {
            self.open_scope(plan, &mut lane, choice.last_resort);
        }
        lane
    }

    fn open_scope(&mut self, plan: &Plan, lane: &mut Lane, last_resort: bool) {
        if last_resort {
            events::last_resort(name(plan, lane.route));
            plan.meters.last_resort(lane.route, name(plan, lane.route));
        }
        let limit = self.running(plan, lane).limit;
        let mut options = Call::options().route(self.end.is_some_and(|end| end.is_callers));
        if last_resort {
            options = options.mark(failsoft_core::Mark::LastResort);
        }
        if lane.cold {
            options = options.mark(failsoft_core::Mark::Cold);
        }
        if let Some(limit) = limit {
            options = options.deadline(limit);
        }
        lane.scope = Some(self.deferred.enter(|| options.begin()));
    }

    /// The clock is read when an attempt is first seen to wait.
    fn running(&mut self, plan: &Plan, lane: &mut Lane) -> Running {
        if let Some(running) = lane.run {
            return running;
        }
        let now = Instant::now();
        let mut end = self.end(plan, now).at;
        let is_tier = plan.is_tier(lane.route);
        if is_tier {
            end = end.map(|end| end.max(now + TIER_GRACE));
        }
        *lane.run.insert(Running::new(now, end, is_tier || self.is_last(plan), plan))
    }
}

impl Running {
    /// The last one has all the time that is left, and none before it more than half of it.
    fn new(since: Instant, end: Option<Instant>, last: bool, plan: &Plan) -> Self {
        let limit = end.map(|end| {
            let left = end.saturating_duration_since(since);
            if last { end } else { since + left / 2 }
        });
        let ready_by = if last { None } else { since.checked_add(plan.ready_within) };
        let ready_by = match (ready_by, limit) {
            (Some(ready_by), Some(limit)) => Some(ready_by.min(limit)),
            (ready_by, limit) => ready_by.or(limit),
        };
        Self { since, ready_by, limit }
    }
}
