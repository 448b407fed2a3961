//! The service: admission, and then the call, which has a scope of its own as soon as something is recorded in it.

use std::{
    fmt,
    task::{Context, Poll},
};

use failsoft_core::{BoxError, ByResponse, Classify, CloneService, IntoBoxError, Watch};
use tower_service::Service;

use crate::{
    AllPass, BudgetLayer, Charge, Estimator, FromRequest, Keyed, Ledger, OneForAll, PassSoft, ResponseFuture,
    layer::Admission,
};

/// A service whose calls are charged to a budget; made by [`BudgetLayer`].
///
/// A call that does not fit fails with a [`Fault`](failsoft_core::Fault) of the class `Denied(Budget)`, and the inner service
/// is not called. `poll_ready` is the inner service's and never fails for a budget.
#[derive(Clone)]
pub struct Budgeted<S, K = OneForAll, E = FromRequest, R = AllPass, C = ByResponse> {
    inner: S,
    layer: BudgetLayer<K, E, R, C>,
}

impl<S, K, E, R, C> Budgeted<S, K, E, R, C> {
    pub(crate) const fn new(inner: S, layer: BudgetLayer<K, E, R, C>) -> Self {
        Self { inner, layer }
    }

    /// The budgets that it shares with the other services of its layer.
    pub fn ledger(&self) -> &Ledger {
        self.layer.ledger()
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

impl<S, K, E, R, C, Req> Service<Req> for Budgeted<S, K, E, R, C>
where
    S: Service<Req, Error: IntoBoxError> + CloneService,
    K: Keyed<Req>,
    E: Estimator<Req>,
    R: PassSoft<Req>,
    C: Classify<S::Response> + Clone,
{
    type Response = <C::Judge as Watch<S::Response>>::Out<Charge>;
    type Error = BoxError;
    type Future = ResponseFuture<S::Future, C, S, Req>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    // With the layers around it in line, none of their futures is moved from one to the next.
    #[inline(always)]
    fn call(&mut self, request: Req) -> Self::Future {
        let classify = self.layer.classify.clone();
        match self.layer.admit(&request) {
            Admission::Begun(mut charge) => {
                let future = charge.working(|| self.inner.call(request));
                ResponseFuture::called(future, classify, charge)
            }
            Admission::Denied(fault) => {
                self.let_go();
                ResponseFuture::denied(fault, classify)
            }
            Admission::Waits(line) => {
                self.let_go();
                ResponseFuture::waiting(line, self.inner.clone(), request, classify)
            }
        }
    }
}

impl<S: Clone, K, E, R, C> Budgeted<S, K, E, R, C> {
    /// Lets go of what the inner service reserved when it became ready: its clone holds nothing.
    fn let_go(&mut self) {
        self.inner = self.inner.clone();
    }
}

impl<S: fmt::Debug, K, E, R, C> fmt::Debug for Budgeted<S, K, E, R, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budgeted")
            .field("inner", &self.inner)
            .field("ledger", self.ledger())
            .finish_non_exhaustive()
    }
}
