//! Pending while open, under tower's own balancer.
#![cfg(not(failsoft_loom))]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use breaker_layer::engine::{Over, Probes, State};
use breaker_layer::{Breaker, BreakerLayer, Circuit};
use failsoft_core::{BoxError, ErrorsOnly};
use tokio::time::Instant;
use tower::balance::p2c::Balance;
use tower::discover::ServiceList;
use tower::load::{CompleteOnResponse, PendingRequests};
use tower::util::BoxCloneService;
use tower::{Layer, Service, ServiceExt};

const SECOND: Duration = Duration::from_secs(1);

/// An endpoint that can fail, and counts what reaches it.
#[derive(Clone)]
struct Endpoint {
    name: &'static str,
    is_down: Arc<AtomicBool>,
    calls: Arc<AtomicUsize>,
    circuit: Circuit,
}

type Behind = Breaker<BoxCloneService<(), &'static str, BoxError>, ErrorsOnly>;

/// Opens at the first failure, for 10 s; one probe decides.
fn endpoint(name: &'static str) -> (Endpoint, Behind) {
    let layer = BreakerLayer::builder()
        .name(name)
        .classify(ErrorsOnly)
        .over(Over::Calls(10))
        .failures(1)
        .soft_alone_may_not_open()
        .open_time(10 * SECOND)
        .jitter(0.0)
        .probes(Probes::Failures { probes: 1, to_open: 1 })
        .pending_while_open()
        .build()
        .unwrap();
    let (is_down, calls) = Default::default();
    let endpoint = Endpoint { name, is_down, calls, circuit: layer.circuit().clone() };
    let service = tower::service_fn({
        let endpoint = endpoint.clone();
        move |()| {
            let Endpoint { name, is_down, calls, .. } = endpoint.clone();
            async move {
                calls.fetch_add(1, SeqCst);
                tokio::time::sleep(Duration::from_millis(10)).await;
                if is_down.load(SeqCst) { Err(BoxError::from("it is down")) } else { Ok(name) }
            }
        }
    });
    (endpoint, layer.layer(BoxCloneService::new(service)))
}

type Balanced = Balance<ServiceList<Vec<PendingRequests<Behind>>>, ()>;

fn balance<const N: usize>(names: [&'static str; N]) -> (Balanced, [Endpoint; N]) {
    let endpoints = names.map(endpoint);
    let loaded = |behind: &Behind| PendingRequests::new(behind.clone(), CompleteOnResponse::default());
    let services = endpoints.iter().map(|(_, behind)| loaded(behind)).collect::<Vec<_>>();
    (Balance::new(ServiceList::new(services)), endpoints.map(|(endpoint, _)| endpoint))
}

async fn call(balance: &mut Balanced) -> Result<&'static str, BoxError> {
    balance.ready().await?.call(()).await
}

#[tokio::test(start_paused = true)]
async fn a_balancer_goes_round_an_open_circuit_and_comes_back_with_one_probe() {
    let (mut balance, [a, b]) = balance(["a", "b"]);
    a.is_down.store(true, SeqCst);
    let mut failed = 0;
    for _ in 0..100 {
        failed += usize::from(call(&mut balance).await.is_err());
    }
    assert_eq!(failed, 1, "the failure that opened it, and no refusal");
    assert_eq!((a.circuit.state(), a.calls.load(SeqCst)), (State::Open, 1));
    assert_eq!((b.calls.load(SeqCst), a.circuit.counts().refused), (99, 0));

    // its open time is over: one probe goes there, and that fails
    tokio::time::advance(10 * SECOND).await;
    for _ in 0..100 {
        failed += usize::from(call(&mut balance).await.is_err());
    }
    assert_eq!((failed, a.calls.load(SeqCst), a.circuit.state()), (2, 2, State::Open));

    // and once it is well, it takes its share again
    a.is_down.store(false, SeqCst);
    tokio::time::advance(20 * SECOND).await;
    for _ in 0..100 {
        call(&mut balance).await.unwrap();
    }
    assert_eq!(a.circuit.state(), State::Closed);
    let share = a.calls.load(SeqCst) - 2;
    assert!((20..80).contains(&share), "{share} of 100");
}

#[tokio::test(start_paused = true)]
async fn with_every_circuit_open_a_balancer_waits_for_the_first_to_admit() {
    let (mut balance, endpoints) = balance(["a", "b"]);
    endpoints[0].circuit.open_for(30 * SECOND).unwrap();
    endpoints[1].circuit.open_for(7 * SECOND).unwrap();
    let start = Instant::now();
    assert_eq!(call(&mut balance).await.unwrap(), "b");
    assert_eq!(start.elapsed(), 7 * SECOND + Duration::from_millis(10));
    // and for one that somebody closes
    endpoints[1].circuit.open_for(60 * SECOND).unwrap();
    let waits = tokio::spawn(async move { call(&mut balance).await });
    tokio::time::sleep(SECOND).await;
    assert!(!waits.is_finished());
    endpoints[0].circuit.reset();
    assert_eq!(waits.await.unwrap().unwrap(), "a");
    assert_eq!(start.elapsed(), 8 * SECOND + Duration::from_millis(20));
}

#[tokio::test(start_paused = true)]
async fn many_callers_behind_a_balancer_send_one_probe_at_the_moment_of_half_open() {
    let (balance, [a, b]) = balance(["a", "b"]);
    let balance = tower::buffer::Buffer::new(balance, 1_000);
    a.circuit.open_for(SECOND).unwrap();
    b.circuit.open_for(60 * SECOND).unwrap();
    a.is_down.store(true, SeqCst);
    let calls = (0..1_000).map(|_| tokio::spawn(balance.clone().oneshot(())));
    let calls: Vec<_> = calls.collect();
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!((a.calls.load(SeqCst), b.calls.load(SeqCst)), (1, 0), "{}", a.name);
    assert_eq!(calls.iter().filter(|call| call.is_finished()).count(), 1);
    b.circuit.reset();
    let mut answered = 0;
    for call in calls {
        answered += usize::from(call.await.unwrap().is_ok());
    }
    assert_eq!((answered, a.circuit.counts().refused), (999, 0));
}
