//! The presets as their users write them, over real HTTP.

#![cfg(all(feature = "full", feature = "reqwest-013"))]
#![allow(clippy::unwrap_used, reason = "a test that fails ends here")]

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::{Router, http::StatusCode, routing::post};
use failsoft::{
    breaker::engine::State,
    core::backoff::Jitter,
    prelude::*,
    presets::{HostedModel, Server, Tool},
};
use tower::{Layer, ServiceExt};

/// Gives each request the next of the answers, the last again and again, and counts the requests.
async fn serve(answers: &'static [(u16, &'static str)]) -> (SocketAddr, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let handler = move || {
        let (status, body) = answers[count.fetch_add(1, SeqCst).min(answers.len() - 1)];
        async move { (StatusCode::from_u16(status).unwrap(), [("content-type", "application/json")], body) }
    };
    (listen(Router::new().route("/", post(handler))).await, asked)
}

async fn listen(app: Router) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

fn client() -> reqwest::Client {
    reqwest::Client::builder().retry(reqwest::retry::never()).build().unwrap()
}

fn question(address: SocketAddr) -> reqwest::Request {
    let body = r#"{"model": "m", "messages": [{"role": "user", "content": "Where is Bern?"}]}"#;
    client().post(format!("http://{address}/")).body(body).build().unwrap()
}

fn at_once() -> Backoff {
    Backoff::fixed(Duration::ZERO).jitter(Jitter::None)
}

const BERN: &str = r#"{"choices": [{"message": {"role": "assistant", "content": "{\"city\": \"Bern\"}"}, "finish_reason": "stop"}]}"#;
const STREAMED: &str = "data: {\"choices\": [{\"delta\": {\"content\": \"Bern\"}, \"finish_reason\": \"stop\"}]}\n\ndata: [DONE]\n\n";
const EMPTY: &str =
    r#"{"choices": [{"message": {"role": "assistant", "content": ""}, "finish_reason": "stop"}]}"#;

#[tokio::test]
async fn a_hosted_model_is_asked_again_after_a_503_and_after_an_empty_answer() {
    let (address, asked) = serve(&[(503, "{}"), (200, EMPTY), (200, BERN)]).await;
    let layer = HostedModel::new("eu")
        .retry(|retry| retry.backoff(at_once()))
        .validate(|validate| validate.json_object().require("/city"))
        .build()
        .unwrap();
    let response = layer.layer(client()).oneshot(question(address)).await.unwrap();
    assert_eq!(response.text().await.unwrap(), BERN);
    assert_eq!(asked.load(SeqCst), 3);
    assert_eq!(layer.circuit().name(), Some("eu"));
}

#[tokio::test]
async fn a_hosted_model_that_leaves_out_a_field_fails_with_its_name() {
    let (address, asked) = serve(&[(200, BERN)]).await;
    let layer =
        HostedModel::new("eu").validate(|validate| validate.json_object().require("/lake")).build().unwrap();
    let err = layer.layer(client()).oneshot(question(address)).await.unwrap_err();
    let fault = Fault::find(&*err).unwrap();
    assert_eq!((fault.class(), fault.target()), (Class::Soft(SoftKind::MissingField), Some("eu")));
    assert_eq!(asked.load(SeqCst), 1, "the same request would miss it again");
}

