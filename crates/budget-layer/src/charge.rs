//! The guard of one call: it moves from `call` into the future and then into the body, and its budget settles once.

use std::{
    fmt, mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU16, Ordering},
    },
    task::Context,
};

#[cfg(feature = "http")]
use failsoft_core::advice::{Left, Remaining};
use failsoft_core::{Attempted, CallOptions, Class, Closing, Guard, Reservation, Reserved, Usage, Verdict};
use tokio::time::Instant;

use crate::{
    Budget, Estimate, Outcome, Unit,
    account::{Ask, Crossed, MAX_CALL, queue::Turn},
    book::{Booking, Guess, Total},
    builder::Options,
    cell::Cell,
    cost::{Ended, cost, teach},
    estimate::millis,
    events,
    metrics::Settled,
    parts::Parts,
    plain::{self, Entered, Plain},
    window::{Clocks, Now},
};

/// What one call has reserved. Its budget settles when this is gone and no reader further in is at work any more: at the end
/// of the body, at an error, or when the call is dropped.
///
/// Public because it is part of the response's type: the body of an `http::Response` carries it.
pub struct Charge {
    held: Held,
    /// The inner service or its future is at work just now: if the charge is dropped meanwhile, it panicked.
    working: bool,
}

/// What a charge holds.
pub(crate) enum Held {
    /// What needs no scope yet.
    Plain(Plain),
    Bill {
        reserved: Reserved<Bill>,
        /// Some of its budgets are tightened by what the server says.
        #[cfg_attr(not(feature = "http"), allow(dead_code))]
        heeds_quota: bool,
        /// Some of its budgets are leased from a store.
        leases: bool,
    },
    /// The outcome is known.
    Nothing,
}

impl Charge {
    /// Begins the call for which something is reserved; its scope tells what is used.
    #[inline(always)]
    pub(crate) fn begin<E>(
        options: CallOptions,
        reserve: impl FnOnce(&mut Bill) -> Result<(), E>,
    ) -> Result<Self, E> {
        let reserved = options.try_reserving(reserve)?;
        Ok(Self { held: Held::bill(reserved), working: false })
    }

    /// Begins a call for which something is reserved that needs no scope yet.
    #[inline(always)]
    pub(crate) const fn plain(plain: Plain) -> Self {
        Self { held: Held::Plain(plain), working: false }
    }

    pub(crate) const fn with(mut self, options: &Options) -> Self {
        if let Held::Bill { heeds_quota, leases, .. } = &mut self.held {
            (*heeds_quota, *leases) = (options.heeds_quota, options.leases);
        }
        self
    }

    /// While the inner future is at work: a further attempt cannot wait for a lease, so what it may need is asked for ahead.
    #[inline]
    pub(crate) fn ask_ahead(&self, cx: &Context<'_>) {
        if let Held::Bill { reserved, leases: true, .. } = &self.held {
            reserved.ask_ahead(cx);
        }
    }

    #[cfg(feature = "http")]
    pub(crate) const fn heeds_quota(&self) -> bool {
        matches!(self.held, Held::Bill { heeds_quota: true, .. })
    }

    /// What the server says of its own limits, in the head of its answer.
    #[cfg(feature = "http")]
    pub(crate) fn heed(&self, remaining: Remaining) {
        if let Held::Bill { reserved, .. } = &self.held {
            reserved.heed(remaining);
        }
    }

    /// What is worth telling of the reservation; nothing is locked meanwhile.
    #[inline]
    pub(crate) fn tell(&self) {
        if let Held::Bill { reserved, .. } = &self.held {
            tell(reserved.lock());
        }
    }

    /// Runs what belongs to the inner service, in the scope of the call; its panic is a failure of the call.
    #[inline(always)]
    pub(crate) fn working<R>(&mut self, work: impl FnOnce() -> R) -> R {
        self.working = true;
        let result = self.held.enter(work);
        self.working = false;
        result
    }

    #[inline(always)]
    pub(crate) fn end(&mut self, ended: Ended) {
        match mem::replace(&mut self.held, Held::Nothing) {
            Held::Plain(mut plain) => plain.settle(ended),
            Held::Bill { reserved, .. } => reserved.ended.store(ended.to_bits(), Ordering::Release),
            Held::Nothing => {}
        }
    }
}

