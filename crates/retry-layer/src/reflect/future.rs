use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use failsoft_core::{BoxError, Call, Classify, Deferred, Replay};
use pin_project_lite::pin_project;
use tokio::time::Sleep;
use tower_service::Service;

use super::{
    Reask,
    flow::{Flow, Sending},
    layer::Shared,
};

pin_project! {
    /// The future of a [`Reflect`](crate::Reflect): one call with its changed requests.
    ///
    /// It allocates nothing unless an answer is wrong.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, Req, A, C, R>
    where
        S: Service<Req>,
        R: Replay<Req>,
    {
        #[pin]
        state: State<S::Future>,
        // Of the readiness for a changed request.
        timer: Option<Pin<Box<Sleep>>>,
        scope: Deferred,
        // That of the changed request.
        inner_scope: Option<Call>,
        flow: Flow<S, Req, A, C, R>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F> {
        Calling { #[pin] future: F },
        Readying,
        Done,
    }
}

impl<S, Req, A, C, R> ResponseFuture<S, Req, A, C, R>
where
    S: Service<Req, Error: Into<BoxError>>,
    A: Reask<Req>,
    C: Classify<S::Response>,
    R: Replay<Req>,
{
    /// Sends the first request, on a service that is ready.
    pub(super) fn new(mut inner: S, request: Req, shared: Arc<Shared<A, C, R>>) -> Self {
        if let Some(budget) = shared.policy.budget.as_ref().filter(|_| shared.policy.deposits) {
            budget.on_request();
        }
        let (request, kept) = shared.replay.keep(request);
        let mut scope = Deferred::new();
        let future = scope.enter(|| inner.call(request));
        let flow = Flow::new(inner, shared, kept);
        Self { state: State::Calling { future }, timer: None, scope, inner_scope: None, flow }
    }
}

impl<S, Req, A, C, R> Future for ResponseFuture<S, Req, A, C, R>
where
    S: Service<Req, Error: Into<BoxError>>,
    A: Reask<Req>,
    C: Classify<S::Response>,
    R: Replay<Req>,
{
    type Output = Result<S::Response, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.state.as_mut().project() {
                StateProj::Calling { future } => {
                    let outcome = ready!(match this.inner_scope {
                        Some(call) => call.enter(|| future.poll(cx)),
                        None => this.scope.enter(|| future.poll(cx)),
                    });
                    let ended = this.scope.enter(|| {
                        this.state.set(State::Done);
                        this.flow.after(outcome)
                    });
                    if let Some(outcome) = ended {
                        return Poll::Ready(outcome);
                    }
                    *this.timer = this.scope.enter(|| this.flow.ready_bound()).map(Box::pin);
                    this.state.set(State::Readying);
                }
                StateProj::Readying => match this.scope.enter(|| this.flow.poll_send(cx)) {
                    Poll::Ready(Sending::Begun(call, future)) => {
                        *this.timer = None;
                        *this.inner_scope = Some(call);
                        this.state.set(State::Calling { future });
                    }
                    Poll::Ready(Sending::Ended(outcome)) => {
                        this.state.set(State::Done);
                        return Poll::Ready(outcome);
                    }
                    Poll::Pending => {
                        let Some(timer) = this.timer else { return Poll::Pending };
                        ready!(timer.as_mut().poll(cx));
                        this.state.set(State::Done);
                        return Poll::Ready(this.scope.enter(|| this.flow.not_ready()));
                    }
                },
                StateProj::Done => return Poll::Pending,
            }
        }
    }
}

impl<S, Req, A, C, R> fmt::Debug for ResponseFuture<S, Req, A, C, R>
where
    S: Service<Req>,
    R: Replay<Req>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Calling { .. } => "calling",
            State::Readying => "readying",
            State::Done => "done",
        };
        f.debug_struct("ResponseFuture").field("state", &state).finish_non_exhaustive()
    }
}
