//! Every interleaving of the word, and of a transition with its first probe.
//!
//! `RUSTFLAGS="--cfg failsoft_loom" cargo test --release -p breaker-layer --lib loom`

use std::time::Duration;

use loom::sync::Arc;
use loom::thread;
use tokio::time::Instant;

use super::{Engine, Outcome, Over, Probes, Settings, State};

fn engine(start: Instant, probes: u32) -> Arc<Engine> {
    with(start, Probes::Successes { probes, to_close: probes })
}

fn with(start: Instant, probes: Probes) -> Arc<Engine> {
    let settings = Settings::builder()
        .over(Over::Calls(2))
        .min_calls(2)
        .failure_rate(1.0)
        .soft_alone_may_not_open()
        .open_time(Duration::from_secs(1))
        .probes(probes)
        .jitter(0.0)
        .seed(1)
        .build()
        .unwrap();
    Arc::new(Engine::new(settings, start))
}

fn check(test: impl Fn(Instant) + Sync + Send + 'static) {
    let start = Instant::now();
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.or(Some(3));
    model.check(move || test(start));
}

#[test]
fn of_two_callers_at_the_deadline_one_gets_the_only_probe() {
    check(|start| {
        let engine = engine(start, 1);
        let _ = engine.open(None, start);
        let later = start + Duration::from_secs(1);
        let ask = move |engine: Arc<Engine>| {
            let acquired = engine.acquire(|| later);
            (acquired.admission.is_ok(), acquired.changes.into_iter().count())
        };
        let other = thread::spawn({
            let engine = engine.clone();
            move || ask(engine)
        });
        let (mine, told) = ask(engine.clone());
        let (others, also_told) = other.join().unwrap();
        assert!(mine != others, "exactly one");
        assert_eq!(told + also_told, 1);
        assert_eq!(engine.snapshot(later).0.probes, 1);
    });
}

#[test]
fn with_two_probes_neither_caller_at_the_deadline_is_refused() {
    check(|start| {
        let engine = engine(start, 2);
        let _ = engine.open(None, start);
        let later = start + Duration::from_secs(1);
        let other = thread::spawn({
            let engine = engine.clone();
            move || engine.acquire(|| later).admission.is_ok()
        });
        assert!(engine.acquire(|| later).admission.is_ok());
        assert!(other.join().unwrap());
    });
}

#[test]
fn a_success_that_changes_nothing_and_a_failure_leave_exact_counts() {
    check(|start| {
        let engine = engine(start, 1);
        let call = |engine: &Engine, outcome| {
            let permit = engine.acquire(|| start).admission.unwrap();
            engine.settle(permit, outcome, Duration::ZERO, || start)
        };
        // full of successes: clean
        let _ = (call(&engine, Outcome::Success), call(&engine, Outcome::Success));
        let other = thread::spawn({
            let engine = engine.clone();
            move || {
                let permit = engine.acquire(|| start).admission.unwrap();
                drop(engine.settle(permit, Outcome::FAILURE, Duration::ZERO, || start));
            }
        });
        let _ = call(&engine, Outcome::Success);
        other.join().unwrap();
        let counts = engine.snapshot(start).0.counts;
        assert_eq!((counts.total, counts.failed), (2, 1));
        // and the word knows: two more successes push the failure out
        let _ = (call(&engine, Outcome::Success), call(&engine, Outcome::Success));
        assert_eq!(engine.snapshot(start).0.counts.failed, 0);
    });
}

#[test]
fn two_failures_at_once_open_it_once() {
    check(|start| {
        let engine = engine(start, 1);
        let permits =
            (engine.acquire(|| start).admission.unwrap(), engine.acquire(|| start).admission.unwrap());
        let other = thread::spawn({
            let (engine, permit) = (engine.clone(), permits.0);
            move || engine.settle(permit, Outcome::FAILURE, Duration::ZERO, || start).into_iter().count()
        });
        let told = engine.settle(permits.1, Outcome::FAILURE, Duration::ZERO, || start).into_iter().count();
        assert_eq!(told + other.join().unwrap(), 1);
        assert_eq!(engine.state(), State::Open);
        assert!(engine.acquire(|| start).admission.is_err());
    });
}

#[test]
fn a_probe_given_back_while_another_is_asked_for_is_never_two() {
    check(|start| {
        let engine = engine(start, 1);
        let _ = engine.half_open(start);
        let probe = engine.acquire(|| start).admission.unwrap();
        let other = thread::spawn({
            let engine = engine.clone();
            move || engine.acquire(|| start).admission
        });
        let _ = engine.settle(probe, Outcome::Neutral, Duration::ZERO, || start);
        let got = other.join().unwrap();
        let next = engine.acquire(|| start).admission;
        assert!(got.is_ok() != next.is_ok(), "the slot is there once");
        assert_eq!(engine.snapshot(start).0.probes, 1);
    });
}

