//! [`Fallback`]: the service.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use failsoft_core::{BoxError, Classify, CloneService, IntoBoxError, Replay};
use tower_service::Service;

use crate::{
    ResponseFuture,
    last_good::Keep,
    layer::Shared,
    order::{Affinity, NoAffinity},
};

/// Asks the first route, and when it fails the next ones, see the [crate].
///
/// Always ready: each call readies a clone of a route that no other call has touched, so a route that is never asked
/// holds nothing, and one that is not ready in time is left. Clones carry no readiness.
pub struct Fallback<S, R, C, P, K, O = NoAffinity> {
    /// Never readied and never called: only its clones are.
    first: S,
    shared: Arc<Shared<R, C, P, K, O>>,
}

impl<S, R, C, P, K, O> Fallback<S, R, C, P, K, O> {
    pub(crate) const fn new(first: S, shared: Arc<Shared<R, C, P, K, O>>) -> Self {
        Self { first, shared }
    }

    /// The first route's service.
    pub const fn get_ref(&self) -> &S {
        &self.first
    }

    /// The first route's service.
    pub fn into_inner(self) -> S {
        self.first
    }
}

impl<S, R, C, P, K, O, Req> Service<Req> for Fallback<S, R, C, P, K, O>
where
    S: Service<Req, Error: IntoBoxError> + CloneService,
    R: Service<Req, Response = S::Response, Error: IntoBoxError> + CloneService,
    C: Classify<S::Response>,
    P: Replay<Req>,
    K: Keep<Req, S::Response>,
    O: Affinity<Req>,
{
    type Response = K::Out;
    type Error = BoxError;
    type Future = ResponseFuture<S, R, Req, C, P, K, O>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    #[inline(always)]
    fn call(&mut self, request: Req) -> Self::Future {
        ResponseFuture::new(self.first.clone(), request, Arc::clone(&self.shared))
    }
}

impl<S: Clone, R, C, P, K, O> Clone for Fallback<S, R, C, P, K, O> {
    fn clone(&self) -> Self {
        Self { first: self.first.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<S: fmt::Debug, R, C, P, K, O> fmt::Debug for Fallback<S, R, C, P, K, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fallback").field("first", &self.first).field("plan", &self.shared.plan).finish()
    }
}
