//! Which of equally fit routes is asked, and what happens when none is fit.

use std::{sync::Arc, time::Duration};

use crate::support::{Does, Fit, Target, fault, traced};
use failsoft_core::{BoxError, Call, Class, Condition, Denier, ErrorsOnly, Mark};
use fallback_layer::{Builder, FallbackLayer, Order, Route, Row, To, WhenAllPoor};
use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn three(targets: &[Target; 3]) -> Builder<Target, ErrorsOnly> {
    FallbackLayer::builder()
        .classify(ErrorsOnly)
        .first(Route::first("a").weight(2))
        .route(Route::new("b", targets[1].clone()).weight(1))
        .route(Route::new("c", targets[2].clone()).weight(0))
}

fn targets(does: [Does; 3]) -> [Target; 3] {
    let [a, b, c] = does;
    [Target::new("a", a), Target::new("b", b), Target::new("c", c)]
}

macro_rules! ask {
    ($service:expr, $request:expr, $times:expr) => {{
        let mut answers = String::new();
        for _ in 0..$times {
            answers.push_str($service.clone().oneshot($request).await.unwrap());
        }
        answers
    }};
}

#[tokio::test]
async fn calls_are_spread_by_weight_and_a_failed_one_goes_on() {
    let targets = targets([Does::Answer; 3]);
    let service = three(&targets).order(Order::Weighted).build().unwrap().layer(targets[0].clone());
    assert_eq!(ask!(service, 1_u8, 6), "abaaba");
    targets[0].now(Does::Fail(Class::Transient));
    assert_eq!(ask!(service, 1_u8, 3), "bbb");
    targets[1].now(Does::Fail(Class::Transient));
    // All three are asked, the one of no weight at last; and a share that is not taken first is no skip.
    let (answer, trail) = traced(service.oneshot(1_u8)).await;
    assert_eq!(answer.unwrap(), "c");
    assert!(trail.ends_with("c success (answered)") && !trail.contains("skipped"), "{trail}");
}

#[tokio::test]
async fn health_comes_before_weight() {
    let targets = targets([Does::Answer; 3]);
    let fit = Fit::poor(9);
    let layer = three(&targets).health(fit.clone()).order(Order::Weighted).build().unwrap();
    let service = layer.layer(targets[0].clone());
    assert_eq!(ask!(service, 1_u8, 3), "bbb");
    fit.now(Condition::Good);
    assert!(ask!(service, 1_u8, 3).contains('a'));
}

#[tokio::test(start_paused = true)]
async fn the_quickest_route_is_first_once_each_was_asked_and_failing_at_once_is_not_quick() {
    let after = |millis| Does::AnswerAfter(Duration::from_millis(millis));
    let targets = targets([after(300), after(100), after(200)]);
    let service = three(&targets).order(Order::LeastLatency).build().unwrap().layer(targets[0].clone());
    assert_eq!(ask!(service, 1_u8, 5), "abcbb");
    targets[1].now(Does::Fail(Class::Transient));
    assert_eq!(ask!(service, 1_u8, 3), "ccc");
    assert_eq!(targets[1].calls(), 4, "it failed once and was left alone");
}

#[tokio::test]
async fn what_the_request_itself_is_to_blame_for_does_not_speak_against_a_route() {
    let targets = targets([Does::Answer; 3]);
    let service = three(&targets).promote_last_good(true).build().unwrap().layer(targets[0].clone());
    targets[0].now(Does::Fail(Class::Transient));
    assert_eq!(ask!(service, 1_u8, 1), "b");
    targets[1].now(Does::Fail(Class::Invalid));
    service.clone().oneshot(1_u8).await.unwrap_err();
    targets[1].now(Does::Answer);
    assert_eq!(ask!(service, 1_u8, 1), "b");
    assert_eq!(targets[0].calls(), 1);
}

#[tokio::test]
async fn the_route_that_answered_last_is_asked_first_until_it_fails() {
    let targets = targets([Does::Fail(Class::Transient), Does::Answer, Does::Answer]);
    let service = three(&targets).promote_last_good(true).build().unwrap().layer(targets[0].clone());
    assert_eq!(ask!(service, 1_u8, 4), "bbbb");
    assert_eq!(targets[0].calls(), 1);
    targets[1].now(Does::Fail(Class::Overloaded));
    targets[0].now(Does::Answer);
    assert_eq!(ask!(service, 1_u8, 2), "aa");
}

