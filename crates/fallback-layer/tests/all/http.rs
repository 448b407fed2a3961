//! Real sockets: axum servers on loopback, reqwest clients, and providers that are dead, slow or cut answers short.

use std::{
    future::Future,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use crate::support::fault;
use axum::{
    Router,
    body::{Body, Bytes},
    http::{Request, StatusCode, header},
    response::IntoResponse,
    routing::{get, post},
};
use failsoft_core::{Call, Class, Fault, Limit, Once, RespondLayer};
use fallback_layer::{
    FallbackLayer, Return, Route,
    last_good::{self, Key},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket},
    sync::Notify,
};
use tower::{Layer, Service, ServiceBuilder, ServiceExt};

async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    addr
}

/// Answers what it is asked, and says who it is.
async fn good(name: &'static str) -> SocketAddr {
    let echo = async move |body: Bytes| ([("x-provider", name)], body);
    serve(Router::new().route("/chat", post(echo))).await
}

async fn answering(status: StatusCode, body: &'static str) -> SocketAddr {
    let answer = async move || (status, [(header::RETRY_AFTER, "7")], body);
    serve(Router::new().route("/chat", post(answer))).await
}

/// An address at which nobody listens, nor any other test while the socket is held.
fn dead() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// Takes a request and never answers it.
async fn hanging() -> (SocketAddr, Arc<Notify>) {
    let reached = Arc::new(Notify::new());
    let notify = reached.clone();
    let hang = async move || {
        notify.notify_one();
        std::future::pending::<()>().await;
    };
    (serve(Router::new().route("/chat", post(hang))).await, reached)
}

/// Once a provider hangs, nobody needs real time any more until the limit of its route.
async fn asked_in_vain<T>(reached: &Notify, limit: Duration, call: impl Future<Output = T>) -> T {
    let pass = async {
        reached.notified().await;
        tokio::time::pause();
        tokio::time::advance(limit).await;
        tokio::time::resume();
    };
    tokio::join!(call, pass).0
}

/// Promises 99 bytes and closes after a few.
async fn cutting() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut request = [0; 1024];
            let _ = socket.read(&mut request).await;
            let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{\"cut\":").await;
        }
    });
    addr
}

/// A provider as a route: the client, with the request sent to this provider's address.
fn provider(
    addr: SocketAddr,
) -> impl Service<reqwest::Request, Response = reqwest::Response, Error = reqwest::Error, Future: Send>
+ Clone
+ Send
+ Sync {
    ServiceBuilder::new()
        .map_request(move |mut request: reqwest::Request| {
            let _ = request.url_mut().set_port(Some(addr.port()));
            request
        })
        .service(reqwest::Client::new())
}

fn question() -> reqwest::Request {
    reqwest::Client::new().post("http://127.0.0.1:1/chat").body("question").build().unwrap()
}

async fn who(response: reqwest::Response) -> String {
    let provider = response.headers()["x-provider"].to_str().unwrap().to_owned();
    assert_eq!(response.text().await.unwrap(), "question", "the body was sent again");
    provider
}

// G47
#[tokio::test]
async fn a_refused_connection_goes_to_the_next_provider() {
    let (_held, a) = dead();
    let b = good("b").await;
    let layer = FallbackLayer::builder().name("a").route(Route::new("b", provider(b))).build().unwrap();
    let call = Call::begin();
    let response = call.scope(layer.layer(provider(a)).oneshot(question())).await.unwrap();
    assert_eq!(who(response).await, "b");
    assert_eq!(call.trail().to_string(), "a transient (next_route) > b success (answered)");
}

#[tokio::test]
async fn dead_then_hanging_then_good_is_answered_within_the_timeout() {
    let (_held, a) = dead();
    let ((b, reached), c) = (hanging().await, good("c").await);
    let layer = FallbackLayer::builder()
        .name("a")
        .route(Route::new("b", provider(b)))
        .route(Route::new("c", provider(c)))
        .build()
        .unwrap();
    let call = layer.layer(provider(a)).oneshot(question());
    let response = asked_in_vain(&reached, Duration::from_secs(30), call).await.unwrap();
    assert_eq!(who(response).await, "c");
}

