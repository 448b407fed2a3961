//! Limits of time, all in paused time.

use std::time::Duration;

use crate::support::{Does, Target, fault, traced};
use failsoft_core::{Blame, BoxError, Call, Class, ErrorsOnly, Limit};
use fallback_layer::{Builder, FallbackLayer, Route};
use tokio::time::Instant;
use tower::{Layer, ServiceExt};

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn layer(others: &[Target]) -> Builder<Target, ErrorsOnly> {
    others.iter().fold(FallbackLayer::builder().classify(ErrorsOnly).name("a"), |layer, target| {
        layer.route(Route::new(target.name, target.clone()))
    })
}

async fn ask(layer: Builder<Target, ErrorsOnly>, first: Does) -> Result<&'static str, BoxError> {
    layer.build().unwrap().layer(Target::new("a", first)).oneshot(1_u8).await
}

#[tokio::test(start_paused = true)]
async fn no_route_gets_more_than_half_of_what_is_left_but_the_last_gets_all() {
    let hang = ["b", "c"].map(|name| Target::new(name, Does::Hang));
    let start = Instant::now();
    let call = Call::begin();
    let err = call.scope(ask(layer(&hang), Does::Hang)).await.unwrap_err();
    assert_eq!(start.elapsed().as_secs(), 60);
    let took: Vec<_> = call.trail().attempts().iter().map(|a| a.took.unwrap().as_secs()).collect();
    assert_eq!(took, [30, 15, 15]);
    let all = fault(&err);
    assert_eq!(
        (all.class(), all.target(), all.status_code()),
        (Class::Timeout(Limit::Total), Some("a"), 504)
    );
    assert_eq!(all.verdict().blame(), Blame::Target);
}

#[tokio::test(start_paused = true)]
async fn a_slow_route_is_left_for_the_next_and_the_last_may_take_its_time() {
    let b = [Target::new("b", Does::AnswerAfter(secs(25)))];
    assert_eq!(ask(layer(&b), Does::Hang).await.unwrap(), "b");
    assert_eq!(ask(layer(&b).timeout(secs(20)), Does::Answer).await.unwrap(), "a");
    let err = ask(layer(&b).timeout(secs(20)), Does::Hang).await.unwrap_err();
    assert_eq!(fault(&err).class(), Class::Timeout(Limit::Total));
}

#[tokio::test(start_paused = true)]
async fn a_route_that_is_never_ready_is_left_after_a_bound() {
    let b = [Target::new("b", Does::Answer)];
    let start = Instant::now();
    let (answer, trail) = traced(ask(layer(&b), Does::NeverReady)).await;
    assert_eq!(answer.unwrap(), "b");
    assert_eq!(trail, "a overloaded (next_route) > b success (answered)");
    assert_eq!(start.elapsed().as_secs(), 5);
    // The last route is waited for as long as there is time.
    let start = Instant::now();
    let never = [Target::new("b", Does::NeverReady)];
    let err = ask(layer(&never), Does::Fail(Class::Transient)).await.unwrap_err();
    assert_eq!(start.elapsed().as_secs(), 60);
    assert_eq!((fault(&err).class(), fault(&err).target()), (Class::Transient, Some("a")));
}

#[tokio::test(start_paused = true)]
async fn a_readiness_bound_and_a_limit_of_the_answer_do_not_add_up() {
    let b = [Target::new("b", Does::Answer)];
    let start = Instant::now();
    assert_eq!(ask(layer(&b).timeout(secs(4)).ready_within(secs(9)), Does::NeverReady).await.unwrap(), "b");
    assert_eq!(start.elapsed().as_secs(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_nearer_deadline_of_the_caller_wins_and_the_caller_is_to_blame() {
    let hang = [Target::new("b", Does::Hang)];
    let call = Call::options().timeout(secs(8)).begin();
    let start = Instant::now();
    let err = call.scope(ask(layer(&hang), Does::Hang)).await.unwrap_err();
    assert_eq!(start.elapsed().as_secs(), 8);
    assert_eq!(fault(&err).verdict().blame(), Blame::Caller);
    assert_eq!(call.trail().to_string(), "a timeout.total (next_route) > b timeout.total (no_route_left)");
}

#[tokio::test(start_paused = true)]
async fn after_the_deadline_no_further_route_is_begun() {
    let b = [Target::new("b", Does::Answer)];
    let call = Call::options().timeout(secs(8)).begin();
    // Past it is only a route that was not cut off in time: both are over when the task runs again.
    let service =
        layer(&b).build().unwrap().layer(Target::new("a", Does::FailAfter(secs(7), Class::Transient)));
    let mut future = tokio_test::task::spawn(call.scope(service.oneshot(1_u8)));
    assert!(future.poll().is_pending());
    tokio::time::advance(secs(9)).await;
    let std::task::Poll::Ready(answer) = future.poll() else { panic!("both are over") };
    assert_eq!(fault(&answer.unwrap_err()).target(), Some("a"));
    assert_eq!(call.trail().to_string(), "a transient (deadline_near)");
    assert_eq!(b[0].calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_route_further_on_sees_its_limit_as_its_deadline() {
    let seen = tower::service_fn(|_: u8| async {
        let left = Call::current_deadline().unwrap() - Instant::now();
        Ok::<_, BoxError>(left.as_secs())
    });
    let first = tower::service_fn(|_: u8| async { Err::<u64, BoxError>("no".into()) });
    let layer = FallbackLayer::builder()
        .classify(ErrorsOnly)
        .route(Route::new("b", seen))
        .route(Route::new("c", seen))
        .build()
        .unwrap();
    assert_eq!(layer.layer(first).oneshot(1).await.unwrap(), 30);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_too_long_to_represent_is_none() {
    let b = [Target::new("b", Does::Answer)];
    let slow = Does::FailAfter(secs(100_000), Class::Transient);
    let layer = layer(&b).timeout(Duration::MAX).ready_within(Duration::MAX);
    assert_eq!(ask(layer, slow).await.unwrap(), "b");
}
