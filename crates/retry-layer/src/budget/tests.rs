use std::{thread, time::Duration};

use failsoft_core::{Class, Limit};
use proptest::prelude::{Just, Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest};
use tokio::time::advance;

use super::{
    bucket::{Bucket, Cap, Rules, TOKEN},
    *,
};

fn withdraw_until_refused(budget: &RetryBudget) -> usize {
    (0..1_000_000).take_while(|_| budget.try_withdraw(Class::Transient)).count()
}

#[test]
fn any_ratio_holds_to_a_percent() {
    for ratio in [0.001, 0.01, 0.1, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9, 0.99, 1.0, 2.0] {
        let alternating = RetryBudget::builder().ratio(ratio).min_per_sec(0.0).cap(1e6).build().unwrap();
        let piled = RetryBudget::builder().ratio(ratio).min_per_sec(0.0).cap(1e6).build().unwrap();
        let mut granted = 0;
        for _ in 0..10_000 {
            piled.on_request();
            alternating.on_request();
            granted += usize::from(alternating.try_withdraw(Class::Transient));
        }
        let wanted = (ratio * 1e4).round() as usize;
        assert_eq!(withdraw_until_refused(&piled), wanted, "{ratio}");
        assert_eq!(granted, wanted.min(10_000), "{ratio}");
    }
}

#[test]
fn threads_never_overdraw_and_lose_nothing() {
    let budget = RetryBudget::builder().ratio(1.0).min_per_sec(0.0).build().unwrap();
    let granted: usize = thread::scope(|scope| {
        (0..100).for_each(|_| budget.on_request());
        let threads: Vec<_> = (0..16)
            .map(|_| scope.spawn(|| (0..100).filter(|_| budget.try_withdraw(Class::Transient)).count()))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(granted, 100);
}

#[test]
fn what_threads_deposit_is_all_there_whether_they_have_a_place_of_their_own_or_not() {
    let budget = RetryBudget::builder().ratio(1.0).min_per_sec(0.0).initial(0.0).cap(1e6).build().unwrap();
    // More threads at once than there are places.
    thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| (0..100).for_each(|_| budget.on_request()));
        }
    });
    assert_eq!(withdraw_until_refused(&budget), 5_000);
}

#[test]
fn deposits_without_end_do_not_overflow() {
    let budget = RetryBudget::builder().ratio(1e3).min_per_sec(0.0).build().unwrap();
    // Twice what fits.
    (0..2 * (i64::MAX / TOKEN) / 1_000).for_each(|_| budget.on_request());
    let balance = budget.balance();
    assert!((4e9..5e9).contains(&balance), "{balance}");
    assert!(budget.try_withdraw(Class::Transient));
}

#[tokio::test(start_paused = true)]
async fn the_default_gives_a_hundred_at_once_then_ten_a_second_and_a_fifth_of_the_calls() {
    let budget = RetryBudget::default();
    assert_eq!(withdraw_until_refused(&budget), 100);
    advance(Duration::from_secs(3)).await;
    assert_eq!(withdraw_until_refused(&budget), 30);
    (0..50).for_each(|_| budget.on_request());
    assert_eq!(withdraw_until_refused(&budget), 10);
}

#[tokio::test(start_paused = true)]
async fn a_good_day_does_not_buy_an_outage_of_retries() {
    let budget = RetryBudget::default();
    // 50 calls a second for an hour, one of which is retried now and then.
    for second in 0..3_600 {
        (0..50).for_each(|_| budget.on_request());
        if second % 7 == 0 {
            let _ = budget.try_withdraw(Class::Transient);
        }
        advance(Duration::from_secs(1)).await;
    }
    // 10 s of both: 10 a second, and a fifth of 50 a second.
    let granted = withdraw_until_refused(&budget);
    assert!((180..=230).contains(&granted), "{granted}");
}

