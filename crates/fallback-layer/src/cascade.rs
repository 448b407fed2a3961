//! One call on its way from route to route: what was tried, what is left, and how it ends.

mod ending;
mod lane;
mod telling;
mod tiers;

use std::time::Duration;

use failsoft_core::{Attempt, Blame, BoxError, Call, Class, Deferred, Denier, Fault, Limit, Next, Verdict};
use tokio::time::Instant;

pub(crate) use self::{
    lane::{Due, Lane},
    tiers::FellShort,
};
use crate::{
    LAYER, Return, events,
    plan::{Choice, Plan, RouteSet, name},
    table::{Row, To},
};

pub(crate) struct Cascade<Res> {
    /// The routes that were neither asked nor skipped.
    open: RouteSet,
    /// How many were asked; those that were skipped are not counted.
    tried: u32,
    /// How many attempts were begun.
    started: u32,
    /// Whether the request can be sent to another route.
    repeatable: bool,
    /// Whether somebody wants a trail even of one attempt.
    recording: bool,
    /// Whether it lies inside another fallback's route.
    nested: bool,
    /// Whether fallbacks inside the first route know its limit.
    told_limit: bool,
    /// When the cascade ends, if somebody has asked.
    end: Option<End>,
    /// Made when something is to be remembered: the way of a first route that answers stays short.
    past: Option<Box<Past<Res>>>,
    /// The caller's, see [`order`](crate::order).
    affinity: Option<u64>,
    /// How many the request needs of a window, about.
    tokens: Option<u32>,
    /// The last tiers that were asked.
    tiers: RouteSet,
    deferred: Deferred,
}

struct Past<Res> {
    failures: Vec<Failure>,
    /// The failed response that the caller may get in the end, and which failure it is.
    response: Option<(usize, Res)>,
    skipped: Vec<(usize, Verdict)>,
    /// Why no route has answered, while the last tiers are asked.
    fell_short: Option<FellShort>,
}

#[derive(Clone, Copy)]
struct End {
    at: Option<Instant>,
    /// It is the caller's deadline and not this layer's timeout.
    is_callers: bool,
}

/// How a call begins.
pub(crate) enum Begun {
    /// With the first route, and nothing to note.
    Plain,
    /// With the best of the routes.
    By(Box<Lane>),
    /// Not at all.
    Refused(Box<Fault>),
}

impl End {
    /// Not after the end of the route around.
    fn within(self, limit: Option<Instant>) -> Self {
        match limit {
            Some(limit) if self.at.is_none_or(|at| limit < at) => Self { at: Some(limit), is_callers: false },
            _ => self,
        }
    }
}

/// What came of an attempt that failed.
pub(crate) struct Failed<Res> {
    pub(crate) verdict: Verdict,
    pub(crate) row: Option<Row>,
    pub(crate) result: Result<Res, BoxError>,
    /// The HTTP status of a response.
    pub(crate) status: Option<u16>,
    pub(crate) how: How,
}

/// How far an attempt that failed has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// The route was really asked.
    Asked,
    /// It refused, or was not ready: nothing was sent.
    Refused,
    /// The route could not be asked at all: there was no request for it, or no service. It is no attempt.
    Skipped,
}

/// What follows a failure.
pub(crate) enum Then {
    /// Another route.
    Next(Lane),
    /// Nothing: another attempt still runs.
    Wait,
    /// The call has failed.
    End(Next),
}

struct Failure {
    route: usize,
    verdict: Verdict,
    row: Option<Row>,
    /// `None` for a response.
    error: Option<BoxError>,
    status: Option<u16>,
    asked: bool,
    untold: Option<Untold>,
}

/// What the trail tells of a failure, until it is told.
struct Untold {
    attempt: Attempt,
    /// The attempt's own.
    scope: Option<Call>,
}

impl<Res> Cascade<Res> {
    #[inline]
    pub(crate) const fn new(repeatable: bool, affinity: Option<u64>, tokens: Option<u32>) -> Self {
        Self {
            open: RouteSet::NONE,
            tried: 0,
            started: 0,
            repeatable,
            recording: false,
            nested: false,
            told_limit: false,
            end: None,
            past: None,
            affinity,
            tokens,
            tiers: RouteSet::NONE,
            deferred: Deferred::routing(),
        }
    }

