use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use failsoft_core::{BoxError, Classify, Deferred, Replay};
use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep, sleep_until};
use tower_service::Service;

use crate::{
    flow::{First, Flow, Then},
    layer::Shared,
};

pin_project! {
    /// The future of a [`Retry`](crate::Retry): one call with all its attempts.
    ///
    /// It allocates nothing unless there is a limit of time or a second attempt.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, Req, C, R>
    where
        S: Service<Req>,
        R: Replay<Req>,
    {
        #[pin]
        state: State<S::Future>,
        // Of the attempt, the wait, or the readiness: there is one at a time, and mostly none.
        timer: Option<Pin<Box<Sleep>>>,
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

impl<S, Req, C, R> ResponseFuture<S, Req, C, R>
where
    S: Service<Req, Error: Into<BoxError>> + Clone,
    C: Classify<S::Response>,
    R: Replay<Req>,
{
    /// Begins the first attempt, on a service that is ready.
    #[inline]
    pub(crate) fn new(inner: S, request: Req, shared: Arc<Shared<C, R>>) -> Self {
        let mut scope = Deferred::retrying(shared.policy.max_retries);
        let (mut flow, first) = Flow::new(inner, request, shared);
        let (state, timer) = match first {
            First::Call(request) => {
                let (future, limit) = scope.enter(|| flow.call(request));
                (State::Calling { future }, limit.map(|at| Box::pin(sleep_until(at))))
            }
            First::Wait(wait) => (State::Waiting, Some(Box::pin(sleep(wait)))),
            First::Refuse => (State::Refusing, None),
        };
        Self { state, timer, scope, flow }
    }
}

impl<S, Req, C, R> Future for ResponseFuture<S, Req, C, R>
where
    S: Service<Req, Error: Into<BoxError>>,
    C: Classify<S::Response>,
    R: Replay<Req>,
{
    type Output = Result<S::Response, BoxError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let then = match this.state.as_mut().project() {
                StateProj::Calling { future } => {
                    let (outcome, verdict) = match this.scope.enter(|| future.poll(cx)) {
                        Poll::Ready(outcome) => this.flow.judge(outcome),
                        Poll::Pending => {
                            let Some(timer) = this.timer else { return Poll::Pending };
                            ready!(timer.as_mut().poll(cx));
                            this.flow.timed_out()
                        }
                    };
                    if verdict.is_success() && this.flow.at_once() {
                        this.state.set(State::Done);
                        return Poll::Ready(outcome);
                    }
                    this.scope.enter(|| {
                        // The attempt is over, and holds no permit or connection while we wait.
                        this.state.set(State::Done);
                        this.flow.after(outcome, verdict)
                    })
                }
                StateProj::Yielding => {
                    this.state.set(State::Waiting);
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                StateProj::Waiting => {
                    if let Some(timer) = this.timer {
                        ready!(timer.as_mut().poll(cx));
                    }
                    match this.scope.enter(|| this.flow.waited()) {
                        Some(then) => then,
                        None => {
                            *this.timer = this.flow.ready_bound().map(|at| Box::pin(sleep_until(at)));
                            this.state.set(State::Readying);
                            continue;
                        }
                    }
                }
                StateProj::Readying => match this.scope.enter(|| this.flow.poll_ready(cx)) {
                    Poll::Ready(then) => then,
                    Poll::Pending => {
                        // Without a bound there is nothing to wait for but the readiness itself.
                        let Some(timer) = this.timer else { return Poll::Pending };
                        ready!(timer.as_mut().poll(cx));
                        this.scope.enter(|| this.flow.not_ready())
                    }
                },
                StateProj::Refusing => this.scope.enter(|| this.flow.refuse()),
                StateProj::Done => return Poll::Pending,
            };
            match then {
                Then::Return(outcome) => {
                    this.state.set(State::Done);
                    return Poll::Ready(outcome);
                }
                Then::Wait(delay) => {
                    let at_once = delay.is_zero();
                    *this.timer = (!at_once).then(|| Box::pin(sleep(delay)));
                    this.state.set(if at_once { State::Yielding } else { State::Waiting });
                }
                Then::Call(request) => {
                    let (future, limit) = this.scope.enter(|| this.flow.call(request));
                    *this.timer = limit.map(|at| Box::pin(sleep_until(at)));
                    this.state.set(State::Calling { future });
                }
            }
        }
    }
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
