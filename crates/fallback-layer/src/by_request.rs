//! Routes whose service is made for each request, by a function.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use failsoft_core::{BoxError, IntoBoxError};
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::adapt::{NotAsked, NotReady};

/// The service of a route that is [built by a function](crate::Route::by_request) of each request.
///
/// It is always ready; the service that is built becomes ready within the call.
pub struct ByRequest<F> {
    build: Arc<F>,
}

impl<F> ByRequest<F> {
    pub(crate) fn new(build: F) -> Self {
        Self { build: Arc::new(build) }
    }
}

impl<F, Req, S, E> Service<Req> for ByRequest<F>
where
    F: Fn(&Req) -> Result<S, E>,
    S: Service<Req, Error: IntoBoxError>,
    E: Into<BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = ByRequestFuture<S, Req>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let state = match (self.build)(&request) {
            Ok(service) => State::Ready { service, request: Some(request) },
            Err(error) => {
                State::Failed { error: Some(NotAsked::new("the route could not be built", error.into())) }
            }
        };
        ByRequestFuture { state }
    }
}

pin_project! {
    /// The future of a [`ByRequest`].
    #[must_use = "futures do nothing unless polled"]
    pub struct ByRequestFuture<S, Req>
    where
        S: Service<Req>,
    {
        #[pin]
        state: State<S, S::Future, Req>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, SF, Req> {
        Ready { service: S, request: Option<Req> },
        Call { #[pin] future: SF },
        // Taken when it is told.
        Failed { error: Option<NotAsked> },
    }
}

impl<S, Req> Future for ByRequestFuture<S, Req>
where
    S: Service<Req, Error: Into<BoxError>>,
{
    type Output = Result<S::Response, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            match state.as_mut().project() {
                StateProj::Ready { service, request } => {
                    ready!(service.poll_ready(cx)).map_err(|error| NotReady(error.into()))?;
                    let Some(request) = request.take() else { return Poll::Pending };
                    let future = service.call(request);
                    state.set(State::Call { future });
                }
                StateProj::Call { future } => return future.poll(cx).map_err(Into::into),
                StateProj::Failed { error } => {
                    return error.take().map_or(Poll::Pending, |error| Poll::Ready(Err(error.into())));
                }
            }
        }
    }
}

impl<F> Clone for ByRequest<F> {
    fn clone(&self) -> Self {
        Self { build: Arc::clone(&self.build) }
    }
}

impl<F> fmt::Debug for ByRequest<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByRequest").finish_non_exhaustive()
    }
}

impl<S: Service<Req>, Req> fmt::Debug for ByRequestFuture<S, Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByRequestFuture").finish_non_exhaustive()
    }
}
