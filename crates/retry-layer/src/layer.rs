use std::{fmt, sync::Arc};

use failsoft_core::{Auto, ByResponse, CloneService};
use tower_layer::Layer;

use crate::{Retry, RetryBuilder, holds::Holds, metrics::Meters, policy::Policy};

/// Calls again, when that can help. See the [crate's documentation](crate) for what it does and when it stops.
///
/// All services that one layer makes share its budget, and what it has learnt of its targets.
pub struct RetryLayer<C = ByResponse, R = Auto> {
    shared: Arc<Shared>,
    classify: C,
    replay: R,
}

/// What does not depend on the types of the service.
pub(crate) struct Shared {
    pub(crate) policy: Policy,
    pub(crate) holds: Holds,
    pub(crate) meters: Meters,
}

impl RetryLayer {
    /// A layer with the default settings, for HTTP.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets up a layer of the caller's own.
    pub fn builder() -> RetryBuilder {
        RetryBuilder::default()
    }
}

impl<C, R> RetryLayer<C, R> {
    pub(crate) fn of(policy: Policy, classify: C, replay: R) -> Self {
        let meters = Meters::new(policy.target.clone());
        Self { shared: Arc::new(Shared { policy, holds: Holds::new(), meters }), classify, replay }
    }
}

#[cfg(test)]
impl<C, R> RetryLayer<C, R> {
    pub(crate) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Default for RetryLayer {
    fn default() -> Self {
        RetryBuilder::default().unchecked()
    }
}

impl<S: CloneService, C: Clone, R: Clone> Layer<S> for RetryLayer<C, R> {
    type Service = Retry<S, C, R>;

    fn layer(&self, inner: S) -> Self::Service {
        Retry::of(inner, Arc::clone(&self.shared), self.classify.clone(), self.replay.clone())
    }
}

impl<C: Clone, R: Clone> Clone for RetryLayer<C, R> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            classify: self.classify.clone(),
            replay: self.replay.clone(),
        }
    }
}

impl<C, R> fmt::Debug for RetryLayer<C, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RetryLayer").field(&self.shared.policy).finish()
    }
}
