//! Changed requests over real HTTP, with everything around and inside: the model is told what was wrong, and mends it.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Json, Router, http::HeaderMap, routing::post};
use failsoft_core::{Backoff, BoxError, Call, Class, Fault, Next, SoftKind};
use fallback_layer::{FallbackLayer, Route};
use llm_layer::{LlmLayer, Provider};
use retry_layer::{ReflectLayer, RetryLayer, reflect::chat::ChatReask};
use serde_json::{Value, json};
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use validate_layer::ValidateLayer;

type Asked = Arc<Mutex<Vec<(HeaderMap, Value)>>>;

/// A model that answers what this function makes of a request.
async fn model(answer: impl Fn(&Value) -> Value + Clone + Send + Sync + 'static) -> (String, Asked) {
    let asked = Asked::default();
    let push = Arc::clone(&asked);
    let respond = async move |headers: HeaderMap, Json(request): Json<Value>| {
        let answer = answer(&request);
        push.lock().unwrap().push((headers, request));
        Json(answer)
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/chat/completions", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(post(respond))).await });
    (url, asked)
}

fn text(text: &str, finish: &str) -> Value {
    json!({"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": finish}],
           "usage": {"prompt_tokens": 10, "completion_tokens": 3}})
}

/// What the last message says.
fn last(request: &Value) -> &str {
    request["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap()
}

/// reflect(retry(validate(llm(client))))
fn stack(
    reask: ChatReask,
    max_reasks: u32,
) -> impl Service<reqwest::Request, Response = reqwest::Response, Error = BoxError, Future: Send>
+ Clone
+ Send
+ Sync
+ 'static {
    stack_of(Provider::OpenAiCompatible, reask, max_reasks)
}

fn stack_of(
    provider: Provider,
    reask: ChatReask,
    max_reasks: u32,
) -> impl Service<reqwest::Request, Response = reqwest::Response, Error = BoxError, Future: Send>
+ Clone
+ Send
+ Sync
+ 'static {
    let retry = RetryLayer::builder()
        .backoff(Backoff::fixed(Duration::ZERO))
        .repeat_unanswered(true)
        .build()
        .unwrap();
    ServiceBuilder::new()
        .layer(ReflectLayer::builder(reask).max_reasks(max_reasks).build().unwrap())
        .layer(retry)
        .layer(ValidateLayer::builder().name("a").json_object().require("/city").build().unwrap())
        .layer(LlmLayer::new(provider))
        .service(reqwest::Client::new())
}

fn request(url: &str, body: &Value) -> reqwest::Request {
    let body = body.to_string();
    let request = reqwest::Client::new().post(url).header("content-length", body.len());
    request.header("content-type", "application/json").body(body).build().unwrap()
}

fn question() -> Value {
    json!({"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": "Where? As JSON."}]})
}

/// Without what the retry inside says of each wrong answer: that the same request would not help.
fn nexts(call: &Call) -> Vec<Next> {
    let trail = call.trail();
    trail.attempts().iter().map(|attempt| attempt.next).filter(|next| *next != Next::Final).collect()
}

