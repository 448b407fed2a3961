//! Adapters: what makes a request fit for a route, and a route's answer fit for the caller.
//!
//! Another model has another name, another context window, other ids for its tools; a small one needs examples. So each
//! route may have an adapter for its requests and one for its responses:
//!
//! ```
//! use failsoft_core::{BoxError, ErrorsOnly};
//! use fallback_layer::{FallbackLayer, Route};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! #[derive(Clone)]
//! struct Ask { model: String, messages: Vec<String> }
//! # impl failsoft_core::Repeat for Ask { fn repeat(&self) -> Option<Self> { Some(self.clone()) } }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! # let large = service_fn(|_: Ask| async { Err::<String, BoxError>("down".into()) });
//! # let small = service_fn(|ask: Ask| async move { Ok::<_, BoxError>(format!("{}:{}", ask.model, ask.messages.len())) });
//! let layer = FallbackLayer::builder()
//!     .classify(ErrorsOnly)
//!     .route(
//!         Route::new("small", small)
//!             .adapt_request(|mut ask: Ask| {
//!                 ask.model = "small-1".to_owned();
//!                 // Its window is small: the last messages only. One that still does not fit is an error, and
//!                 // the route is skipped.
//!                 let first = ask.messages.len().saturating_sub(2);
//!                 ask.messages.drain(..first);
//!                 if ask.messages.is_empty() { Err("nothing is left") } else { Ok(ask) }
//!             })
//!             .adapt_response(|answer: String| Ok::<_, BoxError>(answer.to_uppercase())),
//!     )
//!     .build()?;
//! let service = ServiceBuilder::new().layer(layer).service(large);
//! let ask = Ask { model: "large-1".into(), messages: vec!["a".into(), "b".into(), "c".into()] };
//! assert_eq!(service.oneshot(ask).await?, "SMALL-1:2");
//! # Ok::<_, BoxError>(())
//! # }).unwrap();
//! ```
//!
//! A request that cannot be adapted is no attempt: the route is skipped, as the trail says, and the next one has its
//! place. An answer that cannot be adapted is a failure of its route, of the class that its error has, else malformed.
//! Adapters see failed responses too.
//!
//! Adapters that wait, such as for a summary of what does not fit, are [`adapt_request_async`](crate::Route::adapt_request_async) and
//! [`adapt_response_async`](crate::Route::adapt_response_async). The first route, the service under the layer, takes
//! the same adapters as layers: [`request`], [`response`]. For the bodies of chat models there are ready-made ones, in `chat`
//! (feature `http`).

#[cfg(feature = "http")]
pub mod chat;

use std::{
    error::Error,
    fmt,
    future::{Ready, ready},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use failsoft_core::{BoxError, Class, CloneService, Fault, IntoBoxError, SoftKind, Verdict};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::LAYER;

/// Changes a request or a response: what [`Route`](crate::Route)'s methods make of a function.
pub trait Adapt<In> {
    /// What comes of it.
    type Out;
    /// Changes it.
    type Future: Future<Output = Result<Self::Out, BoxError>>;

    /// Begins to change it.
    fn adapt(&self, value: In) -> Self::Future;
}

/// A function that changes a value at once.
#[derive(Clone, Copy)]
pub struct Sync<F>(F);

/// A function that gives the future of a changed value.
#[derive(Clone, Copy)]
pub struct Async<F>(F);

impl<In, Out, E, F> Adapt<In> for Sync<F>
where
    F: Fn(In) -> Result<Out, E>,
    E: Into<BoxError>,
{
    type Out = Out;
    type Future = Ready<Result<Out, BoxError>>;

    fn adapt(&self, value: In) -> Self::Future {
        ready((self.0)(value).map_err(Into::into))
    }
}

impl<In, Out, E, F, Fut> Adapt<In> for Async<F>
where
    F: Fn(In) -> Fut,
    Fut: Future<Output = Result<Out, E>>,
    E: Into<BoxError>,
{
    type Out = Out;
    type Future = AsyncFuture<Fut>;

    fn adapt(&self, value: In) -> Self::Future {
        AsyncFuture { inner: (self.0)(value) }
    }
}

pin_project! {
    /// The future of an [`Async`] adapter.
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct AsyncFuture<F> {
        #[pin]
        inner: F,
    }
}

impl<Out, E: Into<BoxError>, F: Future<Output = Result<Out, E>>> Future for AsyncFuture<F> {
    type Output = Result<Out, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().inner.poll(cx).map_err(Into::into)
    }
}

