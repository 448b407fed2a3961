//! The future of a call.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use failsoft_core::{BoxError, Call, Classify, Fault, Step, Watch};
use pin_project_lite::pin_project;

use crate::{Charge, cost::Ended};

pin_project! {
    /// The future of a call through a [`Budgeted`](crate::Budgeted).
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F, C> {
        #[pin]
        state: State<F>,
        classify: C,
        // Last: it settles when the inner future is gone, with all that that one still reports.
        charge: Option<Charge>,
    }
}

pin_project! {
    #[project = StateProjected]
    enum State<F> {
        Called { #[pin] future: F, call: Call },
        Denied { error: Option<BoxError> },
    }
}

impl<F, C> ResponseFuture<F, C> {
    pub(crate) const fn called(future: F, call: Call, classify: C, charge: Charge) -> Self {
        Self { state: State::Called { future, call }, classify, charge: Some(charge) }
    }

    pub(crate) fn denied(fault: Fault, classify: C) -> Self {
        Self { state: State::Denied { error: Some(fault.into()) }, classify, charge: None }
    }
}

impl<F, C, Res, E> Future for ResponseFuture<F, C>
where
    F: Future<Output = Result<Res, E>>,
    E: Into<BoxError>,
    C: Classify<Res>,
{
    type Output = Result<<C::Judge as Watch<Res>>::Out<Charge>, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let (future, call) = match this.state.project() {
            StateProjected::Called { future, call } => (future, call),
            StateProjected::Denied { error } => {
                return error.take().map_or(Poll::Pending, |error| Poll::Ready(Err(error)));
            }
        };
        let result = match this.charge {
            Some(charge) => ready!(charge.working(|| call.enter(|| future.poll(cx)))),
            // Polled again after the end: what then happens is the inner future's to say.
            None => ready!(future.poll(cx)),
        };
        let charge = this.charge.take();
        Poll::Ready(match result {
            Ok(response) => Ok(answered(this.classify, response, charge)),
            Err(error) => {
                let error = error.into();
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
fn answered<C, Res>(
    classify: &C,
    response: Res,
    charge: Option<Charge>,
) -> <C::Judge as Watch<Res>>::Out<Charge>
where
    C: Classify<Res>,
{
    let Some(mut charge) = charge else { return C::Judge::bare(response) };
    match classify.response(&response) {
        Step::Now(verdict) => {
            charge.end(Ended::before_body(&verdict, classify.status_code(&response)));
            C::Judge::bare(response)
        }
        Step::AtEnd(judge) => judge.follow(response, charge),
    }
}

impl<F, C> fmt::Debug for ResponseFuture<F, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").field("charge", &self.charge).finish_non_exhaustive()
    }
}
