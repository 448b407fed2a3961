//! Real sockets: a server that does everything wrong, and reqwest as the client.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::common::*;
use axum::{Router, body::Body, extract::Path, http::StatusCode, response::Response, routing::get};
use failsoft_core::{
    BoxError, ByResponse, Class, Classify, Fault, Insight, Limit, SoftKind, Step, Verdict, Watch,
};
use futures_util::stream;
use stream_layer::StreamLayer;
use tokio::net::TcpListener;
use tower::{Service, ServiceExt as _};
use tower_layer::Layer;

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

async fn answer(path: String, counts: Counts) -> Response {
    counts.requests.fetch_add(1, Ordering::SeqCst);
    counts.open.fetch_add(1, Ordering::SeqCst);
    let open = Open(counts.open);
    let short = || Do::Wait(Duration::from_millis(20));
    let drip = || (0..1000).flat_map(|_| [Do::Wait(Duration::from_millis(20)), send(PING)]);
    let steps: Vec<Do> = match &*path {
        "good" => vec![send(ROLE), short(), send(CONTENT), short(), send(CONTENT), send(DONE)],
        "error-before" => vec![send(ROLE), short(), send(ERROR_EVENT), Do::Hang],
        "error-after" => vec![send(CONTENT), short(), send(ERROR_EVENT), Do::Hang],
        "drip-before" => drip().collect(),
        "drip-after" => [send(CONTENT)].into_iter().chain(drip()).collect(),
        "stall" => vec![send(CONTENT), Do::Hang],
        "cut-before" => vec![send(ROLE), short(), Do::Fail],
        "cut-after" => vec![send(CONTENT), short(), Do::Fail],
        "no-terminator" => vec![send(CONTENT)],
        "open-after-done" => vec![send(CONTENT), send(DONE), Do::Hang],
        "denied" => vec![send("{\"error\":\"key\"}")],
        "never" => {
            std::future::pending::<()>().await;
            vec![]
        }
        _ => vec![],
    };
    let body = stream::unfold((steps.into_iter(), open), |(mut steps, open)| async move {
        loop {
            let item = match steps.next()? {
                Do::Send(bytes) => Ok(bytes),
                Do::Wait(time) => {
                    tokio::time::sleep(time).await;
                    continue;
                }
                Do::Hang => std::future::pending().await,
                Do::Fail | Do::Trailers => Err(std::io::Error::other("cut")),
            };
            return Some((item, (steps, open)));
        }
    });
    let mut response = Response::new(Body::from_stream(body));
    if path == "denied" {
        *response.status_mut() = StatusCode::UNAUTHORIZED;
    }
    response.headers_mut().insert("content-type", "text/event-stream".parse().unwrap());
    response
}

