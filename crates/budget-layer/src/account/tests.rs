use super::*;

/// An account beside its rules, with one part for each call.
struct Alone {
    rules: Rules,
    account: Account,
}

impl Alone {
    fn new(limit: u64, lines: &[u32], closing_reserve: u64) -> Self {
        Self::with(limit, lines, closing_reserve, |_| ())
    }

    fn with(limit: u64, lines: &[u32], closing_reserve: u64, change: impl FnOnce(&mut Rules)) -> Self {
        let lines = Lines { millionths: lines.into(), closing_reserve };
        let mut rules = Rules {
            name: "test".into(),
            unit: Unit::Tokens,
            window: Window::lifetime(),
            limit,
            lines,
            per_call: None,
            pause: None,
            heeds_quota: false,
            meters: Meters::default(),
            shared: None,
        };
        change(&mut rules);
        let account = Account::new(&rules);
        Self { rules, account }
    }

    fn ask(&mut self, amount: u64, ask: Ask, now: Now) -> Result<(Share, Crossed), Denied> {
        let mut share = Share::default();
        self.account.advance(&self.rules, now);
        self.account.check(&self.rules, &share, amount, ask, now)?;
        let crossed = self.account.reserve(&self.rules, &mut share, amount);
        Ok((share, crossed))
    }

    fn reserve(&mut self, amount: u64) -> Result<(Share, Crossed), Denied> {
        self.ask(amount, PLAIN, Now::default())
    }

    fn settle(&mut self, share: &Share, used: u64) -> Crossed {
        self.account.settle(&self.rules, share, used, Outcome::Success, false, Now::default())
    }

    fn standing(&self) -> (u64, u64) {
        (self.account.spend().spent(), self.account.committed())
    }
}

const PLAIN: Ask = Ask { is_final: false, passes_soft: true, is_first: true, turn: Turn::LAST };
const RESTRICTED: Ask = Ask { passes_soft: false, ..PLAIN };
const FINAL: Ask = Ask { is_final: true, ..RESTRICTED };
const SOFT: &[u32] = &[850_000];
const MINUTE: Duration = Duration::from_secs(60);

fn at(at: Instant) -> Now {
    Now::at(at)
}

// G107
#[test]
fn a_denial_changes_nothing_and_says_what_is_left() {
    let mut alone = Alone::new(10, SOFT, 0);
    alone.reserve(7).unwrap();
    let denied = Denied { why: Why::Hard, limit: 10, left: 3, renews_in: None, waits: false };
    assert_eq!(alone.reserve(4), Err(denied));
    assert_eq!(alone.standing(), (0, 7));
    alone.reserve(3).unwrap();
}

#[test]
fn the_largest_numbers_are_refused_and_saturate() {
    let mut alone = Alone::new(u64::MAX, SOFT, 0);
    let (mut share, _) = alone.reserve(u64::MAX).unwrap();
    assert!(alone.reserve(1).is_err());
    alone.account.release(&mut share, u64::MAX);
    let (share, _) = alone.reserve(1).unwrap();
    alone.settle(&share, u64::MAX);
    assert_eq!(alone.standing(), (MAX_CALL, MAX_CALL));
    alone.account.restore(&alone.rules, u64::MAX);
    alone.account.late(&alone.rules, u64::MAX, Outcome::Success, Now::default());
    let (spent, committed) = alone.standing();
    assert!(spent <= committed);
}

#[test]
fn the_soft_line_is_a_share_of_what_calls_that_are_not_final_have() {
    let alone = Alone::new(3_000, SOFT, 1_000);
    let lines =
        |alone: &Alone| (alone.account.own_hard(&alone.rules), alone.account.own_line(&alone.rules, 0));
    assert_eq!(lines(&alone), (2_000, 1_700));
    let alone = Alone::new(500, SOFT, 1_000);
    assert_eq!(lines(&alone), (0, 0));
    assert_eq!(lines(&Alone::new(u64::MAX, &[1_000_000], 0)).1, u64::MAX);
}