impl Held {
    #[inline(always)]
    pub(crate) const fn bill(reserved: Reserved<Bill>) -> Self {
        Self::Bill { reserved, heeds_quota: false, leases: false }
    }

    #[inline(always)]
    fn enter<R>(&mut self, work: impl FnOnce() -> R) -> R {
        if let Some(_entered) = Entered::new(self) {
            return work();
        }
        match self {
            Self::Bill { reserved, .. } => reserved.enter(work),
            _ => work(),
        }
    }

    /// Gives what is plain a scope that is a call.
    #[cold]
    pub(crate) fn make(&mut self) {
        if let Self::Plain(plain) = self {
            let reserved = plain.made();
            *self = Self::bill(reserved);
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
        if !matches!(self.held, Held::Nothing) {
            let class = if self.working { Class::Unknown } else { Class::Cancelled };
            self.settle(Verdict::of(class));
        }
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Charge");
        match &self.held {
            Held::Plain(plain) => f.field("plain", plain),
            Held::Bill { reserved, .. } => f.field("bill", &**reserved),
            Held::Nothing => &mut f,
        };
        f.finish_non_exhaustive()
    }
}

/// What was reserved for one call, in the scope of that call.
#[derive(Debug, Default)]
pub(crate) struct Bill {
    about: About,
    /// How it ended; 0 until it did.
    ended: AtomicU16,
    state: Mutex<State>,
}

/// What does not change while it runs.
#[derive(Debug, Default)]
struct About {
    estimate: Estimate,
    is_final: bool,
    cut_in_full: bool,
    clocks: Clocks,
    /// When it began, where somebody counts the time.
    began: Option<Instant>,
    /// What is written of it, where there is a book.
    booking: Option<Box<Booking>>,
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
    /// What it is about, before anything is reserved. To be filled in: its estimate, and what it is charged to.
    #[inline]
    pub(crate) fn set(
        &mut self,
        is_final: bool,
        cut_in_full: bool,
        clocks: Clocks,
        now: Now,
    ) -> (&mut Estimate, &mut Parts) {
        let about = &mut self.about;
        (about.is_final, about.cut_in_full, about.clocks, about.began) =
            (is_final, cut_in_full, clocks, now.at);
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        (&mut about.estimate, &mut state.parts)
    }

    /// What was reserved [plainly](Plain) is its own from now on.
    pub(crate) fn plain(&mut self, cell: Arc<Cell>, about: plain::About) {
        let (estimate, parts) = self.set(about.is_final, about.cut_in_full, Clocks::NONE, Now::default());
        *estimate = about.estimate();
        parts.push_plain(cell, about.tokens);
    }

    /// Settles a call of which nobody has read anything.
    pub(crate) fn settle_unread(&mut self, ended: Ended) {
        *self.ended.get_mut() = ended.to_bits();
        self.settle_alone(&Usage::default(), 0);
    }

    /// What is to be written of it; gives what was before.
    #[inline]
    pub(crate) const fn book(&mut self, booking: Option<Box<Booking>>) -> Option<Box<Booking>> {
        mem::replace(&mut self.about.booking, booking)
    }

    fn settle(&self, usage: &Usage, silent: u32) {
        let mut state = self.lock();
        let ended = self.ended();
        if state.settle(&self.about, ended, usage, silent) {
            tell(state);
        }
    }

    /// The same where nobody else has it.
    #[inline]
    fn settle_alone(&mut self, usage: &Usage, silent: u32) {
        let ended = Ended::from_bits(*self.ended.get_mut());
        let Self { about, state, .. } = self;
        let state = state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if state.settle(about, ended, usage, silent) && state.parts.has_crossed() {
            tell_all(state.parts.take_crossed());
        }
    }

    #[cfg(feature = "http")]
    fn heed(&self, remaining: Remaining) {
        let now = self.about.clocks.now();
        // It may be more than it said before: whoever waits may have its turn.
        self.lock().parts.each(now, |account, rules, part| {
            let said = match rules.unit {
                Unit::Tokens => remaining.tokens,
                Unit::Calls => remaining.requests,
                _ => None,
            };
            if let Some(Left { left, reset, .. }) = said.filter(|_| rules.heeds_quota) {
                account.server_says(rules, &part.share, left, reset, now);
            }
        });
    }

