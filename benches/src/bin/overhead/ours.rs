//! Our layers.

use std::{
    future::{Ready, ready},
    task::{Context, Poll},
    time::Duration,
};

use benches::{Echo, Subject};
use breaker_layer::{
    BreakerBuilder, BreakerLayer,
    engine::{Mode, Over},
};
use budget_layer::{AllPass, Allowance, BudgetBuilder, BudgetLayer, Fixed, OneForAll};
use bytes::Bytes;
use failsoft_core::{BoxError, ConfigError, ErrorsOnly};
use fallback_layer::{BoxRoute, FallbackLayer, Route};
use http::{Method, Request, Response};
use retry_layer::RetryLayer;
use tower::{Layer, Service, ServiceBuilder, timeout::TimeoutLayer};

/// A limit that no call reaches.
pub(crate) const LIMIT: Duration = Duration::from_secs(4);

pub(crate) fn subjects() -> Result<Vec<Subject>, BoxError> {
    let counting = || breaker().over(Over::Calls(100));
    let timed = breaker().slow_after(LIMIT).slow_rate(0.5).build()?;
    let refusing = counting().mode(Mode::ForcedOpen).build()?;
    let fallback = |second| FallbackLayer::builder().classify(ErrorsOnly).route(Route::new("second", second));
    let more = || Allowance::tokens(1 << 40);
    let budgets = || budget().also(more()).also(more()).build();
    let apart =
        ServiceBuilder::new().layer(budget().build()?).layer(budget().build()?).layer(budget().build()?);
    let route = || -> Result<_, ConfigError> {
        let layers = ServiceBuilder::new().layer(retry()?).layer(counting().build()?);
        Ok(layers.layer(TimeoutLayer::new(LIMIT)).service(Echo::good()))
    };
    let stack =
        FallbackLayer::builder().classify(ErrorsOnly).route(Route::new("second", route()?)).build()?;
    Ok(vec![
        Subject::service("bare", Echo::good()),
        Subject::service("a clock read", Clock),
        Subject::service("breaker closed", counting().build()?.layer(Echo::good())),
        Subject::service("breaker failing", counting().build()?.layer(Echo::failing(20))),
        Subject::service("breaker timed", timed.layer(Echo::good())),
        Subject::service("breaker refused", refusing.layer(Echo::good())),
        Subject::service("retry", retry()?.layer(Echo::good())),
        Subject::service("16 KiB body, bare", Post::to(Answer)),
        Subject::service("16 KiB body, retry", Post::to(RetryLayer::new().layer(Answer))),
        Subject::service("fallback", fallback(Echo::good()).build()?.layer(Echo::good())),
        Subject::service("fallback, boxed routes", boxed()?),
        Subject::service("budget", budgets()?.layer(Echo::good())),
        Subject::service("budget, one alone", budget().build()?.layer(Echo::good())),
        Subject::service("budget, three layers", apart.service(Echo::good())),
        Subject::service("stack", stack.layer(route()?)),
    ])
}

/// The same with routes of types that nobody needs to know.
fn boxed() -> Result<impl Service<u64, Response = u64> + Clone + Send + 'static, ConfigError> {
    let route = || BoxRoute::<u64, u64>::new(Echo::good());
    let layer = FallbackLayer::builder().classify(ErrorsOnly).route(Route::new("second", route())).build()?;
    Ok(layer.layer(route()))
}

fn breaker() -> BreakerBuilder<ErrorsOnly> {
    BreakerLayer::builder().classify(ErrorsOnly)
}

fn retry() -> Result<RetryLayer<ErrorsOnly>, ConfigError> {
    RetryLayer::builder().classify(ErrorsOnly).build()
}

/// A budget for a lifetime that nobody ever uses up.
fn budget() -> BudgetBuilder<OneForAll, Fixed, AllPass, ErrorsOnly> {
    BudgetLayer::builder().tokens(1 << 40).estimate_fixed(1).classify(ErrorsOnly)
}

/// Posts a body of 16 KiB in each call: what the row with a layer costs more than the bare one is overhead.
#[derive(Clone)]
pub(crate) struct Post<S> {
    service: S,
    body: Bytes,
}

impl<S> Post<S> {
    pub(crate) fn to(service: S) -> Self {
        Self { service, body: vec![b' '; 16 << 10].into() }
    }
}

impl<S: Service<Request<Bytes>>> Service<u64> for Post<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, _: u64) -> S::Future {
        let mut request = Request::new(self.body.clone());
        *request.method_mut() = Method::POST;
        self.service.call(request)
    }
}

/// Answers a request, and lets it go.
#[derive(Clone)]
pub(crate) struct Answer;

impl Service<Request<Bytes>> for Answer {
    type Response = Response<String>;
    type Error = BoxError;
    type Future = Ready<Result<Response<String>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        drop(request);
        ready(Ok(Response::new(String::new())))
    }
}

/// What a clock read costs over the bare call: the breaker's slow rule needs two.
#[derive(Clone)]
struct Clock;

impl Service<u64> for Clock {
    type Response = tokio::time::Instant;
    type Error = BoxError;
    type Future = Ready<Result<tokio::time::Instant, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: u64) -> Self::Future {
        ready(Ok(tokio::time::Instant::now()))
    }
}
