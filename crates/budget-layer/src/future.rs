//! The future of a call.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

#[cfg(feature = "http")]
use failsoft_core::advice;
use failsoft_core::{BoxError, Classify, Fault, Step, Watch};
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::{Charge, cost::Ended, layer::Admission, line::Line};

pin_project! {
    /// The future of a call through a [`Budgeted`](crate::Budgeted).
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F, C, S, Req> {
        #[pin]
        state: State<F, S, Req>,
        classify: C,
        // Last: it settles when the inner future is gone, with all that that one still reports.
        charge: Option<Charge>,
    }
}

pin_project! {
    #[project = StateProjected]
    enum State<F, S, Req> {
        Called { #[pin] future: F },
        Denied { error: Option<BoxError> },
        Waiting { waiting: Box<Waiting<S, Req>> },
    }
}

/// A call that waits for its turn, and then for the inner service. Boxed: not the way of most calls.
struct Waiting<S, Req> {
    /// A clone that nothing is reserved in.
    inner: S,
    request: Option<Req>,
    /// `None` once it was its turn.
    line: Option<Box<Line>>,
}

impl<F, C, S, Req> ResponseFuture<F, C, S, Req> {
    pub(crate) const fn called(future: F, classify: C, charge: Charge) -> Self {
        Self { state: State::Called { future }, classify, charge: Some(charge) }
    }

    pub(crate) fn denied(fault: Fault, classify: C) -> Self {
        Self { state: State::Denied { error: Some(fault.into()) }, classify, charge: None }
    }

    pub(crate) fn waiting(line: Box<Line>, inner: S, request: Req, classify: C) -> Self {
        let waiting = Box::new(Waiting { inner, request: Some(request), line: Some(line) });
        Self { state: State::Waiting { waiting }, classify, charge: None }
    }
}

/// How a wait ends.
enum Waited<F> {
    Called(F),
    Failed(BoxError),
}

impl<S, Req> Waiting<S, Req>
where
    S: Service<Req, Error: Into<BoxError>>,
{
    #[cold]
    fn poll(&mut self, charge: &mut Option<Charge>, cx: &mut Context<'_>) -> Poll<Waited<S::Future>> {
        if let Some(line) = &mut self.line {
            match ready!(line.poll(cx)) {
                Admission::Begun(begun) => *charge = Some(begun),
                Admission::Denied(fault) => return Poll::Ready(Waited::Failed(fault.into())),
                // Nobody waits in two lines.
                Admission::Waits(line) => drop(line),
            }
            self.line = None;
        }
        let Some(charge) = charge else { return Poll::Pending };
        let inner = &mut self.inner;
        if let Err(err) = ready!(charge.working(|| inner.poll_ready(cx))) {
            return Poll::Ready(Waited::Failed(err.into()));
        }
        let Some(request) = self.request.take() else { return Poll::Pending };
        Poll::Ready(Waited::Called(charge.working(|| inner.call(request))))
    }
}

impl<F, C, S, Req, Res, E> Future for ResponseFuture<F, C, S, Req>
where
    F: Future<Output = Result<Res, E>>,
    E: Into<BoxError>,
    C: Classify<Res>,
    S: Service<Req, Response = Res, Error = E, Future = F>,
{
    type Output = Result<<C::Judge as Watch<Res>>::Out<Charge>, BoxError>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let result = loop {
            match this.state.as_mut().project() {
                StateProjected::Called { future } => {
                    break match this.charge {
                        Some(charge) => {
                            let polled = charge.working(|| future.poll(cx));
                            if polled.is_pending() {
                                charge.ask_ahead(cx);
                            }
                            ready!(polled).map_err(Into::into)
                        }
                        // Polled again after the end: what then happens is the inner future's to say.
                        None => ready!(future.poll(cx)).map_err(Into::into),
                    };
                }
                StateProjected::Denied { error } => {
                    return error.take().map_or(Poll::Pending, |error| Poll::Ready(Err(error)));
                }
                StateProjected::Waiting { waiting } => {
                    match ready!(waiting.poll(this.charge, cx)) {
                        Waited::Called(future) => this.state.set(State::Called { future }),
                        Waited::Failed(error) => {
                            this.state.set(State::Denied { error: None });
                            if let Some(mut charge) = this.charge.take() {
                                // The inner service did not become ready: nothing was sent.
                                charge.end(Ended::unsent(&this.classify.error(&*error)));
                            }
                            return Poll::Ready(Err(error));
                        }
                    }
                }
            }
        };
        let charge = this.charge.take();
        Poll::Ready(match result {
            Ok(response) => Ok(answered(this.classify, response, charge)),
            Err(error) => {
                let error: BoxError = error;
                if let Some(mut charge) = charge {
                    let status = Fault::find(&*error).and_then(|fault| fault.status());
                    charge.end(Ended::before_body(&this.classify.error(&*error), status));
                }
                Err(error)
            }
        })
    }
}

/// The outcome now, or the charge goes with the body.
#[inline(always)]
fn answered<C, Res>(
    classify: &C,
    response: Res,
    charge: Option<Charge>,
) -> <C::Judge as Watch<Res>>::Out<Charge>
where
    C: Classify<Res>,
{
    let Some(mut charge) = charge else { return C::Judge::bare(response) };
    #[cfg(feature = "http")]
    if let Some(headers) = charge.heeds_quota().then(|| classify.target_headers(&response)).flatten() {
        charge.heed(advice::remaining(headers, advice::wall_clock()));
    }
    match classify.response(&response) {
        Step::Now(verdict) => {
            charge.end(Ended::before_body(&verdict, classify.status_code(&response)));
            C::Judge::bare(response)
        }
        Step::AtEnd(judge) => judge.follow(response, charge),
    }
}

impl<F, C, S, Req> fmt::Debug for ResponseFuture<F, C, S, Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").field("charge", &self.charge).finish_non_exhaustive()
    }
}
