//! Every interleaving of calls that are charged to several budgets, and of callers that wait for their turn.
//!
//! `RUSTFLAGS="--cfg failsoft_loom" cargo test --release -p budget-layer --lib loom`

mod leases;

use std::{
    sync::Arc,
    task::{Wake, Waker},
};

use ::loom::{model::Builder, sync::Notify, thread};

use crate::{
    Budget, Ledger, Outcome, Snapshot, Unit, Window,
    account::{Ask, Lines, Rules, queue::Turn},
    cell::Cell,
    parts::{Parts, Place},
    window::Now,
};

const ASK: Ask = Ask { is_final: false, passes_soft: true, is_first: true, turn: Turn::LAST };

/// Three forced switches of threads find every race that two locks can have; without a bound this runs for minutes.
fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(check);
}

fn rules(unit: Unit, limit: u64, soft_millionths: u32) -> (Rules, usize) {
    let lines = Lines { millionths: [soft_millionths].into(), closing_reserve: 0 };
    let rules = Rules {
        name: "test".into(),
        unit,
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
    Ledger::together(vec![rules(Unit::Tokens, limit, soft_millionths)])[0].unkeyed().clone()
}

fn at_once(limit: u64) -> Budget {
    Ledger::together(vec![rules(Unit::Concurrent, limit, 1_000_000)])[0].unkeyed().clone()
}

/// Two that stand together, behind one lock.
fn pair(limits: [u64; 2]) -> [Budget; 2] {
    let ledgers = Ledger::together(limits.map(|limit| rules(Unit::Tokens, limit, 1_000_000)).into());
    [ledgers[0].unkeyed().clone(), ledgers[1].unkeyed().clone()]
}

fn parts<const N: usize>(budgets: [&Budget; N], each: u64) -> Parts {
    let mut parts = Parts::default();
    budgets.into_iter().for_each(|budget| parts.push(budget, each));
    parts
}

/// As the layer does: by a few sums, where that is all there is to it.
fn reserve(parts: &mut Parts) -> bool {
    parts.reserve_plainly(ASK) || parts.reserve(ASK, Now::default()).is_ok()
}

/// The same.
fn settle(parts: &mut Parts, used: u64) -> u16 {
    if parts.settle_plainly((used, 1), Outcome::Success, false) {
        return 0;
    }
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
            thread::spawn(move || reserve(&mut parts([&b, &a], 6)))
        };
        let mine = reserve(&mut parts([&a, &b], 6));
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
            thread::spawn(move || reserve(&mut parts([&wide, &narrow], 6)))
        };
        assert!(reserve(&mut parts([&wide], 10)), "there was always enough for it");
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
            thread::spawn(move || reserve(&mut parts([&other, &wide, &narrow], 6)))
        };
        assert!(reserve(&mut parts([&wide, &other], 10)), "there was always enough for it");
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
                let admitted = reserve(&mut parts);
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

/// As a call without a scope is settled.
fn settle_without_scope(cell: &Arc<Cell>, tokens: u64) {
    if !cell.settle_plainly(tokens, tokens, Outcome::Success, false) {
        let mut parts = Parts::default();
        parts.push_plain(Arc::clone(cell), tokens);
        settle(&mut parts, cell.rules(0).unit.plainly_used(tokens));
    }
}

#[test]
fn loom_calls_without_a_scope_and_one_that_has_one_leave_exact_sums_behind_one_lock() {
    model(|| {
        let budgets = pair([10, 9]);
        let other = {
            let cell = Arc::clone(&budgets[0].cell);
            thread::spawn(move || {
                let admitted = cell.reserve_plainly(5, ASK);
                if admitted {
                    settle_without_scope(&cell, 5);
                }
                u64::from(admitted) * 5
            })
        };
        let mut mine = parts([&budgets[0], &budgets[1]], 4);
        assert!(reserve(&mut mine), "there is enough for both");
        settle(&mut mine, 3);
        let spent = other.join().unwrap() + 3;
        assert_eq!(budgets.each_ref().map(standing), [(spent, 0), (spent, 0)]);
    });
}

#[test]
fn loom_who_waits_is_woken_by_a_call_without_a_scope() {
    model(|| {
        let budget = at_once(1);
        assert!(budget.cell.reserve_plainly(1, ASK) || reserve(&mut parts([&budget], 1)));
        let waiting = {
            let budget = budget.clone();
            thread::spawn(move || wait_for_it(&mut parts([&budget], 1), 1))
        };
        settle_without_scope(&budget.cell, 1);
        waiting.join().unwrap();
        assert_eq!((standing(&budget), budget.waiting()), ((0, 1), 0));
    });
}

