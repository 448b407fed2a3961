//! The layer as a service: readiness, dropping, bodies that come slowly, fail or are not for it.

use std::{
    convert::Infallible,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use failsoft_core::{
    BoxError, ByResponse, Call, Class, Classify, Closing, Fault, Hint, Insight, OnClose, Step, Usage, Verdict,
};
use futures_util::{FutureExt as _, StreamExt as _, stream};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Full, StreamBody};
use llm_layer::{Llm, LlmBody, LlmLayer, Provider};
use tower::{Layer, Service, ServiceExt, service_fn};

const GOOD: &str = r#"{"choices":[{"message":{"content":"Paris"},"finish_reason":"stop"}],
    "usage":{"prompt_tokens":9,"completion_tokens":3}}"#;

fn layer() -> LlmLayer {
    LlmLayer::new(Provider::OpenAiCompatible)
}

fn response(status: u16, kind: &str, body: &'static str) -> Response<Full<Bytes>> {
    Response::builder().status(status).header("content-type", kind).body(Full::from(body)).unwrap()
}

async fn answer<B>(response: Response<B>, request: &str) -> Response<LlmBody<B>>
where
    B: Body<Error: Into<BoxError>> + Unpin,
{
    let mut response = Some(response);
    let target = service_fn(move |_: Request<String>| {
        std::future::ready(Ok::<_, Infallible>(response.take().expect("one call")))
    });
    layer().layer(target).oneshot(Request::new(request.to_owned())).await.unwrap()
}

fn learnt<B>(response: &Response<B>) -> Option<Verdict> {
    Insight::of(response.extensions()).and_then(Insight::verdict)
}

/// What a layer outside is told by the default classifier.
fn seen<B: Body<Error: Into<BoxError>>>(response: &Response<B>) -> Option<Verdict> {
    match ByResponse.response(response) {
        Step::Now(verdict) => Some(verdict),
        Step::AtEnd(_) => None,
    }
}

async fn text<B: Body<Data = Bytes, Error: std::fmt::Debug>>(response: Response<B>) -> Bytes {
    response.into_body().collect().await.unwrap().to_bytes()
}

#[tokio::test]
async fn an_answer_passes_byte_for_byte_with_what_was_learnt_of_it() {
    let response = answer(response(200, "application/json", GOOD), "{}").await;
    let facts = Insight::of(response.extensions()).unwrap().facts();
    assert_eq!(facts.verdict.map(|verdict| verdict.class()), Some(Class::Success));
    assert_eq!(facts.usage, Usage { input: Some(9), output: Some(3), ..Usage::default() });
    assert_eq!(response.body().size_hint().exact(), Some(GOOD.len() as u64));
    assert_eq!(text(response).await, GOOD);
}

#[tokio::test]
async fn an_error_inside_a_success_is_a_failure_for_every_layer_outside() {
    let body = r#"{"error":{"type":"insufficient_quota","message":"x"}}"#;
    let response = answer(response(200, "application/json", body), "{}").await;
    assert_eq!(seen(&response).map(|verdict| verdict.class()), Some(Class::Quota));
    assert!(Insight::of(response.extensions()).unwrap().read(|facts| facts.inside_success));
    assert_eq!(text(response).await, body);
}

#[tokio::test]
async fn an_error_response_keeps_its_body_and_its_advice() {
    let body = r#"{"error":{"message":"slow down","type":"requests","code":"rate_limit_exceeded"}}"#;
    let mut limited = response(429, "application/json", body);
    limited.headers_mut().insert("retry-after", http::HeaderValue::from_static("7"));
    let response = answer(limited, "{}").await;
    let verdict = seen(&response).unwrap();
    assert_eq!((verdict.class(), verdict.hint()), (Class::RateLimited, Hint::After));
    assert_eq!(verdict.retry_after().map(|after| after.as_secs()), Some(7));
    assert_eq!((response.status(), text(response).await), (StatusCode::TOO_MANY_REQUESTS, body.into()));
}

