//! The counters of one budget: reserve, settle, and what was spent on what. No lock, no clock.
//!
//! `committed` is what is spent and reserved together: admission is one compare-and-swap on it, so that callers who
//! come at once can never pass together what one of them could not. `spent` follows at the settling. The order of the
//! steps of a settling keeps `spent <= committed` at every moment.

#[cfg(all(test, failsoft_loom))]
mod loom;
#[cfg(all(test, not(failsoft_loom)))]
mod tests;

#[cfg(failsoft_loom)]
use ::loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
#[cfg(not(failsoft_loom))]
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use failsoft_core::Evict;

use crate::{Outcome, Spend, Tally};

/// No call counts for more: what a peer claims to have used must not overflow sums that are meant to be exact.
pub(crate) const MAX_CALL: u64 = 1 << 40;

/// What cannot change while it runs, but the limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lines {
    /// The soft line in millionths of what is there for calls that are not final.
    pub(crate) soft_millionths: u32,
    /// The last part of the limit, kept for calls that are marked final.
    pub(crate) closing_reserve: u64,
}

impl Lines {
    /// What is there for calls that are not final.
    pub(crate) const fn hard(self, limit: u64) -> u64 {
        limit.saturating_sub(self.closing_reserve)
    }

    pub(crate) fn soft(self, limit: u64) -> u64 {
        let soft = u128::from(self.hard(limit)) * u128::from(self.soft_millionths) / 1_000_000;
        u64::try_from(soft).unwrap_or(u64::MAX)
    }
}

pub(crate) struct Account {
    lines: Lines,
    limit: AtomicU64,
    /// Spent and reserved.
    committed: AtomicU64,
    spent: AtomicU64,
    /// The soft line was crossed, and that was told.
    past_soft: AtomicBool,
    /// Somebody set the limit or restored the state: forgetting it would undo that.
    adjusted: AtomicBool,
    denied: AtomicU64,
    unknown: AtomicU64,
    late: AtomicU64,
    tallies: [Counts; Outcome::COUNT],
}

struct Counts {
    calls: AtomicU64,
    spent: AtomicU64,
}

/// Why a reservation was refused, and how things stood then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Denied {
    pub(crate) why: Why,
    pub(crate) limit: u64,
    /// What is left for a call of this kind.
    pub(crate) left: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Past the soft line, and not of the calls that pass there.
    Soft,
    /// It does not fit.
    Hard,
}

/// Something that happens once and is worth telling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Crossed {
    /// The soft line, for the first time.
    pub(crate) soft: bool,
    /// More is spent than the limit allows: some call used more than was estimated.
    pub(crate) overrun: u64,
}

impl Account {
    pub(crate) fn new(limit: u64, lines: Lines) -> Self {
        Self {
            lines,
            limit: AtomicU64::new(limit),
            committed: AtomicU64::new(0),
            spent: AtomicU64::new(0),
            past_soft: AtomicBool::new(false),
            adjusted: AtomicBool::new(false),
            denied: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            late: AtomicU64::new(0),
            tallies: std::array::from_fn(|_| Counts { calls: AtomicU64::new(0), spent: AtomicU64::new(0) }),
        }
    }

    /// Reserves `amount`, or nothing. `may_pass_soft` is asked at most once, and only past the soft line.
    pub(crate) fn reserve(
        &self,
        amount: u64,
        is_final: bool,
        may_pass_soft: impl FnOnce() -> bool,
    ) -> Result<Crossed, Denied> {
        let mut ask = Some(may_pass_soft);
        let mut passes_soft = is_final;
        let mut committed = self.committed.load(Ordering::Acquire);
        loop {
            let limit = self.limit.load(Ordering::Relaxed);
            let hard = if is_final { limit } else { self.lines.hard(limit) };
            let denied = |why| Denied { why, limit, left: hard.saturating_sub(committed) };
            if !passes_soft && committed >= self.lines.soft(limit) {
                if let Some(ask) = ask.take() {
                    passes_soft = ask();
                }
                if !passes_soft {
                    return Err(denied(Why::Soft));
                }
            }
            let Some(next) = committed.checked_add(amount).filter(|next| *next <= hard) else {
                return Err(denied(Why::Hard));
            };
            match self.committed.compare_exchange_weak(committed, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(self.crossed(committed)),
                Err(now) => committed = now,
            }
        }
    }