#[tokio::test(start_paused = true)]
async fn the_tokens_of_a_busy_service_are_there_after_a_calm_without_retries() {
    let budget = RetryBudget::default();
    for _ in 0..60 {
        (0..1_000).for_each(|_| budget.on_request());
        advance(Duration::from_secs(1)).await;
    }
    let granted = withdraw_until_refused(&budget);
    assert!((2_000..=2_200).contains(&granted), "{granted}");
    // And they expire: a day later only the floor is left, and finding that out takes no time.
    (0..1_000).for_each(|_| budget.on_request());
    advance(Duration::from_secs(86_400)).await;
    assert!((100..=101).contains(&withdraw_until_refused(&budget)));
}

#[test]
fn a_full_outage_stops_the_retries_that_successes_pay() {
    let budget =
        RetryBudget::builder().deposit_on(Deposit::PerSuccess).min_per_sec(0.0).initial(5.0).build().unwrap();
    (0..1_000).for_each(|_| budget.on_request());
    assert_eq!(withdraw_until_refused(&budget), 5);
    (0..10).for_each(|_| budget.on_success());
    assert_eq!(withdraw_until_refused(&budget), 2);
}

#[test]
fn a_retry_costs_what_its_class_costs() {
    let timeout = Class::Timeout(Limit::Total);
    let budget = RetryBudget::builder()
        .min_per_sec(0.0)
        .initial(10.0)
        .cap(500.0)
        .cost(timeout, 4.0)
        .cost(Class::RateLimited, 0.5)
        .build()
        .unwrap();
    assert!(budget.try_withdraw(timeout));
    assert!(budget.try_withdraw(timeout));
    assert!(!budget.try_withdraw(timeout));
    assert!(budget.try_withdraw(Class::RateLimited));
    assert!((budget.balance() - 1.5).abs() < 1e-9);
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_is_not_sent_goes_back_exactly_and_is_no_deposit() {
    let budget = RetryBudget::default();
    let all: Vec<_> = (0..100).map(|_| budget.withdraw(Class::Transient).unwrap()).collect();
    assert!(budget.withdraw(Class::Transient).is_none());
    drop(all);
    assert_eq!(budget.balance(), 100.0);
    let mut sent = budget.withdraw(Class::Transient).unwrap();
    sent.sent();
    drop(sent);
    assert_eq!(budget.balance(), 99.0);
    let mut refused = budget.withdraw(Class::Transient).unwrap();
    refused.sent();
    refused.refund();
    assert_eq!(budget.balance(), 99.0);
    // Giving back a hundred times does not move the cap.
    for _ in 0..100 {
        drop(budget.withdraw(Class::Transient).unwrap());
        advance(Duration::from_millis(500)).await;
    }
    assert_eq!(withdraw_until_refused(&budget), 100);
}

#[test]
fn a_throttle_charges_the_failure_and_not_the_retry() {
    let throttle = RetryBudget::grpc_throttle(10.0, 0.1).unwrap();
    drop(throttle.withdraw(Class::Transient).unwrap());
    assert_eq!(throttle.balance(), 9.0);
}

#[test]
fn clones_are_the_same_budget() {
    let budget = RetryBudget::builder().min_per_sec(0.0).initial(1.0).build().unwrap();
    assert!(budget.clone().try_withdraw(Class::Transient));
    assert!(!budget.try_withdraw(Class::Transient));
}

#[test]
fn a_grpc_throttle_charges_each_failure_and_allows_above_a_half() {
    let throttle = RetryBudget::grpc_throttle(10.0, 0.1).unwrap();
    for left in [9.0, 8.0, 7.0, 6.0] {
        assert!(throttle.try_withdraw(Class::Transient));
        assert_eq!(throttle.balance(), left);
    }
    assert!(!throttle.try_withdraw(Class::Transient));
    for _ in 0..20 {
        throttle.on_failure();
    }
    assert_eq!(throttle.balance(), 0.0);
    (0..61).for_each(|_| throttle.on_success());
    assert!(throttle.try_withdraw(Class::Transient));
    assert!((throttle.balance() - 5.1).abs() < 1e-9);
    (0..1_000).for_each(|_| throttle.on_success());
    assert_eq!(throttle.balance(), 10.0);
}

#[test]
fn settings_that_cannot_work_are_named() {
    let builder = RetryBudget::builder;
    for (built, field) in [
        (builder().ratio(f64::NAN).build(), "ratio"),
        (builder().ratio(-0.1).build(), "ratio"),
        (builder().ratio(1000.5).build(), "ratio"),
        (builder().ratio(1e-12).build(), "ratio"),
        (builder().min_per_sec(-1.0).build(), "min_per_sec"),
        (builder().min_per_sec(f64::INFINITY).build(), "min_per_sec"),
        (builder().ttl(Duration::ZERO).build(), "ttl"),
        (builder().ttl(Duration::MAX).build(), "ttl"),
        (builder().initial(f64::NAN).build(), "initial"),
        (builder().cap(-1.0).build(), "cap"),
        (builder().initial(7.0).cap(5.0).build(), "initial"),
        (builder().cost(Class::Transient, f64::NAN).build(), "cost"),
        (RetryBudget::grpc_throttle(0.0, 0.1), "max_tokens"),
        (RetryBudget::grpc_throttle(10.0, -1.0), "token_ratio"),
    ] {
        let error = built.unwrap_err().to_string();
        assert!(error.contains("RetryBudget") && error.contains(&format!("`{field}`")), "{error}");
    }
}

#[derive(Clone, Debug)]
enum Op {
    Deposit,
    Withdraw { cost: i64, later: u64, refund: bool },
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        Just(Op::Deposit),
        (0..3 * TOKEN, 0..4_000_000_000u64, proptest::bool::ANY)
            .prop_map(|(cost, later, refund)| Op::Withdraw { cost, later, refund }),
    ]
}

