//! Faults that circuit breakers have had, each impossible here.
#![cfg(not(failsoft_loom))]

use std::time::Duration;

use breaker_layer::engine::{Mode, Outcome, Over, Probes, Reason, Settings, State, Weight};

use crate::bench::{Bench, advice, touchy};

#[test]
fn a_lost_probe_wedges_nothing() {
    // C2, C12, C20: for days, "too many calls"
    let mut bench = Bench::new(touchy());
    bench.call(Outcome::FAILURE);
    bench.at(1000);
    let lost = (bench.acquire().unwrap(), bench.acquire().unwrap());
    assert!(bench.acquire().is_none());
    assert!(bench.at(10_999).acquire().is_none());
    assert_eq!(bench.at(11_000).state(), State::Open);
    assert_eq!(bench.time_left(), Some(Duration::from_secs(1)), "for the same time, without growth");
    assert!(bench.at(12_000).acquire().is_some());
    let _ = lost;
}

#[test]
fn a_lease_that_ended_long_ago_ended_when_it_did() {
    let mut bench = Bench::new(touchy());
    bench.call(Outcome::FAILURE);
    let _lost = bench.at(1000).acquire().unwrap();
    let acquired = bench.engine.acquire(|| bench.start + Duration::from_secs(3600));
    assert!(acquired.admission.is_ok());
    let steps: Vec<_> = acquired.changes.into_iter().map(|one| (one.from, one.to, one.reason)).collect();
    assert_eq!(
        steps,
        [
            (State::HalfOpen, State::Open, Reason::LeaseEnded),
            (State::Open, State::HalfOpen, Reason::OpenTimeOver)
        ]
    );
}

#[test]
fn content_of_a_probe_renews_the_lease_and_nothing_else_does() {
    let mut bench = Bench::new(touchy());
    let early = bench.acquire().unwrap();
    bench.call(Outcome::FAILURE);
    let probe = bench.at(1000).acquire().unwrap();
    bench.at(9000);
    let _ = bench.engine.renew(&early, || bench.now);
    assert_eq!(bench.time_left(), Some(Duration::from_secs(2)));
    let _ = bench.engine.renew(&probe, || bench.now);
    assert_eq!(bench.time_left(), Some(Duration::from_secs(10)));
    assert_eq!(bench.at(18_999).state(), State::HalfOpen);
    let _ = bench.settle(probe, Outcome::Success, Duration::ZERO);
    assert!(bench.call(Outcome::Success));
    assert_eq!(bench.state(), State::Closed, "also with a stream longer than the lease");
}

#[test]
fn a_target_that_is_well_but_seldom_called_closes() {
    let mut bench = Bench::new(touchy());
    bench.call(Outcome::FAILURE);
    assert!(bench.at(1_000).call(Outcome::Success));
    assert_eq!(bench.at(3_600_000).state(), State::HalfOpen, "nothing is lost: it waits for more calls");
    assert!(bench.call(Outcome::Success));
    assert_eq!(bench.state(), State::Closed);
}

#[test]
fn where_nobody_minds_slow_calls_a_hung_probe_is_no_good_one_and_a_slow_one_is() {
    // with a limit and no rule, to count slow calls: hung probes that a timeout outside dropped closed it
    let limited = || touchy().slow_after(Duration::from_secs(4));
    let late = Duration::from_secs(5);
    let mut bench = Bench::new(limited());
    bench.call(Outcome::FAILURE);
    bench.at(1_000);
    for _ in 0..4 {
        let _ = bench.settle(bench.acquire().unwrap(), Outcome::Cancelled, late);
    }
    assert_eq!((bench.state(), bench.engine.snapshot(bench.now).0.probes), (State::HalfOpen, 0));
    let _ = bench.settle(bench.acquire().unwrap(), Outcome::Success, late);
    assert_eq!(
        bench.at(3_600_000).state(),
        State::HalfOpen,
        "it waits for more calls, as for one that is quick"
    );
    let _ = bench.settle(bench.acquire().unwrap(), Outcome::Success, late);
    assert_eq!(bench.state(), State::Closed);

    // nor do hung calls stand beside the failures of a closed one as if they had been good
    let bench = Bench::new(limited().failures(None).failure_rate(0.5).min_calls(4).over(Over::Calls(20)));
    for outcome in [Outcome::Cancelled, Outcome::FAILURE].into_iter().cycle().take(8) {
        let _ = bench.settle(bench.acquire().unwrap(), outcome, late);
    }
    assert_eq!(bench.state(), State::Open);

    // and a last resort that hung
    let bench = Bench::new(limited());
    bench.call(Outcome::FAILURE);
    for _ in 0..2 {
        let _ = bench.settle(bench.last_resort().unwrap(), Outcome::Cancelled, late);
    }
    assert_eq!(bench.state(), State::Open);

    // where slow probes count, a hung one is one
    let mut bench = Bench::new(limited().slow_probes_to_open(2));
    bench.call(Outcome::FAILURE);
    bench.at(1_000);
    for _ in 0..2 {
        let _ = bench.settle(bench.acquire().unwrap(), Outcome::Cancelled, late);
    }
    assert_eq!(bench.state(), State::Open);
}

