use std::{
    fmt, mem,
    sync::Arc,
    task::{Context, Poll},
};

use failsoft_core::{Auto, BoxError, ByResponse, Classify, CloneService, IntoBoxError, Replay};
use tower_service::Service;

use super::{Reask, ResponseFuture, layer::Shared};

/// The service that a [`ReflectLayer`](crate::ReflectLayer) makes.
pub struct Reflect<S, A, C = ByResponse, R = Auto> {
    inner: S,
    shared: Arc<Shared<A, C, R>>,
}

impl<S, A, C, R> Reflect<S, A, C, R> {
    pub(super) const fn of(inner: S, shared: Arc<Shared<A, C, R>>) -> Self {
        Self { inner, shared }
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

impl<S, Req, A, C, R> Service<Req> for Reflect<S, A, C, R>
where
    S: Service<Req, Error: IntoBoxError> + CloneService,
    A: Reask<Req>,
    C: Classify<S::Response>,
    R: Replay<Req>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = ResponseFuture<S, Req, A, C, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        // The clone stays here: the one that is ready goes with the call.
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        ResponseFuture::new(ready, request, Arc::clone(&self.shared))
    }
}

impl<S: Clone, A, C, R> Clone for Reflect<S, A, C, R> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<S: fmt::Debug, A, C, R> fmt::Debug for Reflect<S, A, C, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflect").field("inner", &self.inner).field("policy", &self.shared.policy).finish()
    }
}
