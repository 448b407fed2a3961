//! One call on its way from route to route: what was tried, what is left, and how it ends.

mod ending;

use std::time::Duration;

use failsoft_core::{
    Attempt, Blame, BoxError, Call, Class, Deferred, Denier, Fault, Limit, Mark, Next, Verdict,
};
use tokio::time::Instant;

use crate::{
    LAYER, Return, events,
    plan::{Choice, Plan, RouteSet},
    table::{Row, To},
};

pub(crate) struct Cascade<Res> {
    /// The routes that were neither asked nor skipped.
    open: RouteSet,
    current: usize,
    tried: u32,
    /// Whether the request can be sent to another route.
    repeatable: bool,
    /// Whether somebody wants a trail even of one attempt.
    recording: bool,
    clock: Clock,
    /// Made when something is to be remembered: the way of a first route that answers stays short.
    past: Option<Box<Past<Res>>>,
    /// The caller's, see [`order`](crate::order).
    affinity: Option<u64>,
    /// The route that was taken is in poor health, and is asked then.
    waits_until: Option<Instant>,
    deferred: Deferred,
    /// The scope of a further attempt, or of a last resort.
    scope: Option<Call>,
}

struct Past<Res> {
    failures: Vec<Failure>,
    /// The failed response that the caller may get in the end, and which failure it is.
    response: Option<(usize, Res)>,
    skipped: Vec<(usize, Verdict)>,
}

#[derive(Default)]
struct Clock {
    /// When the cascade ends.
    end: Option<End>,
    attempt: Option<Running>,
}

#[derive(Clone, Copy)]
struct End {
    at: Option<Instant>,
    /// It is the caller's deadline and not this layer's timeout.
    is_callers: bool,
}

#[derive(Clone, Copy)]
struct Running {
    since: Instant,
    ready_by: Option<Instant>,
    limit: Option<Instant>,
}

/// What came of an attempt that failed.
pub(crate) struct Failed<Res> {
    pub(crate) verdict: Verdict,
    pub(crate) row: Option<Row>,
    pub(crate) result: Result<Res, BoxError>,
    /// The HTTP status of a response.
    pub(crate) status: Option<u16>,
    /// Whether the route was really asked.
    pub(crate) asked: bool,
}

struct Failure {
    route: usize,
    verdict: Verdict,
    row: Option<Row>,
    /// `None` for a response.
    error: Option<BoxError>,
    status: Option<u16>,
    asked: bool,
    took: Option<Duration>,
}

impl<Res> Cascade<Res> {
    pub(crate) const fn new(repeatable: bool, affinity: Option<u64>) -> Self {
        Self {
            open: RouteSet::NONE,
            current: 0,
            tried: 0,
            repeatable,
            recording: false,
            clock: Clock { end: None, attempt: None },
            past: None,
            affinity,
            waits_until: None,
            deferred: Deferred::routing(),
            scope: None,
        }
    }

    fn past(&mut self) -> &mut Past<Res> {
        self.past.get_or_insert_with(|| {
            Box::new(Past { failures: Vec::new(), response: None, skipped: Vec::new() })
        })
    }

    fn failures(&self) -> &[Failure] {
        self.past.as_ref().map_or(&[], |past| &past.failures)
    }

    fn is_skipped(&self) -> bool {
        self.past.as_ref().is_some_and(|past| !past.skipped.is_empty())
    }

    /// The place of the route that is being asked.
    pub(crate) const fn current(&self) -> usize {
        self.current
    }

    /// Runs a part of an attempt in its scope.
    #[inline]
    pub(crate) fn enter<T>(&mut self, f: impl FnOnce() -> T) -> T {
        match &self.scope {
            Some(scope) => scope.enter(f),
            None => self.deferred.enter(f),
        }
    }

    /// Takes the first route to ask.
    pub(crate) fn begin(&mut self, plan: &Plan) -> Result<(), Fault> {
        self.recording = Call::is_current();
        let free_only = self.recording && Call::is_marked(Mark::FreeOnly);
        self.open = plan.open(free_only);
        let nested = Call::is_routed();
        let plain = !nested && plan.standing.is_none();
        if plain && self.open.contains(0) && !(plan.repeats() && plan.is_poor(0)) {
            self.open.remove(0);
            self.tried = 1;
            return Ok(());
        }
        let all = self.open;
        match self.take(plan, all) {
            Some(choice) => {
                let left = self.open;
                let before = left.iter().take_while(|&route| !choice.last_resort && route < choice.route);
                // In another order than the given one, those before may just as well come after.
                for route in before.filter(|&route| plan.standing.is_none() || plan.is_poor(route)) {
                    self.skip(route, Denier::Circuit);
                }
                if choice.route != 0 && all.contains(0) && plan.is_poor(0) {
                    plan.activated(choice.route, Class::Denied(Denier::Circuit));
                }
                self.start(plan, choice);
                self.flush_skipped(plan);
                Ok(())
            }
            None => Err(self.refuse(plan, all)),
        }
    }

