//! The cache in front: what is shared, with whom, and what never is.
#![cfg(feature = "cache")]

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

mod fresh;
mod last_tier;
mod many;
mod model;
mod plain_map;

use model::*;

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
