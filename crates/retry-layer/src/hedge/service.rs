use std::{
    fmt, mem,
    sync::Arc,
    task::{Context, Poll},
};

use failsoft_core::{Auto, BoxError, ByResponse, Classify, CloneService, Deferred, IntoBoxError, Replay};
use tower_service::Service;

use super::{
    ResponseFuture,
    policy::Shared,
    race::{Race, Spare},
};

/// The service that a [`HedgeLayer`](crate::HedgeLayer) makes.
pub struct Hedge<S, C = ByResponse, R = Auto> {
    inner: S,
    shared: Arc<Shared<C, R>>,
}

impl<S, C, R> Hedge<S, C, R> {
    pub(super) const fn of(inner: S, shared: Arc<Shared<C, R>>) -> Self {
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

impl<S, Req, C, R> Service<Req> for Hedge<S, C, R>
where
    S: Service<Req, Error: IntoBoxError> + CloneService,
    C: Classify<S::Response>,
    R: Replay<Req>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = ResponseFuture<S, Req, C, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let shared = Arc::clone(&self.shared);
        shared.on_request();
        let policy = &shared.policy;
        let repeatable =
            policy.max_hedges > 0 && (policy.repeat_unanswered || shared.replay.is_idempotent(&request));
        let delay = if repeatable { shared.delay() } else { None };
        let (request, kept) = match delay {
            Some(_) => shared.replay.keep(request),
            None => (request, None),
        };
        let mut scope = Deferred::new();
        let (Some(delay), Some(kept)) = (delay, kept) else {
            let first = scope.enter(|| self.inner.call(request));
            return ResponseFuture::new(first, scope, Race::new(shared, None));
        };
        // The clone stays here: the one that is ready goes with the call, and is made ready again for a hedge.
        let clone = self.inner.clone();
        let mut ready = mem::replace(&mut self.inner, clone);
        let first = scope.enter(|| ready.call(request));
        ResponseFuture::new(first, scope, Race::new(shared, Some(Spare::new(ready, kept, delay))))
    }
}

impl<S: Clone, C, R> Clone for Hedge<S, C, R> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<S: fmt::Debug, C, R> fmt::Debug for Hedge<S, C, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hedge").field("inner", &self.inner).field("policy", &self.shared.policy).finish()
    }
}
