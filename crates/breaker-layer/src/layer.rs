//! The layer: a circuit, and how to classify.

use std::fmt;

use failsoft_core::{ByResponse, CloneService};
use tower_layer::Layer;

use crate::{Breaker, BreakerBuilder, Circuit};

/// Puts a circuit breaker around services.
///
/// The circuit lives in this value and is shared by all services that it and its clones make, also where a
/// framework applies the layer again for each route. For a circuit of its own, build another layer.
#[derive(Clone)]
pub struct BreakerLayer<C = ByResponse> {
    pub(crate) circuit: Circuit,
    pub(crate) classify: C,
    pub(crate) waits: bool,
}

impl BreakerLayer {
    /// Starts from the defaults: opens at 40 % of weighted failures over the last minute, from 10 calls.
    pub fn builder() -> BreakerBuilder {
        BreakerBuilder::new()
    }
}

impl<C> BreakerLayer<C> {
    /// The circuit that all its services share.
    pub fn circuit(&self) -> &Circuit {
        &self.circuit
    }
}

impl<S: CloneService, C: Clone> Layer<S> for BreakerLayer<C> {
    type Service = Breaker<S, C>;

    fn layer(&self, inner: S) -> Self::Service {
        Breaker::new(inner, self.circuit.clone(), self.classify.clone(), self.waits)
    }
}

impl<C> fmt::Debug for BreakerLayer<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BreakerLayer").field("circuit", &self.circuit).finish_non_exhaustive()
    }
}
