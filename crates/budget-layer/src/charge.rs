//! The guard of one call: it moves from `call` into the future and then into the body, and its budget settles once.

use std::{
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU16, Ordering},
    },
    task::Waker,
};

#[cfg(feature = "http")]
use failsoft_core::advice::{Left, Remaining};
use failsoft_core::{CallOptions, Class, Closing, Guard, Reservation, Reserved, Usage, Verdict};
use tokio::time::Instant;

use crate::{
    Estimate, Outcome, Unit,
    account::{Ask, queue::Turn},
    budget::{Part, Parts},
    cost::{Ended, cost, teach},
    estimate::millis,
    events,
    metrics::Settled,
    window::{Clocks, Now},
};

/// What one call has reserved. Its budget settles when this is gone and no reader further in is at work any more: at the end
/// of the body, at an error, or when the call is dropped.
///
/// Public because it is part of the response's type: the body of an `http::Response` carries it.
pub struct Charge {
    /// `None` once the outcome is known.
    reserved: Option<Reserved<Bill>>,
    /// The inner service or its future is at work just now: if the charge is dropped meanwhile, it panicked.
    working: bool,
    /// Some of its budgets are tightened by what the server says.
    #[cfg_attr(not(feature = "http"), allow(dead_code))]
    heeds_quota: bool,
}

impl Charge {
    /// Begins the call for which something is reserved; its scope tells what is used.
    #[inline]
    pub(crate) fn begin<E>(
        options: CallOptions,
        reserve: impl FnOnce(&mut Bill) -> Result<(), E>,
    ) -> Result<Self, E> {
        let reserved = options.try_reserving(reserve)?;
        Ok(Self { reserved: Some(reserved), working: false, heeds_quota: false })
    }

    pub(crate) const fn heeding_quota(mut self, heeds_quota: bool) -> Self {
        self.heeds_quota = heeds_quota;
        self
    }

    #[cfg(feature = "http")]
    pub(crate) const fn heeds_quota(&self) -> bool {
        self.heeds_quota
    }

    /// What the server says of its own limits, in the head of its answer.
    #[cfg(feature = "http")]
    pub(crate) fn heed(&self, remaining: Remaining) {
        if let Some(reserved) = &self.reserved {
            reserved.heed(remaining);
        }
    }

    /// What is worth telling of the reservation; nothing is locked meanwhile.
    #[inline]
    pub(crate) fn tell(&self) {
        if let Some(reserved) = &self.reserved {
            tell(reserved.lock());
        }
    }

    /// Runs what belongs to the inner service, in the scope of the call; its panic is a failure of the call.
    #[inline]
    pub(crate) fn working<R>(&mut self, work: impl FnOnce() -> R) -> R {
        self.working = true;
        let result = match &self.reserved {
            Some(reserved) => reserved.enter(work),
            None => work(),
        };
        self.working = false;
        result
    }

    pub(crate) fn end(&mut self, ended: Ended) {
        if let Some(reserved) = self.reserved.take() {
            reserved.ended.store(ended.to_bits(), Ordering::Release);
        }
    }
}

impl Guard for Charge {
    fn settle(&mut self, verdict: Verdict) {
        self.end(Ended::after(&verdict));
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let class = if self.working { Class::Unknown } else { Class::Cancelled };
        self.settle(Verdict::of(class));
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Charge").field("bill", &self.reserved.as_deref()).finish_non_exhaustive()
    }
}

/// What was reserved for one call, in the scope of that call.
#[derive(Debug, Default)]
pub(crate) struct Bill {
    estimate: Estimate,
    is_final: bool,
    cut_in_full: bool,
    clocks: Clocks,
    /// When it began, where somebody counts the time.
    began: Option<Instant>,
    /// How it ended; 0 until it did.
    ended: AtomicU16,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    parts: Parts,
    settled: bool,
    /// The further attempts for which as much was reserved as for the first.
    granted: u32,
    /// What was booked for attempts that had not said anything: what they say late counts against it.
    guessed: Used,
    /// What came late before the settling: another thread was faster.
    late: Used,
}

/// What is counted by what attempts say.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    tokens: u64,
    money: u64,
}

impl Used {
    /// The place of a unit, if what attempts say counts in it.
    const fn of(&mut self, unit: Unit) -> Option<&mut u64> {
        match unit {
            Unit::Tokens => Some(&mut self.tokens),
            Unit::Money => Some(&mut self.money),
            Unit::Calls | Unit::Time | Unit::Concurrent => None,
        }
    }
}

