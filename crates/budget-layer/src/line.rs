//! A call that waits for its turn, first come, first served.

use std::{
    fmt,
    pin::Pin,
    sync::atomic::{AtomicU64, Ordering},
    task::{Context, Poll},
    time::Duration,
};

use failsoft_core::Call;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::{
    Budget,
    account::{Ask, Denied, queue::Turn},
    budget::Place,
    events,
    layer::{Admission, Wanted},
};

/// Numbers those that wait, over all budgets: of two that wait for each other's, one was first and is never held up by the other.
static TURNS: AtomicU64 = AtomicU64::new(1);

/// A place in the line; dropped, it is given up.
pub(crate) struct Line {
    wanted: Option<Wanted>,
    ask: Ask,
    ends: Instant,
    /// Until there may be enough, or the wait ends.
    sleep: Pin<Box<Sleep>>,
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
            sleep: Box::pin(sleep_until(ends)),
        }))
    }

    /// Ready when it was its turn, or when waiting any longer is in vain. Not polled again after that.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Admission> {
        loop {
            let Some(wanted) = &mut self.wanted else { return Poll::Pending };
            let place = Place { waker: cx.waker(), most: wanted.options.max_waiting };
            let now = wanted.clocks.now();
            let refused = wanted.parts.reserve_or_wait(self.ask, now, Some(place));
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

    /// Gives the places up; whoever is next may have its turn.
    fn leave(&mut self) -> Option<Wanted> {
        let wanted = self.wanted.take()?;
        wanted.parts.leave(self.ask.turn);
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