#[tokio::test]
async fn html_or_null_or_half_an_answer_in_a_success_may_be_asked_for_again() {
    // G19, V-B4
    for body in
        ["<html><body>502</body></html>", "null", r#"{"choices":[{"message":{"cont"#, "upstream error"]
    {
        for kind in ["application/json", "text/html; charset=utf-8", "text/plain"] {
            let verdict = seen(&answer(response(200, kind, body), r#"{"messages":[]}"#).await).unwrap();

            assert_eq!((verdict.class(), verdict.hint()), (Class::Transient, Hint::Same), "{kind} {body}");
        }
    }
}

#[tokio::test]
async fn a_byte_order_mark_spoils_no_answer_and_another_encoding_does() {
    let marked = ["\u{feff}", GOOD].concat().leak();
    for request in [r#"{"messages":[]}"#, "{}"] {
        let response = answer(response(200, "application/json", marked), request).await;
        assert_eq!(seen(&response), Some(Verdict::SUCCESS));
        assert_eq!(text(response).await, marked.as_bytes());
    }
    let latin = GOOD
        .replace("Paris", "?")
        .into_bytes()
        .into_iter()
        .map(|byte| if byte == b'?' { 0xE9 } else { byte });
    let facts = Provider::Auto.judge(
        StatusCode::OK,
        &HeaderMap::new(),
        &latin.collect::<Vec<u8>>(),
        &llm_layer::Offered::unknown(),
    );
    assert_eq!(facts.verdict.map(|verdict| verdict.class()), Some(Class::Transient));
    assert_eq!(facts.report.findings()[0].code(), "not_utf8");
}

#[tokio::test]
async fn what_the_request_offered_decides_whether_a_tool_is_known() {
    const CALL: &str = r#"{"choices":[{"finish_reason":"tool_calls","message":{"content":null,"tool_calls":[
        {"id":"1","type":"function","function":{"name":"get_wether","arguments":"{}"}}]}}]}"#;
    let request = r#"{"messages":[],"tools":[{"type":"function","function":{"name":"get_weather"}}]}"#;
    let response1 = answer(response(200, "application/json", CALL), request).await;
    assert_eq!(learnt(&response1).unwrap().class().as_str(), "soft.unknown_tool");
    // The request's body is a stream: nothing is known of it, and the call may be right.
    let target = service_fn(async |_: Request<http_body_util::Empty<Bytes>>| {
        Ok::<_, Infallible>(response(200, "application/json", CALL))
    });
    let response2 = layer().layer(target).oneshot(Request::new(http_body_util::Empty::new())).await.unwrap();
    assert_eq!(learnt(&response2).unwrap().class(), Class::Success);
}

#[tokio::test]
async fn streams_that_no_chat_asked_for_and_other_types_pass_unread_and_failures_are_judged_whatever_their_type()
 {
    for kind in ["text/event-stream", "application/x-ndjson", "audio/mpeg", "application/grpc"] {
        let never = StreamBody::new(stream::pending::<Result<Frame<Bytes>, BoxError>>());
        let mut response = Response::new(never);
        response.headers_mut().insert("content-type", http::HeaderValue::from_static(kind));
        assert_eq!(learnt(&answer(response, "{}").await), None, "{kind}");
    }
    let event = "event: error\ndata: {\"error\":{\"type\":\"overloaded_error\"}}\n\n";
    let response = answer(response(500, "text/event-stream", event), "{}").await;
    assert_eq!(learnt(&response).unwrap().class(), Class::Overloaded);
}

#[tokio::test]
async fn a_chat_that_asked_for_no_stream_is_answered_with_json_or_not_at_all() {
    let chat = r#"{"messages":[]}"#;
    let class = async |response| seen(&answer(response, chat).await).map(|verdict| verdict.class().as_str());
    for kind in ["application/octet-stream", "image/png", "application/xml"] {
        assert_eq!(class(response(200, kind, GOOD)).await, Some("success"), "{kind}");
        assert_eq!(class(response(200, kind, "<html>")).await, Some("transient"), "{kind}");
        let event = "data: {\"error\":{\"type\":\"overloaded_error\"}}\n\ndata: [DONE]\n\n";
        assert_eq!(class(response(200, kind, event)).await, Some("overloaded"), "{kind}");
        let event = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\ndata: [DONE]\n\n";
        assert_eq!(class(response(200, kind, event)).await, Some("transient"), "{kind}");
    }
    // A stream may have no end: it is not held, and known by its type.
    for kind in ["text/event-stream", "application/x-ndjson"] {
        let mut response =
            Response::new(StreamBody::new(stream::pending::<Result<Frame<Bytes>, BoxError>>()));
        response.headers_mut().insert("content-type", http::HeaderValue::from_static(kind));
        let response = answer(response, chat).await;
        assert_eq!(seen(&response).map(|verdict| verdict.class()), Some(Class::Transient), "{kind}");
    }
    for status in [204, 205] {
        assert_eq!(class(response(status, "application/json", "")).await, Some("soft.empty"), "{status}");
    }
    for other in [r#"{"object":"list","data":[]}"#, r#"{"object":"status","message":"maintenance"}"#] {
        assert_eq!(class(response(200, "application/json", other)).await, Some("soft.malformed"), "{other}");
    }
}

