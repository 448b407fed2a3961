//! What came of an attempt, and where it goes on to.

use failsoft_core::{BoxError, Class, Classify, Denier, Fault, Step, Verdict};

use super::stage::Outcome;
use crate::{
    LAYER,
    adapt::{NotAsked, NotReady},
    cascade::{Cascade, Failed, How, Lane},
    events,
    layer::Shared,
    plan::{Plan, name},
    table::{Row, To},
};

pub(super) enum Judged<Res> {
    Good(Res),
    Failed(Failed<Res>, To),
}

/// What is wrong with a response, if it is known to be a failure. One whose verdict comes with the end of its body is
/// good so far.
#[inline]
pub(super) fn failure<Res, R, C, P, K, O>(shared: &Shared<R, C, P, K, O>, response: &Res) -> Option<Verdict>
where
    C: Classify<Res>,
{
    match shared.classify.response(response) {
        Step::Now(verdict) if !verdict.is_success() => Some(verdict),
        _ => None,
    }
}

/// What an outcome means, and where it goes on to.
pub(super) fn judge<Res, R, C, P, K, O>(
    outcome: Outcome<Res>,
    cascade: &Cascade<Res>,
    lane: &Lane,
    shared: &Shared<R, C, P, K, O>,
) -> Judged<Res>
where
    C: Classify<Res>,
{
    let plan = &shared.plan;
    let failed = match told_apart(outcome) {
        Outcome::Response(response) => match failure(shared, &response) {
            Some(verdict) => bad(response, verdict, shared),
            None => return Judged::Good(response),
        },
        Outcome::Bad(response, verdict) => bad(response, verdict, shared),
        Outcome::Error(error) => {
            let error = match error.downcast::<NotAsked>() {
                Ok(skipped) => return Judged::Failed(skipped_route(*skipped, lane, plan), To::Any),
                Err(error) => error,
            };
            let verdict = shared.classify.error(&*error);
            let (row, how) = (row_of_error(verdict, &error), how_far(verdict));
            Failed { verdict, row, result: Err(error), status: None, how }
        }
        Outcome::Cut(error) => {
            let verdict = shared.classify.error(&*error);
            let unknown = verdict.class() == Class::Unknown;
            let verdict = if unknown { Verdict::of(Class::Transient) } else { verdict };
            Failed {
                verdict,
                row: Row::of(verdict.class()),
                result: Err(error),
                status: None,
                how: How::Asked,
            }
        }
        Outcome::Unready(error) => {
            // Nothing was sent, so whatever it means, another route may be asked.
            let verdict = shared.classify.error(&*error);
            let row = Row::of(verdict.class());
            return Judged::Failed(
                Failed { verdict, row, result: Err(error), status: None, how: How::Refused },
                To::Any,
            );
        }
        Outcome::NotReadyInTime => return Judged::Failed(cascade.not_ready(plan, lane), To::Any),
        Outcome::TimedOut => cascade.timed_out(plan, lane),
    };
    let to = plan.table.next(failed.row);
    Judged::Failed(failed, to)
}

/// One that became ready within the call, and failed to, was not sent anything.
fn told_apart<Res>(outcome: Outcome<Res>) -> Outcome<Res> {
    match outcome {
        Outcome::Error(error) => match error.downcast::<NotReady>() {
            Ok(not_ready) => Outcome::Unready(not_ready.0),
            Err(error) => Outcome::Error(error),
        },
        outcome => outcome,
    }
}

fn bad<Res, R, C: Classify<Res>, P, K, O>(
    response: Res,
    verdict: Verdict,
    shared: &Shared<R, C, P, K, O>,
) -> Failed<Res> {
    let status = shared.classify.status_code(&response);
    Failed { verdict, row: Row::of(verdict.class()), result: Ok(response), status, how: how_far(verdict) }
}

/// A denial of ours says that nothing was sent.
const fn how_far(verdict: Verdict) -> How {
    if verdict.class().is_denied() { How::Refused } else { How::Asked }
}

/// The route has no request of its own for this call, or no service: it is passed over.
fn skipped_route<Res>(skipped: NotAsked, lane: &Lane, plan: &Plan) -> Failed<Res> {
    let verdict = skipped.verdict();
    events::skipped(name(plan, lane.route()), verdict);
    let error = skipped.into_fault(plan.name(lane.route()).cloned()).into();
    Failed { verdict, row: Row::of(verdict.class()), result: Err(error), status: None, how: How::Skipped }
}

/// A fallback inside whose routes were all asked before is no reason not to take another route.
fn row_of_error(verdict: Verdict, error: &BoxError) -> Option<Row> {
    let ours = || Fault::find(&**error).is_some_and(|fault| fault.layer() == LAYER);
    match verdict.class() {
        Class::Denied(Denier::Loop) if ours() => Some(Row::DeniedByCircuit),
        class => Row::of(class),
    }
}
