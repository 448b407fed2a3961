//! A circuit that opens while other calls are on their way.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Wake, Waker},
    time::Duration,
};

use breaker_layer::{
    BreakerLayer, Circuit,
    engine::{Mode, State},
};
use failsoft_core::{Backoff, BoxError, Call, Class, Fault, Next, backoff::Jitter};
use fallback_layer::{BoxRoute, FallbackLayer, Route, WhenAllPoor};
use http_body_util::Full;
use retry_layer::RetryLayer;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tower::{Layer as _, ServiceBuilder, ServiceExt as _};

type Request = http::Request<String>;

fn request(seconds: &str) -> Request {
    http::Request::get("http://models.example/v1").body(seconds.to_owned()).unwrap()
}

/// Answers 503 after as many seconds as it is asked for.
async fn failing(request: Request) -> Result<http::Response<Full<bytes::Bytes>>, Infallible> {
    sleep(Duration::from_secs(request.into_body().parse().unwrap())).await;
    Ok(http::Response::builder().status(503).body(Full::from("no room")).unwrap())
}

#[tokio::test(start_paused = true)]
async fn who_fails_when_another_has_opened_the_circuit_does_not_wait_to_be_refused() {
    let backoff = Backoff::fixed(Duration::from_secs(7)).jitter(Jitter::None);
    let retry = RetryLayer::builder().backoff(backoff).build().unwrap();
    let breaker = BreakerLayer::builder().consecutive_failures(2).build().unwrap();
    let circuit = breaker.circuit().clone();
    let service = ServiceBuilder::new().layer(retry).layer(breaker).service_fn(failing);
    let began = Instant::now();
    let others = ["1", "2"].map(|seconds| tokio::spawn(service.clone().oneshot(request(seconds))));
    let call = Call::begin();
    let response = call.scope(service.oneshot(request("3"))).await.unwrap();
    assert_eq!(circuit.state(), State::Open);
    assert_eq!((began.elapsed().as_secs(), response.status().as_u16()), (3, 503));
    let told: Vec<_> = call.trail().attempts().iter().map(|step| (step.next, step.opened)).collect();
    // It was not this call that opened it.
    assert_eq!(told, [(Next::Final, false)]);
    // The second opened it, and has its answer; the first, which was waiting, had its own at that moment.
    let [first, second] = others;
    assert_eq!(second.await.unwrap().unwrap().status(), 503);
    assert!(first.is_finished());
    is_upstreams(first.await.unwrap());
    assert_eq!(began.elapsed().as_secs(), 3);
}

/// What is left of a response that was let go before the wait.
fn is_upstreams<T: std::fmt::Debug>(outcome: Result<T, BoxError>) {
    let error = outcome.unwrap_err();
    let fault = Fault::find(&*error).unwrap();
    assert_eq!((fault.class(), fault.status()), (Class::Overloaded, Some(503)));
}

