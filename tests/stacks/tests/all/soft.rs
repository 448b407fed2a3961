//! Wrong answers over real HTTP, whole and streamed: none of them reaches the caller, a circuit opens from them alone, and what can be
//! mended is mended in two more calls at most.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    body::Body,
    http::{Response, header::CONTENT_TYPE},
    routing::post,
};
use breaker_layer::{BreakerLayer, engine::State};
use failsoft_core::{Backoff, BoxError, Call, Class, Denier, Fault, Hint, Next, SoftKind, Verdict};
use fallback_layer::{FallbackLayer, Route};
use llm_layer::{LlmLayer, Provider};
use retry_layer::{ReflectLayer, RetryLayer, reflect::chat::ChatReask};
use serde_json::{Value, json};
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use validate_layer::{StreamMode, ValidateBuilder, ValidateLayer};

type Client = tower::util::BoxCloneSyncService<reqwest::Request, reqwest::Response, BoxError>;

/// A model that answers what this function makes of the number of the call and its request.
async fn model(
    answer: impl Fn(usize, &Value) -> Response<Body> + Clone + Send + Sync + 'static,
) -> (String, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let respond =
        async move |Json(request): Json<Value>| answer(count.fetch_add(1, Ordering::SeqCst), &request);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/chat/completions", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(post(respond))).await });
    (url, calls)
}

fn answered(kind: &str, body: impl Into<Body>) -> Response<Body> {
    Response::builder().header(CONTENT_TYPE, kind).body(body.into()).unwrap()
}

fn whole(message: &Value, finish: &str) -> Response<Body> {
    let mut message = message.clone();
    message["role"] = "assistant".into();
    let body = json!({"choices": [{"index": 0, "message": message, "finish_reason": finish}]});
    answered("application/json", body.to_string())
}

fn said(text: &str, finish: &str) -> Response<Body> {
    whole(&json!({"content": text}), finish)
}

fn streamed(text: &str, finish: &str, ends: bool) -> Response<Body> {
    let chunk = |delta: Value, finish: Value| {
        format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}))
    };
    let (first, rest) = text.split_at(text.len() / 2);
    let mut body = chunk(json!({"content": first}), Value::Null);
    body.push_str(&chunk(json!({"content": rest}), Value::Null));
    body.push_str(&chunk(json!({}), finish.into()));
    if ends {
        body.push_str("data: [DONE]\n\n");
    }
    answered("text/event-stream", body)
}

const GOOD: &str = r#"{"city": "Bern", "people": 134506}"#;

