//! Half-open as a share of the live traffic.
#![cfg(not(failsoft_loom))]

use std::time::Duration;

use breaker_layer::engine::{Mode, Outcome, Permit, Probes, Reason, SettingsBuilder, State};

use crate::bench::{Bench, advice, touchy};

/// Opens at the first failure, for 1 s; then 5 % of the calls decide, by 4 of which at least half must be good.
fn canary() -> SettingsBuilder {
    touchy().probes(Probes::Canary { one_in: 20, calls: 4, good: 0.5 })
}

/// Just half-open.
fn bench() -> Bench {
    let mut bench = Bench::new(canary());
    bench.call(Outcome::FAILURE);
    bench.at(1_000);
    bench
}

/// So many calls ask; those that may go.
fn ask(bench: &Bench, calls: usize) -> Vec<(usize, Permit)> {
    (0..calls).filter_map(|call| Some((call, bench.acquire()?))).collect()
}

#[test]
fn the_first_call_is_let_through_and_then_each_twentieth() {
    let bench = bench();
    let admitted: Vec<_> = ask(&bench, 61).into_iter().map(|(call, _)| call).collect();
    assert_eq!(admitted, [0, 20, 40, 60]);
    assert_eq!(bench.state(), State::HalfOpen);
    assert_eq!(bench.engine.snapshot(bench.now).0.counts.refused, 57, "the others are refused");
}

#[test]
fn the_first_call_is_let_through_also_when_it_was_half_opened_by_hand() {
    let bench = Bench::new(canary());
    assert!(bench.engine.half_open(bench.now).is_ok());
    let admitted: Vec<_> = ask(&bench, 21).into_iter().map(|(call, _)| call).collect();
    assert_eq!(admitted, [0, 20]);
}

#[test]
fn no_more_run_at_once_than_decide() {
    let bench = bench();
    let mut running = ask(&bench, 1_000);
    assert_eq!(running.len(), 4);
    let (_, back) = running.pop().unwrap();
    let _ = bench.settle(back, Outcome::Neutral, Duration::ZERO);
    assert_eq!(ask(&bench, 1_000).len(), 1, "what says nothing gives its place to another");
}

#[test]
fn it_is_decided_by_its_own_share_as_early_as_that_is_certain() {
    let outcomes = |all: &[Outcome]| {
        let bench = bench();
        for outcome in all {
            let permit = ask(&bench, 20).pop().expect("one in twenty").1;
            assert_eq!(bench.state(), State::HalfOpen);
            let _ = bench.settle(permit, *outcome, Duration::ZERO);
        }
        bench.state()
    };
    use Outcome::Success as Good;
    const BAD: Outcome = Outcome::FAILURE;
    assert_eq!(outcomes(&[Good]), State::HalfOpen);
    assert_eq!(outcomes(&[Good, Good]), State::Closed, "half of four");
    assert_eq!(outcomes(&[BAD, Good, BAD]), State::HalfOpen);
    assert_eq!(outcomes(&[BAD, Good, BAD, Good]), State::Closed);
    assert_eq!(outcomes(&[BAD, BAD, BAD]), State::Open);
}

#[test]
fn asking_whether_it_would_refuse_is_no_call() {
    let bench = bench();
    (0..100).for_each(|_| assert_eq!(bench.engine.would_refuse(|| bench.now), None));
    assert_eq!(ask(&bench, 1).len(), 1);
}

#[test]
fn it_waits_for_traffic_as_long_as_it_takes_but_not_for_a_lost_call() {
    let mut bench = bench();
    let (_, first) = ask(&bench, 1).pop().unwrap();
    let _ = bench.settle(first, Outcome::FAILURE, Duration::ZERO);
    assert_eq!(bench.at(86_400_000).state(), State::HalfOpen, "nobody calls");
    let lost = ask(&bench, 20).pop().unwrap();
    assert_eq!(bench.at(86_409_999).state(), State::HalfOpen);
    assert_eq!(bench.at(86_410_000).state(), State::Open, "the lease began with the call");
    let _ = lost;
}

#[test]
fn each_result_renews_the_lease() {
    let mut bench = bench();
    let mut running = ask(&bench, 41);
    for t in [10_000, 19_000] {
        let (_, permit) = running.pop().unwrap();
        let _ = bench.at(t).settle(permit, Outcome::FAILURE, Duration::ZERO);
        assert_eq!(bench.time_left(), advice(10));
    }
    assert_eq!(bench.at(28_999).state(), State::HalfOpen);
    assert_eq!(bench.at(29_000).state(), State::Open);
}

#[test]
fn an_advisory_canary_lets_the_others_through_without_a_say() {
    let mut bench = Bench::new(canary().mode(Mode::Advisory));
    bench.call(Outcome::FAILURE);
    bench.at(1_000);
    let all = ask(&bench, 40);
    assert_eq!(all.len(), 40);
    assert_eq!(all.iter().filter(|(_, permit)| permit.is_probe()).count(), 2);
    for (_, permit) in all {
        let outcome = if permit.is_probe() { Outcome::Success } else { Outcome::FAILURE };
        let _ = bench.settle(permit, outcome, Duration::ZERO);
    }
    let snapshot = bench.engine.snapshot(bench.now).0;
    assert_eq!((snapshot.state, snapshot.reason), (State::Closed, Some(Reason::ProbesGood)));
}
