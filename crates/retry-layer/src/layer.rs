use std::{fmt, sync::Arc};

use failsoft_core::{Auto, ByResponse, CloneService, Deferred, lent::Place};
use tower_layer::Layer;

use crate::{Deposit, Retry, RetryBudget, RetryBuilder, holds::Holds, metrics::Meters, policy::Policy};

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
    /// What of the policy each call asks for, worked out once.
    pub(crate) plain: Plain,
    /// Where a thread keeps it for its next call.
    pub(crate) place: Place,
}

/// See [`Shared::plain`].
pub(crate) struct Plain {
    /// Nothing of the policy concerns a call before its first attempt waits or fails.
    pub(crate) is_plain: bool,
    /// An attempt that waits has a limit.
    pub(crate) is_limited: bool,
    /// It holds closures of the user's.
    pub(crate) holds_closures: bool,
    /// The budget, where each call is a deposit; or each success.
    pub(crate) on_request: Option<RetryBudget>,
    pub(crate) on_success: Option<RetryBudget>,
    /// What all calls' scopes are like.
    pub(crate) scope: Deferred,
}

impl Shared {
    fn new(policy: Policy) -> Self {
        let meters = Meters::new(policy.target.clone());
        let fills = |on| policy.budget.clone().filter(|budget| budget.deposit_on() == Some(on));
        let plain = Plain {
            is_plain: policy.is_plain(),
            is_limited: policy.is_limited(),
            holds_closures: policy.holds_closures(),
            on_request: fills(Deposit::PerRequest),
            on_success: fills(Deposit::PerSuccess),
            scope: Deferred::retrying(policy.max_retries),
        };
        Self { policy, holds: Holds::new(), meters, plain, place: Place::next() }
    }
}

impl Plain {
    #[inline(always)]
    pub(crate) fn on_request(&self) {
        if let Some(budget) = &self.on_request {
            budget.deposit();
        }
    }

    #[inline(always)]
    pub(crate) fn on_success(&self) {
        if let Some(budget) = &self.on_success {
            budget.deposit();
        }
    }
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
        Self { shared: Arc::new(Shared::new(policy)), classify, replay }
    }
}

#[cfg(all(test, not(failsoft_loom)))]
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
