//! A server that does everything wrong with its streams, and what a stack around a real client makes of it: the right class each,
//! retry and fallback before the first content only, and one POST for each attempt, always.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Path, State},
    http::header::CONTENT_TYPE,
    response::IntoResponse,
    routing::post,
};
use failsoft_core::{Backoff, BoxError, Call, CallOptions, Class, Fault, Limit, SoftKind, Verdict};
use fallback_layer::{FallbackLayer, Return, Route};
use futures_util::{StreamExt as _, stream};
use llm_layer::LlmLayer;
use retry_layer::RetryLayer;
use tower::{Layer, ServiceBuilder, ServiceExt, util::BoxCloneSyncService};

const ROLE: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
const CONTENT: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Grüezi\"}}]}\n\n";
const STOP: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";
const ERROR: &str = "data: {\"error\":{\"message\":\"x\",\"code\":502}}\n\n";
const OVERLOADED: &str =
    "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n";
const NO_CHOICES: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}\n\n";

type Counts = Arc<Mutex<HashMap<String, usize>>>;

async fn answer(Path(path): Path<String>, State(counts): State<Counts>) -> impl IntoResponse {
    *counts.lock().unwrap().entry(path.clone()).or_default() += 1;
    let (parts, then): (&[&str], _) = match &*path {
        "good" => (&[ROLE, CONTENT, STOP, DONE], "end"),
        "no-choices" => (&[NO_CHOICES, ROLE, CONTENT, STOP, NO_CHOICES, DONE], "end"),
        "no-blank-line" => (&[CONTENT, STOP, "data: [DONE]"], "end"),
        "error-before" => (&[ROLE, ERROR, DONE], "end"),
        "overloaded-before" => (&[ROLE, OVERLOADED], "hang"),
        "stall-before" => (&[ROLE], "hang"),
        "drip-before" => (&[ROLE], "drip"),
        "cut-before" => (&[ROLE], "cut"),
        "end-before" => (&[ROLE], "end"),
        "error-after" => (&[CONTENT, ERROR, DONE], "end"),
        "overloaded-after" => (&[CONTENT, OVERLOADED], "hang"),
        "stall-after" => (&[CONTENT], "hang"),
        "drip-after" => (&[CONTENT], "drip"),
        "cut-after" => (&[CONTENT], "cut"),
        "no-terminator" => (&[CONTENT], "end"),
        "open-after-done" => (&[CONTENT, STOP, DONE], "hang"),
        _ => (&[], "end"),
    };
    let parts: Vec<Bytes> = parts.iter().map(|part| Bytes::copy_from_slice(part.as_bytes())).collect();
    let tick = || tokio::time::sleep(Duration::from_millis(10));
    let parts = stream::iter(parts).then(move |part| async move {
        tick().await;
        Ok(part)
    });
    let end = match then {
        "drip" => stream::repeat(Bytes::from_static(b": ping\n\n"))
            .then(move |ping| async move {
                tick().await;
                Ok(ping)
            })
            .boxed(),
        "hang" => stream::pending().boxed(),
        "cut" => stream::once(async move {
            tick().await;
            Err(std::io::Error::other("cut"))
        })
        .boxed(),
        _ => stream::empty().boxed(),
    };
    ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(parts.chain(end)))
}

async fn serve() -> (String, Counts) {
    let counts = Counts::default();
    let router = Router::new().route("/{path}", post(answer)).with_state(Arc::clone(&counts));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let listener = axum::serve::ListenerExt::tap_io(listener, |io| io.set_nodelay(true).unwrap());
        axum::serve(listener, router).await
    });
    (url, counts)
}

type Stack = BoxCloneSyncService<reqwest::Request, reqwest::Response, BoxError>;

/// fallback(retry(llm(client)), llm(client that goes to `second`)). Short is only the limit that must end calls of the first: nothing
/// else ends for want of time, however busy the machine is.
fn stack(second: String, class: Option<Class>) -> Stack {
    let llm = |class: Option<Class>| {
        let limit = |of| Duration::from_millis(if class == Some(Class::Timeout(of)) { 300 } else { 30_000 });
        let llm = LlmLayer::builder().name("eu");
        llm.first_content(limit(Limit::FirstContent)).idle(limit(Limit::Idle)).build().unwrap()
    };
    let retry = RetryLayer::builder()
        .max_retries(1)
        .backoff(Backoff::fixed(Duration::ZERO))
        .repeat_unanswered(true)
        .build()
        .unwrap();
    let elsewhere = tower::service_fn(move |mut request: reqwest::Request| {
        *request.url_mut() = second.parse().unwrap();
        reqwest::Client::new().oneshot(request)
    });
    let second = BoxCloneSyncService::new(llm(None).layer(elsewhere));
    let first = ServiceBuilder::new().layer(retry).layer(llm(class)).service(reqwest::Client::new());
    let layer = FallbackLayer::builder()
        .name("eu")
        .returns(Return::First)
        .route(Route::new("us", second))
        .build()
        .unwrap();
    BoxCloneSyncService::new(layer.layer(BoxCloneSyncService::new(first)))
}

