use std::{
    fmt, mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use failsoft_core::{BoxError, Call, Classify, Deferred, EnteredDeferred, Replay, Verdict};
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
    /// It allocates nothing unless there is a limit of time or a second attempt.
    #[must_use = "futures do nothing unless polled"]
    // A future is moved in pieces of two words and read at once, and a value that lies in two pieces is slow to read. Most inner
    // futures begin with a word for their state, so that what follows lies well where they begin at an odd word.
    #[repr(C)]
    pub struct ResponseFuture<S, Req, C, R>
    where
        S: Service<Req>,
        R: Replay<Req>,
    {
        odd: usize,
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

impl<S, Req, C, R> ResponseFuture<S, Req, C, R>
where
    S: Service<Req, Error: Into<BoxError>> + Clone,
    C: Classify<S::Response>,
    R: Replay<Req>,
{
    /// Begins the first attempt. `ready` is the service that is ready; it is only lent, so that most calls need not move it.
    #[inline]
    pub(crate) fn new(ready: &mut S, request: Req, shared: &Arc<Shared>, classify: &C, replay: &R) -> Self
    where
        C: Clone,
        R: Clone,
    {
        let Shared { policy, holds, .. } = &**shared;
        let is_plain = policy.is_plain()
            && !holds.any()
            && Call::current_deadline().is_none()
            && replay.timeout(&request).is_none();
        if !is_plain {
            // Its clone is not ready: a call that does not begin at once holds nothing meanwhile.
            let clone = ready.clone();
            let inner = mem::replace(ready, clone);
            return Self::begin(inner, request, shared, classify.clone(), replay.clone());
        }
        // The way of most calls. All that it makes stays apart until it is put together at the end: a future that is changed
        // in memory and then moved costs more than the rest.
        policy.on_request();
        let (request, kept) = replay.keep(request);
        let more = match kept {
            // Of what is not kept nobody could ask later where it went.
            None if policy.target.is_none() => More::on(replay.target(&request)),
            _ => None,
        };
        // Before the call, which may write to it: what was just written in pieces is slow to read whole.
        let inner = ready.clone();
        let scope = Deferred::retrying(policy.max_retries);
        let entered = scope.try_begin();
        let future = ready.call(request);
        let scope = entered.map_or(scope, EnteredDeferred::end);
        let shared = Lent::of(shared);
        let flow = Flow { inner, shared, classify: classify.clone(), replay: replay.clone(), kept, more };
        Self { odd: 0, state: State::Calling { future }, scope, flow }
    }

    #[cold]
    fn begin(inner: S, request: Req, shared: &Arc<Shared>, classify: C, replay: R) -> Self {
        let mut scope = Deferred::retrying(shared.policy.max_retries);
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
        Self { odd: 0, state, scope, flow }
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
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.as_mut().project();
        let mut outcome = None;
        // The way of most calls: in their first attempt, and nothing was recorded in it.
        if let StateProj::Calling { future } = this.state.as_mut().project() {
            if let Some(entered) = this.scope.try_begin() {
                let polled = future.poll(cx);
                *this.scope = entered.end();
                outcome = match polled {
                    Poll::Ready(Ok(response)) => match this.flow.failure(&response) {
                        None if this.flow.plain_success() => {
                            this.state.set(State::Done);
                            return Poll::Ready(Ok(response));
                        }
                        failure => Some((Ok(response), failure.unwrap_or(Verdict::SUCCESS))),
                    },
                    Poll::Ready(Err(error)) => Some(this.flow.judge(Err(error))),
                    Poll::Pending => {
                        let Some(timer) = this.flow.timer() else { return Poll::Pending };
                        ready!(timer.poll(cx));
                        Some(this.flow.timed_out())
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
        loop {
            let then = match this.state.as_mut().project() {
                StateProj::Calling { future } => {
                    let ended = match outcome.take() {
                        Some(ended) => Some(ended),
                        None => match this.scope.enter(|| future.poll(cx)) {
                            Poll::Ready(outcome) => Some(this.flow.judge(outcome)),
                            Poll::Pending => None,
                        },
                    };
                    let (outcome, verdict) = match ended {
                        Some(ended) => ended,
                        None => {
                            let Some(timer) = this.flow.timer() else { return Poll::Pending };
                            ready!(timer.poll(cx));
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
                    let waits = this.flow.timer().is_some_and(|timer| timer.poll(cx).is_pending());
                    if this.flow.poll_refused(cx).is_ready() {
                        this.scope.enter(|| this.flow.refused())
                    } else if waits {
                        return Poll::Pending;
                    } else {
                        match this.scope.enter(|| this.flow.waited()) {
                            Some(then) => then,
                            None => {
                                let bound = this.flow.ready_bound();
                                this.flow.set_timer(bound);
                                this.state.set(State::Readying);
                                continue;
                            }
                        }
                    }
                }
                StateProj::Readying => match this.scope.enter(|| this.flow.poll_ready(cx)) {
                    Poll::Ready(then) => then,
                    Poll::Pending if this.flow.poll_refused(cx).is_ready() => {
                        this.scope.enter(|| this.flow.refused())
                    }
                    Poll::Pending => {
                        // Without a bound there is nothing to wait for but the readiness itself.
                        let Some(timer) = this.flow.timer() else { return Poll::Pending };
                        ready!(timer.poll(cx));
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
                    let until = if at_once { None } else { Some(far(delay)) };
                    this.flow.set_timer(until);
                    this.state.set(if at_once { State::Yielding } else { State::Waiting });
                }
                Then::Call(request) => {
                    let (future, limit) = this.scope.enter(|| this.flow.call(request));
                    this.flow.set_timer(limit);
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
