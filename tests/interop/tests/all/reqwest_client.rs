//! Tower's layers around and between ours over a `reqwest::Client`, as one writes it for a model.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::{Router, http::StatusCode, response::IntoResponse, routing::post};
use breaker_layer::engine::State;
use budget_layer::BudgetLayer;
use failsoft_core::{Backoff, BoxError, Call, CarryLayer, Fault, Insight, Jitter, Next, UncarryLayer};
use fallback_layer::{BoxRoute, FallbackLayer, Route};
use futures_util::future::join_all;
use llm_layer::{LlmLayer, Provider};
use retry_layer::RetryLayer;
use tower::{Layer as _, Service, ServiceBuilder, ServiceExt as _};
use validate_layer::ValidateLayer;

use crate::breaker;

const ANSWER: &str = r#"{"id":"c1","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"{\"city\": \"Bern\"}"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":12}}"#;
const STREAM: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Bern\"}}]}\n\n\
    data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1}}\n\n\
    data: [DONE]\n\n";

/// A model that has no room at first, so many times; how often it was asked, and how many asked at once at most.
#[derive(Clone, Default)]
struct Model {
    asked: Arc<AtomicUsize>,
    running: Arc<AtomicUsize>,
    at_most: Arc<AtomicUsize>,
}

impl Model {
    async fn serve(&self, busy: usize) -> String {
        let model = self.clone();
        let answer = async move |body: String| {
            model.at_most.fetch_max(model.running.fetch_add(1, SeqCst) + 1, SeqCst);
            tokio::task::yield_now().await;
            let response = if model.asked.fetch_add(1, SeqCst) < busy {
                (StatusCode::SERVICE_UNAVAILABLE, [("content-type", "application/json")], r#"{"error":{}}"#)
            } else if body.contains("stream") {
                (StatusCode::OK, [("content-type", "text/event-stream")], STREAM)
            } else {
                (StatusCode::OK, [("content-type", "application/json")], ANSWER)
            };
            model.running.fetch_sub(1, SeqCst);
            response.into_response()
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1/chat/completions", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(post(answer))).await });
        url
    }
}

fn client() -> reqwest::Client {
    reqwest::Client::builder().retry(reqwest::retry::never()).build().unwrap()
}

fn chat(url: &str, body: &'static str) -> reqwest::Request {
    client().post(url).body(body).build().unwrap()
}

fn at_once() -> RetryLayer {
    let backoff = Backoff::fixed(Duration::ZERO).jitter(Jitter::None);
    RetryLayer::builder().backoff(backoff).repeat_unanswered(true).build().unwrap()
}

/// buffer(timeout(limit(budget(retry(breaker(validate(llm(client)))))))).
#[tokio::test]
async fn a_whole_stack_behind_a_buffer_serves_many_callers_and_keeps_the_books() {
    let model = Model::default();
    let url = model.serve(1).await;
    let (breaker, circuit) = breaker(5);
    let budget = BudgetLayer::builder().tokens(10_000).build().unwrap();
    let account = budget.budget().clone();
    let service = ServiceBuilder::new()
        .layer(CarryLayer)
        .buffer(16)
        .layer(UncarryLayer)
        .timeout(Duration::from_secs(60))
        .concurrency_limit(2)
        .layer(budget)
        .layer(at_once())
        .layer(breaker)
        .layer(ValidateLayer::builder().require("/city").build().unwrap())
        .layer(LlmLayer::new(Provider::OpenAiCompatible))
        .service(client());
    let call = Call::begin();
    let calls = (0..8).map(|_| {
        let request = chat(&url, r#"{"messages":[]}"#);
        let answer = call.scope(service.clone().oneshot(request));
        async move { answer.await.unwrap().text().await.unwrap() }
    });
    assert!(join_all(calls).await.iter().all(|text| text == ANSWER));
    assert_eq!((circuit.state(), circuit.counts().total, circuit.counts().failed), (State::Closed, 9, 1));
    assert!(model.at_most.load(SeqCst) <= 2);
    // Eight answers of 21 tokens; what the refused attempt cost is known to be nothing.
    assert_eq!((account.spent(), account.reserved(), call.usage().total()), (168, 0, 168));
    assert_eq!(call.trail().attempts().iter().filter(|attempt| attempt.next == Next::Retry).count(), 1);
}

/// A limit around the call ends with the first content: what follows of the stream has its own.
#[tokio::test]
async fn a_timeout_around_a_stream_bounds_its_first_content_and_the_answer_goes_on() {
    let model = Model::default();
    let url = model.serve(1).await;
    let (breaker, circuit) = breaker(5);
    let mut service = ServiceBuilder::new()
        .load_shed()
        .concurrency_limit(1)
        .timeout(Duration::from_secs(60))
        .layer(at_once())
        .layer(breaker)
        .layer(LlmLayer::new(Provider::OpenAiCompatible))
        .service(client());
    let request = chat(&url, r#"{"messages":[],"stream":true}"#);
    let response = service.ready().await.unwrap().call(request).await.unwrap();
    let insight = Insight::of(response.extensions()).unwrap().clone();
    assert_eq!(response.text().await.unwrap(), STREAM);
    assert!(insight.verdict().unwrap().is_success());
    assert_eq!((circuit.counts().total, circuit.counts().failed), (2, 1));
}

/// Where each route has its own limit, the call goes to the one that has room, in a box that a task may own.
#[tokio::test]
async fn routes_with_limits_of_their_own_behind_a_fallback_in_a_task() {
    let (first, second) = (Model::default(), Model::default());
    let urls = [first.serve(100).await, second.serve(0).await];
    let route = |url: &str| {
        let url = reqwest::Url::parse(url).unwrap();
        BoxRoute::new(
            ServiceBuilder::new()
                .load_shed()
                .concurrency_limit(1)
                .timeout(Duration::from_secs(60))
                .layer(LlmLayer::new(Provider::OpenAiCompatible))
                .map_request(move |mut request: reqwest::Request| {
                    *request.url_mut() = url.clone();
                    request
                })
                .service(client()),
        )
    };
    let layer = FallbackLayer::builder().route(Route::new("second", route(&urls[1]))).build().unwrap();
    let service = layer.layer(route(&urls[0]));
    let request = chat(&urls[0], r#"{"messages":[]}"#);
    // An `async` block that holds the service over an await: what a boxed service of tower's would not allow here.
    let text = tokio::spawn(async move {
        let response = service.oneshot(request).await?;
        Ok::<_, BoxError>(response.text().await?)
    });
    assert_eq!(text.await.unwrap().unwrap(), ANSWER);
    assert_eq!((first.asked.load(SeqCst), second.asked.load(SeqCst)), (1, 1));
}

#[tokio::test]
async fn what_a_buffer_hands_on_of_a_denial_is_a_fault_with_its_advice() {
    let (breaker, circuit) = breaker(5);
    circuit.open_for(Duration::from_secs(30)).unwrap();
    let service = ServiceBuilder::new()
        .layer(at_once())
        .buffer(4)
        .timeout(Duration::from_secs(60))
        .layer(breaker)
        .service(client());
    let error = service.oneshot(chat("http://127.0.0.1:9/", "")).await.err().unwrap();
    let fault = Fault::find(&*error).unwrap();
    assert!(
        fault.class().is_denied() && fault.retry_after().is_some_and(|left| left > Duration::from_secs(20))
    );
}
