//! tower-http on the client's side, over hyper-util's client and real sockets where bodies matter.

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
};

use axum::{Router, http::StatusCode, routing::post};
use breaker_layer::engine::State;
use bytes::Bytes;
use failsoft_core::{BoxError, Class, Fault, Insight, Limit, Verdict};
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, HeaderValue, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use llm_layer::{LlmLayer, Provider};
use tower::{ServiceBuilder, ServiceExt as _, service_fn};
use tower_http::{
    compression::{CompressionLayer, predicate::SizeAbove},
    decompression::DecompressionLayer,
    request_id::{MakeRequestId, PropagateRequestIdLayer, RequestId, SetRequestIdLayer},
    set_header::{SetRequestHeaderLayer, SetResponseHeaderLayer},
    timeout::{ResponseBodyTimeoutLayer, TimeoutLayer},
    trace::TraceLayer,
};
use validate_layer::ValidateLayer;

use crate::{SECOND, Upstream, breaker, request, retry};

type Whole = http::Request<Full<Bytes>>;

const ANSWER: &str = r#"{"id":"c1","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"{\"city\": \"Bern\"}"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":12}}"#;
const ERROR: &str = r#"{"error":{"message":"no room","type":"overloaded_error"}}"#;

fn hyper() -> Client<HttpConnector, Full<Bytes>> {
    Client::builder(TokioExecutor::new()).build_http()
}

fn chat(url: &str) -> Whole {
    let body = Full::from(r#"{"model":"m","messages":[{"role":"user","content":"Where?"}]}"#);
    http::Request::post(url).header(header::CONTENT_TYPE, "application/json").body(body).unwrap()
}

/// Answers with these texts in turn, compressed where that is accepted.
async fn serve(texts: &'static [&'static str]) -> (String, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    let answer = async move || {
        let text = texts[count.fetch_add(1, SeqCst).min(texts.len() - 1)];
        ([(header::CONTENT_TYPE, "application/json")], text)
    };
    let router = Router::new()
        .route("/", post(answer))
        .layer(CompressionLayer::new().compress_when(SizeAbove::new(0)));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, requests)
}

#[tokio::test]
async fn decompressed_inside_an_answer_is_read_checked_and_asked_for_again() {
    let (url, requests) = serve(&[ERROR, ANSWER]).await;
    let (breaker, circuit) = breaker(10);
    let service = ServiceBuilder::new()
        .layer(retry(0).repeat_unanswered(true).build().unwrap())
        .layer(breaker)
        .layer(ValidateLayer::builder().require("/city").build().unwrap())
        .layer(LlmLayer::new(Provider::OpenAiCompatible))
        .layer(DecompressionLayer::new())
        .service(hyper());
    let response = service.oneshot(chat(&url)).await.unwrap();
    assert!(!response.headers().contains_key(header::CONTENT_ENCODING));
    let usage = Insight::of(response.extensions()).unwrap().read(|facts| facts.usage);
    assert_eq!((usage.total_input(), usage.total_output()), (9, 12));
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), ANSWER);
    // A 200 with an error in it was a failure, though it came compressed.
    assert_eq!((requests.load(SeqCst), circuit.counts().total, circuit.counts().failed), (2, 2, 1));
}

#[tokio::test]
async fn decompressed_outside_an_answer_passes_unread_and_is_whole() {
    let (url, _) = serve(&[ANSWER]).await;
    let (breaker, circuit) = breaker(1);
    let service = ServiceBuilder::new()
        .layer(DecompressionLayer::new())
        .layer(breaker)
        .layer(ValidateLayer::builder().build().unwrap())
        .layer(LlmLayer::new(Provider::OpenAiCompatible))
        .service(hyper());
    // The client does not ask for it by itself here: the layer outside does.
    let response = service.oneshot(chat(&url)).await.unwrap();
    let read = Insight::of(response.extensions()).map(|insight| insight.read(|facts| facts.usage.total()));
    assert_eq!(read.unwrap_or(0), 0, "what is not understood is not guessed");
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), ANSWER);
    assert_eq!((circuit.counts().total, circuit.counts().failed), (1, 0));
}

