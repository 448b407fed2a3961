//! Answers that validate around llm lets through, as the README puts them.

use std::time::Duration;

use axum::http::{Request, Response};
use breaker_layer::{BreakerLayer, engine::State};
use bytes::Bytes;
use failsoft_core::{BoxError, Class, Limit, SoftKind, Verdict};
use http_body::Frame;
use http_body_util::{Full, StreamBody};
use llm_layer::{LlmLayer, Provider};
use tower::{ServiceBuilder, ServiceExt, timeout::TimeoutLayer};
use validate_layer::ValidateLayer;

const GOOD: &str =
    r#"{"choices": [{"message": {"content": "{\"city\": \"Bern\"}"}, "finish_reason": "stop"}]}"#;

async fn class(request: &'static str, response: Response<Full<Bytes>>) -> Class {
    let mut response = Some(response);
    let stack = ServiceBuilder::new()
        .layer(ValidateLayer::builder().json_object().require("/city").build().unwrap())
        .layer(LlmLayer::new(Provider::OpenAiCompatible))
        .service_fn(move |_: Request<String>| {
            std::future::ready(response.take().ok_or_else(|| BoxError::from("one call")))
        });
    match stack.oneshot(Request::new(request.to_owned())).await {
        Ok(_) => Class::Success,
        Err(err) => Verdict::of_error(&*err).class(),
    }
}

fn json(body: &'static str) -> Response<Full<Bytes>> {
    Response::builder().header("content-type", "application/json").body(Full::from(body)).unwrap()
}

#[tokio::test]
async fn a_call_of_a_tool_that_takes_free_text_is_an_answer() {
    let request = r#"{"messages": [], "tools": [{"type": "custom", "custom": {"name": "sql"}}]}"#;
    let call = json(
        r#"{"choices": [{"finish_reason": "tool_calls", "message": {"content": null, "tool_calls":
            [{"id": "1", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}]}}]}"#,
    );
    assert_eq!(class(request, call).await, Class::Success);
    let unknown = json(
        r#"{"choices": [{"finish_reason": "tool_calls", "message": {"content": null, "tool_calls":
            [{"id": "1", "type": "custom", "custom": {"name": "rm", "input": "select 1"}}]}}]}"#,
    );
    assert_eq!(class(request, unknown).await, Class::Soft(SoftKind::UnknownTool));
}

#[tokio::test]
async fn a_good_answer_is_one_whatever_its_head_says_of_its_form() {
    for (name, value) in [
        ("content-encoding", ""),
        ("content-encoding", "Identity"),
        ("content-encoding", "utf-8"),
        ("content-type", "application/octet-stream"),
        ("content-type", "text/plain"),
    ] {
        let mut response = json(GOOD);
        response.headers_mut().insert(name, value.parse().unwrap());
        assert_eq!(class(r#"{"messages": []}"#, response).await, Class::Success, "{name}: {value}");
    }
}

#[tokio::test]
async fn a_success_without_an_answer_in_it_is_none() {
    for status in [204, 205] {
        let mut response = json("");
        *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
        assert_eq!(class(r#"{"messages": []}"#, response).await, Class::Soft(SoftKind::Empty), "{status}");
    }
    let mut stream = json("data: {}\n\n");
    stream.headers_mut().insert("content-type", "text/event-stream".parse().unwrap());
    assert_eq!(class(r#"{"messages": []}"#, stream).await, Class::Transient);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stalls_runs_into_a_limit_around_its_reader_and_counts() {
    let breaker = BreakerLayer::builder().min_calls(3).build().unwrap();
    let circuit = breaker.circuit().clone();
    let stack = ServiceBuilder::new()
        .layer(breaker)
        .layer(TimeoutLayer::new(Duration::from_secs(1)))
        .layer(ValidateLayer::builder().build().unwrap())
        .layer(LlmLayer::new(Provider::OpenAiCompatible))
        .service_fn(|_: Request<String>| {
            let stalls = StreamBody::new(futures_util::stream::pending::<Result<Frame<Bytes>, BoxError>>());
            std::future::ready(Ok::<_, BoxError>(Response::new(stalls)))
        });
    for _ in 0..3 {
        let err = stack.clone().oneshot(Request::new(r#"{"messages": []}"#.to_owned())).await.unwrap_err();
        assert_eq!(Verdict::of_error(&*err).class(), Class::Timeout(Limit::Total));
    }
    assert_eq!(circuit.state(), State::Open);
}