#[tokio::test]
async fn a_conversation_stays_with_its_route_until_that_fails() {
    let targets = targets([Does::Answer; 3]);
    let layer = three(&targets).order(Order::Weighted).sticky(|id: &u8| (*id != 0).then_some(*id));
    let service = layer.build().unwrap().layer(targets[0].clone());
    assert_eq!((ask!(service, 1_u8, 1), ask!(service, 2_u8, 1)), ("a".to_owned(), "b".to_owned()));
    assert_eq!((ask!(service, 1_u8, 3), ask!(service, 2_u8, 3)), ("aaa".to_owned(), "bbb".to_owned()));
    // Those without a key are spread.
    assert!(ask!(service, 0_u8, 3).contains('b'));
    targets[1].now(Does::Fail(Class::Transient));
    assert_eq!(ask!(service, 2_u8, 1), "a");
    targets[1].now(Does::Answer);
    assert_eq!(ask!(service, 2_u8, 3), "aaa", "it stays where it went");
}

#[tokio::test]
async fn in_another_order_only_a_route_that_follows_a_failure_is_cold() {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let route = |fails: bool| {
        let seen = Arc::clone(&seen);
        service_fn(move |_: u64| {
            seen.lock().unwrap().push(Call::is_marked(Mark::Cold));
            std::future::ready(if fails { Err(BoxError::from("down")) } else { Ok(1_u64) })
        })
    };
    let layer = FallbackLayer::builder()
        .classify(ErrorsOnly)
        .first(Route::first("a").weight(0))
        .route(Route::new("b", route(false)))
        .order(Order::Weighted)
        .build()
        .unwrap();
    layer.layer(route(true)).oneshot(1).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [false]);
}

#[tokio::test(start_paused = true)]
async fn when_all_are_poor_a_call_may_wait_for_the_first_that_recovers() {
    let targets = targets([Does::Answer; 3]);
    let (slow, soon) = (Fit::poor(20), Fit::poor(4));
    let layer = FallbackLayer::builder()
        .classify(ErrorsOnly)
        .name("a")
        .health(slow)
        .route(Route::new("b", targets[1].clone()).health(soon.clone()))
        .when_all_poor(WhenAllPoor::Wait)
        .build()
        .unwrap();
    let service = layer.layer(targets[0].clone());
    let start = Instant::now();
    let call = tokio::spawn(service.clone().oneshot(1_u8));
    tokio::time::sleep(secs(3)).await;
    assert_eq!(targets[1].calls(), 0);
    soon.now(Condition::Degraded);
    assert_eq!(call.await.unwrap().unwrap(), "b");
    assert_eq!(start.elapsed(), secs(4));
    assert_eq!(*targets[1].last_resort.lock().unwrap(), [false]);

    // One that is in poor health still is a last resort.
    soon.now(Condition::Poor);
    assert_eq!(service.clone().oneshot(1_u8).await.unwrap(), "b");
    assert_eq!(*targets[1].last_resort.lock().unwrap(), [false, true]);

    // What fails while it waits in the middle of a cascade waits for the other one.
    targets[1].now(Does::Fail(Class::Transient));
    let start = Instant::now();
    assert_eq!(service.clone().oneshot(1_u8).await.unwrap(), "a");
    assert_eq!(start.elapsed(), secs(24));

    // Beyond the caller's deadline nobody waits, and the answer says when to come back.
    let start = Instant::now();
    let call = Call::options().deadline(start + secs(3)).begin();
    let err = call.scope(service.oneshot(1_u8)).await.unwrap_err();
    assert_eq!(fault(&err).class(), Class::Denied(Denier::Circuit));
    assert_eq!((fault(&err).verdict().retry_after(), start.elapsed()), (Some(secs(4)), secs(0)));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_while_it_waits_asks_nobody() {
    let targets = targets([Does::Answer; 3]);
    let layer = FallbackLayer::builder()
        .classify(ErrorsOnly)
        .health(Fit::poor(5))
        .route(Route::new("b", targets[1].clone()).health(Fit::poor(5)))
        .when_all_poor(WhenAllPoor::Wait)
        .build()
        .unwrap();
    let call = layer.layer(targets[0].clone()).oneshot(1_u8);
    tokio::time::timeout(secs(4), call).await.unwrap_err();
    tokio::time::sleep(secs(9)).await;
    assert_eq!((targets[0].calls(), targets[1].calls()), (0, 0));
}

#[tokio::test]
async fn a_refusal_goes_to_routes_that_handle_them_and_a_row_may_ask_for_another_provider() {
    let targets = targets([Does::Fail(Class::Refused), Does::Answer, Does::Answer]);
    let layer = || {
        FallbackLayer::builder()
            .classify(ErrorsOnly)
            .first(Route::first("a").provider("one"))
            .route(Route::new("b", targets[1].clone()).provider("one"))
            .route(Route::new("c", targets[2].clone()).provider("two").handles_refusals())
    };
    for to in [To::HandlesRefusals, To::OtherProvider] {
        let layer = layer().next(Row::Refused, to).build().unwrap();
        assert_eq!(layer.layer(targets[0].clone()).oneshot(1_u8).await.unwrap(), "c");
    }
    assert_eq!(targets[1].calls(), 0);
}