async fn serve() -> (String, Counts) {
    let counts = Counts::default();
    let shared = counts.clone();
    let router =
        Router::new().route("/{path}", get(move |Path(path): Path<String>| answer(path, shared.clone())));
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

fn layer() -> StreamLayer<Chat> {
    layer_for(Class::Success)
}

/// Short is only the limit that must end the call.
fn layer_for(class: Class) -> StreamLayer<Chat> {
    let limit = |of| if class == Class::Timeout(of) { Duration::from_millis(300) } else { LONG };
    StreamLayer::builder(Chat::default())
        .first_content(limit(Limit::FirstContent))
        .idle(limit(Limit::Idle))
        .build()
        .unwrap()
}

async fn get_from(layer: &StreamLayer<Chat>, url: String) -> Result<reqwest::Response, BoxError> {
    let client = reqwest::Client::new();
    let request = client.get(url).build()?;
    layer.layer(client).ready().await?.call(request).await
}

/// The text that arrived, the error at its end, and the verdict of a watcher outside.
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

fn watch(response: reqwest::Response) -> (reqwest::Response, Arc<Mutex<Vec<Class>>>) {
    let verdicts = Arc::new(Mutex::new(Vec::new()));
    let push = Arc::clone(&verdicts);
    let mut guard =
        failsoft_core::GuardFn::new(move |verdict: Verdict| push.lock().unwrap().push(verdict.class()));
    let response = match ByResponse.response(&response) {
        Step::AtEnd(judge) => judge.follow(response, guard),
        Step::Now(verdict) => {
            failsoft_core::Guard::settle(&mut guard, verdict);
            response
        }
    };
    (response, verdicts)
}

async fn closed(counts: &Counts) {
    let all = async {
        while counts.open.load(Ordering::SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, all).await.expect("the server sees the socket close");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_good_stream_arrives_whole_with_its_url() {
    let (url, _) = serve().await;
    let response = get_from(&layer(), format!("{url}/good")).await.unwrap();
    assert_eq!((response.url().path(), response.status().as_u16()), ("/good", 200));
    let insight = Insight::of(response.extensions()).unwrap().clone();
    assert!(insight.facts().first_content.unwrap() >= Duration::from_millis(20));
    let (text, error, verdicts) = read(response).await;
    assert_eq!(text, [ROLE, CONTENT, CONTENT, DONE].concat());
    assert!(error.is_none());
    assert_eq!(verdicts, [Class::Success]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_goes_wrong_before_content_is_the_error_of_one_request() {
    for (path, class) in [
        ("error-before", Class::Overloaded),
        ("drip-before", Class::Timeout(Limit::FirstContent)),
        ("never", Class::Timeout(Limit::FirstContent)),
        ("cut-before", Class::Transient),
    ] {
        let (url, counts) = serve().await;
        let err = get_from(&layer_for(class), format!("{url}/{path}")).await.unwrap_err();
        assert_eq!(Verdict::of_error(&*err).class(), class, "{path}: {err:?}");
        assert_eq!(counts.requests.load(Ordering::SeqCst), 1, "{path}");
        if path != "never" {
            closed(&counts).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_goes_wrong_after_content_is_an_error_at_the_end_of_the_body_and_one_verdict() {
    for (path, class) in [
        ("error-after", Class::Overloaded),
        ("drip-after", Class::Timeout(Limit::Idle)),
        ("stall", Class::Timeout(Limit::Idle)),
        ("no-terminator", Class::Soft(SoftKind::Truncated)),
    ] {
        let (url, counts) = serve().await;
        let response = get_from(&layer_for(class), format!("{url}/{path}")).await.unwrap();
        let (text, error, verdicts) = read(response).await;
        assert!(text.starts_with(CONTENT), "{path}");
        let error = error.expect("the body fails");
        let fault = Fault::find(&error).expect("found through reqwest's error");
        assert_eq!((fault.class(), &verdicts[..]), (class, &[class][..]), "{path}");
        closed(&counts).await;
    }
    let (url, _) = serve().await;
    let response = get_from(&layer(), format!("{url}/cut-after")).await.unwrap();
    let (_, error, verdicts) = read(response).await;
    assert!(error.is_some());
    assert_eq!(verdicts, [Class::Transient]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_kept_open_after_the_protocols_end_ends_cleanly() {
    let (url, counts) = serve().await;
    let response = get_from(&layer(), format!("{url}/open-after-done")).await.unwrap();
    let (text, error, verdicts) = read(response).await;
    assert_eq!((text, error.is_none()), ([CONTENT, DONE].concat(), true));
    assert_eq!(verdicts, [Class::Success]);
    closed(&counts).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_stops_at_the_protocols_end_had_a_success_and_one_that_hangs_up_earlier_did_not() {
    for (stop, class) in [(DONE, Class::Success), (CONTENT, Class::Cancelled)] {
        let (url, counts) = serve().await;
        let path = if class.is_success() { "open-after-done" } else { "stall" };
        let response = get_from(&layer(), format!("{url}/{path}")).await.unwrap();
        let (mut response, verdicts) = watch(response);
        let mut text = String::new();
        while !text.ends_with(stop) {
            text.push_str(&String::from_utf8_lossy(&response.chunk().await.unwrap().unwrap()));
        }
        drop(response);
        assert_eq!(*verdicts.lock().unwrap(), [class]);
        closed(&counts).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_response_keeps_its_status_and_its_body() {
    let (url, _) = serve().await;
    let response = get_from(&layer(), format!("{url}/denied")).await.unwrap();
    assert_eq!(response.status().as_u16(), 401);
    assert_eq!(response.text().await.unwrap(), "{\"error\":\"key\"}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_to_the_end_a_cut_in_the_middle_is_a_failed_call() {
    let (url, _) = serve().await;
    let held = StreamLayer::builder(Chat::default()).hold_to_end(1 << 20).build().unwrap();
    let err = get_from(&held, format!("{url}/cut-after")).await.unwrap_err();
    assert_eq!(Verdict::of_error(&*err).class(), Class::Transient);
    let response = get_from(&held, format!("{url}/good")).await.unwrap();
    assert!(Insight::of(response.extensions()).unwrap().verdict().unwrap().is_success());
    assert_eq!(response.text().await.unwrap(), [ROLE, CONTENT, CONTENT, DONE].concat());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_call_closes_the_socket() {
    let (url, counts) = serve().await;
    let path = format!("{url}/drip-before");
    let slow = StreamLayer::new(Chat::default());
    let call = tokio::time::timeout(Duration::from_millis(100), get_from(&slow, path));
    assert!(call.await.is_err());
    closed(&counts).await;
}

#[test]
fn around_real_clients_it_is_clone_send_and_sync() {
    use static_assertions::{assert_impl_all, assert_not_impl_any};
    use stream_layer::{AnyContentDecoder, Streamed, StreamedBody};
    assert_impl_all!(Streamed<reqwest::Client, Chat>: Clone, Send, Sync, std::fmt::Debug, Unpin);
    assert_impl_all!(StreamedBody<reqwest::Body, AnyContentDecoder>: Send, Sync, Unpin);
    assert_impl_all!(StreamedBody<Body, AnyContentDecoder>: Send, Unpin);
    struct NoClone;
    assert_not_impl_any!(Streamed<NoClone, Chat>: Clone);
    fn future_is_send<S: Service<reqwest::Request, Future: Send>>(_: &S) {}
    future_is_send(&layer().layer(reqwest::Client::new()));
}
