//! When a call is sent once more beside the first, who wins, and what is left behind.

use std::{
    future::{pending, poll_fn},
    io,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::Poll,
    time::Duration,
};

use crate::common::{Do, Request, Response, Upstream, get, post, retry_after};
use failsoft_core::{
    Auto, BoxError, ByResponse, Call, Class, Cloned, Closing, ErrorsOnly, Fault, Next, OnClose, Once, Usage,
    Verdict,
};
use retry_layer::{Hedge, HedgeBuilder, HedgeLayer, RetryBudget, hedge::ResponseFuture};
use static_assertions::assert_impl_all;
use tokio::time::{Instant, advance, sleep, timeout};
use tower::{Layer, Service, ServiceExt, limit::ConcurrencyLimit};

assert_impl_all!(HedgeLayer: Clone, Send, Sync);
assert_impl_all!(Hedge<Upstream>: Clone, Send, Sync);
assert_impl_all!(ResponseFuture<Upstream, Request, ByResponse, Auto>: Send);

const SECOND: Duration = Duration::from_secs(1);

/// One hedge, after two seconds.
fn after_two() -> HedgeBuilder {
    HedgeLayer::builder().delay(2 * SECOND)
}

fn slow(seconds: u32, what: Do) -> Do {
    Do::After(seconds * SECOND, Box::new(what))
}

async fn send(builder: HedgeBuilder, upstream: &Upstream, request: Request) -> Result<Response, BoxError> {
    builder.build().unwrap().layer(upstream.clone()).oneshot(request).await
}

/// Its outcome, when it came, and the trail of the call.
async fn told(builder: HedgeBuilder, upstream: &Upstream) -> (Result<u16, Class>, u64, Vec<(Class, Next)>) {
    let (call, began) = (Call::begin(), Instant::now());
    let outcome = match call.scope(send(builder, upstream, get())).await {
        Ok(response) => Ok(response.status().as_u16()),
        Err(error) => Err(Verdict::of_error(&*error).class()),
    };
    let trail = call.trail();
    let steps = trail.attempts().iter().map(|attempt| (attempt.verdict.class(), attempt.next)).collect();
    (outcome, began.elapsed().as_secs(), steps)
}

#[tokio::test(start_paused = true)]
async fn a_slow_first_is_overtaken_after_the_delay_and_let_go() {
    let upstream = Upstream::new([Do::Never], slow(1, Do::Status(200)));
    let (outcome, took, trail) = told(after_two(), &upstream).await;
    assert_eq!((outcome, took), (Ok(200), 3));
    assert_eq!(trail, [(Class::Cancelled, Next::Hedge), (Class::Success, Next::Answered)]);
    assert_eq!((upstream.times(), upstream.running()), (vec![0, 2_000], 0));
}

