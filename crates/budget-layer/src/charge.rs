//! The guard of one call: it moves from `call` into the future and then into the body, and its budget settles once.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use failsoft_core::{Call, Class, Closer, Closing, Guard, Usage, Verdict};

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
    bill: Arc<Bill>,
    /// `None` once the outcome is known.
    closer: Option<Closer>,
    /// The inner service or its future is at work just now: if the charge is dropped meanwhile, it panicked.
    working: bool,
}

impl Charge {
    /// For what was reserved in `budget`; the call's scope tells what is used.
    pub(crate) fn new(
        ledger: Ledger,
        budget: Budget,
        estimate: Estimate,
        cut_in_full: bool,
        call: &Call,
    ) -> Self {
        let bill = Arc::new(Bill { ledger, budget, estimate, cut_in_full, state: Mutex::default() });
        let told = Arc::clone(&bill);
        let closer = call.closer(move |closing| told.close(closing));
        Self { bill, closer: Some(closer), working: false }
    }

    /// Runs what belongs to the inner service; its panic is a failure of the call.
    pub(crate) fn working<R>(&mut self, work: impl FnOnce() -> R) -> R {
        self.working = true;
        let result = work();
        self.working = false;
        result
    }

    pub(crate) fn end(&mut self, ended: Ended) {
        if let Some(closer) = self.closer.take() {
            self.bill.lock().ended = Some(ended);
            drop(closer);
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
        f.debug_struct("Charge")
            .field("budget", &self.bill.budget)
            .field("estimate", &self.bill.estimate)
            .field("ended", &self.closer.is_none())
            .finish_non_exhaustive()
    }
}

struct Bill {
    ledger: Ledger,
    budget: Budget,
    /// The reservation is its total.
    estimate: Estimate,
    cut_in_full: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ended: Option<Ended>,
    settled: bool,
    /// What was booked for attempts that had not said anything: what they say late counts against it.
    guessed: u64,
    /// What came late before the settling: another thread was faster.
    late: u64,
}

impl Bill {
    fn close(&self, closing: Closing) {
        match closing {
            Closing::Settled { usage, unknown } => self.settle(&usage, unknown),
            Closing::Late { usage } => self.late(usage.total()),
        }
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
        drop(state);

        let account = self.budget.account();
        if ended.outcome == Outcome::Denied && cost.tokens == 0 {
            // A layer further in said no before anything was sent: as if the call had never been.
            account.release(self.estimate.total());
            return;
        }
        let crossed = account.settle(self.estimate.total(), cost.tokens, ended.outcome, cost.unknown);
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
    /// A scope has one closer: whoever puts another on ours takes its settling away. Even so no reservation stays for ever.
    fn drop(&mut self) {
        self.settle(&Usage::default(), 1);
    }
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use super::*;
    use crate::account::Lines;

    fn bill() -> (Arc<Bill>, Budget) {
        let lines = Lines { soft_millionths: 1_000_000, closing_reserve: 0 };
        let ledger = Ledger::new("session".into(), 1_000, lines, 1);
        let (budget, estimate) = (ledger.unkeyed().clone(), Estimate::whole(100));
        assert!(budget.account().reserve(estimate.total(), false, || true).is_ok());
        let state = Mutex::default();
        let bill = Bill { ledger, budget: budget.clone(), estimate, cut_in_full: false, state };
        (Arc::new(bill), budget)
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
