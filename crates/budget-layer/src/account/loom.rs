//! Every interleaving of the counters.
//!
//! `RUSTFLAGS="--cfg failsoft_loom" cargo test --release -p budget-layer --lib loom`

use loom::{model::Builder, sync::Arc, thread};

use super::{Account, Lines, Outcome};

const NO_LINES: Lines = Lines { soft_millionths: 1_000_000, closing_reserve: 0 };

/// Three forced switches of threads find every race that two atomics can have; without a bound this runs for minutes.
fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(check);
}

fn account(limit: u64) -> Arc<Account> {
    Arc::new(Account::new(limit, NO_LINES))
}

fn reserve(account: &Account, amount: u64) -> bool {
    account.reserve(amount, false, || true).is_ok()
}

fn spawn<R: 'static>(
    account: &Arc<Account>,
    run: impl FnOnce(&Account) -> R + 'static,
) -> thread::JoinHandle<R> {
    let account = Arc::clone(account);
    thread::spawn(move || run(&account))
}

#[test]
fn loom_of_two_that_want_the_last_part_one_gets_it() {
    model(|| {
        let account = account(10);
        let other = spawn(&account, |account| reserve(account, 6));
        let mine = reserve(&account, 6);
        assert!(mine != other.join().unwrap(), "exactly one");
        assert_eq!(account.committed(), 6);
    });
}

#[test]
fn loom_reserve_and_settle_leave_exact_sums_and_never_pass_the_limit() {
    model(|| {
        let account = account(10);
        let call = |used| {
            move |account: &Account| {
                let admitted = reserve(account, 5);
                if admitted {
                    account.settle(5, used, Outcome::Success, false);
                }
                if admitted { used } else { 0 }
            }
        };
        let other = spawn(&account, call(2));
        let mine = call(5)(&account);
        // Whoever looks meanwhile sees no more spent than committed, and no more committed than allowed.
        let (spent, committed) = (account.spent(), account.committed());
        assert!(spent <= committed && committed <= 10, "{spent} {committed}");
        let used = mine + other.join().unwrap();
        assert_eq!((account.spent(), account.committed()), (used, used));
    });
}

#[test]
fn loom_what_is_spent_is_never_more_than_what_is_committed_while_a_call_overruns() {
    model(|| {
        let account = account(10);
        assert!(reserve(&account, 3));
        let other = spawn(&account, |account| account.settle(3, 7, Outcome::Success, false));
        let (spent, committed) = (account.spent(), account.committed());
        assert!(spent <= committed, "{spent} {committed}");
        let _ = other.join().unwrap();
        assert_eq!((account.spent(), account.committed()), (7, 7));
    });
}

#[test]
fn loom_late_usage_a_release_and_a_settling_add_up() {
    model(|| {
        let account = account(100);
        assert!(reserve(&account, 10) && reserve(&account, 20));
        let late = spawn(&account, |account| account.late(4, Outcome::Success));
        let released = spawn(&account, |account| account.release(20));
        let _ = account.settle(10, 6, Outcome::Transient, true);
        let _ = late.join().unwrap();
        released.join().unwrap();
        assert_eq!((account.spent(), account.committed()), (10, 10));
    });
}

#[test]
fn loom_the_soft_line_is_told_once() {
    model(|| {
        let account = Arc::new(Account::new(10, Lines { soft_millionths: 500_000, closing_reserve: 0 }));
        assert!(reserve(&account, 5) && reserve(&account, 5));
        let other = spawn(&account, |account| account.settle(5, 5, Outcome::Success, false).soft);
        let mine = account.settle(5, 5, Outcome::Success, false).soft;
        let others = other.join().unwrap();
        // `reserve` told it, or one of the settlings did.
        assert!(!(mine && others));
    });
}

#[test]
fn loom_a_restored_state_and_a_call_in_flight_both_count() {
    model(|| {
        let account = account(100);
        assert!(reserve(&account, 10));
        let other = spawn(&account, |account| account.restore(30));
        let _ = account.settle(10, 10, Outcome::Success, false);
        other.join().unwrap();
        assert_eq!(account.spent(), account.committed());
        // The call was there before the state was restored, and is replaced by it, or came after it.
        assert!([30, 40].contains(&account.spent()), "{}", account.spent());
    });
}