    fn late(&self, usage: &Usage) {
        let now = self.about.clocks.now();
        let mut state = self.lock();
        let outcome = self.ended().map_or(Outcome::Cancelled, |ended| ended.outcome);
        let State { parts, settled, guessed, late, .. } = &mut *state;
        // Each unit once, however many budgets count in it.
        let mut more = Used::default();
        for unit in [Unit::Tokens, Unit::Money] {
            let used = self.about.measure(unit, usage).min(MAX_CALL);
            if let (Some(more), Some(guessed), Some(late)) = (more.of(unit), guessed.of(unit), late.of(unit))
            {
                let known = if *settled { used.min(*guessed) } else { 0 };
                *guessed -= known;
                *late = if *settled { *late } else { late.saturating_add(used) };
                *more = used - known;
            }
        }
        parts.each(now, |account, rules, part| {
            if let Some(&mut more) = more.of(rules.unit) {
                part.crossed = account.late(rules, more, outcome, now);
            }
        });
        parts.visit(|rules, _| {
            if let Some(&mut more) = more.of(rules.unit) {
                events::late_usage(rules, outcome, more);
            }
        });
        if let Some(booking) = self.about.booking.as_ref().filter(|_| !parts.is_empty()) {
            let money = self.about.estimate.price().map_or(0, |_| more.money);
            booking.late(outcome, Guess { tokens: more.tokens, money }, usage);
        }
        tell(state);
    }

    #[cold]
    fn ask_ahead(&self, cx: &Context<'_>) {
        let leased = self.lock().parts.leased();
        for budget in leased {
            if let Some((leasing, shared)) = budget.leasing() {
                leasing.ask_ahead(&budget, shared, cx);
            }
        }
    }

