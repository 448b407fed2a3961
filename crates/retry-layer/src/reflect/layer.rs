use std::{fmt, sync::Arc};

use failsoft_core::{Auto, ByResponse, CloneService};
use tower_layer::Layer;

use super::builder::Policy;
use crate::{
    Reflect, ReflectBuilder,
    metrics::{Count, CountByReason},
};

/// Answers a wrong answer by a changed request. See the [module](crate::reflect) for when it does.
///
/// All services that one layer makes share its budget.
pub struct ReflectLayer<A, C = ByResponse, R = Auto> {
    shared: Arc<Shared<A, C, R>>,
}

pub(super) struct Shared<A, C, R> {
    pub(super) policy: Policy,
    pub(super) reask: A,
    pub(super) classify: C,
    pub(super) replay: R,
    pub(super) counts: Counts,
}

/// What is counted of changed requests.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) sent: Count,
    pub(super) cured: Count,
    pub(super) given_up: CountByReason,
}

impl<A> ReflectLayer<A> {
    /// Sets up a layer that changes requests in this way: [`reask_fn`](crate::reflect::reask_fn), or with the feature `chat`
    /// `ChatReask`.
    pub fn builder(reask: A) -> ReflectBuilder<A> {
        ReflectBuilder::new(reask)
    }
}

impl<A, C, R> ReflectLayer<A, C, R> {
    pub(super) fn of(policy: Policy, reask: A, classify: C, replay: R) -> Self {
        Self { shared: Arc::new(Shared { policy, reask, classify, replay, counts: Counts::default() }) }
    }
}

impl<S: CloneService, A, C, R> Layer<S> for ReflectLayer<A, C, R> {
    type Service = Reflect<S, A, C, R>;

    fn layer(&self, inner: S) -> Self::Service {
        Reflect::of(inner, Arc::clone(&self.shared))
    }
}

impl<A, C, R> Clone for ReflectLayer<A, C, R> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<A, C, R> fmt::Debug for ReflectLayer<A, C, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReflectLayer").field(&self.shared.policy).finish()
    }
}
