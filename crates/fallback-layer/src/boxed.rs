//! Boxed routes, so that routes of different types share one.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use failsoft_core::{BoxError, Class, CloneService, Fault, IntoBoxError};
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::LAYER;

/// A boxed service that can be cloned, so that routes of different types share one.
///
/// To clone it allocates nothing. Each call takes one allocation, in which first a clone of the service becomes ready
/// and then its future runs.
pub struct BoxRoute<Req, Res> {
    service: Arc<dyn Prototype<Req, Res>>,
    /// The clone that becomes ready for the next call. The lock is never taken: it makes of what is only `Send` something
    /// that is `Sync`, as a route must be.
    attempt: Mutex<Option<BoxAttempt<Req, Res>>>,
}

type BoxAttempt<Req, Res> = Pin<Box<dyn Attempt<Req, Res> + Send>>;

trait Prototype<Req, Res>: Send + Sync {
    fn attempt(&self) -> BoxAttempt<Req, Res>;
}

trait Attempt<Req, Res> {
    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>>;
    fn call(self: Pin<&mut Self>, request: Req);
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Res, BoxError>>;
}

pin_project! {
    #[project = OneProj]
    enum One<S, F> {
        Service { service: S },
        Future { #[pin] future: F },
    }
}

impl<S, Req, Res> Prototype<Req, Res> for S
where
    S: Service<Req, Response = Res, Error: IntoBoxError, Future: Send + 'static>
        + CloneService
        + Send
        + Sync
        + 'static,
{
    fn attempt(&self) -> BoxAttempt<Req, Res> {
        Box::pin(One::<S, S::Future>::Service { service: self.clone() })
    }
}

impl<S, Req> Attempt<Req, S::Response> for One<S, S::Future>
where
    S: Service<Req, Error: Into<BoxError>>,
{
    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self.project() {
            OneProj::Service { service } => service.poll_ready(cx).map_err(Into::into),
            OneProj::Future { .. } => Poll::Ready(Ok(())),
        }
    }

    fn call(mut self: Pin<&mut Self>, request: Req) {
        if let OneProj::Service { service } = self.as_mut().project() {
            let future = service.call(request);
            self.set(Self::Future { future });
        }
    }

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<S::Response, BoxError>> {
        match self.project() {
            OneProj::Future { future } => future.poll(cx).map_err(Into::into),
            OneProj::Service { .. } => Poll::Pending,
        }
    }
}

impl<Req, Res> BoxRoute<Req, Res> {
    /// Boxes a service.
    #[must_use]
    pub fn new<S>(service: S) -> Self
    where
        S: Service<Req, Response = Res, Error: IntoBoxError, Future: Send + 'static>
            + CloneService
            + Send
            + Sync
            + 'static,
    {
        Self { service: Arc::new(service), attempt: Mutex::new(None) }
    }
}

impl<Req, Res> Service<Req> for BoxRoute<Req, Res> {
    type Response = Res;
    type Error = BoxError;
    type Future = BoxRouteFuture<Req, Res>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let attempt = self.attempt.get_mut().unwrap_or_else(PoisonError::into_inner);
        let ready = ready!(attempt.get_or_insert_with(|| self.service.attempt()).as_mut().poll_ready(cx));
        if ready.is_err() {
            // That clone is used up.
            *attempt = None;
        }
        Poll::Ready(ready)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let mut attempt = self.attempt.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(attempt) = &mut attempt {
            attempt.as_mut().call(request);
        }
        BoxRouteFuture { attempt }
    }
}

/// The future of a [`BoxRoute`].
#[must_use = "futures do nothing unless polled"]
pub struct BoxRouteFuture<Req, Res> {
    /// `None` when it was called unready.
    attempt: Option<BoxAttempt<Req, Res>>,
}

impl<Req, Res> Future for BoxRouteFuture<Req, Res> {
    type Output = Result<Res, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.attempt {
            Some(attempt) => attempt.as_mut().poll(cx),
            None => {
                let fault = Fault::new(Class::Unknown, LAYER).with_message("the route was called unready");
                Poll::Ready(Err(fault.into()))
            }
        }
    }
}

impl<Req, Res> Clone for BoxRoute<Req, Res> {
    fn clone(&self) -> Self {
        Self { service: Arc::clone(&self.service), attempt: Mutex::new(None) }
    }
}

impl<Req, Res> fmt::Debug for BoxRoute<Req, Res> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxRoute").finish_non_exhaustive()
    }
}

impl<Req, Res> fmt::Debug for BoxRouteFuture<Req, Res> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxRouteFuture").finish_non_exhaustive()
    }
}
