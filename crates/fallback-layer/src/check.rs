//! [`ActiveCheck`]: asks a route now and then whether it works, so that a dead one is known before a call meets it.
//!
//! You want it for routes that are rarely asked: a circuit learns only from calls, and the last of four routes has none.
//! Give it to the route as its [health](crate::Route::health); together with a circuit, as the pair of both, of which
//! the worse counts.
//!
//! ```
//! use std::time::Duration;
//! use fallback_layer::{FallbackLayer, Route, check::{ActiveCheck, CheckBudget}};
//! # use failsoft_core::BoxError;
//! # use tower::service_fn;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! # let backup = service_fn(|_: u8| async { Ok::<_, BoxError>(1_u8) });
//! # async fn list_models() -> Result<(), BoxError> { Ok(()) }
//! // Checks cost money where they ask a model: at most 4 a minute for all routes together.
//! let budget = CheckBudget::new(4, Duration::from_secs(60));
//! let check = ActiveCheck::new(list_models).name("backup").budget(budget.clone()).start()?;
//! let layer = FallbackLayer::builder().route(Route::new("backup", backup).health(check)).build()?;
//! # let _ = layer;
//! # Ok::<_, BoxError>(())
//! # }).unwrap();
//! ```
//!
//! The check runs in a task of the current tokio runtime. The task ends when the [`ActiveCheck`] is dropped: with the
//! layer, its services and the calls that run.

mod budget;
mod state;

use std::{
    fmt,
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll},
    time::Duration,
};

use failsoft_core::{
    BoxError, Class, Classify, CloneService, Condition, ConfigError, Health, IntoBoxError, Limit, Step,
    Verdict, backoff::Rng,
};
use tokio::{task::AbortHandle, time::Instant};
use tower_service::Service;

pub use self::budget::CheckBudget;
use self::state::{Settings, State};
use crate::{events, metrics::CheckMeters};

const NAME: &str = "ActiveCheck";

/// How fit a route is, as its checks say. The checks end when it is dropped.
pub struct ActiveCheck {
    shared: Arc<Shared>,
    task: AbortHandle,
}

struct Shared {
    name: Arc<str>,
    state: Mutex<State>,
    meters: CheckMeters,
}

/// Sets up an [`ActiveCheck`].
///
/// | setting | default | range |
/// |---|---|---|
/// | [`every`](Self::every) | 60 s, about what load balancers take for targets that cost nothing to ask, twice over | at least 1 ms |
/// | [`jitter`](Self::jitter) | 0.1 | 0 to 1 |
/// | [`timeout`](Self::timeout) of one check | 10 s, as for first content | above 0 |
/// | [`fall`](Self::fall): failures in a row until the route is poor | 2 | at least 1 |
/// | [`rise`](Self::rise): good checks in a row until it is good again | 1 | at least 1 |
/// | [`budget`](Self::budget) | what `every` takes | |
/// | [`name`](Self::name) | `check` | not blank |
#[must_use = "nothing is checked before `start`"]
pub struct ActiveCheckBuilder {
    probe: Probe,
    name: Arc<str>,
    settings: Settings,
    budget: Option<CheckBudget>,
    seed: Option<u64>,
}

type Probe = Box<dyn FnMut() -> Probing + Send>;
type Probing = Pin<Box<dyn Future<Output = Verdict> + Send>>;