#[tokio::test]
async fn a_model_that_is_told_what_was_wrong_mends_it_in_one_more_call() {
    let (url, asked) = model(|request| {
        let told = last(request).contains("required at /city");
        text(if told { r#"{"city": "Bern"}"# } else { r#"{"town": "Bern"}"# }, "stop")
    })
    .await;
    let call = Call::begin();
    let response =
        call.scope(stack(ChatReask::openai(), 1).oneshot(request(&url, &question()))).await.unwrap();
    assert!(response.text().await.unwrap().contains(r#"{\"city\": \"Bern\"}"#));
    assert_eq!(nexts(&call), [Next::Reask, Next::Answered]);
    assert_eq!(call.trail().attempts()[0].verdict.class(), Class::Soft(SoftKind::MissingField));
    // Both answers are paid for.
    assert_eq!((call.usage().input, call.usage().output), (Some(20), Some(6)));
    let asked = asked.lock().unwrap();
    assert_eq!((asked.len(), asked[1].0["cache-control"].as_bytes()), (2, &b"no-cache"[..]));
    assert_eq!(asked[1].1["messages"][1], json!({"role": "assistant", "content": r#"{"town": "Bern"}"#}));
}

#[tokio::test]
async fn what_takes_two_more_calls_is_cured_in_two_and_the_first_wrong_answer_is_not_sent_again() {
    let (url, asked) = model(|request| {
        text(
            match last(request) {
                told if told.contains("json.") => r#"{"town": "Bern"}"#,
                told if told.contains("required at /city") => r#"{"city": "Bern"}"#,
                _ => "Sure! It is in Bern.",
            },
            "stop",
        )
    })
    .await;
    let call = Call::begin();
    call.scope(stack(ChatReask::openai(), 2).oneshot(request(&url, &question()))).await.unwrap();
    assert_eq!(nexts(&call), [Next::Reask, Next::Reask, Next::Answered]);
    let asked = asked.lock().unwrap();
    let lengths: Vec<_> = asked.iter().map(|(_, body)| body["messages"].as_array().unwrap().len()).collect();
    assert_eq!(lengths, [1, 3, 3]);
    assert!(!asked[2].1.to_string().contains("Sure!"));
}

// V-D6
#[tokio::test]
async fn a_call_of_a_tool_that_is_not_there_gets_a_result_that_names_those_that_are() {
    let call = |name: &str| {
        json!({"choices": [{"finish_reason": "tool_calls", "message": {"role": "assistant", "content": null,
            "tool_calls": [{"id": "c7", "type": "function", "function": {"name": name, "arguments": "{}"}}]}}]})
    };
    let (url, asked) = model(move |request| {
        let last = request["messages"].as_array().unwrap().last().unwrap();
        call(if last["role"] == "tool" { "get_weather" } else { "get_wether" })
    })
    .await;
    let mut body = question();
    body["tools"] = json!([{"type": "function", "function": {"name": "get_weather", "parameters": {}}}]);
    stack(ChatReask::openai(), 1).oneshot(request(&url, &body)).await.unwrap();
    let asked = asked.lock().unwrap();
    let told = &asked[1].1["messages"][2];
    assert_eq!((asked.len(), &told["tool_call_id"]), (2, &json!("c7")));
    let words = told["content"].as_str().unwrap();
    assert!(words.contains("no tool `get_wether`") && words.contains("get_weather"), "{words}");
}

#[tokio::test]
async fn anthropics_calls_get_their_results_in_one_turn() {
    let call = |name: &str| {
        json!({"type": "message", "role": "assistant", "stop_reason": "tool_use",
            "content": [{"type": "text", "text": "Let me look."},
                        {"type": "tool_use", "id": "t1", "name": name, "input": {}}],
            "usage": {"input_tokens": 1, "output_tokens": 1}})
    };
    let (url, asked) = model(move |request| {
        let turns = request["messages"].as_array().unwrap().len();
        call(if turns == 3 { "get_weather" } else { "get_wether" })
    })
    .await;
    let mut body = question();
    body["tools"] = json!([{"name": "get_weather", "input_schema": {"type": "object"}}]);
    let stack = stack_of(Provider::Anthropic, ChatReask::anthropic(), 1);
    stack.oneshot(request(&url, &body)).await.unwrap();
    let asked = asked.lock().unwrap();
    let messages = &asked[1].1["messages"];
    assert_eq!(messages[1]["content"][0], json!({"type": "text", "text": "Let me look."}));
    assert_eq!(messages[1]["content"][1]["name"], "get_wether");
    let result = &messages[2]["content"][0];
    assert_eq!(
        (asked.len(), &result["type"], &result["tool_use_id"]),
        (2, &json!("tool_result"), &json!("t1"))
    );
    assert!(result["content"].as_str().unwrap().contains("no tool `get_wether`"), "{result}");
}

// V-D3
#[tokio::test]
async fn a_cut_answer_is_asked_for_again_with_more_tokens_or_not_at_all() {
    let (url, asked) = model(|request| {
        let enough = request["max_tokens"].as_u64().unwrap() >= 90;
        if enough { text(r#"{"city": "Bern"}"#, "stop") } else { text(r#"{"ci"#, "length") }
    })
    .await;
    let error = stack(ChatReask::openai(), 2).oneshot(request(&url, &question())).await.unwrap_err();
    assert_eq!(Fault::find(&*error).unwrap().class(), Class::Soft(SoftKind::Truncated));
    assert_eq!(asked.lock().unwrap().len(), 1);
    let reask = ChatReask::openai().max_tokens_up_to(90);
    stack(reask, 2).oneshot(request(&url, &question())).await.unwrap();
    let asked = asked.lock().unwrap();
    assert_eq!(
        (asked.len(), &asked[2].1["max_tokens"], &asked[2].1["messages"]),
        (3, &json!(90), &question()["messages"])
    );
}

#[tokio::test]
async fn when_it_is_not_cured_the_next_route_takes_over() {
    let (bad, asked) = model(|_| text(r#"{"town": "Bern"}"#, "stop")).await;
    let (good, _) = model(|_| text(r#"{"city": "Bern"}"#, "stop")).await;
    let second = ServiceBuilder::new()
        .map_request(move |mut request: reqwest::Request| {
            *request.url_mut() = good.parse().unwrap();
            request
        })
        .service(stack(ChatReask::openai(), 1));
    let fallback = FallbackLayer::builder().route(Route::new("b", second)).build().unwrap();
    let call = Call::begin();
    let service = fallback.layer(stack(ChatReask::openai(), 2));
    call.scope(service.oneshot(request(&bad, &question()))).await.unwrap();
    assert_eq!(asked.lock().unwrap().len(), 3);
    assert_eq!(nexts(&call), [Next::Reask, Next::Reask, Next::NextRoute, Next::Answered]);
}