    fn past(&mut self) -> &mut Past<Res> {
        self.past.get_or_insert_with(|| {
            Box::new(Past { failures: Vec::new(), response: None, skipped: Vec::new(), fell_short: None })
        })
    }

    fn failures(&self) -> &[Failure] {
        self.past.as_ref().map_or(&[], |past| &past.failures)
    }

    /// Whether nothing was asked yet.
    #[inline]
    pub(crate) const fn is_new(&self) -> bool {
        self.started == 0
    }

    /// The scope of the whole call.
    #[inline]
    pub(crate) const fn scope(&mut self) -> &mut Deferred {
        &mut self.deferred
    }

    /// Takes the first route to ask.
    #[inline]
    pub(crate) fn begin(&mut self, plan: &Plan) -> Begun {
        self.recording = Call::is_current();
        let free_only = self.recording && Call::is_marked(failsoft_core::Mark::FreeOnly);
        self.open = plan.open(free_only);
        if let Some(tokens) = self.tokens {
            self.skip_small(plan, tokens);
        }
        self.nested = Call::is_routed();
        let plain = !self.nested && plan.standing.is_none();
        if plain && self.open.contains(0) && !(plan.falls_back() && plan.is_poor(0)) {
            self.open.remove(0);
            (self.tried, self.started) = (1, 1);
            if self.past.is_some() {
                self.flush_skipped(plan);
            }
            return Begun::Plain;
        }
        self.begin_by_choice(plan)
    }

    /// Passes over the routes whose windows are too small.
    fn skip_small(&mut self, plan: &Plan, tokens: u32) {
        let fits = plan.with_room(self.open, tokens);
        for route in self.open.without(fits).iter() {
            self.past().skipped.push((route, Verdict::of(Class::ContextLength)));
        }
        self.open = fits;
    }

    #[inline(never)]
    fn begin_by_choice(&mut self, plan: &Plan) -> Begun {
        let all = self.open;
        match self.take(plan, all) {
            Some((choice, until)) => {
                let left = self.open;
                let before = left.iter().take_while(|&route| !choice.last_resort && route < choice.route);
                // In another order than the given one, those before may just as well come after.
                for route in before.filter(|&route| plan.standing.is_none() || plan.is_poor(route)) {
                    self.skip(route, Denier::Circuit);
                }
                if choice.route != 0 && all.contains(0) && plan.is_poor(0) {
                    plan.activated(choice.route, Class::Denied(Denier::Circuit));
                }
                let lane = self.start(plan, choice, until);
                self.flush_skipped(plan);
                Begun::By(Box::new(lane))
            }
            None => Begun::Refused(Box::new(self.refuse(plan, all))),
        }
    }

