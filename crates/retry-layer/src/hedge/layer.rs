use std::{fmt, sync::Arc};

use failsoft_core::{Auto, ByResponse, CloneService};
use tower_layer::Layer;

use super::policy::Shared;
use crate::{Hedge, HedgeBuilder};

/// Sends a slow call once more, beside the first. See the [module](crate::hedge) for when it does, and who wins.
///
/// All services that one layer makes share its budget and what it knows of the target.
pub struct HedgeLayer<C = ByResponse, R = Auto> {
    shared: Arc<Shared<C, R>>,
}

impl HedgeLayer {
    /// A layer with the default settings, for HTTP: one hedge, for calls that take longer than 95 % of those before.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets up a layer of the caller's own.
    pub fn builder() -> HedgeBuilder {
        HedgeBuilder::default()
    }
}

impl<C, R> HedgeLayer<C, R> {
    pub(super) fn of(shared: Shared<C, R>) -> Self {
        Self { shared: Arc::new(shared) }
    }
}

impl Default for HedgeLayer {
    fn default() -> Self {
        HedgeBuilder::default().unchecked()
    }
}

impl<S: CloneService, C, R> Layer<S> for HedgeLayer<C, R> {
    type Service = Hedge<S, C, R>;

    fn layer(&self, inner: S) -> Self::Service {
        Hedge::of(inner, Arc::clone(&self.shared))
    }
}

impl<C, R> Clone for HedgeLayer<C, R> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<C, R> fmt::Debug for HedgeLayer<C, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HedgeLayer").field(&self.shared.policy).finish()
    }
}
