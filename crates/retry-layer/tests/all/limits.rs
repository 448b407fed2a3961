//! Deadlines, caps, and what is given back.

use std::{
    future::{Future, poll_fn},
    io,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::Poll,
    time::Duration,
};

use crate::common::{Do, Request, Upstream, exact, get, post, retry_after};
use failsoft_core::{Backoff, Blame, Call, Class, Fault, Limit, Next};
use retry_layer::{RetryBudget, RetryLayer};
use tokio::time::{Instant, sleep, timeout};
use tower::{Layer, Service, ServiceExt, limit::ConcurrencyLimit};

fn nexts(call: &Call) -> Vec<Next> {
    call.trail().attempts().iter().map(|attempt| attempt.next).collect()
}

#[tokio::test(start_paused = true)]
async fn where_no_time_is_left_nothing_is_sent() {
    let upstream = Upstream::new([], Do::Status(200));
    let limited = ConcurrencyLimit::new(upstream.clone(), 1);
    let service = exact().build().unwrap().layer(limited);
    let call = Call::options().deadline(Instant::now()).begin();
    let mut late = service.clone();
    ServiceExt::<Request>::ready(&mut late).await.unwrap();
    let error = call.scope(call.enter(|| late.call(get()))).await.unwrap_err();
    let fault = Fault::find(&*error).unwrap();
    assert_eq!((fault.class(), fault.verdict().blame()), (Class::Timeout(Limit::Total), Blame::Caller));
    assert!(fault.verdict().is_unsent());
    assert_eq!((fault.target(), upstream.calls()), (Some("models.example"), 0));
    assert_eq!(nexts(&call), [Next::DeadlineNear]);
    // What it was ready for is free again, although the refused service still lives.
    assert!(timeout(Duration::from_millis(1), service.oneshot(get())).await.is_ok());
    drop(late);
}

