//! When it opens: rates, counts and streaks, each with its own minimum, and what soft failures weigh.
#![cfg(not(failsoft_loom))]

use std::time::Duration;

use breaker_layer::engine::{Outcome, Over, Reason, Settings, SettingsBuilder, State, Weight};

use crate::bench::Bench;

const SOFT: Outcome = Outcome::Failure { weight: Weight::SOFT, advice: None };
const LIMIT: Duration = Duration::from_secs(4);

/// Only the rules that a test adds.
fn rules() -> SettingsBuilder {
    Settings::builder().failure_rate(None).over(Over::Calls(200))
}

/// The number of the call, from 1, whose outcome opened it, and why.
fn opened_at(
    settings: SettingsBuilder,
    outcomes: impl IntoIterator<Item = (Outcome, Duration)>,
) -> Option<(u32, Reason)> {
    let bench = Bench::new(settings);
    (1..).zip(outcomes).find_map(|(number, (outcome, took))| {
        let permit = bench.acquire().expect("closed until now");
        let told = bench.settle(permit, outcome, took).into_iter().next()?;
        assert_eq!(told.to, State::Open);
        Some((number, told.reason))
    })
}

fn quick(outcomes: &[Outcome]) -> impl Iterator<Item = (Outcome, Duration)> {
    outcomes.iter().map(|outcome| (*outcome, Duration::ZERO)).cycle().take(200)
}

#[test]
fn each_rule_has_a_minimum_of_its_own() {
    let rate = rules().failure_rate(0.4).min_calls(7).slow_min_calls(1).soft_min_calls(1);
    assert_eq!(opened_at(rate, quick(&[Outcome::FAILURE])), Some((7, Reason::FailureRate)));
    let soft = rules().soft_failure_rate(0.5).min_calls(1).soft_min_calls(9);
    assert_eq!(opened_at(soft, quick(&[SOFT])), Some((9, Reason::SoftFailureRate)));
    let slow = rules().slow_after(LIMIT).slow_rate(0.5).min_calls(1).slow_min_calls(8);
    let late = [(Outcome::Success, LIMIT * 2)].into_iter().cycle().take(20);
    assert_eq!(opened_at(slow, late), Some((8, Reason::SlowRate)));
    let count = rules().failures(2).failures_min_calls(6);
    assert_eq!(opened_at(count, quick(&[Outcome::FAILURE])), Some((6, Reason::Failures)));
    let streak = rules().consecutive_failures(2).consecutive_min_calls(5);
    assert_eq!(opened_at(streak, quick(&[Outcome::FAILURE])), Some((5, Reason::ConsecutiveFailures)));
}

#[test]
fn counts_and_streaks_need_no_minimum_unless_told() {
    assert_eq!(opened_at(rules().failures(2), quick(&[Outcome::FAILURE])), Some((2, Reason::Failures)));
    let streak = rules().consecutive_failures(3).min_calls(100);
    assert_eq!(opened_at(streak, quick(&[Outcome::FAILURE])), Some((3, Reason::ConsecutiveFailures)));
}

#[test]
fn soft_failures_weigh_less_in_counts_and_streaks() {
    // 0.6 each: five are three
    assert_eq!(opened_at(rules().failures(3), quick(&[SOFT])), Some((5, Reason::Failures)));
    assert_eq!(
        opened_at(rules().consecutive_failures(3), quick(&[SOFT])),
        Some((5, Reason::ConsecutiveFailures))
    );
    // a hard one and two soft ones are 2.2
    let mixed = [Outcome::FAILURE, SOFT, SOFT, SOFT];
    assert_eq!(opened_at(rules().failures(2), quick(&mixed)), Some((3, Reason::Failures)));
}

#[test]
fn soft_failures_can_have_thresholds_of_their_own() {
    // one in four is wrong: 15 % by weight, but 25 % by number
    let one_in_four = [SOFT, Outcome::Success, Outcome::Success, Outcome::Success];
    let by_weight = rules().failure_rate(0.2);
    assert_eq!(opened_at(by_weight.clone(), quick(&one_in_four)), None);
    let by_number = by_weight.soft_failure_rate(0.25).soft_min_calls(20);
    assert_eq!(opened_at(by_number, quick(&one_in_four)), Some((20, Reason::SoftFailureRate)));
    assert_eq!(opened_at(rules().soft_failures(4), quick(&[SOFT])), Some((4, Reason::SoftFailures)));
    // hard ones are not soft
    let soft_only = rules().soft_failures(1).soft_failure_rate(0.1);
    assert_eq!(opened_at(soft_only, quick(&[Outcome::FAILURE])), None);
}

#[test]
fn soft_failures_are_told_beside_the_others() {
    let bench = Bench::new(rules().failures(100).min_calls(4));
    for outcome in [SOFT, SOFT, Outcome::FAILURE, Outcome::Success] {
        bench.call(outcome);
    }
    let counts = bench.engine.snapshot(bench.now).0.counts;
    assert_eq!((counts.total, counts.failed, counts.soft), (4, 3, 2));
    assert_eq!(counts.soft_failure_rate, Some(0.5));
    assert!((counts.failed_weight - 2.2).abs() < 1e-9);
}

#[test]
fn a_p99_over_its_limit_opens_and_one_at_its_limit_does_not() {
    let p99 = || rules().slow_quantile(0.99, LIMIT).slow_min_calls(100);
    let calls = |slow: &'static [u32]| {
        (1..=200).map(|call| (Outcome::Success, if slow.contains(&call) { LIMIT * 2 } else { LIMIT }))
    };
    // of 100 calls the 99th is the p99: one slow call is above it, the second is it
    assert_eq!(opened_at(p99(), calls(&[7])), None);
    assert_eq!(opened_at(p99(), calls(&[7, 50])), Some((100, Reason::SlowRate)));
    assert_eq!(opened_at(p99(), calls(&[7, 150])), Some((150, Reason::SlowRate)));
    assert_eq!(opened_at(p99(), calls(&[7, 200])), None, "two of two hundred");
}

#[test]
fn a_minimum_above_the_calls_that_run_at_once_is_not_fooled_by_failures_that_end_first() {
    // 50 calls begin together; 8 fail at once, the others answer later: 16 %, and yet the first 8 outcomes
    let burst = |min_calls| {
        let bench = Bench::new(Settings::builder().failure_rate(0.4).min_calls(min_calls));
        let mut running: Vec<_> = (0..50).map(|_| bench.acquire().unwrap()).collect();
        for outcome in [[Outcome::FAILURE; 8].as_slice(), &[Outcome::Success; 42]].concat() {
            let _ = bench.settle(running.pop().unwrap(), outcome, Duration::ZERO);
        }
        bench.state()
    };
    assert_eq!(burst(51), State::Closed);
    assert_eq!(burst(8), State::Open, "what the documentation of the minimum warns of");
}
