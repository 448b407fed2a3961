//! One call on its way from route to route: what was tried, what is left, and how it ends.

mod begin;
mod ending;
mod failing;
mod lane;
mod telling;
mod tiers;

use failsoft_core::{Attempt, Blockers, BoxError, Call, Class, Deferred, Verdict};
use tokio::time::Instant;

pub(crate) use self::{
    failing::{Failed, How, Then},
    lane::{Due, Lane},
    tiers::FellShort,
};
use crate::{
    plan::{Plan, RouteSet},
    table::Row,
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

impl End {
    /// Not after the end of the route around.
    fn within(self, limit: Option<Instant>) -> Self {
        match limit {
            Some(limit) if self.at.is_none_or(|at| limit < at) => Self { at: Some(limit), is_callers: false },
            _ => self,
        }
    }
}

struct Failure {
    route: usize,
    verdict: Verdict,
    row: Option<Row>,
    /// `None` for a response.
    error: Option<BoxError>,
    status: Option<u16>,
    asked: bool,
    /// What may refuse the route, where a retry around asks for it.
    blockers: Blockers,
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

    /// Of a call whose first route was asked at once, because the plan [asks it first](Plan::asks_first).
    pub(crate) fn begun(plan: &Plan, repeatable: bool, affinity: Option<u64>, deferred: Deferred) -> Self {
        let mut open = plan.open(false);
        open.remove(0);
        Self { open, tried: 1, started: 1, deferred, ..Self::new(repeatable, affinity, None) }
    }

    fn past(&mut self) -> &mut Past<Res> {
        self.past.get_or_insert_with(|| {
            Box::new(Past { failures: Vec::new(), response: None, skipped: Vec::new(), fell_short: None })
        })
    }

    fn failures(&self) -> &[Failure] {
        self.past.as_ref().map_or(&[], |past| &past.failures)
    }

    /// The scope of the whole call.
    #[inline]
    pub(crate) const fn scope(&mut self) -> &mut Deferred {
        &mut self.deferred
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