/// The text that came, and the class of the failure: of the call, or at the end of the body.
async fn ask(stack: &Stack, url: String) -> (String, Option<Class>) {
    let request = reqwest::Client::new().post(url).body(r#"{"messages":[],"stream":true}"#).build().unwrap();
    let mut response = match stack.clone().oneshot(request).await {
        Ok(response) => response,
        Err(err) => return (String::new(), Some(Verdict::of_error(&*err).class())),
    };
    let mut text = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(bytes)) => text.extend_from_slice(&bytes),
            Ok(None) => return (String::from_utf8(text).unwrap(), None),
            Err(err) => {
                let class =
                    Fault::find(&err).map_or_else(|| Verdict::of_error(&err).class(), |fault| fault.class());
                return (String::from_utf8_lossy(&text).into_owned(), Some(class));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn good_streams_of_all_shapes_arrive_byte_for_byte_with_one_post() {
    let (url, counts) = serve().await;
    let stack = stack(format!("{url}/unused"), None);
    for (path, whole) in [
        ("good", [ROLE, CONTENT, STOP, DONE].concat()),
        // V-C6
        ("no-choices", [NO_CHOICES, ROLE, CONTENT, STOP, NO_CHOICES, DONE].concat()),
        // V-C8
        ("no-blank-line", [CONTENT, STOP, "data: [DONE]"].concat()),
        ("open-after-done", [CONTENT, STOP, DONE].concat()),
    ] {
        assert_eq!(ask(&stack, format!("{url}/{path}")).await, (whole, None), "{path}");
        assert_eq!(counts.lock().unwrap()[path], 1, "{path}");
    }
    assert!(!counts.lock().unwrap().contains_key("unused"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fails_before_content_is_repeated_and_then_goes_to_the_next_route_one_post_each() {
    // G51, G55, G56, V-C1: each attempt begins anew, and the answer is the second route's alone. And with nowhere to go, the class of
    // the first failure is told.
    for (path, class) in [
        ("error-before", Class::Transient),
        ("overloaded-before", Class::Overloaded),
        ("stall-before", Class::Timeout(Limit::FirstContent)),
        ("drip-before", Class::Timeout(Limit::FirstContent)),
        ("cut-before", Class::Transient),
        ("end-before", Class::Soft(SoftKind::Truncated)),
    ] {
        let (server, counts) = serve().await;
        let url = format!("{server}/{path}");
        let told = ask(&stack(format!("{server}/good"), Some(class)), url.clone()).await;
        assert_eq!(told, ([ROLE, CONTENT, STOP, DONE].concat(), None), "{path}");
        let counted = counts.lock().unwrap().clone();
        assert_eq!((counted[path], counted["good"]), (2, 1), "{path}");

        let told = ask(&stack(format!("{server}/error-before"), Some(class)), url).await;
        assert_eq!(told, (String::new(), Some(class)), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fails_after_content_is_one_error_at_the_end_and_never_spliced_with_one_post() {
    let (url, counts) = serve().await;
    // G57, G66, V-C4
    for (path, class) in [
        ("error-after", Class::Transient),
        ("overloaded-after", Class::Overloaded),
        ("stall-after", Class::Timeout(Limit::Idle)),
        ("drip-after", Class::Timeout(Limit::Idle)),
        ("cut-after", Class::Transient),
        ("no-terminator", Class::Soft(SoftKind::Truncated)),
    ] {
        let stack = stack(format!("{url}/good"), Some(class));
        let (text, end) = ask(&stack, format!("{url}/{path}")).await;
        assert!(text.starts_with(CONTENT) && text.matches("Grüezi").count() == 1, "{path}: {text}");
        assert_eq!(end, Some(class), "{path}");
        assert_eq!(counts.lock().unwrap()[path], 1, "{path}");
    }
    assert!(!counts.lock().unwrap().contains_key("good"));
}

/// G70: limits inside each other do not add up beyond what the caller has.
#[tokio::test(start_paused = true)]
async fn retries_and_limits_inside_a_call_end_with_its_deadline() {
    let never = tower::service_fn(|_: http::Request<String>| {
        std::future::pending::<Result<http::Response<http_body_util::Full<Bytes>>, BoxError>>()
    });
    let llm = LlmLayer::builder().first_content(Duration::from_secs(20)).build().unwrap();
    let retry = RetryLayer::builder().max_retries(2).repeat_unanswered(true).build().unwrap();
    let service = ServiceBuilder::new().layer(retry).layer(llm).service(never);
    let start = tokio::time::Instant::now();
    let options: CallOptions = Call::options().timeout(Duration::from_secs(30));
    let request = http::Request::new(r#"{"messages":[],"stream":true}"#.to_owned());
    let err = options.begin().scope(service.oneshot(request)).await.unwrap_err();
    assert!(matches!(Verdict::of_error(&*err).class(), Class::Timeout(_)));
    assert!(start.elapsed() <= Duration::from_secs(30), "{:?}", start.elapsed());
}
