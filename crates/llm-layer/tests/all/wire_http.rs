//! Around a real client, over real sockets.

#![cfg(feature = "reqwest-013")]

use std::{convert::Infallible, time::Duration};

use axum::{Router, body::Body, response::Response, routing::post};
use bytes::Bytes;
use failsoft_core::{BoxError, ByResponse, Class, Classify, Insight, Step, Verdict};
use futures_util::{StreamExt as _, stream};
use llm_layer::{LlmLayer, Provider};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use tower::{ServiceBuilder, ServiceExt};

const GOOD: &str =
    "{\"choices\": [{\"message\": {\"content\": \"Pâris\"},\n \"finish_reason\": \"stop\"}]}  ";

async fn serve(app: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}/v1/chat/completions")
}

/// Answers every connection with these bytes, and hangs up.
async fn serve_raw(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = socket.read(&mut request).await;
            let _ = socket.write_all(answer.as_bytes()).await;
        }
    });
    format!("http://{address}/v1/chat/completions")
}

async fn ask(url: &str) -> Result<reqwest::Response, BoxError> {
    ask_with(url, r#"{"messages": []}"#).await
}

async fn ask_with(url: &str, body: &'static str) -> Result<reqwest::Response, BoxError> {
    let service = ServiceBuilder::new()
        .layer(LlmLayer::new(Provider::OpenAiCompatible))
        .service(reqwest::Client::new());
    let request = reqwest::Client::new().post(url).body(body).build()?;
    service.oneshot(request).await
}

fn class(response: &reqwest::Response) -> Option<Class> {
    Insight::of(response.extensions()).and_then(Insight::verdict).map(|verdict| verdict.class())
}

#[tokio::test]
async fn an_answer_that_comes_in_pieces_passes_byte_for_byte_and_its_url_survives() {
    let app = Router::new().route(
        "/v1/chat/completions",
        post(async || {
            let pieces = stream::iter(GOOD.as_bytes().chunks(7)).then(async |piece| {
                tokio::task::yield_now().await;
                Ok::<_, Infallible>(Bytes::from_static(piece))
            });
            Response::builder()
                .header("content-type", "application/json")
                .header("x-request-id", "r1")
                .body(Body::from_stream(pieces))
                .unwrap()
        }),
    );
    let url = serve(app).await;
    let response = ask(&url).await.unwrap();
    assert_eq!(class(&response), Some(Class::Success));
    assert_eq!(response.url().as_str(), url);
    assert_eq!(response.headers()["x-request-id"], "r1");
    assert_eq!(response.bytes().await.unwrap(), GOOD);
}

#[tokio::test]
async fn an_error_keeps_its_body_and_the_default_classifier_sees_what_it_says() {
    let body = r#"{"error":{"code":"insufficient_quota","message":"x"}}"#;
    let app = Router::new().route(
        "/v1/chat/completions",
        post(async move || {
            Response::builder().status(429).header("retry-after", "9").body(Body::from(body)).unwrap()
        }),
    );
    let response = ask(&serve(app).await).await.unwrap();
    let Step::Now(verdict) = ByResponse.response(&response) else { panic!("a verdict now") };
    assert_eq!((verdict.class(), verdict.retry_after()), (Class::Quota, Some(Duration::from_secs(9))));
    assert_eq!((response.status().as_u16(), response.text().await.unwrap().as_str()), (429, body));
}

#[tokio::test]
async fn a_body_that_is_cut_on_the_way_is_the_clients_own_transient_error() {
    let url =
        serve_raw("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{\"cho")
            .await;
    let err = ask(&url).await.map(drop).unwrap_err();
    assert!(err.is::<reqwest::Error>(), "{err:?}");
    assert_eq!(Verdict::of_error(&*err).class(), Class::Transient);
}

#[tokio::test]
async fn an_answer_that_ends_cleanly_in_the_middle_is_transient() {
    let url = serve_raw(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n{\"choices\": [",
    )
    .await;
    let response = ask(&url).await.unwrap();
    assert_eq!(class(&response), Some(Class::Transient));
    assert_eq!(response.text().await.unwrap(), "{\"choices\": [");
}

#[tokio::test]
async fn an_event_stream_is_handed_on_at_its_first_content() {
    const FIRST: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
    let app = Router::new().route(
        "/v1/chat/completions",
        post(async || {
            let first = stream::iter([Ok::<_, Infallible>(Bytes::from(FIRST))]);
            let body = Body::from_stream(first.chain(stream::pending()));
            Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
        }),
    );
    let url = serve(app).await;
    let mut response = ask_with(&url, r#"{"messages": [], "stream": true}"#).await.unwrap();
    assert_eq!(class(&response), None);
    assert_eq!(response.chunk().await.unwrap().unwrap(), FIRST);
    // Also one that nobody asked for, but it is no answer.
    let mut response = ask(&url).await.unwrap();
    assert_eq!(class(&response), Some(Class::Transient));
    assert_eq!(response.chunk().await.unwrap().unwrap(), FIRST);
}