#[tokio::test]
async fn when_all_fail_the_first_providers_response_is_the_callers_body_and_all() {
    let a = answering(StatusCode::SERVICE_UNAVAILABLE, r#"{"error":"busy"}"#).await;
    let b = answering(StatusCode::BAD_REQUEST, r#"{"error":"prompt too long"}"#).await;
    let layer = FallbackLayer::builder().route(Route::new("b", provider(b))).build().unwrap();
    let response = layer.layer(provider(a)).oneshot(question()).await.unwrap();
    assert_eq!(
        (response.status(), response.headers()["retry-after"].to_str().unwrap()),
        (StatusCode::SERVICE_UNAVAILABLE, "7")
    );
    assert_eq!(response.text().await.unwrap(), r#"{"error":"busy"}"#);

    let layer =
        FallbackLayer::builder().returns(Return::Last).route(Route::new("b", provider(b))).build().unwrap();
    let response = layer.layer(provider(a)).oneshot(question()).await.unwrap();
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
}

// G47
#[tokio::test]
async fn when_the_first_is_dead_the_error_is_typed_and_tells_of_all() {
    let (_held, a) = dead();
    let (b, (c, reached)) = (answering(StatusCode::SERVICE_UNAVAILABLE, "").await, hanging().await);
    let layer = FallbackLayer::builder()
        .name("a")
        .route(Route::new("b", provider(b)))
        .route(Route::new("c", provider(c)))
        .build()
        .unwrap();
    let call = layer.layer(provider(a)).oneshot(question());
    let err = asked_in_vain(&reached, Duration::from_secs(60), call).await.unwrap_err();
    let all = fault(&err);
    assert_eq!((all.class(), all.target(), all.layer()), (Class::Transient, Some("a"), "fallback-layer"));
    assert_eq!(all.retry_after(), Some(Duration::from_secs(7)), "the earliest advice of all");
    assert!(all.earlier()[0].is::<reqwest::Error>());
    assert_eq!(fault(&all.earlier()[1]).status(), Some(503));
    let source = std::error::Error::source(all).unwrap();
    assert_eq!(Fault::find(source).map(|fault| fault.class()), Some(Class::Timeout(Limit::Total)));
    assert_eq!(
        all.trail().unwrap().to_string(),
        "a transient (next_route) > b overloaded (next_route) > c timeout.total (no_route_left)"
    );
}

#[tokio::test]
async fn a_request_with_a_body_that_streams_is_sent_once() {
    let (a, b) = (answering(StatusCode::SERVICE_UNAVAILABLE, "busy").await, good("b").await);
    let layer = FallbackLayer::builder().route(Route::new("b", provider(b))).build().unwrap();
    let body = reqwest::Body::wrap(http_body_util::Full::<Bytes>::from("once"));
    let request = reqwest::Client::new().post("http://127.0.0.1:1/chat").body(body).build().unwrap();
    let response = layer.layer(provider(a)).oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn an_answer_cut_on_the_wire_goes_on_and_the_last_good_one_stands_in() {
    let works = Arc::new(AtomicBool::new(true));
    let switch = works.clone();
    let answer = async move || match switch.load(Ordering::Relaxed) {
        true => (StatusCode::OK, "good"),
        false => (StatusCode::INTERNAL_SERVER_ERROR, "bad"),
    };
    let b = serve(Router::new().route("/chat", post(answer))).await;
    let key = |request: &reqwest::Request| Some(Key::new("tenant", request.body()?.as_bytes()?));
    let layer = FallbackLayer::builder()
        .route(Route::new("b", provider(b)))
        .keep_last_good(last_good::http(key))
        .build()
        .unwrap();
    let service = layer.layer(provider(cutting().await));
    let response = service.clone().oneshot(question()).await.unwrap();
    assert_eq!(response.text().await.unwrap(), "good");

    works.store(false, Ordering::Relaxed);
    let response = service.clone().oneshot(question()).await.unwrap();
    assert_eq!(response.url().path(), "/chat", "the URL survives");
    assert_eq!(response.headers()["x-failsoft-degraded"], "last-good");
    assert_eq!(response.text().await.unwrap(), "good");

    let other = reqwest::Client::new().post("http://127.0.0.1:1/chat").body("another").build().unwrap();
    assert!(service.oneshot(other).await.is_err(), "no answer to another question");
}

#[tokio::test]
async fn it_stands_in_an_axum_router_and_its_state_lives_in_the_layer() {
    let calls = Arc::new(AtomicU32::new(0));
    let count = calls.clone();
    let handler = async move || match count.fetch_add(1, Ordering::Relaxed) {
        0 => (StatusCode::OK, "hello").into_response(),
        _ => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    };
    let key = |request: &Request<Body>| Some(Key::new("all", request.uri().path().as_bytes()));
    let layer = FallbackLayer::only_last_good(last_good::http(key)).replay(Once).build().unwrap();
    let app = Router::new()
        .route("/a", get(handler.clone()))
        .route("/b", get(handler))
        .layer(ServiceBuilder::new().layer(RespondLayer).layer(layer));
    let addr = serve(app).await;
    let client = reqwest::Client::new();
    let ask = async |path: &str| client.get(format!("http://{addr}{path}")).send().await.unwrap();
    assert_eq!(ask("/a").await.text().await.unwrap(), "hello");
    let degraded = ask("/a").await;
    assert_eq!(degraded.headers()["x-failsoft-degraded"], "last-good");
    assert_eq!(degraded.text().await.unwrap(), "hello");
    assert_eq!(ask("/b").await.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(calls.load(Ordering::Relaxed), 3);
}