/// Streams an answer that breaks off with an error of the provider.
async fn broken(_: Whole) -> Result<http::Response<StreamBody<Events>>, Infallible> {
    let events = [
        "data: {\"choices\":[{\"delta\":{\"content\":\"Be\"}}]}\n\n",
        "data: {\"error\":{\"type\":\"overloaded_error\",\"message\":\"no room\"}}\n\n",
    ];
    let events: Events =
        stream::iter(events).map(|event| Ok(Frame::data(Bytes::from_static(event.as_bytes())))).boxed();
    let mut response = http::Response::new(StreamBody::new(events));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    Ok(response)
}

type Events = stream::BoxStream<'static, Result<Frame<Bytes>, Infallible>>;

/// A proxy compresses what it hands on: between it and llm-layer nothing is lost.
#[tokio::test]
async fn compressed_outside_the_verdict_stays() {
    let (outer, circuit) = breaker(10);
    let service = ServiceBuilder::new()
        .layer(outer)
        .layer(CompressionLayer::new().compress_when(SizeAbove::new(0)))
        .layer(LlmLayer::new(Provider::OpenAiCompatible))
        .service(service_fn(broken));
    let mut request = chat("http://models.example/v1/chat/completions");
    *request.body_mut() = Full::from(r#"{"model":"m","messages":[],"stream":true}"#);
    request.headers_mut().insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    let response = service.oneshot(request).await.unwrap();
    assert_eq!(response.headers()[header::CONTENT_ENCODING], "gzip");
    let insight = Insight::of(response.extensions()).unwrap().clone();
    let error = response.into_body().collect().await.err().unwrap();
    assert_eq!(Fault::find(&*error).unwrap().class(), Class::Overloaded);
    assert_eq!(insight.verdict().unwrap().class(), Class::Overloaded);
    assert_eq!((circuit.counts().total, circuit.counts().failed), (1, 1));
}

#[tokio::test]
async fn traced_inside_and_outside_answers_are_the_same() {
    let (url, requests) = serve(&[ERROR, ANSWER]).await;
    let (breaker, circuit) = breaker(10);
    let service = ServiceBuilder::new()
        .layer(TraceLayer::new_for_http())
        .layer(retry(0).repeat_unanswered(true).build().unwrap())
        .layer(breaker)
        .layer(TraceLayer::new_for_http())
        .layer(ValidateLayer::builder().require("/city").build().unwrap())
        .layer(LlmLayer::new(Provider::OpenAiCompatible))
        .layer(TraceLayer::new_for_http())
        .service(hyper());
    let response = service.oneshot(chat(&url)).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), ANSWER);
    assert_eq!((requests.load(SeqCst), circuit.counts().total, circuit.counts().failed), (2, 2, 1));
}

/// Numbers the requests.
#[derive(Clone, Default)]
pub(crate) struct Numbered(Arc<AtomicU64>);

impl MakeRequestId for Numbered {
    fn make_request_id<B>(&mut self, _: &http::Request<B>) -> Option<RequestId> {
        Some(RequestId::new(self.0.fetch_add(1, SeqCst).into()))
    }
}

/// Fails twice, and notes the headers of each attempt.
fn noting() -> (
    Arc<Mutex<Vec<HeaderMap>>>,
    impl tower::Service<crate::Request, Response = crate::Response, Error = BoxError, Future: Send>
    + Clone
    + Send
    + Sync,
) {
    let seen: Arc<Mutex<Vec<HeaderMap>>> = Arc::default();
    let notes = Arc::clone(&seen);
    let service = service_fn(move |request: crate::Request| {
        let mut seen = notes.lock().unwrap();
        seen.push(request.headers().clone());
        let status = if seen.len() < 3 { 503 } else { 200 };
        std::future::ready(Ok(crate::response(status)))
    });
    (seen, service)
}

