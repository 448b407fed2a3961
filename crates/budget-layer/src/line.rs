//! A call that waits: for its turn, first come, first served, or for a lease from a store.

use std::{
    fmt,
    pin::Pin,
    sync::atomic::{AtomicU64, Ordering},
    task::{Context, Poll, ready},
    time::Duration,
};

use failsoft_core::Call;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::{
    Budget, Unit,
    account::{Ask, Denied, Why, queue::Turn},
    events,
    layer::{Admission, Wanted},
    leasing::{Leasing, Ticket},
    parts::Place,
};

/// Numbers those that wait, over all budgets: of two that wait for each other's, one was first and is never held up by the other.
static TURNS: AtomicU64 = AtomicU64::new(1);

/// Who waits for a place that another process has asks for it no more often than this.
const OFTEN: Duration = Duration::from_millis(100);

/// A place in the line; dropped, it is given up.
pub(crate) struct Line {
    wanted: Option<Wanted>,
    ask: Ask,
    ends: Instant,
    /// It may wait for its turn, and not only for a lease.
    may_wait: bool,
    /// Until there may be enough, or the wait ends.
    sleep: Pin<Box<Sleep>>,
    sleeps: bool,
    lease: Ticket,
    /// That it waits was told.
    told: bool,
}

impl Line {
    /// Waits, unless it is known to be in vain.
    pub(crate) fn begin(
        wanted: Wanted,
        ask: Ask,
        wait: Duration,
        budget: &Budget,
        denied: &Denied,
    ) -> Admission {
        let now = Instant::now();
        let own = now.checked_add(wait);
        let Some(ends) = own.into_iter().chain(Call::current_deadline()).min() else {
            let now = wanted.clocks.now();
            return wanted.denied(budget, denied, now);
        };
        events::waits(budget.rules());
        let turn = Turn(TURNS.fetch_add(1, Ordering::Relaxed));
        let ask = Ask { turn, ..ask };
        Admission::Waits(Box::new(Self {
            wanted: Some(wanted),
            ask,
            ends,
            may_wait: true,
            sleep: Box::pin(sleep_until(ends)),
            sleeps: false,
            lease: Ticket::default(),
            told: true,
        }))
    }

    /// Waits for a lease, and then for as long as that may be.
    pub(crate) fn for_lease(wanted: Wanted, ask: Ask, wait: Option<Duration>) -> Admission {
        let now = Instant::now();
        let own = now.checked_add(wait.unwrap_or(Duration::ZERO));
        let ends = own.into_iter().chain(Call::current_deadline()).min().unwrap_or(now);
        let turn = if wait.is_some() { Turn(TURNS.fetch_add(1, Ordering::Relaxed)) } else { ask.turn };
        Admission::Waits(Box::new(Self {
            wanted: Some(wanted),
            ask: Ask { turn, ..ask },
            ends,
            may_wait: wait.is_some(),
            sleep: Box::pin(sleep_until(ends)),
            sleeps: false,
            lease: Ticket::default(),
            told: false,
        }))
    }

    /// Ready when it was its turn, or when waiting any longer is in vain. Not polled again after that.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Admission> {
        loop {
            self.sleeps = self.sleeps && self.sleep.as_mut().poll(cx).is_pending();
            let Some(wanted) = &mut self.wanted else { return Poll::Pending };
            let place = Place { waker: cx.waker(), most: wanted.options.max_waiting };
            let now = wanted.clocks.now();
            let place = Some(place).filter(|_| self.may_wait);
            let refused = wanted.parts.reserve_or_wait(self.ask, now, place);
            let refused = match refused {
                Err((_, denied)) if self.sleeps && denied.is_for_lease() => return Poll::Pending,
                Err((budget, denied)) if denied.is_for_lease() && budget.leasing().is_some() => {
                    match ready!(self.poll_lease(&budget, denied, cx)) {
                        Some(denied) => Err((budget, denied)),
                        None => continue,
                    }
                }
                refused => refused,
            };
            let Err((budget, denied)) = refused else {
                return match self.leave() {
                    Some(wanted) => Poll::Ready(wanted.begin(Call::options(), now)),
                    None => Poll::Pending,
                };
            };
            let at = Instant::now();
            let again = denied.renews_in.and_then(|renews_in| at.checked_add(renews_in));
            let in_vain = !denied.waits || at >= self.ends || again.is_some_and(|again| again > self.ends);
            if in_vain {
                return match self.leave() {
                    Some(wanted) => Poll::Ready(wanted.denied(&budget, &denied, now)),
                    None => Poll::Pending,
                };
            }
            self.sleep.as_mut().reset(again.unwrap_or(self.ends));
            if self.sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Asks for a larger lease; ready with `None` when it is time to try again, and with the reason when it is not enough.
    fn poll_lease(&mut self, budget: &Budget, denied: Denied, cx: &mut Context<'_>) -> Poll<Option<Denied>> {
        let (Some((leasing, shared)), Some(wanted)) = (budget.leasing(), &self.wanted) else {
            return Poll::Ready(Some(denied));
        };
        let needs = (denied.why, wanted.parts.needed(budget));
        let Some(refusal) = ready!(leasing.poll((budget, shared), needs, &mut self.lease, cx)) else {
            return Poll::Ready(None);
        };
        let fails = refusal.why == Why::NoStore;
        let denied = Denied {
            why: if fails { refusal.why } else { denied.why },
            renews_in: refusal.renews_in,
            waits: denied.waits && !fails,
            ..denied
        };
        Poll::Ready((!self.ask_later(budget, &denied, shared.ask_again())).then_some(denied))
    }

    /// Whether it is worth asking the store again within the time that there is.
    fn ask_later(&mut self, budget: &Budget, denied: &Denied, ask_again: Duration) -> bool {
        if !self.may_wait || denied.why != Why::Hard {
            return false;
        }
        // Nothing tells when another process gives a place back.
        let of_places = || (budget.unit() == Unit::Concurrent && denied.limit > 0).then_some(OFTEN);
        let after = denied.renews_in.or_else(of_places);
        let Some(again) = after.and_then(|after| Instant::now().checked_add(after.max(ask_again))) else {
            return false;
        };
        if again > self.ends {
            return false;
        }
        if !std::mem::replace(&mut self.told, true) {
            events::waits(budget.rules());
        }
        self.sleep.as_mut().reset(again);
        (self.sleeps, self.lease) = (true, Ticket::default());
        true
    }

    /// Gives the places up; whoever is next may have its turn.
    fn leave(&mut self) -> Option<Wanted> {
        let mut wanted = self.wanted.take()?;
        wanted.parts.leave(self.ask.turn, wanted.clocks.now());
        // Another has to ask on.
        wanted.parts.leasing().for_each(Leasing::leave);
        Some(wanted)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        drop(self.leave());
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("ask", &self.ask).field("ends", &self.ends).finish_non_exhaustive()
    }
}