impl Bill {
    /// What it is about, before anything is reserved.
    #[inline]
    pub(crate) fn set(
        &mut self,
        estimate: Estimate,
        is_final: bool,
        cut_in_full: bool,
        clocks: Clocks,
        now: Now,
    ) -> &mut Parts {
        self.estimate = estimate;
        (self.is_final, self.cut_in_full, self.clocks, self.began) = (is_final, cut_in_full, clocks, now.at);
        &mut self.state.get_mut().unwrap_or_else(PoisonError::into_inner).parts
    }

    fn measure(&self, unit: Unit, usage: &Usage) -> u64 {
        match (unit, self.estimate.price()) {
            (Unit::Money, Some(price)) => price.of(usage),
            _ => usage.total(),
        }
    }

    fn settle(&self, usage: &Usage, silent: u32) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.settled, true) || state.parts.is_empty() {
            return;
        }
        let ended = self.ended().unwrap_or(Ended::CANCELLED);
        let cost = cost(&self.estimate, usage, silent, ended, self.cut_in_full);
        teach(&self.estimate, usage, silent, state.granted, ended);
        let State { parts, granted, guessed, late, .. } = &mut *state;
        if ended.outcome == Outcome::Denied && cost.is_free {
            // A layer further in said no before anything was sent: as if the call had never been.
            parts.release_all();
            return;
        }
        let now = self.clocks.now();
        let took =
            || self.began.zip(now.at).map_or(0, |(began, at)| millis(at.saturating_duration_since(began)));
        for Part { budget, each, share, crossed, .. } in parts.iter_mut() {
            let (rules, unit) = (budget.rules(), budget.unit());
            let used = match unit {
                Unit::Tokens | Unit::Money => {
                    let (used, guess) = cost.measure(*each, |usage| self.measure(unit, usage));
                    let early = late.of(unit).map_or(0, |late| (*late).min(guess));
                    if let Some(guessed) = guessed.of(unit) {
                        *guessed = guess - early;
                    }
                    used - early
                }
                Unit::Calls => u64::from(*granted).saturating_add(1),
                Unit::Time => took(),
                Unit::Concurrent => 0,
            };
            let mut account = budget.lock();
            account.advance(rules, now);
            *crossed = account.settle(rules, share, used, ended.outcome, cost.unknown, now);
            let next = account.first_in_line();
            drop(account);
            next.into_iter().for_each(Waker::wake);
            let (outcome, reserved, unknown) = (ended.outcome, share.all(), cost.unknown);
            rules.meters.settled(&rules.name, Settled { outcome, reserved, used, unknown });
            if cost.unknown {
                events::unknown_usage(&rules.name, used);
            }
        }
        tell(state);
    }

    #[cfg(feature = "http")]
    fn heed(&self, remaining: Remaining) {
        let now = self.clocks.now();
        for Part { budget, share, .. } in self.lock().parts.iter() {
            let rules = budget.rules();
            let said = match rules.unit {
                Unit::Tokens => remaining.tokens,
                Unit::Calls => remaining.requests,
                _ => None,
            };
            if let Some(Left { left, reset, .. }) = said.filter(|_| rules.heeds_quota) {
                let mut account = budget.lock();
                account.server_says(rules, share, left, reset, now);
                // It may be more than it said before.
                let next = account.first_in_line();
                drop(account);
                next.into_iter().for_each(Waker::wake);
            }
        }
    }

    fn late(&self, usage: &Usage) {
        let now = self.clocks.now();
        let mut state = self.lock();
        let outcome = self.ended().map_or(Outcome::Cancelled, |ended| ended.outcome);
        let State { parts, settled, guessed, late, .. } = &mut *state;
        // Each unit once, however many budgets count in it.
        let mut more = Used::default();
        for unit in [Unit::Tokens, Unit::Money] {
            let used = self.measure(unit, usage);
            if let (Some(more), Some(guessed), Some(late)) = (more.of(unit), guessed.of(unit), late.of(unit))
            {
                let known = if *settled { used.min(*guessed) } else { 0 };
                *guessed -= known;
                *late = if *settled { *late } else { late.saturating_add(used) };
                *more = used - known;
            }
        }
        for Part { budget, crossed, .. } in parts.iter_mut() {
            if let Some(&mut more) = more.of(budget.unit()) {
                let rules = budget.rules();
                let mut account = budget.lock();
                account.advance(rules, now);
                *crossed = account.late(rules, more, outcome, now);
                drop(account);
                events::late_usage(rules, outcome, more);
            }
        }
        tell(state);
    }

    fn ended(&self) -> Option<Ended> {
        Ended::from_bits(self.ended.load(Ordering::Acquire))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation for Bill {
    fn reserve(&self) -> bool {
        let now = self.clocks.now();
        let mut state = self.lock();
        if state.settled {
            return false;
        }
        // The call has passed the soft line already.
        let ask = Ask { is_final: self.is_final, passes_soft: true, is_first: false, turn: Turn::FIRST };
        match state.parts.reserve(ask, now) {
            Ok(()) => {
                state.granted = state.granted.saturating_add(1);
                tell(state);
                true
            }
            Err((budget, denied)) => {
                drop(state);
                events::attempt_denied(budget.rules(), &denied);
                false
            }
        }
    }

    fn release(&self) {
        let mut state = self.lock();
        if let Some(granted) = state.granted.checked_sub(1).filter(|_| !state.settled) {
            state.granted = granted;
            state.parts.release();
        }
    }

    fn close(&self, closing: Closing) {
        match closing {
            Closing::Settled { usage, unknown } => self.settle(&usage, unknown),
            Closing::Late { usage } => self.late(&usage),
        }
    }
}

/// Tells what was crossed, when nothing is locked any more: listeners may ask the budgets.
fn tell(mut state: MutexGuard<'_, State>) {
    if state.parts.iter().all(|part| part.crossed.is_nothing()) {
        return;
    }
    let told = state.parts.take_crossed();
    drop(state);
    for (budget, crossed) in told {
        events::crossed(&budget, crossed);
    }
}

impl Drop for Bill {
    /// The scope goes when nobody holds the call any more; whatever happened, no reservation stays for ever.
    fn drop(&mut self) {
        self.settle(&Usage::default(), 1);
    }
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use super::*;
    use crate::{Budget, BudgetLayer};

    #[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
    fn bill() -> (Bill, Budget) {
        let layer = BudgetLayer::builder().tokens(1_000).soft_line(1.0).build().unwrap();
        let budget = layer.budget().clone();
        let mut bill = Bill::default();
        let parts = bill.set(Estimate::whole(100), false, false, Clocks::NONE, Now::default());
        parts.push(Part::new(budget.clone(), 100));
        let ask = Ask { is_final: false, passes_soft: true, is_first: true, turn: Turn::LAST };
        assert!(parts.reserve(ask, Now::default()).is_ok());
        (bill, budget)
    }

    fn tokens(output: u64) -> Usage {
        Usage { output: Some(output), ..Usage::default() }
    }

    #[test]
    fn late_usage_that_overtakes_the_settling_counts_against_the_guess_too() {
        let silent = Closing::Settled { usage: Usage::default(), unknown: 1 };
        for (late, spent) in [(30, 100), (130, 130)] {
            let (bill, budget) = bill();
            bill.close(Closing::Late { usage: tokens(late) });
            bill.close(silent);
            assert_eq!((budget.spent(), budget.reserved()), (spent, 0));
        }
        // What was said is no guess.
        let (bill, budget) = bill();
        bill.close(Closing::Late { usage: tokens(30) });
        bill.close(Closing::Settled { usage: Usage { input: Some(1), ..tokens(2) }, unknown: 0 });
        assert_eq!(budget.spent(), 33);
    }

    #[test]
    fn each_further_attempt_is_reserved_for_until_the_settling_and_what_was_not_made_is_given_back() {
        let (bill, budget) = bill();
        assert!((0..9).all(|_| bill.reserve()));
        assert!(!bill.reserve(), "there was enough for ten");
        bill.release();
        assert_eq!(budget.reserved(), 900);
        bill.close(Closing::Settled { usage: tokens(2), unknown: 3 });
        assert_eq!((budget.spent(), budget.reserved()), (400, 0));
        assert!(!bill.reserve());
        bill.release();
        assert_eq!((budget.spent(), budget.reserved()), (400, 0));
    }

    #[test]
    fn a_bill_is_settled_once_whoever_asks_and_when_nobody_does() {
        let (bill, budget) = bill();
        let settled = Closing::Settled { usage: Usage { input: Some(1), ..tokens(2) }, unknown: 0 };
        bill.close(settled);
        bill.close(settled);
        drop(bill);
        assert_eq!((budget.spent(), budget.spend().calls()), (3, 1));
        let (bill, budget) = self::bill();
        drop(bill);
        assert_eq!((budget.spent(), budget.reserved(), budget.spend().calls()), (100, 0, 1));
    }
}
