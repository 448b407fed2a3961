//! The future of a call.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use failsoft_core::{BoxError, Classify, Guard, Step, Watch};
use pin_project_lite::pin_project;

use crate::Ticket;

pin_project! {
    /// The future of a call through a [`Breaker`](crate::Breaker).
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F, C> {
        #[pin]
        state: State<F>,
        classify: C,
        // after the state: it settles when the inner future is gone
        ticket: Option<Ticket>,
    }
}

pin_project! {
    #[project = StateProjected]
    enum State<F> {
        Called { #[pin] future: F },
        Refused { error: Option<BoxError> },
    }
}

impl<F, C> ResponseFuture<F, C> {
    #[inline(always)]
    pub(crate) fn called(future: F, classify: C, ticket: Ticket) -> Self {
        Self { state: State::Called { future }, classify, ticket: Some(ticket) }
    }

    pub(crate) fn refused(error: BoxError, classify: C) -> Self {
        Self { state: State::Refused { error: Some(error) }, classify, ticket: None }
    }
}

impl<F, C, Res, E> Future for ResponseFuture<F, C>
where
    F: Future<Output = Result<Res, E>>,
    E: Into<BoxError>,
    C: Classify<Res>,
{
    type Output = Result<<C::Judge as Watch<Res>>::Out<Ticket>, BoxError>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let future = match this.state.project() {
            StateProjected::Called { future } => future,
            StateProjected::Refused { error } => {
                return error.take().map_or(Poll::Pending, |error| Poll::Ready(Err(error)));
            }
        };
        let Some(ticket) = this.ticket else {
            // polled again after its body went off with the ticket: what then happens is the inner future's
            // to say
            return future.poll(cx).map(|result| result.map(C::Judge::bare).map_err(Into::into));
        };
        // settled in place where it can be: moving the ticket would cost more than the rest
        match ready!(ticket.working(|| future.poll(cx))) {
            Ok(response) => match this.classify.response(&response) {
                Step::Now(verdict) => {
                    ticket.settle(verdict);
                    Poll::Ready(Ok(C::Judge::bare(response)))
                }
                Step::AtEnd(judge) => Poll::Ready(Ok(match this.ticket.take() {
                    Some(ticket) => judge.follow(response, ticket),
                    None => C::Judge::bare(response),
                })),
            },
            Err(error) => {
                let error = error.into();
                ticket.settle(this.classify.error(&*error));
                Poll::Ready(Err(error))
            }
        }
    }
}

impl<F, C> fmt::Debug for ResponseFuture<F, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}