    /// A call was turned away.
    pub(crate) fn count_denied(&self) {
        add(&self.denied, 1);
    }

    /// Gives a reservation back as if it had never been.
    pub(crate) fn release(&self, reserved: u64) {
        take_off(&self.committed, reserved);
    }

    /// Turns a reservation into what was used.
    pub(crate) fn settle(&self, reserved: u64, used: u64, outcome: Outcome, unknown: bool) -> Crossed {
        let used = used.min(MAX_CALL);
        if let Some(more) = used.checked_sub(reserved) {
            add(&self.committed, more);
        }
        add(&self.spent, used);
        if let Some(less) = reserved.checked_sub(used) {
            take_off(&self.committed, less);
        }
        let counts = &self.tallies[outcome.index()];
        add(&counts.calls, 1);
        add(&counts.spent, used);
        add(&self.unknown, u64::from(unknown));
        self.crossed_by_spending()
    }

    /// Books what came after a call was settled.
    pub(crate) fn late(&self, more: u64, outcome: Outcome) -> Crossed {
        let more = more.min(MAX_CALL);
        add(&self.committed, more);
        add(&self.spent, more);
        add(&self.tallies[outcome.index()].spent, more);
        add(&self.late, 1);
        self.crossed_by_spending()
    }

    /// Sets the limit; calls in flight keep what they reserved.
    pub(crate) fn set_limit(&self, limit: u64) {
        self.adjusted.store(true, Ordering::Relaxed);
        self.limit.store(limit, Ordering::Relaxed);
        self.look_at_soft_again();
    }

    /// Sets what was spent; calls in flight keep what they reserved.
    pub(crate) fn restore(&self, spent: u64) {
        self.adjusted.store(true, Ordering::Relaxed);
        // As far from the end as sums of calls will ever come.
        let spent = spent.min(u64::MAX / 2);
        let before = self.spent.load(Ordering::Acquire);
        if let Some(more) = spent.checked_sub(before) {
            add(&self.committed, more);
            add(&self.spent, more);
        } else {
            let less = before - spent;
            take_off(&self.spent, less);
            take_off(&self.committed, less);
        }
        self.look_at_soft_again();
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    pub(crate) fn spent(&self) -> u64 {
        self.spent.load(Ordering::Acquire)
    }

    pub(crate) fn committed(&self) -> u64 {
        self.committed.load(Ordering::Acquire)
    }

    pub(crate) const fn lines(&self) -> Lines {
        self.lines
    }

    pub(crate) fn spend(&self) -> Spend {
        let tally = |counts: &Counts| Tally {
            calls: counts.calls.load(Ordering::Relaxed),
            spent: counts.spent.load(Ordering::Relaxed),
        };
        Spend {
            spent: self.spent(),
            tallies: std::array::from_fn(|index| tally(&self.tallies[index])),
            denied: self.denied.load(Ordering::Relaxed),
            unknown: self.unknown.load(Ordering::Relaxed),
            late: self.late.load(Ordering::Relaxed),
        }
    }

    fn crossed(&self, committed: u64) -> Crossed {
        let soft =
            committed >= self.lines.soft(self.limit()) && !self.past_soft.swap(true, Ordering::Relaxed);
        Crossed { soft, overrun: 0 }
    }

    fn crossed_by_spending(&self) -> Crossed {
        let spent = self.spent();
        Crossed { overrun: spent.saturating_sub(self.limit()), ..self.crossed(spent) }
    }

    /// Another limit may lie on the other side of what is spent: the next crossing is told again.
    fn look_at_soft_again(&self) {
        if self.committed() < self.lines.soft(self.limit()) {
            self.past_soft.store(false, Ordering::Relaxed);
        }
    }
}

impl Evict for Account {
    fn may_go(&self) -> bool {
        self.committed() == 0 && self.spent() == 0 && !self.adjusted.load(Ordering::Relaxed)
    }
}

fn add(counter: &AtomicU64, amount: u64) {
    update(counter, |now| now.saturating_add(amount));
}

fn take_off(counter: &AtomicU64, amount: u64) {
    update(counter, |now| now.saturating_sub(amount));
}

fn update(counter: &AtomicU64, next: impl Fn(u64) -> u64) {
    // Never refused, so it ends as soon as nobody interferes.
    let _ = counter.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| {
        let next = next(now);
        (next != now).then_some(next)
    });
}
