use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use failsoft_core::{BoxError, Classify, Deferred, Replay};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::race::{Race, Which};

pin_project! {
    /// The future of a [`Hedge`](crate::Hedge): one call with all its attempts.
    ///
    /// An answer that is there at once costs no allocation and no timer. A call that waits allocates its timer, and each hedge
    /// that really begins its future.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, Req, C, R>
    where
        S: Service<Req>,
        R: Replay<Req>,
    {
        #[pin]
        first: First<S::Future>,
        scope: Deferred,
        race: Race<S, Req, C, R>,
    }
}

pin_project! {
    #[project = FirstProj]
    enum First<F> {
        Running { #[pin] future: F },
        Over,
    }
}

impl<S, Req, C, R> ResponseFuture<S, Req, C, R>
where
    S: Service<Req>,
    R: Replay<Req>,
{
    pub(super) const fn new(future: S::Future, scope: Deferred, race: Race<S, Req, C, R>) -> Self {
        Self { first: First::Running { future }, scope, race }
    }
}

impl<S, Req, C, R> Future for ResponseFuture<S, Req, C, R>
where
    S: Service<Req, Error: Into<BoxError>>,
    C: Classify<S::Response>,
    R: Replay<Req>,
{
    type Output = Result<S::Response, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            if let FirstProj::Running { future } = this.first.as_mut().project() {
                if let Poll::Ready(outcome) = this.scope.enter(|| future.poll(cx)) {
                    let ended = this.scope.enter(|| {
                        this.first.set(First::Over);
                        this.race.ended(Which::First, false, outcome, || ())
                    });
                    if let Some(outcome) = ended {
                        this.race.over();
                        return Poll::Ready(outcome);
                    }
                }
            }
            while let Some((which, outcome)) = this.race.poll_hedges(cx) {
                let first_runs = matches!(*this.first, First::Running { .. });
                let drop_first = || this.first.as_mut().set(First::Over);
                let ended = this.scope.enter(|| this.race.ended(which, first_runs, outcome, drop_first));
                if let Some(outcome) = ended {
                    this.race.over();
                    return Poll::Ready(outcome);
                }
            }
            ready!(this.scope.enter(|| this.race.poll_next(cx)));
        }
    }
}

impl<S, Req, C, R> fmt::Debug for ResponseFuture<S, Req, C, R>
where
    S: Service<Req>,
    R: Replay<Req>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first_runs = matches!(self.first, First::Running { .. });
        f.debug_struct("ResponseFuture").field("first_runs", &first_runs).finish_non_exhaustive()
    }
}