#[tokio::test]
async fn a_stream_without_a_content_type_is_not_held_when_a_stream_was_asked_for() {
    let never = StreamBody::new(stream::pending::<Result<Frame<Bytes>, BoxError>>());
    let request = r#"{"messages":[],"stream":true}"#;
    assert_eq!(learnt(&answer(Response::new(never), request).await), None);
    // An error in its place is judged.
    let body = r#"{"error":{"message":"x","code":502}}"#;
    let response = answer(response(200, "application/json", body), request).await;
    assert_eq!(learnt(&response).unwrap().class(), Class::Transient);
}

#[tokio::test]
async fn encoded_and_bodiless_and_too_long_responses_pass_as_they_are() {
    let mut packed = response(200, "application/json", "\u{1f}");
    packed.headers_mut().insert("content-encoding", http::HeaderValue::from_static("gzip"));
    assert_eq!(learnt(&answer(packed, "{}").await), None);
    assert_eq!(learnt(&answer(response(204, "application/json", ""), "{}").await), None);

    let small = LlmLayer::builder().max_body(8).build().unwrap();
    let chunks = || {
        stream::iter(["null  ", "     ", "  "]).map(|text| Ok::<_, BoxError>(Frame::data(Bytes::from(text))))
    };
    let target = service_fn(async |_: Request<String>| {
        Ok::<_, Infallible>(Response::new(StreamBody::new(Box::pin(chunks()))))
    });
    let response = small.layer(target).oneshot(Request::new(String::new())).await.unwrap();
    assert_eq!(learnt(&response), None);
    assert_eq!(text(response).await, "null         ");
}

