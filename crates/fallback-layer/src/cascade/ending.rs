//! What the caller gets when no route has answered.

use failsoft_core::{BoxError, Call, Class, Denier, Fault, Next, Verdict};

use super::{Cascade, Failure};
use crate::{LAYER, Return, events, plan::Plan};

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
        let mut errors: Vec<_> = std::mem::take(&mut self.past().failures)
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
