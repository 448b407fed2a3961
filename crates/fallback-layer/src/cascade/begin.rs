//! Which route is asked: the first one of a call, and the best of those that are left.

use std::time::Duration;

use failsoft_core::{Call, Class, Denier, Fault, Next, Verdict};
use tokio::time::Instant;

use super::{Cascade, Lane};
use crate::{
    LAYER, events,
    plan::{Choice, Plan, RouteSet},
};

impl<Res> Cascade<Res> {
    /// Takes the first route to ask.
    ///
    /// # Errors
    ///
    /// Why not one can be asked.
    pub(crate) fn begin(&mut self, plan: &Plan) -> Result<Lane, Fault> {
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
            return Ok(Lane::first());
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

    fn begin_by_choice(&mut self, plan: &Plan) -> Result<Lane, Fault> {
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
                Ok(lane)
            }
            None => Err(self.refuse(plan, all)),
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
    pub(super) fn take(&mut self, plan: &Plan, mut eligible: RouteSet) -> Option<(Choice, Option<Instant>)> {
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
}
