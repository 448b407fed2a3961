use std::{fmt, sync::Arc};

use failsoft_core::{Auto, ByResponse};
use tower_layer::Layer;

use crate::{Retry, RetryBuilder, holds::Holds, metrics::Meters, policy::Policy};

/// Calls again, when that can help. See the [crate's documentation](crate) for what it does and when it stops.
///
/// All services that one layer makes share its budget, and what it has learnt of its targets.
pub struct RetryLayer<C = ByResponse, R = Auto> {
    shared: Arc<Shared<C, R>>,
}

pub(crate) struct Shared<C, R> {
    pub(crate) policy: Policy,
    pub(crate) classify: C,
    pub(crate) replay: R,
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
        Self { shared: Arc::new(Shared { policy, classify, replay, holds: Holds::new(), meters }) }
    }
}

impl Default for RetryLayer {
    fn default() -> Self {
        RetryBuilder::default().unchecked()
    }
}

impl<S, C, R> Layer<S> for RetryLayer<C, R> {
    type Service = Retry<S, C, R>;

    fn layer(&self, inner: S) -> Self::Service {
        Retry::of(inner, Arc::clone(&self.shared))
    }
}

impl<C, R> Clone for RetryLayer<C, R> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<C, R> fmt::Debug for RetryLayer<C, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RetryLayer").field(&self.shared.policy).finish()
    }
}
