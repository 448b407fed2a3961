//! The layers in async-openai's middleware: its chat, whole and streamed, over a socket.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_openai::{
    Client,
    config::OpenAIConfig,
    error::OpenAIError,
    middleware::ReqwestService,
    types::chat::{CreateChatCompletionRequest, CreateChatCompletionRequestArgs},
};
use axum::{Router, extract::State, http::header::CONTENT_TYPE, response::IntoResponse, routing::post};
use failsoft_core::{Backoff, BoxError, Class, Cloned, Fault};
use futures_util::StreamExt as _;
use llm_layer::{LlmLayer, Provider};
use retry_layer::RetryLayer;
use tower::ServiceBuilder;

const WHOLE: &str = r#"{"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [{"index": 0,
    "message": {"role": "assistant", "content": "Bern"}, "finish_reason": "stop", "logprobs": null}]}"#;
const INSIDE: &str = r#"{"error": {"message": "overloaded", "type": "overloaded_error"}}"#;
const ERROR: &str = "data: {\"error\":{\"message\":\"overloaded\",\"type\":\"overloaded_error\"}}\n\n";

fn delta(text: &str, finish: &str) -> String {
    format!(
        "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{{\"index\":0,\
         \"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":{finish},\"logprobs\":null}}]}}\n\n"
    )
}

fn stream(ends_well: bool) -> String {
    let end = if ends_well {
        [delta("rn", "\"stop\""), "data: [DONE]\n\n".to_owned()].concat()
    } else {
        ERROR.to_owned()
    };
    [delta("Be", "null"), end].concat()
}

/// Answers with these bodies, one after the other, and counts the requests.
async fn serve(kind: &'static str, answers: Vec<String>) -> (String, Arc<AtomicUsize>) {
    type Shared = (Arc<AtomicUsize>, &'static str, Arc<[String]>);
    async fn answer(State((count, kind, answers)): State<Shared>) -> impl IntoResponse {
        let at = count.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1);
        ([(CONTENT_TYPE, kind)], answers[at].clone())
    }
    let count = Arc::new(AtomicUsize::new(0));
    let router = Router::new().route("/chat/completions", post(answer)).with_state::<()>((
        Arc::clone(&count),
        kind,
        answers.into(),
    ));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, count)
}

/// retry(llm(async-openai's own service)): no type is named but the request's replay.
fn client(url: &str) -> Client<OpenAIConfig> {
    let retry = RetryLayer::builder()
        .replay(Cloned)
        .max_retries(1)
        .backoff(Backoff::fixed(Duration::ZERO))
        .repeat_unanswered(true)
        .build()
        .unwrap();
    let service = ServiceBuilder::new()
        .map_err(OpenAIError::Boxed)
        .layer(retry)
        .layer(LlmLayer::new(Provider::OpenAiCompatible))
        .service(ReqwestService::new(reqwest::Client::new()));
    let config = OpenAIConfig::new().with_api_base(url).with_api_key("key");
    Client::with_config(config).with_http_service(service)
}

fn request() -> CreateChatCompletionRequest {
    CreateChatCompletionRequestArgs::default().model("m").messages([]).build().unwrap_or_default()
}

/// The text, and the error at the end.
async fn read(client: &Client<OpenAIConfig>) -> Result<(String, Option<OpenAIError>), OpenAIError> {
    let mut stream = client.chat().create_stream(request()).await?;
    let mut text = String::new();
    while let Some(chunk) = stream.next().await {
        match chunk {
            Ok(chunk) => chunk
                .choices
                .iter()
                .for_each(|choice| text.push_str(choice.delta.content.as_deref().unwrap_or(""))),
            Err(err) => return Ok((text, Some(err))),
        }
    }
    Ok((text, None))
}

fn class(err: OpenAIError) -> Option<Class> {
    let err: BoxError = Box::new(err);
    Fault::find(&*err).map(|fault| fault.class())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_inside_a_200_is_asked_for_again_and_the_sdk_parses_the_good_answer() {
    let (url, count) = serve("application/json", vec![INSIDE.to_owned(), WHOLE.to_owned()]).await;
    let answer = client(&url).chat().create(request()).await.unwrap();
    assert_eq!(answer.choices[0].message.content.as_deref(), Some("Bern"));
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_fails_before_its_content_is_asked_for_again() {
    let (url, count) = serve("text/event-stream", vec![ERROR.to_owned(), stream(true)]).await;
    let (text, err) = read(&client(&url)).await.unwrap();
    assert_eq!((text.as_str(), err.is_none()), ("Bern", true));
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_fails_after_its_content_is_one_request_and_an_error_at_its_end() {
    let (url, count) = serve("text/event-stream", vec![stream(false), stream(true)]).await;
    let (text, err) = read(&client(&url)).await.unwrap();
    assert_eq!((text.as_str(), err.is_some()), ("Be", true));
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_fails_is_a_fault_that_is_found_in_the_sdks_error() {
    let (url, count) = serve("text/event-stream", vec![ERROR.to_owned()]).await;
    let err = read(&client(&url)).await.unwrap_err();
    assert_eq!(class(err), Some(Class::Overloaded));
    assert_eq!(count.load(Ordering::SeqCst), 2);
}