#[test]
fn a_probe_that_says_nothing_gives_its_slot_back() {
    // C3, C11, C14, G31: the last probe ended without an outcome, and half-open was never left
    let mut bench = Bench::new(touchy());
    bench.call(Outcome::FAILURE);
    bench.at(1000);
    for neutral in [Outcome::Neutral, Outcome::Cancelled].repeat(50) {
        assert!(bench.call(neutral));
        assert_eq!(bench.state(), State::HalfOpen);
    }
    assert!(bench.call(Outcome::Success) && bench.call(Outcome::Success));
    assert_eq!(bench.state(), State::Closed);
}

#[test]
fn an_invalid_request_shows_that_the_target_lives() {
    let mut bench = Bench::new(touchy());
    bench.call(Outcome::FAILURE);
    bench.at(1000);
    assert!(bench.call(Outcome::Alive) && bench.call(Outcome::Alive));
    assert_eq!(bench.state(), State::Closed);
}

#[test]
fn late_outcomes_neither_decide_nor_add_probes() {
    // C6, C8, C9, C13, C15: outcomes of calls admitted while closed, arriving while half-open
    let mut bench = Bench::new(touchy());
    let mut late: Vec<_> = (0..8).map(|_| bench.acquire().unwrap()).collect();
    bench.call(Outcome::FAILURE);
    bench.at(1000);
    let probes = (bench.acquire().unwrap(), bench.acquire().unwrap());
    for outcome in [Outcome::Success, Outcome::FAILURE, Outcome::Cancelled, Outcome::Neutral].repeat(2) {
        let permit = late.pop().unwrap();
        assert!(bench.settle(permit, outcome, Duration::ZERO).is_empty());
        assert!(bench.acquire().is_none(), "{outcome:?} added a probe");
    }
    assert_eq!(bench.engine.snapshot(bench.now).0.counts.total, 0);
    let _ = bench.settle(probes.0, Outcome::Success, Duration::ZERO);
    let _ = bench.settle(probes.1, Outcome::Success, Duration::ZERO);
    assert_eq!(bench.state(), State::Closed);
}

#[test]
fn probes_of_an_earlier_period_do_not_decide_the_next_one() {
    let mut bench = Bench::new(touchy());
    bench.call(Outcome::FAILURE);
    let first = bench.at(1000).acquire().unwrap();
    bench.call(Outcome::FAILURE);
    assert!(bench.at(3000).acquire().is_some(), "half-open again");
    assert!(bench.settle(first, Outcome::FAILURE, Duration::ZERO).is_empty());
    assert_eq!(bench.state(), State::HalfOpen);
}

#[test]
fn failures_that_arrive_while_open_tell_nothing_again() {
    // C28
    let bench = Bench::new(touchy());
    let permits: Vec<_> = (0..10).map(|_| bench.acquire().unwrap()).collect();
    let told =
        permits.into_iter().flat_map(|permit| bench.settle(permit, Outcome::FAILURE, Duration::ZERO)).count();
    assert_eq!(told, 1);
}

#[test]
fn probes_spread_wider_than_the_window_still_decide() {
    // P3, C37: half-open tallies aged out of the time window
    let minute = Over::Time { span: Duration::from_secs(1), buckets: 10 };
    let lease = Duration::from_secs(365 * 86_400);
    let mut bench = Bench::new(touchy().over(minute).lease(lease));
    bench.call(Outcome::FAILURE);
    bench.at(1000).call(Outcome::Success);
    bench.at(100_000_000).call(Outcome::Success);
    assert_eq!(bench.state(), State::Closed);
}

