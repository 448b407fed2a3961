//! tower-http on the server's side: a stack on an axum router, asked by reqwest over a socket.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use axum::{
    Router,
    http::{HeaderName, HeaderValue, StatusCode, header},
    routing::get,
};
use breaker_layer::{BreakerLayer, Circuit, engine::State};
use failsoft_core::{CallLayer, RespondLayer};
use http_body_util::BodyExt as _;
use tower::{ServiceBuilder, ServiceExt as _};
use tower_http::{
    compression::{CompressionLayer, predicate::SizeAbove},
    decompression::DecompressionLayer,
    request_id::{PropagateRequestIdLayer, SetRequestIdLayer},
    set_header::SetResponseHeaderLayer,
    timeout::TimeoutLayer,
    trace::TraceLayer,
};

use crate::SECOND;

#[derive(Clone)]
struct Constant;

impl tower_http::request_id::MakeRequestId for Constant {
    fn make_request_id<B>(&mut self, _: &http::Request<B>) -> Option<tower_http::request_id::RequestId> {
        Some(tower_http::request_id::RequestId::new(HeaderValue::from_static("made")))
    }
}

/// What tower-http is for lies outside, so that refusals have it too; what bounds the handler lies inside the breaker.
fn router(breaker: BreakerLayer, stalls: Arc<AtomicBool>) -> Router {
    let handler = async move || {
        if stalls.load(SeqCst) {
            std::future::pending::<()>().await;
        }
        "an answer of the handler"
    };
    Router::new().route("/", get(handler)).layer(
        ServiceBuilder::new()
            .layer(SetRequestIdLayer::x_request_id(Constant))
            .layer(TraceLayer::new_for_http())
            .layer(PropagateRequestIdLayer::x_request_id())
            .layer(SetResponseHeaderLayer::overriding(
                HeaderName::from_static("x-server"),
                HeaderValue::from_static("ours"),
            ))
            .layer(CompressionLayer::new().compress_when(SizeAbove::new(0)))
            .layer(RespondLayer)
            .layer(CallLayer::new())
            .layer(breaker)
            .layer(TimeoutLayer::with_status_code(StatusCode::SERVICE_UNAVAILABLE, SECOND)),
    )
}

async fn serve() -> (String, Circuit) {
    let breaker = BreakerLayer::builder().name("handler").build().unwrap();
    let circuit = breaker.circuit().clone();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let router = router(breaker, Arc::default());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, circuit)
}

#[tokio::test]
async fn answers_and_refusals_have_the_servers_headers_and_the_requests_id() {
    let (url, circuit) = serve().await;
    let client = reqwest::Client::new();
    for is_open in [false, true] {
        if is_open {
            circuit.open_for(30 * SECOND).unwrap();
        }
        for id in [Some("sent"), None] {
            let mut request = client.get(&url);
            if let Some(id) = id {
                request = request.header("x-request-id", id);
            }
            let response = request.send().await.unwrap();
            assert_eq!(response.headers()["x-request-id"], id.unwrap_or("made"));
            assert_eq!(response.headers()["x-server"], "ours");
            assert_eq!(response.status().as_u16(), if is_open { 503 } else { 200 });
            let (has_advice, text) =
                (response.headers().contains_key(header::RETRY_AFTER), response.text().await.unwrap());
            assert_eq!(has_advice, is_open);
            let start =
                if is_open { r#"{"error":{"type":"denied.circuit""# } else { "an answer of the handler" };
            assert!(text.starts_with(start), "{text}");
        }
    }
}

#[tokio::test]
async fn a_refusal_is_compressed_like_any_answer() {
    let (url, circuit) = serve().await;
    circuit.open_for(30 * SECOND).unwrap();
    let client = reqwest::Client::new();
    let service = ServiceBuilder::new()
        .layer(DecompressionLayer::new())
        .map_response(|response: http::Response<reqwest::Body>| {
            assert_eq!(response.headers()[header::CONTENT_ENCODING], "gzip");
            response
        })
        .service_fn(move |request: http::Request<reqwest::Body>| {
            let client = client.clone();
            async move { client.execute(request.try_into()?).await.map(http::Response::from) }
        });
    let request = http::Request::get(&url).body(reqwest::Body::default()).unwrap();
    let response = service.oneshot(request).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["x-should-retry"]),
        (503, &HeaderValue::from_static("false"))
    );
    let text = response.into_body().collect().await.unwrap().to_bytes();
    assert!(text.starts_with(br#"{"error":{"type":"denied.circuit""#), "{text:?}");
}

#[tokio::test(start_paused = true)]
async fn handlers_that_are_ended_by_tower_http_open_the_circuit_and_dropped_calls_do_not() {
    let breaker = BreakerLayer::builder().consecutive_failures(3).build().unwrap();
    let circuit = breaker.circuit().clone();
    let stalls = Arc::new(AtomicBool::new(true));
    let router = router(breaker, Arc::clone(&stalls));
    let ask = || router.clone().oneshot(axum::extract::Request::new(axum::body::Body::empty()));
    for _ in 0..5 {
        // The client goes away.
        assert!(tokio::time::timeout(SECOND / 2, ask()).await.is_err());
    }
    assert_eq!((circuit.state(), circuit.counts().total), (State::Closed, 0));
    for _ in 0..3 {
        assert_eq!(ask().await.unwrap().status(), 503);
    }
    assert_eq!((circuit.state(), circuit.counts().failed), (State::Open, 0));
    stalls.store(false, SeqCst);
    assert_eq!(ask().await.unwrap().headers()["x-should-retry"], "false", "the refusal, not the handler");
}
