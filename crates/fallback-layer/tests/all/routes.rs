//! Which route is taken, and what the caller gets.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use crate::support::{Does, Fit, Target, fault, traced};
use failsoft_core::{
    BoxError, Call, Class, Cloned, Condition, Denier, ErrorsOnly, Mark, Once, SoftKind, StandIn, Verdict,
    classify_fn,
};
use fallback_layer::{
    Affinity, BoxRoute, Builder, FallbackLayer, Order, Return, Route, Row, To, WhenAllPoor,
    last_good::NoLastGood,
};
use tower::{Layer, Service, ServiceExt, service_fn};

fn builder() -> Builder<Target, ErrorsOnly> {
    FallbackLayer::builder().classify(ErrorsOnly).name("a")
}

async fn ask(layer: Builder<Target, ErrorsOnly>, first: &Target) -> Result<&'static str, BoxError> {
    layer.build().unwrap().layer(first.clone()).oneshot(1_u8).await
}

fn targets(a: Does, b: Does, c: Does) -> [Target; 3] {
    [Target::new("a", a), Target::new("b", b), Target::new("c", c)]
}

fn three(targets: &[Target; 3]) -> Builder<Target, ErrorsOnly> {
    builder().route(Route::new("b", targets[1].clone())).route(Route::new("c", targets[2].clone()))
}

fn calls(targets: &[Target]) -> Vec<u32> {
    targets.iter().map(Target::calls).collect()
}

#[tokio::test]
async fn the_first_route_answers_and_no_other_is_asked() {
    let targets = targets(Does::Answer, Does::Answer, Does::Answer);
    let (answer, trail) = traced(ask(three(&targets), &targets[0])).await;
    assert_eq!((answer.unwrap(), trail.as_str()), ("a", "a success (answered)"));
    assert_eq!(calls(&targets), [1, 0, 0]);
}

// G48
#[tokio::test]
async fn a_configured_fallback_is_applied_and_the_trail_says_how() {
    let targets = targets(Does::Fail(Class::Transient), Does::Fail(Class::Overloaded), Does::Answer);
    let (answer, trail) = traced(ask(three(&targets), &targets[0])).await;
    assert_eq!(answer.unwrap(), "c");
    assert_eq!(trail, "a transient (next_route) > b overloaded (next_route) > c success (answered)");
}

#[tokio::test]
async fn a_route_that_cannot_become_ready_is_left_for_the_next() {
    let targets = targets(Does::FailReady, Does::Answer, Does::Answer);
    assert_eq!(ask(three(&targets), &targets[0]).await.unwrap(), "b");
}

#[tokio::test]
async fn each_class_goes_on_or_stops_as_the_table_says() {
    let goes_on = [
        (Class::Transient, true),
        (Class::Overloaded, true),
        (Class::RateLimited, true),
        (Class::Quota, true),
        (Class::Auth, true),
        (Class::ModelNotFound, true),
        (Class::ContextLength, false),
        (Class::Refused, false),
        (Class::Invalid, false),
        (Class::Soft(SoftKind::Malformed), true),
        (Class::Unknown, true),
        (Class::Cancelled, false),
        (Class::Denied(Denier::Circuit), true),
        (Class::Denied(Denier::Budget), false),
        (Class::Denied(Denier::Quarantine), false),
    ];
    for (class, expected) in goes_on {
        let targets = targets(Does::Fail(class), Does::Answer, Does::Answer);
        let answer = ask(three(&targets), &targets[0]).await;
        assert_eq!(answer.is_ok(), expected, "{class}");
        if let Err(err) = answer {
            // The one failure is passed on unwrapped.
            assert_eq!((fault(&err).layer(), fault(&err).class()), ("test", class));
        }
    }
}

#[tokio::test]
async fn each_row_can_be_changed() {
    let targets = targets(Does::Fail(Class::Refused), Does::Fail(Class::Transient), Does::Answer);
    let layer = || three(&targets).next(Row::Refused, To::Any);
    assert_eq!(ask(layer(), &targets[0]).await.unwrap(), "c");
    let stopped = ask(layer().next(Row::Transient, To::Nowhere), &targets[0]).await.unwrap_err();
    assert_eq!(fault(&stopped).class(), Class::Refused);
}