#[test]
fn hung_calls_that_are_dropped_open_it_if_there_is_a_slow_rule() {
    // P6, C39: 200 hung calls were dropped by a timeout outside and recorded nothing
    let slow = Settings::builder().slow_after(Duration::from_secs(4)).slow_rate(0.5);
    let bench = Bench::new(slow);
    for _ in 0..10 {
        let permit = bench.acquire().unwrap();
        let _ = bench.settle(permit, Outcome::Cancelled, Duration::from_secs(5));
    }
    assert_eq!(bench.state(), State::Open);
}

#[test]
fn calls_dropped_early_say_nothing() {
    let bench = Bench::new(Settings::builder().slow_after(Duration::from_secs(4)).slow_rate(0.5));
    for _ in 0..100 {
        let permit = bench.acquire().unwrap();
        let _ = bench.settle(permit, Outcome::Cancelled, Duration::from_secs(4));
    }
    assert_eq!(bench.engine.snapshot(bench.now).0.counts.total, 0);
}

#[test]
fn reset_works_while_closed_and_forgets_running_calls() {
    // P9
    let bench = Bench::new(touchy().failures(2));
    bench.call(Outcome::FAILURE);
    let running = bench.acquire().unwrap();
    let told: Vec<_> = bench.engine.reset(bench.now).into_iter().collect();
    assert_eq!((told[0].from, told[0].to, told[0].reason), (State::Closed, State::Closed, Reason::Reset));
    assert_eq!(told[0].counts.failed, 1);
    let _ = bench.settle(running, Outcome::FAILURE, Duration::ZERO);
    bench.call(Outcome::FAILURE);
    assert_eq!(bench.state(), State::Closed);
}

#[test]
fn caller_faults_never_open_it() {
    // G26, G27, G29
    let bench = Bench::new(touchy());
    (0..100).for_each(|_| assert!(bench.call(Outcome::Alive) && bench.call(Outcome::Neutral)));
    assert_eq!(bench.state(), State::Closed);
}

#[test]
fn a_longer_advice_prolongs_and_a_shorter_one_never_shortens() {
    // G28: the first, shorter deadline was kept
    let mut bench = Bench::new(touchy());
    let mut running: Vec<_> = (0..3).map(|_| bench.acquire().unwrap()).collect();
    let mut limited = |bench: &Bench, seconds| {
        let outcome = Outcome::RateLimited { advice: advice(seconds) };
        bench.settle(running.pop().unwrap(), outcome, Duration::ZERO)
    };
    assert!(!limited(&bench, 10).is_empty());
    assert_eq!(bench.time_left(), advice(10));
    assert!(limited(&bench, 60).is_empty(), "still open: nothing to tell");
    assert_eq!(bench.time_left(), advice(60));
    let _ = limited(&bench, 20);
    assert_eq!(bench.time_left(), advice(60));
    assert!(bench.at(59_999).acquire().is_none());
    assert!(bench.at(60_000).acquire().is_some());
}

#[test]
fn advice_heard_before_is_a_floor_for_the_open_time() {
    let bench = Bench::new(touchy().failures(2));
    bench.call(Outcome::Failure { weight: Weight::FULL, advice: advice(42) });
    bench.call(Outcome::FAILURE);
    assert_eq!(bench.time_left(), advice(42));
}

#[test]
fn absurd_advice_is_capped() {
    let bench = Bench::new(touchy());
    bench.call(Outcome::RateLimited { advice: Some(Duration::MAX) });
    assert_eq!(bench.time_left(), advice(3600));
}

#[test]
fn advice_of_a_call_from_before_a_reset_is_forgotten() {
    let bench = Bench::new(touchy());
    let old = bench.acquire().unwrap();
    let _ = bench.engine.reset(bench.now);
    bench.call(Outcome::FAILURE);
    let _ = bench.settle(old, Outcome::RateLimited { advice: advice(600) }, Duration::ZERO);
    assert_eq!(bench.time_left(), advice(1));
}