    /// Why not one route could be asked.
    fn refuse(&mut self, plan: &Plan, all: RouteSet) -> Fault {
        self.started = 1;
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

    /// The best of the eligible routes that no fallback around or inside has asked, and when it is to be asked, where
    /// that is not at once.
    fn take(&mut self, plan: &Plan, mut eligible: RouteSet) -> Option<(Choice, Option<Instant>)> {
        loop {
            let choice = plan.choose(eligible, self.affinity, Instant::now)?;
            let until = match choice.wait {
                Some(wait) => Some(self.may_wait(plan, wait)?),
                None => None,
            };
            eligible.remove(choice.route);
            self.open.remove(choice.route);
            if self.deferred.enter(|| plan.visit(choice.route)) {
                return Some((choice, until));
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

    fn skip(&mut self, route: usize, denier: Denier) {
        self.past().skipped.push((route, Verdict::of(Class::Denied(denier))));
    }

    /// Whether no other route can follow the current ones.
    pub(crate) const fn is_last(&self, plan: &Plan) -> bool {
        !self.repeatable || self.open.is_empty() || self.tried >= plan.max_routes
    }

    /// Whether nobody will need the request after this attempt.
    fn is_last_use(&self, plan: &Plan, lane: &Lane) -> bool {
        // One that is skipped leaves its place to another.
        let may_be_skipped = || plan.info(lane.route()).is_some_and(|info| info.may_be_skipped);
        self.is_last(plan) && (self.open.is_empty() || !may_be_skipped()) && plan.tiers.is_empty()
    }

    fn end(&mut self, plan: &Plan, now: Instant) -> End {
        if let Some(end) = self.end {
            return end;
        }
        let own = now.checked_add(plan.timeout);
        let end = match (own, Call::current_deadline()) {
            (Some(own), Some(callers)) => End { at: Some(own.min(callers)), is_callers: callers < own },
            (own, callers) => End { at: own.or(callers), is_callers: callers.is_some() },
        };
        let limit = if self.nested { Call::route_limit() } else { None };
        let of_route = self.nested && end.is_callers && Call::is_deadline_of_route();
        *self.end.insert(End { is_callers: end.is_callers && !of_route, ..end }.within(limit))
    }

    /// The route was cut off by its limit.
    pub(crate) fn timed_out(&self, plan: &Plan, lane: &Lane) -> Failed<Res> {
        let name = plan.name(lane.route()).cloned();
        let after =
            lane.run().and_then(|run| run.limit.map(|limit| limit.saturating_duration_since(run.since)));
        let after = after.unwrap_or_default();
        events::timed_out(name.as_deref(), after);
        let mut verdict = Verdict::of(Class::Timeout(Limit::Total));
        if self.end.is_some_and(|end| end.is_callers) {
            verdict = verdict.with_blame(Blame::Caller);
        }
        let fault = Fault::with_verdict(verdict, LAYER)
            .with_target_if(name)
            .with_message(format!("no response within {after:?}"));
        Failed { verdict, row: Some(Row::Timeout), result: Err(fault.into()), status: None, how: How::Asked }
    }

    /// The route was not ready in time: nothing was sent, and our own side had no room.
    pub(crate) fn not_ready(&self, plan: &Plan, lane: &Lane) -> Failed<Res> {
        let verdict = Verdict::of(Class::Overloaded).with_blame(Blame::Nobody).with_unsent();
        let fault = Fault::with_verdict(verdict, LAYER)
            .with_target_if(plan.name(lane.route()).cloned())
            .with_message("not ready in time");
        let row = Some(Row::Overloaded);
        Failed { verdict, row, result: Err(fault.into()), status: None, how: How::Refused }
    }

    /// Takes in a failure and goes on to another route, or says why it does not. `beside` is whether other attempts still
    /// run, and the number of the youngest of them. `again` makes the request anew; it is told whether this is the
    /// last time.
    pub(crate) fn fail(
        &mut self,
        plan: &Plan,
        lane: &Lane,
        to: To,
        failed: Failed<Res>,
        beside: Option<u32>,
        again: impl FnOnce(bool) -> bool,
    ) -> Then {
        let now = Instant::now();
        if plan.is_tier(lane.route()) {
            return Then::End(self.fail_tier(plan, lane, failed, now));
        }
        let (route, verdict, how) = (lane.route(), failed.verdict, failed.how);
        if self.told_limit && !lane.has_scope() {
            // Further routes have scopes of their own, with their limits.
            self.tell_limit(None);
        }
        if plan.standing.is_some() && speaks_against(&failed) {
            plan.failed(route, self.affinity, now);
        }
        let skipped = how == How::Skipped;
        if skipped {
            self.tried = self.tried.saturating_sub(1);
        }
        let took = if skipped { None } else { lane.took(now) };
        self.keep(plan, lane, failed, took);
        let told = |next| if skipped { Next::Skipped } else { next };
        if to == To::Nowhere {
            return Then::End(Next::Final);
        }
        if beside.is_some_and(|youngest| youngest > lane.number()) {
            // Its successor was started before it failed.
            self.deferred.enter(|| plan.close(route));
            self.tell_failure(told(Next::NextRoute));
            return Then::Wait;
        }
        match self.go_on(plan, route, to, how, now, again) {
            Ok(next) => {
                events::next_route(name(plan, route), verdict, name(plan, next.route()));
                plan.activated(next.route(), verdict.class());
                self.tell_failure(told(Next::NextRoute));
                self.flush_skipped(plan);
                Then::Next(next)
            }
            Err(why) if beside.is_some() => {
                self.tell_failure(told(why));
                Then::Wait
            }
            Err(why) => {
                if skipped {
                    self.tell_failure(Next::Skipped);
                }
                Then::End(why)
            }
        }
    }

    /// Takes the route after one that failed.
    fn go_on(
        &mut self,
        plan: &Plan,
        failed: usize,
        to: To,
        how: How,
        now: Instant,
        again: impl FnOnce(bool) -> bool,
    ) -> Result<Lane, Next> {
        let eligible = self.may_go_on(plan, failed, to, now)?;
        self.deferred.enter(|| plan.close(failed));
        let (choice, until) = self.take(plan, eligible).ok_or(Next::NoRouteLeft)?;
        // A route that refused or was not ready was no attempt: the next one has its place.
        let asked = how == How::Asked;
        if asked {
            self.deferred.enter(Call::take_attempt)?;
        }
        let lane = self.start(plan, choice, until);
        if !again(self.is_last_use(plan, &lane)) {
            if asked {
                self.deferred.enter(Call::give_attempt_back);
            }
            return Err(Next::NotRepeatable);
        }
        Ok(lane)
    }

    /// The routes that may follow, or why none does.
    fn may_go_on(&mut self, plan: &Plan, from: usize, to: To, now: Instant) -> Result<RouteSet, Next> {
        let eligible = plan.eligible(self.open, from, to);
        if eligible.is_empty() {
            return Err(Next::NoRouteLeft);
        }
        if self.tried >= plan.max_routes {
            return Err(Next::AttemptsSpent);
        }
        if self.end(plan, now).at.is_some_and(|end| end <= now) {
            return Err(Next::DeadlineNear);
        }
        if !self.repeatable {
            return Err(Next::NotRepeatable);
        }
        Ok(eligible)
    }

    /// An attempt has no content after the threshold: starts the next route beside it, if there is one that is fit.
    pub(crate) fn start_beside(
        &mut self,
        plan: &Plan,
        slow: &mut Lane,
        again: impl FnOnce(bool) -> bool,
    ) -> Option<Lane> {
        slow.started_beside();
        let now = Instant::now();
        let to = plan.table.next(Some(Row::Timeout));
        let eligible = self.may_go_on(plan, slow.route(), to, now).ok()?;
        // A route in poor health is no help against one that is only slow.
        let fit = RouteSet::new(eligible.iter().filter(|&route| !plan.is_poor(route)));
        let (choice, until) = self.take(plan, fit)?;
        if self.deferred.enter(Call::take_attempt).is_err() {
            self.open.insert(choice.route);
            return None;
        }
        let lane = self.start(plan, choice, until);
        if !again(self.is_last_use(plan, &lane)) {
            self.deferred.enter(Call::give_attempt_back);
            return None;
        }
        let after = slow.took(now).unwrap_or_default();
        events::slow_start(name(plan, slow.route()), after, name(plan, lane.route()));
        plan.slow_started(lane.route());
        self.flush_skipped(plan);
        Some(lane)
    }

    fn keep(&mut self, plan: &Plan, lane: &Lane, failed: Failed<Res>, took: Option<Duration>) {
        let Failed { verdict, row, result, status, how } = failed;
        let asked = how == How::Asked;
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
        let attempt = lane.attempt(plan, verdict, Next::Final, took);
        let untold = Some(Untold { attempt, scope: lane.scope().cloned() });
        let route = lane.route();
        self.past().failures.push(Failure { route, verdict, row, error, status, asked, untold });
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

    /// The verdict on the whole call.
    pub(crate) fn verdict(&self) -> Verdict {
        self.decider().map_or_else(|| Verdict::of(Class::Unknown), |(_, failure)| failure.verdict)
    }
}

/// Whether a failure is a reason to ask the route later than others: not what the request would have met anywhere,
/// nor what the caller's own haste has made.
fn speaks_against<Res>(failed: &Failed<Res>) -> bool {
    let ours = matches!(
        failed.row,
        None | Some(Row::Invalid | Row::Refused | Row::ContextLength | Row::DeniedOtherwise)
    );
    !ours && failed.how != How::Skipped && failed.verdict.blame() != Blame::Caller
}
