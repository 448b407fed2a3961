//! The next route beside one that is slow, all in paused time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use crate::support::{Does, Fit, Target, fault, traced};
use failsoft_core::{BoxError, Call, Class, ErrorsOnly, Mark, Once, Usage};
use fallback_layer::{Builder, FallbackLayer, Order, Route};
use tokio::time::Instant;
use tower::{Layer, ServiceExt, limit::ConcurrencyLimit, service_fn};

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn targets(a: Does, b: Does, c: Does) -> [Target; 3] {
    [Target::new("a", a), Target::new("b", b), Target::new("c", c)]
}

fn layer([_, b, c]: &[Target; 3]) -> Builder<Target, ErrorsOnly> {
    FallbackLayer::builder()
        .classify(ErrorsOnly)
        .name("a")
        .route(Route::new("b", b.clone()))
        .route(Route::new("c", c.clone()))
        .slow_start(secs(4))
}

/// The answer or the class of the failure, the trail, and how many seconds it took.
async fn ask(
    layer: Builder<Target, ErrorsOnly>,
    targets: &[Target; 3],
) -> (Result<&'static str, Class>, String, u64) {
    let start = Instant::now();
    let (answer, trail) = traced(layer.build().unwrap().layer(targets[0].clone()).oneshot(1_u8)).await;
    (answer.map_err(|err| fault(&err).class()), trail, start.elapsed().as_secs())
}

fn calls(targets: &[Target]) -> Vec<u32> {
    targets.iter().map(Target::calls).collect()
}

