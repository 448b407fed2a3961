//! The checks, each a function over any layer.

use std::{convert::Infallible, future::poll_fn, ops::ControlFlow, time::Duration};

use axum::{Router, error_handling::HandleErrorLayer, routing::Route};
use bytes::Bytes;
use failsoft_core::{BoxError, Fault};
use http::StatusCode;
use http_body::Body;
use http_body_util::BodyExt as _;
use tower::{
    ServiceBuilder, ServiceExt as _,
    buffer::Buffer,
    limit::ConcurrencyLimit,
    util::{BoxCloneSyncService, MapErr},
};
use tower_layer::Layer;
use tower_service::Service;

use crate::{ANSWER, Probe, Request, Server, request};

/// A probe that admits one call at a time, until its body is gone.
#[must_use]
pub fn one_at_a_time(probe: &Probe) -> ConcurrencyLimit<Probe> {
    ConcurrencyLimit::new(probe.clone(), 1)
}

/// A probe behind a buffer.
#[must_use]
pub fn buffered(probe: &Probe) -> Buffer<Request, <Probe as Service<Request>>::Future> {
    Buffer::new(probe.clone(), 8)
}

/// Several calls in a row, with readiness asked several times before each.
pub async fn readiness<L, B>(layer: L, inner: Probe, probe: &Probe)
where
    L: Layer<Probe>,
    L::Service: Service<Request, Response = http::Response<B>, Error: Into<BoxError>>,
    B: Body<Error: Into<BoxError>>,
{
    let mut service = layer.layer(inner);
    for calls in 1..=3 {
        for _ in 0..3 {
            ready(&mut service).await;
        }
        let response = service.call(request()).await.map_err(Into::into).expect("the probe answers");
        read(response).await;
        assert_eq!(probe.calls(), calls);
    }
    assert_eq!(probe.alive(), 0);
}

/// The readied service and a clone of it are called, in both orders.
pub async fn clone_after_ready<L, B>(layer: L, inner: Probe, probe: &Probe)
where
    L: Layer<Probe>,
    L::Service: Service<Request, Response = http::Response<B>, Error: Into<BoxError>> + Clone,
    B: Body<Error: Into<BoxError>>,
{
    let mut service = layer.layer(inner);
    for clone_first in [false, true] {
        ready(&mut service).await;
        let mut clone = service.clone();
        for is_clone in [clone_first, !clone_first] {
            let called = if is_clone {
                ready(&mut clone).await;
                &mut clone
            } else {
                &mut service
            };
            let response = called.call(request()).await.map_err(Into::into).expect("the probe answers");
            read(response).await;
        }
    }
    assert_eq!((probe.calls(), probe.alive()), (4, 0));
}

/// A readied service is dropped without being called; another can be readied and called.
pub async fn ready_then_dropped<L, B>(layer: L, inner: ConcurrencyLimit<Probe>)
where
    L: Layer<ConcurrencyLimit<Probe>>,
    L::Service: Service<Request, Response = http::Response<B>, Error: Into<BoxError>> + Clone,
    B: Body<Error: Into<BoxError>>,
{
    let mut service = layer.layer(inner);
    let mut other = service.clone();
    ready(&mut service).await;
    drop(service);
    within(async {
        ready(&mut other).await;
        let response = other.call(request()).await.map_err(Into::into).expect("the probe answers");
        read(response).await;
    })
    .await;
}

