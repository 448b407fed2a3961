use super::*;

const LINES: Lines = Lines { soft_millionths: 850_000, closing_reserve: 0 };

fn reserve(account: &Account, amount: u64) -> Result<Crossed, Denied> {
    account.reserve(amount, false, || true)
}

#[test]
fn a_denial_changes_nothing_and_says_what_is_left() {
    let account = Account::new(10, LINES);
    reserve(&account, 7).unwrap();
    assert_eq!(reserve(&account, 4), Err(Denied { why: Why::Hard, limit: 10, left: 3 }));
    assert_eq!((account.committed(), account.spent()), (7, 0));
    reserve(&account, 3).unwrap();
}

#[test]
fn the_largest_numbers_are_refused_and_saturate() {
    let account = Account::new(u64::MAX, LINES);
    reserve(&account, u64::MAX).unwrap();
    assert!(reserve(&account, 1).is_err());
    account.release(u64::MAX);
    reserve(&account, 1).unwrap();
    account.settle(1, u64::MAX, Outcome::Success, false);
    assert_eq!((account.spent(), account.committed()), (MAX_CALL, MAX_CALL));
    account.restore(u64::MAX);
    account.late(u64::MAX, Outcome::Success);
    assert!(account.spent() <= account.committed());
}

#[test]
fn the_soft_line_is_a_share_of_what_calls_that_are_not_final_have() {
    let lines = Lines { soft_millionths: 850_000, closing_reserve: 1_000 };
    assert_eq!((lines.hard(3_000), lines.soft(3_000)), (2_000, 1_700));
    assert_eq!((lines.hard(500), lines.soft(500)), (0, 0));
    let none = Lines { soft_millionths: 1_000_000, closing_reserve: 0 };
    assert_eq!(none.soft(u64::MAX), u64::MAX);
}

#[test]
fn the_crossing_is_told_once_until_the_limit_moves_above_what_is_spent() {
    let account = Account::new(100, LINES);
    let call = |amount| {
        let reserved = reserve(&account, amount).unwrap().soft;
        let settled = account.settle(amount, amount, Outcome::Success, false).soft;
        u32::from(reserved) + u32::from(settled)
    };
    assert_eq!([call(84), call(1), call(5)], [0, 1, 0]);
    account.set_limit(200);
    assert_eq!([call(79), call(1), call(1)], [0, 1, 0]);
}

#[test]
fn who_may_pass_the_soft_line_is_asked_there_only_and_a_final_call_is_not_asked() {
    let account = Account::new(100, LINES);
    account.reserve(85, false, || panic!("not asked below it")).unwrap();
    assert_eq!(account.reserve(1, false, || false), Err(Denied { why: Why::Soft, limit: 100, left: 15 }));
    account.reserve(1, false, || true).unwrap();
    account.reserve(1, true, || panic!("not asked when final")).unwrap();
}

#[test]
fn the_closing_reserve_serves_final_calls_only() {
    let account = Account::new(100, Lines { soft_millionths: 1_000_000, closing_reserve: 20 });
    reserve(&account, 80).unwrap();
    assert_eq!(reserve(&account, 1).unwrap_err().why, Why::Hard);
    account.reserve(20, true, || false).unwrap();
    assert_eq!(account.reserve(1, true, || false).unwrap_err().why, Why::Hard);
}

#[test]
fn an_untouched_account_may_go_and_one_that_holds_anything_may_not() {
    let account = Account::new(100, LINES);
    assert!(account.may_go());
    reserve(&account, 5).unwrap();
    assert!(!account.may_go());
    account.release(5);
    assert!(account.may_go());
    reserve(&account, 5).unwrap();
    account.settle(5, 1, Outcome::Success, false);
    assert!(!account.may_go());
    let adjusted = Account::new(100, LINES);
    adjusted.set_limit(7);
    assert!(!adjusted.may_go());
}

#[test]
fn a_restored_state_may_lie_above_or_below_and_reservations_stay() {
    let account = Account::new(100, LINES);
    reserve(&account, 5).unwrap();
    account.restore(40);
    assert_eq!((account.spent(), account.committed()), (40, 45));
    account.restore(10);
    assert_eq!((account.spent(), account.committed()), (10, 15));
    account.settle(5, 2, Outcome::Success, false);
    let spend = account.spend();
    assert_eq!((spend.spent(), spend.carried(), spend.of(Outcome::Success).spent), (12, 10, 2));
}
