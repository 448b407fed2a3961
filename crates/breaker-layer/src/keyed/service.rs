//! The service: the circuit is known only at the call.

use std::fmt;
use std::task::{Context, Poll};

use failsoft_core::{BoxError, ByResponse, Classify, CloneService, IntoBoxError, Watch};
use tower_service::Service;

use super::{Circuits, Keyed};
use crate::ticket::Starting;
use crate::{ResponseFuture, Ticket};

/// A service behind a circuit breaker with a circuit for each key; made by
/// [`KeyedBreakerLayer`](crate::KeyedBreakerLayer).
///
/// Readiness is the inner service's: only the request says which circuit to ask. A call that its circuit refuses
/// fails with a [`Fault`](failsoft_core::Fault) of [`Class::Denied`](failsoft_core::Class::Denied), and what the inner
/// service held ready for it is let go.
pub struct KeyedBreaker<S, K, C = ByResponse> {
    inner: S,
    circuits: Circuits,
    keyed: K,
    classify: C,
    /// The inner service was polled since its last call: it may hold something.
    polled: bool,
}

impl<S, K, C> KeyedBreaker<S, K, C> {
    pub(crate) fn new(inner: S, circuits: Circuits, keyed: K, classify: C) -> Self {
        Self { inner, circuits, keyed, classify, polled: false }
    }

    /// The circuits that it shares with the other services of its layer.
    pub fn circuits(&self) -> &Circuits {
        &self.circuits
    }

    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, K, C, Req> Service<Req> for KeyedBreaker<S, K, C>
where
    S: Service<Req, Error: IntoBoxError> + CloneService,
    K: Keyed<Req>,
    C: Classify<S::Response> + Clone,
{
    type Response = <C::Judge as Watch<S::Response>>::Out<Ticket>;
    type Error = BoxError;
    type Future = ResponseFuture<S::Future, C>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.polled = true;
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Req) -> ResponseFuture<S::Future, C> {
        let circuit = self.keyed.with_key(&request, |key| self.circuits.circuit(key));
        let polled = std::mem::take(&mut self.polled);
        match circuit.shared().admit() {
            Ok(permit) => {
                let starting = Starting::new(circuit.shared(), permit);
                let future = self.inner.call(request);
                ResponseFuture::called(future, self.classify.clone(), starting.ticket())
            }
            Err(refusal) => {
                if polled {
                    // its clone holds nothing
                    self.inner = self.inner.clone();
                }
                ResponseFuture::refused(circuit.shared().refuse(&refusal), self.classify.clone())
            }
        }
    }
}

impl<S: Clone, K: Clone, C: Clone> Clone for KeyedBreaker<S, K, C> {
    /// A clone does not carry readiness.
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), self.circuits.clone(), self.keyed.clone(), self.classify.clone())
    }
}

impl<S: fmt::Debug, K, C> fmt::Debug for KeyedBreaker<S, K, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedBreaker")
            .field("inner", &self.inner)
            .field("circuits", &self.circuits)
            .finish_non_exhaustive()
    }
}
