//! What `build()` refuses, and that it says why.
#![cfg(not(failsoft_loom))]

use std::time::Duration;

use breaker_layer::engine::{Engine, Outcome, Over, Probes, Settings, SettingsBuilder, State};

const FOREVER: Duration = Duration::MAX;

#[track_caller]
fn refused(settings: SettingsBuilder, field: &str) {
    let error = settings.build().expect_err(field).to_string();
    assert!(error.contains(field), "`{error}` does not name {field}");
}

fn defaults() -> SettingsBuilder {
    Settings::builder()
}

#[test]
fn the_defaults_are_right() {
    assert!(defaults().build().is_ok());
}

#[test]
fn no_number_that_is_none() {
    for nonsense in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.1, 1.1] {
        refused(defaults().failure_rate(nonsense), "failure_rate");
        refused(defaults().slow_after(Duration::from_secs(1)).slow_rate(nonsense), "slow_rate");
        refused(defaults().soft_weight(nonsense), "soft_weight");
        refused(defaults().jitter(nonsense), "jitter");
        refused(defaults().probes(Probes::Ratio { probes: 3, good: nonsense }), "probes");
    }
    for nonsense in [f64::NAN, f64::INFINITY, -2.0, 0.5, 1e9] {
        refused(defaults().open_time_factor(nonsense), "open_time_factor");
    }
}

#[test]
fn a_share_too_small_to_be_told_from_none_is_not_none() {
    // as none it was reached by the first success, and a target that is well was shut
    let start = tokio::time::Instant::now();
    let tiny = defaults().over(Over::Calls(10)).min_calls(1).failure_rate(f64::MIN_POSITIVE);
    let engine = Engine::new(tiny.build().unwrap(), start);
    for (outcome, state) in [(Outcome::Success, State::Closed), (Outcome::FAILURE, State::Open)] {
        let permit = engine.acquire(|| start).admission.unwrap();
        let _ = engine.settle(permit, outcome, Duration::ZERO, || start);
        assert_eq!(engine.state(), state);
    }
}

#[test]
fn no_zero_that_means_nothing() {
    refused(defaults().over(Over::Calls(0)), "over");
    refused(defaults().over(Over::Time { span: Duration::ZERO, buckets: 10 }), "over");
    refused(defaults().over(Over::Time { span: Duration::from_secs(60), buckets: 0 }), "over");
    refused(defaults().probes(Probes::Ratio { probes: 0, good: 0.5 }), "probes");
    refused(defaults().probes(Probes::Failures { probes: 3, to_open: 0 }), "to_open");
    refused(defaults().failures(0), "failures");
    refused(defaults().consecutive_failures(0), "consecutive_failures");
    refused(defaults().lease(Duration::ZERO), "lease");
    refused(defaults().rate_limited_in_a_row(0), "rate_limited_in_a_row");
    refused(defaults().soft_weight(0.0), "soft_weight");
    refused(defaults().open_times([]), "open_times");
    assert!(defaults().open_time(Duration::ZERO).build().is_ok(), "an open time of 0 means something");
    assert!(defaults().failure_rate(0.0).build().is_ok());
}

#[test]
fn nothing_too_large() {
    // P4: the largest integer panicked at the first recovery
    for probes in [u32::MAX, 1_000_001] {
        refused(defaults().probes(Probes::Ratio { probes, good: 0.5 }), "probes");
        refused(defaults().probes(Probes::Failures { probes, to_open: 1 }), "probes");
        refused(defaults().probes(Probes::Successes { probes, to_close: 1 }), "probes");
    }
    refused(defaults().over(Over::Calls(u32::MAX)), "over");
    refused(defaults().over(Over::Time { span: FOREVER, buckets: 10 }), "over");
    refused(defaults().open_time(FOREVER), "open_time");
    refused(defaults().max_open_time(FOREVER), "max_open_time");
    refused(defaults().at_once_open_time(FOREVER), "at_once_open_time");
    refused(defaults().lease(FOREVER), "lease");
    refused(defaults().open_times([FOREVER]), "open_times");
    refused(defaults().hold_from(FOREVER), "hold_from");
    refused(defaults().max_advice(FOREVER), "max_advice");
    refused(defaults().slow_after(FOREVER), "slow_after");
    refused(defaults().last_resort(u32::MAX), "last_resort");
}

