//! Over real sockets: axum answers, reqwest asks.

#![cfg(feature = "reqwest-013")]

use std::{convert::Infallible, time::Duration};

use axum::{Router, body::Body, routing::get};
use bytes::Bytes;
use failsoft_core::{BoxError, Class, Fault, Insight, SoftKind, Verdict};
use futures_util::stream;
use http::StatusCode;
use tower::{Layer as _, Service, ServiceExt as _};
use validate_layer::{Validate, ValidateLayer};

const ANSWER: &str = "{\"city\": \"Zürich\", \"note\": \"日本語 🙂\" }\n";

async fn serve() -> String {
    let router = Router::new()
        .route("/good", get(|| async { ([("x-kept", "1")], ANSWER) }))
        .route("/slow", get(|| async { pieces(false) }))
        .route("/cut", get(|| async { pieces(true) }))
        .route("/half", get(|| async { &ANSWER[..11] }))
        .route("/empty", get(|| async { "" }))
        .route("/busy", get(|| async { (StatusCode::SERVICE_UNAVAILABLE, "{\"error\": \"busy\"}") }))
        .route("/events", get(|| async { ([("content-type", "text/event-stream")], "data: x\n\n") }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    url
}

/// The answer byte by byte, each its own write; half of it, and then an error.
fn pieces(cut: bool) -> Body {
    let bytes = ANSWER.as_bytes();
    let end = if cut { bytes.len() / 2 } else { bytes.len() };
    Body::from_stream(stream::unfold(0, move |at| async move {
        tokio::time::sleep(Duration::from_millis(1)).await;
        match bytes.get(at..=at) {
            Some(piece) if at < end => Some((Ok(Bytes::from_static(piece)), at + 1)),
            None => None,
            Some(_) => Some((Err(std::io::Error::other("cut")), at)),
        }
    }))
}

async fn ask(url: &str, path: &str) -> Result<reqwest::Response, BoxError> {
    let layer = ValidateLayer::builder().name("weather").json_object().require("/city").build()?;
    let mut service: Validate<reqwest::Client> = layer.layer(reqwest::Client::new());
    let request = reqwest::Request::new(reqwest::Method::GET, format!("{url}{path}").parse()?);
    service.ready().await?.call(request).await
}

#[tokio::test]
async fn a_good_answer_arrives_byte_for_byte_with_its_url_and_headers() {
    let url = serve().await;
    for path in ["/good", "/slow"] {
        let response = ask(&url, path).await.unwrap();
        assert_eq!(response.url().as_str(), format!("{url}{path}"));
        assert_eq!(Insight::of(response.extensions()).unwrap().verdict(), Some(Verdict::SUCCESS));
        assert_eq!(response.headers().contains_key("x-kept"), path == "/good");
        assert_eq!(response.bytes().await.unwrap(), ANSWER);
    }
}

#[tokio::test]
async fn a_wrong_answer_is_an_error() {
    let url = serve().await;
    for (path, kind) in [("/half", SoftKind::Malformed), ("/empty", SoftKind::Empty)] {
        let err = ask(&url, path).await.unwrap_err();
        let fault = Fault::find(&*err).unwrap();
        assert_eq!((fault.class(), fault.target()), (Class::Soft(kind), Some("weather")));
    }
}

#[tokio::test]
async fn a_cut_body_is_reqwests_own_error_and_transient() {
    let url = serve().await;
    let err = ask(&url, "/cut").await.unwrap_err();
    assert!(err.is::<reqwest::Error>(), "{err:?}");
    assert_eq!(Verdict::of_error(&*err).class(), Class::Transient);
}

#[tokio::test]
async fn an_error_status_and_a_stream_pass_untouched_with_their_url() {
    let url = serve().await;
    for (path, status, body) in [("/busy", 503, "{\"error\": \"busy\"}"), ("/events", 200, "data: x\n\n")] {
        let response = ask(&url, path).await.unwrap();
        assert_eq!(response.status().as_u16(), status);
        assert_eq!(response.url().as_str(), format!("{url}{path}"));
        assert_eq!(response.content_length(), Some(body.len() as u64));
        assert_eq!(response.text().await.unwrap(), body);
    }
}

#[tokio::test]
async fn dropped_while_a_body_is_held_the_call_lets_go_of_its_socket() {
    // Dropped with the body.
    let (open, mut began) = tokio::sync::mpsc::channel::<()>(1);
    let endless = get(async move || {
        open.send(()).await.unwrap();
        Body::from_stream(stream::unfold(open.clone(), |open| async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Some((Ok::<_, Infallible>(Bytes::from_static(b" ")), open))
        }))
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move { axum::serve(listener, Router::new().route("/", endless)).await });
    let mut call = Box::pin(ask(&url, "/"));
    tokio::select! {
        ended = &mut call => panic!("{ended:?}"),
        told = began.recv() => told.unwrap(),
    }
    drop(call);
    server.abort();
    let closed = tokio::time::timeout(Duration::from_secs(30), began.recv()).await;
    assert_eq!(closed.expect("the server sees the socket close"), None, "nobody sends any more");
}