#[test]
fn of_three_callers_a_canary_of_one_in_two_takes_two() {
    check(|start| {
        let engine = with(start, Probes::Canary { one_in: 2, calls: 3, good: 1.0 });
        let _ = engine.open(None, start);
        let later = start + Duration::from_secs(1);
        let ask = move |engine: &Engine| u32::from(engine.acquire(|| later).admission.is_ok());
        let other = thread::spawn({
            let engine = engine.clone();
            move || ask(&engine) + ask(&engine)
        });
        let admitted = ask(&engine) + other.join().unwrap();
        assert_eq!((admitted, engine.snapshot(later).0.probes), (2, 2));
    });
}

#[test]
fn a_good_last_resort_call_and_the_first_probe_leave_one_state() {
    check(|start| {
        let engine = engine(start, 1);
        for _ in 0..2 {
            let permit = engine.acquire(|| start).admission.unwrap();
            let _ = engine.settle(permit, Outcome::FAILURE, Duration::ZERO, || start);
        }
        let later = start + Duration::from_secs(1);
        let last_resort = engine.acquire_as_last_resort(|| start).admission.unwrap();
        let other = thread::spawn({
            let engine = engine.clone();
            move || {
                let permit = engine.acquire(|| later).admission.ok();
                permit.map(|permit| permit.is_probe())
            }
        });
        let closed = !engine.settle(last_resort, Outcome::Success, Duration::ZERO, || start).is_empty();
        // closed before the caller came, who then is no probe; or half-open, and too late to decide
        assert_eq!(other.join().unwrap(), Some(!closed));
        assert_eq!(engine.state(), if closed { State::Closed } else { State::HalfOpen });
    });
}

#[test]
fn an_outcome_and_a_reset_leave_nothing_of_before() {
    check(|start| {
        let engine = engine(start, 1);
        let permit = engine.acquire(|| start).admission.unwrap();
        let other = thread::spawn({
            let engine = engine.clone();
            move || drop(engine.settle(permit, Outcome::FAILURE, Duration::ZERO, || start))
        });
        let _ = engine.reset(start);
        other.join().unwrap();
        assert_eq!(engine.snapshot(start).0.counts.total, 0);
    });
}

/// Where successes are only counted, until a rule could be met by one.
fn since_entered(start: Instant) -> Arc<Engine> {
    let settings = Settings::builder()
        .over(Over::SinceEntered)
        .min_calls(3)
        .failure_rate(0.3)
        .jitter(0.0)
        .seed(1)
        .build()
        .unwrap();
    let engine = Arc::new(Engine::new(settings, start));
    settle(&engine, Outcome::Success, start);
    engine
}

fn settle(engine: &Engine, outcome: Outcome, now: Instant) {
    let permit = engine.acquire(|| now).admission.unwrap();
    let _ = engine.settle(permit, outcome, Duration::ZERO, || now);
}

#[test]
fn successes_that_are_only_counted_and_a_reader_leave_exact_counts() {
    check(|start| {
        let engine = since_entered(start);
        let other = thread::spawn({
            let engine = engine.clone();
            move || (0..2).for_each(|_| settle(&engine, Outcome::Success, start))
        });
        settle(&engine, Outcome::Success, start);
        let seen = engine.snapshot(start).0.counts.total;
        assert!((2..=4).contains(&seen), "its own are there at once");
        settle(&engine, Outcome::Success, start);
        other.join().unwrap();
        assert_eq!(engine.snapshot(start).0.counts.total, 5);
    });
}

#[test]
fn a_success_that_meets_a_rule_meets_it_at_once_whoever_fails_meanwhile() {
    check(|start| {
        let engine = since_entered(start);
        let permits =
            (engine.acquire(|| start).admission.unwrap(), engine.acquire(|| start).admission.unwrap());
        let other = thread::spawn({
            let (engine, permit) = (engine.clone(), permits.0);
            move || drop(engine.settle(permit, Outcome::FAILURE, Duration::ZERO, || start))
        });
        let _ = engine.settle(permits.1, Outcome::Success, Duration::ZERO, || start);
        other.join().unwrap();
        assert_eq!(engine.state(), State::Open, "one of three, in either order");
    });
}

#[test]
fn a_success_that_is_only_counted_and_a_reset_leave_nothing_of_before() {
    check(|start| {
        let engine = since_entered(start);
        let permit = engine.acquire(|| start).admission.unwrap();
        let other = thread::spawn({
            let engine = engine.clone();
            move || drop(engine.settle(permit, Outcome::Success, Duration::ZERO, || start))
        });
        let _ = engine.reset(start);
        settle(&engine, Outcome::Success, start);
        other.join().unwrap();
        assert_eq!(engine.snapshot(start).0.counts.total, 1);
    });
}

#[test]
fn a_failure_among_successes_that_are_only_counted_keeps_its_place() {
    check(|start| {
        let engine = engine(start, 1);
        // full, and not of successes alone
        settle(&engine, Outcome::FAILURE, start);
        settle(&engine, Outcome::Success, start);
        let other = thread::spawn({
            let engine = engine.clone();
            move || settle(&engine, Outcome::FAILURE, start)
        });
        settle(&engine, Outcome::Success, start);
        other.join().unwrap();
        let counts = engine.snapshot(start).0.counts;
        assert_eq!((counts.total, counts.failed), (2, 1));
    });
}
