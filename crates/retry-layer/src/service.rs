use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use failsoft_core::{Auto, BoxError, ByResponse, Classify, CloneService, IntoBoxError, Replay};
use tower_service::Service;

use crate::{ResponseFuture, layer::Shared};

/// The service that a [`RetryLayer`](crate::RetryLayer) makes.
pub struct Retry<S, C = ByResponse, R = Auto> {
    inner: S,
    shared: Arc<Shared>,
    classify: C,
    replay: R,
}

impl<S, C, R> Retry<S, C, R> {
    pub(crate) const fn of(inner: S, shared: Arc<Shared>, classify: C, replay: R) -> Self {
        Self { inner, shared, classify, replay }
    }

    /// The service inside.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The service inside.
    pub const fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Takes the service out.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, Req, C, R> Service<Req> for Retry<S, C, R>
where
    S: Service<Req, Error: IntoBoxError> + CloneService,
    C: Classify<S::Response> + Clone,
    R: Replay<Req> + Clone,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = ResponseFuture<S, Req, C, R>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    // With the layers around it in line, none of their futures is moved from one to the next.
    #[inline(always)]
    fn call(&mut self, request: Req) -> Self::Future {
        ResponseFuture::new(&mut self.inner, request, &self.shared, &self.classify, &self.replay)
    }
}

impl<S: Clone, C: Clone, R: Clone> Clone for Retry<S, C, R> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            shared: Arc::clone(&self.shared),
            classify: self.classify.clone(),
            replay: self.replay.clone(),
        }
    }
}

impl<S: fmt::Debug, C, R> fmt::Debug for Retry<S, C, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry").field("inner", &self.inner).field("policy", &self.shared.policy).finish()
    }
}