    /// Why not one route could be asked.
    fn refuse(&mut self, plan: &Plan, all: RouteSet) -> Fault {
        let left = self.open;
        self.past()
            .skipped
            .extend(left.iter().map(|route| (route, Verdict::of(Class::Denied(Denier::Circuit)))));
        self.flush_skipped(plan);
        let (denier, message) = if all.is_empty() {
            (Denier::Budget, "only free routes may serve this call, and there is none")
        } else if left.is_empty() {
            (Denier::Loop, "a fallback around this one has asked every route already")
        } else {
            (Denier::Circuit, "every route is in poor health")
        };
        let advice = if left.is_empty() { None } else { plan.earliest_recovery(left) };
        let verdict = Verdict::of(Class::Denied(denier)).with_advice(advice);
        events::exhausted(0, verdict, Next::NoRouteLeft);
        plan.meters.exhausted(verdict.class());
        Fault::with_verdict(verdict, LAYER).with_message(message)
    }

    /// The best of the eligible routes that no fallback around or inside has asked.
    fn take(&mut self, plan: &Plan, mut eligible: RouteSet) -> Option<Choice> {
        loop {
            let choice = plan.choose(eligible, self.affinity, Instant::now)?;
            let until = match choice.wait {
                Some(wait) => Some(self.may_wait(plan, wait)?),
                None => None,
            };
            eligible.remove(choice.route);
            self.open.remove(choice.route);
            if self.deferred.enter(|| plan.visit(choice.route)) {
                self.waits_until = until;
                return Some(choice);
            }
            self.skip(choice.route, Denier::Loop);
        }
    }

    /// When a wait ends, if that is before the end of the cascade.
    fn may_wait(&mut self, plan: &Plan, wait: Duration) -> Option<Instant> {
        let now = Instant::now();
        let until = now.checked_add(wait)?;
        self.end(plan, now).at.is_none_or(|end| until < end).then_some(until)
    }

    /// When the route that was taken is to be asked, where that is not at once.
    pub(crate) const fn waits_until(&self) -> Option<Instant> {
        self.waits_until
    }

    /// The wait for the route that was taken is over.
    pub(crate) fn recovered(&mut self, plan: &Plan) {
        self.waits_until = None;
        self.open_scope(plan, plan.is_poor(self.current));
    }

    fn skip(&mut self, route: usize, denier: Denier) {
        self.past().skipped.push((route, Verdict::of(Class::Denied(denier))));
    }

    fn start(&mut self, plan: &Plan, choice: Choice) {
        self.current = choice.route;
        self.tried = self.tried.saturating_add(1);
        self.clock.attempt = None;
        self.scope = None;
        if self.waits_until.is_none() {
            self.open_scope(plan, choice.last_resort);
        }
    }

    fn open_scope(&mut self, plan: &Plan, last_resort: bool) {
        if last_resort {
            events::last_resort(name(plan, self.current));
            plan.meters.last_resort(self.current, name(plan, self.current));
        }
        let mut options = Call::options();
        if last_resort {
            options = options.mark(Mark::LastResort);
        }
        // It stands in for the first route: what that had in its caches is not in this one's.
        if self.tried > 1 || (self.current != 0 && plan.standing.is_none()) {
            options = options.mark(Mark::Cold);
        }
        if let Some(limit) = self.running(plan).limit {
            options = options.deadline(limit);
        }
        self.scope = Some(self.deferred.enter(|| options.begin()));
    }

    /// Whether no other route can follow the current one.
    pub(crate) const fn is_last(&self, plan: &Plan) -> bool {
        !self.repeatable || self.open.is_empty() || self.tried >= plan.max_routes
    }