#[test]
fn each_line_is_told_once_until_the_limit_moves_above_what_is_spent() {
    let mut alone = Alone::new(100, &[850_000, 500_000, 1_000_000], 0);
    let call = |alone: &mut Alone, amount| {
        let (share, reserved) = alone.reserve(amount).unwrap();
        reserved.lines | alone.settle(&share, amount).lines
    };
    assert_eq!([49, 1, 34, 1, 5, 10].map(|amount| call(&mut alone, amount)), [0, 2, 0, 1, 0, 4]);
    alone.account.set_limit(&alone.rules, 200);
    // Half of it is used up as before.
    assert_eq!([69, 1, 1, 28, 1].map(|amount| call(&mut alone, amount)), [0, 1, 0, 0, 4]);
}

#[test]
fn past_the_soft_line_only_the_allowed_and_the_final_pass() {
    let mut alone = Alone::new(100, SOFT, 0);
    alone.ask(85, RESTRICTED, Now::default()).unwrap();
    let denied = Denied { why: Why::Soft, limit: 100, left: 15, renews_in: None, waits: false };
    assert_eq!(alone.ask(1, RESTRICTED, Now::default()), Err(denied));
    alone.reserve(1).unwrap();
    alone.ask(1, FINAL, Now::default()).unwrap();
}

#[test]
fn the_closing_reserve_serves_final_calls_only() {
    let mut alone = Alone::new(100, &[1_000_000], 20);
    alone.reserve(80).unwrap();
    assert_eq!(alone.reserve(1).unwrap_err().why, Why::Hard);
    alone.ask(20, FINAL, Now::default()).unwrap();
    assert_eq!(alone.ask(1, FINAL, Now::default()).unwrap_err().why, Why::Hard);
}

#[test]
fn an_untouched_account_may_go_and_one_that_holds_anything_may_not() {
    let mut alone = Alone::new(100, SOFT, 0);
    assert!(alone.account.may_go(&alone.rules));
    let (mut share, _) = alone.reserve(5).unwrap();
    assert!(!alone.account.may_go(&alone.rules));
    alone.account.release(&mut share, 5);
    assert!(alone.account.may_go(&alone.rules));
    let (share, _) = alone.reserve(5).unwrap();
    alone.settle(&share, 1);
    assert!(!alone.account.may_go(&alone.rules));
    let mut adjusted = Alone::new(100, SOFT, 0);
    adjusted.account.set_limit(&adjusted.rules, 7);
    assert!(!adjusted.account.may_go(&adjusted.rules));
}

#[test]
fn a_restored_state_may_lie_above_or_below_and_reservations_stay() {
    let mut alone = Alone::new(100, SOFT, 0);
    let (share, _) = alone.reserve(5).unwrap();
    alone.account.restore(&alone.rules, 40);
    assert_eq!(alone.standing(), (40, 45));
    alone.account.restore(&alone.rules, 10);
    assert_eq!(alone.standing(), (10, 15));
    alone.settle(&share, 2);
    let spend = alone.account.spend();
    assert_eq!((spend.spent(), spend.carried(), spend.of(Outcome::Success).spent), (12, 10, 2));
}

#[test]
fn no_call_takes_more_than_a_call_may_with_all_its_attempts() {
    let mut alone = Alone::with(1_000, SOFT, 0, |rules| rules.per_call = Some(100));
    let denied = Denied { why: Why::TooLarge, limit: 100, left: 100, renews_in: None, waits: false };
    assert_eq!(alone.reserve(101), Err(denied));
    let (share, _) = alone.reserve(60).unwrap();
    let again = alone.account.check(&alone.rules, &share, 60, PLAIN, Now::default());
    assert_eq!(again, Err(denied));
}

