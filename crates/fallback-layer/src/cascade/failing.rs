//! An attempt has failed, or is slow: what is remembered of it, and which route follows.

use std::time::Duration;

use failsoft_core::{Blame, BoxError, Call, Class, Fault, Limit, Next, Verdict};
use tokio::time::Instant;

use super::{Cascade, Failure, Lane, Untold};
use crate::{
    LAYER, Return, events,
    plan::{Plan, RouteSet, name},
    table::{Row, To},
};

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

impl<Res> Cascade<Res> {
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
                if let Some(told) = self.tell_failure(told(why)) {
                    told.withhold();
                }
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
        let mut lane = self.start(plan, choice, until);
        if !again(self.is_last_use(plan, &lane)) {
            self.deferred.enter(Call::give_attempt_back);
            return None;
        }
        let after = slow.took(now).unwrap_or_default();
        events::slow_start(name(plan, slow.route()), after, name(plan, lane.route()));
        plan.slow_started(lane.route());
        self.flush_skipped(plan);
        slow.runs_beside(plan);
        lane.runs_beside(plan);
        Some(lane)
    }

    pub(super) fn keep(&mut self, plan: &Plan, lane: &Lane, failed: Failed<Res>, took: Option<Duration>) {
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
        let blockers = lane.enter(&mut self.deferred, Call::take_blockers);
        self.past().failures.push(Failure { route, verdict, row, error, status, asked, blockers, untold });
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
