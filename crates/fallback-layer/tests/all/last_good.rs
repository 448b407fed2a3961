//! The last tier: what stands in, and what never does.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::support::{Does, Fit, Target, fault, traced};
use bytes::Bytes;
use failsoft_core::{
    BoxError, Class, Degraded, Denier, ErrorsOnly, Facts, Fault, Finish, Held, Insight, SoftKind, Verdict,
};
use fallback_layer::{
    FallbackLayer, Route, Row, WhenAllPoor,
    last_good::{self, Key},
};
use http::{Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use tower::{Layer, Service, ServiceExt, service_fn};

#[derive(Clone, Copy)]
struct Ask {
    tenant: &'static str,
    question: u8,
}

fn key(ask: &Ask) -> Option<Key> {
    (ask.question != 99).then(|| Key::new(ask.tenant, [ask.question]))
}

const ASK: Ask = Ask { tenant: "t1", question: 1 };

macro_rules! kept {
    ($keep:expr, $first:expr, $second:expr $(, $more:ident($($arg:expr),*))*) => {
        FallbackLayer::builder()
            .classify(ErrorsOnly)
            .replay(failsoft_core::Cloned)
            .name("a")
            .route(Route::new("b", $second.clone()))
            $(.$more($($arg),*))*
            .keep_last_good($keep)
            .build()
            .unwrap()
            .layer($first.clone())
    };
}

#[tokio::test]
async fn when_every_route_fails_the_last_good_answer_stands_in_and_the_trail_says_so() {
    let (a, b) = (Target::new("a", Does::Answer), Target::new("b", Does::Fail(Class::Overloaded)));
    let service = kept!(last_good::cloned(key), a, b);
    service.clone().oneshot(ASK).await.unwrap();
    a.now(Does::Fail(Class::Transient));
    let (answer, trail) = traced(service.clone().oneshot(ASK)).await;
    assert_eq!(answer.unwrap(), "a");
    assert_eq!(trail, "a transient (next_route) > b overloaded (cached)");
    // While a route answers, it is asked.
    b.now(Does::Answer);
    assert_eq!(service.oneshot(ASK).await.unwrap(), "b");
}

// G118
#[tokio::test]
async fn two_tenants_with_the_same_question_never_share_an_answer() {
    let (a, b) = (Target::new("a", Does::Answer), Target::new("b", Does::Fail(Class::Overloaded)));
    let service = kept!(last_good::cloned(key), a, b);
    service.clone().oneshot(ASK).await.unwrap();
    a.now(Does::Fail(Class::Transient));
    service.clone().oneshot(Ask { tenant: "t2", ..ASK }).await.unwrap_err();
    service.clone().oneshot(Ask { question: 2, ..ASK }).await.unwrap_err();
    service.clone().oneshot(ASK).await.unwrap();
}

#[tokio::test]
async fn a_request_without_a_key_is_neither_kept_nor_served() {
    let (a, b) = (Target::new("a", Does::Answer), Target::new("b", Does::Fail(Class::Overloaded)));
    let service = kept!(last_good::cloned(key), a, b);
    let ask = Ask { question: 99, ..ASK };
    service.clone().oneshot(ask).await.unwrap();
    a.now(Does::Fail(Class::Transient));
    service.oneshot(ask).await.unwrap_err();
}

#[tokio::test]
async fn an_answer_stands_in_only_for_failures_that_allow_it() {
    let rows = [
        (Class::Transient, true),
        (Class::Quota, true),
        (Class::Soft(SoftKind::Empty), true),
        (Class::Denied(Denier::Circuit), true),
        (Class::Invalid, false),
        (Class::Auth, false),
        (Class::Refused, false),
        (Class::ContextLength, false),
        (Class::Denied(Denier::Budget), false),
        (Class::Denied(Denier::Quarantine), false),
    ];
    for (class, expected) in rows {
        let (a, b) = (Target::new("a", Does::Answer), Target::new("b", Does::Fail(class)));
        let service = kept!(last_good::cloned(key), a, b);
        service.clone().oneshot(ASK).await.unwrap();
        a.now(Does::Fail(class));
        assert_eq!(service.oneshot(ASK).await.is_ok(), expected, "{class}");
    }
    let (a, b) = (Target::new("a", Does::Answer), Target::new("b", Does::Answer));
    let service = kept!(last_good::cloned(key), a, b, stand_in(Row::Invalid, true));
    service.clone().oneshot(ASK).await.unwrap();
    a.now(Does::Fail(Class::Invalid));
    assert!(service.oneshot(ASK).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_answer_past_its_time_to_live_is_not_given() {
    let (a, b) = (Target::new("a", Does::Answer), Target::new("b", Does::Fail(Class::Overloaded)));
    let service = kept!(last_good::cloned(key).ttl(Duration::from_secs(60)), a, b);
    service.clone().oneshot(ASK).await.unwrap();
    a.now(Does::Fail(Class::Transient));
    tokio::time::advance(Duration::from_secs(59)).await;
    service.clone().oneshot(ASK).await.unwrap();
    tokio::time::advance(Duration::from_secs(1)).await;
    service.oneshot(ASK).await.unwrap_err();
}

#[tokio::test]
async fn all_routes_poor_and_failing_fast_still_finds_the_last_good_answer() {
    let (a, b) = (Target::new("a", Does::Answer), Target::new("b", Does::Answer));
    let fit = Fit::new(failsoft_core::Condition::Good, None);
    let layer = FallbackLayer::builder()
        .classify(ErrorsOnly)
        .replay(failsoft_core::Cloned)
        .health(fit.clone())
        .route(Route::new("b", b).health(Fit::poor(9)))
        .when_all_poor(WhenAllPoor::FailFast)
        .keep_last_good(last_good::cloned(key))
        .build()
        .unwrap();
    let service = layer.layer(a.clone());
    service.clone().oneshot(ASK).await.unwrap();
    fit.now(failsoft_core::Condition::Poor);
    assert_eq!(service.clone().oneshot(ASK).await.unwrap(), "a");
    assert_eq!(a.calls(), 1);
    service.oneshot(Ask { question: 7, ..ASK }).await.unwrap_err();
}

#[tokio::test]
async fn without_further_routes_the_last_good_answer_is_the_only_fallback() {
    let a = Target::new("a", Does::Answer);
    let layer = FallbackLayer::only_last_good(last_good::cloned(key))
        .classify(ErrorsOnly)
        .replay(failsoft_core::Cloned)
        .build()
        .unwrap();
    let service = layer.layer(a.clone());
    service.clone().oneshot(ASK).await.unwrap();
    a.now(Does::Fail(Class::Transient));
    assert_eq!(service.oneshot(ASK).await.unwrap(), "a");
}

// HTTP

type Body = UnsyncBoxBody<Bytes, BoxError>;
type Reply = Arc<Mutex<Box<dyn Fn() -> Result<Response<Body>, BoxError> + Send>>>;

fn full(text: &'static str) -> Body {
    Full::<Bytes>::from(text).map_err(|never| match never {}).boxed_unsync()
}

fn ok(text: &'static str) -> Response<Body> {
    Response::new(full(text))
}

fn down() -> Result<Response<Body>, BoxError> {
    Err(Fault::new(Class::Transient, "test").into())
}

/// Asks once with `first`, then with everything down, and gives both.
async fn then_down(
    first: impl Fn() -> Response<Body> + Send + 'static,
) -> (Result<Response<Held<Body>>, BoxError>, Result<Response<Held<Body>>, BoxError>) {
    let reply: Reply = Arc::new(Mutex::new(Box::new(move || Ok(first()))));
    let answers = reply.clone();
    let route = service_fn(move |_: Request<()>| std::future::ready((answers.lock().unwrap())()));
    let layer = FallbackLayer::builder()
        .route(Route::new("b", service_fn(|_: Request<()>| std::future::ready(down()))))
        .keep_last_good(last_good::http(|request: &Request<()>| {
            Some(Key::new("tenant", request.uri().path().as_bytes()))
        }))
        .build()
        .unwrap();
    let mut service = layer.layer(route);
    let good = service.call(Request::new(())).await;
    *reply.lock().unwrap() = Box::new(down);
    let later = service.call(Request::new(())).await;
    (good, later)
}

async fn text(response: Response<Held<Body>>) -> Bytes {
    response.into_body().collect().await.unwrap().to_bytes()
}

#[tokio::test(start_paused = true)]
async fn a_whole_http_answer_is_replayed_with_its_status_and_a_mark() {
    let (good, later) = then_down(|| {
        Response::builder()
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::SET_COOKIE, "a=b")
            .header(header::CONTENT_LENGTH, "2")
            .body(full("{}"))
            .unwrap()
    })
    .await;
    assert_eq!(text(good.unwrap()).await, "{}");
    let later = later.unwrap();
    assert_eq!(later.status(), StatusCode::OK);
    assert_eq!(later.headers()["content-type"], "application/json");
    assert_eq!(later.headers()["x-failsoft-degraded"], "last-good");
    assert_eq!(later.headers()["age"], "0");
    assert!(later.headers().get("set-cookie").is_none(), "what was of the one exchange is not repeated");
    assert_eq!(Degraded::of(later.extensions()).and_then(|mark| mark.age), Some(Duration::ZERO));
    assert_eq!(text(later).await, "{}");
}

// G116
#[tokio::test]
async fn an_error_response_is_never_kept_and_never_replayed_as_200() {
    for status in [201, 206, 302, 400, 404, 500] {
        let (first, later) =
            then_down(move || Response::builder().status(status).body(full("odd")).unwrap()).await;
        if status < 300 {
            assert_eq!(first.unwrap().status(), status);
        }
        assert!(later.is_err(), "{status}");
    }
}

#[tokio::test]
async fn a_cut_answer_is_a_failed_route_and_never_kept() {
    let cut = || {
        let frames =
            [Ok(Frame::data(Bytes::from_static(b"{\"a\":"))), Err::<_, BoxError>("connection reset".into())];
        Response::new(StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync())
    };
    let (first, later) = then_down(cut).await;
    assert_eq!(fault(&first.unwrap_err()).class(), Class::Transient);
    assert!(later.is_err());
    // One that is shorter than it says, such as the answer to a HEAD, is handed on and not kept.
    let short = || Response::builder().header("content-length", "9").body(full("short")).unwrap();
    let (first, later) = then_down(short).await;
    assert_eq!(text(first.unwrap()).await, "short");
    assert!(later.is_err());
}

#[tokio::test]
async fn an_answer_that_an_inner_layer_found_wrong_is_not_kept() {
    let learn = |f: fn(&mut Facts)| {
        move || {
            let mut response = ok("hm");
            let insight = Insight::new();
            insight.learn(f);
            response.extensions_mut().insert(insight);
            response
        }
    };
    let (_, later) = then_down(learn(|facts| facts.verdict = Some(Verdict::soft(SoftKind::Empty)))).await;
    assert!(later.is_err());
    let (_, later) = then_down(learn(|facts| facts.finish = Some(Finish::Length))).await;
    assert!(later.is_err());
    let (_, later) = then_down(learn(|facts| facts.finish = Some(Finish::ContentFilter))).await;
    assert!(later.is_err());
    let (_, later) = then_down(learn(|facts| {
        facts.finish = Some(Finish::Stop);
        facts.verdict = Some(Verdict::SUCCESS);
        facts.text = Some("hm".into());
        facts.usage.output = Some(1);
        facts.output_bytes = 2;
    }))
    .await;
    let later = later.unwrap();
    let insight = Insight::of(later.extensions()).unwrap();
    let facts = insight.facts();
    assert_eq!((facts.verdict, facts.finish), (Some(Verdict::SUCCESS), Some(Finish::Stop)));
    assert_eq!(facts.text.as_deref(), Some("hm"), "checks outside see the text");
    // Its tokens were counted when it was made.
    assert_eq!((facts.usage.total(), facts.usage.is_unknown(), facts.output_bytes), (0, false, 0));
}

#[tokio::test]
async fn a_stream_of_events_and_a_long_body_pass_through_unread() {
    let stream = || {
        let never = futures_util::stream::pending::<Result<Frame<Bytes>, BoxError>>();
        Response::builder()
            .header("content-type", "text/event-stream; charset=utf-8")
            .body(StreamBody::new(never).boxed_unsync())
            .unwrap()
    };
    let (first, later) = then_down(stream).await;
    assert!(first.is_ok() && later.is_err());
    const LONG: &str = match std::str::from_utf8(&[b'x'; 64 * 1024 + 1]) {
        Ok(long) => long,
        Err(_) => "",
    };
    let (first, later) = then_down(|| ok(LONG)).await;
    assert_eq!(text(first.unwrap()).await.len(), LONG.len());
    assert!(later.is_err());
    let pieces = || {
        let frames = LONG.as_bytes().chunks(1000).map(|piece| Ok(Frame::data(Bytes::from_static(piece))));
        Response::new(StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync())
    };
    let (first, later) = then_down(pieces).await;
    assert_eq!(text(first.unwrap()).await.len(), LONG.len(), "what was read is not lost");
    assert!(later.is_err());
}