#[test]
fn a_failed_probe_starts_a_fresh_and_longer_open_time() {
    // G35, G38, C80
    let mut bench = Bench::new(touchy().max_open_time(Duration::from_secs(5)));
    bench.call(Outcome::FAILURE);
    let mut t = 0;
    for seconds in [1, 2, 4, 5, 5] {
        assert_eq!(bench.time_left(), advice(seconds));
        t += seconds * 1000;
        assert!(bench.at(t - 1).acquire().is_none());
        assert!(bench.at(t).call(Outcome::FAILURE));
    }
    bench.at(t + 5000);
    assert!(bench.call(Outcome::Success) && bench.call(Outcome::Success));
    bench.call(Outcome::FAILURE);
    assert_eq!(bench.time_left(), advice(1), "closing starts over");
}

#[test]
fn a_deadline_is_kept_by_a_clock_that_only_goes_on() {
    // C35: the wall clock went back an hour, and a second lasted until it had caught up
    let mut bench = Bench::new(touchy());
    bench.at(3_600_000).call(Outcome::FAILURE);
    assert!(bench.at(0).acquire().is_none() && bench.at(3_600_999).acquire().is_none());
    assert!(bench.at(3_601_000).acquire().is_some());
}

#[test]
fn calls_that_last_longer_than_the_window_count_when_they_end() {
    // C38: 40 of 40 failing calls of 120 ms were never seen by a window of 50 ms
    let window = Over::Time { span: Duration::from_millis(50), buckets: 10 };
    let mut bench = Bench::new(Settings::builder().over(window));
    let running: Vec<_> = (0..40).map(|_| bench.acquire().unwrap()).collect();
    bench.at(120);
    running.into_iter().for_each(|permit| drop(bench.settle(permit, Outcome::FAILURE, Duration::ZERO)));
    assert_eq!(bench.state(), State::Open);
}

#[test]
fn by_default_the_first_hard_failure_of_a_probe_opens_again_before_all_were_made() {
    // C22: half-open admitted fewer calls than it was set to; that is meant, and documented
    let mut bench = Bench::new(Settings::builder().failures(1).soft_alone_may_not_open());
    bench.call(Outcome::FAILURE);
    bench.at(30_000).call(Outcome::FAILURE);
    assert_eq!((bench.state(), bench.time_left()), (State::Open, advice(60)));
}

#[test]
fn advice_outlasts_the_longest_open_time_and_is_never_shortened_by_jitter_or_a_failed_probe() {
    // G28, G36
    for seed in 0..100 {
        let settings = touchy().max_open_time(Duration::from_secs(5)).seed(seed);
        let start = tokio::time::Instant::now();
        let engine = breaker_layer::engine::Engine::new(settings.jitter(1.0).build().unwrap(), start);
        let call = |at: u64, outcome| {
            let now = start + Duration::from_millis(at);
            let permit = engine.acquire(|| now).admission.ok()?;
            let _ = engine.settle(permit, outcome, Duration::ZERO, || now);
            engine.snapshot(now).0.time_left
        };
        let failure = Outcome::Failure { weight: Weight::FULL, advice: advice(20) };
        let told = call(0, failure).unwrap();
        assert!(advice(20) <= Some(told) && Some(told) < advice(40), "{told:?}");
        let told = told.as_millis() as u64;
        assert_eq!(call(told - 1, Outcome::Success), None, "refused");
        let left = call(told + 1, Outcome::FAILURE).unwrap();
        assert!(left <= Duration::from_secs(5), "it is over by then: {left:?}");
    }
}

#[test]
fn probe_times_of_many_processes_are_spread() {
    // all of them see the failure at the same moment; nobody is seeded
    // for the open time, and for the advice that a server gave them all
    for outcome in [Outcome::FAILURE, Outcome::RateLimited { advice: advice(30) }] {
        let start = tokio::time::Instant::now();
        let mut tenths = [0_u32; 10];
        for _ in 0..2_000 {
            let settings = touchy().open_time(Duration::from_secs(30)).jitter(0.1).build().unwrap();
            let engine = breaker_layer::engine::Engine::new(settings, start);
            let permit = engine.acquire(|| start).admission.unwrap();
            let _ = engine.settle(permit, outcome, Duration::ZERO, || start);
            let left = engine.snapshot(start).0.time_left.unwrap();
            let late = left.checked_sub(Duration::from_secs(30)).expect("never before the open time");
            tenths[(late.as_millis() / 300) as usize] += 1;
        }
        assert!(tenths.iter().all(|count| (100..300).contains(count)), "not spread over 3 s: {tenths:?}");
    }
}

