//! Streams over real sockets: a server that does everything wrong, and reqwest as the client.

#![cfg(feature = "reqwest-013")]

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body, extract::Path, response::Response, routing::post};
use bytes::Bytes;
use failsoft_core::{
    BoxError, ByResponse, Call, Class, Classify, Closing, Fault, Finish, Guard as _, GuardFn, Insight, Limit,
    OnClose, SoftKind, Step, Usage, Verdict, Watch,
};
use futures_util::stream;
use llm_layer::{Beyond, Llm, LlmBody, LlmDecoder, LlmLayer, LlmLayerBuilder};
use tokio::net::TcpListener;
use tower::{Layer, Service, ServiceExt as _};

const PING: &str = ": ping\n\n";
const ROLE: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
const CONTENT: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Gr\u{fc}ezi\"}}]}\n\n";
const STOP: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const LENGTH: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}]}\n\n";
const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3}}\n\n";
const ERROR: &str = "event: error\ndata: {\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\"}}\n\n";
const DONE: &str = "data: [DONE]\n\n";

#[derive(Clone, Copy)]
enum Do {
    Send(&'static str),
    /// Milliseconds.
    Wait(u64),
    Hang,
    Fail,
}
use Do::{Fail, Hang, Send as S, Wait};

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

fn steps(path: &str) -> Vec<Do> {
    let drip = || (0..1000).flat_map(|_| [Wait(20), S(PING)]);
    match path {
        "good" => vec![S(ROLE), Wait(20), S(CONTENT), Wait(20), S(CONTENT), S(STOP), S(USAGE), S(DONE)],
        "slow" => vec![S(ROLE), Wait(5_000), S(CONTENT), S(STOP), S(DONE)],
        "error-before" => vec![S(ROLE), Wait(20), S(ERROR), Hang],
        "error-after" => vec![S(CONTENT), Wait(20), S(ERROR), Hang],
        "drip-before" => drip().collect(),
        "drip-after" => [S(CONTENT)].into_iter().chain(drip()).collect(),
        "stall" => vec![S(CONTENT), Hang],
        "cut-before" => vec![S(ROLE), Wait(20), Fail],
        "cut-after" => vec![S(CONTENT), Wait(20), Fail],
        "no-end" => vec![S(CONTENT)],
        "no-done" => vec![S(CONTENT), S(STOP), S(USAGE)],
        "length" => vec![S(CONTENT), Wait(20), S(LENGTH), S(USAGE), S(DONE)],
        "empty" => vec![S(ROLE), S(STOP), S(USAGE), S(DONE)],
        "open-after-done" => vec![S(CONTENT), S(STOP), S(USAGE), S(DONE), Hang],
        "json" => vec![S(r#"{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}"#)],
        "slow-json" => {
            vec![S("  "), Wait(500), S(r#"{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}"#)]
        }
        "stalled-json" => vec![S("{\"choices\":"), Hang],
        _ => vec![],
    }
}

fn answer(path: &str, counts: Counts) -> Response {
    counts.requests.fetch_add(1, Ordering::SeqCst);
    counts.open.fetch_add(1, Ordering::SeqCst);
    let open = Open(counts.open);
    let body = stream::unfold((steps(path).into_iter(), open), |(mut steps, open)| async move {
        loop {
            let item = match steps.next()? {
                S(text) => Ok(Bytes::from(text)),
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
    let kind = if path.ends_with("json") { "application/json" } else { "text/event-stream; charset=utf-8" };
    Response::builder().header("content-type", kind).body(Body::from_stream(body)).unwrap()
}

async fn serve() -> (String, Counts) {
    let counts = Counts::default();
    let shared = counts.clone();
    let route = post(async move |Path(path): Path<String>| answer(&path, shared.clone()));
    let router = Router::new().route("/{path}", route);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let listener = axum::serve::ListenerExt::tap_io(listener, |io| io.set_nodelay(true).unwrap());
        axum::serve(listener, router).await
    });
    (url, counts)
}

/// What must not end for want of time, however busy the machine is.
const LONG: Duration = Duration::from_secs(30);

const FIRST: Class = Class::Timeout(Limit::FirstContent);

/// Short is only the limit that must end the call.
fn builder(class: Class) -> LlmLayerBuilder {
    let limit = |of| if class == Class::Timeout(of) { Duration::from_millis(300) } else { LONG };
    LlmLayer::builder().name("model-a").first_content(limit(Limit::FirstContent)).idle(limit(Limit::Idle))
}

fn committing() -> LlmLayer {
    committing_for(Class::Success)
}

fn committing_for(class: Class) -> LlmLayer {
    builder(class).build().unwrap()
}

fn holding_for(class: Class) -> LlmLayer {
    builder(class).hold_to_end(1 << 20).build().unwrap()
}

async fn ask_for(
    layer: &LlmLayer,
    url: &str,
    path: &str,
    body: &'static str,
) -> Result<reqwest::Response, BoxError> {
    let client = reqwest::Client::new();
    let request = client.post(format!("{url}/{path}")).body(body).build()?;
    layer.layer(client).oneshot(request).await
}

async fn ask(layer: &LlmLayer, url: &str, path: &str) -> Result<reqwest::Response, BoxError> {
    ask_for(layer, url, path, r#"{"messages":[],"stream":true}"#).await
}

type Verdicts = Arc<Mutex<Vec<Class>>>;

/// What a breaker outside is told.
fn watch(response: reqwest::Response) -> (reqwest::Response, Verdicts) {
    let verdicts = Verdicts::default();
    let push = Arc::clone(&verdicts);
    let mut guard = GuardFn::new(move |verdict: Verdict| push.lock().unwrap().push(verdict.class()));
    let response = match ByResponse.response(&response) {
        Step::AtEnd(judge) => judge.follow(response, guard),
        Step::Now(verdict) => {
            guard.settle(verdict);
            response
        }
    };
    (response, verdicts)
}

/// The text that arrived, the error at its end, and the verdicts of a watcher outside.
async fn read(response: reqwest::Response) -> (String, Option<reqwest::Error>, Vec<Class>) {
    let (mut response, verdicts) = watch(response);
    let (mut text, mut error) = (Vec::new(), None);
    while error.is_none() {
        match response.chunk().await {
            Ok(Some(bytes)) => text.extend_from_slice(&bytes),
            Ok(None) => break,
            Err(err) => error = Some(err),
        }
    }
    drop(response);
    let verdicts = verdicts.lock().unwrap().clone();
    (String::from_utf8(text).unwrap(), error, verdicts)
}

fn insight(response: &reqwest::Response) -> Insight {
    Insight::of(response.extensions()).expect("an insight").clone()
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
async fn a_good_stream_arrives_whole_and_what_was_learnt_of_it_is_complete_at_its_end() {
    let (url, _) = serve().await;
    let response = ask(&committing(), &url, "good").await.unwrap();
    assert_eq!(response.url().path(), "/good");
    let insight = insight(&response);
    assert_eq!(insight.verdict(), None);
    assert!(insight.facts().first_content.unwrap() >= Duration::from_millis(20));
    let (text, error, verdicts) = read(response).await;
    assert_eq!(text, [ROLE, CONTENT, CONTENT, STOP, USAGE, DONE].concat());
    assert!(error.is_none());
    assert_eq!(verdicts, [Class::Success]);
    let facts = insight.facts();
    assert_eq!((facts.text.as_deref(), facts.finish), (Some("GrüeziGrüezi"), Some(Finish::Stop)));
    assert_eq!(facts.usage, Usage { input: Some(9), output: Some(3), ..Usage::default() });
}

#[tokio::test]
async fn what_goes_wrong_before_content_is_the_error_of_one_request() {
    let (url, counts) = serve().await;
    for (at, (path, class)) in [
        ("error-before", Class::Overloaded),
        ("slow", FIRST),
        ("drip-before", FIRST),
        ("cut-before", Class::Transient),
    ]
    .into_iter()
    .enumerate()
    {
        let err = ask(&committing_for(class), &url, path).await.unwrap_err();
        assert_eq!(Verdict::of_error(&*err).class(), class, "{path}: {err:?}");
        assert!(Fault::find(&*err).is_none_or(|fault| fault.target() == Some("model-a")), "{path}");
        assert_eq!(counts.requests.load(Ordering::SeqCst), at + 1, "{path}");
        closed(&counts).await;
    }
}

#[tokio::test]
async fn what_goes_wrong_after_content_is_an_error_at_the_end_and_one_verdict() {
    // G57, G63, G66: nothing is repeated, nothing follows.
    let (url, counts) = serve().await;
    for (path, class) in [
        ("error-after", Class::Overloaded),
        ("drip-after", Class::Timeout(Limit::Idle)),
        ("stall", Class::Timeout(Limit::Idle)),
        ("no-end", Class::Soft(SoftKind::Truncated)),
    ] {
        let response = ask(&committing_for(class), &url, path).await.unwrap();
        let insight = insight(&response);
        let (text, error, verdicts) = read(response).await;
        assert!(text.starts_with(CONTENT), "{path}");
        let error = error.expect("the body fails");
        let fault = Fault::find(&error).expect("found through reqwest's error");
        assert_eq!((fault.class(), &verdicts[..]), (class, &[class][..]), "{path}");
        assert_eq!(insight.facts().text.as_deref(), Some("Grüezi"), "{path}");
        closed(&counts).await;
    }
    let response = ask(&committing(), &url, "cut-after").await.unwrap();
    let (_, error, verdicts) = read(response).await;
    assert_eq!((error.is_some(), verdicts), (true, vec![Class::Transient]));
}

#[tokio::test]
async fn held_to_the_end_every_failure_is_a_failed_call_and_a_good_answer_is_known() {
    let (url, _) = serve().await;
    for (path, class) in [
        ("error-after", Class::Overloaded),
        ("drip-after", Class::Timeout(Limit::Idle)),
        ("stall", Class::Timeout(Limit::Idle)),
        ("no-end", Class::Soft(SoftKind::Truncated)),
        ("cut-after", Class::Transient),
    ] {
        let err = ask(&holding_for(class), &url, path).await.unwrap_err();
        assert_eq!(Verdict::of_error(&*err).class(), class, "{path}: {err:?}");
    }
    for (path, class) in [
        ("good", Class::Success),
        ("no-done", Class::Success),
        ("open-after-done", Class::Success),
        ("length", Class::Soft(SoftKind::Truncated)),
        ("empty", Class::Soft(SoftKind::Empty)),
    ] {
        let response = ask(&holding_for(class), &url, path).await.unwrap();
        let Step::Now(verdict) = ByResponse.response(&response) else { panic!("{path}: a verdict now") };
        assert_eq!(verdict.class(), class, "{path}");
        assert_eq!(insight(&response).facts().usage.total(), 12, "{path}");
        assert_eq!(
            read(response).await.0.matches("data: ").count(),
            steps(path).iter().filter(|step| matches!(step, S(_))).count()
        );
    }
    let short = builder(Class::Success).hold_to_end(CONTENT.len()).beyond(Beyond::Fail).build().unwrap();
    assert!(ask(&short, &url, "good").await.is_err());
}

#[tokio::test]
async fn a_cut_at_the_limit_of_tokens_is_a_verdict_at_a_clean_end() {
    let (url, _) = serve().await;
    let response = ask(&committing(), &url, "length").await.unwrap();
    let (text, error, verdicts) = read(response).await;
    assert_eq!(text, [CONTENT, LENGTH, USAGE, DONE].concat());
    assert_eq!((error.is_none(), verdicts), (true, vec![Class::Soft(SoftKind::Truncated)]));
    // An answer of nothing was never handed on as content: it is known at once.
    let response = ask(&committing(), &url, "empty").await.unwrap();
    assert_eq!(
        insight(&response).verdict().map(|verdict| verdict.class()),
        Some(Class::Soft(SoftKind::Empty))
    );
}

#[tokio::test]
async fn a_socket_kept_open_after_the_end_and_an_end_without_terminator_are_successes() {
    let (url, counts) = serve().await;
    for path in ["open-after-done", "no-done"] {
        let response = ask(&committing(), &url, path).await.unwrap();
        let (_, error, verdicts) = read(response).await;
        assert_eq!((error.is_none(), verdicts), (true, vec![Class::Success]), "{path}");
        closed(&counts).await;
    }
}

#[tokio::test]
async fn a_client_that_drops_the_body_right_at_the_end_had_a_success_and_is_billed() {
    // What async-openai's client does.
    for (stop, class, usage) in [(DONE, Class::Success, 12), (CONTENT, Class::Cancelled, 2)] {
        let (url, counts) = serve().await;
        let closings = Arc::new(Mutex::new(Vec::new()));
        let push = Arc::clone(&closings);
        let on_close = OnClose::new(move |closing| push.lock().unwrap().push(closing));
        let reserved = Call::options().reserving(on_close);
        let path = if class.is_success() { "open-after-done" } else { "stall" };
        let response = reserved.call().scope(ask(&committing(), &url, path)).await.unwrap();
        drop(reserved);
        let (mut response, verdicts) = watch(response);
        let mut text = String::new();
        while !text.ends_with(stop) {
            text.push_str(&String::from_utf8_lossy(&response.chunk().await.unwrap().unwrap()));
        }
        drop(response);
        assert_eq!(*verdicts.lock().unwrap(), [class]);
        let [Closing::Settled { usage: billed, unknown }] = closings.lock().unwrap()[..] else {
            panic!("settled once")
        };
        // A client that hangs up before the usage came is billed for what it saw.
        assert_eq!((billed.total(), billed.input.is_some(), unknown), (usage, class.is_success(), 0));
        closed(&counts).await;
    }
}

#[tokio::test]
async fn a_stream_that_was_asked_for_may_come_as_json_and_has_the_limits_of_a_stream() {
    let (url, _) = serve().await;
    let response = ask(&committing(), &url, "json").await.unwrap();
    assert!(insight(&response).verdict().is_some_and(|verdict| verdict.is_success()));
    let err = ask(&committing_for(FIRST), &url, "slow-json").await.unwrap_err();
    assert_eq!(Verdict::of_error(&*err).class(), FIRST);
}

#[tokio::test]
async fn a_whole_answer_has_no_limit_on_its_first_content_unless_one_is_chosen() {
    const WHOLE: &str = r#"{"messages":[]}"#;
    let (url, _) = serve().await;
    let idle = LlmLayer::builder().idle(Duration::from_millis(200)).build().unwrap();
    // Blank lines keep the connection alive; the idle limit waits for the first word.
    let response = ask_for(&idle, &url, "slow-json", WHOLE).await.unwrap();
    assert!(insight(&response).verdict().is_some_and(|verdict| verdict.is_success()));
    let err = ask_for(&idle, &url, "stalled-json", WHOLE).await.unwrap_err();
    assert_eq!(Verdict::of_error(&*err).class(), Class::Timeout(Limit::Idle));
    let err = ask_for(&committing_for(FIRST), &url, "slow-json", WHOLE).await.unwrap_err();
    assert_eq!(Verdict::of_error(&*err).class(), FIRST);
}

#[tokio::test]
async fn a_dropped_call_closes_the_socket() {
    let (url, counts) = serve().await;
    let slow = LlmLayer::builder().build().unwrap();
    let call = tokio::time::timeout(Duration::from_millis(100), ask(&slow, &url, "drip-before"));
    assert!(call.await.is_err());
    closed(&counts).await;
}

#[test]
fn around_real_clients_it_is_send_and_sync() {
    static_assertions::assert_impl_all!(Llm<reqwest::Client>: Clone, Send, Sync, std::fmt::Debug, Unpin);
    static_assertions::assert_impl_all!(LlmBody<reqwest::Body>: Send, Sync, Unpin);
    static_assertions::assert_impl_all!(LlmDecoder: Send, Sync, Unpin);
    fn future_is_send<S: Service<reqwest::Request, Future: Send>>(_: &S) {}
    future_is_send(&committing().layer(reqwest::Client::new()));
}
