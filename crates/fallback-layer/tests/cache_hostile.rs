//! Answers and callers that would have the cache keep, or give, what it must not.
#![cfg(feature = "cache")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's helpers fail by panicking")]

use std::{
    convert::Infallible,
    future::Ready,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use failsoft_core::{BoxError, Call, Degraded, Mark};
use fallback_layer::{
    FallbackLayer, NoRoute,
    cache::{Cache, CacheLayer, CacheStatus, Scope},
    last_good::{self, Key},
};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody, combinators::UnsyncBoxBody};
use tower::{Layer, Service, ServiceExt};

type Req = Request<String>;
type Piece = Result<Frame<Bytes>, BoxError>;
type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// Answers each call anew by a function, and counts the calls.
struct Model<F> {
    answer: Arc<F>,
    calls: Arc<AtomicUsize>,
}

impl<F: Fn() -> Answer> Model<F> {
    fn new(answer: F) -> Self {
        Self { answer: Arc::new(answer), calls: Arc::default() }
    }
}

impl<F> Model<F> {
    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

impl<F> Clone for Model<F> {
    fn clone(&self) -> Self {
        Self { answer: self.answer.clone(), calls: self.calls.clone() }
    }
}

impl<F: Fn() -> Answer> Service<Req> for Model<F> {
    type Response = Answer;
    type Error = Infallible;
    type Future = Ready<Result<Answer, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Req) -> Self::Future {
        self.calls.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok((self.answer)()))
    }
}

fn response(content_type: &str, pieces: Vec<Piece>) -> Answer {
    let body = StreamBody::new(futures_util::stream::iter(pieces)).boxed_unsync();
    Response::builder().header("content-type", content_type).body(body).unwrap()
}

fn data(text: &'static str) -> Piece {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

fn json(text: &'static str) -> Answer {
    response("application/json", vec![data(text)])
}

fn cache() -> Cache<impl Scope<Req>> {
    Cache::builder().shared_by_all().keep_unjudged(true).build().unwrap()
}

fn ask() -> Req {
    Request::post("/v1/chat/completions").body("{}".to_owned()).unwrap()
}

fn with(name: &'static str, value: &[u8]) -> Req {
    let mut request = ask();
    request.headers_mut().insert(name, HeaderValue::from_bytes(value).unwrap());
    request
}

/// Asks twice, and reads what comes as far as it goes; how often the model was asked.
async fn asked_twice<F: Fn() -> Answer>(answer: F) -> usize {
    let model = Model::new(answer);
    let cache = cache();
    let service = CacheLayer::new(cache.clone()).layer(model.clone());
    for _ in 0..2 {
        let mut body = service.clone().oneshot(ask()).await.unwrap().into_body();
        while let Some(Ok(_)) = body.frame().await {}
        drop(body);
        assert_eq!(cache.in_flight(), 0);
    }
    model.calls()
}

const DONE: &str = "data: 1\n\ndata: [DONE]\n\n";

#[tokio::test]
async fn what_follows_the_last_event_of_a_stream_keeps_it_out_and_a_failure_after_it_changes_nothing() {
    let trailers = || {
        let trailers = HeaderMap::from_iter([("x-a".parse().unwrap(), HeaderValue::from_static("1"))]);
        response("text/event-stream", vec![data(DONE), Ok(Frame::trailers(trailers))])
    };
    assert_eq!(asked_twice(trailers).await, 2);
    let long: &'static str = "x".repeat(3 << 20).leak();
    assert_eq!(asked_twice(|| response("text/event-stream", vec![data(DONE), data(long)])).await, 2);
    let reset = || response("text/event-stream", vec![data(DONE), Err("reset".into())]);
    assert_eq!(asked_twice(reset).await, 1);
    let cut = || response("text/event-stream", vec![data("data: 1\n\n"), Err("reset".into())]);
    assert_eq!(asked_twice(cut).await, 2);
}

#[tokio::test]
async fn what_an_answer_says_of_keeping_is_not_overheard_behind_odd_bytes() {
    let odd = || {
        let mut answer = json("{}");
        let value = HeaderValue::from_bytes(b"no-store, note=\"caf\xe9\"").unwrap();
        answer.headers_mut().insert("cache-control", value);
        answer
    };
    assert_eq!(asked_twice(odd).await, 2);
    let plain = || json("{}");
    assert_eq!(asked_twice(plain).await, 1);
    // Nor is what a request says of it.
    let model = Model::new(plain);
    let service = CacheLayer::new(cache()).layer(model.clone());
    for _ in 0..2 {
        let request = with("cache-control", b"no-store, note=\"caf\xe9\"");
        service.clone().oneshot(request).await.unwrap().into_body().collect().await.unwrap();
    }
    assert_eq!(model.calls(), 2);
}

#[tokio::test]
async fn json_that_was_cut_where_nobody_said_its_length_is_not_kept_unjudged() {
    assert_eq!(asked_twice(|| json("{\"a\":")).await, 2);
    assert_eq!(asked_twice(|| json("{\"a\":1}")).await, 1);
    assert_eq!(asked_twice(|| response("text/plain", vec![data("{\"a\":")])).await, 1);
}

#[tokio::test]
async fn one_path_on_two_hosts_is_two_questions() {
    let model = Model::new(|| json("{}"));
    let service = CacheLayer::new(cache()).layer(model.clone());
    for (host, calls) in [("a.example", 1), ("b.example", 2), ("a.example", 2)] {
        let answer = service.clone().oneshot(with("host", host.as_bytes())).await.unwrap();
        answer.into_body().collect().await.unwrap();
        assert_eq!(model.calls(), calls, "{host}");
    }
}

#[tokio::test]
async fn a_call_whose_earlier_answer_was_wrong_is_not_given_it_again() {
    let model = Model::new(|| json("{}"));
    let service = CacheLayer::new(cache()).layer(model.clone());
    let read = async |call: &Call| {
        let answer = call.scope(service.clone().oneshot(ask())).await.unwrap();
        let cached = CacheStatus::of(answer.extensions()).is_some();
        answer.into_body().collect().await.unwrap();
        cached
    };
    let (plain, anew) = (Call::begin(), Call::options().mark(Mark::NoCache).begin());
    assert!(!read(&plain).await);
    assert!(read(&plain).await);
    assert!(!read(&anew).await);
    assert_eq!(model.calls(), 2);
    assert!(read(&plain).await, "the new one");
}

/// Good once, then an error.
fn then_down() -> Model<impl Fn() -> Answer> {
    let count = AtomicUsize::new(0);
    Model::new(move || {
        let mut answer = json("{}");
        if count.fetch_add(1, Ordering::Relaxed) > 0 {
            *answer.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
        }
        answer
    })
}

#[tokio::test]
async fn nor_does_it_stand_in_for_such_a_call() {
    macro_rules! check {
        ($keep:expr) => {
            let layer = FallbackLayer::<NoRoute<_>>::only_last_good($keep).build().unwrap();
            let service = layer.layer(then_down());
            service.clone().oneshot(ask()).await.unwrap().into_body().collect().await.unwrap();
            let anew = Call::options().mark(Mark::NoCache).begin();
            let wrong = anew.scope(service.clone().oneshot(ask())).await.unwrap();
            assert_eq!((wrong.status().as_u16(), Degraded::of(wrong.extensions())), (503, None));
            let stands_in = service.oneshot(ask()).await.unwrap();
            assert!(Degraded::of(stands_in.extensions()).is_some());
        };
    }
    check!(cache());
    check!(last_good::http(|request: &Req| Some(Key::new("t", request.body().as_bytes()))));
}