/// A layer that adapts requests by a function.
pub fn request<In, Out, E, F>(adapt: F) -> AdaptRequestLayer<Sync<F>>
where
    F: Fn(In) -> Result<Out, E>,
{
    AdaptRequestLayer { adapt: Arc::new(Sync(adapt)) }
}

/// A layer that adapts requests by a function that waits.
pub fn request_async<In, Fut, F>(adapt: F) -> AdaptRequestLayer<Async<F>>
where
    F: Fn(In) -> Fut,
{
    AdaptRequestLayer { adapt: Arc::new(Async(adapt)) }
}

/// A layer that adapts responses by a function.
pub fn response<In, Out, E, F>(adapt: F) -> AdaptResponseLayer<Sync<F>>
where
    F: Fn(In) -> Result<Out, E>,
{
    AdaptResponseLayer { adapt: Arc::new(Sync(adapt)) }
}

/// A layer that adapts responses by a function that waits.
pub fn response_async<In, Fut, F>(adapt: F) -> AdaptResponseLayer<Async<F>>
where
    F: Fn(In) -> Fut,
{
    AdaptResponseLayer { adapt: Arc::new(Async(adapt)) }
}

/// Adapts the requests of a service, see [`request`].
pub struct AdaptRequestLayer<A> {
    adapt: Arc<A>,
}

/// Adapts the responses of a service, see [`response`].
pub struct AdaptResponseLayer<A> {
    adapt: Arc<A>,
}

/// A service whose requests are adapted, made by [`AdaptRequestLayer`].
pub struct AdaptRequest<S, A> {
    inner: S,
    adapt: Arc<A>,
}

/// A service whose responses are adapted, made by [`AdaptResponseLayer`].
pub struct AdaptResponse<S, A> {
    inner: S,
    adapt: Arc<A>,
}

impl<S, A> Layer<S> for AdaptRequestLayer<A> {
    type Service = AdaptRequest<S, A>;

    fn layer(&self, inner: S) -> Self::Service {
        AdaptRequest { inner, adapt: Arc::clone(&self.adapt) }
    }
}

impl<S, A> Layer<S> for AdaptResponseLayer<A> {
    type Service = AdaptResponse<S, A>;

    fn layer(&self, inner: S) -> Self::Service {
        AdaptResponse { inner, adapt: Arc::clone(&self.adapt) }
    }
}

impl<S, A, Req> Service<Req> for AdaptRequest<S, A>
where
    A: Adapt<Req>,
    S: Service<A::Out, Error: IntoBoxError> + CloneService,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = AdaptRequestFuture<S, A::Out, A::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let clone = self.inner.clone();
        let service = std::mem::replace(&mut self.inner, clone);
        AdaptRequestFuture { state: RequestState::Adapting { service, adapting: self.adapt.adapt(request) } }
    }
}

impl<S, A, Req> Service<Req> for AdaptResponse<S, A>
where
    S: Service<Req, Error: IntoBoxError>,
    A: Adapt<S::Response>,
{
    type Response = A::Out;
    type Error = BoxError;
    type Future = AdaptResponseFuture<S::Future, A, A::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let calling = self.inner.call(request);
        AdaptResponseFuture { state: ResponseState::Calling { calling }, adapt: Arc::clone(&self.adapt) }
    }
}

pin_project! {
    /// The future of an [`AdaptRequest`].
    #[must_use = "futures do nothing unless polled"]
    pub struct AdaptRequestFuture<S, Req, F>
    where
        S: Service<Req>,
    {
        #[pin]
        state: RequestState<S, S::Future, F>,
    }
}

pin_project! {
    #[project = RequestProj]
    enum RequestState<S, SF, F> {
        // The service is ready.
        Adapting { service: S, #[pin] adapting: F },
        Calling { #[pin] calling: SF },
    }
}

impl<S, Req, F> Future for AdaptRequestFuture<S, Req, F>
where
    S: Service<Req, Error: Into<BoxError>>,
    F: Future<Output = Result<Req, BoxError>>,
{
    type Output = Result<S::Response, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            match state.as_mut().project() {
                RequestProj::Adapting { service, adapting } => {
                    let request = ready!(adapting.poll(cx));
                    let request = request.map_err(|error| {
                        NotAsked::new("the request could not be adapted for the route", error)
                    })?;
                    let calling = service.call(request);
                    state.set(RequestState::Calling { calling });
                }
                RequestProj::Calling { calling } => return calling.poll(cx).map_err(Into::into),
            }
        }
    }
}

