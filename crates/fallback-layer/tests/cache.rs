//! The cache in front: what is shared, with whom, and what never is.
#![cfg(feature = "cache")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's helpers fail by panicking")]

use std::{
    collections::{HashMap, VecDeque},
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake},
    time::Duration,
};

use bytes::Bytes;
use failsoft_core::{BoxError, Class, Degraded, Finish, Insight, StandIn, Verdict};
use fallback_layer::cache::{Cache, CacheLayer, CacheStatus, Cached};
use http::{Request, Response, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use proptest::prelude::*;
use tower::{Layer, Service, ServiceExt};

type BoxBody = UnsyncBoxBody<Bytes, BoxError>;
type Req = Request<String>;

const CHAT: &str = "/v1/chat/completions";

/// What a [`Model`] answers.
#[derive(Clone)]
struct Answer {
    status: u16,
    headers: Vec<(&'static str, &'static str)>,
    pieces: Vec<Result<Bytes, &'static str>>,
    verdict: Option<Verdict>,
    finish: Option<Finish>,
    degraded: Option<StandIn>,
    after: Duration,
}

impl Answer {
    fn good(text: &str) -> Self {
        Self {
            status: 200,
            headers: vec![("content-type", "application/json")],
            pieces: vec![Ok(Bytes::from(text.to_owned()))],
            verdict: Some(Verdict::SUCCESS),
            finish: None,
            degraded: None,
            after: Duration::ZERO,
        }
    }

    fn events(pieces: &[&str]) -> Self {
        Self {
            headers: vec![
                ("content-type", "text/event-stream; charset=utf-8"),
                ("cache-control", "no-cache"),
            ],
            pieces: pieces.iter().map(|piece| Ok(Bytes::from((*piece).to_owned()))).collect(),
            ..Self::good("")
        }
    }

    fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    fn response(&self) -> Response<BoxBody> {
        let mut response = Response::builder().status(self.status);
        for (name, value) in &self.headers {
            response = response.header(*name, *value);
        }
        let pieces =
            self.pieces.clone().into_iter().map(|piece| piece.map(Frame::data).map_err(BoxError::from));
        let body = StreamBody::new(futures_util::stream::iter(pieces)).boxed_unsync();
        let mut response = response.body(body).unwrap();
        if self.verdict.is_some() || self.finish.is_some() {
            let insight = Insight::new();
            insight.learn(|facts| (facts.verdict, facts.finish) = (self.verdict, self.finish.clone()));
            response.extensions_mut().insert(insight);
        }
        if let Some(by) = self.degraded {
            response.extensions_mut().insert(Degraded::by(by));
        }
        response
    }
}

/// Answers what is next, or the last again; panics when it is called unready.
struct Model {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    calls: Arc<AtomicU32>,
    /// Of those that answer later: how many run.
    running: Arc<AtomicUsize>,
    ready: bool,
}

impl Model {
    fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        let answers = Arc::new(Mutex::new(answers.into_iter().collect()));
        Self { answers, calls: Arc::default(), running: Arc::default(), ready: false }
    }

    fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }
}

impl Clone for Model {
    fn clone(&self) -> Self {
        Self {
            answers: self.answers.clone(),
            calls: self.calls.clone(),
            running: self.running.clone(),
            ready: false,
        }
    }
}

struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Service<Req> for Model {
    type Response = Response<BoxBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<BoxBody>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Req) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called unready");
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.running.fetch_add(1, Ordering::Relaxed);
        let running = Running(self.running.clone());
        let answer = {
            let mut answers = self.answers.lock().unwrap();
            if answers.len() > 1 { answers.pop_front().unwrap() } else { answers.front().unwrap().clone() }
        };
        Box::pin(async move {
            let _running = running;
            if !answer.after.is_zero() {
                tokio::time::sleep(answer.after).await;
            }
            if answer.status == 0 {
                return Err("connection reset".into());
            }
            Ok(answer.response())
        })
    }
}

fn tenant(request: &Req) -> Option<String> {
    Some(request.headers().get("x-tenant")?.to_str().ok()?.to_owned())
}

fn cache() -> Cache<impl fallback_layer::cache::Scope<Req>> {
    Cache::builder().scope(tenant).build().unwrap()
}

fn ask_of(tenant: &'static str, body: &str) -> Req {
    Request::post(CHAT).header("x-tenant", tenant).body(body.to_owned()).unwrap()
}

fn ask(body: &str) -> Req {
    ask_of("t", body)
}