#[tokio::test]
async fn a_used_up_quota_goes_to_another_credential_only() {
    let targets = targets(Does::Fail(Class::Quota), Does::Answer, Does::Answer);
    let layer = builder()
        .first(Route::first("a").credential("team"))
        .route(Route::new("b", targets[1].clone()).credential("team"))
        .route(Route::new("c", targets[2].clone()));
    assert_eq!(ask(layer, &targets[0]).await.unwrap(), "c");
    assert_eq!(targets[1].calls(), 0);
}

// G45
#[tokio::test]
async fn a_prompt_too_long_goes_to_a_larger_window_only() {
    let targets = targets(Does::Fail(Class::ContextLength), Does::Answer, Does::Answer);
    let layer = builder()
        .first(Route::first("a").window(128_000))
        .route(Route::new("b", targets[1].clone()).window(32_000))
        .route(Route::new("c", targets[2].clone()).window(1_000_000));
    assert_eq!(ask(layer, &targets[0]).await.unwrap(), "c");
}

// G45
#[tokio::test]
async fn a_route_whose_window_is_smaller_than_the_estimate_is_skipped_and_hides_nothing() {
    let targets =
        targets(Does::Fail(Class::Overloaded), Does::Fail(Class::Invalid), Does::Fail(Class::Transient));
    let layer = |windows: [u32; 3]| {
        builder()
            .first(Route::first("a").window(windows[0]))
            .route(Route::new("b", targets[1].clone()).window(windows[1]))
            .route(Route::new("c", targets[2].clone()).window(windows[2]))
            .estimate(|_: &u8| Some(10_000))
            .build()
            .unwrap()
            .layer(targets[0].clone())
    };
    let (answer, trail) = traced(layer([128_000, 8_000, 0]).oneshot(1_u8)).await;
    assert_eq!(trail, "b context_length (skipped) > a overloaded (next_route) > c transient (no_route_left)");
    let err = answer.unwrap_err();
    let all = fault(&err);
    assert_eq!((all.class(), all.target(), targets[1].calls()), (Class::Overloaded, Some("a"), 0));
    let source = std::error::Error::source(all).unwrap();
    assert_eq!(failsoft_core::Fault::find(source).unwrap().target(), Some("c"), "and the last error");

    // The first one may be too small, too.
    let (_, trail) = traced(layer([4_000, 32_000, 8_000]).oneshot(1_u8)).await;
    assert_eq!(trail, "a context_length (skipped) > c context_length (skipped) > b invalid (final)");
    // It is an estimate: where none has room, the largest is asked.
    let (_, trail) = traced(layer([4_000, 9_000, 8_000]).oneshot(1_u8)).await;
    assert_eq!(trail, "a context_length (skipped) > c context_length (skipped) > b invalid (final)");
}

#[tokio::test]
async fn a_budgets_denial_goes_to_free_routes_only_and_a_free_only_call_begins_there() {
    let targets = targets(Does::Fail(Class::Denied(Denier::Budget)), Does::Answer, Does::Answer);
    let layer = || {
        builder().route(Route::new("b", targets[1].clone())).route(Route::new("c", targets[2].clone()).free())
    };
    assert_eq!(ask(layer(), &targets[0]).await.unwrap(), "c");
    let call = Call::options().mark(Mark::FreeOnly).begin();
    assert_eq!(call.scope(ask(layer(), &targets[0])).await.unwrap(), "c");
    assert_eq!(calls(&targets), [1, 0, 2]);

    let call = Call::options().mark(Mark::FreeOnly).begin();
    let err = call.scope(ask(three(&targets), &targets[0])).await.unwrap_err();
    assert_eq!(fault(&err).class(), Class::Denied(Denier::Budget));
}

