//! [`Carry`] and [`Uncarry`]: a call across a buffer, whose worker is another task.
//!
//! `tower::buffer` hands requests to a worker, which calls the service inside: what is current around the buffer is not
//! current at that call, only when the caller polls the future. `Carry` takes the call along with the request, `Uncarry` makes it current again.
//!
//! ```
//! use std::convert::Infallible;
//! use failsoft_core::{Call, CarryLayer, UncarryLayer};
//! use tower::{ServiceBuilder, ServiceExt as _, service_fn};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let service = ServiceBuilder::new()
//!     .layer(CarryLayer)
//!     .buffer(8)
//!     .layer(UncarryLayer)
//!     .service(service_fn(|_: ()| async { Ok::<_, Infallible>(Call::is_current()) }));
//! let current = Call::begin().scope(service.oneshot(())).await.unwrap();
//! assert!(current);
//! # });
//! ```
//!
//! A `tokio::spawn` is crossed by [`Call::scope`] around the future.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::Call;

/// A request together with the call that was current when it was made.
#[derive(Clone, Debug)]
pub struct Carried<Req> {
    call: Option<Call>,
    request: Req,
}

/// Takes the current call along with each request.
#[derive(Clone, Copy, Debug, Default)]
pub struct CarryLayer;

/// The service of [`CarryLayer`].
#[derive(Clone, Copy, Debug)]
pub struct Carry<S>(S);

/// Makes the call that came with a request current again.
#[derive(Clone, Copy, Debug, Default)]
pub struct UncarryLayer;

/// The service of [`UncarryLayer`].
#[derive(Clone, Copy, Debug)]
pub struct Uncarry<S>(S);

impl<S> Layer<S> for CarryLayer {
    type Service = Carry<S>;

    fn layer(&self, inner: S) -> Carry<S> {
        Carry(inner)
    }
}

impl<S> Layer<S> for UncarryLayer {
    type Service = Uncarry<S>;

    fn layer(&self, inner: S) -> Uncarry<S> {
        Uncarry(inner)
    }
}

/// The service inside a [`Carry`]: every one that takes requests together with their call, which is what [`Uncarry`] does.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not take the requests that `CarryLayer` hands on",
    note = "`UncarryLayer` belongs on the other side of the buffer: `.layer(CarryLayer).buffer(8).layer(UncarryLayer)`"
)]
pub trait TakesCarried<Req>: Service<Carried<Req>> {}

#[diagnostic::do_not_recommend]
impl<S: Service<Carried<Req>>, Req> TakesCarried<Req> for S {}

impl<S, Req> Service<Req> for Carry<S>
where
    S: TakesCarried<Req>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Req) -> S::Future {
        self.0.call(Carried { call: Call::current_or_made(), request })
    }
}

impl<S, Req> Service<Carried<Req>> for Uncarry<S>
where
    S: Service<Req>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = UncarryFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, Carried { call, request }: Carried<Req>) -> Self::Future {
        let future = match &call {
            Some(call) => call.enter(|| self.0.call(request)),
            None => self.0.call(request),
        };
        UncarryFuture { call, future }
    }
}

pin_project! {
    /// The future of [`Uncarry`].
    #[derive(Debug)]
    pub struct UncarryFuture<F> {
        call: Option<Call>,
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for UncarryFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        match this.call {
            Some(call) => call.enter(|| this.future.poll(cx)),
            None => this.future.poll(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tower::{ServiceBuilder, ServiceExt as _, service_fn};

    use super::*;
    use crate::{Attempt, Class, Deferred, Verdict};

    fn recording()
    -> impl Service<(), Response = (), Error = Infallible, Future: Send> + Clone + Send + 'static {
        // At `call`: what is polled later is polled by the caller's own task, also through a buffer.
        service_fn(|()| {
            Call::record(Attempt::new("inner", Verdict::of(Class::Transient)));
            std::future::ready(Ok(()))
        })
    }

    #[tokio::test]
    async fn what_is_recorded_behind_a_buffer_reaches_the_call_around_it() {
        let carried =
            ServiceBuilder::new().layer(CarryLayer).buffer(4).layer(UncarryLayer).service(recording());
        let call = Call::begin();
        call.scope(carried.oneshot(())).await.unwrap();
        assert_eq!(call.trail().attempts().len(), 1);

        let bare = ServiceBuilder::new().buffer(4).service(recording());
        let call = Call::begin();
        call.scope(bare.oneshot(())).await.unwrap();
        assert!(call.trail().is_empty(), "a buffer's worker is another task");
    }

    #[tokio::test]
    async fn a_deferred_scope_becomes_real_when_it_is_carried() {
        let mut carried = ServiceBuilder::new().layer(CarryLayer).layer(UncarryLayer).service(recording());
        let mut deferred = Deferred::new();
        let future = deferred.enter(|| carried.call(()));
        future.await.unwrap();
        assert_eq!(deferred.call().map(|call| call.trail().attempts().len()), Some(1));
    }

    #[tokio::test]
    async fn a_spawned_task_is_in_the_call_by_scope() {
        let call = Call::begin();
        tokio::spawn(call.scope(recording().oneshot(()))).await.unwrap().unwrap();
        assert_eq!(call.trail().attempts().len(), 1);
    }
}