#[test]
fn no_contradictions() {
    refused(defaults().probes(Probes::Successes { probes: 2, to_close: 3 }), "to_close");
    refused(defaults().probes(Probes::Failures { probes: 2, to_open: 3 }), "to_open");
    refused(defaults().slow_rate(0.5), "slow_rate");
    refused(defaults().slow_probes_to_open(1), "slow_probes_to_open");
    refused(defaults().slow_after(Duration::from_secs(1)).slow_probes_to_open(4), "slow_probes_to_open");
    refused(defaults().failure_rate(None), "failure_rate");
    refused(defaults().over(Over::Calls(5)).failures(6), "failures");
    let minute = Duration::from_secs(60);
    refused(defaults().open_time(minute).max_open_time(minute / 2), "max_open_time");
    refused(defaults().open_times([minute, minute * 2]).max_open_time(minute), "max_open_time");
}

#[test]
fn no_quantile_that_the_minimum_or_the_window_could_not_see() {
    let limit = Duration::from_secs(4);
    let p99 = || defaults().slow_quantile(0.99, limit);
    refused(p99(), "slow_min_calls");
    refused(p99().slow_min_calls(99), "slow_min_calls");
    refused(p99().slow_min_calls(100).over(Over::Calls(99)), "slow_min_calls");
    assert!(p99().slow_min_calls(100).build().is_ok());
    assert!(p99().min_calls(100).build().is_ok(), "the minimum of all rates is that of this one too");
    assert!(defaults().slow_quantile(0.9, limit).build().is_ok());
    for nonsense in [0.0, 1.0, -0.5, 1.5, f64::NAN, f64::INFINITY] {
        refused(defaults().slow_quantile(nonsense, limit), "slow_quantile");
    }
    refused(defaults().slow_quantile(0.9, FOREVER), "slow_quantile");
    refused(defaults().slow_quantile(0.9, limit).slow_after(limit), "slow_quantile");
    refused(defaults().slow_quantile(0.9, limit).slow_after(limit).slow_rate(0.5), "slow_quantile");
    assert_eq!(defaults().slow_quantile(0.9, limit).build().unwrap().slow_after(), Some(limit));
    assert!(defaults().slow_quantile(0.9, limit).slow_probes_to_open(1).build().is_ok());
}

#[test]
fn no_canary_of_nothing() {
    refused(defaults().probes(Probes::Canary { one_in: 0, calls: 4, good: 0.5 }), "one_in");
    refused(defaults().probes(Probes::Canary { one_in: u32::MAX, calls: 4, good: 0.5 }), "one_in");
    refused(defaults().probes(Probes::Canary { one_in: 20, calls: 0, good: 0.5 }), "calls");
    refused(defaults().probes(Probes::Canary { one_in: 20, calls: u32::MAX, good: 0.5 }), "calls");
    refused(defaults().probes(Probes::Canary { one_in: 20, calls: 4, good: 1.5 }), "good");
    assert!(defaults().probes(Probes::Canary { one_in: 1, calls: 1, good: 1.0 }).build().is_ok());
}

#[test]
fn no_rules_for_soft_failures_that_contradict_themselves() {
    refused(defaults().soft_failure_rate(1.5), "soft_failure_rate");
    refused(defaults().soft_failures(0), "soft_failures");
    refused(defaults().over(Over::Calls(5)).soft_failures(6), "soft_failures");
    refused(defaults().soft_weight(1.0).soft_failures(3), "soft_weight");
    assert!(defaults().failure_rate(None).soft_failures(3).build().is_ok(), "a rule like any other");
    assert!(defaults().failure_rate(0.7).soft_failure_rate(0.5).build().is_ok(), "they open by their own");
}

#[test]
fn no_threshold_that_soft_failures_alone_could_never_reach_unless_told() {
    refused(defaults().failure_rate(0.7), "failure_rate");
    refused(defaults().over(Over::Calls(10)).failures(7), "failures");
    assert!(defaults().failure_rate(0.6).build().is_ok());
    assert!(defaults().over(Over::Calls(10)).failures(6).build().is_ok());
    assert!(defaults().failure_rate(0.7).soft_alone_may_not_open().build().is_ok());
    assert!(defaults().failure_rate(0.7).soft_weight(0.7).build().is_ok());
}