// G43
#[tokio::test]
async fn zero_further_routes_means_the_first_route_only() {
    for none in [0, 1] {
        let targets = targets(Does::Fail(Class::Transient), Does::Answer, Does::Answer);
        let layer = three(&targets).max_routes(none).health(Fit::poor(5));
        assert!(ask(layer, &targets[0]).await.is_err());
        assert_eq!(calls(&targets), [1, 0, 0]);
    }
}

#[tokio::test]
async fn at_most_three_routes_are_asked_by_default() {
    let names = ["b", "c", "d", "e"];
    let layer = names.iter().fold(builder(), |layer, name| {
        layer.route(Route::new(*name, Target::new(name, Does::Fail(Class::Transient))))
    });
    let (answer, trail) = traced(ask(layer, &Target::new("a", Does::Fail(Class::Transient)))).await;
    assert!(answer.is_err());
    assert_eq!(trail, "a transient (next_route) > b transient (next_route) > c transient (attempts_spent)");
}

#[tokio::test]
async fn a_cap_on_attempts_stops_the_cascade_and_the_trail_says_so() {
    let targets = targets(Does::Fail(Class::Transient), Does::Fail(Class::Transient), Does::Answer);
    let call = Call::options().max_attempts(2).begin();
    let err = call.scope(ask(three(&targets), &targets[0])).await.unwrap_err();
    assert_eq!(calls(&targets), [1, 1, 0]);
    assert_eq!(call.trail().to_string(), "a transient (next_route) > b transient (attempts_spent)");
    assert_eq!(fault(&err).trail().map(ToString::to_string), Some(call.trail().to_string()));
}

#[tokio::test]
async fn a_route_that_refused_or_was_not_ready_is_no_attempt_and_the_next_one_has_its_place() {
    let denied = Does::Fail(Class::Denied(Denier::Circuit));
    for not_asked in [denied, Does::FailReady] {
        // Of two attempts the first was made, the second was not.
        let targets = targets(Does::Fail(Class::Transient), not_asked, Does::Answer);
        let call = Call::options().max_attempts(2).begin();
        assert_eq!(call.scope(ask(three(&targets), &targets[0])).await.unwrap(), "c");
        assert_eq!(call.further_attempts(), 1);
        // Of one attempt none was made yet.
        let targets = self::targets(not_asked, Does::Fail(Class::Transient), Does::Answer);
        let call = Call::options().max_attempts(1).begin();
        call.scope(ask(three(&targets), &targets[0])).await.unwrap_err();
        assert_eq!((targets[1].calls(), targets[2].calls()), (1, 0));
    }
}

// G49
#[tokio::test]
async fn a_caller_can_switch_falling_back_off_for_one_call() {
    let targets = targets(Does::Fail(Class::Transient), Does::Answer, Does::Answer);
    let call = Call::options().max_attempts(1).begin();
    call.scope(ask(three(&targets), &targets[0])).await.unwrap_err();
    assert_eq!(calls(&targets), [1, 0, 0]);
    assert_eq!(ask(three(&targets), &targets[0]).await.unwrap(), "b");
}

#[tokio::test]
async fn a_request_that_cannot_be_sent_twice_is_sent_once() {
    let target = Target::new("b", Does::Answer);
    let layer = FallbackLayer::builder()
        .classify(ErrorsOnly)
        .replay(Once)
        .route(Route::new("b", target.clone()))
        .build()
        .unwrap();
    let first = Target::new("a", Does::Fail(Class::Transient));
    let (answer, trail) = traced(layer.layer(first).oneshot(1_u8)).await;
    assert!(answer.is_err());
    assert_eq!((trail.as_str(), target.calls()), ("first transient (not_repeatable)", 0));
}

/// Counts its clones.
#[derive(Debug)]
struct Head(Arc<AtomicU32>);

impl Clone for Head {
    fn clone(&self) -> Self {
        self.0.fetch_add(1, Ordering::Relaxed);
        Self(self.0.clone())
    }
}