#[tokio::test(start_paused = true)]
async fn a_route_without_content_after_the_threshold_gets_another_one_beside_it() {
    let hang = targets(Does::Hang, Does::AnswerAfter(secs(1)), Does::Answer);
    let told = "a cancelled (overtaken) > b success (answered)".to_owned();
    assert_eq!(ask(layer(&hang), &hang).await, (Ok("b"), told, 5));
    assert_eq!(calls(&hang), [1, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn one_that_answers_before_stays_alone() {
    let quick = targets(Does::AnswerAfter(secs(3)), Does::Answer, Does::Answer);
    assert_eq!(ask(layer(&quick), &quick).await, (Ok("a"), "a success (answered)".to_owned(), 3));
    assert_eq!(calls(&quick), [1, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn the_slow_one_may_still_answer_first_and_the_other_is_dropped() {
    let a = Target::new("a", Does::AnswerAfter(secs(5)));
    let b = ConcurrencyLimit::new(Target::new("b", Does::Hang), 1);
    let layer = FallbackLayer::builder()
        .classify(ErrorsOnly)
        .name("a")
        .route(Route::new("b", b.clone()))
        .slow_start(secs(4))
        .build()
        .unwrap();
    let (answer, trail) = traced(layer.layer(ConcurrencyLimit::new(a, 1)).oneshot(1_u8)).await;
    assert_eq!(answer.unwrap(), "a");
    assert_eq!(trail, "b cancelled (overtaken) > a success (answered)");
    let mut again = b;
    let ready = std::future::poll_fn(|cx| tower::Service::<u8>::poll_ready(&mut again, cx));
    tokio::time::timeout(Duration::from_millis(1), ready).await.expect("its permit is back").unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_cold_route_has_twice_the_time_and_is_marked() {
    let cold = Arc::new(AtomicU32::new(0));
    let hang = |waits: u64| {
        let cold = Arc::clone(&cold);
        service_fn(move |_: u8| {
            cold.fetch_add(u32::from(Call::is_marked(Mark::Cold)), Ordering::Relaxed);
            async move {
                tokio::time::sleep(secs(waits)).await;
                Ok::<_, BoxError>(waits)
            }
        })
    };
    let layer = FallbackLayer::builder()
        .classify(ErrorsOnly)
        .route(Route::new("b", hang(40)))
        .route(Route::new("c", hang(1)))
        .slow_start(secs(4))
        .build()
        .unwrap();
    let start = Instant::now();
    assert_eq!(layer.layer(hang(30)).oneshot(1).await.unwrap(), 1);
    assert_eq!(start.elapsed().as_secs(), 4 + 8 + 1);
    assert_eq!(cold.load(Ordering::Relaxed), 2, "both but the first");
}

#[tokio::test(start_paused = true)]
async fn a_failure_while_its_successor_runs_starts_none_and_one_of_the_youngest_starts_the_next_at_once() {
    let first_fails =
        targets(Does::FailAfter(secs(5), Class::Transient), Does::AnswerAfter(secs(3)), Does::Answer);
    let (answer, trail, took) = ask(layer(&first_fails), &first_fails).await;
    assert_eq!((answer, took), (Ok("b"), 7));
    assert_eq!(trail, "a transient (next_route) > b success (answered)");
    assert_eq!(calls(&first_fails), [1, 1, 0]);

    let second_fails = targets(Does::Hang, Does::Fail(Class::Overloaded), Does::AnswerAfter(secs(1)));
    let (answer, trail, took) = ask(layer(&second_fails), &second_fails).await;
    assert_eq!((answer, took), (Ok("c"), 5));
    assert_eq!(trail, "b overloaded (next_route) > a cancelled (overtaken) > c success (answered)");
}

#[tokio::test(start_paused = true)]
async fn when_the_one_beside_fails_and_no_other_is_left_the_slow_one_goes_on() {
    let late = targets(
        Does::AnswerAfter(secs(9)),
        Does::Fail(Class::Transient),
        Does::FailAfter(secs(1), Class::Transient),
    );
    let (answer, trail, took) = ask(layer(&late), &late).await;
    assert_eq!((answer, took), (Ok("a"), 9));
    assert_eq!(trail, "b transient (next_route) > c transient (no_route_left) > a success (answered)");
}

#[tokio::test(start_paused = true)]
async fn all_may_fail_and_every_error_is_told() {
    let fail = targets(
        Does::FailAfter(secs(9), Class::Overloaded),
        Does::FailAfter(secs(2), Class::Transient),
        Does::FailAfter(secs(1), Class::Quota),
    );
    let (answer, trail, took) = ask(layer(&fail), &fail).await;
    assert_eq!((answer, took), (Err(Class::Transient), 9), "the first that failed decides");
    assert_eq!(trail, "b transient (next_route) > c quota (no_route_left) > a overloaded (no_route_left)");
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_the_request_itself_ends_all() {
    let invalid = targets(Does::Hang, Does::Fail(Class::Invalid), Does::Answer);
    let (answer, trail, took) = ask(layer(&invalid), &invalid).await;
    assert_eq!((answer, took), (Err(Class::Invalid), 4));
    assert_eq!(trail, "a cancelled (overtaken) > b invalid (final)");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_started_that_is_poor_that_the_cap_forbids_or_that_cannot_be_sent_twice() {
    let late = || targets(Does::AnswerAfter(secs(9)), Does::Answer, Does::Answer);
    // Poor routes are no help against a slow one.
    let poor = late();
    let with = FallbackLayer::builder()
        .classify(ErrorsOnly)
        .name("a")
        .route(Route::new("b", poor[1].clone()).health(Fit::poor(9)))
        .slow_start(secs(4));
    assert_eq!(ask(with, &poor).await, (Ok("a"), "a success (answered)".to_owned(), 9));
    assert_eq!(calls(&poor), [1, 0, 0]);

    let capped = late();
    let call = Call::options().max_attempts(1).begin();
    let service = layer(&capped).build().unwrap().layer(capped[0].clone());
    assert_eq!(call.scope(service.oneshot(1_u8)).await.unwrap(), "a");
    assert_eq!(calls(&capped), [1, 0, 0]);

    let once = late();
    let service = layer(&once).replay(Once).build().unwrap().layer(once[0].clone());
    assert_eq!(service.oneshot(1_u8).await.unwrap(), "a");
    assert_eq!(calls(&once), [1, 0, 0]);

    let two = targets(Does::AnswerAfter(secs(20)), Does::Hang, Does::Answer);
    assert_eq!(ask(layer(&two).max_routes(2), &two).await.0, Ok("a"));
    assert_eq!(calls(&two), [1, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn what_the_one_that_was_dropped_has_used_is_counted() {
    // Holds a slot as a reader of an answer does: what is known when it drops counts.
    let route = |tokens: u64, waits: u64| {
        service_fn(move |_: u8| {
            let mut slot = Call::slot().unwrap();
            slot.set(&Usage { output: Some(tokens), ..Usage::default() });
            async move {
                tokio::time::sleep(secs(waits)).await;
                drop(slot);
                Ok::<_, BoxError>(tokens)
            }
        })
    };
    let layer = FallbackLayer::builder()
        .classify(ErrorsOnly)
        .route(Route::new("b", route(5, 9)))
        .route(Route::new("c", route(40, 1)))
        .slow_start(secs(4))
        .build()
        .unwrap();
    let call = Call::begin();
    assert_eq!(call.scope(layer.layer(route(300, 99)).oneshot(1)).await.unwrap(), 5);
    assert_eq!(call.usage().output, Some(345));
    let used: Vec<_> =
        call.trail().attempts().iter().map(|a| a.usage.and_then(|usage| usage.output)).collect();
    // The first one's is the call's own.
    assert_eq!(used, [None, Some(40), Some(5)]);
}

#[tokio::test(start_paused = true)]
async fn dropped_anywhere_in_a_race_everything_is_given_back() {
    for polls in 0..10 {
        let limited = |name, does| ConcurrencyLimit::new(Target::new(name, does), 1);
        let routes = [
            limited("a", Does::Hang),
            limited("b", Does::FailAfter(secs(2), Class::Transient)),
            limited("c", Does::AnswerAfter(secs(2))),
        ];
        let layer = FallbackLayer::builder()
            .classify(ErrorsOnly)
            .route(Route::new("b", routes[1].clone()))
            .route(Route::new("c", routes[2].clone()))
            .slow_start(secs(1))
            .build()
            .unwrap();
        let mut future = tokio_test::task::spawn(layer.layer(routes[0].clone()).oneshot(1_u8));
        for _ in 0..polls {
            if future.poll().is_ready() {
                break;
            }
            tokio::time::advance(Duration::from_millis(600)).await;
        }
        drop(future);
        for mut limit in routes {
            let ready = std::future::poll_fn(|cx| tower::Service::<u8>::poll_ready(&mut limit, cx));
            tokio::time::timeout(Duration::from_millis(1), ready).await.expect("given back").unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_was_overtaken_counts_as_slow_as_it_was() {
    let targets =
        targets(Does::AnswerAfter(secs(30)), Does::AnswerAfter(secs(1)), Does::AnswerAfter(secs(1)));
    let layer = layer(&targets).order(Order::LeastLatency).build().unwrap();
    let mut service = layer.layer(targets[0].clone());
    for _ in 0..4 {
        tower::Service::call(&mut service, 1_u8).await.unwrap();
    }
    assert_eq!(targets[0].calls(), 1, "asked once, to find out");
}

#[test]
fn a_threshold_that_has_no_meaning_is_refused() {
    for after in [Duration::ZERO, secs(60)] {
        let builder = FallbackLayer::builder().route(Route::new("b", ())).slow_start(after);
        assert_eq!(builder.build().unwrap_err().field(), "slow_start");
    }
}
