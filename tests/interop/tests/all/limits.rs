//! `tower::limit` and `tower::load_shed`.

use breaker_layer::engine::State;
use failsoft_core::{BoxError, Call, Class, Denier, Fault, Next, Verdict};
use fallback_layer::{FallbackLayer, Route};
use tokio::time::Instant;
use tower::{Layer as _, Service as _, ServiceBuilder, ServiceExt as _};

use crate::{SECOND, Upstream, breaker, breaker_builder, request, retry};

#[tokio::test(start_paused = true)]
async fn what_is_shed_inside_a_breaker_is_not_the_upstreams_failure() {
    let upstream = Upstream::new([(10, 200)]);
    let (breaker, circuit) = breaker(1);
    let service =
        ServiceBuilder::new().layer(breaker).load_shed().concurrency_limit(1).service(upstream.service());
    let running = tokio::spawn(service.clone().oneshot(request()));
    tokio::task::yield_now().await;
    for _ in 0..50 {
        let shed = service.clone().oneshot(request()).await.err().unwrap();
        let verdict = Verdict::of_error(&*shed);
        assert!(shed.is::<tower::load_shed::error::Overloaded>());
        assert_eq!((verdict.class(), verdict.is_unsent()), (Class::Overloaded, true));
    }
    assert_eq!((circuit.state(), circuit.counts().total), (State::Closed, 0));
    assert_eq!(running.await.unwrap().unwrap().status(), 200);
    assert_eq!(upstream.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_shed_probe_decides_nothing() {
    let upstream = Upstream::new([(10, 200)]);
    let (breaker, circuit) = breaker(1);
    let service =
        ServiceBuilder::new().layer(breaker).load_shed().concurrency_limit(1).service(upstream.service());
    let running = tokio::spawn(service.clone().oneshot(request()));
    tokio::task::yield_now().await;
    circuit.half_open().unwrap();
    for _ in 0..50 {
        let shed = service.clone().oneshot(request()).await.err().unwrap();
        assert!(shed.is::<tower::load_shed::error::Overloaded>(), "no place of a probe is lost: {shed}");
    }
    assert_eq!(circuit.state(), State::HalfOpen);
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_retry_around_it_comes_back_when_there_is_room_even_with_what_has_side_effects() {
    let upstream = Upstream::new([(4, 200)]);
    let service = ServiceBuilder::new()
        .layer(retry(3).build().unwrap())
        .load_shed()
        .concurrency_limit(1)
        .service(upstream.service());
    let running = tokio::spawn(service.clone().oneshot(request()));
    tokio::task::yield_now().await;
    let began = Instant::now();
    let post = http::Request::post("http://models.example/v1").body(String::new()).unwrap();
    let call = Call::begin();
    let response = call.scope(service.oneshot(post)).await.unwrap();
    assert_eq!((response.status().as_u16(), began.elapsed()), (200, 10 * SECOND));
    let next: Vec<_> = call.trail().attempts().iter().map(|attempt| attempt.next).collect();
    assert_eq!(next, [Next::Retry, Next::Retry, Next::Answered]);
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_breaker_inside_it_refuses_by_itself_and_one_that_waits_is_shed() {
    for (waits, shed) in [(false, false), (true, true)] {
        let upstream = Upstream::new([(0, 200)]);
        let builder = breaker_builder(1);
        let breaker = if waits { builder.pending_while_open() } else { builder }.build().unwrap();
        breaker.circuit().open().unwrap();
        let service = ServiceBuilder::new().load_shed().layer(breaker).service(upstream.service());
        let error = service.oneshot(request()).await.err().unwrap();
        assert_eq!(error.is::<tower::load_shed::error::Overloaded>(), shed);
        let denied = Fault::find(&*error).map(|fault| fault.class());
        assert_eq!(denied, (!shed).then_some(Class::Denied(Denier::Circuit)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_fallback_takes_the_route_that_has_room_and_holds_no_place_in_the_others() {
    let (first, second) = (Upstream::new([(10, 200)]), Upstream::new([(0, 200)]));
    let one = ServiceBuilder::new().load_shed().concurrency_limit(1).service(first.service());
    let two = ServiceBuilder::new().concurrency_limit(1).service(second.service());
    let mut elsewhere = two.clone();
    let layer = FallbackLayer::builder().route(Route::boxed("two", two)).build().unwrap();
    let service = layer.layer(one);
    let running = tokio::spawn(service.clone().oneshot(request()));
    tokio::task::yield_now().await;
    // The second route is untouched as long as the first is asked.
    tokio::time::timeout(SECOND, elsewhere.ready()).await.unwrap().unwrap();
    drop(elsewhere);
    let began = Instant::now();
    assert_eq!(service.oneshot(request()).await.unwrap().status(), 200);
    assert_eq!((began.elapsed(), second.calls()), (std::time::Duration::ZERO, 1));
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_limit_around_a_breaker_frees_its_place_at_a_refusal() {
    let upstream = Upstream::new([(0, 200)]);
    let (breaker, circuit) = breaker(1);
    let mut service = ServiceBuilder::new().concurrency_limit(1).layer(breaker).service(upstream.service());
    circuit.open().unwrap();
    for _ in 0..5 {
        let ready = tokio::time::timeout(SECOND, service.ready()).await.unwrap().unwrap();
        assert!(ready.call(request()).await.is_err());
    }
}

/// `RateLimit` is not `Clone`: a buffer is put around it, as our layers say where it is missing.
#[tokio::test(start_paused = true)]
async fn further_attempts_keep_to_a_rate_behind_a_buffer() {
    let upstream = Upstream::new([(0, 503), (0, 503), (0, 200)]);
    let limited = ServiceBuilder::new().buffer(1).rate_limit(1, 10 * SECOND).service(upstream.service());
    let service = retry(0).ready_within(60 * SECOND).build().unwrap().layer(limited);
    let began = Instant::now();
    let response = service.oneshot(request()).await.unwrap();
    assert_eq!((response.status().as_u16(), upstream.calls()), (200, 3));
    assert!(began.elapsed() >= 20 * SECOND, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_may_not_wait_so_long_has_the_outcome_from_before() {
    let upstream = Upstream::new([(0, 503)]);
    let mut limited = ServiceBuilder::new().concurrency_limit(1).service(upstream.service());
    let service = retry(1).build().unwrap().layer(limited.clone());
    let began = Instant::now();
    let waiting = tokio::spawn(service.oneshot(request()));
    tokio::task::yield_now().await;
    // Somebody else takes the only place while the retry waits, and keeps it.
    limited.ready().await.unwrap();
    let error: BoxError = waiting.await.unwrap().err().unwrap();
    assert_eq!(Fault::find(&*error).unwrap().status(), Some(503));
    // One second of backoff, one of waiting for readiness: the default.
    assert_eq!((began.elapsed(), upstream.calls()), (2 * SECOND, 1));
}
