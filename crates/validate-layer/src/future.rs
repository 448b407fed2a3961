//! The future of a call.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use failsoft_core::BoxError;
use pin_project_lite::pin_project;

use crate::{Asked, Mode, Validator, mode::Step};

pin_project! {
    /// The future of a call through a [`Validate`](crate::Validate): the inner call, then the reading of its answer.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F, M, R> {
        #[pin]
        state: State<F, R>,
        mode: M,
        asked: Option<Arc<Asked>>,
        validator: Arc<Validator>,
    }
}

pin_project! {
    #[project = StateProjected]
    enum State<F, R> {
        Calling { #[pin] future: F },
        Reading { reading: R },
        // What the request broke, until it is told.
        Denied { fault: Option<BoxError> },
    }
}

impl<F, M, R> ResponseFuture<F, M, R> {
    pub(crate) const fn new(
        future: F,
        asked: Option<Arc<Asked>>,
        mode: M,
        validator: Arc<Validator>,
    ) -> Self {
        Self { state: State::Calling { future }, mode, asked, validator }
    }

    pub(crate) const fn denied(fault: BoxError, mode: M, validator: Arc<Validator>) -> Self {
        Self { state: State::Denied { fault: Some(fault) }, mode, asked: None, validator }
    }
}

impl<F, M, Res, E> Future for ResponseFuture<F, M, M::Reading>
where
    F: Future<Output = Result<Res, E>>,
    M: Mode<Res>,
    E: Into<BoxError>,
{
    type Output = Result<M::Out, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.state.as_mut().project() {
                StateProjected::Calling { future } => {
                    let response = ready!(future.poll(cx)).map_err(Into::into)?;
                    match this.mode.open(response, this.asked.take(), this.validator) {
                        Step::Done(result) => return Poll::Ready(result),
                        // The inner future is gone before its body is read.
                        Step::Read(reading) => this.state.set(State::Reading { reading }),
                    }
                }
                StateProjected::Reading { reading } => {
                    return M::poll_read(reading, this.validator, cx);
                }
                StateProjected::Denied { fault } => {
                    return fault.take().map_or(Poll::Pending, |fault| Poll::Ready(Err(fault)));
                }
            }
        }
    }
}

impl<F, M, R> fmt::Debug for ResponseFuture<F, M, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reading = matches!(self.state, State::Reading { .. });
        f.debug_struct("ResponseFuture").field("reading", &reading).finish_non_exhaustive()
    }
}
