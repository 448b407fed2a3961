use std::{
    fmt, mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use failsoft_core::{BoxError, Call, Classify, Deferred, Replay, Verdict};
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_service::Service;

use crate::{
    flow::{First, Flow, Then},
    layer::Shared,
    lent::Lent,
    more::More,
};

pin_project! {
    /// The future of a [`Retry`](crate::Retry): one call with all its attempts.
    ///
    /// It allocates nothing unless an attempt that has a limit waits, or there is a second one.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, Req, C, R>
    where
        S: Service<Req>,
        R: Replay<Req>,
    {
        #[pin]
        state: State<S::Future>,
        scope: Deferred,
        flow: Flow<S, Req, C, R>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F> {
        Calling { #[pin] future: F },
        /// A wait of no time: others get their turn.
        Yielding,
        Waiting,
        Readying,
        Refusing,
        Done,
    }
}

/// The parts of a call that began in a way of its own.
type Begun<S, Req, C, R> = (State<<S as Service<Req>>::Future>, Deferred, Flow<S, Req, C, R>);

impl<S, Req, C, R> ResponseFuture<S, Req, C, R>
where
    S: Service<Req, Error: Into<BoxError>> + Clone,
    C: Classify<S::Response>,
    R: Replay<Req>,
{
    /// Begins the first attempt. `ready` is the service that is ready; it is only lent, so that most calls need not move it.
    #[inline(always)]
    pub(crate) fn new(ready: &mut S, request: Req, shared: &Arc<Shared>, classify: &C, replay: &R) -> Self
    where
        C: Clone,
        R: Clone,
    {
        let Shared { policy, holds, plain, .. } = &**shared;
        let is_plain = plain.is_plain
            && !holds.any()
            && Call::current_deadline().is_none()
            && replay.timeout(&request).is_none();
        if !is_plain {
            // Its clone is not ready: a call that does not begin at once holds nothing meanwhile.
            let clone = ready.clone();
            let inner = mem::replace(ready, clone);
            // In places of its own: were it written where the way of most calls writes, that could not keep its parts in registers.
            let (state, scope, flow) = Self::begin(inner, request, shared, classify.clone(), replay.clone());
            return Self { state, scope, flow };
        }
        // The way of most calls. All that it makes stays apart until it is put together at the end, and between nothing can panic
        // but the service: what might have to be dropped then would lie in memory, and be put together twice, here and where the
        // caller awaits it.
        plain.on_request();
        let (request, kept) = replay.keep(request);
        let more = match kept {
            // Of what is not kept nobody could ask later where it went.
            None if policy.target.is_none() => More::on(replay.target(&request)),
            _ => None,
        };
        let (classify, replay) = (classify.clone(), replay.clone());
        let inner = ready.clone();
        let lent = Lent::of(shared);
        let mut scope = plain.scope.renewed();
        let entered = scope.try_begin();
        let future = ready.call(request);
        if let Some(entered) = entered {
            scope.keep(entered);
        }
        let flow = Flow { inner, shared: lent, classify, replay, kept, more };
        Self { state: State::Calling { future }, scope, flow }
    }

    #[cold]
    fn begin(inner: S, request: Req, shared: &Arc<Shared>, classify: C, replay: R) -> Begun<S, Req, C, R> {
        let mut scope = shared.plain.scope.renewed();
        let mut flow = Flow::new(inner, Lent::of(shared), classify, replay);
        let state = match flow.begin(request) {
            First::Call(request) => {
                let (future, limit) = scope.enter(|| flow.call(request));
                flow.set_timer(limit);
                State::Calling { future }
            }
            First::Wait(wait) => {
                flow.set_timer(Some(far(wait)));
                State::Waiting
            }
            First::Refuse => State::Refusing,
        };
        (state, scope, flow)
    }
}

impl<S, Req, C, R> Future for ResponseFuture<S, Req, C, R>
where
    S: Service<Req, Error: Into<BoxError>>,
    C: Classify<S::Response>,
    R: Replay<Req>,
{
    type Output = Result<S::Response, BoxError>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.as_mut().project();
        let mut outcome = None;
        // The way of most calls: in their first attempt, and nothing was recorded in it.
        let (scope, flow) = (this.scope, this.flow);
        if let StateProj::Calling { future } = this.state.as_mut().project() {
            if let Some(entered) = scope.try_begin() {
                let polled = future.poll(cx);
                scope.keep(entered);
                outcome = match polled {
                    Poll::Ready(Ok(response)) => match flow.failure(&response) {
                        None if flow.plain_success() => {
                            this.state.set(State::Done);
                            flow.shared.give_back();
                            return Poll::Ready(Ok(response));
                        }
                        failure => Some((Ok(response), failure.unwrap_or(Verdict::SUCCESS))),
                    },
                    Poll::Ready(Err(error)) => Some(flow.judge(Err(error))),
                    Poll::Pending => {
                        let Some(timer) = flow.attempt_timer() else { return Poll::Pending };
                        ready!(timer.poll(cx));
                        Some(flow.timed_out())
                    }
                };
            }
        }
        let mut slot = None;
        self.go_on(outcome, cx, &mut slot);
        match slot {
            Some(Ok(response)) => Poll::Ready(Ok(response)),
            Some(Err(error)) => Poll::Ready(Err(error)),
            None => Poll::Pending,
        }
    }
}

type Outcome<Res> = (Result<Res, BoxError>, Verdict);

impl<S, Req, C, R> ResponseFuture<S, Req, C, R>
where
    S: Service<Req, Error: Into<BoxError>>,
    C: Classify<S::Response>,
    R: Replay<Req>,
{
    /// `outcome`: of the attempt that has just ended. What it gives does not lie where the way of most calls writes: that would
    /// be read back as soon as it is written.
    #[inline(never)]
    fn go_on(
        self: Pin<&mut Self>,
        outcome: Option<Outcome<S::Response>>,
        cx: &mut Context<'_>,
        slot: &mut Option<Result<S::Response, BoxError>>,
    ) {
        if let Poll::Ready(outcome) = self.poll_on(outcome, cx) {
            *slot = Some(outcome);
        }
    }

    fn poll_on(
        self: Pin<&mut Self>,
        mut outcome: Option<Outcome<S::Response>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<S::Response, BoxError>> {
        let mut this = self.project();
        let (scope, flow) = (this.scope, this.flow);
        loop {
            let then = match this.state.as_mut().project() {
                StateProj::Calling { future } => {
                    let ended = match outcome.take() {
                        Some(ended) => Some(ended),
                        None => match scope.enter(|| future.poll(cx)) {
                            Poll::Ready(outcome) => Some(flow.judge(outcome)),
                            Poll::Pending => None,
                        },
                    };
                    let (outcome, verdict) = match ended {
                        Some(ended) => ended,
                        None => {
                            let Some(timer) = flow.attempt_timer() else { return Poll::Pending };
                            ready!(timer.poll(cx));
                            flow.timed_out()
                        }
                    };
                    if verdict.is_success() && flow.at_once() {
                        this.state.set(State::Done);
                        return Poll::Ready(outcome);
                    }
                    scope.enter(|| {
                        // The attempt is over, and holds no permit or connection while we wait.
                        this.state.set(State::Done);
                        flow.after(outcome, verdict)
                    })
                }
                StateProj::Yielding => {
                    this.state.set(State::Waiting);
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                StateProj::Waiting => {
                    let waits = flow.timer().is_some_and(|timer| timer.poll(cx).is_pending());
                    if flow.poll_refused(cx).is_ready() {
                        scope.enter(|| flow.refused())
                    } else if waits {
                        return Poll::Pending;
                    } else {
                        match scope.enter(|| flow.waited()) {
                            Some(then) => then,
                            None => {
                                let bound = flow.ready_bound();
                                flow.set_timer(bound);
                                this.state.set(State::Readying);
                                continue;
                            }
                        }
                    }
                }
                StateProj::Readying => match scope.enter(|| flow.poll_ready(cx)) {
                    Poll::Ready(then) => then,
                    Poll::Pending if flow.poll_refused(cx).is_ready() => scope.enter(|| flow.refused()),
                    Poll::Pending => {
                        // Without a bound there is nothing to wait for but the readiness itself.
                        let Some(timer) = flow.timer() else { return Poll::Pending };
                        ready!(timer.poll(cx));
                        scope.enter(|| flow.not_ready())
                    }
                },
                StateProj::Refusing => scope.enter(|| flow.refuse()),
                StateProj::Done => return Poll::Pending,
            };
            match then {
                Then::Return(outcome) => {
                    this.state.set(State::Done);
                    return Poll::Ready(outcome);
                }
                Then::Wait(delay) => {
                    let at_once = delay.is_zero();
                    let until = if at_once { None } else { Some(far(delay)) };
                    flow.set_timer(until);
                    this.state.set(if at_once { State::Yielding } else { State::Waiting });
                }
                Then::Call(request) => {
                    let (future, limit) = scope.enter(|| flow.call(request));
                    flow.set_timer(limit);
                    this.state.set(State::Calling { future });
                }
            }
        }
    }
}

/// When a wait that begins now is over; one that is too long to be represented takes as long as tokio can wait.
fn far(delay: Duration) -> Instant {
    const YEARS: Duration = Duration::from_secs(86_400 * 365 * 30);
    let now = Instant::now();
    now.checked_add(delay).unwrap_or(now + YEARS)
}

impl<S, Req, C, R> fmt::Debug for ResponseFuture<S, Req, C, R>
where
    S: Service<Req>,
    R: Replay<Req>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Calling { .. } => "calling",
            State::Yielding | State::Waiting => "waiting",
            State::Readying => "readying",
            State::Refusing => "refusing",
            State::Done => "done",
        };
        f.debug_struct("ResponseFuture").field("state", &state).finish_non_exhaustive()
    }
}
