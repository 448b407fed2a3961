//! What the caller gets when no route has answered.

use std::{mem, sync::Arc, task::Context};

use failsoft_core::{Blocker, BoxError, Call, Class, Condition, Denier, Fault, Health, Mark, Next, Verdict};

use super::{Cascade, Failure};
use crate::{LAYER, Return, WhenAllPoor, events, plan::Plan};

impl<Res> Cascade<Res> {
    /// Every route that could be asked has failed: what the caller gets.
    pub(crate) fn end_with(&mut self, plan: &Plan, why: Next) -> Result<Res, BoxError> {
        if self.recording || self.failures().len() > 1 || self.started > 1 || self.is_skipped() {
            self.tell_failure(why);
            if why == Next::NoRouteLeft {
                self.skip_the_rest(plan);
            }
            self.flush_skipped(plan);
        }
        if self.failures().len() > 1 {
            events::exhausted(self.tried, self.verdict(), why);
            plan.meters.exhausted(self.verdict().class());
        }
        self.record_blockers(plan);
        let decider = self.decider().map_or(0, |(place, _)| place);
        let place = match plan.returns {
            Return::First => 0,
            Return::Last => self.failures().len().saturating_sub(1),
            Return::Combined => decider,
        };
        if let Some((_, response)) = self.past().response.take().filter(|(of, _)| *of == place) {
            return Ok(response);
        }
        let alone = plan.returns != Return::Combined || self.failures().len() <= 1;
        let error =
            self.past().failures.get_mut(place).filter(|_| alone).and_then(|failure| failure.error.take());
        Err(error.unwrap_or_else(|| self.combine(plan, decider).into()))
    }

    fn is_skipped(&self) -> bool {
        self.past.as_ref().is_some_and(|past| !past.skipped.is_empty())
    }

    /// Tells a retry around what refuses each route that could serve the call: when all of it does, there is nobody to ask again.
    fn record_blockers(&mut self, plan: &Plan) {
        if self.failures().iter().all(|failure| failure.blockers.is_empty()) || !plan.tiers.is_empty() {
            return;
        }
        let fails_fast = plan.when_all_poor == WhenAllPoor::FailFast;
        // The least bad route is let through, or recovers within the next attempt.
        if !fails_fast && plan.routes.iter().any(|info| info.health.is_some()) {
            return;
        }
        let mut routes = plan.open(Call::is_marked(Mark::FreeOnly));
        if let Some(tokens) = self.tokens {
            routes = plan.with_room(routes, tokens);
        }
        let blockers_of = |route| {
            let mut failures = self.past().failures.iter_mut().filter(|failure| failure.route == route);
            let mut blockers =
                failures.next().map(|failure| mem::take(&mut failure.blockers)).unwrap_or_default();
            if let Some(health) = plan.info(route).and_then(|info| info.health.as_ref()) {
                blockers.add(Arc::new(Poor(Arc::clone(health))));
            }
            blockers
        };
        let routes: Vec<_> = routes.iter().map(blockers_of).collect();
        Call::record_routes(&routes);
    }

    fn combine(&mut self, plan: &Plan, decider: usize) -> Fault {
        let advice = self.failures().iter().filter_map(|failure| failure.verdict.retry_after()).min();
        let trail = self.deferred.call().map(Call::trail);
        let count = self.failures().len();
        let mut verdict = Verdict::of(Class::Unknown);
        let mut target = None;
        let mut status = None;
        if let Some(failure) = self.failures().get(decider) {
            verdict = failure.verdict;
            target = plan.name(failure.route).cloned();
            status = failure.error.as_ref().and_then(|error| Fault::find(&**error)?.status());
        }
        let mut errors: Vec<_> = mem::take(&mut self.past().failures)
            .into_iter()
            .map(|failure| failure.into_error(plan))
            .collect();
        let mut fault = Fault::with_verdict(verdict.with_advice(advice), LAYER)
            .with_target_if(target)
            .with_message(format!("all {count} routes that were tried have failed"));
        if let Some(last) = errors.pop() {
            fault = fault.with_source(last);
        }
        if let Some(status) = status {
            fault = fault.with_status(status);
        }
        if let Some(trail) = trail {
            fault = fault.with_trail(trail);
        }
        fault.with_earlier(errors)
    }

    /// Routes that could not follow the last failure.
    pub(super) fn skip_the_rest(&mut self, plan: &Plan) {
        let last = self.failures().last().map_or(Verdict::of(Class::Unknown), |failure| failure.verdict);
        for route in self.open.iter() {
            let poor = plan.is_poor(route);
            let why = if poor { Verdict::of(Class::Denied(Denier::Circuit)) } else { last };
            self.past().skipped.push((route, why));
        }
    }
}

/// A route in poor health, where it is not asked then. Nobody is woken when it becomes that: whoever waits for another of the routes sees
/// it then.
struct Poor(Arc<dyn Health>);

impl Blocker for Poor {
    fn refuses(&self) -> bool {
        self.0.condition() == Condition::Poor && self.0.recovers_in().is_none_or(|left| !left.is_zero())
    }

    fn listen(&self, _: &mut Option<u64>, _: &Context<'_>) {}

    fn forget(&self, _: u64) {}
}

impl Failure {
    /// A failed response that was dropped is told as a fault of its verdict.
    fn into_error(self, plan: &Plan) -> BoxError {
        self.error.unwrap_or_else(|| {
            let fault = Fault::with_verdict(self.verdict, LAYER)
                .with_target_if(plan.name(self.route).cloned())
                .with_message("the route answered with a failure");
            match self.status {
                Some(status) => fault.with_status(status).into(),
                None => fault.into(),
            }
        })
    }
}