async fn read<B>(response: Response<B>) -> String
where
    B: Body<Data = Bytes, Error = BoxError>,
{
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

/// Asks and reads to the end.
async fn get<S, B>(service: &S, request: Req) -> String
where
    S: Service<Req, Response = Response<B>, Error = BoxError> + Clone,
    B: Body<Data = Bytes, Error = BoxError>,
{
    read(service.clone().oneshot(request).await.unwrap()).await
}

#[tokio::test(start_paused = true)]
async fn a_good_answer_is_given_again_byte_for_byte_and_says_so() {
    let model = Model::new([Answer::good(r#"{ "a" : 1 }"#).with("etag", "\"e\"").with("x-request-id", "r1")]);
    let service = CacheLayer::new(cache()).layer(model.clone());
    let first = service.clone().oneshot(ask("{}")).await.unwrap();
    assert!(CacheStatus::of(first.extensions()).is_none());
    assert_eq!(read(first).await, r#"{ "a" : 1 }"#);
    let again = service.oneshot(ask(" { } ")).await.unwrap();
    assert_eq!(
        CacheStatus::of(again.extensions()).map(|status| (status.age(), status.is_shared())),
        Some((Duration::ZERO, false))
    );
    assert_eq!(again.headers()["cache-status"], "cache; hit");
    assert_eq!(again.headers()[header::AGE], "0");
    assert_eq!(again.headers()[header::ETAG], "\"e\"");
    assert!(!again.headers().contains_key("x-request-id"));
    let insight = Insight::of(again.extensions()).unwrap();
    assert!(insight.verdict().unwrap().is_success());
    assert_eq!(insight.usage().total(), 0);
    assert!(Degraded::of(again.extensions()).is_none());
    assert_eq!(read(again).await, r#"{ "a" : 1 }"#);
    assert_eq!(model.calls(), 1);
}

// P18: each documented way to set the scope, and that one must be said.
#[tokio::test]
async fn a_cache_without_a_scope_is_refused_and_one_for_all_is_said_to_be() {
    let refused = Cache::builder().build().unwrap_err();
    assert_eq!(
        refused.to_string(),
        "Cache: `scope` is none, expected a function that names the tenant, or `shared_by_all`"
    );
    let model = Model::new([Answer::good("1")]);
    let service = CacheLayer::new(Cache::builder().shared_by_all().build().unwrap()).layer(model.clone());
    get(&service, ask_of("a", "{}")).await;
    get(&service, ask_of("b", "{}")).await;
    assert_eq!(model.calls(), 1);
}

#[test]
fn what_has_no_meaning_is_refused_by_name() {
    let all = || Cache::builder().shared_by_all();
    for (builder, field) in [
        (all().ttl(Duration::ZERO), "ttl"),
        (all().patience(Duration::ZERO), "patience"),
        (all().entries(0), "entries"),
        (all().bytes(65_535), "bytes"),
        (all().body_cap(0), "body_cap"),
        (all().bytes(65_536).body_cap(20_000), "body_cap"),
        (all().name("a b"), "name"),
        (all().name(""), "name"),
        (all().keep_private(true), "keep_private"),
    ] {
        assert_eq!(builder.build().unwrap_err().field(), field);
    }
    assert!(
        all()
            .ttl(Duration::MAX)
            .patience(Duration::MAX)
            .entries(usize::MAX)
            .bytes(usize::MAX)
            .build()
            .is_ok()
    );
}

// G118
#[tokio::test]
async fn two_tenants_never_share_an_answer_nor_do_those_without_one() {
    let model = Model::new(["a", "b", "none", "none", "blank", "blank"].map(Answer::good));
    let service = CacheLayer::new(cache()).layer(model.clone());
    assert_eq!(get(&service, ask_of("a", "{}")).await, "a");
    assert_eq!(get(&service, ask_of("b", "{}")).await, "b");
    assert_eq!(get(&service, ask_of("a", "{}")).await, "a");
    let none = || Request::post(CHAT).body("{}".to_owned()).unwrap();
    get(&service, none()).await;
    get(&service, none()).await;
    get(&service, ask_of(" ", "{}")).await;
    get(&service, ask_of(" ", "{}")).await;
    assert_eq!(model.calls(), 6);
}

/// A tenant that writes what it likes into headers, path, query and body does not come by another one's answer.
#[tokio::test]
async fn no_trick_brings_another_tenants_answer() {
    let secret = r#"{"messages":[{"role":"user","content":"my salary"}]}"#;
    let model = Model::new([Answer::good("secret"), Answer::good("own")]);
    let service = CacheLayer::new(cache()).layer(model.clone());
    assert_eq!(get(&service, ask_of("victim", secret)).await, "secret");
    let thief = |path: &str| Request::post(path).header("x-tenant", "thief");
    let tricks = [
        thief(CHAT).body(secret.to_owned()),
        thief(CHAT).header("x-tenant", "victim").body(secret.to_owned()),
        thief(CHAT).header("x-forwarded-for", "victim").header("host", "victim").body(secret.to_owned()),
        thief(CHAT).header("cache-control", "only-if-cached, max-stale=9999999").body(secret.to_owned()),
        thief(CHAT).header("x-http-method-override", "GET").body(secret.to_owned()),
        thief(&format!("{CHAT}?x-tenant=victim")).body(secret.to_owned()),
        thief(&format!("{CHAT}#victim")).body(secret.to_owned()),
        thief(CHAT).body(secret.replace("{\"m", "{\"user\":\"victim\",\"m")),
        thief(CHAT).body(secret.replace("{\"m", "{\"metadata\":{\"x-tenant\":\"victim\"},\"m")),
        thief(CHAT).body(secret.replace("{\"m", "{\"stream\":true,\"m")),
    ];
    for trick in tricks {
        assert_eq!(get(&service, trick.unwrap()).await, "own");
    }
    // Bodies that differ where a careless key would not see it.
    for body in [
        r#"{"messages":[{"role":"user","content":"my salary"}],"messages":[]}"#,
        r#"{"messages":[{"role":"user","content":"my salary\u0000"}]}"#,
        r#"{"messages":[{"role":"user","content":"my"},{"content":" salary"}]}"#,
        r#"{"messages":[{"role":"user","content":["my salary"]}]}"#,
    ] {
        get(&service, ask_of("victim", body)).await;
    }
    assert_eq!(
        model.calls(),
        9,
        "the victim's, four forms of the thief's own, and four that are none of these"
    );
}

// G116
#[tokio::test]
async fn only_good_whole_answers_that_are_nobodys_own_are_kept() {
    let good = || Answer::good("{}");
    let of = |class| Some(Verdict::of(class));
    let never = [
        Answer { status: 400, ..good() },
        Answer { status: 500, ..good() },
        Answer { status: 201, ..good() },
        Answer { status: 206, ..good() },
        Answer { status: 302, ..good() },
        Answer { verdict: None, ..good() },
        Answer { verdict: of(Class::Refused), ..good() },
        Answer { verdict: of(Class::Transient), ..good() },
        Answer { finish: Some(Finish::Length), ..good() },
        Answer { finish: Some(Finish::ContentFilter), ..good() },
        Answer { finish: Some(Finish::Paused), ..good() },
        Answer { degraded: Some(StandIn::Route), ..good() },
        Answer { degraded: Some(StandIn::LastGood), ..good() },
        Answer { pieces: vec![Ok("{".into()), Err("reset")], ..good() },
        good().with("content-length", "3"),
        good().with("set-cookie", "session=1"),
        good().with("set-cookie", "__cf_bm=1").with("set-cookie", "session=1"),
        good().with("cache-control", "max-age=9, Private"),
        good().with("cache-control", "no-store"),
        good().with("vary", "*"),
        good().with("vary", "accept, x-user"),
        good().with("content-encoding", "gzip"),
        good().with("content-range", "bytes 0-1/9"),
        Answer { pieces: vec![Ok(Bytes::from(vec![b'x'; 300_000]))], ..good() },
        Answer { pieces: vec![Ok(Bytes::from(vec![b'x'; 200_000])); 2], ..good() },
        Answer::events(&["data: 1\n\n", "data: [DONE]\n\n"]).with("content-length", "9"),
    ];
    for answer in never {
        let model = Model::new([answer.clone()]);
        let cache = Cache::builder().scope(tenant).body_cap(262_144).build().unwrap();
        let service = CacheLayer::new(cache.clone()).layer(model.clone());
        for _ in 0..2 {
            let response = service.clone().oneshot(ask("{}")).await.unwrap();
            assert_eq!(response.status(), answer.status);
            let _ = response.into_body().collect().await;
        }
        assert_eq!((model.calls(), cache.len(), cache.in_flight()), (2, 0, 0), "{:?}", answer.headers);
    }
    let kept = [
        Answer { finish: Some(Finish::ToolCalls), ..good() },
        good().with("content-length", "2"),
        good().with("set-cookie", "__cf_bm=1; path=/").with("set-cookie", "_cfuvid=2"),
        good().with("cache-control", "no-cache, must-revalidate"),
        good().with("vary", "Origin, Accept-Encoding, accept"),
        good().with("content-encoding", "identity"),
    ];
    for answer in kept {
        let model = Model::new([answer.clone()]);
        let service = CacheLayer::new(cache()).layer(model.clone());
        get(&service, ask("{}")).await;
        let again = service.clone().oneshot(ask("{}")).await.unwrap();
        assert!(!again.headers().contains_key(header::SET_COOKIE));
        assert_eq!(model.calls(), 1, "{:?}", answer.headers);
    }
}

#[tokio::test]
async fn options_let_in_what_is_private_unjudged_or_varies_by_a_known_header() {
    let model = Model::new([Answer { verdict: None, ..Answer::good("{}") }
        .with("cache-control", "private")
        .with("vary", "x-user")
        .with("set-cookie", "lb=1")]);
    let cache = Cache::builder()
        .scope(tenant)
        .keep_private(true)
        .keep_unjudged(true)
        .key_header("x-user".parse().unwrap())
        .ignore_cookie("lb")
        .ignore_field("trace")
        .build()
        .unwrap();
    let service = CacheLayer::new(cache).layer(model.clone());
    get(&service, ask(r#"{"trace":1}"#)).await;
    get(&service, ask(r#"{"trace":2}"#)).await;
    assert_eq!(model.calls(), 1);
    let mut other = ask("{}");
    other.headers_mut().insert("x-user", "u".parse().unwrap());
    get(&service, other).await;
    assert_eq!(model.calls(), 2);
}

#[tokio::test]
async fn an_error_of_the_service_is_passed_on_as_it_is_and_nothing_is_kept() {
    let model = Model::new([Answer { status: 0, ..Answer::good("") }, Answer::good("{}")]);
    let service = CacheLayer::new(cache()).layer(model.clone());
    let error = service.clone().oneshot(ask("{}")).await.unwrap_err();
    assert_eq!(error.to_string(), "connection reset");
    assert_eq!(get(&service, ask("{}")).await, "{}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_lives_as_long_as_it_may_and_says_its_age() {
    let model = Model::new([Answer::good("1"), Answer::good("2")]);
    let cache = Cache::builder().scope(tenant).ttl(Duration::from_secs(60)).build().unwrap();
    let service = CacheLayer::new(cache).layer(model.clone());
    assert_eq!(get(&service, ask("{}")).await, "1");
    tokio::time::advance(Duration::from_millis(59_999)).await;
    let again = service.clone().oneshot(ask("{}")).await.unwrap();
    assert_eq!(again.headers()[header::AGE], "59");
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(get(&service, ask("{}")).await, "2");
}

#[tokio::test(start_paused = true)]
async fn the_requests_own_cache_control_is_obeyed() {
    let model = Model::new(["1", "2", "3", "4", "5"].map(Answer::good));
    let service = CacheLayer::new(cache()).layer(model.clone());
    let with = |control: &str| {
        let mut request = ask("{}");
        request.headers_mut().insert("cache-control", control.parse().unwrap());
        request
    };
    assert_eq!(get(&service, with("no-store")).await, "1");
    assert_eq!(get(&service, ask("{}")).await, "2", "the one before was not kept");
    assert_eq!(get(&service, with("no-cache")).await, "3");
    assert_eq!(get(&service, ask("{}")).await, "3", "the new one took the old one's place");
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(get(&service, with("max-age=10")).await, "3");
    assert_eq!(get(&service, with("max-age=9")).await, "4");
}

const WHOLE: &str = r#"{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}]}"#;
const STREAM: [&str; 3] = [
    "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"H\"},\"finish_reason\":null}]}\n\n",
    "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"i\"},\"finish_reason\":\"stop\"}]}\n\n",
    "data: [DONE]\n\n",
];

// G119
#[tokio::test]
async fn an_answer_is_given_again_in_the_form_that_is_asked_for() {
    // Kept as a stream, asked for as a stream: the same bytes; asked for whole: put together.
    let model = Model::new([Answer::events(&STREAM)]);
    let service = CacheLayer::new(cache()).layer(model.clone());
    let (stream, whole) = (r#"{"stream":true}"#, "{}");
    assert_eq!(get(&service, ask(stream)).await, STREAM.concat());
    assert_eq!(get(&service, ask(stream)).await, STREAM.concat());
    let again = service.clone().oneshot(ask(whole)).await.unwrap();
    assert_eq!(again.headers()[header::CONTENT_TYPE], "application/json");
    let json: serde_json::Value = serde_json::from_str(&read(again).await).unwrap();
    assert_eq!(json, serde_json::from_str::<serde_json::Value>(WHOLE).unwrap());
    assert_eq!(model.calls(), 1);

    // The other way round.
    let model = Model::new([
        Answer::good(WHOLE).with("content-length", "154"),
        Answer::events(&["data: x\n\n", "data: [DONE]\n\n"]),
    ]);
    assert_eq!(WHOLE.len(), 154);
    let service = CacheLayer::new(cache()).layer(model.clone());
    assert_eq!(get(&service, ask(whole)).await, WHOLE);
    let again = service.clone().oneshot(ask(stream)).await.unwrap();
    assert!(again.headers()[header::CONTENT_TYPE].to_str().unwrap().starts_with("text/event-stream"));
    assert!(!again.headers().contains_key(header::CONTENT_LENGTH));
    let events = read(again).await;
    assert!(events.contains(r#""content":"Hi""#) && events.ends_with("data: [DONE]\n\n"), "{events}");
    assert_eq!(model.calls(), 1);
    // Usage is asked for, and nobody knows it: the model is asked.
    let usage = r#"{"stream":true,"stream_options":{"include_usage":true}}"#;
    assert_eq!(get(&service, ask(usage)).await, "data: x\n\ndata: [DONE]\n\n");
}

// G119
#[tokio::test]
async fn a_form_of_a_dialect_that_is_not_known_is_asked_for() {
    let model = Model::new([Answer::good("{}"), Answer::events(&["event: message_stop\ndata: {}\n\n"])]);
    let service = CacheLayer::new(cache()).layer(model.clone());
    let to = |body: &str| {
        let mut request = ask(body);
        *request.uri_mut() = "/v1/messages".parse().unwrap();
        request
    };
    assert_eq!(get(&service, to("{}")).await, "{}");
    assert!(get(&service, to(r#"{"stream":true}"#)).await.starts_with("event"));
    assert_eq!(get(&service, to(r#"{"stream":false}"#)).await, "{}");
    assert_eq!(model.calls(), 2);
}

#[tokio::test]
async fn a_stream_is_kept_when_its_reader_stops_after_the_last_event_and_not_before() {
    for (frames, kept) in [(1, 0), (2, 0), (3, 1)] {
        let model = Model::new([Answer::events(&STREAM)]);
        let cache = cache();
        let service = CacheLayer::new(cache.clone()).layer(model.clone());
        let mut body = service.clone().oneshot(ask(r#"{"stream":true}"#)).await.unwrap().into_body();
        for _ in 0..frames {
            body.frame().await.unwrap().unwrap();
        }
        drop(body);
        assert_eq!((cache.len(), cache.in_flight()), (kept, 0), "after {frames}");
    }
}

#[tokio::test]
async fn the_cache_stays_within_its_bounds() {
    let model = Model::new([Answer::good(&"x".repeat(1_000))]);
    let cache = Cache::builder().scope(tenant).entries(40).bytes(65_536).body_cap(16_384).build().unwrap();
    let service = CacheLayer::new(cache.clone()).layer(model.clone());
    for number in 0..500 {
        get(&service, ask(&number.to_string())).await;
        assert!(cache.len() <= 40 && cache.bytes() <= 65_536);
    }
    assert_eq!(cache.len(), 16, "each counts for 2 KiB and twice its length");
    cache.clear();
    assert!(cache.is_empty() && cache.bytes() == 0);
}

/// What 5 000 answers really take, as the allocator sees it.
#[test]
fn the_bytes_that_are_counted_are_about_those_that_are_taken() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let cache = Cache::builder().scope(tenant).bytes(8 << 20).build().unwrap();
    let service = CacheLayer::new(cache.clone()).layer(Model::new([Answer::good(&"x".repeat(500))]));
    let info = allocation_counter::measure(|| {
        runtime.block_on(async {
            for number in 0..5_000 {
                get(&service, ask(&number.to_string())).await;
            }
        });
    });
    let taken = u64::try_from(info.bytes_current).unwrap();
    assert!(cache.len() > 2_500, "{}", cache.len());
    assert!(taken <= cache.bytes() as u64 + 65_536, "{taken} taken, {} counted", cache.bytes());
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_identical_calls_at_once_make_one() {
    let model = Model::new([Answer { after: Duration::from_secs(2), ..Answer::good("{}") }]);
    let service = CacheLayer::new(cache()).layer(model.clone());
    let all = (0..10_000).map(|_| get(&service, ask("{}")));
    let answers = futures_util::future::join_all(all).await;
    assert!(answers.iter().all(|answer| answer == "{}"));
    assert_eq!(model.calls(), 1);
}

#[test]
fn ten_thousand_identical_calls_on_two_threads_make_one() {
    let model = Model::new([Answer::good("{}")]);
    let service = CacheLayer::new(cache()).layer(model.clone());
    let start = std::sync::Barrier::new(2);
    let half = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        start.wait();
        runtime.block_on(async {
            let all: Vec<_> = (0..5_000).map(|_| tokio::spawn(service.clone().oneshot(ask("{}")))).collect();
            for one in all {
                assert_eq!(read(one.await.unwrap().unwrap()).await, "{}");
            }
        });
    };
    std::thread::scope(|scope| {
        scope.spawn(half);
        scope.spawn(half);
    });
    assert_eq!(model.calls(), 1);
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

type OfService<S> = Pin<Box<<S as Service<Req>>::Future>>;

/// Calls that are polled by hand: only when they were woken, and counted.
struct Polled<S: Service<Req>> {
    future: Option<OfService<S>>,
    wakes: Arc<Wakes>,
    seen: usize,
    polls: usize,
}

impl<S: Service<Req> + Clone> Polled<S> {
    fn new(service: &S) -> Self {
        let future = Some(Box::pin(service.clone().call(ask("{}"))));
        Self { future, wakes: Arc::default(), seen: usize::MAX, polls: 0 }
    }

    fn poll(&mut self) -> Option<Result<S::Response, S::Error>> {
        let woken = self.wakes.0.load(Ordering::Relaxed);
        if self.seen == woken {
            return None;
        }
        self.seen = woken;
        self.polls += 1;
        let future = self.future.as_mut()?;
        match future.as_mut().poll(&mut Context::from_waker(&Arc::clone(&self.wakes).into())) {
            Poll::Ready(outcome) => {
                self.future = None;
                Some(outcome)
            }
            Poll::Pending => None,
        }
    }
}

// P22, P23, G120, G121: each of ten leaders is cancelled in turn; the followers are woken as often as they have something to
// do, and no upstream call more than leaders.
#[tokio::test(start_paused = true)]
async fn cancelled_leaders_neither_fail_nor_spin_their_followers() {
    let slow = Answer { after: Duration::from_secs(2), ..Answer::good("{}") };
    let model = Model::new([slow]);
    let service = CacheLayer::new(cache()).layer(model.clone());
    let mut all: Vec<_> = (0..50).map(|_| Polled::new(&service)).collect();
    for call in &mut all {
        assert!(call.poll().is_none());
    }
    for leader in 0..10 {
        assert_eq!(model.calls(), leader + 1);
        assert_eq!(model.running.load(Ordering::Relaxed), 1, "only one asks");
        drop(all.remove(0));
        for call in &mut all {
            assert!(call.poll().is_none());
        }
    }
    tokio::time::advance(Duration::from_secs(3)).await;
    tokio::task::yield_now().await;
    let first = all[0].poll().expect("the leader answers").unwrap();
    assert_eq!(read(first).await, "{}");
    for call in &mut all[1..] {
        let shared = call.poll().expect("its follower has that answer").unwrap();
        assert!(CacheStatus::of(shared.extensions()).is_some_and(CacheStatus::is_shared));
        assert_eq!(shared.headers()["cache-status"], "cache; fwd=miss; collapsed");
    }
    assert_eq!(model.calls(), 11);
    let polls: usize = all.iter().map(|call| call.polls).sum();
    assert!(polls <= 2 * all.len() + 10, "{polls} polls of {} calls", all.len());
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_body_is_dropped_half_way_is_followed_by_one() {
    let model = Model::new([Answer { pieces: vec![Ok("{".into()), Ok("}".into())], ..Answer::good("") }]);
    let service = CacheLayer::new(cache()).layer(model.clone());
    let mut body = service.clone().oneshot(ask("{}")).await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    let mut followers: Vec<_> = (0..9).map(|_| Polled::new(&service)).collect();
    assert!(followers.iter_mut().all(|follower| follower.poll().is_none()));
    drop(body);
    let taken: Vec<_> = followers.iter_mut().filter_map(Polled::poll).collect();
    assert_eq!((taken.len(), model.calls()), (1, 2));
    assert_eq!(read(taken.into_iter().next().unwrap().unwrap()).await, "{}");
    assert_eq!(followers.iter_mut().filter_map(Polled::poll).count(), 8);
    assert_eq!(model.calls(), 2);
}

// G120, G121
#[tokio::test(start_paused = true)]
async fn a_failing_leader_is_followed_by_two_then_four_and_no_failure_is_shared() {
    let fails = Answer { status: 503, verdict: Some(Verdict::of(Class::Overloaded)), ..Answer::good("busy") };
    let errs = Answer { status: 0, ..fails.clone() };
    let model = Model::new([
        fails.clone(),
        errs,
        fails.clone(),
        fails.clone(),
        fails.clone(),
        fails,
        Answer::good("{}"),
    ]);
    let service = CacheLayer::new(cache()).layer(model.clone());
    // Each asks in turn, and so the first of each round is polled to its end before the next one.
    let mut all: Vec<_> = (0..20).map(|_| Polled::new(&service)).collect();
    let (mut good, mut bad) = (0, 0);
    while all.iter().any(|call| call.future.is_some()) {
        for call in &mut all {
            match call.poll() {
                Some(Ok(response)) if response.status() == StatusCode::OK => {
                    good += 1;
                    assert_eq!(read(response).await, "{}");
                }
                Some(_) => bad += 1,
                None => {}
            }
        }
    }
    assert_eq!((good, bad), (14, 6), "who fails has asked for itself");
    assert!(model.calls() <= 10, "{}", model.calls());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_may_not_be_kept_does_not_make_the_others_queue() {
    let own = Answer { after: Duration::from_secs(1), ..Answer::good("{}") }.with("set-cookie", "session=1");
    let model = Model::new([own]);
    let service = CacheLayer::new(cache()).layer(model.clone());
    let start = tokio::time::Instant::now();
    futures_util::future::join_all((0..20).map(|_| get(&service, ask("{}")))).await;
    assert_eq!((start.elapsed().as_secs(), model.calls()), (2, 20));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_does_not_read_on_is_taken_over_from() {
    let model = Model::new([Answer { pieces: vec![Ok("{".into()), Ok("}".into())], ..Answer::good("") }]);
    let cache = Cache::builder().scope(tenant).patience(Duration::from_secs(30)).build().unwrap();
    let service = CacheLayer::new(cache.clone()).layer(model.clone());
    let mut stuck = service.clone().oneshot(ask("{}")).await.unwrap().into_body();
    stuck.frame().await.unwrap().unwrap();
    let start = tokio::time::Instant::now();
    let answers = futures_util::future::join_all((0..5).map(|_| get(&service, ask("{}")))).await;
    assert!(answers.iter().all(|answer| answer == "{}"));
    assert_eq!((start.elapsed().as_secs(), model.calls()), (30, 2));
    assert_eq!(stuck.collect().await.unwrap().to_bytes(), "}");
    assert_eq!((cache.len(), cache.in_flight()), (1, 0));
}

/// Dropped after each number of polls, of call and body: nothing is left behind, nothing cut is kept, and the next call is
/// answered.
#[tokio::test(start_paused = true)]
async fn dropped_after_any_poll_nothing_is_left_behind() {
    for polls in 0..8 {
        let pieces = vec![Ok("{".into()), Ok("}".into())];
        let model = Model::new([Answer { pieces, after: Duration::from_millis(1), ..Answer::good("") }]);
        let cache = cache();
        let service = CacheLayer::new(cache.clone()).layer(model.clone());
        let one = async {
            let response = service.clone().oneshot(ask("{}")).await.unwrap();
            let mut body = response.into_body();
            while let Some(frame) = body.frame().await {
                frame.unwrap();
                tokio::task::yield_now().await;
            }
        };
        {
            let mut one = tokio_test::task::spawn(one);
            for _ in 0..polls {
                if one.poll().is_ready() {
                    break;
                }
                tokio::time::advance(Duration::from_millis(1)).await;
            }
        }
        assert_eq!(cache.in_flight(), 0, "after {polls}");
        assert_eq!(get(&service, ask("{}")).await, "{}");
        assert_eq!(model.running.load(Ordering::Relaxed), 0);
    }
}

#[derive(Clone, Debug)]
enum Act {
    Ask { tenant: &'static str, question: u8, stream: bool, frames: usize },
    Wait(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let tenant = prop_oneof![Just("a"), Just("b")];
    prop_oneof![
        6 => (tenant, 0_u8..4, any::<bool>(), 0_usize..4)
            .prop_map(|(tenant, question, stream, frames)| Act::Ask { tenant, question, stream, frames }),
        1 => (1_u64..40).prop_map(Act::Wait),
    ]
}

/// Counts its calls into the answers; answers of the question 3 are bad.
#[derive(Clone, Default)]
struct Counting(Arc<AtomicU32>);

impl Service<Req> for Counting {
    type Response = Response<BoxBody>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<BoxBody>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        let tenant = request.headers()["x-tenant"].to_str().unwrap();
        let text = format!("{tenant} {} {number}", request.body());
        let mut answer = if request.body().contains("stream") {
            Answer::events(&[&format!("data: {text}\n\n"), "data: [DONE]\n\n"])
        } else {
            let (head, tail) = text.split_at(3);
            Answer {
                pieces: vec![Ok(head.to_owned().into()), Ok(tail.to_owned().into())],
                ..Answer::good("")
            }
        };
        if request.body().contains("\"q\":3") {
            answer.verdict = Some(Verdict::of(Class::Refused));
        }
        std::future::ready(Ok(answer.response()))
    }
}

proptest! {
    /// Beside a map: what each call must get, whichever calls were read to their end before.
    #[test]
    fn the_cache_does_what_a_plain_map_does(acts in proptest::collection::vec(act(), 0..40)) {
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
            let ttl = Duration::from_secs(60);
            let cache = Cache::builder().scope(tenant).ttl(ttl).build().unwrap();
            let service: Cached<Counting, _> = CacheLayer::new(cache).layer(Counting::default());
            let mut map: HashMap<(&str, u8, bool), (String, tokio::time::Instant)> = HashMap::new();
            for act in acts {
                match act {
                    Act::Wait(seconds) => tokio::time::advance(Duration::from_secs(seconds)).await,
                    Act::Ask { tenant, question, stream, frames } => {
                        let now = tokio::time::Instant::now();
                        let more = if stream { r#","stream":true"# } else { "" };
                        let response = service.clone().oneshot(ask_of(tenant, &format!(r#"{{"q":{question}{more}}}"#))).await.unwrap();
                        let key = (tenant, question, stream);
                        let expected = map.get(&key).filter(|(_, kept)| now - *kept < ttl).map(|(text, _)| text.clone());
                        prop_assert_eq!(CacheStatus::of(response.extensions()).is_some(), expected.is_some());
                        let mut body = response.into_body();
                        let mut text = String::new();
                        let mut is_over = false;
                        // The last poll sees the end; a stream says it by itself.
                        for _ in 0..frames {
                            match body.frame().await {
                                Some(frame) => text.push_str(std::str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap()),
                                None => { is_over = true; break; }
                            }
                        }
                        match expected {
                            Some(expected) => prop_assert!(expected.starts_with(&text)),
                            None => {
                                prop_assert!(text.is_empty() || text.contains(tenant), "{text} for {tenant}");
                                let over = is_over || (stream && text.ends_with("data: [DONE]\n\n"));
                                if over && question != 3 {
                                    map.insert(key, (text, now));
                                }
                            }
                        }
                    }
                }
            }
            Ok(())
        })?;
    }
}

#[test]
fn the_service_can_be_shared_and_needs_no_more_than_it_uses() {
    fn shared<T: Clone + Send + Sync + 'static>(_: &T) {}
    fn sent<T: Send + 'static>(_: &T) {}
    let service = CacheLayer::new(Cache::builder().shared_by_all().build().unwrap()).layer(
        tower::service_fn(|_: Request<Bytes>| {
            std::future::ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())))
        }),
    );
    shared(&service);
    sent(&service.clone().call(Request::new(Bytes::new())));
}

mod last_tier {
    //! The cache behind the routes of a fallback.

    use failsoft_core::{Embed, EmbedWith, Embedding, HashedNgrams};
    use fallback_layer::{FallbackLayer, NoRoute, cache::Similar};

    use super::*;

    fn down() -> Answer {
        Answer { status: 503, verdict: Some(Verdict::of(Class::Overloaded)), ..Answer::good("busy") }
    }

    macro_rules! behind {
        ($cache:expr, $model:expr) => {
            FallbackLayer::<NoRoute<_>>::only_last_good($cache).build().unwrap().layer($model.clone())
        };
    }

    fn prompt(tenant: &'static str, text: &str) -> Req {
        ask_of(tenant, &format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{text}"}}]}}"#))
    }

    #[tokio::test(start_paused = true)]
    async fn when_every_route_fails_the_same_request_has_its_earlier_answer_also_as_a_stream() {
        let model = Model::new([Answer::good(WHOLE), Answer::events(&STREAM), Answer::good("2"), down()]);
        let cache = cache();
        let service = behind!(cache.clone(), model);
        assert_eq!(get(&service, ask("{}")).await, WHOLE);
        assert_eq!(get(&service, ask(r#"{"stream":true}"#)).await, STREAM.concat());
        assert_eq!(cache.len(), 2);
        // While a route answers, it is asked.
        assert_eq!(get(&service, ask("{}")).await, "2");
        tokio::time::advance(Duration::from_secs(5)).await;
        let again = service.clone().oneshot(ask("{}")).await.unwrap();
        let mark = Degraded::of(again.extensions()).unwrap();
        assert_eq!((mark.stand_in, mark.age), (StandIn::LastGood, Some(Duration::from_secs(5))));
        assert_eq!(again.headers()["x-failsoft-degraded"], "last-good");
        assert_eq!(read(again).await, "2");
        assert_eq!(get(&service, ask(r#"{"stream":true}"#)).await, STREAM.concat());
        // Never another tenant's, nor an error's body.
        for request in [ask_of("u", "{}"), ask(r#"{"n":2}"#)] {
            assert_eq!(service.clone().oneshot(request).await.unwrap().status(), 503);
        }
    }

    #[tokio::test]
    async fn an_answer_that_breaks_off_fails_its_route_and_is_not_kept() {
        let cut = Answer { pieces: vec![Ok("{".into()), Err("reset")], ..Answer::good("") };
        let model = Model::new([Answer::good("{}"), cut]);
        let service = behind!(cache(), model);
        get(&service, ask("{}")).await;
        let again = service.clone().oneshot(ask("{}")).await.unwrap();
        assert!(Degraded::of(again.extensions()).is_some());
        assert_eq!(read(again).await, "{}");
        service.oneshot(ask("{\"n\":2}")).await.unwrap_err();
    }

    #[tokio::test]
    async fn one_cache_is_in_front_and_behind_at_once() {
        let model = Model::new([Answer::good("1"), down()]);
        let cache = cache();
        let service = CacheLayer::new(cache.clone()).layer(behind!(cache, model));
        assert_eq!(get(&service, ask("{}")).await, "1");
        assert_eq!(get(&service, ask("{}")).await, "1");
        assert_eq!(model.calls(), 1);
        let mut anew = ask("{}");
        anew.headers_mut().insert("cache-control", "no-cache".parse().unwrap());
        assert_eq!(
            service.clone().oneshot(anew).await.unwrap().status(),
            503,
            "who wants a new one gets no old one"
        );
    }

    #[tokio::test]
    async fn a_similar_request_stands_in_with_a_mark_and_never_across_tenants_or_contexts() {
        let model = Model::new([Answer::good("Paris"), down()]);
        let cache =
            Cache::builder().scope(tenant).similar(Similar::new(HashedNgrams::new())).build().unwrap();
        let service = behind!(cache, model);
        assert_eq!(get(&service, prompt("a", "What is the capital of France?")).await, "Paris");
        let again = service.clone().oneshot(prompt("a", "what's the capital of France")).await;
        // Near, and not near enough.
        assert_eq!(again.unwrap().status(), 503);
        let again = service.clone().oneshot(prompt("a", " what is the Capital of france ??")).await.unwrap();
        let mark = Degraded::of(again.extensions()).unwrap();
        assert_eq!(mark.stand_in, StandIn::Similar);
        assert!(mark.similarity.unwrap() > 0.99);
        assert_eq!(
            Insight::of(again.extensions()).unwrap().read(|facts| facts.degraded.clone()).unwrap(),
            *mark
        );
        assert_eq!(again.headers()["x-failsoft-degraded"], "similar");
        assert_eq!(read(again).await, "Paris");

        let mut other_model = prompt("a", "What is the capital of France??");
        *other_model.body_mut() = other_model.body().replace("\"m\"", "\"n\"");
        let others = [
            prompt("b", "What is the capital of France?"),
            prompt("b", "What is the capital of France??"),
            other_model,
            prompt("a", "What is the capital of Spain?"),
            prompt("a", "Please write a poem"),
            prompt("a", "?!"),
        ];
        for other in others {
            assert_eq!(service.clone().oneshot(other).await.unwrap().status(), 503);
        }
    }

    #[tokio::test]
    async fn in_front_what_is_similar_is_asked_for_unless_told_otherwise() {
        let model = Model::new([Answer::good("1"), Answer::good("2"), Answer::good("3")]);
        let make =
            || Cache::builder().scope(tenant).similar(Similar::new(HashedNgrams::new())).build().unwrap();
        let service = CacheLayer::new(make()).layer(model.clone());
        assert_eq!(get(&service, prompt("a", "the very same thing")).await, "1");
        assert_eq!(get(&service, prompt("a", "The very same thing!")).await, "2");
        let service = CacheLayer::new(make()).similar(true).layer(model.clone());
        assert_eq!(get(&service, prompt("a", "the very same thing")).await, "3");
        let again = service.clone().oneshot(prompt("a", "The very same thing!")).await.unwrap();
        assert_eq!(Degraded::of(again.extensions()).unwrap().stand_in, StandIn::Similar);
        assert!(CacheStatus::of(again.extensions()).is_some());
        assert_eq!(read(again).await, "3");
        assert_eq!(model.calls(), 3);
    }

    /// An embedder that takes its time, or fails.
    struct Slow(Duration, bool);

    impl Embed for Slow {
        type Future = Pin<Box<dyn Future<Output = Result<Embedding, BoxError>> + Send>>;

        fn embed(&self, text: &str) -> Self::Future {
            let (after, fails) = (self.0, self.1);
            let vector = HashedNgrams::new().vector(text);
            Box::pin(async move {
                tokio::time::sleep(after).await;
                if fails { Err("no embedder".into()) } else { Ok(vector?) }
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_embedder_that_fails_or_is_late_is_a_miss_and_holds_nobody_up_for_long() {
        for (after, fails, found) in [(100, false, true), (100, true, false), (3_600_000, false, false)] {
            let slow = Slow(Duration::from_millis(after), fails);
            let model = Model::new([Answer::good("1"), down()]);
            let cache = Cache::builder().scope(tenant).similar(Similar::new(slow)).build().unwrap();
            let service = behind!(cache, model);
            let start = tokio::time::Instant::now();
            assert_eq!(get(&service, prompt("a", "the very same thing")).await, "1");
            assert!(start.elapsed() <= Duration::from_millis(251));
            assert_eq!(
                get(&service, prompt("a", "the very same thing")).await,
                "1",
                "the same is found all the same"
            );
            let start = tokio::time::Instant::now();
            let again = service.clone().oneshot(prompt("a", "The very same thing!")).await.unwrap();
            assert_eq!(again.status() == 200, found, "after {after} ms");
            assert!(start.elapsed() <= Duration::from_millis(251));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_vector_is_made_while_the_model_works() {
        let slow = Similar::new(Slow(Duration::from_secs(1), false)).within(Duration::from_secs(2));
        let model = Model::new([Answer { after: Duration::from_secs(3), ..Answer::good("1") }]);
        let cache = Cache::builder().scope(tenant).similar(slow).build().unwrap();
        let service = CacheLayer::new(cache).similar(true).layer(model.clone());
        let start = tokio::time::Instant::now();
        get(&service, prompt("a", "the very same thing")).await;
        assert_eq!(start.elapsed().as_secs(), 4, "the look for what is similar comes first");
        get(&service, prompt("a", "The very same thing!")).await;
        assert_eq!((start.elapsed().as_secs(), model.calls()), (5, 1));
    }

    #[tokio::test]
    async fn an_embedder_may_be_a_service() {
        let embed = EmbedWith::new(tower::service_fn(|text: String| async move {
            Ok::<_, Infallible>(vec![text.trim().len() as f32, 1.0])
        }));
        let model = Model::new([Answer::good("1"), down()]);
        let cache = Cache::builder().scope(tenant).similar(Similar::new(embed)).build().unwrap();
        let service = behind!(cache, model);
        get(&service, prompt("a", "four")).await;
        assert_eq!(get(&service, prompt("a", " five")).await, "1");
    }
}
