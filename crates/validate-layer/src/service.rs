//! The service: readiness passes through, the answer is checked.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use failsoft_core::BoxError;
use tower_service::Service;

use crate::{Bodies, Mode, ResponseFuture, Validator};

/// A service whose answers are checked; made by [`ValidateLayer`](crate::ValidateLayer).
///
/// A wrong answer is an error: a [`Fault`](failsoft_core::Fault) with the verdict, the report, the target and the
/// status. Errors of the inner service pass through as they are.
#[derive(Clone, Debug)]
pub struct Validate<S, M = Bodies> {
    inner: S,
    mode: M,
    validator: Arc<Validator>,
}

impl<S, M> Validate<S, M> {
    pub(crate) const fn new(inner: S, mode: M, validator: Arc<Validator>) -> Self {
        Self { inner, mode, validator }
    }

    /// The inner service.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service.
    pub const fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, M, Req> Service<Req> for Validate<S, M>
where
    S: Service<Req, Error: Into<BoxError>>,
    M: Mode<S::Response> + Clone,
{
    type Response = M::Out;
    type Error = BoxError;
    type Future = ResponseFuture<S::Future, M, M::Reading>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    #[inline]
    fn call(&mut self, request: Req) -> Self::Future {
        ResponseFuture::new(self.inner.call(request), self.mode.clone(), Arc::clone(&self.validator))
    }
}