#[test]
fn loom_the_soft_line_is_told_once() {
    model(|| {
        let shared = budget(10, 500_000);
        let call = |budget: &Budget| {
            let mut parts = parts([budget], 5);
            assert!(reserve(&mut parts));
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
        assert!(reserve(&mut parts));
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

/// A caller that waits as a [`Line`](crate::line::Line) does: it asks, and sleeps until its waker is used.
fn wait_for_it(parts: &mut Parts, turn: u64) {
    let woken = Arc::new(Woken(Notify::new()));
    let waker = Waker::from(Arc::clone(&woken));
    let ask = Ask { turn: Turn(turn), ..ASK };
    let place = Place { waker: &waker, most: 2, of_leases: false };
    while let Err((_, denied)) = parts.reserve_or_wait(ask, Now::default(), Some(place)) {
        assert!(denied.waits, "{denied:?}");
        // A model in which nobody wakes it ends here, and loom says so.
        woken.0.wait();
    }
    parts.leave(Turn(turn), Now::default());
}

struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

/// A budget of one call at once, which is taken.
fn taken() -> (Budget, Parts) {
    let budget = at_once(1);
    let mut parts = parts([&budget], 1);
    assert!(reserve(&mut parts));
    (budget, parts)
}

#[test]
fn loom_who_waits_is_woken_whenever_what_it_needs_comes_free() {
    model(|| {
        let (budget, mut held) = taken();
        let waiting = {
            let budget = budget.clone();
            thread::spawn(move || wait_for_it(&mut parts([&budget], 1), 1))
        };
        held.release_all(Now::default());
        waiting.join().unwrap();
        assert_eq!((standing(&budget), budget.waiting()), ((0, 1), 0));
    });
}

#[test]
fn loom_of_two_that_wait_each_gets_its_turn_and_whoever_is_settled_wakes_the_next() {
    model(|| {
        let (budget, mut held) = taken();
        let waiting = [1, 2].map(|turn| {
            let budget = budget.clone();
            thread::spawn(move || {
                let mut parts = parts([&budget], 1);
                wait_for_it(&mut parts, turn);
                settle(&mut parts, 0);
            })
        });
        settle(&mut held, 0);
        for waiting in waiting {
            waiting.join().unwrap();
        }
        assert_eq!((standing(&budget), budget.waiting()), ((0, 0), 0));
    });
}

#[test]
fn loom_whoever_gives_up_its_place_as_what_it_needs_comes_free_leaves_it_to_the_next() {
    model(|| {
        let (budget, mut held) = taken();
        let mut first = parts([&budget], 1);
        let ask = Ask { turn: Turn(1), ..ASK };
        let place = Place { waker: Waker::noop(), most: 2, of_leases: false };
        assert!(
            first.reserve_or_wait(ask, Now::default(), Some(place)).is_err_and(|(_, denied)| denied.waits)
        );
        let next = {
            let budget = budget.clone();
            thread::spawn(move || wait_for_it(&mut parts([&budget], 1), 2))
        };
        let leaving = thread::spawn(move || first.leave(Turn(1), Now::default()));
        held.release_all(Now::default());
        leaving.join().unwrap();
        next.join().unwrap();
        assert_eq!((standing(&budget), budget.waiting()), ((0, 1), 0));
    });
}

#[test]
fn loom_nobody_who_comes_later_passes_the_one_who_waits() {
    model(|| {
        let (budget, mut held) = taken();
        let mut first = parts([&budget], 1);
        let ask = Ask { turn: Turn(1), ..ASK };
        let place = Place { waker: Waker::noop(), most: 2, of_leases: false };
        assert!(first.reserve_or_wait(ask, Now::default(), Some(place)).is_err());
        let later = {
            let budget = budget.clone();
            thread::spawn(move || reserve(&mut parts([&budget], 1)))
        };
        held.release_all(Now::default());
        assert!(!later.join().unwrap());
        assert!(first.reserve_or_wait(ask, Now::default(), Some(place)).is_ok());
    });
}

#[test]
fn loom_a_limit_that_is_raised_wakes_who_waits() {
    model(|| {
        let (budget, _held) = taken();
        let waiting = {
            let budget = budget.clone();
            thread::spawn(move || wait_for_it(&mut parts([&budget], 1), 1))
        };
        budget.set_limit(2);
        waiting.join().unwrap();
        assert_eq!((standing(&budget), budget.waiting()), ((0, 2), 0));
    });
}
