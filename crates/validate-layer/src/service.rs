//! The service: readiness passes through, the answer is checked.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use failsoft_core::{BoxError, IntoBoxError};
use tower_service::Service;

use crate::{Bodies, Inspect, Mode, ResponseFuture, Unseen, Validator};

/// A service whose answers are checked; made by [`ValidateLayer`](crate::ValidateLayer).
///
/// A wrong answer is an error: a [`Fault`](failsoft_core::Fault) with the verdict, the report, the target and the
/// status. Errors of the inner service pass through as they are.
#[derive(Clone, Debug)]
pub struct Validate<S, M = Bodies, Q = Unseen> {
    inner: S,
    mode: M,
    inspect: Q,
    validator: Arc<Validator>,
}

impl<S, M, Q> Validate<S, M, Q> {
    pub(crate) const fn new(inner: S, mode: M, inspect: Q, validator: Arc<Validator>) -> Self {
        Self { inner, mode, inspect, validator }
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

impl<S, M, Q, Req> Service<Req> for Validate<S, M, Q>
where
    S: Service<Req, Error: IntoBoxError>,
    M: Mode<S::Response> + Clone,
    Q: Inspect<S, Req>,
{
    type Response = M::Out;
    type Error = BoxError;
    type Future = ResponseFuture<S::Future, M, M::Reading>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let asked = self.inspect.asked(&request).map(Arc::new);
        if let Some(fault) = asked.as_deref().and_then(|asked| self.validator.denial(asked)) {
            self.inspect.let_go(&mut self.inner);
            return ResponseFuture::denied(fault.into(), self.mode.clone(), Arc::clone(&self.validator));
        }
        let future = self.inner.call(request);
        ResponseFuture::new(future, asked, self.mode.clone(), Arc::clone(&self.validator))
    }
}
