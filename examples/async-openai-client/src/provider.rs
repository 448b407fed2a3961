//! A provider on 127.0.0.1, in place of a real one: it gets each kind of answer wrong for some time, always behind a 200.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{Json, Router, http::header::CONTENT_TYPE, response::IntoResponse, routing::post};
use failsoft::prelude::BoxError;
use serde_json::{Value, json};

pub(crate) const ONCE_WRONG: u32 = 1;
pub(crate) const ALWAYS_WRONG: u32 = u32::MAX;

fn message(message: &Value, finish: &str) -> Value {
    json!({"id": "c", "object": "chat.completion", "created": 1, "model": "m",
           "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": null}]})
}

fn call(tool: &str) -> Value {
    let call =
        json!({"id": "1", "type": "function", "function": {"name": tool, "arguments": r#"{"city":"Bern"}"#}});
    message(&json!({"role": "assistant", "content": null, "tool_calls": [call]}), "tool_calls")
}

fn chunk(text: &str, finish: Option<&str>) -> String {
    let choice = json!({"index": 0, "delta": {"content": text}, "finish_reason": finish, "logprobs": null});
    let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]});
    format!("data: {chunk}\n\n")
}

fn answer(question: &str, wrong: bool) -> (&'static str, String) {
    const JSON: &str = "application/json";
    const EVENTS: &str = "text/event-stream";
    let error = json!({"error": {"message": "overloaded", "type": "overloaded_error"}});
    match (question, wrong) {
        ("stream", true) => (EVENTS, format!("data: {error}\n\n")),
        ("stream", false) => (EVENTS, chunk("Be", None) + &chunk("rn", Some("stop")) + "data: [DONE]\n\n"),
        ("tool", true) => (JSON, call("horoscope").to_string()),
        ("tool", false) => (JSON, call("weather").to_string()),
        (_, true) => (JSON, error.to_string()),
        (_, false) => (JSON, message(&json!({"role": "assistant", "content": "Bern"}), "stop").to_string()),
    }
}

/// Serves it, and gives its URL. Each kind of question is answered wrongly for so many times.
pub(crate) async fn serve(wrong: u32) -> Result<String, BoxError> {
    let asked = Arc::new(Mutex::new(HashMap::<String, u32>::new()));
    let handler = async move |Json(request): Json<Value>| {
        let question = request["messages"][0]["content"].as_str().unwrap_or_default().to_owned();
        let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        let times = asked.entry(question.clone()).or_default();
        *times += 1;
        let (kind, body) = answer(&question, *times <= wrong);
        ([(CONTENT_TYPE, kind)], body).into_response()
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let app = Router::new().route("/chat/completions", post(handler));
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(url)
}