// P29
#[tokio::test]
async fn while_the_first_route_works_the_request_is_cloned_at_most_once_whatever_is_set_up() {
    async fn clones<A: Affinity<Head>>(
        layer: Builder<BoxRoute<Head, u8>, ErrorsOnly, Cloned, NoLastGood, A>,
    ) -> u32 {
        let first = service_fn(|_: Head| async {
            tokio::task::yield_now().await;
            Ok::<_, BoxError>(1_u8)
        });
        let count = Arc::new(AtomicU32::new(0));
        layer.build().unwrap().layer(first).oneshot(Head(count.clone())).await.unwrap();
        count.load(Ordering::Relaxed)
    }
    let other = || Route::boxed("b", service_fn(|_: Head| async { Ok::<_, BoxError>(2) }));
    let layer = || FallbackLayer::builder().classify(ErrorsOnly).replay(Cloned).route(other());
    assert_eq!(clones(layer()).await, 1);
    assert_eq!(clones(layer().max_routes(1)).await, 0, "nobody else can have it");
    assert_eq!(clones(layer().order(Order::LeastLatency).promote_last_good(true)).await, 1);
    assert_eq!(clones(layer().slow_start(Duration::from_secs(9))).await, 1);
    assert_eq!(clones(layer().sticky(|_: &Head| Some(1)).estimate(|_: &Head| Some(9))).await, 1);
    assert_eq!(clones(layer().when_all_poor(WhenAllPoor::Wait).health(Fit::poor(0))).await, 1);
    let tier = Route::boxed("t", service_fn(|_: Head| async { Ok::<_, BoxError>(3) }));
    assert_eq!(clones(layer().route(tier.last_tier(StandIn::Computed))).await, 1);
}

// P29
#[tokio::test]
async fn the_request_is_cloned_once_while_the_first_route_works_and_moved_to_the_last() {
    #[derive(Debug)]
    struct Prompt(Arc<()>);
    impl Clone for Prompt {
        fn clone(&self) -> Self {
            Self(Arc::new(()))
        }
    }
    let original = Arc::new(());
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let route = |fails: bool| {
        let seen = seen.clone();
        service_fn(move |prompt: Prompt| {
            seen.lock().unwrap().push(prompt.0);
            async move { if fails { Err::<u8, _>(std::fmt::Error) } else { Ok(1) } }
        })
    };
    let layer = |fails| {
        FallbackLayer::builder()
            .classify(ErrorsOnly)
            .replay(Cloned)
            .route(Route::new("b", route(fails)))
            .route(Route::new("c", route(false)))
            .build()
            .unwrap()
    };
    layer(true).layer(route(true)).oneshot(Prompt(original.clone())).await.unwrap();
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!(seen.len(), 3);
    assert!(Arc::ptr_eq(&seen[2], &original), "the last route has the original");
    drop(seen);
    assert_eq!(Arc::strong_count(&original), 1);
}

#[tokio::test]
async fn a_route_in_poor_health_is_tried_last_and_not_never() {
    let targets = targets(Does::Answer, Does::Answer, Does::Answer);
    let fit = Fit::poor(30);
    let layer = three(&targets).health(fit.clone()).build().unwrap();
    let (answer, trail) = traced(layer.layer(targets[0].clone()).oneshot(1_u8)).await;
    assert_eq!((answer.unwrap(), trail.as_str()), ("b", "a denied.circuit (skipped) > b success (answered)"));

    targets[1].now(Does::Fail(Class::Transient));
    targets[2].now(Does::Fail(Class::Transient));
    assert_eq!(layer.layer(targets[0].clone()).oneshot(1_u8).await.unwrap(), "a");
    assert_eq!(*targets[0].last_resort.lock().unwrap(), [true], "an open circuit lets it pass");
    assert_eq!(*targets[1].last_resort.lock().unwrap(), [false, false]);

    // Half-open: its place is its own again, so that probes happen.
    fit.now(Condition::Degraded);
    assert_eq!(layer.layer(targets[0].clone()).oneshot(1_u8).await.unwrap(), "a");
}

