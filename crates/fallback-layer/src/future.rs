//! The future of a call.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use failsoft_core::{BoxError, Class, Classify, Denier, Fault, Next, Replay, Step, Verdict};
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep};
use tower_service::Service;

use crate::{
    LAYER,
    cascade::{Cascade, Failed},
    last_good::{Keep, Kept},
    layer::Shared,
    order::{Affinity, NoAffinity},
    plan::Plan,
    table::{Row, To},
};

pin_project! {
    /// The future of a [`Fallback`](crate::Fallback)'s call: asks one route after the other. Dropped anywhere, it
    /// drops the attempt that is running.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, R, Req, C, P, K, O = NoAffinity>
    where
        S: Service<Req>,
        R: Service<Req>,
        P: Replay<Req>,
        K: Keep<Req, S::Response>,
    {
        #[pin]
        state: StateOf<S, R, Req, K::Keeping>,
        // Made when an attempt is first seen to wait.
        #[pin]
        sleep: Option<Sleep>,
        cascade: Cascade<S::Response>,
        // Until it is asked.
        first: Option<S>,
        // The one for the next attempt.
        request: Option<Req>,
        kept: Option<P::Kept>,
        key: Option<K::Key>,
        shared: Arc<Shared<R, C, P, K, O>>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, SF, R, RF, KF> {
        Start,
        // Every route that is left is in poor health, and one of them recovers soon.
        Recover,
        // No attempt is running.
        Done,
        ReadyFirst { service: S },
        CallFirst { #[pin] future: SF },
        Ready { service: R },
        Call { #[pin] future: RF },
        Keep { #[pin] future: KF },
    }
}

type StateOf<S, R, Req, KF> = State<S, <S as Service<Req>>::Future, R, <R as Service<Req>>::Future, KF>;

/// What came of an attempt.
enum Outcome<Res> {
    Response(Res),
    Error(BoxError),
    /// Readiness failed; that service is used up.
    Unready(BoxError),
    NotReadyInTime,
    TimedOut,
    /// The body of an answer that was to be kept broke off.
    Cut(BoxError),
}

/// How far an attempt has come.
enum Progress<Res, Out> {
    Waits {
        called: bool,
    },
    Done(Outcome<Res>),
    /// The answer was good, and was kept.
    Kept(Out),
    /// The future has given its result already.
    Over,
}

impl<S, R, Req, C, P, K, O> ResponseFuture<S, R, Req, C, P, K, O>
where
    S: Service<Req>,
    R: Service<Req>,
    P: Replay<Req>,
    K: Keep<Req, S::Response>,
    O: Affinity<Req>,
{
    pub(crate) fn new(first: S, request: Req, shared: Arc<Shared<R, C, P, K, O>>) -> Self {
        let key = shared.keep.key(&request);
        let affinity = shared.affinity.key(&request);
        let (request, kept) =
            if shared.plan.repeats() { shared.replay.keep(request) } else { (request, None) };
        Self {
            state: State::Start,
            sleep: None,
            cascade: Cascade::new(kept.is_some(), affinity),
            first: Some(first),
            request: Some(request),
            kept,
            key,
            shared,
        }
    }
}

impl<S, R, Req, C, P, K, O> Future for ResponseFuture<S, R, Req, C, P, K, O>
where
    S: Service<Req, Error: Into<BoxError>>,
    R: Service<Req, Response = S::Response, Error: Into<BoxError>> + Clone,
    C: Classify<S::Response>,
    P: Replay<Req>,
    K: Keep<Req, S::Response>,
{
    type Output = Result<K::Out, BoxError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let shared = &**this.shared;
        let plan = &shared.plan;
        let cascade = this.cascade;
        if let StateProj::Start = this.state.as_mut().project() {
            if let Err(fault) = cascade.begin(plan) {
                this.state.set(State::Done);
                return Poll::Ready(refuse(cascade, shared, this.key.take(), fault));
            }
            let next = next(cascade, this.first, shared);
            this.state.set(next);
        }
        loop {
            if matches!(this.state.as_mut().project(), StateProj::Recover) {
                if let Some(until) = cascade.waits_until() {
                    ready!(poll_sleep(this.sleep.as_mut(), until, cx));
                    cascade.recovered(plan);
                }
                let next = route(cascade.current(), this.first, shared);
                this.state.set(next);
            }
            // One scope for all that the attempt does in this poll.
            let outcome = match cascade.enter(|| drive(this.state.as_mut(), this.request, cx)) {
                Progress::Waits { called } => {
                    ready!(poll_limit(this.sleep.as_mut(), cascade, plan, called, cx));
                    if called { Outcome::TimedOut } else { Outcome::NotReadyInTime }
                }
                Progress::Done(outcome) => outcome,
                Progress::Kept(answer) => {
                    cascade.answered(plan);
                    this.state.set(State::Done);
                    return Poll::Ready(Ok(answer));
                }
                Progress::Over => return Poll::Pending,
            };
            // What the attempt holds is given back before another one begins.
            this.state.set(State::Done);
            let failed = match judge(outcome, cascade, shared) {
                Judged::Failed(failed, to) => {
                    let again = |last| {
                        *this.request = shared.replay.again(this.kept, last);
                        this.request.is_some()
                    };
                    cascade.fail(plan, to, failed, again)
                }
                Judged::Good(response) => match shared.keep.keep(this.key.as_ref(), response) {
                    Kept::Now(answer) => {
                        cascade.answered(plan);
                        return Poll::Ready(Ok(answer));
                    }
                    Kept::Later(future) => {
                        this.state.set(State::Keep { future });
                        continue;
                    }
                },
            };
            match failed {
                Ok(()) => {
                    let next = next(cascade, this.first, shared);
                    this.state.set(next);
                }
                Err(why) => return Poll::Ready(finish(cascade, shared, this.key.take(), why)),
            }
        }
    }
}

enum Judged<Res> {
    Good(Res),
    Failed(Failed<Res>, To),
}

/// What an outcome means, and where it goes on to.
fn judge<Res, R, C, P, K, O>(
    outcome: Outcome<Res>,
    cascade: &Cascade<Res>,
    shared: &Shared<R, C, P, K, O>,
) -> Judged<Res>
where
    C: Classify<Res>,
{
    let plan = &shared.plan;
    let failed = match outcome {
        Outcome::Response(response) => match shared.classify.response(&response) {
            Step::Now(verdict) if !verdict.is_success() => {
                let (row, asked) = (Row::of(verdict.class()), !verdict.class().is_denied());
                let status = shared.classify.status_code(&response);
                Failed { verdict, row, result: Ok(response), status, asked }
            }
            // One whose verdict comes with the end of its body is good so far.
            _ => return Judged::Good(response),
        },
        Outcome::Error(error) => {
            let verdict = shared.classify.error(&*error);
            let asked = !verdict.class().is_denied();
            Failed { verdict, row: row_of_error(verdict, &error), result: Err(error), status: None, asked }
        }
        Outcome::Cut(error) => {
            let verdict = shared.classify.error(&*error);
            let unknown = verdict.class() == Class::Unknown;
            let verdict = if unknown { Verdict::of(Class::Transient) } else { verdict };
            Failed { verdict, row: Row::of(verdict.class()), result: Err(error), status: None, asked: true }
        }
        Outcome::Unready(error) => {
            // Nothing was sent, so whatever it means, another route may be asked.
            let verdict = shared.classify.error(&*error);
            let row = Row::of(verdict.class());
            return Judged::Failed(
                Failed { verdict, row, result: Err(error), status: None, asked: false },
                To::Any,
            );
        }
        Outcome::NotReadyInTime => return Judged::Failed(cascade.not_ready(plan), To::Any),
        Outcome::TimedOut => cascade.timed_out(plan),
    };
    let to = plan.table.next(failed.row);
    Judged::Failed(failed, to)
}

/// A fallback inside whose routes were all asked before is no reason not to take another route.
fn row_of_error(verdict: Verdict, error: &BoxError) -> Option<Row> {
    let ours = || Fault::find(&**error).is_some_and(|fault| fault.layer() == LAYER);
    match verdict.class() {
        Class::Denied(Denier::Loop) if ours() => Some(Row::DeniedByCircuit),
        class => Row::of(class),
    }
}

/// No route could be asked: an earlier answer, or why.
fn refuse<Req, Res, R, C, P, K: Keep<Req, Res>, O>(
    cascade: &mut Cascade<Res>,
    shared: &Shared<R, C, P, K, O>,
    key: Option<K::Key>,
    fault: Fault,
) -> Result<K::Out, BoxError> {
    let verdict = fault.verdict();
    let key = key.filter(|_| shared.plan.table.stand_in(Row::of(verdict.class())));
    let answer = key.and_then(|key| shared.keep.replay(&key)).ok_or(fault)?;
    cascade.stood_in(&shared.plan, verdict);
    Ok(answer)
}

/// Every route has failed: an earlier answer, or the failure.
fn finish<Req, Res, R, C, P, K: Keep<Req, Res>, O>(
    cascade: &mut Cascade<Res>,
    shared: &Shared<R, C, P, K, O>,
    key: Option<K::Key>,
    why: Next,
) -> Result<K::Out, BoxError> {
    let plan = &shared.plan;
    let key = key.filter(|_| plan.table.stand_in(cascade.row()));
    if let Some(answer) = key.and_then(|key| shared.keep.replay(&key)) {
        let verdict = cascade.verdict();
        cascade.stood_in(plan, verdict);
        return Ok(answer);
    }
    cascade.end_with(plan, why).map(|response| shared.keep.pass(response))
}

/// The route that was taken, or the wait for its recovery.
#[inline]
fn next<Res, S, SF, R: Clone, RF, KF, C, P, K, O>(
    cascade: &Cascade<Res>,
    first: &mut Option<S>,
    shared: &Shared<R, C, P, K, O>,
) -> State<S, SF, R, RF, KF> {
    if cascade.waits_until().is_some() { State::Recover } else { route(cascade.current(), first, shared) }
}

/// A pristine clone of the route that was taken.
fn route<S, SF, R: Clone, RF, KF, C, P, K, O>(
    place: usize,
    first: &mut Option<S>,
    shared: &Shared<R, C, P, K, O>,
) -> State<S, SF, R, RF, KF> {
    let further = || place.checked_sub(1).and_then(|place| shared.services.get(place));
    match further() {
        Some(service) => State::Ready { service: service.clone() },
        // Taken once: each route is asked at most once.
        None => first.take().map_or(State::Done, |service| State::ReadyFirst { service }),
    }
}

/// Takes the attempt as far as it goes.
fn drive<S, R, Req, KF, Out>(
    mut state: Pin<&mut StateOf<S, R, Req, KF>>,
    request: &mut Option<Req>,
    cx: &mut Context<'_>,
) -> Progress<S::Response, Out>
where
    S: Service<Req, Error: Into<BoxError>>,
    R: Service<Req, Response = S::Response, Error: Into<BoxError>>,
    KF: Future<Output = Result<Out, BoxError>>,
{
    loop {
        match state.as_mut().project() {
            StateProj::ReadyFirst { service } => match make_ready(service, request, cx) {
                Poll::Ready(Ok(future)) => state.set(State::CallFirst { future }),
                Poll::Ready(Err(error)) => return Progress::Done(Outcome::Unready(error)),
                Poll::Pending => return Progress::Waits { called: false },
            },
            StateProj::Ready { service } => match make_ready(service, request, cx) {
                Poll::Ready(Ok(future)) => state.set(State::Call { future }),
                Poll::Ready(Err(error)) => return Progress::Done(Outcome::Unready(error)),
                Poll::Pending => return Progress::Waits { called: false },
            },
            StateProj::CallFirst { future } => return Progress::of(future.poll(cx)),
            StateProj::Call { future } => return Progress::of(future.poll(cx)),
            StateProj::Keep { future } => {
                return match future.poll(cx) {
                    Poll::Ready(Ok(answer)) => Progress::Kept(answer),
                    Poll::Ready(Err(error)) => Progress::Done(Outcome::Cut(error)),
                    Poll::Pending => Progress::Waits { called: true },
                };
            }
            StateProj::Start | StateProj::Recover | StateProj::Done => return Progress::Over,
        }
    }
}

/// Readies a service and calls it.
fn make_ready<T, Req>(
    service: &mut T,
    request: &mut Option<Req>,
    cx: &mut Context<'_>,
) -> Poll<Result<T::Future, BoxError>>
where
    T: Service<Req, Error: Into<BoxError>>,
{
    ready!(service.poll_ready(cx)).map_err(Into::into)?;
    Poll::Ready(match request.take() {
        Some(request) => Ok(service.call(request)),
        None => Err(Fault::new(Class::Unknown, LAYER).with_message("the request was sent already").into()),
    })
}

/// Ready when the attempt has used up its time.
fn poll_limit<Res>(
    sleep: Pin<&mut Option<Sleep>>,
    cascade: &mut Cascade<Res>,
    plan: &Plan,
    called: bool,
    cx: &mut Context<'_>,
) -> Poll<()> {
    let Some(limit) = cascade.limit(plan, called) else { return Poll::Pending };
    poll_sleep(sleep, limit, cx)
}

fn poll_sleep(mut sleep: Pin<&mut Option<Sleep>>, limit: Instant, cx: &mut Context<'_>) -> Poll<()> {
    match sleep.as_mut().as_pin_mut() {
        Some(mut sleep) => {
            if sleep.deadline() != limit {
                sleep.as_mut().reset(limit);
            }
            sleep.poll(cx)
        }
        None => {
            sleep.set(Some(tokio::time::sleep_until(limit)));
            sleep.as_pin_mut().map_or(Poll::Pending, |sleep| sleep.poll(cx))
        }
    }
}

impl<Res, Out> Progress<Res, Out> {
    fn of<E: Into<BoxError>>(polled: Poll<Result<Res, E>>) -> Self {
        match polled {
            Poll::Ready(Ok(response)) => Self::Done(Outcome::Response(response)),
            Poll::Ready(Err(error)) => Self::Done(Outcome::Error(error.into())),
            Poll::Pending => Self::Waits { called: true },
        }
    }
}

impl<S, R, Req, C, P, K, O> fmt::Debug for ResponseFuture<S, R, Req, C, P, K, O>
where
    S: Service<Req>,
    R: Service<Req>,
    P: Replay<Req>,
    K: Keep<Req, S::Response>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let route = self.shared.plan.name(self.cascade.current());
        f.debug_struct("ResponseFuture").field("route", &route).finish_non_exhaustive()
    }
}