#[test]
fn a_rate_limited_probe_waits_just_as_long_as_it_was_told() {
    // G36
    let mut bench = Bench::new(touchy().open_time(Duration::from_secs(60)));
    bench.call(Outcome::FAILURE);
    assert!(bench.at(60_000).call(Outcome::RateLimited { advice: advice(5) }));
    assert_eq!(bench.time_left(), advice(5));
}

#[test]
fn what_one_probe_was_advised_holds_also_when_the_others_are_lost() {
    let mut bench = Bench::new(touchy().probes(Probes::Failures { probes: 3, to_open: 2 }));
    bench.call(Outcome::FAILURE);
    let outcome = Outcome::Failure { weight: Weight::FULL, advice: advice(300) };
    let _lost = bench.at(1_000).acquire().unwrap();
    assert!(bench.call(outcome));
    assert_eq!(bench.at(11_000).state(), State::Open, "its lease is over");
    assert_eq!(bench.time_left(), advice(290), "the advice is a floor, whatever opened it");
}

#[test]
fn a_rate_limited_probe_without_long_advice_has_failed() {
    let mut bench = Bench::new(touchy());
    bench.call(Outcome::FAILURE);
    assert!(bench.at(1000).call(Outcome::RateLimited { advice: advice(1) }));
    assert_eq!((bench.state(), bench.time_left()), (State::Open, advice(2)));
}

#[test]
fn rate_limits_are_neutral_but_five_in_a_row_without_advice_open() {
    // G38, G39: the server's limits, and the retries within them, opened it
    let mut bench = Bench::new(touchy());
    let limited = |seconds| Outcome::RateLimited { advice: seconds };
    (0..100).for_each(|_| assert!(bench.call(limited(advice(4)))));
    bench.at(4000);
    for _ in 0..10 {
        (0..4).for_each(|_| assert!(bench.call(limited(None))));
        assert!(bench.call(Outcome::Success), "a success breaks the row");
    }
    assert_eq!(bench.engine.snapshot(bench.now).0.counts.failed, 0);
    (0..5).for_each(|_| assert!(bench.call(limited(None))));
    assert_eq!((bench.state(), bench.time_left()), (State::Open, advice(1)));
}

#[test]
fn a_success_ends_the_row_of_rate_limits_also_in_a_clean_window() {
    let bench = Bench::new(touchy());
    (0..8).for_each(|_| assert!(bench.call(Outcome::Success)));
    for _ in 0..10 {
        (0..4).for_each(|_| assert!(bench.call(Outcome::RateLimited { advice: None })));
        assert!(bench.call(Outcome::Success));
    }
    assert_eq!(bench.state(), State::Closed);
}

#[test]
fn a_spent_quota_opens_at_once_and_for_long() {
    // G37: 12 900 paid calls in a day
    let bench = Bench::new(touchy().failures(3));
    assert!(bench.call(Outcome::AtOnce { advice: None }));
    assert_eq!((bench.state(), bench.time_left()), (State::Open, advice(300)));
}

#[test]
fn soft_failures_weigh_less_in_rates_counts_and_streaks() {
    let soft = Outcome::Failure { weight: Weight::SOFT, advice: None };
    let streak = Settings::builder().failure_rate(None).consecutive_failures(3);
    let bench = Bench::new(streak);
    (0..4).for_each(|_| assert!(bench.call(soft)));
    assert_eq!(bench.state(), State::Closed);
    bench.call(soft);
    assert_eq!(bench.state(), State::Open, "five soft failures are three");

    let rate = Settings::builder().over(Over::Calls(10)).failure_rate(0.4);
    let bench = Bench::new(rate);
    (0..4).for_each(|_| assert!(bench.call(Outcome::Success)));
    (0..5).for_each(|_| assert!(bench.call(soft)));
    let rate = bench.engine.snapshot(bench.now).0.counts.failure_rate;
    assert_eq!(rate, None, "below the minimum of calls");
    bench.call(Outcome::Success);
    let counts = bench.engine.snapshot(bench.now).0.counts;
    assert!((counts.failure_rate.unwrap() - 0.3).abs() < 1e-9, "5 x 0.6 of 10");
}

