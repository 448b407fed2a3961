//! What an attempt tells its target, and what a request tells the layer.

use std::{
    collections::HashSet,
    convert::Infallible,
    future::ready,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::common::{Do, Request, Upstream, exact, get, post};
use bytes::Bytes;
use failsoft_core::{Call, Cloned, ErrorsOnly, Next};
use http::HeaderMap;
use http_body_util::Empty;
use retry_layer::{RetryBuilder, RetryLayer};
use tower::{Layer, ServiceExt};

/// The headers of each attempt, all of which but the last are answered with a 503.
async fn headers(builder: RetryBuilder, request: Request, attempts: usize) -> Vec<HeaderMap> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let push = Arc::clone(&seen);
    let service = tower::service_fn(move |request: Request| {
        let mut seen = push.lock().unwrap();
        seen.push(request.headers().clone());
        let mut response = http::Response::new(Empty::<Bytes>::new());
        if seen.len() < attempts {
            *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
        }
        ready(Ok::<_, Infallible>(response))
    });
    builder.build().unwrap().layer(service).oneshot(request).await.unwrap();
    let seen = seen.lock().unwrap();
    seen.clone()
}

fn values<'a>(headers: &'a [HeaderMap], name: &str) -> Vec<Option<&'a str>> {
    headers.iter().map(|headers| headers.get(name).map(|value| value.to_str().unwrap())).collect()
}

fn grpc() -> Request {
    let mut request = post();
    *request.version_mut() = http::Version::HTTP_2;
    request.headers_mut().insert("content-type", http::HeaderValue::from_static("application/grpc"));
    request
}

#[tokio::test(start_paused = true)]
async fn each_further_attempt_says_how_many_there_were_before() {
    let seen = headers(exact(), get(), 3).await;
    assert_eq!(values(&seen, "x-retry-count"), [None, Some("1"), Some("2")]);
    assert!(seen[0].is_empty());
    let seen = headers(exact(), grpc(), 3).await;
    assert_eq!(values(&seen, "grpc-previous-rpc-attempts"), [None, Some("1"), Some("2")]);
    assert_eq!(values(&seen, "x-retry-count"), [None; 3]);
    let seen = headers(exact().attempt_number(false), get(), 2).await;
    assert_eq!(values(&seen, "x-retry-count"), [None; 2]);
}