#[tokio::test(start_paused = true)]
async fn a_reasoning_model_may_think_for_minutes_over_a_whole_answer_and_for_one_over_a_stream() {
    let ask = async |layer: HostedModel, body: &'static str, kind: &'static str, thinks: u64| {
        let model = layer.retry(|retry| retry.max_retries(0)).build().unwrap().layer(tower::service_fn(
            move |_: http::Request<String>| async move {
                tokio::time::sleep(Duration::from_secs(thinks)).await;
                let answer = if kind == "application/json" { BERN } else { STREAMED };
                let response = http::Response::builder().header("content-type", kind);
                Ok::<_, BoxError>(response.body(http_body_util::Full::<bytes::Bytes>::from(answer))?)
            },
        ));
        match model.oneshot(http::Request::new(body.to_owned())).await {
            Ok(response) => Insight::of(response.extensions())
                .unwrap()
                .facts()
                .slow
                .first_content
                .map_or("in time", |_| "slow"),
            Err(err) => Fault::find(&*err).unwrap().class().as_str(),
        }
    };
    let (whole, stream) = (r#"{"messages": []}"#, r#"{"messages": [], "stream": true}"#);
    for model in [HostedModel::new, HostedModel::reasoning] {
        assert_eq!(ask(model("eu"), whole, "application/json", 600).await, "in time");
    }
    for (thinks, outcome) in [(45, "in time"), (46, "slow"), (61, "timeout.first_content")] {
        assert_eq!(ask(HostedModel::reasoning("eu"), stream, "text/event-stream", thinks).await, outcome);
    }
}

#[tokio::test(start_paused = true)]
async fn whole_answers_that_take_their_time_do_not_shut_a_model_out() {
    for (preset, takes, state) in [
        (HostedModel::new("eu"), 20, State::Closed),
        (HostedModel::new("eu"), 61, State::Open),
        (HostedModel::reasoning("eu"), 200, State::Closed),
        (HostedModel::reasoning("eu"), 301, State::Open),
    ] {
        let layer = preset.build().unwrap();
        let model = layer.layer(tower::service_fn(move |_: http::Request<String>| async move {
            tokio::time::sleep(Duration::from_secs(takes)).await;
            Ok::<_, std::io::Error>(http::Response::new(http_body_util::Full::<bytes::Bytes>::from(BERN)))
        }));
        let ask = || model.clone().oneshot(http::Request::new(r#"{"messages": []}"#.to_owned()));
        for answer in futures_util::future::join_all((0..20).map(|_| ask())).await {
            assert!(answer.unwrap().status().is_success());
        }
        assert_eq!(layer.circuit().state(), state, "{takes} s");
    }
}

/// Reads each request and hangs up: whether it was carried out, nobody knows.
async fn silent() -> (SocketAddr, Arc<AtomicUsize>) {
    use tokio::io::AsyncReadExt as _;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            count.fetch_add(1, SeqCst);
            let _ = socket.read(&mut [0; 4096]).await;
        }
    });
    (address, asked)
}

#[tokio::test]
async fn a_tool_is_not_called_again_after_silence_unless_it_only_reads() {
    for (tool, requests) in [(Tool::new("booking"), 1), (Tool::new("search").read_only(), 3)] {
        let (address, asked) = silent().await;
        let layer = tool.retry(|retry| retry.backoff(at_once())).build().unwrap();
        layer.layer(client()).oneshot(question(address)).await.unwrap_err();
        assert_eq!(asked.load(SeqCst), requests);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_hangs_is_left_alone_after_five_attempts() {
    for (preset, calls) in [(Tool::new("booking"), 5), (Tool::new("search").read_only(), 3)] {
        let layer = preset.retry(|retry| retry.backoff(at_once())).build().unwrap();
        let tool = layer.layer(tower::service_fn(async |_: http::Request<String>| {
            std::future::pending::<Result<http::Response<String>, std::io::Error>>().await
        }));
        for _ in 0..calls {
            assert_eq!(layer.circuit().state(), State::Closed);
            let request = http::Request::post("/").body(String::new()).unwrap();
            let err = tool.clone().oneshot(request).await.unwrap_err();
            assert!(matches!(Fault::find(&*err).unwrap().class(), Class::Timeout(_)));
        }
        assert_eq!(layer.circuit().state(), State::Open);
    }
}

#[tokio::test]
async fn a_server_tells_its_callers_when_to_come_back() {
    let layer =
        Server::new("chat").breaker(|breaker| breaker.consecutive_failures(1).jitter(0.0)).build().unwrap();
    let circuit = layer.circuit().clone();
    let handler = async || StatusCode::INTERNAL_SERVER_ERROR;
    let address = listen(Router::new().route("/", post(handler).layer(layer))).await;

    // The handler's own answer is handed on.
    assert_eq!(client().execute(question(address)).await.unwrap().status(), 500);
    assert_eq!(circuit.state(), State::Open);

    let refused = client().execute(question(address)).await.unwrap();
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.headers()["x-should-retry"], "false");
    let advice: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=30).contains(&advice), "{advice}");
    let body: serde_json::Value = serde_json::from_str(&refused.text().await.unwrap()).unwrap();
    assert!(body.is_object(), "{body}");
}

#[tokio::test]
async fn a_servers_deadline_reaches_what_it_calls() {
    let layer = Server::new("chat").timeout(Duration::from_secs(7)).build().unwrap();
    let handler = async || Call::current_deadline().is_some().to_string();
    let address = listen(Router::new().route("/", post(handler).layer(layer))).await;
    assert_eq!(client().execute(question(address)).await.unwrap().text().await.unwrap(), "true");
}

#[test]
fn a_setting_that_cannot_work_is_named() {
    let err = HostedModel::new("eu").breaker(|breaker| breaker.failure_rate(2.0)).build().unwrap_err();
    assert_eq!(err.field(), "failure_rate");
    assert!(Tool::new(" ").build().is_err());
    assert!(Server::new("chat").breaker(|breaker| breaker.soft_weight(0.0)).build().is_err());
}
