//! Every interleaving of calls that are charged to several budgets.
//!
//! `RUSTFLAGS="--cfg failsoft_loom" cargo test --release -p budget-layer --lib loom`

use ::loom::{model::Builder, thread};

use std::sync::Arc;

use crate::{
    Budget, Ledger, Outcome, Snapshot, Unit, Window,
    account::{Ask, Lines, Rules, queue::Turn},
    parts::Parts,
    window::Now,
};

const ASK: Ask = Ask { is_final: false, passes_soft: true, is_first: true, turn: Turn::LAST };

/// Three forced switches of threads find every race that two locks can have; without a bound this runs for minutes.
fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(check);
}

fn rules(limit: u64, soft_millionths: u32) -> (Rules, usize) {
    let lines = Lines { millionths: [soft_millionths].into(), closing_reserve: 0 };
    let rules = Rules {
        name: "test".into(),
        unit: Unit::Tokens,
        window: Window::lifetime(),
        limit,
        lines,
        per_call: None,
        pause: None,
        heeds_quota: false,
        meters: Default::default(),
        shared: None,
    };
    (rules, 1)
}

fn budget(limit: u64, soft_millionths: u32) -> Budget {
    Ledger::together(vec![rules(limit, soft_millionths)])[0].unkeyed().clone()
}

/// Two that stand together, behind one lock.
fn pair(limits: [u64; 2]) -> [Budget; 2] {
    let ledgers = Ledger::together(limits.map(|limit| rules(limit, 1_000_000)).into());
    [ledgers[0].unkeyed().clone(), ledgers[1].unkeyed().clone()]
}

fn parts<const N: usize>(budgets: [&Budget; N], each: u64) -> Parts {
    let mut parts = Parts::default();
    budgets.into_iter().for_each(|budget| parts.push(budget, each));
    parts
}

fn settle(parts: &mut Parts, used: u64) -> u16 {
    let mut lines = 0;
    parts.each(Now::default(), |account, rules, part| {
        lines |= account.settle(rules, &part.share, used, Outcome::Success, false, Now::default()).lines;
    });
    lines
}

fn standing(budget: &Budget) -> (u64, u64) {
    (budget.spent(), budget.reserved())
}

#[test]
fn loom_two_that_name_two_budgets_in_opposite_orders_never_wait_for_each_other_and_one_gets_both() {
    model(|| {
        let (a, b) = (budget(10, 1_000_000), budget(10, 1_000_000));
        let other = {
            let (a, b) = (a.clone(), b.clone());
            thread::spawn(move || parts([&b, &a], 6).reserve(ASK, Now::default()).is_ok())
        };
        let mine = parts([&a, &b], 6).reserve(ASK, Now::default()).is_ok();
        assert!(mine != other.join().unwrap(), "exactly one");
        assert_eq!((standing(&a), standing(&b)), ((0, 6), (0, 6)));
    });
}

#[test]
fn loom_where_one_budget_refuses_nobody_ever_sees_anything_reserved_in_another() {
    model(|| {
        let (wide, narrow) = (budget(10, 1_000_000), budget(5, 1_000_000));
        let other = {
            let (wide, narrow) = (wide.clone(), narrow.clone());
            thread::spawn(move || parts([&wide, &narrow], 6).reserve(ASK, Now::default()).is_ok())
        };
        assert!(parts([&wide], 10).reserve(ASK, Now::default()).is_ok(), "there was always enough for it");
        assert!(!other.join().unwrap());
        assert_eq!((standing(&wide), standing(&narrow)), ((0, 10), (0, 0)));
    });
}

#[test]
fn loom_two_budgets_behind_one_lock_and_a_third_are_reserved_all_or_none() {
    model(|| {
        let ([wide, narrow], other) = (pair([10, 5]), budget(10, 1_000_000));
        let thread = {
            let (wide, narrow, other) = (wide.clone(), narrow.clone(), other.clone());
            thread::spawn(move || parts([&other, &wide, &narrow], 6).reserve(ASK, Now::default()).is_ok())
        };
        assert!(
            parts([&wide, &other], 10).reserve(ASK, Now::default()).is_ok(),
            "there was always enough for it"
        );
        assert!(!thread.join().unwrap());
        assert_eq!([&wide, &narrow, &other].map(standing), [(0, 10), (0, 0), (0, 10)]);
    });
}

#[test]
fn loom_reserve_and_settle_leave_exact_sums_and_never_pass_the_limit() {
    model(|| {
        let shared = budget(10, 1_000_000);
        let call = |used| {
            move |budget: &Budget| {
                let mut parts = parts([budget], 5);
                let admitted = parts.reserve(ASK, Now::default()).is_ok();
                if admitted {
                    settle(&mut parts, used);
                }
                if admitted { used } else { 0 }
            }
        };
        let other = {
            let shared = shared.clone();
            thread::spawn(move || call(2)(&shared))
        };
        let mine = call(5)(&shared);
        let state = shared.snapshot();
        assert!(state.spent + state.reserved <= 10, "{state:?}");
        let used = mine + other.join().unwrap();
        assert_eq!(standing(&shared), (used, 0));
    });
}

#[test]
fn loom_the_soft_line_is_told_once() {
    model(|| {
        let shared = budget(10, 500_000);
        let call = |budget: &Budget| {
            let mut parts = parts([budget], 5);
            parts.reserve(ASK, Now::default()).unwrap();
            let reserved = parts.take_crossed().iter().map(|(_, crossed)| crossed.lines).sum::<u16>();
            reserved + settle(&mut parts, 5)
        };
        let other = {
            let shared = shared.clone();
            thread::spawn(move || call(&shared))
        };
        let mine = call(&shared);
        assert_eq!(mine + other.join().unwrap(), 1);
    });
}

#[test]
fn loom_a_restored_state_and_a_call_in_flight_both_count() {
    model(|| {
        let shared = budget(100, 1_000_000);
        let mut parts = parts([&shared], 10);
        parts.reserve(ASK, Now::default()).unwrap();
        let other = {
            let shared = shared.clone();
            thread::spawn(move || shared.restore(&Snapshot { limit: 100, spent: 30, reserved: 0 }))
        };
        settle(&mut parts, 10);
        other.join().unwrap();
        // The call was there before the state was restored, and is replaced by it, or came after it.
        let (spent, reserved) = standing(&shared);
        assert!([30, 40].contains(&spent) && reserved == 0, "{spent} {reserved}");
    });
}
