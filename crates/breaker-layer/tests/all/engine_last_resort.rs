//! Calls that have nowhere else to go: a few pass an open circuit, and good ones close it.
#![cfg(not(failsoft_loom))]

use std::time::Duration;

use breaker_layer::engine::{Mode, Outcome, Reason, State};

use crate::bench::{Bench, advice, touchy};

#[test]
fn last_resort_calls_pass_a_few_at_once_and_never_what_is_forced_open() {
    // G30
    let mut bench = Bench::new(touchy().last_resort(2));
    bench.call(Outcome::FAILURE);
    let (first, _second) = (bench.last_resort().unwrap(), bench.last_resort().unwrap());
    assert!(bench.last_resort().is_none(), "two at once");
    let _ = bench.settle(first, Outcome::Success, Duration::ZERO);
    assert_eq!(bench.state(), State::Open, "one good call of two");
    let third = bench.last_resort().unwrap();
    assert!(bench.last_resort().is_none());
    bench.at(9_999);
    assert!(bench.engine.open(None, bench.now).is_ok());
    assert!(bench.last_resort().is_none());
    bench.at(10_000);
    let _fourth = bench.last_resort().expect("slots of calls that never end come back after the lease");
    let _ = bench.settle(third, Outcome::Success, Duration::ZERO);
    assert!(
        bench.last_resort().is_some() && bench.last_resort().is_none(),
        "and a late one gives nothing back"
    );
    let _ = bench.engine.set_mode(Mode::ForcedOpen, bench.now);
    assert!(bench.last_resort().is_none(), "forced open means it");
}

#[test]
fn good_last_resort_calls_close_an_open_circuit_as_good_probes_would() {
    // G30: all targets had been down; circuits stayed open for minutes although every call through them worked
    let mut bench = Bench::new(touchy());
    bench.call(Outcome::FAILURE);
    bench.at(1_000).call(Outcome::FAILURE);
    assert_eq!(bench.last_resort_call(Outcome::Success), None);
    assert_eq!(bench.last_resort_call(Outcome::FAILURE), None, "a bad one makes the count begin again");
    assert_eq!(bench.time_left(), advice(2), "and nothing else");
    assert_eq!(bench.last_resort_call(Outcome::Success), None);
    assert_eq!(bench.last_resort_call(Outcome::Neutral), None);
    assert_eq!(bench.last_resort_call(Outcome::Alive), Some(Reason::LastResortGood));
    bench.call(Outcome::FAILURE);
    assert_eq!(bench.time_left(), advice(1), "it is closed as by probes: the open time begins anew");
}

#[test]
fn good_last_resort_calls_do_not_close_before_the_servers_advice_is_over() {
    for open in [Outcome::RateLimited { advice: advice(20) }, Outcome::AtOnce { advice: advice(20) }] {
        let mut bench = Bench::new(touchy());
        bench.call(open);
        (0..10).for_each(|_| assert_eq!(bench.last_resort_call(Outcome::Success), None, "{open:?}"));
        // what was seen before it was over says nothing either
        let Some(300) = bench.time_left().map(|left| left.as_secs()) else { continue };
        bench.at(20_000);
        assert_eq!(bench.last_resort_call(Outcome::Success), None);
        assert_eq!(
            bench.last_resort_call(Outcome::Success),
            Some(Reason::LastResortGood),
            "the quota is back"
        );
    }
}

#[test]
fn advice_that_a_last_resort_call_hears_is_kept_as_well() {
    let bench = Bench::new(touchy());
    bench.call(Outcome::FAILURE);
    assert_eq!(bench.last_resort_call(Outcome::RateLimited { advice: advice(30) }), None);
    assert_eq!(bench.time_left(), advice(30));
    (0..10).for_each(|_| assert_eq!(bench.last_resort_call(Outcome::Success), None));
}

#[test]
fn last_resort_calls_do_not_close_what_was_opened_by_hand() {
    let bench = Bench::new(touchy());
    assert!(bench.engine.open(None, bench.now).is_ok());
    (0..10).for_each(|_| assert_eq!(bench.last_resort_call(Outcome::Success), None));
    assert_eq!(bench.state(), State::Open);
}

#[test]
fn late_last_resort_calls_decide_nothing_in_the_next_period() {
    let mut bench = Bench::new(touchy());
    bench.call(Outcome::FAILURE);
    let late = (bench.last_resort().unwrap(), bench.last_resort().unwrap());
    let probe = bench.at(1_000).acquire().unwrap();
    let _ = bench.settle(late.0, Outcome::Success, Duration::ZERO);
    let _ = bench.settle(probe, Outcome::FAILURE, Duration::ZERO);
    let _ = bench.settle(late.1, Outcome::Success, Duration::ZERO);
    assert_eq!((bench.state(), bench.engine.snapshot(bench.now).0.counts.total), (State::Open, 0));
}
