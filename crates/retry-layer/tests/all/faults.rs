//! Faults that retries elsewhere have had, each as a test that carries its number. Those of hedging stand in `hedge.rs`, and those
//! of shared advice, budgets' proportions and back-off are tested in depth where these are.

use std::{
    io,
    time::{Duration, SystemTime},
};

use crate::common::{Do, Request, Response, Upstream, exact, get, post, retry_after};
use failsoft_core::{Backoff, BoxError, Call, Class, ConfigError, Fault, Jitter, Next, backoff::Rng};
use retry_layer::{Deposit, RetryBudget, RetryBuilder, RetryLayer};
use tokio::time::{Instant, advance, timeout};
use tower::{Layer, ServiceExt};

const SECOND: Duration = Duration::from_secs(1);

async fn send(builder: RetryBuilder, upstream: &Upstream, request: Request) -> Result<Response, BoxError> {
    builder.build().unwrap().layer(upstream.clone()).oneshot(request).await
}

/// The wait before the second attempt of a call that got this advice, in milliseconds; none if there was no second attempt.
async fn wait_after(name: &'static str, value: &str) -> Option<u64> {
    let upstream = Upstream::new([Do::With(429, name, value.to_owned())], Do::Status(200));
    send(exact(), &upstream, get()).await.unwrap();
    upstream.times().get(1).copied()
}

fn http_date(after: Duration) -> String {
    #[allow(clippy::disallowed_methods, reason = "a date in a header is one of the wall clock")]
    let at = SystemTime::now() + after;
    httpdate::fmt_http_date(at)
}

#[tokio::test(start_paused = true)]
async fn p12_clients_that_fail_together_come_back_spread_and_no_wait_grows_without_end() {
    let mut waits = Vec::new();
    for _ in 0..200 {
        let upstream = Upstream::new([Do::Status(500)], Do::Status(200));
        send(RetryLayer::builder(), &upstream, get()).await.unwrap();
        waits.push(upstream.times()[1]);
    }
    waits.sort_unstable();
    waits.dedup();
    assert!(waits.len() > 100, "{}", waits.len());
    let upstream = Upstream::new([], Do::Status(500));
    send(RetryLayer::builder().max_retries(30).without_budget(), &upstream, get()).await.unwrap();
    assert!(upstream.times().windows(2).all(|pair| pair[1] - pair[0] <= 60_001));
}

