//! Streams of Gemini, Bedrock and Ollama over real sockets: a server that does everything wrong, and reqwest as the client.
//! Which dialect is spoken, the layer has to see for itself.

#![cfg(feature = "reqwest-013")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::common::{
    aws::{event, exception},
    native::{ARRAY, Ask, BINARY, LINES, SSE},
};
use axum::{Router, body::Body, http::Uri, response::Response, routing::post};
use bytes::Bytes;
use failsoft_core::{
    BoxError, ByResponse, Class, Classify, Fault, Insight, Limit, SoftKind, Step, Usage, Verdict,
};
use futures_util::stream;
use llm_layer::{LlmLayer, Provider};
use tokio::net::TcpListener;
use tower::{Layer, ServiceExt as _};

#[derive(Clone, Debug)]
enum Do {
    Send(Vec<u8>),
    /// Milliseconds.
    Wait(u64),
    Hang,
    Fail,
}
use Do::{Fail, Hang, Send as S, Wait};

/// The pieces of one answer in a dialect.
struct Dialect {
    ask: Ask,
    /// Nothing that commits.
    head: Vec<u8>,
    content: Vec<u8>,
    /// Says why it stopped, and what it cost.
    end: Vec<u8>,
    overloaded: Vec<u8>,
    /// Whether `end` is the protocol's own.
    has_end: bool,
}

fn dialects() -> [Dialect; 4] {
    let head = r#"{"candidates":[{"content":{"role":"model"}}],"modelVersion":"m"}"#;
    let content = r#"{"candidates":[{"content":{"parts":[{"text":"Grüezi"}]}}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":1}}"#;
    let end = r#"{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":3}}"#;
    let overloaded = r#"{"error":{"code":503,"status":"UNAVAILABLE","message":"x"}}"#;
    let sse = |data: &str| format!("data: {data}\r\n\r\n").into_bytes();
    [
        Dialect {
            ask: SSE,
            head: sse(head),
            content: sse(content),
            end: sse(end),
            overloaded: sse(overloaded),
            has_end: false,
        },
        Dialect {
            ask: ARRAY,
            head: format!("[{head}").into_bytes(),
            content: format!("\n,\r\n{content}").into_bytes(),
            end: format!("\n,\r\n{end}\n]\n").into_bytes(),
            overloaded: format!("\n,\r\n{overloaded}\n]\n").into_bytes(),
            has_end: true,
        },
        Dialect {
            ask: BINARY,
            head: event("messageStart", r#"{"role":"assistant"}"#),
            content: event("contentBlockDelta", r#"{"contentBlockIndex":0,"delta":{"text":"Grüezi"}}"#),
            end: [
                event("messageStop", r#"{"stopReason":"end_turn"}"#),
                event("metadata", r#"{"usage":{"inputTokens":9,"outputTokens":3,"totalTokens":12}}"#),
            ]
            .concat(),
            overloaded: exception("serviceUnavailableException", "x"),
            has_end: true,
        },
        Dialect {
            ask: LINES,
            head: b"{\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":false}\n".to_vec(),
            content: "{\"message\":{\"content\":\"Grüezi\"},\"done\":false}\n".into(),
            end: b"{\"message\":{\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\",\"prompt_eval_count\":9,\"eval_count\":3}\n".to_vec(),
            overloaded: b"{\"error\":{\"message\":\"x\",\"code\":503}}\n".to_vec(),
            has_end: true,
        },
    ]
}

impl Dialect {
    fn steps(&self, what: &str) -> Vec<Do> {
        let Self { head, content, end, overloaded, .. } = self;
        let [head, content, end, overloaded] = [head, content, end, overloaded].map(|bytes| S(bytes.clone()));
        match what {
            "good" => vec![head, Wait(20), content, Wait(20), end],
            "cold" => vec![Wait(5_000), head, content, end],
            "error-before" => vec![head, Wait(20), overloaded, Hang],
            "error-after" => vec![head, content, Wait(20), overloaded, Hang],
            "stall-before" => vec![head, Hang],
            "stall-after" => vec![head, content, Hang],
            "cut-before" => vec![head, Wait(20), Fail],
            "cut-after" => vec![head, content, Wait(20), Fail],
            "no-end" => vec![head, content],
            "open-after-end" => vec![head, content, end, Hang],
            _ => vec![],
        }
    }
}

/// How many answers are being written, and how many requests came.
#[derive(Clone, Debug, Default)]
struct Counts {
    open: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn answer(steps: Vec<Do>, kind: &'static str, counts: Counts) -> Response {
    counts.requests.fetch_add(1, Ordering::SeqCst);
    counts.open.fetch_add(1, Ordering::SeqCst);
    let open = Open(counts.open);
    let body = stream::unfold((steps.into_iter(), open), |(mut steps, open)| async move {
        loop {
            let item = match steps.next()? {
                S(bytes) => Ok(Bytes::from(bytes)),
                Wait(millis) => {
                    tokio::time::sleep(Duration::from_millis(millis)).await;
                    continue;
                }
                Hang => std::future::pending().await,
                Fail => Err(std::io::Error::other("cut")),
            };
            return Some((item, (steps, open)));
        }
    });
    Response::builder().header("content-type", kind).body(Body::from_stream(body)).unwrap()
}

async fn serve(dialect: &Dialect, what: &str) -> (String, Counts) {
    let counts = Counts::default();
    let (steps, kind, path, shared) =
        (dialect.steps(what), dialect.ask.kind, dialect.ask.path, counts.clone());
    let route = post(async move |uri: Uri| {
        assert_eq!(uri.path(), path);
        answer(steps.clone(), kind, shared.clone())
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}{path}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let listener = axum::serve::ListenerExt::tap_io(listener, |io| io.set_nodelay(true).unwrap());
        axum::serve(listener, Router::new().fallback(route)).await
    });
    (url, counts)
}

/// What must not end for want of time, however busy the machine is.
const LONG: Duration = Duration::from_secs(30);

/// Short is only the limit that must end the call.
fn layer(holds: bool, class: Class) -> LlmLayer {
    let limit = |of| if class == Class::Timeout(of) { Duration::from_millis(300) } else { LONG };
    let builder = LlmLayer::builder()
        .provider(Provider::Auto)
        .name("model-a")
        .first_content(limit(Limit::FirstContent))
        .idle(limit(Limit::Idle));
    if holds { builder.hold_to_end(1 << 20) } else { builder }.build().unwrap()
}

/// Asks for what shall end so.
async fn ask(dialect: &Dialect, url: &str, holds: bool, class: Class) -> Result<reqwest::Response, BoxError> {
    let client = reqwest::Client::new();
    let request = client.post(url).body(dialect.ask.body).build()?;
    layer(holds, class).layer(client).oneshot(request).await
}

fn insight(response: &reqwest::Response) -> Insight {
    Insight::of(response.extensions()).expect("an insight").clone()
}

/// What arrived, and the error at its end.
async fn read(mut response: reqwest::Response) -> (Vec<u8>, Option<reqwest::Error>) {
    let mut bytes = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(more)) => bytes.extend_from_slice(&more),
            Ok(None) => return (bytes, None),
            Err(err) => return (bytes, Some(err)),
        }
    }
}

