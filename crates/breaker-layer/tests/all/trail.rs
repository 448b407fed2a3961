//! The trail of a call says which of its outcomes opened a circuit.
#![cfg(not(failsoft_loom))]

use std::time::Duration;

use breaker_layer::engine::{Over, Probes, Reason, State};
use breaker_layer::{BreakerBuilder, BreakerLayer};
use failsoft_core::{BoxError, Call, Class, ErrorsOnly, Verdict};
use tower::{Layer, ServiceExt};

const SECOND: Duration = Duration::from_secs(1);

/// Opens at the first failure, for 1 s; one probe decides; lease 10 s.
fn touchy() -> BreakerBuilder<ErrorsOnly> {
    BreakerLayer::builder()
        .classify(ErrorsOnly)
        .over(Over::Calls(10))
        .failures(1)
        .open_time(SECOND)
        .lease(10 * SECOND)
        .probes(Probes::Failures { probes: 1, to_open: 1 })
}

#[tokio::test(start_paused = true)]
async fn the_trail_says_which_outcome_opened_a_circuit() {
    let layer = touchy().build().unwrap();
    let service = layer.layer(tower::service_fn(|()| async { Err::<(), _>(BoxError::from("no")) }));
    let call = Call::begin();
    call.scope(async {
        service.oneshot(()).await.unwrap_err();
        Call::record(failsoft_core::Attempt::new("retry-layer", Verdict::of(Class::Unknown)));
    })
    .await;
    assert!(call.trail().attempts()[0].opened);
}

#[tokio::test(start_paused = true)]
async fn the_trail_says_so_too_if_the_outcome_was_that_the_call_was_dropped() {
    let layer = touchy().failures(None).slow_after(4 * SECOND).slow_rate(0.5).min_calls(1).build().unwrap();
    let hung = layer.layer(tower::service_fn(|()| std::future::pending::<Result<(), BoxError>>()));
    let call = Call::begin();
    call.scope(async {
        tokio::time::timeout(5 * SECOND, hung.oneshot(())).await.unwrap_err();
        Call::record(failsoft_core::Attempt::new("retry-layer", Verdict::CANCELLED));
    })
    .await;
    assert_eq!(layer.circuit().state(), State::Open);
    assert!(call.trail().attempts()[0].opened);
}

#[tokio::test(start_paused = true)]
async fn the_trail_blames_no_outcome_for_a_lease_that_had_ended() {
    let layer = touchy().build().unwrap();
    layer.circuit().half_open().unwrap();
    let slow = layer.layer(tower::service_fn(|()| async {
        tokio::time::sleep(20 * SECOND).await;
        Ok::<_, BoxError>(())
    }));
    let call = Call::begin();
    call.scope(async {
        slow.oneshot(()).await.unwrap();
        Call::record(failsoft_core::Attempt::new("retry-layer", Verdict::SUCCESS));
    })
    .await;
    assert_eq!(layer.circuit().snapshot().reason, Some(Reason::LeaseEnded));
    assert!(!call.trail().attempts()[0].opened);
}