    /// When the current attempt ends; or, while it is not ready, when that ends.
    pub(crate) fn limit(&mut self, plan: &Plan, called: bool) -> Option<Instant> {
        let running = self.running(plan);
        if called { running.limit } else { running.ready_by }
    }

    /// The clock is read when an attempt is first seen to wait.
    fn running(&mut self, plan: &Plan) -> Running {
        if let Some(running) = self.clock.attempt {
            return running;
        }
        let now = Instant::now();
        let end = self.end(plan, now).at;
        let last = self.is_last(plan);
        let limit = end.map(|end| {
            let left = end.saturating_duration_since(now);
            if last { end } else { now + left / 2 }
        });
        let ready_by = if last { None } else { now.checked_add(plan.ready_within) };
        let ready_by = match (ready_by, limit) {
            (Some(ready_by), Some(limit)) => Some(ready_by.min(limit)),
            (ready_by, limit) => ready_by.or(limit),
        };
        *self.clock.attempt.insert(Running { since: now, ready_by, limit })
    }

    fn end(&mut self, plan: &Plan, now: Instant) -> End {
        *self.clock.end.get_or_insert_with(|| {
            let own = now.checked_add(plan.timeout);
            match (own, Call::current_deadline()) {
                (Some(own), Some(callers)) => End { at: Some(own.min(callers)), is_callers: callers < own },
                (own, callers) => End { at: own.or(callers), is_callers: callers.is_some() },
            }
        })
    }

    /// The route was cut off by its limit.
    pub(crate) fn timed_out(&self, plan: &Plan) -> Failed<Res> {
        let name = plan.name(self.current).cloned();
        let running = self.clock.attempt;
        let after = running.and_then(|run| run.limit.map(|limit| limit.saturating_duration_since(run.since)));
        let after = after.unwrap_or_default();
        events::timed_out(name.as_deref(), after);
        let mut verdict = Verdict::of(Class::Timeout(Limit::Total));
        if self.clock.end.is_some_and(|end| end.is_callers) {
            verdict = verdict.with_blame(Blame::Caller);
        }
        let fault = Fault::with_verdict(verdict, LAYER)
            .with_target_if(name)
            .with_message(format!("no response within {after:?}"));
        Failed { verdict, row: Some(Row::Timeout), result: Err(fault.into()), status: None, asked: true }
    }

    /// The route was not ready in time: nothing was sent, and our own side had no room.
    pub(crate) fn not_ready(&self, plan: &Plan) -> Failed<Res> {
        let verdict = Verdict::of(Class::Overloaded).with_blame(Blame::Nobody).with_unsent();
        let fault = Fault::with_verdict(verdict, LAYER)
            .with_target_if(plan.name(self.current).cloned())
            .with_message("not ready in time");
        Failed { verdict, row: Some(Row::Overloaded), result: Err(fault.into()), status: None, asked: false }
    }

    /// Takes in a failure and goes on to another route, or says why it does not. `again` makes the request anew;
    /// it is told whether this is the last time.
    pub(crate) fn fail(
        &mut self,
        plan: &Plan,
        to: To,
        failed: Failed<Res>,
        again: impl FnOnce(bool) -> bool,
    ) -> Result<(), Next> {
        let now = Instant::now();
        let route = self.current;
        let end = self.end(plan, now).at;
        let took = self.clock.attempt.map(|run| now.saturating_duration_since(run.since));
        let (verdict, asked) = (failed.verdict, failed.asked);
        if plan.standing.is_some() && speaks_against(&failed) {
            plan.failed(route, self.affinity, now);
        }
        self.keep(plan, failed, took);
        if to == To::Nowhere {
            return Err(Next::Final);
        }
        let eligible = plan.eligible(self.open, route, to);
        if eligible.is_empty() {
            return Err(Next::NoRouteLeft);
        }
        if self.tried >= plan.max_routes {
            return Err(Next::AttemptsSpent);
        }
        if end.is_some_and(|end| end <= now) {
            return Err(Next::DeadlineNear);
        }
        if !self.repeatable {
            return Err(Next::NotRepeatable);
        }
        self.deferred.enter(|| plan.close(route));
        let choice = self.take(plan, eligible).ok_or(Next::NoRouteLeft)?;
        // A route that refused or was not ready was no attempt: the next one has its place.
        if asked && !self.deferred.enter(Call::take_attempt) {
            return Err(Next::AttemptsSpent);
        }
        self.start(plan, choice);
        if !again(self.is_last(plan)) {
            if asked {
                self.deferred.enter(Call::give_attempt_back);
            }
            return Err(Next::NotRepeatable);
        }
        events::next_route(name(plan, route), verdict, name(plan, self.current));
        plan.activated(self.current, verdict.class());
        self.record_failure(plan, Next::NextRoute);
        self.flush_skipped(plan);
        Ok(())
    }