// V-D9
#[tokio::test(start_paused = true)]
async fn an_idempotency_key_is_the_same_over_the_attempts_of_a_call_and_of_no_other() {
    let layer = || exact().idempotency_key(true);
    let mut keys = HashSet::new();
    for _ in 0..3 {
        let seen = headers(layer(), post(), 4).await;
        let of_call: HashSet<_> = values(&seen, "idempotency-key").into_iter().flatten().collect();
        assert_eq!((seen.len(), of_call.len()), (4, 1));
        keys.extend(of_call.into_iter().map(str::to_owned));
    }
    assert_eq!(keys.len(), 3);
    // What is idempotent needs none, and what has one keeps it.
    let seen = headers(layer(), get(), 1).await;
    assert_eq!(values(&seen, "idempotency-key"), [None]);
    let mut own = post();
    own.headers_mut().insert("idempotency-key", http::HeaderValue::from_static("the caller's"));
    let seen = headers(layer(), own, 2).await;
    assert_eq!(values(&seen, "idempotency-key"), [Some("the caller's"); 2]);
    // By default there is none.
    let seen = headers(exact(), post(), 2).await;
    assert_eq!(values(&seen, "idempotency-key"), [None; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_keyed_request_may_be_repeated_without_an_answer() {
    for (keyed, calls) in [(false, 1), (true, 2)] {
        let upstream = Upstream::new([Do::Reset], Do::Status(200));
        let layer = exact().idempotency_key(keyed).build().unwrap();
        let _ = layer.layer(upstream.clone()).oneshot(post()).await;
        assert_eq!(upstream.calls(), calls);
    }
}

#[tokio::test(start_paused = true)]
async fn by_option_a_grpc_attempt_says_how_much_time_is_left() {
    let mut request = grpc();
    request.headers_mut().insert("grpc-timeout", http::HeaderValue::from_static("20S"));
    let seen = headers(exact(), request, 2).await;
    assert_eq!(values(&seen, "grpc-timeout"), [Some("20S"); 2]);

    let mut request = grpc();
    request.headers_mut().insert("grpc-timeout", http::HeaderValue::from_static("20S"));
    let seen = headers(exact().forward_deadline(true), request, 3).await;
    let left: Vec<u64> = values(&seen, "grpc-timeout")
        .into_iter()
        .map(|left| left.unwrap().strip_suffix('u').unwrap().parse().unwrap())
        .collect();
    for (left, wanted) in left.iter().zip([20_000_000u64, 19_000_000, 17_000_000]) {
        assert!(wanted.abs_diff(*left) <= 5_000, "{left}");
    }
    // The attempt's own limit, where that is nearer; nothing for other protocols.
    let seen =
        headers(exact().forward_deadline(true).attempt_timeout(Duration::from_secs(3)), grpc(), 2).await;
    assert_eq!(values(&seen, "grpc-timeout"), [Some("3000000u"); 2]);
    let seen = headers(exact().forward_deadline(true).deadline(Duration::from_secs(9)), post(), 1).await;
    assert!(seen[0].is_empty());
}

// G70
#[tokio::test(start_paused = true)]
async fn a_clients_own_retry_is_sent_once() {
    for (name, value, calls) in [
        ("x-stainless-retry-count", "0", 4),
        ("x-stainless-retry-count", "1", 1),
        ("grpc-previous-rpc-attempts", "1", 1),
        ("x-retry-count", "2", 1),
        ("x-stainless-retry-count", "many", 4),
    ] {
        let mut request = post();
        request.headers_mut().insert(name, http::HeaderValue::from_static(value));
        let upstream = Upstream::new([], Do::Status(503));
        let call = Call::begin();
        let service = exact().build().unwrap().layer(upstream.clone());
        call.scope(service.oneshot(request.clone())).await.unwrap();
        assert_eq!(upstream.calls(), calls, "{name}: {value}");
        let last = call.trail().attempts().last().unwrap().next;
        assert_eq!(last, if calls == 1 { Next::ClientRetries } else { Next::AttemptsSpent });

        let upstream = Upstream::new([], Do::Status(503));
        let layer = exact().trust_client_retries(false).build().unwrap();
        layer.layer(upstream.clone()).oneshot(request).await.unwrap();
        assert_eq!(upstream.calls(), 4);
    }
}

// P34, V-D9
#[tokio::test(start_paused = true)]
async fn what_has_side_effects_is_repeated_only_if_nothing_was_begun_or_the_request_says_it_may() {
    let mut keyed = post();
    keyed.headers_mut().insert("idempotency-key", http::HeaderValue::from_static("7"));
    let timeout = || Do::Status(504);
    for (what, request, calls) in [
        (Do::Status(500), post(), 1),
        (Do::Status(502), post(), 1),
        (timeout(), post(), 1),
        (Do::Reset, post(), 1),
        (Do::Status(503), post(), 2),
        (Do::Status(429), post(), 2),
        (Do::Refused, post(), 2),
        (Do::Status(500), get(), 2),
        (Do::Reset, get(), 2),
        (Do::Status(500), keyed.clone(), 2),
        (Do::Reset, keyed, 2),
    ] {
        let upstream = Upstream::new([what.clone()], Do::Status(200));
        let layer = exact().side_effects().build().unwrap();
        let _ = layer.layer(upstream.clone()).oneshot(request.clone()).await;
        assert_eq!(upstream.calls(), calls, "{what:?} {request:?}");
    }
    // A request that has no method declares nothing.
    for (builder, calls) in [(RetryLayer::builder().side_effects(), 1), (RetryLayer::builder(), 2)] {
        let upstream = Upstream::new([Do::Reset], Do::Status(200));
        let layer = builder.classify(ErrorsOnly).replay(Cloned).build().unwrap();
        let _ = layer.layer(upstream.clone()).oneshot(vec!["rm", "-r"]).await;
        assert_eq!(upstream.calls(), calls);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_of_bytes_is_never_copied() {
    let body = Bytes::from(vec![7; 16 << 10]);
    let (at, seen) = (body.as_ptr() as usize, Arc::new(Mutex::new(Vec::new())));
    let sent = Arc::clone(&seen);
    let service = tower::service_fn(move |request: http::Request<Bytes>| {
        sent.lock().unwrap().push(request.body().as_ptr() as usize);
        let status = if sent.lock().unwrap().len() < 4 { 503 } else { 200 };
        ready(http::Response::builder().status(status).body(String::new()))
    });
    let request = http::Request::post("http://models.example/").body(body).unwrap();
    let response = exact().build().unwrap().layer(service).oneshot(request).await.unwrap();
    assert_eq!((response.status().as_u16(), &*seen.lock().unwrap()), (200, &vec![at; 4]));
}
