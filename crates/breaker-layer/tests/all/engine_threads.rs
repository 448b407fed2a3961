//! Real threads: bounds that hold whatever the interleaving.
#![cfg(not(failsoft_loom))]

use std::sync::Barrier;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use breaker_layer::engine::{Engine, Outcome, Over, Probes, Settings, State};
use tokio::time::Instant;

const PROBES: u32 = 3;

fn engine(start: Instant) -> Engine {
    let settings = Settings::builder()
        .over(Over::Calls(10))
        .min_calls(4)
        .failure_rate(0.5)
        .open_time(Duration::from_secs(1))
        .open_time_factor(1.0)
        .probes(Probes::Failures { probes: PROBES, to_open: 2 })
        // A thread that holds a probe may be kept waiting while the others, refused, move the clock by minutes.
        .lease(Duration::from_secs(365 * 86_400))
        .jitter(0.0)
        .build()
        .unwrap();
    Engine::new(settings, start)
}

#[test]
fn a_thousand_callers_at_the_moment_of_half_open_get_three_probes_and_one_transition() {
    // C4, C5, C9, C17, C21: admission looked at completions
    let start = Instant::now();
    let later = start + Duration::from_secs(1);
    for _ in 0..20 {
        let engine = engine(start);
        let _ = engine.open(None, start);
        let gate = Barrier::new(8);
        let (admitted, told) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    gate.wait();
                    for _ in 0..125 {
                        let acquired = engine.acquire(|| later);
                        told.fetch_add(acquired.changes.into_iter().count() as u64, Ordering::Relaxed);
                        // never settled: every one still runs
                        admitted.fetch_add(u64::from(acquired.admission.is_ok()), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(admitted.into_inner(), u64::from(PROBES));
        assert_eq!(told.into_inner(), 1);
        assert_eq!(engine.snapshot(later).0.counts.refused, 997);
    }
}

#[test]
fn a_canary_takes_one_in_twenty_of_a_thousand_callers_and_never_more_than_decide() {
    let start = Instant::now();
    for (calls, admitted_in_all) in [(1_000, 50), (8, 8)] {
        let canary = Probes::Canary { one_in: 20, calls, good: 0.9 };
        let settings = Settings::builder().open_time(Duration::ZERO).probes(canary).build().unwrap();
        let engine = Engine::new(settings, start);
        let _ = engine.open(None, start);
        let gate = Barrier::new(8);
        let admitted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    gate.wait();
                    for _ in 0..125 {
                        let acquired = engine.acquire(|| start);
                        admitted.fetch_add(u64::from(acquired.admission.is_ok()), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(admitted.into_inner(), admitted_in_all);
    }
}

#[test]
fn last_resort_calls_of_many_threads_close_once_and_never_run_beyond_their_number() {
    let start = Instant::now();
    let engine = engine(start);
    let (running, told) = (AtomicI64::new(0), AtomicU64::new(0));
    let gate = Barrier::new(4);
    for _ in 0..200 {
        let now = start;
        let _ = engine.reset(now);
        for _ in 0..4 {
            let permit = engine.acquire(|| now).admission.unwrap();
            let _ = engine.settle(permit, Outcome::FAILURE, Duration::ZERO, || now);
        }
        assert_eq!(engine.state(), State::Open);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    gate.wait();
                    for _ in 0..10 {
                        let Ok(permit) = engine.acquire_as_last_resort(|| now).admission else { continue };
                        if engine.state() == State::Open {
                            assert!(running.fetch_add(1, Ordering::SeqCst) < 3);
                            running.fetch_sub(1, Ordering::SeqCst);
                        }
                        let changes = engine.settle(permit, Outcome::Success, Duration::ZERO, || now);
                        told.fetch_add(changes.into_iter().count() as u64, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(engine.state(), State::Closed);
    }
    assert_eq!(told.into_inner(), 200, "one transition each time");
}

#[test]
fn never_more_than_n_probes_run_and_every_step_is_told_once() {
    let start = Instant::now();
    let engine = engine(start);
    // the threads share a clock that only goes on, so that circuits open and close many times
    let clock = AtomicU64::new(0);
    let running = AtomicI64::new(0);
    let told = AtomicU64::new(0);
    let gate = Barrier::new(4);
    std::thread::scope(|scope| {
        for seed in 0..4_u64 {
            let (engine, clock, running, told, gate) = (&engine, &clock, &running, &told, &gate);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                gate.wait();
                for _ in 0..20_000 {
                    let now = || start + Duration::from_millis(clock.fetch_add(1, Ordering::Relaxed));
                    let acquired = engine.acquire(now);
                    told.fetch_add(acquired.changes.into_iter().count() as u64, Ordering::Relaxed);
                    let Ok(permit) = acquired.admission else {
                        clock.fetch_add(50, Ordering::Relaxed);
                        continue;
                    };
                    let probe = permit.is_probe();
                    if probe {
                        let before = running.fetch_add(1, Ordering::SeqCst);
                        assert!(before < i64::from(PROBES), "{before} probes run already");
                    }
                    let outcome = match random.u8(0..10) {
                        0..4 => Outcome::Success,
                        4..8 => Outcome::FAILURE,
                        8 => Outcome::Neutral,
                        _ => Outcome::Cancelled,
                    };
                    // counted down before the slot is given back
                    if probe {
                        running.fetch_sub(1, Ordering::SeqCst);
                    }
                    let changes = engine.settle(permit, outcome, Duration::ZERO, now);
                    told.fetch_add(changes.into_iter().count() as u64, Ordering::Relaxed);
                }
            });
        }
    });
    let _ = engine.reset(start);
    let end = engine.open(None, start).unwrap().into_iter().next().unwrap();
    assert!(told.load(Ordering::Relaxed) > 100, "the schedule moves");
    assert_eq!(end.sequence, told.into_inner() + 2, "each step has one number and was told once");
    assert_eq!(engine.state(), State::Open);
}

#[test]
fn totals_equal_a_recount() {
    let start = Instant::now();
    let settings = Settings::builder().over(Over::SinceEntered).failure_rate(1.0).soft_alone_may_not_open();
    let engine = Engine::new(settings.build().unwrap(), start);
    let gate = Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                gate.wait();
                for call in 0..10_000 {
                    let permit = engine.acquire(|| start).admission.unwrap();
                    let outcome = if call % 4 == 3 { Outcome::FAILURE } else { Outcome::Success };
                    assert!(engine.settle(permit, outcome, Duration::ZERO, || start).is_empty());
                }
            });
        }
    });
    let counts = engine.snapshot(start).0.counts;
    assert_eq!((counts.total, counts.failed), (40_000, 10_000));
}

#[test]
fn totals_equal_a_recount_also_of_successes_that_are_counted_without_the_lock() {
    let start = Instant::now();
    let settings = Settings::builder()
        .over(Over::Time { span: Duration::from_secs(60), buckets: 10 })
        .failure_rate(1.0)
        .soft_alone_may_not_open();
    let engine = Engine::new(settings.build().unwrap(), start);
    let gate = Barrier::new(5);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                gate.wait();
                for call in 0..10_000_u32 {
                    let permit = engine.acquire(|| start).admission.unwrap();
                    // a bucket of time for every 1000 calls, and failures in two of them
                    let now = start + Duration::from_secs(6) * (call / 1_000);
                    let outcome = if call % 4_000 == 3_999 { Outcome::FAILURE } else { Outcome::Success };
                    assert!(engine.settle(permit, outcome, Duration::ZERO, || now).is_empty());
                }
            });
        }
        scope.spawn(|| {
            gate.wait();
            // a reader in between takes nothing away
            (0..1_000).for_each(|_| drop(engine.snapshot(start)));
        });
    });
    let counts = engine.snapshot(start + Duration::from_secs(54)).0.counts;
    assert_eq!((counts.total, counts.failed), (40_000, 8));
}