pin_project! {
    /// The future of an [`AdaptResponse`].
    #[must_use = "futures do nothing unless polled"]
    pub struct AdaptResponseFuture<SF, A, F> {
        #[pin]
        state: ResponseState<SF, F>,
        adapt: Arc<A>,
    }
}

pin_project! {
    #[project = ResponseProj]
    enum ResponseState<SF, F> {
        Calling { #[pin] calling: SF },
        Adapting { #[pin] adapting: F },
    }
}

impl<Res, E, SF, A> Future for AdaptResponseFuture<SF, A, A::Future>
where
    SF: Future<Output = Result<Res, E>>,
    E: Into<BoxError>,
    A: Adapt<Res>,
{
    type Output = Result<A::Out, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.state.as_mut().project() {
                ResponseProj::Calling { calling } => {
                    let response = ready!(calling.poll(cx)).map_err(Into::into)?;
                    let adapting = this.adapt.adapt(response);
                    this.state.set(ResponseState::Adapting { adapting });
                }
                ResponseProj::Adapting { adapting } => {
                    return adapting.poll(cx).map_err(|error| {
                        let verdict = Fault::find(&*error)
                            .map_or(Verdict::soft(SoftKind::Malformed), |fault| fault.verdict());
                        let fault = Fault::with_verdict(verdict, LAYER)
                            .with_message("the answer could not be adapted for the caller")
                            .with_source(error);
                        fault.into()
                    });
                }
            }
        }
    }
}

/// Why a route could not be asked: there was no request for it, or no service. The error of a route that was not sent
/// anything; a [`Fallback`](crate::Fallback) around skips the route.
#[derive(Debug)]
pub struct NotAsked(Fault);

impl NotAsked {
    /// `error` decides the class where it is, or carries, a [`Fault`]; else it is [`Class::Invalid`].
    pub(crate) fn new(message: &'static str, error: BoxError) -> Self {
        let verdict =
            Fault::find(&*error).map_or(Verdict::of(Class::Invalid), |fault| fault.verdict()).with_unsent();
        Self(Fault::with_verdict(verdict, LAYER).with_message(message).with_source(error))
    }

    pub(crate) fn verdict(&self) -> Verdict {
        self.0.verdict()
    }

    pub(crate) fn into_fault(self, route: Option<Arc<str>>) -> Fault {
        self.0.with_target_if(route)
    }
}

impl fmt::Display for NotAsked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for NotAsked {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

/// The service of a route failed to become ready within the call: nothing was sent.
#[derive(Debug)]
pub(crate) struct NotReady(pub(crate) BoxError);

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for NotReady {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

impl<A> Clone for AdaptRequestLayer<A> {
    fn clone(&self) -> Self {
        Self { adapt: Arc::clone(&self.adapt) }
    }
}

impl<A> Clone for AdaptResponseLayer<A> {
    fn clone(&self) -> Self {
        Self { adapt: Arc::clone(&self.adapt) }
    }
}

impl<S: Clone, A> Clone for AdaptRequest<S, A> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), adapt: Arc::clone(&self.adapt) }
    }
}

impl<S: Clone, A> Clone for AdaptResponse<S, A> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), adapt: Arc::clone(&self.adapt) }
    }
}

macro_rules! opaque {
    ($($name:ident<$($generic:ident),+>;)+) => {$(
        impl<$($generic),+> fmt::Debug for $name<$($generic),+> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )+};
}

opaque! {
    Sync<F>;
    Async<F>;
    AdaptRequestLayer<A>;
    AdaptResponseLayer<A>;
    AdaptRequest<S, A>;
    AdaptResponse<S, A>;
    AdaptResponseFuture<SF, A, F>;
}

impl<S: Service<Req>, Req, F> fmt::Debug for AdaptRequestFuture<S, Req, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptRequestFuture").finish_non_exhaustive()
    }
}
