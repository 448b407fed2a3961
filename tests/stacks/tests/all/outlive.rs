//! What outlives a call: a body that another task reads, or that its reader drops at the protocol's own end.

use std::time::Duration;

use axum::{
    Router,
    body::Body,
    http::{HeaderValue, Request, Response},
    routing::post,
};
use breaker_layer::{BreakerLayer, Circuit, engine::State};
use budget_layer::{Budget, BudgetLayer};
use bytes::Bytes;
use failsoft_core::BoxError;
use futures_util::{StreamExt as _, stream};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use llm_layer::{LlmLayer, Provider};
use retry_layer::RetryLayer;
use tower::{ServiceBuilder, ServiceExt};

const EVENTS: [&str; 4] = [
    "data: {\"choices\":[{\"delta\":{\"content\":\"Be\"}}]}\n\n",
    "data: {\"choices\":[{\"delta\":{\"content\":\"rn\"}}]}\n\n",
    "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2}}\n\n",
    "data: [DONE]\n\n",
];

/// Streams the events one write each, and then keeps the socket open.
async fn serve() -> String {
    let answer = || async {
        let events = stream::iter(EVENTS).then(|event| async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok::<_, BoxError>(Bytes::from_static(event.as_bytes()))
        });
        let body = Body::from_stream(events.chain(stream::pending()));
        ([("content-type", "text/event-stream")], body)
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/", post(answer))).await });
    url
}

/// budget(retry(breaker(llm(client)))).
struct Stack {
    circuit: Circuit,
    budget: Budget,
    response: reqwest::Response,
}

async fn ask() -> Stack {
    let url = serve().await;
    let breaker = BreakerLayer::builder().name("eu").build().unwrap();
    let circuit = breaker.circuit().clone();
    let layer = BudgetLayer::builder().build().unwrap();
    let budget = layer.budget().clone();
    let service = ServiceBuilder::new()
        .layer(layer)
        .layer(RetryLayer::builder().repeat_unanswered(true).build().unwrap())
        .layer(breaker)
        .layer(LlmLayer::new(Provider::OpenAiCompatible))
        .service(reqwest::Client::new());
    circuit.half_open().unwrap();
    let body = r#"{"messages":[],"stream":true}"#;
    let request = reqwest::Client::new().post(url).body(body).build().unwrap();
    let response = service.oneshot(request).await.unwrap();
    Stack { circuit, budget, response }
}

async fn read_to_done(mut response: reqwest::Response) {
    let mut read = Vec::new();
    while !read.ends_with(b"[DONE]\n\n") {
        read.extend(response.chunk().await.unwrap().unwrap());
    }
    // As async-openai does: the rest, and the end of the body, are nobody's business.
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_dropped_at_its_own_end_is_a_success_and_is_settled_to_the_bill() {
    let Stack { circuit, budget, response } = ask().await;
    assert!(budget.reserved() > 0);
    read_to_done(response).await;
    assert_eq!((budget.spent(), budget.reserved(), budget.spend().unknown()), (11, 0, 0));
    let counts = circuit.counts();
    assert_eq!((counts.total, counts.failed), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_another_task_reads_settles_once() {
    let Stack { circuit, budget, response } = ask().await;
    tokio::spawn(read_to_done(response)).await.unwrap();
    assert_eq!((budget.spent(), budget.reserved(), budget.spend().calls()), (11, 0, 1));
    assert_eq!(circuit.counts().total, 1);
}

#[tokio::test(start_paused = true)]
async fn probes_whose_streams_outlast_the_lease_close_the_circuit() {
    let breaker = BreakerLayer::builder().lease(Duration::from_secs(10)).build().unwrap();
    let circuit = breaker.circuit().clone();
    let service = ServiceBuilder::new()
        .layer(breaker)
        .layer(LlmLayer::new(Provider::OpenAiCompatible))
        .service_fn(|_: Request<&'static str>| async {
            // 9 s between the pieces, and 36 s for the whole.
            let events = stream::iter(EVENTS).then(|event| async move {
                tokio::time::sleep(Duration::from_secs(9)).await;
                Ok::<_, BoxError>(Frame::data(Bytes::from_static(event.as_bytes())))
            });
            let mut response = Response::new(StreamBody::new(Box::pin(events)));
            response.headers_mut().insert("content-type", HeaderValue::from_static("text/event-stream"));
            Ok::<_, BoxError>(response)
        });
    circuit.half_open().unwrap();
    let probe = || {
        let service = service.clone();
        async move {
            let request = Request::new(r#"{"messages":[],"stream":true}"#);
            service.oneshot(request).await.unwrap().into_body().collect().await.unwrap();
        }
    };
    tokio::join!(probe(), probe(), probe());
    assert_eq!(circuit.state(), State::Closed);
}
