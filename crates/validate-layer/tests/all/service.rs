//! The layer around services: what passes, what fails, and that nothing is lost on the way.

use std::{
    collections::VecDeque,
    convert::Infallible,
    fmt, io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use failsoft_core::{
    BoxError, Class, Fault, FaultDetails, Finding, Finish, Hint, Insight, Severity, SoftKind, ToolCall,
    Verdict,
};
use http::{HeaderMap, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Full};
use tower::{Layer as _, Service, ServiceBuilder, ServiceExt as _, limit::ConcurrencyLimit, service_fn};
use validate_layer::{Answer, Beyond, Compressed, Validate, ValidateBuilder, ValidateLayer};

/// A body in pieces, pending before each, that may fail at its end, and counts that it is alive.
struct Pieces {
    frames: VecDeque<Result<Frame<Bytes>, BoxError>>,
    waited: bool,
    _alive: Alive,
}

#[derive(Clone, Default)]
struct Counter(Arc<AtomicUsize>);

struct Alive(Counter);

impl Counter {
    fn alive(&self) -> Alive {
        self.0.fetch_add(1, Ordering::SeqCst);
        Alive(self.clone())
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Pieces {
    fn new(pieces: &[&'static str], counter: &Counter) -> Self {
        let frames = pieces.iter().map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes()))));
        Self { frames: frames.collect(), waited: false, _alive: counter.alive() }
    }

    fn then(mut self, frame: Result<Frame<Bytes>, BoxError>) -> Self {
        self.frames.push_back(frame);
        self
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.waited = !self.waited;
        if self.waited {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(self.frames.pop_front())
    }
}

fn pieces(pieces: &[&'static str]) -> Pieces {
    Pieces::new(pieces, &Counter::default())
}

/// What the caller gets for a response.
async fn through<B>(builder: ValidateBuilder, response: Response<B>) -> Result<Response<Bytes>, BoxError>
where
    B: Body<Error: Into<BoxError>> + Unpin,
{
    let mut response = Some(response);
    let inner = service_fn(move |()| std::future::ready(Ok::<_, Infallible>(response.take().unwrap())));
    let response = builder.build()?.layer(inner).oneshot(()).await?;
    let (parts, body) = response.into_parts();
    Ok(Response::from_parts(parts, body.collect().await?.to_bytes()))
}

fn response(body: &'static str) -> Response<Full<Bytes>> {
    Response::new(Full::from(body))
}

fn with_insight(insight: &Insight) -> Response<Full<Bytes>> {
    let mut response = response("{\"choices\": []}");
    response.extensions_mut().insert(insight.clone());
    response
}

fn fault(err: &BoxError) -> &FaultDetails {
    Fault::find(&**err).expect("a fault")
}

fn soft(err: &BoxError) -> (SoftKind, Hint) {
    match fault(err).class() {
        Class::Soft(kind) => (kind, fault(err).verdict().hint()),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_good_body_passes_byte_for_byte_with_trailers_and_a_verdict() {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", http::HeaderValue::from_static("1"));
    let body = pieces(&["{\"city\":", " \"Oslo\" ", "}\r\n"]).then(Ok(Frame::trailers(trailers.clone())));
    let layer = ValidateLayer::builder().require("/city").build().unwrap();
    let mut body = Some(Response::builder().header("x-kept", "1").body(body).unwrap());
    let inner = service_fn(move |()| std::future::ready(Ok::<_, Infallible>(body.take().unwrap())));
    let response = layer.layer(inner).oneshot(()).await.unwrap();
    assert_eq!(response.headers()["x-kept"], "1");
    assert_eq!(Insight::of(response.extensions()).unwrap().verdict(), Some(Verdict::SUCCESS));
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.trailers(), Some(&trailers));
    assert_eq!(body.to_bytes(), "{\"city\": \"Oslo\" }\r\n");
}

#[tokio::test]
async fn unclosed_json_is_a_failure_and_never_an_empty_value() {
    let builder = ValidateLayer::builder().name("model-a").json();
    let err = through(builder, response("{\"city\": \"Os")).await.unwrap_err();
    assert_eq!(soft(&err), (SoftKind::Malformed, Hint::Same));
    let fault = fault(&err);
    assert_eq!(
        (fault.target(), fault.status(), fault.layer()),
        (Some("model-a"), Some(200), "validate-layer")
    );
    assert_eq!(fault.report().unwrap().leading().unwrap().code(), "json.truncated");
}

#[tokio::test]
async fn a_failure_that_a_reader_found_counts_whatever_the_status_of_success() {
    for status in [200, 202, 204, 205] {
        let insight = Insight::new();
        insight.learn(|facts| facts.verdict = Some(Verdict::soft(SoftKind::Empty)));
        let client = service_fn(move |()| {
            let mut response = Response::new(Full::<Bytes>::default());
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            response.extensions_mut().insert(insight.clone());
            std::future::ready(Ok::<_, Infallible>(response))
        });
        let err = ValidateLayer::builder().build().unwrap().layer(client).oneshot(()).await.unwrap_err();
        let fault = Fault::find(&*err).expect("a fault");
        assert_eq!((fault.class(), fault.status()), (Class::Soft(SoftKind::Empty), Some(status)));
    }
}

#[tokio::test]
async fn an_empty_body_is_a_failure_that_may_be_repeated_unless_it_is_allowed() {
    let err = through(ValidateLayer::builder(), response("")).await.unwrap_err();
    assert_eq!(soft(&err), (SoftKind::Empty, Hint::Same));
    through(ValidateLayer::builder().allow_empty().json(), response("")).await.unwrap();
    let err = through(ValidateLayer::builder().allow_empty().json(), response("x")).await.unwrap_err();
    assert_eq!(soft(&err).0, SoftKind::Malformed);
}

#[tokio::test]
async fn the_answer_to_a_head_is_no_empty_answer() {
    let head = |length: &'static str| {
        let mut response = response("");
        response.headers_mut().insert("content-length", http::HeaderValue::from_static(length));
        response
    };
    let passed = through(ValidateLayer::builder().json_object(), head("120")).await.unwrap();
    assert!(passed.body().is_empty());
    assert_eq!(passed.headers()["content-length"], "120");
    let err = through(ValidateLayer::builder(), head("0")).await.unwrap_err();
    assert_eq!(soft(&err).0, SoftKind::Empty);
}

#[tokio::test]
async fn a_body_that_is_no_text_passes_unless_json_was_asked_for() {
    let binary = || Response::new(Full::<Bytes>::from(Bytes::from_static(&[0xff, 0xd8, 0xff, 0])));
    let passed = through(ValidateLayer::builder(), binary()).await.unwrap();
    assert_eq!(&passed.body()[..], [0xff, 0xd8, 0xff, 0]);
    let err = through(ValidateLayer::builder().json(), binary()).await.unwrap_err();
    assert_eq!(soft(&err).0, SoftKind::Malformed);
}

#[tokio::test]
async fn a_body_that_is_still_compressed_says_so() {
    let mut compressed = response("H4sIAAAA");
    compressed.headers_mut().insert("content-encoding", "gzip".parse().unwrap());
    let err = through(ValidateLayer::builder().json(), compressed).await.unwrap_err();
    assert_eq!(fault(&err).report().unwrap().leading().unwrap().code(), "body.compressed");
}

#[tokio::test]
async fn a_compressed_body_of_which_nothing_is_asked_passes_with_a_warning_or_not_at_all() {
    let compressed = || {
        let mut compressed = response("H4sIAAAA");
        compressed.headers_mut().insert("content-encoding", "gzip".parse().unwrap());
        compressed
    };
    let passed = through(ValidateLayer::builder(), compressed()).await.unwrap();
    assert_eq!(passed.body(), "H4sIAAAA");
    let report = Insight::of(passed.extensions()).unwrap().facts().report;
    let told = report.leading().unwrap();
    assert_eq!((told.code(), told.severity()), ("body.compressed", Severity::Warning));
    let builder = ValidateLayer::builder().compressed(Compressed::Fail);
    let err = through(builder, compressed()).await.unwrap_err();
    assert_eq!(soft(&err).0, SoftKind::Malformed);
}

#[tokio::test]
async fn a_gateways_page_in_place_of_json_is_transient() {
    let page = "<!DOCTYPE html><html><body>502 Bad Gateway</body></html>";
    let err = through(ValidateLayer::builder().json(), response(page)).await.unwrap_err();
    assert_eq!(fault(&err).class(), Class::Transient);
    through(ValidateLayer::builder(), response(page)).await.unwrap();
}

#[tokio::test]
async fn a_failed_status_passes_untouched_whatever_its_body() {
    for status in [301, 400, 404, 429, 500, 503] {
        let mut failed = Response::new(pieces(&["", "{\"error\"", ": \"busy"]));
        *failed.status_mut() = StatusCode::from_u16(status).unwrap();
        let passed = through(ValidateLayer::builder().json().require("/x"), failed).await.unwrap();
        assert_eq!((passed.status().as_u16(), &passed.body()[..]), (status, &b"{\"error\": \"busy"[..]));
        assert!(Insight::of(passed.extensions()).is_none());
    }
    let mut none = response("");
    *none.status_mut() = StatusCode::NO_CONTENT;
    through(ValidateLayer::builder(), none).await.unwrap();
}

#[tokio::test]
async fn a_stream_passes_unread() {
    let types = [
        "text/event-stream",
        "Text/Event-Stream; charset=utf-8",
        // What is no ASCII in it makes nothing else of it: it was held until its end, which may never come.
        "text/event-stream; charset=“utf-8”",
        "application/x-ndjson",
        "application/stream+json",
        "application/json-seq",
        "application/connect+json",
        "application/grpc+proto",
    ];
    for content_type in types {
        let mut stream = Response::new(pieces(&["data: x\n\n", "data: y"]));
        let content_type = http::HeaderValue::from_bytes(content_type.as_bytes()).unwrap();
        stream.headers_mut().insert("content-type", content_type);
        let passed = through(ValidateLayer::builder().json(), stream).await.unwrap();
        assert_eq!(passed.body(), "data: x\n\ndata: y");
    }
}

fn streamed(insight: &Insight) -> Response<Pieces> {
    let mut stream = Response::new(pieces(&["data: x\n\n", "data: y\n\n"]));
    stream.headers_mut().insert("content-type", "text/event-stream".parse().unwrap());
    stream.extensions_mut().insert(insight.clone());
    stream
}

#[tokio::test]
async fn a_stream_that_a_reader_held_to_its_end_is_checked_and_its_body_left_alone() {
    let insight = Insight::new();
    insight.learn(|facts| {
        facts.verdict = Some(Verdict::SUCCESS);
        facts.text = Some("{\"city\": \"Oslo\"}".into());
        facts.finish = Some(Finish::Stop);
    });
    let passed = through(ValidateLayer::builder().require("/city"), streamed(&insight)).await.unwrap();
    assert_eq!(passed.body(), "data: x\n\ndata: y\n\n");
    let err = through(ValidateLayer::builder().require("/country"), streamed(&insight)).await.unwrap_err();
    assert_eq!(soft(&err).0, SoftKind::MissingField);
    assert_eq!(insight.verdict().map(|verdict| verdict.is_success()), Some(false));
}

#[tokio::test]
async fn a_stream_that_still_runs_passes_unread_whatever_is_known_of_it() {
    let insight = Insight::new();
    insight.learn(|facts| facts.text = Some("{\"city\": \"Os".into()));
    let passed = through(ValidateLayer::builder().json(), streamed(&insight)).await.unwrap();
    assert_eq!((passed.body().len(), insight.verdict()), (18, None));
    // Settled by a reader that does not know what was said.
    let insight = Insight::new();
    insight.learn(|facts| facts.verdict = Some(Verdict::SUCCESS));
    through(ValidateLayer::builder().json(), streamed(&insight)).await.unwrap();
}

#[tokio::test]
async fn an_error_inside_a_success_never_passes_for_an_answer() {
    let insight = Insight::new();
    let after = std::time::Duration::from_secs(7);
    insight.learn(|facts| facts.verdict = Some(Verdict::of(Class::Overloaded).with_retry_after(after)));
    let err = through(ValidateLayer::builder(), with_insight(&insight)).await.unwrap_err();
    let found = fault(&err);
    assert_eq!(
        (found.class(), found.retry_after(), found.status()),
        (Class::Overloaded, Some(after), Some(200))
    );
    assert_eq!(found.verdict().hint(), Hint::After);
    assert!(insight.facts().inside_success);

    // Also where it is said of a stream, and with the reader's own report.
    let finding = Finding::new(SoftKind::Empty, "choices", "no choices");
    insight.learn(|facts| {
        facts.verdict = Some(Verdict::soft(SoftKind::Empty).with_hint(Hint::Same));
        facts.report.push(finding.clone());
    });
    let mut stream = with_insight(&insight);
    stream.headers_mut().insert("content-type", "text/event-stream".parse().unwrap());
    let err = through(ValidateLayer::builder(), stream).await.unwrap_err();
    assert_eq!(soft(&err), (SoftKind::Empty, Hint::Same));
    assert_eq!(fault(&err).report().unwrap().findings(), [finding]);
}

#[tokio::test]
async fn what_a_reader_found_is_checked_and_the_body_is_left_alone() {
    let insight = Insight::new();
    insight.learn(|facts| {
        facts.verdict = Some(Verdict::SUCCESS);
        facts.text = Some("{\"city\": \"Oslo\", \"id\": 9007199254740993}".into());
        facts.finish = Some(Finish::Stop);
    });
    let passed = through(ValidateLayer::builder().require("/city"), with_insight(&insight)).await.unwrap();
    assert_eq!(passed.body(), "{\"choices\": []}");
    assert_eq!(insight.facts().report.worst(), Some(Severity::Warning));
    assert_eq!(insight.verdict(), Some(Verdict::SUCCESS));

    let err = through(ValidateLayer::builder().require("/town"), with_insight(&insight)).await.unwrap_err();
    assert_eq!(soft(&err), (SoftKind::MissingField, Hint::Modify));
    assert_eq!(insight.verdict().unwrap().class(), Class::Soft(SoftKind::MissingField));
}

#[tokio::test]
async fn what_a_reader_says_of_a_good_answer_stands() {
    let insight = Insight::new();
    insight.learn(|facts| {
        facts.verdict = Some(Verdict::SUCCESS.with_hint(Hint::Continue));
        facts.finish = Some(Finish::Paused);
        facts.text = Some("So far".into());
    });
    through(ValidateLayer::builder(), with_insight(&insight)).await.unwrap();
    assert_eq!(insight.verdict().map(|verdict| verdict.hint()), Some(Hint::Continue));
}

#[tokio::test]
async fn a_wrong_answer_goes_along_with_its_fault_for_whoever_asks_again() {
    let insight = Insight::new();
    insight.learn(|facts| {
        facts.verdict = Some(Verdict::SUCCESS);
        facts.text = Some("{}".into());
        facts.usage.output = Some(7);
    });
    let err = through(ValidateLayer::builder().require("/town"), with_insight(&insight)).await.unwrap_err();
    let answer = fault(&err).answer().unwrap();
    assert_eq!((answer.text.as_deref(), answer.usage.output), (Some("{}"), Some(7)));
    // As a reader further inside saw it.
    insight.learn(|facts| facts.verdict = Some(Verdict::soft(SoftKind::Repetition)));
    let err = through(ValidateLayer::builder(), with_insight(&insight)).await.unwrap_err();
    assert_eq!(fault(&err).answer().unwrap().text.as_deref(), Some("{}"));
    // A body that nobody has read before.
    let bare = Response::new(pieces(&["{\"a\"", ": 1}"]));
    let err = through(ValidateLayer::builder().require("/town"), bare).await.unwrap_err();
    assert_eq!(fault(&err).answer().unwrap().text.as_deref(), Some("{\"a\": 1}"));
}

#[tokio::test]
async fn an_answer_that_a_reader_found_cut_is_a_loop_if_it_never_came_to_an_end() {
    let insight = Insight::new();
    let cut = |text: &str| {
        insight.learn(|facts| {
            facts.verdict = Some(Verdict::soft(SoftKind::Truncated));
            facts.text = Some(text.into());
        });
        with_insight(&insight)
    };
    let err = through(ValidateLayer::builder(), cut(&"I'll do it now. ".repeat(80))).await.unwrap_err();
    assert_eq!(soft(&err), (SoftKind::Repetition, Hint::Modify));
    assert_eq!(fault(&err).report().unwrap().leading().unwrap().code(), "repetition.loop");
    assert_eq!(insight.verdict(), Some(Verdict::soft(SoftKind::Repetition)));
    let err = through(ValidateLayer::builder(), cut("It began well, and then")).await.unwrap_err();
    assert_eq!(soft(&err).0, SoftKind::Truncated);
}

#[tokio::test]
async fn cut_at_the_limit_with_nothing_written_is_never_repeated_as_it_was() {
    let insight = Insight::new();
    insight.learn(|facts| {
        facts.finish = Some(Finish::Length);
        facts.text = Some("".into());
    });
    let err = through(ValidateLayer::builder(), with_insight(&insight)).await.unwrap_err();
    assert_eq!(soft(&err), (SoftKind::Truncated, Hint::Modify));
}

#[tokio::test]
async fn tool_calls_that_a_reader_found_are_checked() {
    let answer = |arguments: &str, vouched: bool| {
        let insight = Insight::new();
        insight.learn(|facts| {
            facts.tool_calls = vec![ToolCall::new("write_file", arguments)];
            facts.finish = Some(Finish::ToolCalls);
            facts.verdict = vouched.then_some(Verdict::SUCCESS);
        });
        with_insight(&insight)
    };
    let builder = || ValidateLayer::builder().json_object();
    through(builder(), answer("{}", false)).await.unwrap();
    let err = through(builder(), answer("{\"path\": \"/", false)).await.unwrap_err();
    assert_eq!(soft(&err), (SoftKind::ToolCall, Hint::Modify));
    let err = through(builder().tools(["read_file"]), answer("{}", true)).await.unwrap_err();
    assert_eq!(soft(&err), (SoftKind::UnknownTool, Hint::Modify));
    // Empty arguments: the reader of the request knows whether the tool takes any.
    assert_eq!(soft(&through(builder(), answer("", false)).await.unwrap_err()).0, SoftKind::ToolCall);
    through(builder(), answer("", true)).await.unwrap();
}

#[tokio::test]
async fn a_good_answer_of_a_kind_without_text_is_looked_at_as_a_body() {
    let insight = Insight::new();
    insight.learn(|facts| facts.verdict = Some(Verdict::SUCCESS));
    let passed = through(ValidateLayer::builder().require("/choices"), with_insight(&insight)).await.unwrap();
    assert_eq!(passed.body(), "{\"choices\": []}");
}

#[tokio::test]
async fn each_answer_is_judged_by_itself() {
    let mut replies = ["{\"a\":", "{\"a\": 1}", "", "{\"a\": 2}"].into_iter();
    let inner =
        service_fn(move |()| std::future::ready(Ok::<_, Infallible>(response(replies.next().unwrap()))));
    let mut service = ValidateLayer::builder().require("/a").build().unwrap().layer(inner);
    for good in [false, true, false, true] {
        assert_eq!(service.ready().await.unwrap().call(()).await.is_ok(), good);
    }
}

#[tokio::test]
async fn a_cut_body_gives_its_own_error_where_that_is_known_and_a_fault_where_not() {
    let cut = |err: BoxError| Response::new(pieces(&["{\"a\": "]).then(Err(err)));
    let reset = io::Error::from(io::ErrorKind::ConnectionReset);
    let err = through(ValidateLayer::builder(), cut(reset.into())).await.unwrap_err();
    assert!(err.is::<io::Error>(), "{err}");

    let err = through(ValidateLayer::builder().name("m"), cut(fmt::Error.into())).await.unwrap_err();
    let found = fault(&err);
    assert_eq!((found.class(), found.verdict().hint()), (Class::Transient, Hint::Same));
    assert_eq!((found.target(), found.status()), (Some("m"), Some(200)));
    assert!(std::error::Error::source(found).unwrap().is::<fmt::Error>());
}

#[tokio::test]
async fn beyond_the_cap_the_policy_decides_and_nothing_is_lost() {
    let long = || Response::new(pieces(&["{\"a\"", ": 1", "}   "]));
    let builder = || ValidateLayer::builder().json().max_body(8);
    let err = through(builder(), long()).await.unwrap_err();
    assert_eq!(soft(&err), (SoftKind::Malformed, Hint::Modify));
    assert_eq!(fault(&err).report().unwrap().leading().unwrap().code(), "body.too_large");

    let passed = through(builder().beyond(Beyond::Pass), long()).await.unwrap();
    assert_eq!(passed.body(), "{\"a\": 1}   ");
    let facts = Insight::of(passed.extensions()).unwrap().facts();
    assert_eq!((facts.verdict, facts.report.worst()), (None, Some(Severity::Warning)));
    through(builder().max_body(11), long()).await.unwrap();
}

#[tokio::test]
async fn an_error_of_the_inner_service_passes_unwrapped() {
    let inner = service_fn(|()| std::future::ready(Err::<Response<Full<Bytes>>, _>(fmt::Error)));
    let err = ValidateLayer::builder().build().unwrap().layer(inner).oneshot(()).await.unwrap_err();
    assert!(err.is::<fmt::Error>());
}

#[tokio::test]
async fn plain_values_are_checked_through_a_function() {
    struct Reply(&'static str);
    let layer = ValidateLayer::values(|reply: &Reply| Answer::new(reply.0)).json().build().unwrap();
    let service = ServiceBuilder::new()
        .layer(layer)
        .service_fn(|text: &'static str| async move { Ok::<_, Infallible>(Reply(text)) });
    assert_eq!(service.clone().oneshot("[1]").await.unwrap().0, "[1]");
    assert_eq!(soft(&service.oneshot("[1").await.err().unwrap()).0, SoftKind::Malformed);
}

/// Panics when it is called without having been ready; a clone is not ready. Not `Clone` where that is not asked for.
struct Strict {
    ready: bool,
    polled: usize,
    counter: Counter,
}

impl Service<()> for Strict {
    type Response = Response<Pieces>;
    type Error = BoxError;
    type Future = Answering;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.polled += 1;
        if self.polled < 3 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, (): ()) -> Answering {
        assert!(std::mem::take(&mut self.ready), "called without being ready");
        self.polled = 0;
        Answering { waited: false, alive: Some(self.counter.alive()), counter: self.counter.clone() }
    }
}

struct Answering {
    waited: bool,
    alive: Option<Alive>,
    counter: Counter,
}

impl Future for Answering {
    type Output = Result<Response<Pieces>, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if !std::mem::replace(&mut self.waited, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        assert!(self.alive.take().is_some(), "polled after it was ready");
        Poll::Ready(Ok(Response::new(Pieces::new(&["{\"a\"", ": 1", "}"], &self.counter))))
    }
}

fn strict(counter: &Counter) -> Validate<ConcurrencyLimit<Strict>> {
    let strict = Strict { ready: false, polled: 0, counter: counter.clone() };
    ValidateLayer::builder().require("/a").build().unwrap().layer(ConcurrencyLimit::new(strict, 1))
}

#[tokio::test]
async fn the_readied_inner_service_is_called_which_need_not_be_clone() {
    let counter = Counter::default();
    let mut service = strict(&counter);
    for _ in 0..3 {
        service.ready().await.unwrap();
        let response = service.ready().await.unwrap().call(()).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "{\"a\": 1}");
    }
    assert_eq!(counter.count(), 0);
}

#[test]
fn dropped_at_any_point_nothing_lives_on() {
    for polls in 0.. {
        let counter = Counter::default();
        let mut service = strict(&counter);
        let mut call = tokio_test::task::spawn(async {
            let response = service.ready().await.unwrap().call(()).await.unwrap();
            response.into_body().collect().await.unwrap();
        });
        let ended = (0..polls).any(|_| call.poll().is_ready());
        drop(call);
        assert_eq!(counter.count(), 0, "after {polls} polls");
        let next = async { service.ready().await.unwrap().call(()).await.map(drop) };
        let mut next = tokio_test::task::spawn(next);
        assert!((0..99).any(|_| next.poll().is_ready()), "the next call after {polls} polls");
        if ended {
            assert!(polls >= 8, "there are that many points: {polls}");
            return;
        }
    }
}

#[tokio::test]
async fn a_failing_readiness_passes_through() {
    struct Broken;
    impl Service<()> for Broken {
        type Response = Response<Full<Bytes>>;
        type Error = fmt::Error;
        type Future = std::future::Ready<Result<Self::Response, fmt::Error>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), fmt::Error>> {
            Poll::Ready(Err(fmt::Error))
        }

        fn call(&mut self, (): ()) -> Self::Future {
            std::future::ready(Err(fmt::Error))
        }
    }
    let mut service = ValidateLayer::builder().build().unwrap().layer(Broken);
    assert!(service.ready().await.err().unwrap().is::<fmt::Error>());
}

#[test]
fn layer_service_and_future_are_clone_send_and_sync_as_what_they_hold_is() {
    fn shared<T: Send + Sync + 'static>(value: T) -> T {
        value
    }
    let layer = shared(ValidateLayer::builder().build().unwrap());
    let inner = service_fn(|()| std::future::ready(Ok::<_, Infallible>(response("x"))));
    let mut service = shared(layer.clone().layer(inner)).clone();
    drop(shared(Service::call(&mut service, ())));
}