#[tokio::test(start_paused = true)]
async fn a_request_id_set_outside_a_retry_is_that_of_the_call_and_inside_that_of_the_attempt() {
    for (outside, ids) in [(true, ["0", "0", "0"]), (false, ["0", "1", "2"])] {
        let (seen, upstream) = noting();
        let id = SetRequestIdLayer::x_request_id(Numbered::default());
        let retry = retry(1).build().unwrap();
        let stack = ServiceBuilder::new();
        let response = if outside {
            let service =
                stack.layer(id).layer(PropagateRequestIdLayer::x_request_id()).layer(retry).service(upstream);
            service.oneshot(request()).await.unwrap()
        } else {
            let service =
                stack.layer(retry).layer(id).layer(PropagateRequestIdLayer::x_request_id()).service(upstream);
            service.oneshot(request()).await.unwrap()
        };
        let told: Vec<_> =
            seen.lock().unwrap().iter().map(|headers| headers["x-request-id"].clone()).collect();
        assert_eq!(told, ids);
        // On the answer stands the one of the attempt that brought it.
        assert_eq!(response.headers()["x-request-id"], ids[2]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_header_is_set_once_an_attempt_wherever_it_is_appended() {
    for outside in [true, false] {
        let (seen, upstream) = noting();
        let name = header::HeaderName::from_static("x-team");
        let set = SetRequestHeaderLayer::appending(name, HeaderValue::from_static("blue"));
        let retry = retry(1).build().unwrap();
        let response = if outside {
            ServiceBuilder::new().layer(set).layer(retry).service(upstream).oneshot(request()).await.unwrap()
        } else {
            ServiceBuilder::new().layer(retry).layer(set).service(upstream).oneshot(request()).await.unwrap()
        };
        assert_eq!(response.status(), 200);
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), 3);
        assert!(seen.iter().all(|headers| headers.get_all("x-team").iter().count() == 1), "{outside}");
    }
}

/// A header that says how an answer is to be judged belongs inside whoever judges.
#[tokio::test(start_paused = true)]
async fn a_response_header_set_inside_is_read_and_set_outside_is_not() {
    for (inside, calls) in [(true, 1), (false, 3)] {
        let upstream = Upstream::new([(0, 503), (0, 503), (0, 200)]);
        let name = header::HeaderName::from_static("x-should-retry");
        let set = SetResponseHeaderLayer::overriding(name, HeaderValue::from_static("false"));
        let retry = retry(1).build().unwrap();
        let response = if inside {
            ServiceBuilder::new().layer(retry).layer(set).service(upstream.service()).oneshot(request()).await
        } else {
            ServiceBuilder::new().layer(set).layer(retry).service(upstream.service()).oneshot(request()).await
        };
        assert_eq!(response.unwrap().headers()["x-should-retry"], "false");
        assert_eq!(upstream.calls(), calls);
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_that_answers_with_a_status_counts_and_is_asked_again() {
    for (status, class) in [
        (StatusCode::REQUEST_TIMEOUT, Class::Timeout(Limit::Total)),
        (StatusCode::GATEWAY_TIMEOUT, Class::Transient),
    ] {
        let upstream = Upstream::new([(10, 200), (0, 200)]);
        let (breaker, circuit) = breaker(10);
        let limit = TimeoutLayer::with_status_code(status, SECOND);
        let service = ServiceBuilder::new()
            .layer(retry(1).build().unwrap())
            .layer(breaker)
            .layer(limit)
            .service(upstream.service());
        let call = failsoft_core::Call::begin();
        let response = call.scope(service.oneshot(request())).await.unwrap();
        assert_eq!((response.status().as_u16(), circuit.counts().failed), (200, 1));
        assert_eq!(call.trail().attempts()[0].verdict.class(), class);
    }
}

/// A body that stalls: `tower::timeout` right around the client does not see it, this does.
#[tokio::test(start_paused = true)]
async fn a_body_that_is_silent_too_long_fails_whoever_reads_it_and_counts() {
    let silent = service_fn(async |_: crate::Request| {
        let first = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"{")))]);
        let mut response = http::Response::new(StreamBody::new(first.chain(stream::pending())));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok::<_, Infallible>(response)
    });
    let (breaker, circuit) = breaker(1);
    let service = ServiceBuilder::new()
        .layer(breaker)
        .layer(ValidateLayer::builder().json_object().build().unwrap())
        // Its body is not `Unpin`.
        .map_response(|response: http::Response<_>| {
            response.map(http_body_util::combinators::UnsyncBoxBody::new)
        })
        .layer(ResponseBodyTimeoutLayer::new(SECOND))
        .service(silent);
    let error = service.oneshot(request()).await.err().unwrap();
    let class = Verdict::of_error(&*error).class();
    assert_eq!(class, Class::Transient, "{error}");
    assert_eq!(circuit.state(), State::Open);
}