    fn keep(&mut self, plan: &Plan, failed: Failed<Res>, took: Option<Duration>) {
        let Failed { verdict, row, result, status, asked } = failed;
        let place = self.failures().len();
        let is_wanted = match plan.returns {
            Return::First => place == 0,
            Return::Last => true,
            Return::Combined => place == 0 || (asked && !self.failures().iter().any(|failure| failure.asked)),
        };
        let (response, error) = match result {
            Ok(response) => (Some(response), None),
            Err(error) => (None, Some(error)),
        };
        if is_wanted {
            self.past().response = response.map(|response| (place, response));
        }
        let route = self.current;
        self.past().failures.push(Failure { route, verdict, row, error, status, asked, took });
    }

    /// The failure that decides what the whole call has failed of.
    fn decider(&self) -> Option<(usize, &Failure)> {
        let mut failures = self.failures().iter().enumerate();
        failures.clone().find(|(_, failure)| failure.asked).or_else(|| failures.next())
    }

    /// The row of what the whole call has failed of.
    pub(crate) fn row(&self) -> Option<Row> {
        self.decider().and_then(|(_, failure)| failure.row)
    }

    /// A route answered.
    #[inline]
    pub(crate) fn answered(&mut self, plan: &Plan) {
        if plan.standing.is_some() {
            let now = Instant::now();
            let took =
                self.clock.attempt.map_or(Duration::ZERO, |run| now.saturating_duration_since(run.since));
            plan.answered(self.current, self.affinity, took, now);
        }
        if !self.recording && self.failures().is_empty() && !self.is_skipped() && self.scope.is_none() {
            return;
        }
        let took = self.clock.attempt.map(|run| Instant::now().saturating_duration_since(run.since));
        let attempt = attempt(plan, self.current, Verdict::SUCCESS, Next::Answered, took);
        self.deferred.enter(|| Call::record(attempt));
    }

    /// An earlier answer stands in for all routes.
    pub(crate) fn stood_in(&mut self, plan: &Plan, verdict: Verdict) {
        events::last_good(verdict);
        plan.meters.last_good(verdict.class());
        if self.failures().is_empty() {
            self.deferred.enter(|| Call::record(Attempt::new(LAYER, verdict).then(Next::Cached)));
        } else {
            self.record_failure(plan, Next::Cached);
        }
    }

    /// The verdict on the whole call.
    pub(crate) fn verdict(&self) -> Verdict {
        self.decider().map_or_else(|| Verdict::of(Class::Unknown), |(_, failure)| failure.verdict)
    }

    fn record_failure(&mut self, plan: &Plan, next: Next) {
        let Some(failure) = self.failures().last() else { return };
        let attempt = attempt(plan, failure.route, failure.verdict, next, failure.took);
        self.deferred.enter(|| Call::record(attempt));
    }

    fn flush_skipped(&mut self, plan: &Plan) {
        let Some(past) = &mut self.past else { return };
        for (route, verdict) in past.skipped.drain(..) {
            events::skipped(name(plan, route), verdict);
            let attempt = attempt(plan, route, verdict, Next::Skipped, None);
            self.deferred.enter(|| Call::record(attempt));
        }
    }
}

/// Whether a failure is a reason to ask the route later than others: not what the request would have met anywhere,
/// nor what the caller's own haste has made.
fn speaks_against<Res>(failed: &Failed<Res>) -> bool {
    let ours = matches!(
        failed.row,
        None | Some(Row::Invalid | Row::Refused | Row::ContextLength | Row::DeniedOtherwise)
    );
    !ours && failed.verdict.blame() != Blame::Caller
}

fn name(plan: &Plan, route: usize) -> Option<&str> {
    plan.name(route).map(|name| &**name)
}

fn attempt(plan: &Plan, route: usize, verdict: Verdict, next: Next, took: Option<Duration>) -> Attempt {
    let attempt = Attempt::new(LAYER, verdict).on(plan.name(route).cloned()).then(next);
    match took {
        Some(took) => attempt.with_took(took),
        None => attempt,
    }
}
