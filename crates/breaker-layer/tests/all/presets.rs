//! The presets: their numbers, as documented, and what they do.
#![cfg(not(failsoft_loom))]

use std::time::Duration;

use breaker_layer::engine::{Mode, Over, Probes, State};
use breaker_layer::{BreakerBuilder, BreakerLayer, presets};
use failsoft_core::{BoxError, Condition, ErrorsOnly, Health as _};
use tower::{Layer, Service, ServiceExt};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn last(span: Duration, buckets: u32) -> Over {
    Over::Time { span, buckets }
}

#[test]
fn each_has_the_numbers_of_the_table() {
    let from = |calls, rate| BreakerLayer::builder().min_calls(calls).failure_rate(rate);
    let slow = |it: BreakerBuilder, seconds: u32| it.slow_after(seconds * SECOND).slow_rate(0.5);
    let refuses =
        |it: BreakerBuilder, from: u32, to: u32| it.open_time(from * SECOND).max_open_time(to * SECOND);
    let three = Probes::Ratio { probes: 3, good: 0.85 };
    let five = Probes::Ratio { probes: 5, good: 0.8 };
    let all = |probes| Probes::Failures { probes, to_open: 1 };
    let expected = [
        (presets::hosted_model(), slow(from(10, 0.4), 4).over(Over::MINUTE).probes(three)),
        (
            presets::reasoning_model(),
            slow(from(10, 0.4), 60).over(last(5 * MINUTE, 10)).probes(all(2)).lease(3 * MINUTE),
        ),
        (presets::multimodal_model(), slow(from(10, 0.4), 10).soft_weight(0.7).lease(2 * MINUTE)),
        (presets::aggregator(), slow(from(20, 0.5), 6).over(last(2 * MINUTE, 12)).probes(five)),
        (
            presets::self_hosted_model(),
            refuses(slow(from(10, 0.4), 10), 15, 120).consecutive_failures(5).lease(2 * MINUTE),
        ),
        (presets::embedding(), refuses(slow(from(20, 0.3), 2), 15, 120).lease(15 * SECOND)),
        (presets::tool(), slow(from(5, 0.5), 10).over(last(5 * MINUTE, 10)).probes(all(1))),
        (
            presets::database(),
            refuses(slow(from(20, 0.5), 1), 5, 60)
                .over(last(10 * SECOND, 10))
                .jitter(0.2)
                .probes(five)
                .lease(10 * SECOND),
        ),
        (presets::router(), from(10, 0.3).over(last(5 * MINUTE, 30)).mode(Mode::Advisory)),
    ];
    for (preset, expected) in expected {
        assert_eq!(format!("{preset:?}"), format!("{expected:?}"));
        preset.build().unwrap();
    }
}

/// How many calls that fail at once open it, and for how long.
async fn opens_after(preset: BreakerBuilder) -> (u32, Duration) {
    let layer = preset.classify(ErrorsOnly).jitter(0.0).build().unwrap();
    let mut service =
        layer.layer(tower::service_fn(|()| async { Err::<(), _>(BoxError::from("it is down")) }));
    for calls in 1.. {
        service.ready().await.unwrap().call(()).await.unwrap_err();
        if layer.circuit().state() == State::Open {
            return (calls, layer.circuit().time_left().unwrap());
        }
    }
    unreachable!()
}

#[tokio::test(start_paused = true)]
async fn each_opens_when_everything_fails() {
    let expected = [
        (presets::hosted_model(), 10, 30),
        (presets::reasoning_model(), 10, 30),
        (presets::multimodal_model(), 10, 30),
        (presets::aggregator(), 20, 30),
        (presets::self_hosted_model(), 5, 15),
        (presets::embedding(), 20, 15),
        (presets::tool(), 5, 30),
        (presets::database(), 20, 5),
        (presets::router(), 10, 30),
    ];
    for (preset, calls, seconds) in expected {
        let told = format!("{preset:?}");
        assert_eq!(opens_after(preset).await, (calls, seconds * SECOND), "{told}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_routers_refuses_nothing_and_says_who_is_ill() {
    let layer = presets::router().classify(ErrorsOnly).build().unwrap();
    let mut service = layer.layer(tower::service_fn(|ok: bool| async move {
        if ok { Ok(()) } else { Err(BoxError::from("no")) }
    }));
    for call in 0..10 {
        // 30 % of ten, spread over more than four minutes
        let _ = service.ready().await.unwrap().call(call % 3 != 0 || call == 9).await;
        tokio::time::advance(25 * SECOND).await;
    }
    assert_eq!(layer.circuit().state(), State::Open);
    assert_eq!(layer.circuit().condition(), Condition::Poor);
    service.ready().await.unwrap().call(true).await.unwrap();
    assert_eq!(layer.circuit().counts().refused, 0);
}

#[tokio::test(start_paused = true)]
async fn a_thinking_model_is_not_slow_and_a_hosted_one_that_takes_as_long_is() {
    for (preset, state) in
        [(presets::reasoning_model(), State::Closed), (presets::hosted_model(), State::Open)]
    {
        let layer = preset.classify(ErrorsOnly).build().unwrap();
        let service = layer.layer(tower::service_fn(|()| async {
            tokio::time::sleep(45 * SECOND).await;
            Ok::<_, BoxError>(())
        }));
        // side by side, as callers do
        let calls = (0..10).map(|_| service.clone().oneshot(()));
        for call in calls.map(tokio::spawn).collect::<Vec<_>>() {
            call.await.unwrap().unwrap();
        }
        assert_eq!(layer.circuit().state(), state);
    }
}
