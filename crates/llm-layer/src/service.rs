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

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use failsoft_core::{BoxError, Call, Hold};
use http_body::Body;
use tower_service::Service;

use crate::{LlmFuture, Offered, layer::Config};

/// Forwards calls, and reads the answers. Made by [`LlmLayer`](crate::LlmLayer).
#[derive(Clone, Debug)]
pub struct Llm<S> {
    inner: S,
    config: Arc<Config>,
}

impl<S> Llm<S> {
    pub(crate) const fn new(inner: S, config: Arc<Config>) -> Self {
        Self { inner, config }
    }

    /// The service inside.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The service inside.
    pub const fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The service inside.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, Req> Service<Req> for Llm<S>
where
    S: Service<Req, Response: Hold<Body: Body<Error: Into<BoxError>> + Unpin>, Error: Into<BoxError>>,
    Req: 'static,
{
    type Response = <S::Response as Hold>::Out;
    type Error = BoxError;
    type Future = LlmFuture<S::Future, S::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let offered = Offered::of(&request);
        let slot = Call::slot();
        LlmFuture::new(self.inner.call(request), offered, Arc::clone(&self.config), slot)
    }
}