#[tokio::test]
async fn what_takes_nothing_along_is_no_chat() {
    for (method, body) in
        [("GET", r#"{"status":"ok"}"#), ("GET", ""), ("HEAD", ""), ("DELETE", r#"{"gone":1}"#)]
    {
        let target = service_fn(|_: Request<http_body_util::Empty<Bytes>>| async {
            Ok::<_, Infallible>(response(200, "application/json", body))
        });
        let request = Request::builder().method(method).uri("/v1/chat/completions").body(Default::default());
        let answer = LlmLayer::new(Provider::Auto).layer(target).oneshot(request.unwrap()).await.unwrap();
        assert_eq!(learnt(&answer), Some(Verdict::SUCCESS), "{method}");
    }
}

#[tokio::test]
async fn a_stream_that_only_its_path_announces_is_one_also_at_a_path_that_nobody_knows() {
    for (provider, body) in [
        (Provider::Gemini, r#"{"contents":[]}"#),
        (Provider::Auto, r#"{"contents":[]}"#),
        (Provider::Bedrock, r#"{"messages":[],"inferenceConfig":{}}"#),
    ] {
        let stream = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]},\"finishReason\":\"STOP\"}]}\n\n";
        let binary = crate::common::native::converse(&[
            ("contentBlockDelta", r#"{"contentBlockIndex":0,"delta":{"text":"a"}}"#),
            ("messageStop", r#"{"stopReason":"end_turn"}"#),
            ("metadata", "{}"),
        ]);
        let (kind, stream) = match provider {
            Provider::Bedrock => ("application/vnd.amazon.eventstream", Bytes::from(binary)),
            _ => ("text/event-stream", Bytes::from(stream)),
        };
        let target = service_fn(|_: Request<String>| async {
            Response::builder().header("content-type", kind).body(Full::<Bytes>::from(stream.clone()))
        });
        let request = Request::post("/proxy/model-a").body(body.to_owned()).unwrap();
        let response = LlmLayer::new(provider).layer(target).oneshot(request).await.unwrap();
        let insight = Insight::of(response.extensions()).unwrap().clone();
        assert_eq!(text(response).await, stream);
        let facts = insight.facts();
        assert_eq!(
            (facts.verdict, facts.text.as_deref()),
            (Some(Verdict::SUCCESS), Some("a")),
            "{provider:?}"
        );
    }
}

#[tokio::test]
async fn a_stream_is_billed_once_though_the_layer_is_there_twice() {
    const STREAM: [&str; 3] = [
        "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":{\"completion_tokens\":1}}\n\n",
        "data: {\"choices\":[{\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3}}\n\n",
        "data: [DONE]\n\n",
    ];
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let push = Arc::clone(&told);
    let on_close = OnClose::new(move |closing| push.lock().unwrap().push(closing));
    let reserved = Call::options().reserving(on_close);
    let target = service_fn(async |_: Request<String>| {
        let pieces = STREAM.map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::from(piece))));
        Response::builder()
            .header("content-type", "text/event-stream")
            .body(StreamBody::new(stream::iter(pieces)))
    });
    let request = Request::new(r#"{"messages":[],"stream":true}"#.to_owned());
    let response =
        reserved.call().scope(layer().layer(layer().layer(target)).oneshot(request)).await.unwrap();
    drop(reserved);
    let insight = Insight::of(response.extensions()).unwrap().clone();
    assert_eq!(text(response).await, STREAM.concat());
    assert_eq!(insight.verdict(), Some(Verdict::SUCCESS));
    let usage = Usage { input: Some(9), output: Some(3), ..Usage::default() };
    let [Closing::Settled { usage: billed, .. }] = told.lock().unwrap()[..] else { panic!() };
    assert_eq!(billed, usage);
}

#[tokio::test]
async fn an_answer_in_a_dialect_that_nobody_knows_is_not_blamed_for_that() {
    const COHERE: &str = r#"{"id":"x","finish_reason":"COMPLETE","message":{"role":"assistant","content":[{"type":"text","text":"hi"}]}}"#;
    const STREAM: &str = "data: {\"type\":\"message-start\"}\n\ndata: {\"type\":\"content-delta\",\"delta\":{}}\n\n\
        data: {\"type\":\"message-end\"}\n\n";
    let ask = async |provider, path, kind, body: &'static str| {
        let target =
            service_fn(|_: Request<String>| async { Ok::<_, Infallible>(response(200, kind, body)) });
        let asked = format!(r#"{{"messages":[],"stream":{}}}"#, kind == "text/event-stream");
        let request = Request::post(path).body(asked).unwrap();
        let response = LlmLayer::new(provider).layer(target).oneshot(request).await?;
        let insight = Insight::of(response.extensions()).unwrap().clone();
        response.into_body().collect().await?;
        Ok::<_, BoxError>(insight.verdict().unwrap_or(Verdict::SUCCESS).class())
    };
    let class = async |provider, path, kind, body| match ask(provider, path, kind, body).await {
        Ok(class) => class.as_str(),
        Err(err) => Verdict::of_error(&*err).class().as_str(),
    };
    for (kind, body) in [("application/json", COHERE), ("text/event-stream", STREAM)] {
        assert_eq!(class(Provider::Auto, "/v2/chat", kind, body).await, "success", "{kind}");
        // Where it is known what should have come, that is no answer.
        assert_eq!(
            class(Provider::Auto, "/v1/chat/completions", kind, body).await,
            "soft.malformed",
            "{kind}"
        );
        assert_eq!(
            class(Provider::OpenAiCompatible, "/v2/chat", kind, body).await,
            "soft.malformed",
            "{kind}"
        );
    }
    // An error is one in every dialect, and nothing is no answer in any.
    for (body, wanted) in [
        (r#"{"error":{"code":"insufficient_quota"}}"#, "quota"),
        (r#"{"message":"busy","code":503}"#, "overloaded"),
        ("{}", "soft.malformed"),
        ("null", "transient"),
        ("", "soft.empty"),
    ] {
        assert_eq!(class(Provider::Auto, "/v2/chat", "application/json", body).await, wanted, "{body}");
    }
}

#[tokio::test]
async fn a_reader_further_inside_has_the_say() {
    let mut judged = response(200, "application/json", "null");
    let insight = Insight::new();
    insight.learn(|facts| facts.verdict = Some(Verdict::of(Class::Refused)));
    judged.extensions_mut().insert(insight);
    assert_eq!(learnt(&answer(judged, "{}").await).unwrap().class(), Class::Refused);
}

#[tokio::test]
async fn trailers_survive() {
    let trailers = HeaderMap::from_iter([(http::HeaderName::from_static("x-sum"), "1".parse().unwrap())]);
    let body = Full::<Bytes>::from(GOOD).with_trailers(std::future::ready(Some(Ok(trailers.clone()))));
    let response = answer(Response::new(Box::pin(body)), "{}").await;
    assert_eq!(response.into_body().collect().await.unwrap().trailers(), Some(&trailers));
}

fn broken(error: impl Into<BoxError>) -> impl Body<Data = Bytes, Error = BoxError> + Unpin {
    StreamBody::new(stream::iter([Ok(Frame::data(Bytes::from("{\"choi"))), Err(error.into())]))
}

async fn failed(status: u16, error: impl Into<BoxError> + 'static) -> BoxError {
    let mut body = Some(Response::builder().status(status).body(broken(error)).unwrap());
    let target =
        service_fn(move |_: Request<String>| std::future::ready(Ok::<_, Infallible>(body.take().unwrap())));
    let layer = LlmLayer::builder().name("model-a").build().unwrap();
    layer.layer(target).oneshot(Request::new(String::new())).await.map(drop).unwrap_err()
}

#[tokio::test]
async fn a_cut_body_is_the_clients_own_error_where_that_says_enough_and_a_fault_where_not() {
    let known = failed(200, io::Error::from(io::ErrorKind::ConnectionReset)).await;
    assert!(known.is::<io::Error>());
    let unknown = failed(200, std::fmt::Error).await;
    let fault = Fault::find(&*unknown).unwrap();
    assert_eq!(
        (fault.class(), fault.target(), fault.status()),
        (Class::Transient, Some("model-a"), Some(200))
    );
    assert_eq!(Verdict::of_error(&*unknown).hint(), Hint::Same);
    let limited = failed(429, io::Error::from(io::ErrorKind::ConnectionReset)).await;
    assert_eq!(Verdict::of_error(&*limited).class(), Class::RateLimited);
}

#[tokio::test]
async fn an_error_of_the_inner_service_passes_unwrapped() {
    let target = service_fn(async |_: Request<String>| Err::<Response<Full<Bytes>>, _>(std::fmt::Error));
    let err = layer().layer(target).oneshot(Request::new(String::new())).await.map(drop).unwrap_err();
    assert!(err.is::<std::fmt::Error>());
    // G21: an error that nobody knows is not called the target's failure, and not repeated.
    assert_eq!(
        (Verdict::of_error(&*err).class(), Verdict::of_error(&*err).hint()),
        (Class::Unknown, Hint::Never)
    );
    // G23: a denial of ours, from a layer further inside, stays one.
    let denied = Class::Denied(failsoft_core::Denier::Budget);
    let target = service_fn(async |_: Request<String>| {
        Err::<Response<Full<Bytes>>, _>(Fault::new(denied, "budget-layer"))
    });
    let err = layer().layer(target).oneshot(Request::new(String::new())).await.map(drop).unwrap_err();
    assert!(err.is::<Fault>());
    assert_eq!((Verdict::of_error(&*err).class(), Verdict::of_error(&*err).hint()), (denied, Hint::Never));
}

/// Panics when it is called without being ready, and counts what runs.
#[derive(Debug, Default)]
struct Strict {
    ready: bool,
    running: Arc<AtomicUsize>,
}

struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

type StrictBody = StreamBody<stream::BoxStream<'static, Result<Frame<Bytes>, BoxError>>>;

impl Service<Request<String>> for Strict {
    type Response = Response<StrictBody>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<String>) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called without being ready");
        self.running.fetch_add(1, Ordering::SeqCst);
        let running = Running(Arc::clone(&self.running));
        let body = stream::pending().inspect(move |_: &Result<_, _>| {
            let _ = &running;
        });
        std::future::ready(Ok(Response::new(StreamBody::new(body.boxed()))))
    }
}

#[tokio::test]
async fn the_inner_service_is_called_only_when_it_is_ready_and_a_drop_while_holding_drops_its_body() {
    let inner = Strict::default();
    let running = Arc::clone(&inner.running);
    let mut service = layer().layer(inner);
    let mut call = Box::pin(service.ready().await.unwrap().call(Request::new(String::new())));
    assert!(call.as_mut().now_or_never().is_none());
    assert_eq!(running.load(Ordering::SeqCst), 1);
    drop(call);
    assert_eq!(running.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn readiness_is_that_of_the_inner_service() {
    struct Gate(Arc<AtomicBool>);
    impl Service<Request<String>> for Gate {
        type Response = Response<Full<Bytes>>;
        type Error = std::fmt::Error;
        type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            if self.0.load(Ordering::SeqCst) { Poll::Ready(Err(std::fmt::Error)) } else { Poll::Pending }
        }

        fn call(&mut self, _: Request<String>) -> Self::Future {
            unreachable!("never ready")
        }
    }
    let broken = Arc::new(AtomicBool::new(false));
    let mut service = layer().layer(Gate(Arc::clone(&broken)));
    assert!(ServiceExt::<Request<String>>::ready(&mut service).now_or_never().is_none());
    broken.store(true, Ordering::SeqCst);
    let err = ServiceExt::<Request<String>>::ready(&mut service).await.map(drop).unwrap_err();
    assert!(err.is::<std::fmt::Error>());
}

#[tokio::test]
async fn what_an_attempt_used_is_added_to_the_call_around_it() {
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let push = Arc::clone(&told);
    let on_close = OnClose::new(move |closing| push.lock().unwrap().push(closing));
    let reserved = Call::options().reserving(on_close);
    reserved.call().scope(answer(response(200, "application/json", GOOD), "{}")).await;
    drop(reserved);
    let usage = Usage { input: Some(9), output: Some(3), ..Usage::default() };
    assert_eq!(*told.lock().unwrap(), [Closing::Settled { usage, unknown: 0 }]);
}

async fn billed(response: Response<Full<Bytes>>, request: &str) -> Vec<Closing> {
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let push = Arc::clone(&told);
    let on_close = OnClose::new(move |closing| push.lock().unwrap().push(closing));
    let reserved = Call::options().reserving(on_close);
    let response = reserved.call().scope(answer(response, request)).await;
    drop(reserved);
    text(response).await;
    told.lock().unwrap().clone()
}

#[tokio::test]
async fn what_passes_unread_leaves_its_usage_unknown() {
    for kind in ["audio/mpeg", "application/x-ndjson", "text/event-stream"] {
        let closings = billed(response(200, kind, "data: x\n\n"), "{}").await;
        assert_eq!(closings, [Closing::Settled { usage: Usage::default(), unknown: 1 }], "{kind}");
    }
}

#[tokio::test]
async fn what_was_turned_down_cost_nothing_and_what_was_waited_for_in_vain_nobody_knows() {
    let bill = async |status, kind, body| {
        let told = billed(response(status, kind, body), r#"{"messages":[],"stream":true}"#).await;
        let [Closing::Settled { usage, unknown }] = told[..] else { panic!("{told:?}") };
        (usage.input, usage.output, unknown)
    };
    let error = r#"{"error":{"message":"no","type":"server_error"}}"#;
    for status in [400, 401, 413, 429, 500, 502, 503, 529] {
        // The last one passes unread.
        for kind in ["application/json", "text/html", "text/event-stream", "audio/mpeg"] {
            assert_eq!(bill(status, kind, error).await, (Some(0), Some(0), 0), "{status} {kind}");
        }
    }
    for status in [408, 504, 524] {
        assert_eq!(bill(status, "application/json", error).await, (None, None, 1), "{status}");
    }
    let spent = r#"{"error":{"code":500},"usage":{"prompt_tokens":9,"completion_tokens":3}}"#;
    assert_eq!(bill(500, "application/json", spent).await, (Some(9), Some(3), 0));
}

#[tokio::test]
async fn a_stream_is_billed_once_at_its_end_with_its_last_usage() {
    const STREAM: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":{\"completion_tokens\":1}}\n\n\
        data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\n\
        data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n";
    let closings =
        billed(response(200, "text/event-stream", STREAM), r#"{"messages":[],"stream":true}"#).await;
    let usage = Usage { input: Some(9), output: Some(3), ..Usage::default() };
    assert_eq!(closings, [Closing::Settled { usage, unknown: 0 }]);
}

#[test]
fn the_service_is_as_thread_safe_as_what_it_wraps_and_clones_with_it() {
    fn check<T: Clone + Send + Sync + 'static>() {}
    check::<Llm<tower::util::BoxCloneSyncService<u8, u8, u8>>>();
    check::<LlmLayer>();
    #[cfg(feature = "reqwest-013")]
    check::<Llm<reqwest::Client>>();
}
