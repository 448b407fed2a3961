//! [`Llm`], the service.
//!
//! ```
//! use bytes::Bytes;
//! use failsoft_core::{BoxError, Class, Insight};
//! use http_body_util::Full;
//! use llm_layer::{LlmLayer, Provider};
//! use tower::{Layer, Service, service_fn};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let target = service_fn(async |_: http::Request<String>| {
//!     Ok::<_, BoxError>(http::Response::new(Full::<Bytes>::from(r#"{"choices": []}"#)))
//! });
//! let mut service = LlmLayer::new(Provider::OpenAiCompatible).layer(target);
//!
//! let response = service.call(http::Request::new(r#"{"messages": []}"#.to_owned())).await.unwrap();
//! let verdict = Insight::of(response.extensions()).and_then(Insight::verdict).unwrap();
//! assert_eq!(verdict.class().as_str(), "soft.empty");
//! # });
//! ```

use std::task::{Context, Poll};

use failsoft_core::{BoxError, Hold, IntoBoxError, Rebody, UnpinBody};
use stream_layer::{Streamed, StreamedBody, StreamedFuture};
use tower_service::Service;

use crate::{LlmDecoder, LlmProtocol, LlmReader, Provider, include_usage};

/// Forwards calls, and reads the answers. Made by [`LlmLayer`](crate::LlmLayer).
#[derive(Clone, Debug)]
pub struct Llm<S> {
    inner: Streamed<S, LlmProtocol>,
    /// Usage is asked for in requests of this dialect.
    asks_for_usage: Option<Provider>,
}

/// The future of an [`Llm`] service around one whose future is `F` and whose response is `R`. Dropping it drops the
/// call, or the body that is being read.
pub type LlmFuture<F, R> = StreamedFuture<F, LlmReader, <R as Hold>::Body, LlmDecoder>;

/// The body of a response that came through an [`Llm`] service.
pub type LlmBody<B> = StreamedBody<B, LlmDecoder>;

impl<S> Llm<S> {
    pub(crate) const fn new(inner: Streamed<S, LlmProtocol>, asks_for_usage: Option<Provider>) -> Self {
        Self { inner, asks_for_usage }
    }

    /// The service inside.
    pub const fn get_ref(&self) -> &S {
        self.inner.get_ref()
    }

    /// The service inside.
    pub const fn get_mut(&mut self) -> &mut S {
        self.inner.get_mut()
    }

    /// The service inside.
    pub fn into_inner(self) -> S {
        self.inner.into_inner()
    }
}

impl<S, Req, Res> Service<Req> for Llm<S>
where
    S: Service<Req, Response = Res, Error: IntoBoxError>,
    Req: 'static,
    Res: Hold<Body: UnpinBody> + Rebody<LlmBody<<Res as Hold>::Body>>,
{
    type Response = Res::Rebodied;
    type Error = BoxError;
    type Future = LlmFuture<S::Future, Res>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Req) -> Self::Future {
        if let Some(provider) = self.asks_for_usage {
            include_usage::ask(&mut request, provider);
        }
        self.inner.call(request)
    }
}