/// Drops a call after some polls, wherever it then is; nothing of it may live on, and the next call must work as the
/// first would have. Breaks when the call ended by itself.
pub async fn dropped_after<L, B>(
    polls: usize,
    layer: L,
    inner: ConcurrencyLimit<Probe>,
    probe: &Probe,
) -> ControlFlow<()>
where
    L: Layer<ConcurrencyLimit<Probe>>,
    L::Service: Service<Request, Response = http::Response<B>, Error: Into<BoxError>> + Clone,
    B: Body<Error: Into<BoxError>>,
{
    let mut service = layer.layer(inner);
    let mut dropped = service.clone();
    let mut ended = false;
    {
        let mut call = tokio_test::task::spawn(async {
            ready(&mut dropped).await;
            if let Ok(response) = dropped.call(request()).await {
                // A cut body ends in an error, which is an end.
                let _ = response.into_body().collect().await;
            }
        });
        for _ in 0..polls {
            if call.poll().is_ready() {
                ended = true;
                break;
            }
            if !call.is_woken() {
                // It waits for time: a backoff.
                tokio::time::advance(Duration::from_secs(1)).await;
            }
        }
    }
    drop(dropped);
    assert_eq!(probe.alive(), 0, "dropped after {polls} polls, a future or a body lives on");
    let calls = probe.calls();
    within(async {
        ready(&mut service).await;
        if let Ok(response) = service.call(request()).await {
            let _ = response.into_body().collect().await;
        }
    })
    .await;
    assert!(
        probe.calls() > calls,
        "dropped after {polls} polls, the next call does not reach the inner service"
    );
    if ended { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// A layer that refuses a call after its inner service was readied lets that readiness go: under a limit of one,
/// another service gets its turn while the refused one still lives.
pub async fn refusal_gives_back<L, B>(layer: L, probe: &Probe, refuse: impl FnOnce(), admit: impl FnOnce())
where
    L: Layer<ConcurrencyLimit<Probe>>,
    L::Service: Service<Request, Response = http::Response<B>, Error = BoxError> + Clone,
    B: Body<Error: Into<BoxError>>,
{
    let mut refused = layer.layer(one_at_a_time(probe));
    let mut other = refused.clone();
    ready(&mut refused).await;
    refuse();
    let err = refused.call(request()).await.err().expect("it refuses");
    let fault = Fault::find(&*err).expect("a refusal is a fault");
    assert!(fault.class().is_denied(), "{fault:?}");
    admit();
    within(async {
        ready(&mut other).await;
        let response = other.call(request()).await.expect("the probe answers");
        read(response).await;
    })
    .await;
    assert_eq!(probe.calls(), 1);
    drop(refused);
}

/// What comes in pieces arrives as it was sent, and a body dropped half-way is gone at once.
pub async fn slow_body<L, B>(layer: L, inner: Probe, probe: &Probe)
where
    L: Layer<Probe>,
    L::Service: Service<Request, Response = http::Response<B>, Error: Into<BoxError>>,
    B: Body<Error: Into<BoxError>>,
{
    let mut service = layer.layer(inner);
    ready(&mut service).await;
    let response = service.call(request()).await.map_err(Into::into).expect("the probe answers");
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/json");
    read(response).await;

    ready(&mut service).await;
    let response = service.call(request()).await.map_err(Into::into).expect("the probe answers");
    let mut body = Box::pin(response.into_body());
    assert!(body.frame().await.is_some());
    drop(body);
    assert_eq!(probe.alive(), 0);
}

/// A buffer around the layer: its worker readies the service long before it calls it.
pub async fn buffer_outside<L, B>(layer: L, inner: Probe, probe: &Probe)
where
    L: Layer<Probe>,
    L::Service:
        Service<Request, Response = http::Response<B>, Error: Into<BoxError>, Future: Send> + Send + 'static,
    B: Body<Error: Into<BoxError>> + Send + 'static,
{
    let mut service = Buffer::new(layer.layer(inner).map_err(Into::into as fn(_) -> BoxError), 8);
    for calls in 1..=3 {
        ready(&mut service).await;
        let response = service.call(request()).await.expect("the probe answers");
        read(response).await;
        assert_eq!(probe.calls(), calls);
    }
}

/// A buffer inside the layer: readiness reserves a slot, which a call uses up.
pub async fn buffer_inside<L, S, B>(layer: L, inner: S, probe: &Probe)
where
    L: Layer<S>,
    L::Service: Service<Request, Response = http::Response<B>, Error: Into<BoxError>>,
    B: Body<Error: Into<BoxError>>,
{
    let mut service = layer.layer(inner);
    for calls in 1..=20 {
        within(ready(&mut service)).await;
        let response = service.call(request()).await.map_err(Into::into).expect("the probe answers");
        read(response).await;
        assert_eq!(probe.calls(), calls);
    }
}

/// Real sockets: slow bodies, cut bodies, failures, dropped bodies.
///
/// # Panics
///
/// When the contract is broken.
pub async fn reqwest_bodies<L>(layer: L, inner: reqwest::Client, server: &Server)
where
    L: Layer<reqwest::Client>,
    L::Service: Service<reqwest::Request, Response = reqwest::Response, Error: Into<BoxError>>,
{
    let client = inner.clone();
    let mut service = layer.layer(inner);
    let post = |path| client.post(server.url(path)).body("{}").build().expect("a valid request");

    ready(&mut service).await;
    let response = service.call(post("/slow")).await.map_err(Into::into).expect("the server answers");
    assert_eq!(response.url().path(), "/slow");
    assert_eq!(response.headers()["content-type"], "application/json");
    assert_eq!(response.text().await.expect("it ends well"), ANSWER);

    ready(&mut service).await;
    let cut = match service.call(post("/cut")).await {
        Ok(response) => response.text().await.map_err(BoxError::from),
        Err(err) => Err(err.into()),
    };
    let verdict = failsoft_core::verdict_of_body_error(&*cut.expect_err("half an answer is none"));
    assert_eq!(verdict.class(), failsoft_core::Class::Transient);

    // Whatever the layer does with an endless body, dropping its future or its response closes the socket.
    ready(&mut service).await;
    let held = tokio::time::timeout(Duration::from_millis(100), service.call(post("/endless"))).await;
    drop(held);
    let closed = async {
        while server.open() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), closed).await.expect("the server sees the socket close");
}

/// A further route for layers on an axum router, whose own inner service cannot be made by hand.
pub type AnyRoute = BoxCloneSyncService<axum::extract::Request, axum::response::Response, BoxError>;

/// A service that answers as the router of [`axum_router`] does.
#[must_use]
pub fn any_route() -> AnyRoute {
    BoxCloneSyncService::new(MapErr::new(router(), |never: Infallible| match never {}))
}

/// The layer on a router, which applies it to each route, with its errors handled as axum wants it.
pub async fn axum_router<L, B>(layer: L)
where
    L: Layer<Route> + Clone + Send + Sync + 'static,
    L::Service: Service<axum::extract::Request, Response = http::Response<B>, Error = BoxError, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let handled =
        HandleErrorLayer::new(|err: BoxError| async move { (StatusCode::BAD_GATEWAY, err.to_string()) });
    let router = router().layer(ServiceBuilder::new().layer(handled).layer(layer));
    for _ in 0..3 {
        let request = axum::extract::Request::new(axum::body::Body::empty());
        let response = router.clone().oneshot(request).await.expect("a router does not fail");
        assert_eq!(response.status(), 200);
        read(response).await;
    }
}

fn router() -> Router {
    let json = [("content-type", "application/json")];
    Router::new().route("/", axum::routing::get(move || async move { (json, ANSWER) }))
}

/// `Clone`, `Send` and `Sync` are not bounds but come by themselves.
pub fn auto_traits<L>(layer: L, inner: reqwest::Client)
where
    L: Layer<reqwest::Client> + Clone + Send + Sync + 'static,
    L::Service: Service<reqwest::Request, Response = reqwest::Response, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + Sync
        + std::fmt::Debug
        + 'static,
{
    let service = layer.layer(inner);
    let debug = format!("{service:?}");
    assert!(!debug.is_empty());
}

async fn ready<S: Service<R, Error: Into<BoxError>>, R>(service: &mut S) {
    poll_fn(|cx| service.poll_ready(cx))
        .await
        .map_err(Into::into)
        .expect("a local denial is no readiness error");
}

async fn read<B: Body<Error: Into<BoxError>>>(response: http::Response<B>) {
    let body = response.into_body().collect().await.map_err(Into::into).expect("the body ends well");
    assert_eq!(body.to_bytes(), ANSWER);
}

/// Bounds what must not hang; the clock is paused, so this costs no time.
async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(3600), future).await.expect("it hangs")
}