#[tokio::test(start_paused = true)]
async fn p13_g8_nobody_asks_before_the_advice_is_over() {
    let upstream = Upstream::new([retry_after("1"), retry_after("2")], Do::Status(200));
    let quick = exact().backoff(Backoff::fixed(Duration::from_millis(158)).jitter(Jitter::None));
    send(quick, &upstream, get()).await.unwrap();
    let times = upstream.times();
    assert!(times[1] >= 1_000 && times[2] - times[1] >= 2_000, "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn p14_g23_an_open_circuit_of_ours_ends_the_retrying() {
    let upstream = Upstream::new([], Do::Deny);
    let began = Instant::now();
    let error = send(exact(), &upstream, get()).await.unwrap_err();
    assert!(Fault::find(&*error).unwrap().class().is_denied());
    assert_eq!((upstream.calls(), began.elapsed()), (1, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn p16_c62_the_stated_ratio_holds_to_a_percent() {
    for ratio in [0.2, 0.33, 0.6, 0.99] {
        let budget =
            RetryBudget::builder().ratio(ratio).min_per_sec(0.0).initial(0.0).cap(1e9).build().unwrap();
        let upstream = Upstream::new([], Do::Status(500));
        let layer = exact().budget(budget).backoff(Backoff::fixed(Duration::ZERO)).build().unwrap();
        for _ in 0..2_000 {
            layer.layer(upstream.clone()).oneshot(get()).await.unwrap();
        }
        let retries = (upstream.calls() - 2_000) as f64;
        assert!((retries / 2_000.0 - ratio).abs() <= ratio / 100.0, "{ratio}: {retries}");
    }
}

#[tokio::test(start_paused = true)]
async fn p33_the_failed_response_is_dropped_before_the_wait() {
    let upstream = Upstream::new([Do::Status(503)], Do::Status(200));
    let waits = timeout(SECOND / 2, send(exact(), &upstream, get()));
    assert!(waits.await.is_err());
    let upstream = Upstream::new([Do::Status(503)], Do::Status(200));
    let call = tokio::spawn(exact().build().unwrap().layer(upstream.clone()).oneshot(get()));
    tokio::time::sleep(SECOND / 2).await;
    assert_eq!((upstream.calls(), upstream.bodies()), (1, 0));
    call.await.unwrap().unwrap();
}

/// By the design a failure *response* is an answer and may be repeated; where that is not so, `side_effects` says it.
#[tokio::test(start_paused = true)]
async fn p34_whether_a_request_may_be_repeated_decides() {
    for (builder, what, calls) in [
        (exact(), Do::Reset, 1),
        (exact().repeat_unanswered(true), Do::Reset, 2),
        (exact(), Do::Status(500), 2),
        (exact().side_effects(), Do::Status(500), 1),
    ] {
        let upstream = Upstream::new([what], Do::Status(200));
        let _ = send(builder, &upstream, post()).await;
        assert_eq!(upstream.calls(), calls);
    }
}

#[tokio::test(start_paused = true)]
async fn g1_g12_g13_v_i1_advice_is_read_in_all_its_forms() {
    assert_eq!(wait_after("retry-after", "7").await, Some(7_000));
    assert_eq!(wait_after("retry-after", "1.5").await, Some(1_500));
    assert_eq!(wait_after("retry-after-ms", "2500").await, Some(2_500));
    let dated = wait_after("retry-after", &http_date(SECOND * 30)).await.unwrap();
    assert!((28_000..=30_010).contains(&dated), "{dated}");
    // Half a second is honoured, as a floor.
    let upstream = Upstream::new([retry_after("0.5")], Do::Status(200));
    let quick = exact().backoff(Backoff::fixed(Duration::from_millis(10)).jitter(Jitter::None));
    send(quick, &upstream, get()).await.unwrap();
    assert!((500..510).contains(&upstream.times()[1]));
    // A call that ends with it carries what was read.
    let error =
        send(exact().max_retries(1), &Upstream::new([retry_after("7"), Do::Deny], Do::Deny), get()).await;
    assert_eq!(Fault::find(&*error.unwrap_err()).unwrap().retry_after(), Some(SECOND * 7));
}

#[tokio::test(start_paused = true)]
async fn g2_v_i2_v_i4_c61_what_cannot_be_read_or_is_over_leaves_our_own_back_off() {
    let past = http_date(Duration::ZERO);
    for value in [
        "-5",
        "0",
        "nan",
        "inf",
        "soon",
        "",
        "99:99",
        "Wed, 21 Oct 2015 07:28:00 GMT",
        "Sun, 01 Jan 0000 00:00:00 GMT",
        &past,
    ] {
        assert_eq!(wait_after("retry-after", value).await, Some(1_000), "{value}");
    }
}

#[tokio::test(start_paused = true)]
async fn g5_g6_v_i5_c56_c57_advice_beyond_the_bound_is_neither_slept_nor_asked_before() {
    for value in ["121", "2000", "86400", "1e400", "18446744073709551616"] {
        let upstream = Upstream::new([retry_after(value)], Do::Status(200));
        let began = Instant::now();
        let response = send(exact(), &upstream, get()).await.unwrap();
        assert_eq!((response.status().as_u16(), upstream.calls(), began.elapsed()), (429, 1, Duration::ZERO));
        assert_eq!(response.headers()["retry-after"], value);
    }
    assert_eq!(wait_after("retry-after", "120").await, Some(120_000));
}

#[tokio::test(start_paused = true)]
async fn v_i6_limits_that_are_placeholders_are_no_advice() {
    for (name, value) in [("x-ratelimit-reset-requests", "-1"), ("x-ratelimit-reset-tokens", "0")] {
        assert_eq!(wait_after(name, value).await, Some(1_000), "{name}");
    }
}

#[test]
fn g11_c46_c47_c50_c51_c52_every_wait_of_every_attempt_lies_between_floor_and_cap() {
    let cap = SECOND * 10;
    for backoff in [
        Backoff::exponential(SECOND * 2).jitter(Jitter::Proportional(0.5)),
        Backoff::exponential(SECOND).jitter(Jitter::Spread(SECOND * 30)),
        Backoff::exponential(SECOND),
        Backoff::linear(SECOND, Duration::MAX),
        Backoff::decorrelated(SECOND),
        Backoff::custom(|_| Duration::MAX),
    ] {
        let (backoff, rng) = (backoff.max(cap), Rng::seeded(5));
        for attempt in [1, 8, 22, 64, 1_024, 1_025, u32::MAX] {
            let waits: Vec<_> = (0..500).map(|_| backoff.delay(attempt, SECOND * 9, &rng)).collect();
            assert!(waits.iter().all(|wait| !wait.is_zero() && *wait <= cap), "{backoff:?} {attempt}");
            assert!(waits.iter().filter(|wait| **wait == cap).count() <= 5, "{backoff:?} {attempt}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c61_dropping_the_call_wins_over_everything() {
    let upstream = Upstream::new([], Do::Status(500));
    let call = send(exact().max_retries(u32::MAX).without_budget(), &upstream, get());
    assert!(timeout(SECOND * 5, call).await.is_err());
    let calls = upstream.calls();
    advance(SECOND * 600).await;
    tokio::task::yield_now().await;
    assert_eq!(upstream.calls(), calls);
}

#[tokio::test(start_paused = true)]
async fn c63_tokens_live_as_long_as_they_should_however_often_they_are_looked_at() {
    for step in [50, 101, 150, 999] {
        let builder = RetryBudget::builder().ratio(1.0).min_per_sec(0.0).ttl(SECOND * 10);
        let budget = builder.build().unwrap();
        // A steady stream: 100 calls a second for 20 s, and somebody who looks on each step.
        for _ in 0..20_000 / step {
            (0..step / 10).for_each(|_| budget.on_request());
            drop(budget.withdraw(Class::Transient));
            advance(Duration::from_millis(step)).await;
        }
        let held = (0..).take_while(|_| budget.try_withdraw(Class::Transient)).count();
        assert!((500..=1_300).contains(&held), "{step}: {held}");
    }
}

#[test]
fn c65_no_setting_wraps() {
    let named = |built: Result<RetryBudget, ConfigError>| built.unwrap_err().field();
    assert_eq!(named(RetryBudget::builder().min_per_sec(1e9).ttl(Duration::MAX).build()), "ttl");
    assert_eq!(named(RetryBudget::builder().initial(f64::MAX).build()), "initial");
    let most = RetryBudget::builder().ratio(1e3).min_per_sec(0.0).initial(1e9).cap(1e9).build().unwrap();
    (0..1_000).for_each(|_| most.on_request());
    assert!(most.try_withdraw(Class::Transient) && most.balance() <= 1e9);
}

#[tokio::test(start_paused = true)]
async fn c66_retries_count_from_the_moment_they_are_scheduled() {
    let budget = RetryBudget::builder().ratio(0.0).min_per_sec(0.0).initial(50.0).build().unwrap();
    let upstream = Upstream::new([], Do::Status(503));
    let service = exact().max_retries(1).budget(budget).build().unwrap().layer(upstream.clone());
    // A thousand fail at once, all before any of them has sent its retry.
    let calls: Vec<_> = (0..1_000).map(|_| tokio::spawn(service.clone().oneshot(get()))).collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(upstream.calls(), 1_050);
}

#[tokio::test(start_paused = true)]
async fn c67_that_all_fail_together_takes_nobodys_retry_away() {
    let upstream = Upstream::new((0..5).map(|_| Do::Status(503)), Do::Status(200));
    let service = exact().build().unwrap().layer(upstream.clone());
    let calls: Vec<_> = (0..5).map(|_| tokio::spawn(service.clone().oneshot(get()))).collect();
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().status(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn c70_an_empty_budget_refuses_before_the_sleep_and_keeps_the_cause() {
    let empty = RetryBudget::builder().ratio(0.0).min_per_sec(0.0).build().unwrap();
    let (call, began) = (Call::begin(), Instant::now());
    let error =
        call.scope(send(exact().budget(empty), &Upstream::new([], Do::Reset), get())).await.unwrap_err();
    assert!(error.is::<io::Error>());
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(call.trail().attempts().last().unwrap().next, Next::BudgetEmpty);
}

#[tokio::test(start_paused = true)]
async fn c71_a_budget_fills_again_whatever_fills_it() {
    let empty = || RetryBudget::builder().ratio(0.1).min_per_sec(0.0).initial(0.0);
    for builder in [empty(), empty().deposit_on(Deposit::PerSuccess), empty().ratio(0.0).min_per_sec(1.0)] {
        let budget = builder.build().unwrap();
        assert!(!budget.try_withdraw(Class::Transient));
        let upstream = Upstream::new([], Do::Status(200));
        let layer = exact().budget(budget.clone()).build().unwrap();
        for _ in 0..20 {
            layer.layer(upstream.clone()).oneshot(get()).await.unwrap();
        }
        advance(SECOND * 2).await;
        assert!(budget.try_withdraw(Class::Transient));
    }
}

#[tokio::test(start_paused = true)]
async fn c77_a_good_day_does_not_buy_an_outage_of_retries() {
    let throttle = RetryBudget::grpc_throttle(10.0, 1.0).unwrap();
    let capped = RetryBudget::builder().min_per_sec(0.0).cap(10.0).build().unwrap();
    for budget in [&throttle, &capped] {
        let layer = exact().budget(budget.clone()).build().unwrap();
        let upstream = Upstream::new([], Do::Status(200));
        for _ in 0..10_000 {
            layer.layer(upstream.clone()).oneshot(get()).await.unwrap();
        }
        assert_eq!(budget.balance(), 10.0);
    }
}

#[test]
fn c79_no_two_threads_get_the_same_token_and_what_is_dropped_goes_back_once() {
    let budget = RetryBudget::builder().ratio(0.0).min_per_sec(0.0).initial(100.0).build().unwrap();
    let granted: usize = std::thread::scope(|scope| {
        let race = || {
            let mut granted = 0;
            for i in 0..200 {
                if let Some(mut withdrawal) = budget.withdraw(Class::Transient) {
                    if i % 2 == 0 {
                        withdrawal.sent();
                        granted += 1;
                    }
                }
            }
            granted
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(race)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(granted as f64 + budget.balance(), 100.0);
}

#[tokio::test(start_paused = true)]
async fn g126_a_call_pays_in_once_and_a_refused_one_does_not() {
    let budget = RetryBudget::builder().ratio(1.0).min_per_sec(0.0).initial(0.0).build().unwrap();
    let upstream = Upstream::new([], Do::Status(200));
    let service = exact().budget(budget.clone()).build().unwrap().layer(upstream);
    service.clone().oneshot(get()).await.unwrap();
    assert_eq!(budget.balance(), 1.0);
    let late = Call::options().deadline(Instant::now()).begin();
    late.scope(service.oneshot(get())).await.unwrap_err();
    assert_eq!(budget.balance(), 1.0);
}
