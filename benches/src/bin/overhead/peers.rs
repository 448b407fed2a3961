//! The published peers, set up as their documentation does.

use std::{
    future::Ready,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use benches::{Echo, Subject};
use failsafe::{FailurePolicy, failure_policy, futures::CircuitBreaker as _};
use failsoft_core::BoxError;
use recloser::{AsyncRecloser, Recloser};
use tower::{
    Layer, Service, ServiceBuilder,
    retry::{
        Policy,
        budget::{Budget, TpsBudget},
    },
    timeout::TimeoutLayer,
};
use tower_resilience::{
    circuitbreaker::CircuitBreakerLayer,
    fallback::FallbackLayer,
    retry::{RetryBudgetBuilder, RetryLayer},
    timelimiter::TimeLimiterLayer,
};

use crate::ours::{Answer, LIMIT, Post};

const FOR_GOOD: Duration = Duration::from_secs(3600);

pub(crate) fn subjects() -> Result<Vec<Subject>, BoxError> {
    let mut subjects = tower_resilience()?;
    subjects.extend(towers_own());
    subjects.extend(failsafe());
    subjects.extend(recloser());
    Ok(subjects)
}

fn tower_resilience() -> Result<Vec<Subject>, BoxError> {
    let breaker = || CircuitBreakerLayer::builder().sliding_window_size(100);
    let timed = breaker().slow_call_duration_threshold(LIMIT).slow_call_rate_threshold(0.5);
    let (refusing, handle) = breaker().build_with_handle().map_err(|err| err.to_string())?;
    tokio::runtime::Builder::new_current_thread().build()?.block_on(handle.force_open());
    let breaker = || breaker().build().map_err(|err| err.to_string());
    let budget = RetryBudgetBuilder::new().token_bucket().build().map_err(|err| err.to_string())?;
    let retry = RetryLayer::<u64, u64, BoxError>::builder().budget(Arc::clone(&budget)).build();
    let fallback = FallbackLayer::<u64, u64, BoxError>::value(0);
    let stack = ServiceBuilder::new()
        .layer(FallbackLayer::<u64, u64, _>::value(0))
        .layer(RetryLayer::<u64, u64, _>::builder().budget(budget).build())
        .layer(breaker()?)
        .layer(TimeLimiterLayer::builder().timeout_duration(LIMIT).build())
        .service(Echo::good());
    Ok(vec![
        Subject::service("tower-resilience breaker closed", breaker()?.layer(Echo::good())),
        Subject::service("tower-resilience breaker failing", breaker()?.layer(Echo::failing(20))),
        Subject::service(
            "tower-resilience breaker timed",
            timed.build().map_err(|err| err.to_string())?.layer(Echo::good()),
        ),
        Subject::service("tower-resilience breaker refused", refusing.layer(Echo::good())),
        Subject::service("tower-resilience retry", retry.layer(Echo::good())),
        Subject::service("tower-resilience fallback", fallback.layer(Echo::good())),
        Subject::service("tower-resilience stack", stack),
    ])
}

fn towers_own() -> Vec<Subject> {
    let stack = ServiceBuilder::new().retry(Budgeted::default()).timeout(LIMIT).service(Echo::good());
    vec![
        Subject::service(
            "tower retry with its budget",
            ServiceBuilder::new().retry(Budgeted::default()).service(Echo::good()),
        ),
        Subject::service(
            "16 KiB body, tower retry with its budget",
            Post::to(ServiceBuilder::new().retry(Budgeted::default()).service(Answer)),
        ),
        Subject::service("tower timeout", TimeoutLayer::new(LIMIT).layer(Echo::good())),
        Subject::service("tower stack of retry and timeout", stack),
    ]
}

/// tower leaves the policy to its users; this is the usual one with its own budget.
#[derive(Clone, Default)]
struct Budgeted(Arc<TpsBudget>);

impl<Req: Clone, Res> Policy<Req, Res, BoxError> for Budgeted {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut Req, result: &mut Result<Res, BoxError>) -> Option<Ready<()>> {
        if result.is_ok() {
            self.0.deposit();
            return None;
        }
        self.0.withdraw().then(|| std::future::ready(()))
    }

    fn clone_request(&mut self, request: &Req) -> Option<Req> {
        Some(request.clone())
    }
}

fn failsafe() -> Vec<Subject> {
    let around = |inner| Failsafe { breaker: failsafe::Config::new().build(), inner };
    let once = failure_policy::consecutive_failures(1, failsafe::backoff::constant(FOR_GOOD));
    let refusing = failsafe::Config::new().failure_policy(once).build();
    refusing.on_error();
    vec![
        Subject::service("failsafe breaker closed", around(Echo::good())),
        Subject::service("failsafe breaker failing", around(Echo::failing(20))),
        Subject::service("failsafe breaker refused", Failsafe { breaker: refusing, inner: Echo::good() }),
    ]
}

/// The smallest service around failsafe's breaker, which wraps futures.
struct Failsafe<P> {
    breaker: failsafe::StateMachine<P, ()>,
    inner: Echo,
}

impl<P: FailurePolicy + Send + Sync> Service<u64> for Failsafe<P> {
    type Response = u64;
    type Error = failsafe::Error<BoxError>;
    type Future = failsafe::futures::ResponseFuture<Ready<Result<u64, BoxError>>, P, (), failsafe::Any>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(failsafe::Error::Inner)
    }

    fn call(&mut self, request: u64) -> Self::Future {
        self.breaker.call(self.inner.call(request))
    }
}

impl<P> Clone for Failsafe<P> {
    fn clone(&self) -> Self {
        Self { breaker: self.breaker.clone(), inner: self.inner.clone() }
    }
}

fn recloser() -> Vec<Subject> {
    let around = |inner| Reclosing { breaker: Recloser::custom().closed_len(100).build().into(), inner };
    let refusing = Recloser::custom().closed_len(1).error_rate(0.5).open_wait(FOR_GOOD).build();
    for _ in 0..2 {
        // The first fills its window, the second opens it.
        let _ = refusing.call(|| Err::<(), _>(()));
    }
    vec![
        Subject::service("recloser breaker closed", around(Echo::good())),
        Subject::service("recloser breaker failing", around(Echo::failing(20))),
        Subject::service(
            "recloser breaker refused",
            Reclosing { breaker: refusing.into(), inner: Echo::good() },
        ),
    ]
}

/// The smallest service around recloser's breaker, which wraps futures.
#[derive(Clone)]
struct Reclosing {
    breaker: AsyncRecloser,
    inner: Echo,
}

impl Service<u64> for Reclosing {
    type Response = u64;
    type Error = recloser::Error<BoxError>;
    type Future = recloser::RecloserFuture<Ready<Result<u64, BoxError>>, recloser::AnyError>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(recloser::Error::Inner)
    }

    fn call(&mut self, request: u64) -> Self::Future {
        self.breaker.call(self.inner.call(request))
    }
}