proptest! {
    // Beside it the obvious bucket, which applies its cap to every deposit.
    #[test]
    fn the_lazy_cap_gives_what_an_eager_one_gives(
        ops in proptest::collection::vec(any_op(), 0..200),
        deposit in 0..3 * TOKEN,
        cap in 1..20 * TOKEN,
        trickle in 0.0..5.0f64,
    ) {
        let bucket = Bucket::new(Rules { deposit, initial: cap / 2, cap: Cap::Fixed(cap), trickle });
        let (mut model, mut now) = (cap / 2, 0);
        for op in ops {
            match op {
                Op::Deposit => {
                    bucket.deposit(Place::of_thread());
                    model = (model + deposit).min(cap);
                }
                Op::Withdraw { cost, later, refund } => {
                    now += later;
                    model = (model + (trickle * later as f64) as i64).min(cap);
                    let wanted = model >= cost;
                    model -= if wanted && !refund { cost } else { 0 };
                    prop_assert_eq!(bucket.withdraw(cost, now), wanted);
                    if wanted && refund {
                        bucket.refund(cost);
                    }
                }
            }
            prop_assert_eq!(bucket.balance(), model);
        }
    }

    #[test]
    fn a_cap_that_moves_never_makes_tokens(
        ops in proptest::collection::vec(any_op(), 0..200),
        deposit in 0..3 * TOKEN,
    ) {
        let base = 4 * TOKEN;
        let rules = Rules { deposit, initial: base, cap: Cap::Recent { base, span: 10_000_000_000 }, trickle: 0.0 };
        let bucket = Bucket::new(rules);
        let (mut most, mut now) = (base, 0);
        for op in ops {
            match op {
                Op::Deposit => {
                    bucket.deposit(Place::of_thread());
                    most += deposit;
                }
                Op::Withdraw { cost, later, refund } => {
                    now += later;
                    if bucket.withdraw(cost, now) {
                        if refund {
                            bucket.refund(cost);
                        } else {
                            most -= cost;
                        }
                    }
                }
            }
            prop_assert!((0..=most).contains(&bucket.balance()));
        }
    }
}