    fn ended(&self) -> Option<Ended> {
        Ended::from_bits(self.ended.load(Ordering::Acquire))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&mut self) -> &mut State {
        self.state.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl About {
    fn measure(&self, unit: Unit, usage: &Usage) -> u64 {
        match (unit, self.estimate.price()) {
            (Unit::Money, Some(price)) => price.of(usage),
            _ => usage.total(),
        }
    }

    /// How long it took until now, in milliseconds.
    fn took(&self, now: Now) -> u64 {
        self.began.zip(now.at).map_or(0, |(began, at)| millis(at.saturating_duration_since(began)))
    }
}

impl State {
    /// Turns what is reserved into what was used, once; `true` if it did.
    #[inline]
    fn settle(&mut self, about: &About, ended: Option<Ended>, usage: &Usage, silent: u32) -> bool {
        if mem::replace(&mut self.settled, true) || self.parts.is_empty() {
            return false;
        }
        let ended = ended.unwrap_or(Ended::CANCELLED);
        let cost = cost(&about.estimate, usage, silent, ended, about.cut_in_full);
        teach(&about.estimate, usage, silent, self.granted, ended);
        let Self { parts, granted, guessed, late, .. } = self;
        if ended.outcome == Outcome::Denied && cost.is_free {
            // A layer further in said no before anything was sent: as if the call had never been.
            parts.release_all(about.clocks.now());
            return true;
        }
        let now = about.clocks.now();
        // What was booked late already counts against what is guessed. The same for the budgets, the book and the metrics.
        let less_early = |(used, guess): (u64, u64), late: u64, guessed: &mut u64| {
            let (used, guess) = (used.min(MAX_CALL), guess.min(MAX_CALL));
            let early = late.min(guess);
            *guessed = guess - early;
            used - early
        };
        // It is the same in each budget.
        let tokens = cost.measure(about.estimate.total(), Usage::total);
        let tokens = less_early(tokens, late.tokens, &mut guessed.tokens);
        let calls = u64::from(*granted).saturating_add(1);
        if !parts.settle_plainly((tokens, calls), ended.outcome, cost.unknown) {
            parts.each(now, |account, rules, part| {
                part.used = match rules.unit {
                    Unit::Tokens => tokens,
                    Unit::Money => {
                        let money = cost.measure(part.each, |usage| about.measure(Unit::Money, usage));
                        less_early(money, late.money, &mut guessed.money)
                    }
                    Unit::Calls => calls,
                    Unit::Time => about.took(now),
                    Unit::Concurrent => 0,
                };
                part.crossed =
                    account.settle(rules, &part.share, part.used, ended.outcome, cost.unknown, now);
            });
        }
        if let Some(booking) = &about.booking {
            let estimate = &about.estimate;
            let price = estimate.price();
            let each = Guess {
                tokens: estimate.total(),
                money: price.map_or(0, |price| price.of_estimate(estimate)),
            };
            // Also where no budget counts it.
            let money = price.map_or(0, |price| {
                let money = cost.measure(each.money, |usage| price.of(usage));
                less_early(money, late.money, &mut guessed.money)
            });
            let guessed = Guess { tokens: guessed.tokens, money: guessed.money };
            booking.settled(Total { outcome: ended.outcome, tokens, money, guessed, each }, price);
        }
        if cfg!(feature = "metrics") || (cost.unknown && events::tells_unknown_usage()) {
            parts.visit(|rules, part| {
                let (outcome, reserved, unknown) = (ended.outcome, part.share.all(), cost.unknown);
                rules.meters.settled(&rules.name, Settled { outcome, reserved, used: part.used, unknown });
                if unknown {
                    events::unknown_usage(&rules.name, part.used);
                }
            });
        }
        true
    }
}

impl Reservation for Bill {
    fn reserve(&self) -> bool {
        let now = self.about.clocks.now();
        let mut state = self.lock();
        if state.settled {
            return false;
        }
        // The call has passed the soft line already.
        let ask =
            Ask { is_final: self.about.is_final, passes_soft: true, is_first: false, turn: Turn::FIRST };
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
        let now = self.about.clocks.now();
        let mut state = self.lock();
        if let Some(granted) = state.granted.checked_sub(1).filter(|_| !state.settled) {
            state.granted = granted;
            state.parts.release(now);
        }
    }

    fn attempted(&self, attempted: &Attempted<'_>) {
        if let Some(booking) = &self.about.booking {
            booking.attempted(attempted);
        }
    }

    fn close(&self, closing: Closing) {
        match closing {
            Closing::Settled { usage, unknown } => self.settle(&usage, unknown),
            Closing::Late { usage } => self.late(&usage),
        }
    }

    #[inline]
    fn close_alone(&mut self, usage: &Usage, unknown: u32) {
        self.settle_alone(usage, unknown);
    }

    #[inline]
    fn renew(&mut self) -> bool {
        *self.ended.get_mut() = 0;
        self.about.booking = None;
        let State { parts, settled, granted, guessed, late } = self.state();
        (*settled, *granted, *guessed, *late) = (false, 0, Used::default(), Used::default());
        parts.clear();
        true
    }
}

/// Tells what was crossed, when nothing is locked any more: listeners may ask the budgets.
fn tell(mut state: MutexGuard<'_, State>) {
    if !state.parts.has_crossed() {
        return;
    }
    let told = state.parts.take_crossed();
    drop(state);
    tell_all(told);
}

#[cold]
fn tell_all(told: Vec<(Budget, Crossed)>) {
    for (budget, crossed) in told {
        events::crossed(&budget, crossed);
    }
}

impl Drop for Bill {
    /// The scope goes when nobody holds the call any more; whatever happened, no reservation stays for ever. Nothing is reserved where a
    /// function of the user's panicked that says what a call is charged to.
    fn drop(&mut self) {
        if self.state().parts.has_reserved() {
            self.settle_alone(&Usage::default(), 1);
        }
    }
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use super::*;
    use crate::BudgetLayer;

    #[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
    fn bill() -> (Bill, Budget) {
        let layer = BudgetLayer::builder().tokens(1_000).soft_line(1.0).build().unwrap();
        let budget = layer.budget().clone();
        let mut bill = Bill::default();
        let (estimate, parts) = bill.set(false, false, Clocks::NONE, Now::default());
        *estimate = Estimate::whole(100);
        parts.push(&budget, 100);
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