impl ActiveCheck {
    /// Checks by a function: `Ok` is good, and one that panics has failed. An error of [`Class::Invalid`] is good too, because who understands a request
    /// well enough to refuse it is alive; what our own layers deny says nothing.
    #[expect(clippy::new_ret_no_self, reason = "there is none before it is started")]
    pub fn new<T, E, F, Fut>(mut probe: F) -> ActiveCheckBuilder
    where
        F: FnMut() -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        ActiveCheckBuilder::of(Box::new(move || {
            let asked = probe();
            Box::pin(async move {
                asked.await.map_or_else(|error| Verdict::of_error(&*error.into()), |_| Verdict::SUCCESS)
            })
        }))
    }

    /// Checks by a service, which is asked with what `request` gives. Each time a clone of it becomes ready and is called;
    /// its answer is judged by its head, and dropped.
    pub fn of_service<S, Req, C>(
        service: S,
        mut request: impl FnMut() -> Req + Send + 'static,
        classify: C,
    ) -> ActiveCheckBuilder
    where
        S: Service<Req, Error: IntoBoxError, Future: Send> + CloneService + Send + 'static,
        C: Classify<S::Response> + Clone + Send + 'static,
        Req: Send + 'static,
    {
        ActiveCheckBuilder::of(Box::new(move || {
            let (mut service, request, classify) = (service.clone(), request(), classify.clone());
            Box::pin(async move {
                let answer = async {
                    poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
                    service.call(request).await.map_err(Into::into)
                };
                match answer.await {
                    Ok(response) => match classify.response(&response) {
                        Step::Now(verdict) => verdict,
                        Step::AtEnd(_) => Verdict::SUCCESS,
                    },
                    Err(error) => classify.error(&*error),
                }
            })
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }
}

impl ActiveCheckBuilder {
    fn of(probe: Probe) -> Self {
        Self { probe, name: Arc::from("check"), settings: Settings::default(), budget: None, seed: None }
    }

    /// The name of what is checked, in events and counters.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// How long after a check the next one begins. The first one begins when the check is started.
    pub const fn every(mut self, every: Duration) -> Self {
        self.settings.every = every;
        self
    }

    /// By which share of `every` each wait is longer or shorter, and the first check later, so that many processes do
    /// not ask at once.
    pub const fn jitter(mut self, share: f64) -> Self {
        self.settings.jitter = share;
        self
    }

    /// How long a check may take; one that takes longer has failed.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// So many failures in a row make the route poor; after fewer it is degraded, and keeps its place.
    pub const fn fall(mut self, failures: u32) -> Self {
        self.settings.fall = failures;
        self
    }

    /// So many good checks in a row make a poor route good again; after fewer it is degraded.
    pub const fn rise(mut self, good: u32) -> Self {
        self.settings.rise = good;
        self
    }

    /// What checks may be made, together with all others that have a clone of it. One for which nothing is left is
    /// left out, and what was known before stays.
    pub fn budget(mut self, budget: CheckBudget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Draws the jitter from this seed. For tests.
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Starts to check, in a task of the current tokio runtime.
    ///
    /// # Errors
    ///
    /// When a setting is out of its range, or no runtime is current (`runtime`).
    pub fn start(self) -> Result<ActiveCheck, ConfigError> {
        self.settings.check()?;
        if self.name.trim().is_empty() {
            return Err(ConfigError::new(NAME, "name", "blank", "a name"));
        }
        let runtime = tokio::runtime::Handle::try_current()
            .map_err(|_| ConfigError::new(NAME, "runtime", "none", "to be started inside a tokio runtime"))?;
        let rng = self.seed.map_or_else(Rng::new, Rng::seeded);
        let now = Instant::now();
        let state = Mutex::new(State::new(self.settings, rng, now));
        let meters = CheckMeters::new(Arc::clone(&self.name));
        let shared = Arc::new(Shared { name: self.name, state, meters });
        let task =
            runtime.spawn(run(Arc::downgrade(&shared), self.probe, self.settings.timeout, self.budget));
        Ok(ActiveCheck { shared, task: task.abort_handle() })
    }
}

/// Checks until nobody wants to know any more.
async fn run(shared: Weak<Shared>, mut probe: Probe, timeout: Duration, budget: Option<CheckBudget>) {
    loop {
        let Some(next) = shared.upgrade().map(|shared| shared.lock().next()) else { return };
        tokio::time::sleep_until(next).await;
        let may = budget.as_ref().is_none_or(|budget| budget.take(Instant::now()));
        let verdict = if may {
            let probing = pin!(async { probe().await });
            let verdict = tokio::time::timeout(timeout, Unwinding(probing)).await;
            Some(verdict.unwrap_or(Verdict::of(Class::Timeout(Limit::Total))))
        } else {
            None
        };
        let Some(shared) = shared.upgrade() else { return };
        shared.record(verdict, Instant::now());
    }
}

/// A check that panics has failed, and the next one is made all the same: else the route would stay for ever what it was.
struct Unwinding<F>(F);

impl<F: Future<Output = Verdict> + Unpin> Future for Unwinding<F> {
    type Output = Verdict;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Verdict> {
        // What panicked is not polled again.
        let polled = catch_unwind(AssertUnwindSafe(|| Pin::new(&mut self.0).poll(cx)));
        polled.unwrap_or(Poll::Ready(Verdict::of(Class::Unknown)))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what came of a check; `None` where none was made.
    fn record(&self, verdict: Option<Verdict>, now: Instant) {
        let (before, after, good) = {
            let mut state = self.lock();
            let before = state.condition();
            let good = verdict.and_then(|verdict| state.record(verdict));
            state.plan_next(now);
            (before, state.condition(), good)
        };
        // Outside the lock: whoever listens may ask for the condition.
        self.meters.checked(good);
        if before != after {
            events::checked(&self.name, verdict, after);
        }
    }
}

impl Health for ActiveCheck {
    /// Good where its runtime has ended, and with it the checks: nobody knows any more.
    fn condition(&self) -> Condition {
        if self.task.is_finished() { Condition::Good } else { self.lock().condition() }
    }

    /// Until the next check, which may find the route good again.
    fn recovers_in(&self) -> Option<Duration> {
        let state = self.lock();
        let poor = state.condition() == Condition::Poor && !self.task.is_finished();
        poor.then(|| state.next().saturating_duration_since(Instant::now()))
    }
}

impl Drop for ActiveCheck {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for ActiveCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActiveCheck")
            .field("name", &self.shared.name)
            .field("condition", &self.condition())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ActiveCheckBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActiveCheckBuilder")
            .field("name", &self.name)
            .field("settings", &self.settings)
            .field("budget", &self.budget)
            .finish_non_exhaustive()
    }
}