#[test]
fn an_exact_threshold_trips_whatever_floating_point_makes_of_it() {
    for percent in 1..=100_u32 {
        let settings = Settings::builder()
            .over(Over::Calls(100))
            .min_calls(100)
            .failure_rate(f64::from(percent) / 100.0)
            .soft_alone_may_not_open();
        let bench = Bench::new(settings);
        (0..100 - percent).for_each(|_| assert!(bench.call(Outcome::Success)));
        (1..percent).for_each(|_| assert!(bench.call(Outcome::FAILURE)));
        assert_eq!(bench.state(), State::Closed, "{percent} %");
        bench.call(Outcome::FAILURE);
        assert_eq!(bench.state(), State::Open, "{percent} %");
    }
}

#[test]
fn an_advisory_circuit_moves_but_never_refuses() {
    let mut bench = Bench::new(touchy().mode(Mode::Advisory));
    bench.call(Outcome::FAILURE);
    assert_eq!(bench.state(), State::Open);
    (0..10).for_each(|_| assert!(bench.call(Outcome::FAILURE)));
    assert_eq!(bench.time_left(), advice(1), "calls let through while open decide nothing");
    bench.at(1000);
    let permits: Vec<_> = (0..5).map(|_| bench.acquire().unwrap()).collect();
    assert_eq!(permits.iter().filter(|permit| permit.is_probe()).count(), 2);
    permits.into_iter().for_each(|permit| drop(bench.settle(permit, Outcome::Success, Duration::ZERO)));
    assert_eq!(bench.state(), State::Closed);
}

#[test]
fn every_change_of_mode_forgets_running_calls_and_reset_goes_back_to_the_mode_beneath() {
    let bench = Bench::new(touchy().mode(Mode::Advisory));
    let old = bench.acquire().unwrap();
    for mode in [Mode::ForcedOpen, Mode::Disabled, Mode::ObserveOnly] {
        let _ = bench.engine.set_mode(mode, bench.now);
        assert_eq!(bench.engine.mode(), mode);
        assert!(bench.engine.set_mode(mode, bench.now).is_empty());
        assert_eq!(bench.acquire().is_some(), mode != Mode::ForcedOpen);
    }
    let _ = bench.engine.reset(bench.now);
    assert_eq!((bench.engine.mode(), bench.state()), (Mode::Advisory, State::Closed));
    let _ = bench.settle(old, Outcome::FAILURE, Duration::ZERO);
    assert_eq!(bench.state(), State::Closed);
}

#[test]
fn observe_only_says_once_that_it_would_have_opened() {
    let bench = Bench::new(touchy().mode(Mode::ObserveOnly));
    let told: Vec<_> = (0..10)
        .flat_map(|_| bench.settle(bench.acquire().unwrap(), Outcome::FAILURE, Duration::ZERO))
        .map(|one| (one.from, one.to, one.reason))
        .collect();
    assert_eq!(told, [(State::ObserveOnly, State::ObserveOnly, Reason::Failures)]);
    assert!(bench.engine.open(None, bench.now).is_err() && bench.engine.half_open(bench.now).is_err());
}

#[test]
fn transitions_and_snapshots_say_how_long_the_state_lasted_and_why_it_was_entered() {
    let mut bench = Bench::new(touchy());
    assert_eq!(bench.engine.snapshot(bench.now).0.reason, None);
    let permit = bench.at(7_000).acquire().unwrap();
    let told = bench.settle(permit, Outcome::FAILURE, Duration::ZERO).into_iter().next().unwrap();
    assert_eq!((told.reason, told.time_in_state), (Reason::Failures, Duration::from_secs(7)));
    bench.at(7_600);
    let snapshot = bench.engine.snapshot(bench.now).0;
    assert_eq!(
        (snapshot.reason, snapshot.time_in_state),
        (Some(Reason::Failures), Duration::from_millis(600))
    );
    assert_eq!(snapshot.consecutive_openings, 1);
    let told = bench.engine.reset(bench.now).into_iter().next().unwrap();
    assert_eq!((told.consecutive_openings, told.time_in_state), (1, Duration::from_millis(600)));
}

#[test]
fn would_refuse_takes_no_probe() {
    let mut bench = Bench::new(touchy());
    bench.call(Outcome::FAILURE);
    assert_eq!(bench.engine.would_refuse(|| bench.now).unwrap().retry_after, advice(1));
    bench.at(1000);
    (0..10).for_each(|_| assert_eq!(bench.engine.would_refuse(|| bench.now), None));
    let _probes = (bench.acquire().unwrap(), bench.acquire().unwrap());
    assert!(bench.engine.would_refuse(|| bench.now).unwrap().is_probing());
}
