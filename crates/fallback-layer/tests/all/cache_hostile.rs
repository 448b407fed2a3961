//! Answers and callers that would have the cache keep, or give, what it must not.
#![cfg(feature = "cache")]

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
use failsoft_core::{BoxError, Call, Degraded, EmbedWith, Mark, StandIn};
use fallback_layer::{
    FallbackLayer, NoRoute, Route,
    cache::{Cache, CacheLayer, CacheStatus, Scope, Similar},
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
async fn a_stream_that_restarted_is_not_kept() {
    use fallback_layer::restart::RestartLayer;

    let cut =
        Model::new(|| response("text/event-stream", vec![data("data: The an\n\n"), Err("reset".into())]));
    let whole = Model::new(|| response("text/event-stream", vec![data(DONE)]));
    let layer = FallbackLayer::builder().route(Route::new("b", whole.clone())).build().unwrap();
    let cache = cache();
    let service = tower::ServiceBuilder::new()
        .layer(CacheLayer::new(cache.clone()))
        .layer(RestartLayer::new())
        .layer(layer)
        .service(cut);
    let text = service.oneshot(ask()).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    assert!(
        text.starts_with(b"data: The an\n\nevent: failsoft.restart\n") && text.ends_with(DONE.as_bytes())
    );
    assert_eq!((whole.calls(), cache.len(), cache.in_flight()), (1, 0, 0));
    // A text that speaks of it is none.
    let speaks =
        || response("text/event-stream", vec![data("data: event: failsoft.restart\n\ndata: [DONE]\n\n")]);
    assert_eq!(asked_twice(speaks).await, 1);
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

fn down() -> Answer {
    let mut answer = json("{}");
    *answer.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
    answer
}

#[tokio::test]
async fn in_an_outage_those_who_ask_the_same_at_once_share_what_stands_in_and_it_is_not_kept() {
    let (first, second) = (Model::new(down), Model::new(|| json("{\"from\":2}")));
    let layer = FallbackLayer::builder().route(Route::new("b", second.clone())).build().unwrap();
    let cache = cache();
    let service = CacheLayer::new(cache.clone()).layer(layer.layer(first.clone()));
    let all = (0..50).map(|_| service.clone().oneshot(ask()));
    let answers = futures_util::future::join_all(all.map(|call| async {
        let (parts, body) = call.await.unwrap().into_parts();
        // Until all have asked.
        tokio::task::yield_now().await;
        assert_eq!(body.collect().await.unwrap().to_bytes(), "{\"from\":2}");
        parts
    }));
    for parts in answers.await {
        let mark = Degraded::of(&parts.extensions).unwrap();
        assert_eq!((mark.stand_in, mark.route.as_deref()), (StandIn::Route, Some("b")));
        assert_eq!(parts.headers["x-failsoft-degraded"], "route");
    }
    assert_eq!((first.calls(), second.calls()), (1, 1));
    assert_eq!((cache.len(), cache.in_flight()), (0, 0));
}

#[tokio::test]
async fn what_stood_in_is_no_answer_in_front_also_where_one_cache_is_in_front_and_behind() {
    let (broken, second) = (Model::new(down), then_down());
    let cache = cache();
    let layer = FallbackLayer::builder().route(Route::new("b", second.clone())).keep_last_good(cache.clone());
    let service = CacheLayer::new(cache.clone()).layer(layer.build().unwrap().layer(broken.clone()));
    let read = async || {
        let (parts, body) = service.clone().oneshot(ask()).await.unwrap().into_parts();
        body.collect().await.unwrap();
        Degraded::of(&parts.extensions).map(|mark| mark.stand_in)
    };
    assert_eq!(read().await, Some(StandIn::Route));
    // It is asked for again; and as nobody answers any more, what was kept stands in.
    assert_eq!(read().await, Some(StandIn::LastGood));
    assert_eq!((broken.calls(), second.calls()), (2, 2));
}

#[tokio::test]
async fn an_embedder_that_gives_anything_finds_nothing_and_breaks_nothing() {
    let vectors: Vec<Vec<f32>> = vec![
        vec![1.0, 0.0, 0.0],
        vec![f32::NAN; 3],
        vec![0.0; 3],
        vec![],
        vec![f32::INFINITY, 1.0, 1.0],
        vec![1.0, 0.0],
        vec![1.0; 1 << 20],
        vec![-1.0, 0.0, 0.0],
        vec![f32::MIN_POSITIVE, f32::MIN_POSITIVE, 1.0],
        vec![1.0, 1e-9, 0.0],
    ];
    let count = AtomicUsize::new(0);
    let next = Arc::new(move || vectors[count.fetch_add(1, Ordering::Relaxed)].clone());
    let embedder = tower::service_fn(move |_: String| {
        let next = next.clone();
        async move { Ok::<_, BoxError>(next()) }
    });
    let similar = Similar::new(EmbedWith::new(embedder)).bytes(64 * 1024);
    let cache = Cache::builder().shared_by_all().keep_unjudged(true).similar(similar).build().unwrap();
    let service = CacheLayer::new(cache).similar(true).layer(Model::new(|| json("{}")));
    let mut found = Vec::new();
    for word in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"] {
        let body = format!(r#"{{"messages":[{{"role":"user","content":"{word}"}}]}}"#);
        let request = Request::post("/v1/chat/completions").body(body).unwrap();
        let (parts, body) = service.clone().oneshot(request).await.unwrap().into_parts();
        body.collect().await.unwrap();
        if let Some(mark) = Degraded::of(&parts.extensions) {
            found.push((word, mark.similarity));
        }
    }
    // Only the last one is near another.
    assert_eq!(found, [("j", Some(1.0))]);
}

#[tokio::test]
async fn an_embedder_that_panics_takes_its_own_call_along_and_no_other() {
    let count = AtomicUsize::new(0);
    let embedder =
        Arc::new(move || assert!(count.fetch_add(1, Ordering::Relaxed) != 0, "the first one panics"));
    let embedder = tower::service_fn(move |_: String| {
        embedder();
        std::future::ready(Ok::<_, BoxError>(vec![1.0_f32]))
    });
    let similar = Similar::new(EmbedWith::new(embedder));
    let cache = Cache::builder().shared_by_all().keep_unjudged(true).similar(similar).build().unwrap();
    let service = CacheLayer::new(cache.clone()).layer(Model::new(|| json("{}")));
    let prompt = || {
        let body = r#"{"messages":[{"role":"user","content":"a"}]}"#.to_owned();
        service.clone().oneshot(Request::post("/v1/chat/completions").body(body).unwrap())
    };
    assert!(tokio::spawn(prompt()).await.unwrap_err().is_panic());
    assert_eq!(cache.in_flight(), 0);
    prompt().await.unwrap().into_body().collect().await.unwrap();
    assert_eq!(cache.len(), 1);
}
