//! [`RespondLayer`]: turns errors into HTTP responses, for servers whose services must not fail, such as axum's.
//!
//! A [`Fault`] becomes the response of [`to_response`](crate::FaultDetails::to_response); another error a response with
//! the status of its class and no word of what it says, which may not be meant for clients.
//!
//! ```
//! use failsoft_core::{BoxError, Class, Denier, Fault, RespondLayer};
//! use tower::{ServiceBuilder, ServiceExt as _, service_fn};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let service = ServiceBuilder::new().layer(RespondLayer).service(service_fn(|_: ()| async {
//!     let denied = Fault::new(Class::Denied(Denier::Circuit), "breaker-layer");
//!     Err::<http::Response<http_body_util::Empty<bytes::Bytes>>, BoxError>(denied.into())
//! }));
//! let response = service.oneshot(()).await.unwrap(); // the error is `Infallible`
//! assert_eq!(response.status(), 503);
//! # });
//! ```

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::{BoxError, Fault, IntoBoxError, Verdict};

/// Turns errors into HTTP responses. Put it outside the layers that fail.
#[derive(Clone, Copy, Debug, Default)]
pub struct RespondLayer;

/// The service of [`RespondLayer`].
#[derive(Debug)]
pub struct Responding<S> {
    inner: S,
    /// What the inner service's readiness failed with: told as the response of the next call.
    unready: Option<BoxError>,
}

impl<S> Layer<S> for RespondLayer {
    type Service = Responding<S>;

    fn layer(&self, inner: S) -> Responding<S> {
        Responding { inner, unready: None }
    }
}

impl<S> Responding<S> {
    /// The service inside.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S: Clone> Clone for Responding<S> {
    /// A clone asks the inner service's clone anew.
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), unready: None }
    }
}

impl<S, Req, B> Service<Req> for Responding<S>
where
    S: Service<Req, Response = http::Response<B>, Error: IntoBoxError>,
{
    type Response = http::Response<RespondBody<B>>;
    type Error = Infallible;
    type Future = RespondFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if self.unready.is_none() {
            self.unready = ready!(self.inner.poll_ready(cx)).err().map(Into::into);
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        match self.unready.take() {
            Some(err) => RespondFuture { future: None, unready: Some(err) },
            None => RespondFuture { future: Some(self.inner.call(request)), unready: None },
        }
    }
}

pin_project! {
    /// The future of [`Responding`].
    #[derive(Debug)]
    pub struct RespondFuture<F> {
        #[pin]
        future: Option<F>,
        unready: Option<BoxError>,
    }
}

impl<F, B, E> Future for RespondFuture<F>
where
    F: Future<Output = Result<http::Response<B>, E>>,
    E: Into<BoxError>,
{
    type Output = Result<http::Response<RespondBody<B>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let outcome = match this.future.as_pin_mut() {
            Some(future) => ready!(future.poll(cx)).map_err(Into::into),
            None => Err(this.unready.take().unwrap_or_else(|| "polled after it was ready".into())),
        };
        Poll::Ready(Ok(match outcome {
            Ok(response) => response.map(|body| RespondBody { body: Some(body), text: Bytes::new() }),
            Err(err) => error_response(&err).map(|text| RespondBody { body: None, text }),
        }))
    }
}

/// An error as the response that [`RespondLayer`] makes of it, for handlers that call a service themselves: a [`Fault`] with its
/// status, `Retry-After` and JSON body, another error with the status of its class and no word of what it says.
///
/// ```
/// use failsoft_core::{BoxError, error_response};
///
/// let error: BoxError = "the password is wrong".into();
/// let response = error_response(&error);
/// assert_eq!(response.status(), 502);
/// assert!(!String::from_utf8_lossy(response.body()).contains("password"));
/// ```
#[must_use]
pub fn error_response(err: &BoxError) -> http::Response<Bytes> {
    match Fault::find(&**err) {
        Some(fault) => fault.to_response(),
        None => Fault::with_verdict(Verdict::of_error(&**err), env!("CARGO_PKG_NAME")).to_response(),
    }
}

pin_project! {
    /// The body of the response inside, or the text of an error.
    #[derive(Debug)]
    pub struct RespondBody<B> {
        #[pin]
        body: Option<B>,
        text: Bytes,
    }
}

/// An empty body, for layers outside that answer in place of the service, such as tower-http's timeout.
impl<B> Default for RespondBody<B> {
    fn default() -> Self {
        Self { body: None, text: Bytes::new() }
    }
}

impl<B: Body<Error: Into<BoxError>>> Body for RespondBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.project();
        match this.body.as_pin_mut() {
            Some(body) => Poll::Ready(ready!(body.poll_frame(cx)).map(|frame| {
                frame
                    .map(|frame| frame.map_data(|mut data| data.copy_to_bytes(data.remaining())))
                    .map_err(Into::into)
            })),
            None if this.text.is_empty() => Poll::Ready(None),
            None => Poll::Ready(Some(Ok(Frame::data(std::mem::take(this.text))))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().map_or(self.text.is_empty(), Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(self.text.len() as u64), Body::size_hint)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Empty};
    use tower::{ServiceExt as _, service_fn};

    use super::*;
    use crate::{Class, Limit};

    type Reply = Result<http::Response<Empty<Bytes>>, BoxError>;

    async fn respond(reply: impl FnOnce() -> Reply + Clone) -> http::Response<RespondBody<Empty<Bytes>>> {
        let service = RespondLayer.layer(service_fn(move |()| std::future::ready(reply.clone()())));
        service.oneshot(()).await.unwrap()
    }

    #[tokio::test]
    async fn an_answer_passes_and_a_fault_becomes_its_response() {
        let response = respond(|| Ok(http::Response::new(Empty::new()))).await;
        assert_eq!(response.status(), 200);
        assert!(response.body().is_end_stream());
        let response = respond(|| Err(Fault::new(Class::Timeout(Limit::Total), "x").into())).await;
        assert_eq!(response.status(), 504);
        let body = response.into_body();
        let hint = body.size_hint().exact();
        let bytes = body.collect().await.unwrap().to_bytes();
        assert_eq!(hint, Some(bytes.len() as u64));
        assert!(bytes.starts_with(br#"{"error":{"type":"timeout.total""#));
    }

    #[tokio::test]
    async fn a_foreign_errors_text_stays_inside() {
        let response = respond(|| Err("password is hunter2".into())).await;
        assert_eq!(response.status(), 502);
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        assert!(!bytes.windows(7).any(|window| window == b"hunter2"));
    }

    /// Its readiness fails for good, and it must never be called.
    #[derive(Clone)]
    struct Dead;

    impl Service<()> for Dead {
        type Response = http::Response<Empty<Bytes>>;
        type Error = BoxError;
        type Future = std::future::Ready<Reply>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
            Poll::Ready(Err(Fault::new(Class::Overloaded, "x").into()))
        }

        fn call(&mut self, (): ()) -> Self::Future {
            panic!("called without being ready")
        }
    }

    #[tokio::test]
    async fn an_error_of_readiness_is_told_as_a_response() {
        let response = RespondLayer.layer(Dead).oneshot(()).await.unwrap();
        assert_eq!(response.status(), 503);
    }
}