#[tokio::test]
async fn when_all_are_poor_the_one_that_recovers_first_is_the_last_resort() {
    let targets = targets(Does::Answer, Does::Answer, Does::Answer);
    let layer = builder()
        .health(Fit::poor(30))
        .route(Route::new("b", targets[1].clone()).health(Fit::poor(10)))
        .route(Route::new("c", targets[2].clone()).health(Fit::new(Condition::Poor, None)));
    assert_eq!(ask(layer, &targets[0]).await.unwrap(), "b");
    assert_eq!(*targets[1].last_resort.lock().unwrap(), [true]);
}

#[tokio::test]
async fn when_all_are_poor_failing_fast_asks_none_and_advises_the_earliest_recovery() {
    let targets = targets(Does::Answer, Does::Answer, Does::Answer);
    let layer = builder()
        .when_all_poor(WhenAllPoor::FailFast)
        .health(Fit::poor(30))
        .route(Route::new("b", targets[1].clone()).health(Fit::poor(10)));
    let err = ask(layer, &targets[0]).await.unwrap_err();
    let fault = fault(&err);
    assert_eq!((fault.class(), fault.layer()), (Class::Denied(Denier::Circuit), "fallback-layer"));
    assert_eq!(fault.retry_after(), Some(Duration::from_secs(10)));
    assert_eq!(fault.to_response().status(), 503);
    assert_eq!(fault.to_response().headers()["retry-after"], "10");
    assert_eq!(calls(&targets), [0, 0, 0]);
}

#[tokio::test]
async fn the_earliest_recovery_is_told_in_whole_seconds_rounded_up() {
    for (recovers, told) in [(9_001, "10"), (9_000, "9"), (1, "1"), (0, "0")] {
        let layer = builder().when_all_poor(WhenAllPoor::FailFast).health(Fit::poor(99)).route(
            Route::new("b", Target::new("b", Does::Answer))
                .health(Fit::poor_for(Duration::from_millis(recovers))),
        );
        let err = ask(layer, &Target::new("a", Does::Answer)).await.unwrap_err();
        let response = fault(&err).to_response();
        assert_eq!(
            (response.status().as_u16(), response.headers()["retry-after"].to_str().unwrap()),
            (503, told)
        );
    }
}

#[tokio::test]
async fn when_every_circuit_refuses_the_caller_is_told_the_earliest_recovery() {
    let circuit = Class::Denied(Denier::Circuit);
    let targets = targets(
        Does::FailWithAdvice(circuit, Duration::from_secs(30)),
        Does::FailWithAdvice(circuit, Duration::from_secs(12)),
        Does::FailWithAdvice(circuit, Duration::from_secs(20)),
    );
    let err = ask(three(&targets), &targets[0]).await.unwrap_err();
    assert_eq!((fault(&err).status_code(), fault(&err).retry_after()), (503, Some(Duration::from_secs(12))));
}

#[tokio::test]
async fn when_all_fail_the_first_that_was_asked_decides_and_every_error_is_kept() {
    let targets = targets(
        Does::Fail(Class::Denied(Denier::Circuit)),
        Does::Fail(Class::Overloaded),
        Does::Fail(Class::Invalid),
    );
    let err = ask(three(&targets), &targets[0]).await.unwrap_err();
    let all = fault(&err);
    assert_eq!((all.class(), all.target(), all.layer()), (Class::Overloaded, Some("b"), "fallback-layer"));
    let earlier: Vec<_> = all.earlier().iter().map(|err| fault(err).target()).collect();
    assert_eq!(earlier, [Some("a"), Some("b")]);
    let source = std::error::Error::source(all).expect("the last error");
    assert_eq!(failsoft_core::Fault::find(source).and_then(|fault| fault.target()), Some("c"));
    assert_eq!(
        all.trail().unwrap().to_string(),
        "a denied.circuit (next_route) > b overloaded (next_route) > c invalid (final)"
    );
}