#[tokio::test(start_paused = true)]
async fn a_first_that_answers_in_time_is_alone() {
    let upstream = Upstream::new([slow(1, Do::Status(200))], Do::Never);
    let (outcome, took, trail) = told(after_two(), &upstream).await;
    assert_eq!((outcome, took, upstream.calls()), (Ok(200), 1, 1));
    assert!(trail.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_first_that_still_answers_before_its_hedge_wins() {
    let upstream = Upstream::new([slow(3, Do::Status(200))], Do::Never);
    let (outcome, took, trail) = told(after_two(), &upstream).await;
    assert_eq!((outcome, took, upstream.running()), (Ok(200), 3, 0));
    assert_eq!(trail, [(Class::Success, Next::Answered), (Class::Cancelled, Next::Overtaken)]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_first_answer_does_not_win_while_another_runs_and_is_not_held() {
    let upstream = Upstream::new([slow(3, Do::Status(503))], slow(2, Do::Status(200)));
    let mut call = pin!(told(after_two(), &upstream));
    assert!(timeout(Duration::from_millis(3_500), &mut call).await.is_err());
    assert_eq!((upstream.running(), upstream.bodies()), (1, 0));
    let (outcome, _, trail) = call.await;
    assert_eq!((outcome, upstream.times()), (Ok(200), vec![0, 2_000]));
    assert_eq!(trail, [(Class::Overloaded, Next::Hedge), (Class::Success, Next::Answered)]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_before_the_delay_is_returned_at_once() {
    let upstream = Upstream::new([slow(1, Do::Reset)], Do::Status(200));
    let (outcome, took, trail) = told(after_two(), &upstream).await;
    assert_eq!((outcome, took, upstream.calls()), (Err(Class::Transient), 1, 1));
    assert!(trail.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_the_request_itself_ends_all_attempts() {
    let upstream = Upstream::new([slow(3, Do::Status(400))], Do::Never);
    let (outcome, took, trail) = told(after_two(), &upstream).await;
    assert_eq!((outcome, took, upstream.running()), (Ok(400), 3, 0));
    assert_eq!(trail, [(Class::Invalid, Next::Final), (Class::Cancelled, Next::Overtaken)]);
}

#[tokio::test(start_paused = true)]
async fn when_all_fail_it_is_the_last_outcome_that_is_returned() {
    let upstream = Upstream::new([slow(3, Do::Status(503))], slow(4, Do::Reset));
    let (outcome, took, trail) = told(after_two(), &upstream).await;
    assert_eq!((outcome, took), (Err(Class::Transient), 6));
    assert_eq!(trail, [(Class::Overloaded, Next::Hedge), (Class::Transient, Next::Final)]);
    let upstream = Upstream::new([slow(5, Do::Status(503))], slow(1, Do::Reset));
    let (outcome, took, trail) = told(after_two(), &upstream).await;
    assert_eq!((outcome, took), (Ok(503), 5));
    assert_eq!(trail, [(Class::Overloaded, Next::Final), (Class::Transient, Next::Overtaken)]);
}

// C78
#[tokio::test(start_paused = true)]
async fn a_hedge_that_fails_leaves_the_first_alone() {
    let upstream = Upstream::new([slow(5, Do::Status(200)), slow(1, Do::Reset)], Do::Never);
    let (outcome, took, _) = told(after_two(), &upstream).await;
    assert_eq!((outcome, took, upstream.calls()), (Ok(200), 5, 2));
}

#[tokio::test(start_paused = true)]
async fn only_what_may_be_sent_twice_is() {
    let calls = async |builder: HedgeBuilder, request: Request| {
        let upstream = Upstream::new([slow(5, Do::Status(200))], Do::Status(201));
        send(builder, &upstream, request).await.unwrap();
        upstream.calls()
    };
    assert_eq!(calls(after_two(), get()).await, 2);
    assert_eq!(calls(after_two(), post()).await, 1);
    assert_eq!(calls(after_two().repeat_unanswered(true), post()).await, 2);
    let mut keyed = post();
    keyed.headers_mut().insert("idempotency-key", "1".parse().unwrap());
    assert_eq!(calls(after_two(), keyed).await, 2);
    let upstream = Upstream::new([slow(5, Do::Status(200))], Do::Status(201));
    after_two().replay(Once).build().unwrap().layer(upstream.clone()).oneshot(get()).await.unwrap();
    assert_eq!(upstream.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn there_are_as_many_hedges_as_are_allowed_one_after_each_delay() {
    for (max, times) in [(0, vec![0]), (1, vec![0, 2_000]), (3, vec![0, 2_000, 4_000, 6_000])] {
        let upstream = Upstream::new([], Do::Never);
        let sent = timeout(60 * SECOND, send(after_two().max_hedges(max), &upstream, get())).await;
        assert!(sent.is_err());
        assert_eq!((upstream.times(), upstream.running()), (times, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_delay_of_zero_sends_both_at_once() {
    let upstream = Upstream::new([Do::Never], Do::Status(200));
    let (outcome, took, _) = told(HedgeLayer::builder().delay(Duration::ZERO), &upstream).await;
    assert_eq!((outcome, took, upstream.calls()), (Ok(200), 0, 2));
}

// C69, C76
#[tokio::test(start_paused = true)]
async fn an_empty_budget_suppresses_the_hedge_only() {
    let budget = RetryBudget::builder().ratio(0.0).min_per_sec(0.0).initial(1.0).build().unwrap();
    let layer = after_two().max_hedges(3).budget(budget.clone()).build().unwrap();
    let upstream = Upstream::new([], slow(9, Do::Status(200)));
    let service = layer.layer(upstream.clone());
    let call = Call::begin();
    assert_eq!(call.scope(service.clone().oneshot(get())).await.unwrap().status(), 200);
    assert_eq!((upstream.times(), call.further_attempts()), (vec![0, 2_000], 1));
    assert_eq!(service.oneshot(get()).await.unwrap().status(), 200);
    assert_eq!((upstream.calls(), budget.balance()), (3, 0.0));
}

#[tokio::test(start_paused = true)]
async fn calls_bring_tokens_into_a_budget_once_also_where_two_layers_share_it() {
    let budget = || RetryBudget::builder().ratio(0.5).min_per_sec(0.0).initial(0.0).cap(9.0).build().unwrap();
    let (own, shared) = (budget(), budget());
    let upstream = Upstream::new([], Do::Status(200));
    send(after_two().budget(own.clone()), &upstream, get()).await.unwrap();
    send(after_two().shared_budget(shared.clone()), &upstream, get()).await.unwrap();
    assert_eq!((own.balance(), shared.balance()), (0.5, 0.0));
}

#[tokio::test(start_paused = true)]
async fn the_calls_own_cap_and_deadline_hold() {
    for (cap, calls) in [(1, 1), (2, 2), (9, 4)] {
        let upstream = Upstream::new([], slow(20, Do::Status(200)));
        let call = Call::options().max_attempts(cap).begin();
        call.scope(send(after_two().max_hedges(3), &upstream, get())).await.unwrap();
        assert_eq!(upstream.calls(), calls);
    }
    let upstream = Upstream::new([], slow(20, Do::Status(200)));
    let call = Call::options().timeout(5 * SECOND).begin();
    call.scope(send(after_two().max_hedges(8), &upstream, get())).await.unwrap();
    assert_eq!(upstream.times(), [0, 2_000, 4_000]);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_not_ready_again_or_fails_to_be_leaves_the_first_alone() {
    for fails in [false, true] {
        let upstream = Upstream::ready_for(1, fails, [], slow(5, Do::Status(200)));
        let (outcome, took, _) = told(after_two(), &upstream).await;
        assert_eq!((outcome, took, upstream.calls()), (Ok(200), 5, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_hedge_that_waits_for_room_holds_none_and_takes_no_token() {
    let budget = RetryBudget::builder().ratio(0.0).min_per_sec(0.0).initial(1.0).build().unwrap();
    let upstream = Upstream::new([], slow(5, Do::Status(200)));
    let limited = ConcurrencyLimit::new(upstream.clone(), 1);
    let service = after_two().budget(budget.clone()).build().unwrap().layer(limited);
    assert_eq!(service.clone().oneshot(get()).await.unwrap().status(), 200);
    assert_eq!((upstream.calls(), budget.balance()), (1, 1.0));
    assert!(timeout(6 * SECOND, service.oneshot(get())).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn readiness_may_be_asked_often_and_a_clone_carries_none() {
    let upstream = Upstream::new([Do::Never], Do::Status(200));
    let mut service = after_two().build().unwrap().layer(upstream.clone());
    for _ in 0..3 {
        poll_fn(|cx| Service::<Request>::poll_ready(&mut service, cx)).await.unwrap();
    }
    let clone = service.clone();
    service.call(get()).await.unwrap();
    clone.oneshot(get()).await.unwrap();
    assert_eq!(upstream.calls(), 3);
}

// G128
#[tokio::test(start_paused = true)]
async fn dropped_at_any_point_it_leaves_nothing_behind() {
    for polls in 1..10 {
        let upstream = Upstream::new([slow(5, Do::Status(503))], slow(4, Do::Status(200)));
        let limited = ConcurrencyLimit::new(upstream.clone(), 2);
        let service = after_two().build().unwrap().layer(limited);
        {
            let mut call = pin!(service.clone().oneshot(get()));
            for _ in 0..polls {
                if poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await.is_ready() {
                    break;
                }
                advance(SECOND).await;
            }
        }
        assert_eq!((upstream.running(), upstream.bodies()), (0, 0), "{polls}");
        // Both permits are back.
        let (one, two) = (service.clone().oneshot(get()), service.oneshot(get()));
        assert!(timeout(60 * SECOND, async { (one.await, two.await) }).await.is_ok(), "{polls}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hedge_that_a_circuit_refuses_is_no_attempt_and_none_follows() {
    let upstream = Upstream::new([slow(9, Do::Status(200)), Do::Deny], Do::Never);
    let call = Call::begin();
    let budget = RetryBudget::builder().ratio(0.0).min_per_sec(0.0).initial(2.0).build().unwrap();
    let builder = after_two().max_hedges(3).budget(budget.clone());
    let response = call.scope(send(builder, &upstream, get())).await.unwrap();
    assert_eq!((response.status().as_u16(), upstream.calls(), call.further_attempts()), (200, 2, 0));
    assert_eq!(budget.balance(), 2.0);
}

#[tokio::test(start_paused = true)]
async fn what_is_heard_of_the_target_while_a_hedge_waits_for_readiness_suppresses_it() {
    // The two places are taken until the other call is told to wait.
    let upstream = Upstream::new([slow(9, Do::Status(200)), slow(4, retry_after("30"))], Do::Status(200));
    let service = after_two().build().unwrap().layer(ConcurrencyLimit::new(upstream.clone(), 2));
    let first = tokio::spawn(service.clone().oneshot(get()));
    sleep(SECOND).await;
    let other = tokio::spawn(service.oneshot(post())); // not idempotent: never hedged itself
    assert_eq!(first.await.unwrap().unwrap().status(), 200);
    assert_eq!(other.await.unwrap().unwrap().status(), 429);
    assert_eq!(upstream.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_ours_does_not_stand_for_what_the_target_said() {
    let upstream = Upstream::new([slow(3, Do::Status(503))], slow(2, Do::Deny));
    let error = send(after_two(), &upstream, get()).await.unwrap_err();
    let fault = Fault::find(&*error).unwrap();
    assert_eq!(
        (fault.class(), fault.status(), fault.target()),
        (Class::Overloaded, Some(503), Some("models.example"))
    );
    let upstream = Upstream::new([slow(3, Do::Reset)], slow(2, Do::Deny));
    assert!(send(after_two(), &upstream, get()).await.unwrap_err().is::<io::Error>());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_hedged_into_a_target_that_said_it_is_too_much() {
    for (answer, quiet) in [(retry_after("30"), 30), (Do::Status(503), 1), (retry_after("999999"), 120)] {
        let upstream = Upstream::new([answer], slow(1, Do::Status(200)));
        let service =
            HedgeLayer::builder().delay(Duration::from_millis(500)).build().unwrap().layer(upstream.clone());
        service.clone().oneshot(get()).await.unwrap();
        // Half a second before the end of it, and after.
        sleep(quiet * SECOND - SECOND).await;
        service.clone().oneshot(get()).await.unwrap();
        assert_eq!(upstream.calls(), 2);
        service.oneshot(get()).await.unwrap();
        assert_eq!(upstream.calls(), 4);
    }
}

#[tokio::test(start_paused = true)]
async fn by_default_a_call_that_takes_longer_than_95_percent_of_100_before_is_hedged() {
    let latencies: Vec<_> = (0..100).map(|i| if i % 20 == 3 { 400 } else { 100 }).collect();
    let script = latencies.iter().map(|ms| Do::After(Duration::from_millis(*ms), Box::new(Do::Status(200))));
    let upstream = Upstream::new(script.chain([Do::Never]), Do::Status(200));
    let service = HedgeLayer::new().layer(upstream.clone());
    for calls in 1..=100 {
        service.clone().oneshot(get()).await.unwrap();
        assert_eq!(upstream.calls(), calls);
    }
    let began = Instant::now();
    assert_eq!(service.oneshot(get()).await.unwrap().status(), 200);
    let delay = began.elapsed().as_millis();
    assert!((100..=108).contains(&delay), "{delay} ms");
}

#[tokio::test(start_paused = true)]
async fn until_a_quantile_is_known_a_fixed_delay_counts() {
    let quick = || Do::After(Duration::from_millis(100), Box::new(Do::Status(200)));
    let upstream =
        Upstream::new([Do::Never].into_iter().chain((0..101).map(|_| quick())).chain([Do::Never]), quick());
    let layer = after_two().quantile(0.9).min_calls(100).build().unwrap();
    let service = layer.layer(upstream.clone());
    service.clone().oneshot(get()).await.unwrap();
    assert_eq!(upstream.times(), [0, 2_000]);
    for _ in 0..100 {
        service.clone().oneshot(get()).await.unwrap();
    }
    let began = Instant::now();
    service.oneshot(get()).await.unwrap();
    assert!(began.elapsed() < Duration::from_millis(220), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn hedging_does_not_make_its_own_delay_shorter_and_shorter() {
    // First attempts take 100 to 290 ms, but one in ten ten seconds; hedges are always quick. One in five takes longer than 265 ms.
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let service = tower::service_fn(move |first_takes: u64| {
        let is_hedge = count.fetch_add(1, SeqCst) % 2 == 1;
        async move {
            sleep(Duration::from_millis(if is_hedge { 50 } else { first_takes })).await;
            Ok::<_, io::Error>(())
        }
    });
    let layer = HedgeLayer::builder().classify(ErrorsOnly).quantile(0.8).without_budget().build().unwrap();
    let service = layer.layer(service);
    let mut hedged = Vec::new();
    for i in 0..3_000 {
        sent.store(0, SeqCst);
        let takes = if i % 10 == 0 { 10_000 } else { 100 + i * 7 % 20 * 10 };
        service.clone().oneshot(takes).await.unwrap();
        hedged.push(sent.load(SeqCst) - 1);
    }
    assert_eq!(hedged[..100].iter().sum::<usize>(), 0);
    let late: usize = hedged[2_000..].iter().sum();
    assert!((150..=220).contains(&late), "{late} of 1000");
}

#[tokio::test(start_paused = true)]
async fn calls_that_an_outer_limit_ends_do_not_make_the_target_look_quick() {
    // First attempts take 1 to 1000 ms, hedges for ever, and nobody waits for longer than 600 ms: half of all are late after 500.
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let service = tower::service_fn(move |takes: u64| {
        let is_hedge = count.fetch_add(1, SeqCst) == 1;
        async move {
            sleep(Duration::from_millis(if is_hedge { 60_000 } else { takes })).await;
            Ok::<_, io::Error>(())
        }
    });
    let builder = HedgeLayer::builder().classify(ErrorsOnly).quantile(0.5).min_calls(100);
    let service = builder.without_budget().build().unwrap().layer(service);
    let mut hedged = 0;
    for i in 0..3_000 {
        sent.store(0, SeqCst);
        let takes = 1 + i * 7_919 % 1_000;
        let _ = timeout(Duration::from_millis(600), service.clone().oneshot(takes)).await;
        hedged += if i < 2_000 { 0 } else { sent.load(SeqCst) - 1 };
    }
    assert!((450..=520).contains(&hedged), "{hedged} of 1000");
}

// G98, V-H7
#[tokio::test(start_paused = true)]
async fn what_a_loser_used_is_counted_and_settled_once() {
    let tokens = |output| Usage { output: Some(output), ..Usage::default() };
    let count = Arc::new(AtomicUsize::new(0));
    let service = tower::service_fn(move |_: String| {
        let first = count.fetch_add(1, SeqCst) == 0;
        let mut slot = Call::slot().unwrap();
        slot.set(&tokens(if first { 3 } else { 10 }));
        async move {
            if first {
                pending::<()>().await;
            }
            // Whoever reads the body holds the slot.
            Ok::<_, io::Error>(slot)
        }
    });
    let told = Arc::new(Mutex::new(Vec::new()));
    let push = Arc::clone(&told);
    let reserved = Call::options().reserving(OnClose::new(move |closing| push.lock().unwrap().push(closing)));
    let session = reserved.call();
    let service = after_two().classify(ErrorsOnly).build().unwrap().layer(service);
    let body = session.scope(service.oneshot("ask".to_owned())).await.unwrap();
    assert_eq!(session.usage(), tokens(3));
    drop(reserved);
    drop(body);
    assert_eq!(*told.lock().unwrap(), [Closing::Settled { usage: tokens(13), unknown: 0 }]);
}

#[tokio::test(start_paused = true)]
async fn other_request_types_are_cloned() {
    #[derive(Clone)]
    struct Ask;
    let count = Arc::new(AtomicUsize::new(0));
    let service = tower::service_fn(move |_: Ask| {
        let first = count.fetch_add(1, SeqCst) == 0;
        async move {
            if first {
                pending::<()>().await;
            }
            Ok::<_, io::Error>(7)
        }
    });
    let layer = HedgeLayer::builder().delay(SECOND).classify(ErrorsOnly).replay(Cloned).build().unwrap();
    assert_eq!(layer.layer(service).oneshot(Ask).await.unwrap(), 7);
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let field = |builder: HedgeBuilder| builder.build().unwrap_err().field().to_owned();
    for share in [0.0, 0.4, 1.0, 95.0, f64::NAN] {
        assert_eq!(field(HedgeLayer::builder().quantile(share)), "quantile", "{share}");
    }
    assert_eq!(field(HedgeLayer::builder().quantile(0.99).min_calls(99)), "min_calls");
    assert!(HedgeLayer::builder().quantile(0.99).min_calls(100).build().is_ok());
    assert!(HedgeLayer::builder().quantile(0.999).min_calls(1_000).build().is_ok());
    assert_eq!(field(HedgeLayer::builder().max_hedges(9)), "max_hedges");
    assert_eq!(field(HedgeLayer::builder().target(" ")), "target");
}

#[tokio::test(start_paused = true)]
async fn a_streaming_body_is_sent_to_both_while_it_still_comes() {
    use bytes::Bytes;
    use failsoft_core::{Buffered, ReplayBody};
    use http_body_util::{BodyExt as _, combinators::BoxBody};

    type Streamed = BoxBody<Bytes, BoxError>;
    let count = Arc::new(AtomicUsize::new(0));
    let service = tower::service_fn(move |request: http::Request<Streamed>| {
        let first = count.fetch_add(1, SeqCst) == 0;
        async move {
            let mut body = request.into_body();
            if first {
                // Reads a part, and then no more.
                let piece = body.frame().await;
                pending::<()>().await;
                drop(piece);
            }
            Ok::<_, BoxError>(body.collect().await?.to_bytes())
        }
    });
    let replay = Buffered::new(1 << 10, |body: ReplayBody<Streamed>| body.boxed());
    let hedge = after_two().repeat_unanswered(true).classify(ErrorsOnly).replay(replay).build().unwrap();
    let (pieces, body) = crate::common::channel();
    let request = http::Request::post("/").body(body.boxed()).unwrap();
    let call = tokio::spawn(hedge.layer(service).oneshot(request));
    pieces.send("to ").unwrap();
    sleep(5 * SECOND).await;
    pieces.send("both").unwrap();
    drop(pieces);
    assert_eq!(call.await.unwrap().unwrap(), "to both");
}