fn waiting(seconds: u64) -> RetryLayer {
    let backoff = Backoff::fixed(Duration::from_secs(seconds)).jitter(Jitter::None);
    RetryLayer::builder().backoff(backoff).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn all_that_wait_for_a_target_end_when_its_circuit_opens_whoever_opens_it() {
    let breaker = BreakerLayer::builder().consecutive_failures(100).build().unwrap();
    let circuit = breaker.circuit().clone();
    // Two layers that know nothing of each other, around one circuit.
    let services =
        [(); 2].map(|()| ServiceBuilder::new().layer(waiting(50)).layer(breaker.clone()).service_fn(failing));
    let calls: Vec<_> = (0..8)
        .map(|i| {
            let service = services[i % 2].clone();
            tokio::spawn(async move {
                let call = Call::begin();
                let outcome = call.scope(service.oneshot(request("1"))).await;
                (Instant::now(), outcome, call.trail())
            })
        })
        .collect();
    sleep(Duration::from_secs(9)).await;
    assert!(calls.iter().all(|call| !call.is_finished()));
    let opened = Instant::now();
    circuit.set_mode(Mode::ForcedOpen);
    for call in calls {
        let (ended, outcome, trail) = call.await.unwrap();
        assert_eq!(ended, opened);
        is_upstreams(outcome);
        let [attempt] = trail.attempts() else { panic!("{trail}") };
        let decided: Vec<_> = attempt.decisions().map(|decision| decision.next).collect();
        assert_eq!(decided, [Next::Retry, Next::Final]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_refuses_nobody_does_not_end_a_wait() {
    let breaker = BreakerLayer::builder().consecutive_failures(100).build().unwrap();
    let circuit = breaker.circuit().clone();
    let service = ServiceBuilder::new().layer(waiting(50)).layer(breaker).service_fn(failing);
    let call = tokio::spawn(service.oneshot(request("1")));
    sleep(Duration::from_secs(9)).await;
    circuit.set_mode(Mode::Disabled);
    circuit.set_mode(Mode::Advisory);
    circuit.open().unwrap();
    sleep(Duration::from_secs(9)).await;
    circuit.set_mode(Mode::Enforcing);
    circuit.half_open().unwrap();
    circuit.reset();
    sleep(Duration::from_secs(9)).await;
    assert!(!call.is_finished());
    call.abort();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_while_it_waits_leaves_nothing_with_the_circuit() {
    let breaker = BreakerLayer::builder().consecutive_failures(100).build().unwrap();
    let circuit = breaker.circuit().clone();
    let service = ServiceBuilder::new().layer(waiting(50)).layer(breaker).service_fn(failing);
    let (task, handle) = waker();
    {
        let mut call = std::pin::pin!(service.oneshot(request("1")));
        let mut cx = Context::from_waker(&task);
        for _ in 0..2 {
            assert!(Future::poll(call.as_mut(), &mut cx).is_pending());
            sleep(Duration::from_secs(2)).await;
        }
        assert!(Arc::strong_count(&handle) > 2, "somebody would wake it");
    }
    // The timer's and the circuit's.
    assert_eq!(Arc::strong_count(&handle), 2);
    circuit.set_mode(Mode::ForcedOpen);
}

struct Woken;

impl Wake for Woken {
    fn wake(self: Arc<Self>) {}
}

fn waker() -> (Waker, Arc<Woken>) {
    let woken = Arc::new(Woken);
    (Waker::from(Arc::clone(&woken)), woken)
}

/// Two routes, each behind a circuit of its own, and a retry around both that waits for 50 s.
struct Around {
    call: JoinHandle<Result<(), BoxError>>,
    circuits: [Circuit; 2],
}

/// `health`: whether the fallback knows the circuits, and what it does when both are open.
async fn around(opened: [bool; 2], health: Option<WhenAllPoor>) -> Around {
    let layers = [(); 2].map(|()| BreakerLayer::builder().consecutive_failures(100).build().unwrap());
    let circuits = layers.each_ref().map(|layer| layer.circuit().clone());
    for (circuit, opened) in circuits.iter().zip(opened) {
        if opened {
            circuit.set_mode(Mode::ForcedOpen);
        }
    }
    let [first_layer, second_layer] = layers;
    let route = Route::new("second", BoxRoute::new(second_layer.layer(tower::service_fn(failing))));
    let fallback = match health {
        None => FallbackLayer::builder().route(route),
        Some(policy) => FallbackLayer::builder()
            .health(circuits[0].clone())
            .route(route.health(circuits[1].clone()))
            .when_all_poor(policy),
    };
    let service = ServiceBuilder::new()
        .layer(waiting(50))
        .layer(fallback.build().unwrap())
        .layer(first_layer)
        .service_fn(failing);
    let call = tokio::spawn(async move { service.oneshot(request("1")).await.map(drop) });
    sleep(Duration::from_secs(9)).await;
    Around { call, circuits }
}

#[tokio::test(start_paused = true)]
async fn around_a_fallback_a_circuit_that_opens_ends_no_wait_but_the_last_of_all_routes_does() {
    for order in [[0, 1], [1, 0]] {
        let Around { call, circuits } = around([false; 2], None).await;
        // The other route may serve the next attempt.
        circuits[order[0]].set_mode(Mode::ForcedOpen);
        sleep(Duration::from_secs(9)).await;
        assert!(!call.is_finished());
        // It may again; the one whose circuit opens now does not matter then.
        circuits[order[0]].set_mode(Mode::Enforcing);
        circuits[order[1]].set_mode(Mode::ForcedOpen);
        sleep(Duration::from_secs(9)).await;
        assert!(!call.is_finished());
        let began = Instant::now();
        circuits[order[0]].set_mode(Mode::ForcedOpen);
        is_upstreams(call.await.unwrap());
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn a_route_that_had_refused_already_is_one_of_them() {
    for refused in 0..2 {
        let opened = [refused == 0, refused == 1];
        let Around { call, circuits } = around(opened, None).await;
        assert!(!call.is_finished());
        circuits[1 - refused].set_mode(Mode::ForcedOpen);
        let began = Instant::now();
        is_upstreams(call.await.unwrap());
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn a_fallback_that_lets_the_least_bad_route_through_has_somebody_to_ask() {
    // Whoever knows of a route's health takes it for the last resort, when all are poor.
    for policy in [WhenAllPoor::LastResort, WhenAllPoor::Wait, WhenAllPoor::FailFast] {
        let Around { call, circuits } = around([false, true], Some(policy)).await;
        circuits[0].set_mode(Mode::ForcedOpen);
        sleep(Duration::from_secs(9)).await;
        assert_eq!(call.is_finished(), policy == WhenAllPoor::FailFast, "{policy:?}");
        call.abort();
    }
}
