//! Streamed answers through layers that know nothing of streams.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, routing::post};
use breaker_layer::{BreakerLayer, Circuit};
use failsoft_core::{BoxError, Class, Fault, SoftKind};
use llm_layer::LlmLayer;
use retry_layer::RetryLayer;
use tower::{ServiceBuilder, ServiceExt};
use validate_layer::ValidateLayer;

const START: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"{\\\"city\\\": \"}}]}\n\n";
const GOOD: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"\\\"Bern\\\"}\"}}]}\n\n\
    data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
const NULL: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"null}\"}}]}\n\n\
    data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
const ERROR: &str = "data: {\"error\":{\"type\":\"overloaded_error\"}}\n\n";

/// Answers with these streams, one after the other; what it counts is requests.
async fn serve(answers: [String; 2]) -> (String, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    let answer = async move || {
        let at = count.fetch_add(1, Ordering::SeqCst);
        ([("content-type", "text/event-stream")], answers[at % 2].clone())
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/", post(answer))).await });
    (url, requests)
}

/// retry(breaker(validate(llm(client)))), without a wait between attempts.
async fn ask(llm: LlmLayer, url: &str) -> (Result<reqwest::Response, BoxError>, Circuit) {
    let breaker = BreakerLayer::builder().name("eu").build().unwrap();
    let circuit = breaker.circuit().clone();
    let retry = RetryLayer::builder()
        .max_retries(1)
        .backoff(failsoft_core::Backoff::fixed(Duration::ZERO))
        .repeat_unanswered(true)
        .build()
        .unwrap();
    let service = ServiceBuilder::new()
        .layer(retry)
        .layer(breaker)
        .layer(ValidateLayer::builder().name("eu").require("/city").build().unwrap())
        .layer(llm)
        .service(reqwest::Client::new());
    let request = reqwest::Client::new().post(url).body(r#"{"messages":[],"stream":true}"#).build().unwrap();
    (service.oneshot(request).await, circuit)
}

fn holding() -> LlmLayer {
    LlmLayer::builder().name("eu").hold_to_end(1 << 20).build().unwrap()
}

#[tokio::test]
async fn a_stream_that_fails_before_its_content_is_asked_for_again() {
    let (url, requests) = serve([ERROR.to_owned(), [START, GOOD].concat()]).await;
    let llm = LlmLayer::builder().name("eu").build().unwrap();
    let (response, circuit) = ask(llm, &url).await;
    assert_eq!(response.unwrap().text().await.unwrap(), [START, GOOD].concat());
    assert_eq!(requests.load(Ordering::SeqCst), 2);
    assert_eq!((circuit.counts().total, circuit.counts().failed), (2, 1));
}

#[tokio::test]
async fn a_stream_that_fails_after_its_content_is_not() {
    let (url, requests) = serve([[START, ERROR].concat(), [START, GOOD].concat()]).await;
    let llm = LlmLayer::builder().name("eu").build().unwrap();
    let (response, circuit) = ask(llm, &url).await;
    let err = response.unwrap().text().await.unwrap_err();
    assert_eq!(Fault::find(&err).map(|fault| fault.class()), Some(Class::Overloaded));
    assert_eq!(requests.load(Ordering::SeqCst), 1);
    assert_eq!((circuit.counts().total, circuit.counts().failed), (1, 1));
}

#[tokio::test]
async fn held_to_its_end_a_stream_that_breaks_anywhere_is_asked_for_again() {
    let (url, requests) = serve([[START, ERROR].concat(), [START, GOOD].concat()]).await;
    let (response, _) = ask(holding(), &url).await;
    assert_eq!(response.unwrap().text().await.unwrap(), [START, GOOD].concat());
    assert_eq!(requests.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn held_to_its_end_a_stream_is_checked_like_any_answer() {
    let wrong = [START, NULL].concat();
    let (url, requests) = serve([wrong.clone(), wrong]).await;
    let (response, _) = ask(holding(), &url).await;
    let err = response.unwrap_err();
    let fault = Fault::find(&*err).unwrap();
    assert_eq!(fault.class(), Class::Soft(SoftKind::MissingField));
    assert_eq!(fault.report().unwrap().findings()[0].path(), Some("/city"));
    assert_eq!(requests.load(Ordering::SeqCst), 1, "only a changed request can help");
}
