//! What an agent is told of a tool that is refused or fails.
#![cfg(not(failsoft_loom))]

use std::convert::Infallible;
use std::time::Duration;

use breaker_layer::{BreakerLayer, Keyed, KeyedBreakerLayer, presets};
use failsoft_core::{BoxError, ByResponse, ErrorsOnly, ObserveLayer};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tower::{Service, ServiceBuilder, ServiceExt};

const SECOND: Duration = Duration::from_secs(1);

struct ToolCall {
    tool: &'static str,
    fails: bool,
}

fn tools() -> KeyedBreakerLayer<impl Keyed<ToolCall> + Clone, ErrorsOnly> {
    presets::tool()
        .name("tools")
        .classify(ErrorsOnly)
        .jitter(0.0)
        .key_fn(|call: &ToolCall| call.tool)
        .build()
        .unwrap()
}

async fn answer(call: ToolCall) -> Result<String, BoxError> {
    tokio::time::sleep(SECOND).await;
    if call.fails { Err("connection refused at /srv/secret".into()) } else { Ok("sunny".to_owned()) }
}

/// What the agent is told, as JSON.
async fn ask<S>(service: &mut S, tool: &'static str, fails: bool) -> serde_json::Value
where
    S: Service<ToolCall, Response = String, Error = Infallible>,
{
    let Ok(service) = service.ready().await;
    let Ok(answer) = service.call(ToolCall { tool, fails }).await;
    serde_json::from_str(&answer).unwrap_or_else(|_| answer.into())
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_is_told_as_open_or_as_probing_and_a_failed_one_as_failed() {
    let layer = tools();
    let circuits = layer.circuits().clone();
    let observe = ObserveLayer::new(|observation| observation.to_json()).tool_fn(|call: &ToolCall| call.tool);
    let mut service = ServiceBuilder::new().layer(observe).layer(layer).service_fn(answer);

    assert_eq!(ask(&mut service, "weather", false).await, "sunny");
    for _ in 0..5 {
        let failed = ask(&mut service, "search", true).await;
        assert_eq!((&failed["error"], &failed["tool"]), (&"TOOL_EXECUTION_FAILURE".into(), &"search".into()));
        assert!(!failed.to_string().contains("secret"), "the tool's own text stays inside: {failed}");
    }
    let open = ask(&mut service, "search", false).await;
    assert_eq!((&open["error"], &open["seconds_left"]), (&"CIRCUIT_BREAKER_OPEN".into(), &30.into()));
    assert!(
        open["instruction"].as_str().unwrap().starts_with("do not call it again for 30 seconds"),
        "{open}"
    );
    assert_eq!(ask(&mut service, "weather", false).await, "sunny", "another tool is as before");

    tokio::time::advance(30 * SECOND).await;
    let probe = tokio::spawn({
        let mut service = service.clone();
        async move { ask(&mut service, "search", false).await }
    });
    tokio::task::yield_now().await;
    let probing = ask(&mut service, "search", false).await;
    assert_eq!(probing["error"], "CIRCUIT_BREAKER_PROBING");
    assert_eq!(probing["seconds_left"], serde_json::Value::Null);
    assert!(
        probing["instruction"].as_str().unwrap().starts_with("call it again in a few seconds"),
        "{probing}"
    );
    assert_eq!(probe.await.unwrap(), "sunny");
    assert_eq!(ask(&mut service, "search", false).await, "sunny");
    assert_eq!(circuits.get("search").unwrap().counts().failed, 0);
}

#[tokio::test(start_paused = true)]
async fn a_tool_behind_http_that_answers_with_an_error_is_told_as_failed() {
    let observe = ObserveLayer::new(|observation| Response::new(Full::new(observation.to_json().into())))
        .classify(ByResponse);
    let layer = BreakerLayer::builder().name("search").build().unwrap();
    let circuit = layer.circuit().clone();
    // the breaker hands on a body that it watches, so both sides of the observer are made one
    let service = ServiceBuilder::new()
        .layer(observe)
        .map_response(|response: Response<_>| {
            let (parts, _) = response.into_parts();
            Response::from_parts(parts, Full::<bytes::Bytes>::from("x"))
        })
        .layer(layer)
        .service_fn(|status: StatusCode| async move {
            Response::builder().status(status).body(Full::<bytes::Bytes>::from("x"))
        });
    let told = async |status| {
        let Ok(response) = service.clone().oneshot(status).await;
        String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
    };
    assert_eq!(told(StatusCode::OK).await, "x");
    assert!(told(StatusCode::BAD_GATEWAY).await.contains("TOOL_EXECUTION_FAILURE"));
    circuit.open().unwrap();
    assert!(told(StatusCode::OK).await.contains("CIRCUIT_BREAKER_OPEN"));
}
