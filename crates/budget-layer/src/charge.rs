//! The guard of one call: it moves from `call` into the future and then into the body, and its budget settles once.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use failsoft_core::{Call, Class, Closing, Guard, Reservation, Reserved, Usage, Verdict};

use crate::{
    Budget, Estimate, Ledger, Outcome,
    cost::{Ended, cost},
    events,
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
}

impl Charge {
    /// Begins the call for which something was reserved; its scope tells what is used.
    pub(crate) fn begin(bill: Bill) -> (Call, Self) {
        let reserved = Call::options().reserving(bill);
        (reserved.call(), Self { reserved: Some(reserved), working: false })
    }

    /// Runs what belongs to the inner service; its panic is a failure of the call.
    pub(crate) fn working<R>(&mut self, work: impl FnOnce() -> R) -> R {
        self.working = true;
        let result = work();
        self.working = false;
        result
    }

    pub(crate) fn end(&mut self, ended: Ended) {
        if let Some(reserved) = self.reserved.take() {
            reserved.lock().ended = Some(ended);
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
pub(crate) struct Bill {
    ledger: Ledger,
    budget: Budget,
    /// The reservation is its total, for each attempt that was granted.
    estimate: Estimate,
    is_final: bool,
    cut_in_full: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ended: Option<Ended>,
    settled: bool,
    /// The further attempts for which as much was reserved as for the first.
    granted: u32,
    /// What was booked for attempts that had not said anything: what they say late counts against it.
    guessed: u64,
    /// What came late before the settling: another thread was faster.
    late: u64,
}

impl Reservation for Bill {
    fn reserve(&self) -> bool {
        let mut state = self.lock();
        if state.settled {
            return false;
        }
        // The call has passed the soft line already.
        match self.budget.account().reserve(self.estimate.total(), self.is_final, || true) {
            Ok(crossed) => {
                state.granted = state.granted.saturating_add(1);
                drop(state);
                events::crossed(self.ledger.name(), crossed, self.budget.limit());
                true
            }
            Err(denied) => {
                drop(state);
                events::attempt_denied(self.ledger.name(), &denied, self.estimate.total());
                false
            }
        }
    }

    fn release(&self) {
        let mut state = self.lock();
        if let Some(granted) = state.granted.checked_sub(1).filter(|_| !state.settled) {
            state.granted = granted;
            self.budget.account().release(self.estimate.total());
        }
    }

    fn close(&self, closing: Closing) {
        match closing {
            Closing::Settled { usage, unknown } => self.settle(&usage, unknown),
            Closing::Late { usage } => self.late(usage.total()),
        }
    }
}

impl Bill {
    pub(crate) fn new(
        ledger: Ledger,
        budget: Budget,
        estimate: Estimate,
        is_final: bool,
        cut_in_full: bool,
    ) -> Self {
        Self { ledger, budget, estimate, is_final, cut_in_full, state: Mutex::default() }
    }

    fn settle(&self, usage: &Usage, silent: u32) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.settled, true) {
            return;
        }
        let ended = state.ended.unwrap_or(Ended::CANCELLED);
        let mut cost = cost(&self.estimate, usage, silent, ended, self.cut_in_full);
        let told_already = state.late.min(cost.guessed);
        cost.tokens -= told_already;
        state.guessed = cost.guessed - told_already;
        let reserved = self.estimate.total().saturating_mul(u64::from(state.granted).saturating_add(1));
        drop(state);

        let account = self.budget.account();
        if ended.outcome == Outcome::Denied && cost.tokens == 0 {
            // A layer further in said no before anything was sent: as if the call had never been.
            account.release(reserved);
            return;
        }
        let crossed = account.settle(reserved, cost.tokens, ended.outcome, cost.unknown);
        if cost.unknown {
            events::unknown_usage(self.ledger.name(), cost.tokens);
        }
        events::crossed(self.ledger.name(), crossed, account.limit());
    }

    fn late(&self, used: u64) {
        let mut state = self.lock();
        let more = if state.settled {
            let known = used.min(state.guessed);
            state.guessed -= known;
            used - known
        } else {
            state.late = state.late.saturating_add(used);
            used
        };
        let outcome = state.ended.map_or(Outcome::Cancelled, |ended| ended.outcome);
        drop(state);
        let account = self.budget.account();
        let crossed = account.late(more, outcome);
        events::late_usage(self.ledger.name(), more);
        events::crossed(self.ledger.name(), crossed, account.limit());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Bill {
    /// The scope goes when nobody holds the call any more; whatever happened, no reservation stays for ever.
    fn drop(&mut self) {
        self.settle(&Usage::default(), 1);
    }
}

impl fmt::Debug for Bill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bill")
            .field("budget", &self.budget)
            .field("estimate", &self.estimate)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use super::*;
    use crate::account::Lines;

    fn bill() -> (Bill, Budget) {
        let lines = Lines { soft_millionths: 1_000_000, closing_reserve: 0 };
        let ledger = Ledger::new("session".into(), 1_000, lines, 1);
        let (budget, estimate) = (ledger.unkeyed().clone(), Estimate::whole(100));
        assert!(budget.account().reserve(estimate.total(), false, || true).is_ok());
        (Bill::new(ledger, budget.clone(), estimate, false, false), budget)
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