async fn closed(counts: &Counts) {
    let all = async {
        while counts.open.load(Ordering::SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, all).await.expect("the server sees the socket close");
}

#[tokio::test]
async fn a_good_stream_arrives_byte_for_byte_with_one_request_and_is_known_at_its_end() {
    for dialect in dialects() {
        let (url, counts) = serve(&dialect, "good").await;
        let response = ask(&dialect, &url, false, Class::Success).await.unwrap();
        let insight = insight(&response);
        assert_eq!(insight.verdict(), None, "{url}");
        assert!(insight.facts().first_content.unwrap() >= Duration::from_millis(20));
        let (bytes, error) = read(response).await;
        assert_eq!(bytes, [dialect.head, dialect.content, dialect.end].concat(), "{url}");
        assert!(error.is_none(), "{url}: {error:?}");
        let facts = insight.facts();
        assert_eq!(facts.verdict, Some(Verdict::SUCCESS), "{url}");
        assert_eq!(facts.text.as_deref(), Some("Grüezi"), "{url}");
        assert_eq!(facts.usage, Usage { input: Some(9), output: Some(3), ..Usage::default() }, "{url}");
        assert_eq!(counts.requests.load(Ordering::SeqCst), 1, "{url}");
    }
}

#[tokio::test]
async fn what_goes_wrong_before_content_is_the_error_of_one_request() {
    for dialect in dialects() {
        for (what, class) in [
            ("error-before", Class::Overloaded),
            ("stall-before", Class::Timeout(Limit::FirstContent)),
            ("cold", Class::Timeout(Limit::FirstContent)),
            ("cut-before", Class::Transient),
        ] {
            let (url, counts) = serve(&dialect, what).await;
            let err = ask(&dialect, &url, false, class).await.unwrap_err();
            assert_eq!(Verdict::of_error(&*err).class(), class, "{url} {what}: {err:?}");
            assert!(Fault::find(&*err).is_none_or(|fault| fault.target() == Some("model-a")), "{url} {what}");
            closed(&counts).await;
            assert_eq!(counts.requests.load(Ordering::SeqCst), 1, "{url} {what}");
        }
    }
}

#[tokio::test]
async fn what_goes_wrong_after_content_is_one_error_at_the_end_of_the_body() {
    // G57, G66, V-C1, V-C4
    for dialect in dialects() {
        for (what, class) in [
            ("error-after", Class::Overloaded),
            ("stall-after", Class::Timeout(Limit::Idle)),
            ("no-end", Class::Soft(SoftKind::Truncated)),
            ("cut-after", Class::Transient),
        ] {
            let (url, counts) = serve(&dialect, what).await;
            let response = ask(&dialect, &url, false, class).await.unwrap();
            let insight = insight(&response);
            let (bytes, error) = read(response).await;
            let sent = [&*dialect.head, &dialect.content].concat();
            assert!(bytes.starts_with(&sent), "{url} {what}");
            let error = error.expect("the body fails");
            assert_eq!(
                insight.verdict().map(|verdict| verdict.class()),
                Some(class),
                "{url} {what}: {error:?}"
            );
            assert_eq!(insight.facts().text.as_deref(), Some("Grüezi"), "{url} {what}");
            closed(&counts).await;
            assert_eq!(counts.requests.load(Ordering::SeqCst), 1, "{url} {what}");
        }
    }
}

#[tokio::test]
async fn held_to_the_end_every_failure_is_a_failed_call_and_a_good_answer_is_known() {
    for dialect in dialects() {
        for (what, class) in [
            ("error-after", Class::Overloaded),
            ("stall-after", Class::Timeout(Limit::Idle)),
            ("no-end", Class::Soft(SoftKind::Truncated)),
            ("cut-after", Class::Transient),
        ] {
            let (url, _) = serve(&dialect, what).await;
            let err = ask(&dialect, &url, true, class).await.unwrap_err();
            assert_eq!(Verdict::of_error(&*err).class(), class, "{url} {what}: {err:?}");
        }
        let (url, _) = serve(&dialect, "good").await;
        let response = ask(&dialect, &url, true, Class::Success).await.unwrap();
        let Step::Now(verdict) = ByResponse.response(&response) else { panic!("{url}: a verdict now") };
        assert!(verdict.is_success(), "{url}");
        assert_eq!(insight(&response).usage().total(), 12);
    }
}

#[tokio::test]
async fn a_socket_kept_open_after_the_protocols_own_end_is_let_go() {
    for dialect in dialects().into_iter().filter(|dialect| dialect.has_end) {
        for holds in [false, true] {
            let (url, counts) = serve(&dialect, "open-after-end").await;
            let response = ask(&dialect, &url, holds, Class::Success).await.unwrap();
            let insight = insight(&response);
            let (bytes, error) = read(response).await;
            assert_eq!(bytes, [&*dialect.head, &dialect.content, &dialect.end].concat(), "{url}");
            assert!(error.is_none(), "{url}: {error:?}");
            assert_eq!(insight.verdict(), Some(Verdict::SUCCESS), "{url}");
            closed(&counts).await;
        }
    }
}

#[tokio::test]
async fn a_model_that_takes_long_to_load_is_waited_for_where_the_limit_allows_it() {
    // Ollama sends nothing at all while it loads a model, not even a head.
    let dialect = dialects().into_iter().find(|dialect| dialect.ask.provider == Provider::Ollama).unwrap();
    let (listener, body) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), dialect.content.clone());
    let url = format!("http://{}/api/chat", listener.local_addr().unwrap());
    let app = Router::new().fallback(post(async move || {
        tokio::time::sleep(Duration::from_millis(500)).await;
        Response::builder().header("content-type", "application/x-ndjson").body(Body::from(body)).unwrap()
    }));
    tokio::spawn(async move { axum::serve(listener, app).await });
    let err = ask(&dialect, &url, false, Class::Timeout(Limit::FirstContent)).await.unwrap_err();
    assert_eq!(Verdict::of_error(&*err).class(), Class::Timeout(Limit::FirstContent));
    let patient = LlmLayer::builder().first_content(Duration::from_secs(60)).build().unwrap();
    let client = reqwest::Client::new();
    let request = client.post(&url).body(dialect.ask.body).build().unwrap();
    let response = patient.layer(client).oneshot(request).await.unwrap();
    assert!(insight(&response).facts().first_content.unwrap() >= Duration::from_millis(500));
}