#[test]
fn who_spends_too_much_in_a_short_time_is_paused_and_then_goes_on() {
    let pause = Pause { most: 50, within: MINUTE, pause: 5 * MINUTE };
    let mut alone = Alone::with(1_000, SOFT, 0, |rules| rules.pause = Some(pause));
    let start = Instant::now();
    let mut call = |when: Instant, ask: Ask| {
        let (share, _) = alone.ask(30, ask, at(when))?;
        let crossed = alone.account.settle(&alone.rules, &share, 30, Outcome::Success, false, at(when));
        Ok::<_, Denied>(crossed.paused)
    };
    // Slowly enough: as often as one likes.
    for minute in 0..5 {
        assert_eq!(call(start + 2 * minute * MINUTE, PLAIN), Ok(false));
    }
    let fast = start + 20 * MINUTE;
    assert_eq!(call(fast, PLAIN), Ok(false));
    assert_eq!(call(fast + MINUTE / 2, PLAIN), Ok(true));
    let denied = call(fast + MINUTE, PLAIN).unwrap_err();
    assert_eq!((denied.why, denied.renews_in), (Why::Paused, Some(4 * MINUTE + MINUTE / 2)));
    assert!(call(fast + 2 * MINUTE, FINAL).is_ok(), "a session may conclude");
    assert_eq!(call(fast + 9 * MINUTE, PLAIN), Ok(false));
}

#[test]
fn over_a_window_a_denial_says_when_there_is_enough_again() {
    let mut alone = Alone::with(100, &[1_000_000], 0, |rules| rules.window = Window::sliding(MINUTE));
    let start = Instant::now();
    alone.ask(70, PLAIN, at(start)).unwrap();
    alone.ask(30, PLAIN, at(start + MINUTE / 2)).unwrap();
    let denied = alone.ask(50, PLAIN, at(start + MINUTE / 2)).unwrap_err();
    let wait = denied.renews_in.unwrap();
    assert!(wait >= MINUTE / 2 && wait <= MINUTE / 2 + MINUTE / 30, "{wait:?}");
    let later = start + MINUTE / 2 + wait;
    assert!(alone.ask(50, PLAIN, at(later - Duration::from_millis(1))).is_err());
    alone.ask(50, PLAIN, at(later)).unwrap();
    // What no window ever holds does not come by waiting.
    assert_eq!(alone.ask(101, PLAIN, at(later)).unwrap_err().renews_in, None);
}

// G115: a bucket in debt that was idle got its full tokens back.
#[test]
fn a_window_is_forgotten_only_once_nothing_is_in_it() {
    let mut alone = Alone::with(100, SOFT, 0, |rules| rules.window = Window::sliding(MINUTE));
    let start = Instant::now();
    let (share, _) = alone.ask(50, PLAIN, at(start)).unwrap();
    alone.account.settle(&alone.rules, &share, 500, Outcome::Success, false, at(start));
    for (after, goes) in [(MINUTE / 2, false), (MINUTE, false), (2 * MINUTE, true)] {
        alone.account.advance(&alone.rules, at(start + after));
        assert_eq!(alone.account.may_go(&alone.rules), goes, "{after:?}");
    }
}

#[test]
fn a_further_attempt_counts_from_now_on_and_what_was_reserved_before_the_window_not_again() {
    let mut alone = Alone::with(100, SOFT, 0, |rules| rules.window = Window::sliding(MINUTE));
    let start = Instant::now();
    let (mut share, _) = alone.ask(20, PLAIN, at(start)).unwrap();
    alone.account.advance(&alone.rules, at(start + MINUTE / 2));
    alone.account.reserve(&alone.rules, &mut share, 20);
    assert_eq!(alone.account.committed(), 40);
    alone.account.advance(&alone.rules, at(start + 5 * MINUTE));
    alone.account.reserve(&alone.rules, &mut share, 20);
    assert_eq!((share.reserved, alone.account.committed()), (20, 20));
    let now = at(start + 5 * MINUTE);
    alone.account.settle(&alone.rules, &share, 55, Outcome::Success, false, now);
    assert_eq!((alone.account.committed(), alone.account.spend().spent()), (20, 55));
    let now = at(start + 20 * MINUTE);
    alone.account.advance(&alone.rules, now);
    alone.account.reserve(&alone.rules, &mut share, 20);
    alone.account.settle(&alone.rules, &share, 90, Outcome::Success, false, now);
    assert_eq!(alone.account.committed(), 30, "10 more than was ever reserved");
}