#[tokio::test(start_paused = true)]
async fn the_limits_of_a_call_begin_when_its_first_attempt_is_seen_to_wait() {
    let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
    for (builder, limit) in [
        (exact().attempt_timeout(second * 2), second * 2),
        (exact().deadline(second * 3), second * 3),
        (exact().deadline(second * 3).attempt_timeout(second * 2), second * 2),
    ] {
        let layer = builder.max_retries(0).build().unwrap();
        let mut service = layer.layer(Upstream::new([], Do::Never));
        ServiceExt::<Request>::ready(&mut service).await.unwrap();
        let call = service.call(get());
        // It is not worked on meanwhile.
        sleep(minute).await;
        let begun = Instant::now();
        let error = call.await.unwrap_err();
        assert_eq!(Fault::find(&*error).unwrap().class(), Class::Timeout(Limit::Total));
        assert_eq!(begun.elapsed(), limit);
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_attempt_that_fails_at_once_leaves_its_call_the_whole_deadline() {
    let second = Duration::from_secs(1);
    let layer = exact().deadline(second * 3).attempt_timeout(second * 2).max_retries(1).build().unwrap();
    let begun = Instant::now();
    let service = layer.layer(Upstream::new([Do::Status(503)], Do::Never));
    let error = service.oneshot(get()).await.unwrap_err();
    assert_eq!(Fault::find(&*error).unwrap().class(), Class::Timeout(Limit::Total));
    // The wait is one second, and two are left for the attempt after it.
    assert_eq!(begun.elapsed(), second * 3);
    let layer = exact().deadline(second).build().unwrap();
    let service = layer.layer(Upstream::new([Do::Status(503)], Do::Status(200)));
    assert_eq!(
        service.oneshot(get()).await.unwrap().status(),
        503,
        "no wait that would end after the deadline"
    );
}

/// A gRPC request as tonic makes it, with this time for its answer.
fn grpc(timeout: &'static str) -> http::Request<String> {
    let request = http::Request::post("http://models.example/greeter/hello").version(http::Version::HTTP_2);
    request
        .header("content-type", "application/grpc")
        .header("grpc-timeout", timeout)
        .body(String::new())
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_grpc_timeout_is_a_deadline_of_the_callers() {
    let upstream = Upstream::new([Do::Status(503)], Do::Never);
    let began = Instant::now();
    let error = exact()
        .deadline(Duration::from_secs(60))
        .build()
        .unwrap()
        .layer(upstream.clone())
        .oneshot(grpc("5S"))
        .await;
    let error = error.unwrap_err();
    let fault = Fault::find(&*error).unwrap();
    assert_eq!((fault.class(), fault.verdict().blame()), (Class::Timeout(Limit::Total), Blame::Caller));
    assert!(began.elapsed().abs_diff(Duration::from_secs(5)) < Duration::from_millis(5));

    // A nearer one of the call wins, and a wait beyond it is not begun.
    let upstream = Upstream::new([], Do::Status(503));
    let call = Call::options().timeout(Duration::from_millis(500)).begin();
    let outcome = call.scope(exact().build().unwrap().layer(upstream.clone()).oneshot(grpc("5S"))).await;
    assert_eq!((outcome.unwrap().status().as_u16(), nexts(&call)), (503, vec![Next::DeadlineNear]));
    let call = Call::begin();
    let service = exact().build().unwrap().layer(upstream);
    assert_eq!(call.scope(service.oneshot(grpc("500m"))).await.unwrap().status(), 503);
    assert_eq!(nexts(&call), [Next::DeadlineNear]);
}

// G44, G70
#[tokio::test(start_paused = true)]
async fn retries_inside_each_other_add_up_and_do_not_multiply() {
    let upstream = Upstream::new([], Do::Status(500));
    let inner = exact().build().unwrap().layer(upstream.clone());
    let outer = exact().build().unwrap().layer(inner);
    assert_eq!(outer.oneshot(get()).await.unwrap().status(), 500);
    assert_eq!(upstream.calls(), 4);

    // Whichever of them has more to give, the outer cap bounds the whole.
    for (inner, outer, calls) in [(1, 5, 6), (5, 1, 2), (0, 2, 3), (2, 0, 1)] {
        let upstream = Upstream::new([], Do::Status(500));
        let layer = |retries| exact().max_retries(retries).build().unwrap();
        layer(outer).layer(layer(inner).layer(upstream.clone())).oneshot(get()).await.unwrap();
        assert_eq!(upstream.calls(), calls, "{inner} inside {outer}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_agents_own_calls_are_its_own_when_it_says_so() {
    let upstream = Upstream::new([], Do::Status(500));
    let inner = exact().build().unwrap().layer(upstream.clone());
    let agent = tower::service_fn(move |_: Request| {
        let inner = inner.clone();
        Call::options().isolated().begin().scope(inner.oneshot(get()))
    });
    exact().max_retries(1).build().unwrap().layer(agent).oneshot(get()).await.unwrap();
    assert_eq!(upstream.calls(), 8);
}

#[tokio::test(start_paused = true)]
async fn an_endless_retry_without_a_wait_lets_others_have_their_turn() {
    let upstream = Upstream::new([], Do::Status(500));
    let builder = exact().max_retries(u32::MAX).backoff(Backoff::fixed(Duration::ZERO)).without_budget();
    let mut call = pin!(builder.build().unwrap().layer(upstream.clone()).oneshot(get()));
    for _ in 0..50 {
        let before = upstream.calls();
        let poll = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await;
        assert!(poll.is_pending());
        assert!(upstream.calls() <= before + 1);
    }
    assert!(upstream.calls() >= 40);
    // And it goes on by itself.
    let before = upstream.calls();
    tokio::select! {
        biased;
        _ = call => unreachable!("it never ends"),
        () = async { for _ in 0..100 { tokio::task::yield_now().await; } } => {}
    }
    assert!(upstream.calls() > before + 40);
}

/// What ten tokens become.
fn ten() -> RetryBudget {
    RetryBudget::builder().ratio(0.0).min_per_sec(0.0).initial(10.0).build().unwrap()
}

// #392 of tower-resilience
#[tokio::test(start_paused = true)]
async fn a_token_goes_back_when_its_retry_is_not_sent() {
    // A circuit that opened meanwhile refuses the second attempt.
    let (budget, call) = (ten(), Call::options().max_attempts(9).begin());
    let upstream = Upstream::new([Do::Status(503), Do::Deny], Do::Status(200));
    let service = exact().budget(budget.clone()).build().unwrap().layer(upstream);
    call.scope(service.oneshot(get())).await.unwrap_err();
    assert_eq!((budget.balance(), call.further_attempts()), (10.0, 0));
    // Not ready in time, not ready at all.
    for fail in [false, true] {
        let (budget, call) = (ten(), Call::options().max_attempts(9).begin());
        let upstream = Upstream::ready_for(2, fail, [], Do::Status(503));
        let service = exact().budget(budget.clone()).build().unwrap().layer(upstream.clone());
        call.scope(service.oneshot(get())).await.unwrap_err();
        assert_eq!((upstream.calls(), budget.balance(), call.further_attempts()), (2, 9.0, 1), "{fail}");
    }
    // What was sent is spent, whatever became of it.
    let budget = ten();
    let upstream = Upstream::new([Do::Status(503), Do::Reset], Do::Status(200));
    let service = exact().budget(budget.clone()).build().unwrap().layer(upstream);
    service.oneshot(get()).await.unwrap();
    assert_eq!(budget.balance(), 8.0);
}

// G128
#[tokio::test(start_paused = true)]
async fn dropped_while_it_waits_it_has_taken_nothing_and_dropped_while_it_runs_it_has() {
    let slow = |what| Do::After(Duration::from_secs(5), Box::new(what));
    for (until, tokens, further) in [(6, 10.0, 0), (7, 9.0, 1), (10, 9.0, 1), (12, 9.0, 1), (15, 8.0, 2)] {
        let (budget, call) = (ten(), Call::options().max_attempts(9).begin());
        let upstream = Upstream::new([], slow(Do::Status(503)));
        let service = exact().budget(budget.clone()).build().unwrap().layer(upstream.clone());
        // Attempts at 0, 6 and 13 s, of 5 s each.
        let dropped = timeout(Duration::from_millis(until * 1_000 - 500), call.scope(service.oneshot(get())));
        assert!(dropped.await.is_err());
        assert_eq!((budget.balance(), call.further_attempts()), (tokens, further), "{until}");
        assert_eq!((upstream.running(), upstream.bodies()), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_opens_a_circuit_is_the_last_and_nobody_waits_for_it() {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let service = tower::service_fn(move |_: http::Request<String>| {
        // A breaker inside: the second failure is one too many.
        let opens = count.fetch_add(1, SeqCst) == 1;
        async move {
            if opens {
                Call::record_opening();
            }
            Err::<http::Response<http_body_util::Empty<bytes::Bytes>>, _>(io::Error::from(
                io::ErrorKind::ConnectionReset,
            ))
        }
    });
    let budget = ten();
    let (call, began) = (Call::begin(), Instant::now());
    let service = exact().budget(budget.clone()).build().unwrap().layer(service);
    let error = call.scope(service.oneshot(get())).await.unwrap_err();
    assert!(error.is::<io::Error>());
    assert!(began.elapsed() < Duration::from_millis(1_010));
    assert_eq!((calls.load(SeqCst), budget.balance()), (2, 9.0));
    let opened: Vec<_> = call.trail().attempts().iter().map(|step| (step.next, step.opened)).collect();
    assert_eq!(opened, [(Next::Retry, false), (Next::Final, true)]);
}

#[tokio::test(start_paused = true)]
async fn a_circuit_whose_opening_a_layer_between_has_dealt_with_ends_nothing() {
    let upstream = Upstream::new([Do::Status(500)], Do::Status(200));
    let service = tower::service_fn(move |request: http::Request<String>| {
        let upstream = upstream.clone();
        async move {
            let outcome = upstream.oneshot(request).await;
            Call::record_opening();
            Call::record(failsoft_core::Attempt::new(
                "fallback-layer",
                failsoft_core::Verdict::of(Class::Transient),
            ));
            outcome
        }
    });
    assert_eq!(exact().build().unwrap().layer(service).oneshot(get()).await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn throttling_may_have_waits_of_its_own() {
    let upstream = Upstream::new([Do::Status(429), Do::Status(500), Do::Status(429)], Do::Status(200));
    let fixed = |ms| Backoff::fixed(Duration::from_millis(ms)).jitter(failsoft_core::Jitter::None);
    let builder = RetryLayer::builder().backoff(fixed(50)).backoff_on(Class::RateLimited, fixed(1_000));
    builder.build().unwrap().layer(upstream.clone()).oneshot(get()).await.unwrap();
    let times = upstream.times();
    let waits: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(
        waits.iter().zip([1_000, 50, 1_000]).all(|(wait, wanted)| wait.abs_diff(wanted) <= 2),
        "{waits:?}"
    );
    let wrong = Backoff::default().factor(0.5);
    assert_eq!(exact().backoff_on(Class::Overloaded, wrong).build().unwrap_err().field(), "factor");
}

#[tokio::test(start_paused = true)]
async fn the_targets_own_ban_outranks_a_row() {
    for (name, value, calls) in [("x-should-retry", "false", 1), ("x-should-retry", "true", 2)] {
        let upstream = Upstream::new([Do::With(503, name, value.into())], Do::Status(200));
        let builder = exact().retry_on(Class::Overloaded, true);
        builder.build().unwrap().layer(upstream.clone()).oneshot(post()).await.unwrap();
        assert_eq!(upstream.calls(), calls, "{value}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_attempt_that_was_held_waits_for_readiness_until_its_deadline() {
    // Ready once for the call that is told, once for the one that is held, and then not any more.
    let upstream = Upstream::ready_for(2, false, [retry_after("3")], Do::Status(200));
    let service = exact().max_retries(0).build().unwrap().layer(upstream.clone());
    assert_eq!(service.clone().oneshot(get()).await.unwrap().status(), 429);
    let call = Call::options().timeout(Duration::from_secs(10)).begin();
    let began = Instant::now();
    let error = call.scope(service.oneshot(get())).await.unwrap_err();
    let fault = Fault::find(&*error).unwrap();
    assert_eq!((fault.class(), fault.verdict().blame()), (Class::Timeout(Limit::Total), Blame::Caller));
    assert!(began.elapsed().abs_diff(Duration::from_secs(10)) < Duration::from_millis(5));
    assert_eq!(upstream.calls(), 1);
    sleep(Duration::ZERO).await;
}