// G50
#[tokio::test]
async fn the_caller_chooses_first_last_or_combined() {
    for (what, class) in [(Return::First, Class::Overloaded), (Return::Last, Class::Auth)] {
        let targets = targets(Does::Fail(Class::Overloaded), Does::Fail(Class::Auth), Does::Answer);
        let layer = builder().returns(what).route(Route::new("b", targets[1].clone()));
        let err = ask(layer, &targets[0]).await.unwrap_err();
        assert_eq!((fault(&err).class(), fault(&err).layer()), (class, "test"));
    }
}

#[tokio::test]
async fn a_failure_inside_an_ok_moves_on_and_the_first_failed_response_is_not_masked() {
    let classifier = || {
        classify_fn(|status: &u16| match status {
            200 => Verdict::SUCCESS,
            503 => Verdict::of(Class::Overloaded),
            _ => Verdict::of(Class::Invalid),
        })
    };
    let route = |status: u16| service_fn(move |_: u8| async move { Ok::<_, BoxError>(status) });
    let ask = async |first, second, what| {
        let layer = FallbackLayer::builder()
            .classify(classifier())
            .returns(what)
            .route(Route::new("b", route(second)))
            .build()
            .unwrap();
        layer.layer(route(first)).oneshot(1_u8).await.unwrap()
    };
    assert_eq!(ask(503, 200, Return::Combined).await, 200);
    // The first has no capacity, the second says that the prompt is too long for it: the first one counts.
    assert_eq!(ask(503, 400, Return::Combined).await, 503);
    assert_eq!(ask(503, 400, Return::First).await, 503);
    assert_eq!(ask(503, 400, Return::Last).await, 400);
}

// G45
#[tokio::test]
async fn a_later_routes_response_does_not_hide_the_first_routes_error() {
    let classifier = classify_fn(|_: &u16| Verdict::of(Class::Invalid));
    let layer = FallbackLayer::builder()
        .classify(classifier)
        .name("a")
        .route(Route::boxed("b", service_fn(|_: u8| async { Ok::<_, BoxError>(400_u16) })))
        .build()
        .unwrap();
    let first = service_fn(|_: u8| async {
        Err::<u16, _>(std::io::Error::from(std::io::ErrorKind::ConnectionRefused))
    });
    let err = layer.layer(first).oneshot(1).await.unwrap_err();
    assert_eq!((fault(&err).class(), fault(&err).target()), (Class::Transient, Some("a")));
    assert_eq!(fault(&err).status_code(), 502, "not a 503 that makes a gateway outside loop");
    assert!(fault(&err).earlier()[0].is::<std::io::Error>());
}

#[tokio::test]
async fn a_foreign_error_that_stays_alone_still_downcasts() {
    let layer = FallbackLayer::builder()
        .classify(classify_fn(|_: &u8| Verdict::SUCCESS).errors(|_| Verdict::of(Class::Invalid)))
        .route(Route::new("b", service_fn(|_: u8| async { Ok::<_, std::fmt::Error>(1_u8) })))
        .build()
        .unwrap();
    let first = service_fn(|_: u8| async { Err::<u8, _>(std::fmt::Error) });
    assert!(layer.layer(first).oneshot(1).await.unwrap_err().is::<std::fmt::Error>());
}

#[tokio::test]
async fn services_of_one_layer_can_be_called_many_times_and_cloned_when_ready() {
    let targets = targets(Does::Fail(Class::Transient), Does::Answer, Does::Answer);
    let mut service = three(&targets).build().unwrap().layer(targets[0].clone());
    std::future::poll_fn(|cx| Service::<u8>::poll_ready(&mut service, cx)).await.unwrap();
    let mut clone = service.clone();
    for _ in 0..3 {
        // No readiness is needed and none is carried.
        assert_eq!(service.call(1_u8).await.unwrap(), "b");
        assert_eq!(clone.call(1_u8).await.unwrap(), "b");
    }
}

#[tokio::test(start_paused = true)]
async fn a_route_that_took_over_is_marked_cold_and_the_first_one_is_not() {
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
        .route(Route::new("second", route(false)))
        .build()
        .unwrap();
    layer.layer(route(true)).oneshot(1).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [false, true]);
}
