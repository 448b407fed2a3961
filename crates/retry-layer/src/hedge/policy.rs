//! What a [`HedgeLayer`](crate::HedgeLayer) decides that does not depend on the types of its service.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use failsoft_core::{Class, Limit, Next, Verdict};
use tokio::time::Instant;

use super::latency::Latencies;
use crate::{
    RetryBudget,
    budget::Withdrawal,
    metrics::{Count, CountByReason, HEDGES_SENT, HEDGES_SUPPRESSED, HEDGES_WON},
};

/// For how long nothing is hedged after an answer that says "too much" and not until when.
const QUIET: Duration = Duration::from_secs(1);
/// The longest advice that holds hedges back: longer is a matter for whoever chooses another target.
const MAX_QUIET: Duration = Duration::from_secs(120);

/// The class of the failure that a hedge is charged for: the answer has not come in time.
const LATE: Class = Class::Timeout(Limit::Total);

#[derive(Clone)]
pub(super) struct Policy {
    pub(super) delay: Option<Duration>,
    pub(super) quantile: Option<f64>,
    pub(super) min_calls: u32,
    pub(super) min_delay: Duration,
    pub(super) max_hedges: u32,
    pub(super) budget: Option<RetryBudget>,
    /// Whether calls bring tokens into the budget: not where another layer on the same calls sees to that.
    pub(super) deposits: bool,
    pub(super) repeat_unanswered: bool,
    pub(super) target: Option<Arc<str>>,
}

/// What the services of one layer share.
pub(super) struct Shared<C, R> {
    pub(super) policy: Policy,
    pub(super) classify: C,
    pub(super) replay: R,
    counts: Counts,
    state: State,
}

/// What is counted of hedging.
#[derive(Default)]
struct Counts {
    sent: Count,
    won: Count,
    suppressed: CountByReason,
}

struct State {
    latencies: Option<Mutex<Latencies>>,
    born: Instant,
    /// Until when nothing is hedged, in nanoseconds since `born`.
    quiet_until: AtomicU64,
}

impl<C, R> Shared<C, R> {
    pub(super) fn new(policy: Policy, classify: C, replay: R) -> Self {
        let latencies = policy.quantile.map(|share| Mutex::new(Latencies::new(share, policy.min_calls)));
        let state = State { latencies, born: Instant::now(), quiet_until: AtomicU64::new(0) };
        Self { policy, classify, replay, counts: Counts::default(), state }
    }

    /// Whether somebody wants to know how long answers take.
    pub(super) const fn measures(&self) -> bool {
        self.state.latencies.is_some()
    }

    /// After how long the next hedge begins; `None` while nobody knows.
    pub(super) fn delay(&self) -> Option<Duration> {
        let quantile = self.state.latencies().and_then(|latencies| latencies.quantile());
        quantile.map(|quantile| quantile.max(self.policy.min_delay)).or(self.policy.delay)
    }

    /// The first attempt of a call took so long, or longer.
    pub(super) fn record(&self, latency: Duration) {
        if let Some(mut latencies) = self.state.latencies() {
            latencies.record(latency);
        }
    }

    /// A call was given up when its first attempt had taken so long, and had no answer yet.
    pub(super) fn record_unfinished(&self, at_least: Duration) {
        if let Some(mut latencies) = self.state.latencies() {
            latencies.record_unfinished(at_least);
        }
    }

    pub(super) fn on_request(&self) {
        if let Some(budget) = self.policy.budget.as_ref().filter(|_| self.policy.deposits) {
            budget.on_request();
        }
    }

    pub(super) fn on_success(&self) {
        if let Some(budget) = self.policy.budget.as_ref().filter(|_| self.policy.deposits) {
            budget.on_success();
        }
    }

    /// Takes a hedge out of the budget, where there is one.
    pub(super) fn withdraw(&self) -> Result<Option<Withdrawal>, Next> {
        let budget = self.policy.budget.as_ref();
        budget.map(|budget| budget.withdraw(LATE).ok_or(Next::BudgetEmpty)).transpose()
    }

    /// Another request of a call was sent.
    pub(super) fn count_sent(&self) {
        self.counts.sent.add(HEDGES_SENT, self.policy.target.as_deref());
    }

    /// It answered the call.
    pub(super) fn count_won(&self) {
        self.counts.won.add(HEDGES_WON, self.policy.target.as_deref());
    }

    /// It was not sent.
    pub(super) fn count_suppressed(&self, why: Next) {
        self.counts.suppressed.add(HEDGES_SUPPRESSED, self.policy.target.as_deref(), why);
    }

    /// Learns of an outcome whether the target bears more requests.
    pub(super) fn hear(&self, verdict: &Verdict) {
        if matches!(verdict.class(), Class::RateLimited | Class::Overloaded) {
            let quiet = verdict.retry_after().map_or(QUIET, |advice| advice.min(MAX_QUIET));
            self.state.quiet_until.fetch_max(self.state.nanos(Instant::now() + quiet), Relaxed);
        }
    }

    /// Why there is no hedge now.
    pub(super) fn suppressed(&self, now: Instant, deadline: Option<Instant>) -> Option<Next> {
        if deadline.is_some_and(|deadline| deadline <= now) {
            return Some(Next::DeadlineNear);
        }
        let quiet = self.state.nanos(now) < self.state.quiet_until.load(Relaxed);
        quiet.then_some(Next::AdviceTooLong)
    }
}

impl State {
    fn latencies(&self) -> Option<MutexGuard<'_, Latencies>> {
        Some(self.latencies.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn nanos(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.born).as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Whether an outcome tells the outcome of every other attempt of the same request, so that nobody waits for those: it is
/// the request, the credential or the model that is refused.
pub(super) const fn ends_all(verdict: &Verdict) -> bool {
    matches!(
        verdict.class(),
        Class::Invalid
            | Class::ContextLength
            | Class::Auth
            | Class::Quota
            | Class::ModelNotFound
            | Class::Refused
    )
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("delay", &self.delay)
            .field("quantile", &self.quantile)
            .field("max_hedges", &self.max_hedges)
            .field("budget", &self.budget)
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}
