//! Our layers.

use std::{
    future::{Ready, ready},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
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
use failsoft_core::{BoxError, ConfigError, ErrorsOnly, Insight, Verdict};
use fallback_layer::{
    BoxRoute, FallbackLayer, Route,
    cache::{Cache, CacheLayer, SharedByAll},
};
use http::{Method, Request, Response};
use http_body::Body;
use http_body_util::{BodyExt as _, Full};
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
    let limited = || -> Result<_, ConfigError> {
        let retry = RetryLayer::builder().classify(ErrorsOnly).attempt_timeout(LIMIT).build()?;
        Ok(ServiceBuilder::new().layer(retry).layer(counting().build()?).service(Echo::good()))
    };
    let own =
        FallbackLayer::builder().classify(ErrorsOnly).route(Route::new("second", limited()?)).build()?;
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
        Subject::service("chat of 1 KiB, bare", Chat::to(Model)),
        Subject::service("chat of 1 KiB, cache hit", Chat::to(cache()?.layer(Model))),
        Subject::service(
            "chat of 1 KiB, cache miss",
            Chat { each_differs: true, ..Chat::to(cache()?.layer(Model)) },
        ),
        Subject::service("budget", budgets()?.layer(Echo::good())),
        Subject::service("budget, one alone", budget().build()?.layer(Echo::good())),
        Subject::service("budget, three layers", apart.service(Echo::good())),
        Subject::service("stack", stack.layer(route()?)),
        Subject::service("stack, the retry's own limit", own.layer(limited()?)),
    ])
}

/// The same with routes of types that nobody needs to know.
fn boxed() -> Result<impl Service<u64, Response = u64> + Clone + Send + 'static, ConfigError> {
    let route = || BoxRoute::<u64, u64>::new(Echo::good());
    let layer = FallbackLayer::builder().classify(ErrorsOnly).route(Route::new("second", route())).build()?;
    Ok(layer.layer(route()))
}

fn cache() -> Result<CacheLayer<SharedByAll>, ConfigError> {
    Ok(CacheLayer::new(Cache::builder().shared_by_all().build()?))
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

/// Asks for a chat completion in each call, and reads the answer to its end.
#[derive(Clone)]
struct Chat<S> {
    service: S,
    body: String,
    each_differs: bool,
    count: Arc<AtomicU64>,
}

impl<S> Chat<S> {
    fn to(service: S) -> Self {
        let prompt = "Say what you think of it. ".repeat(37);
        let body = format!(
            r#"{{"model":"m","temperature":0,"messages":[{{"role":"user","content":"{prompt}"}}],"seed":"#
        );
        Self { service, body, each_differs: false, count: Arc::default() }
    }
}

impl<S, B> Service<u64> for Chat<S>
where
    S: Service<Request<String>, Response = Response<B>, Error = BoxError, Future: Send + 'static>,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = usize;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<usize, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, _: u64) -> Self::Future {
        let number = if self.each_differs { self.count.fetch_add(1, Ordering::Relaxed) } else { 0 };
        let mut request = Request::new(format!("{}{number}}}", self.body));
        *request.method_mut() = Method::POST;
        let future = self.service.call(request);
        Box::pin(async move {
            let body = future.await?.into_body().collect().await.map_err(Into::into)?;
            Ok(body.to_bytes().len())
        })
    }
}

/// Answers 1 KiB that somebody has called good.
#[derive(Clone)]
struct Model;

impl Service<Request<String>> for Model {
    type Response = Response<Full<Bytes>>;
    type Error = BoxError;
    type Future = Ready<Result<Response<Full<Bytes>>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<String>) -> Self::Future {
        drop(request);
        let mut response = Response::new(Full::from(Bytes::from_static(&[b' '; 1024])));
        let insight = Insight::new();
        insight.learn(|facts| facts.verdict = Some(Verdict::SUCCESS));
        response.extensions_mut().insert(insight);
        ready(Ok(response))
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
