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
    leasing::{Need, Refusal, Renews, Ticket},
    parts::Place,
    window::Now,
};

/// Numbers those that wait, over all budgets: of two that wait for each other's, one was first and is never held up by the other.
static TURNS: AtomicU64 = AtomicU64::new(1);

/// Who waits for a place that another process has asks for it no more often than this.
const OFTEN: Duration = Duration::from_millis(100);

/// Nor does anybody ask a store more often than this.
const AT_MOST: Duration = Duration::from_millis(1);

/// A place in the line; dropped, it is given up.
pub(crate) struct Line {
    wanted: Option<Wanted>,
    ask: Ask,
    ends: Instant,
    /// It may wait for its turn, and not only for a lease.
    may_wait: bool,
    /// Until there may be enough, or the wait ends.
    sleep: Pin<Box<Sleep>>,
    leases: Vec<OfLease>,
    /// A store has said that there is not enough now: it stands in line for that too.
    stands_for_lease: bool,
    /// That it waits was told.
    told: bool,
}

/// What is asked of the leases of one budget.
struct OfLease {
    budget: Budget,
    ticket: Ticket,
    /// Why it is asked.
    denied: Denied,
    /// Not before that.
    again: Option<Instant>,
}

enum Attempt {
    /// It is admitted; `None` once that was said.
    Ends(Option<Admission>),
    Refused(Budget, Denied),
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
        let mut line = Self::new(wanted, ask, true, ends);
        line.told = true;
        Admission::Waits(Box::new(line))
    }

    /// Waits for a lease, and then for as long as that may be.
    pub(crate) fn for_lease(wanted: Wanted, ask: Ask, wait: Option<Duration>) -> Admission {
        let now = Instant::now();
        let own = now.checked_add(wait.unwrap_or(Duration::ZERO));
        let ends = own.into_iter().chain(Call::current_deadline()).min().unwrap_or(now);
        Admission::Waits(Box::new(Self::new(wanted, ask, wait.is_some(), ends)))
    }

    fn new(wanted: Wanted, ask: Ask, may_wait: bool, ends: Instant) -> Self {
        let turn = if may_wait { Turn(TURNS.fetch_add(1, Ordering::Relaxed)) } else { ask.turn };
        Self {
            wanted: Some(wanted),
            ask: Ask { turn, ..ask },
            ends,
            may_wait,
            sleep: Box::pin(sleep_until(ends)),
            leases: Vec::new(),
            stands_for_lease: false,
            told: false,
        }
    }

    /// Ready when it was its turn, or when waiting any longer is in vain. Not polled again after that.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Admission> {
        loop {
            self.take();
            let (budget, denied) = match self.attempt(cx) {
                Attempt::Refused(budget, denied) => (budget, denied),
                Attempt::Ends(admission) => return admission.map_or(Poll::Pending, Poll::Ready),
            };
            let now = self.wanted.as_ref().map_or_else(Now::default, |wanted| wanted.clocks.now());
            let denied = if denied.is_for_lease() && budget.leasing().is_some() {
                match ready!(self.poll_lease(&budget, denied, cx)) {
                    Some(denied) => denied,
                    None => continue,
                }
            } else {
                denied
            };
            let at = Instant::now();
            let again = denied.renews_in.and_then(|renews_in| at.checked_add(renews_in));
            let in_vain = !denied.waits || at >= self.ends || again.is_some_and(|again| again > self.ends);
            if in_vain {
                return match self.leave(false) {
                    Some(wanted) => Poll::Ready(wanted.denied(&budget, &denied, now)),
                    None => Poll::Pending,
                };
            }
            if self.poll_sleep(again.unwrap_or(self.ends), cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Tries to reserve everything, unless a store is being asked for some of it.
    fn attempt(&mut self, cx: &Context<'_>) -> Attempt {
        if let Some(of_lease) = self.leases.iter().find(|of_lease| of_lease.ticket.is_waiting()) {
            return Attempt::Refused(of_lease.budget.clone(), of_lease.denied);
        }
        let Some(wanted) = &mut self.wanted else { return Attempt::Ends(None) };
        let (waker, most) = (cx.waker(), wanted.options.max_waiting);
        let place = Place { waker, most, of_leases: self.stands_for_lease };
        let now = wanted.clocks.now();
        match wanted.parts.reserve_or_wait(self.ask, now, Some(place).filter(|_| self.may_wait)) {
            Ok(()) => Attempt::Ends(self.leave(true).map(|wanted| wanted.begin(Call::options(), now))),
            Err((budget, denied)) => Attempt::Refused(budget, denied),
        }
    }

    fn poll_sleep(&mut self, until: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if self.sleep.deadline() != until {
            self.sleep.as_mut().reset(until);
        }
        self.sleep.as_mut().poll(cx)
    }

    /// Takes what was reserved for it while it waited.
    fn take(&mut self) {
        let Some(wanted) = &mut self.wanted else { return };
        for OfLease { budget, ticket, .. } in &mut self.leases {
            let Some((share, crossed)) = budget.leasing().and_then(|(leasing, _)| leasing.take(ticket))
            else {
                continue;
            };
            if let Some(mut share) = wanted.parts.take(budget, share, crossed) {
                budget.change(|account, _, _| account.release(&mut share, u64::MAX));
            }
        }
    }

    /// Asks for a larger lease; ready with `None` when it is time to try again, and with the reason when it is not enough.
    fn poll_lease(&mut self, budget: &Budget, denied: Denied, cx: &mut Context<'_>) -> Poll<Option<Denied>> {
        if self.stands_for_lease && denied.why == Why::Hard && !denied.waits {
            // Too many stand in line.
            return Poll::Ready(Some(denied));
        }
        let (Some((leasing, shared)), Some(wanted)) = (budget.leasing(), &self.wanted) else {
            return Poll::Ready(Some(denied));
        };
        let amount = wanted.parts.needed(budget);
        let at = self.of_lease(budget, denied);
        if let Some(again) = self.leases[at].again {
            ready!(self.poll_sleep(again, cx));
        }
        let OfLease { ticket, again, .. } = &mut self.leases[at];
        *again = None;
        let need = Need { why: denied.why, amount, ask: self.ask };
        let Some(refusal) = ready!(leasing.poll((budget, shared), need, ticket, cx)) else {
            return Poll::Ready(None);
        };
        if let Some(again) = self.asks_again(budget, &denied, &refusal, amount, shared.ask_again()) {
            (self.leases[at].ticket, self.leases[at].again) = (Ticket::default(), Some(again));
            self.stands_for_lease = true;
            if !std::mem::replace(&mut self.told, true) {
                events::waits(budget.rules());
            }
            return Poll::Ready(None);
        }
        let fails = refusal.why == Why::NoStore;
        Poll::Ready(Some(Denied {
            why: if fails { refusal.why } else { denied.why },
            renews_in: refusal.renews.map(Renews::left),
            // A place may come free here.
            waits: denied.waits && !fails && budget.unit() == Unit::Concurrent,
            ..denied
        }))
    }

    fn of_lease(&mut self, budget: &Budget, denied: Denied) -> usize {
        let at = self.leases.iter().position(|of_lease| of_lease.budget.is(budget)).unwrap_or_else(|| {
            let ticket = Ticket::default();
            self.leases.push(OfLease { budget: budget.clone(), ticket, denied, again: None });
            self.leases.len() - 1
        });
        self.leases[at].denied = denied;
        at
    }

    /// When it is worth asking the store again, if that is within the time that there is.
    fn asks_again(
        &self,
        budget: &Budget,
        denied: &Denied,
        refusal: &Refusal,
        amount: u64,
        ask_again: Duration,
    ) -> Option<Instant> {
        if !self.may_wait || denied.why != Why::Hard || refusal.why != Why::Hard {
            return None;
        }
        let renews = refusal.renews.map(Renews::left);
        let fits = || budget.lock().may_ever_fit(budget.rules(), amount, self.ask.is_final);
        let after = if budget.unit() == Unit::Concurrent {
            // Nothing tells when another process gives a place back.
            (denied.limit > 0).then_some(OFTEN)?
        } else if budget.rules().window.is_lifetime() {
            renews?
        } else {
            // Nobody knows when calls in flight end, nor what there is for this one where others were asked for too.
            renews.filter(|_| !refusal.of_many).or_else(|| fits().then_some(OFTEN))?
        };
        let at = Instant::now();
        at.checked_add(after.max(ask_again).max(AT_MOST)).filter(|again| *again <= self.ends)
    }

    /// Gives the places up; whoever is next may have its turn. What was reserved is given back, unless it was `admitted`.
    fn leave(&mut self, admitted: bool) -> Option<Wanted> {
        let mut wanted = self.wanted.take()?;
        for OfLease { budget, ticket, .. } in &mut self.leases {
            if let Some((leasing, _)) = budget.leasing() {
                leasing.leave(budget, ticket);
            }
        }
        let now = wanted.clocks.now();
        wanted.parts.leave(self.ask.turn, now);
        if !admitted && wanted.parts.has_reserved() {
            wanted.parts.release_all(now);
        }
        Some(wanted)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        drop(self.leave(false));
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("ask", &self.ask).field("ends", &self.ends).finish_non_exhaustive()
    }
}