/// The ways in which an answer with status 200 can be wrong.
fn wrong(way: usize, streams: bool) -> Response<Body> {
    let text = |text: &str, finish: &str| {
        if streams { streamed(text, finish, true) } else { said(text, finish) }
    };
    match way % 14 {
        0 => text(r#"{"city": "Bern", "people": 1345"#, "stop"),
        1 => text(r#"{"city": "Bern", "people": 1345"#, "length"),
        2 => text(r#"{"city": "Bern"}"#, "stop"),
        3 => text(r#"{"city": "Bern", "people": "134506"}"#, "stop"),
        4 => text(r#"{"city": null, "people": 134506}"#, "stop"),
        5 => text("", "stop"),
        6 => text("Sure! It is Bern.", "stop"),
        7 => text("```json\n{\"city\": \"Bern\", \"people\": 134506}\n```", "stop"),
        8 => text("I'm sorry, but I can't help with that.", "stop"),
        9 => text("<html><body>502 Bad Gateway</body></html>", "stop"),
        10 => text(GOOD, "content_filter"),
        11 if streams => streamed(GOOD, "stop", false),
        11 => answered("application/json", r#"{"error": {"message": "overloaded", "type": "server_error"}}"#),
        12 => answered("text/html", "<!doctype html><title>Error</title>"),
        _ => answered("application/json", "null"),
    }
}

fn asks_for_a_city() -> ValidateBuilder {
    let schema = json!({"type": "object", "required": ["city", "people"],
        "properties": {"city": {"type": "string"}, "people": {"type": "integer"}}});
    ValidateLayer::structured(&schema).name("a")
}

fn request(url: &str, body: &Value) -> reqwest::Request {
    let request = reqwest::Client::new().post(url).header("content-type", "application/json");
    request.body(body.to_string()).build().unwrap()
}

fn question(streams: bool) -> Value {
    json!({"model": "m", "stream": streams, "messages": [{"role": "user", "content": "The capital? As JSON."}]})
}

/// The text of a whole or a streamed answer.
fn text_of(body: &str) -> String {
    if let Ok(whole) = serde_json::from_str::<Value>(body) {
        return whole["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    }
    let events = body.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    let pieces = events.map(|data| serde_json::from_str::<Value>(data).unwrap());
    pieces
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str().map(ToOwned::to_owned))
        .collect()
}

/// retry(validate(llm(client)))
fn stack(validate: ValidateLayer) -> Client {
    let retry = RetryLayer::builder()
        .backoff(Backoff::fixed(Duration::ZERO))
        .repeat_unanswered(true)
        .without_budget();
    let stack = ServiceBuilder::new()
        .layer(retry.build().unwrap())
        .layer(validate)
        .layer(LlmLayer::new(Provider::OpenAiCompatible))
        .service(reqwest::Client::new());
    Client::new(stack)
}

#[tokio::test]
async fn no_wrong_answer_reaches_the_caller_whole_or_streamed_passing_or_held() {
    let (mut good, mut bad) = (0, 0);
    for (streams, mode) in [(false, StreamMode::Pass), (true, StreamMode::Pass), (true, StreamMode::Hold)] {
        // Two of three are wrong, in every way in turn.
        let (url, _) = model(move |n, _| match n % 3 {
            0 if streams => streamed(GOOD, "stop", true),
            0 => said(GOOD, "stop"),
            _ => wrong(n, streams),
        })
        .await;
        let client = stack(asks_for_a_city().streams(mode).build().unwrap());
        for _ in 0..100 {
            let outcome = client.clone().oneshot(request(&url, &question(streams))).await;
            let body = match outcome {
                Ok(response) => response.text().await.map_err(BoxError::from),
                Err(error) => Err(error),
            };
            match body {
                Ok(body) => {
                    assert_eq!(text_of(&body), GOOD);
                    good += 1;
                }
                Err(error) => {
                    let verdict = Verdict::of_error(&*error);
                    assert!(
                        matches!(verdict.class(), Class::Soft(_) | Class::Refused | Class::Transient),
                        "{error}"
                    );
                    bad += 1;
                }
            }
        }
    }
    assert_eq!(good + bad, 300);
    assert!(good >= 100 && bad >= 50, "{good} good, {bad} bad");
}

/// breaker(validate(llm(client))), of which the circuit is in hand.
fn behind_a_circuit() -> (Client, BreakerLayer) {
    let breaker = BreakerLayer::builder().name("a").build().unwrap();
    let stack = ServiceBuilder::new()
        .layer(breaker.clone())
        .layer(asks_for_a_city().build().unwrap())
        .layer(LlmLayer::new(Provider::OpenAiCompatible))
        .service(reqwest::Client::new());
    (Client::new(stack), breaker)
}

// G78
#[tokio::test]
async fn a_refusal_is_repeated_only_where_that_was_chosen() {
    for (again, wanted) in [(false, 1), (true, 3)] {
        let (url, calls) = model(|_, _| said("I'm sorry, but I can't help with that.", "stop")).await;
        let retry = RetryLayer::builder().backoff(Backoff::fixed(Duration::ZERO)).max_retries(2);
        let stack = ServiceBuilder::new()
            .layer(
                retry
                    .repeat_unanswered(true)
                    .without_budget()
                    .retry_on(Class::Refused, again)
                    .build()
                    .unwrap(),
            )
            .layer(asks_for_a_city().build().unwrap())
            .layer(LlmLayer::new(Provider::OpenAiCompatible))
            .service(reqwest::Client::new());
        let error = stack.oneshot(request(&url, &question(false))).await.unwrap_err();
        assert_eq!(Verdict::of_error(&*error).class(), Class::Refused);
        assert_eq!(calls.load(Ordering::SeqCst), wanted, "again: {again}");
    }
}

// G81, V-F6
#[tokio::test]
async fn each_attempts_own_answer_is_judged_and_what_came_after_others_says_so() {
    let (url, calls) = model(|n, _| said(if n < 2 { "" } else { GOOD }, "stop")).await;
    let call = Call::begin();
    let client = stack(asks_for_a_city().build().unwrap());
    let response = call.scope(client.oneshot(request(&url, &question(false)))).await.unwrap();
    assert_eq!(text_of(&response.text().await.unwrap()), GOOD);
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    let trail = call.trail();
    let classes: Vec<_> = trail.attempts().iter().map(|attempt| attempt.verdict.class()).collect();
    let empty = Class::Soft(SoftKind::Empty);
    assert_eq!(classes, [empty, empty, Class::Success]);
    assert_eq!(trail.attempts()[2].next, Next::Answered);
}

// G82
#[tokio::test]
async fn a_wrong_answer_is_a_reason_to_take_the_next_route() {
    let (bad, asked) = model(|_, _| said(r#"{"city": "Bern", "people": "many"}"#, "stop")).await;
    let (good, _) = model(|_, _| said(GOOD, "stop")).await;
    let second = ServiceBuilder::new()
        .map_request(move |mut request: reqwest::Request| {
            *request.url_mut() = good.parse().unwrap();
            request
        })
        .service(stack(asks_for_a_city().build().unwrap()));
    let fallback = FallbackLayer::builder().route(Route::new("b", second)).build().unwrap();
    let client = fallback.layer(stack(asks_for_a_city().build().unwrap()));
    let response = client.oneshot(request(&bad, &question(false))).await.unwrap();
    assert_eq!(text_of(&response.text().await.unwrap()), GOOD);
    // What only a changed request can mend is not sent again as it was.
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    assert_eq!(Verdict::soft(SoftKind::Schema).hint(), Hint::Modify);
}

// One soft failure counts 0.6, and 40 % of ten calls open the circuit: 7 of ten do (4.2), and 6 (3.6) do not.
#[tokio::test]
async fn wrong_answers_alone_open_a_circuit_at_their_weight() {
    for (wrong_ones, opens) in [(6, false), (7, true)] {
        let (url, calls) = model(move |n, _| {
            // The good ones first: it is decided at the tenth.
            if n < 10 - wrong_ones { said(GOOD, "stop") } else { said(r#"{"city": "Bern"}"#, "stop") }
        })
        .await;
        let (client, breaker) = behind_a_circuit();
        for n in 0..10 {
            assert_eq!(breaker.circuit().state(), State::Closed, "before call {n}");
            if let Ok(response) = client.clone().oneshot(request(&url, &question(false))).await {
                response.text().await.unwrap();
            }
        }
        assert_eq!(breaker.circuit().state() == State::Open, opens, "{wrong_ones} wrong ones of ten");
        if opens {
            let refused = client.oneshot(request(&url, &question(false))).await.unwrap_err();
            assert_eq!(Fault::find(&*refused).unwrap().class(), Class::Denied(Denier::Circuit));
            assert_eq!(calls.load(Ordering::SeqCst), 10);
        }
    }
}

// V-F3
#[tokio::test]
async fn each_of_several_tool_calls_is_told_its_own_and_both_are_mended_in_one_more_call() {
    let asked: Arc<Mutex<Vec<Value>>> = Arc::default();
    let push = Arc::clone(&asked);
    let (url, calls) = model(move |n, request| {
        push.lock().unwrap().push(request.clone());
        let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "pay", "arguments": arguments}});
        let calls = if n == 0 {
            json!([call("c1", r#"{"sum": "7"}"#), call("c2", r#"{"sum": 7, "to": 1}"#), call("c3", r#"{"sum": 1}"#)])
        } else {
            json!([call("d1", r#"{"sum": 7}"#), call("d2", r#"{"sum": 7, "to": "me"}"#)])
        };
        whole(&json!({"content": null, "tool_calls": calls}), "tool_calls")
    })
    .await;
    let parameters = json!({"type": "object", "required": ["sum"],
        "properties": {"sum": {"type": "integer"}, "to": {"type": "string"}}});
    let mut body = question(false);
    body["tools"] = json!([{"type": "function", "function": {"name": "pay", "parameters": parameters}}]);
    // The schema is the one that the request offers.
    let stack = ServiceBuilder::new()
        .layer(ReflectLayer::builder(ChatReask::openai()).max_reasks(2).build().unwrap())
        .layer(ValidateLayer::builder().chat_requests().build().unwrap())
        .layer(LlmLayer::new(Provider::OpenAiCompatible))
        .service(reqwest::Client::new());
    stack.oneshot(request(&url, &body)).await.unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    let asked = asked.lock().unwrap();
    let told = |i: usize| {
        let message = &asked[1]["messages"][2 + i];
        (message["tool_call_id"].as_str().unwrap(), message["content"].as_str().unwrap())
    };
    let (first, second, third) = (told(0), told(1), told(2));
    assert_eq!((first.0, second.0, third.0), ("c1", "c2", "c3"));
    assert!(first.1.contains("arguments/sum") && !first.1.contains("arguments/to"), "{}", first.1);
    assert!(second.1.contains("arguments/to") && !second.1.contains("arguments/sum"), "{}", second.1);
    assert!(third.1.starts_with("Not called: something else"), "{}", third.1);
}

#[tokio::test]
async fn what_can_be_mended_is_mended_in_two_more_calls_at_most() {
    // Each slip alone, and then another one.
    let slips = [
        r#"{"city": "Bern"}"#,
        r#"{"city": "Bern", "people": "134506"}"#,
        "```json\n{\"city\": \"Bern\", \"people\": 134506}\n```",
        "It is Bern.",
        r#"{"city": null, "people": 1}"#,
    ];
    for (i, first) in slips.into_iter().enumerate() {
        for rounds in [1, 2] {
            let second = slips[(i + 1) % slips.len()];
            let (url, calls) = model(move |n, _| {
                said(
                    if n == 0 {
                        first
                    } else if n < rounds {
                        second
                    } else {
                        GOOD
                    },
                    "stop",
                )
            })
            .await;
            let reflect = ReflectLayer::builder(ChatReask::openai()).max_reasks(2).build().unwrap();
            let mut client = reflect.layer(stack(asks_for_a_city().build().unwrap()));
            let response = client.ready().await.unwrap().call(request(&url, &question(false))).await.unwrap();
            assert_eq!(text_of(&response.text().await.unwrap()), GOOD);
            assert_eq!(calls.load(Ordering::SeqCst), 1 + rounds, "{first}");
        }
    }
}
