//! The last tiers: what stands in when every route has failed.

use failsoft_core::{Fault, Next, Verdict};
use tokio::time::Instant;

use super::{Cascade, Failed, How, Lane};
use crate::{
    events,
    plan::{Choice, Plan, RouteSet, name},
    table::Row,
};

/// Why no route has answered.
pub(crate) enum FellShort {
    /// None could be asked.
    Refused(Fault),
    /// The last one failed, and none follows.
    Failed(Next),
}

impl<Res> Cascade<Res> {
    /// What the whole call has failed of.
    pub(crate) fn failed_of(&self, why: &FellShort) -> (Verdict, Option<Row>) {
        match why {
            FellShort::Refused(fault) => (fault.verdict(), Row::of(fault.verdict().class())),
            FellShort::Failed(_) => (self.verdict(), self.row()),
        }
    }

    /// Whether another route failed or was passed over before.
    pub(crate) fn has_failed(&self) -> bool {
        self.past.as_ref().is_some_and(|past| !past.failures.is_empty() || !past.skipped.is_empty())
    }

    /// Takes the next of the last tiers; gives back why none of the routes has answered where there is none.
    pub(crate) fn next_tier(
        &mut self,
        plan: &Plan,
        why: FellShort,
        again: impl FnOnce(bool) -> bool,
    ) -> Result<Lane, FellShort> {
        let Some(route) = self.take_tier(plan) else { return Err(why) };
        if !again(plan.tiers.without(self.tiers).is_empty()) {
            return Err(why);
        }
        let (verdict, _) = self.failed_of(&why);
        let from = self.past().failures.last().map(|failure| failure.route);
        events::next_route(from.and_then(|from| name(plan, from)), verdict, name(plan, route));
        plan.activated(route, verdict.class());
        self.tell_failure(Next::NextRoute);
        if matches!(why, FellShort::Failed(Next::NoRouteLeft)) {
            self.skip_the_rest(plan);
            self.open = RouteSet::NONE;
        }
        self.flush_skipped(plan);
        self.past().fell_short = Some(why);
        let mut lane = self.start(plan, Choice { route, last_resort: false, wait: None }, None);
        // What stands in for all routes is not raced against one of them.
        lane.started_beside();
        Ok(lane)
    }

    fn take_tier(&mut self, plan: &Plan) -> Option<usize> {
        if !self.repeatable {
            return None;
        }
        for route in plan.tiers.without(self.tiers).iter() {
            self.tiers.insert(route);
            if self.deferred.enter(|| plan.visit(route)) {
                return Some(route);
            }
        }
        None
    }

    /// A last tier has failed: it was no attempt on a target, and the call fails of what it has failed of before.
    pub(super) fn fail_tier(&mut self, plan: &Plan, lane: &Lane, failed: Failed<Res>, now: Instant) -> Next {
        let skipped = failed.how == How::Skipped;
        let how = if skipped { How::Skipped } else { How::Refused };
        self.keep(plan, lane, Failed { how, ..failed }, lane.took(now));
        if skipped {
            self.tell_failure(Next::Skipped);
        }
        Next::NoRouteLeft
    }

    /// Why the routes before the last tiers have not answered; what the last tiers failed of does not matter.
    pub(crate) fn first_of(&mut self, why: FellShort) -> FellShort {
        self.past.as_mut().and_then(|past| past.fell_short.take()).unwrap_or(why)
    }
}
