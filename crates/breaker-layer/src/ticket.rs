//! The guard of one call: it moves from `call` into the future and then into the body, and settles once.

use std::fmt;
use std::mem::ManuallyDrop;
use std::num::NonZeroU64;

use failsoft_core::{Blocker as _, Call, Class, Guard, Verdict};

use std::sync::Arc;

use crate::engine::Permit;
use crate::lent::Lent;
use crate::shared::Shared;

/// The permit of one call. It settles with the verdict; dropped before that, the call was cancelled.
///
/// Public because it is part of the response's type: the body of an `http::Response` carries it.
pub struct Ticket {
    /// Until it is settled.
    circuit: Lent,
    permit: Option<Permit>,
    /// Nanoseconds, small enough to be moved cheaply: since the epoch of the circuit when the call began, and
    /// once content came, from the call to it. None where the circuit does not time its calls.
    time: Option<NonZeroU64>,
    content_seen: bool,
    /// The inner service or its future is at work just now: if the ticket is dropped meanwhile, it panicked.
    working: bool,
}

impl Ticket {
    /// A permit that is held before its call: dropped, it says nothing.
    pub(crate) fn reserve(circuit: &Arc<Shared>, permit: Permit) -> Self {
        let circuit = Lent::of(circuit);
        Self { circuit, permit: Some(permit), time: None, content_seen: true, working: false }
    }

    /// What is reserved, for the call that begins; none if the circuit is in another period by now.
    pub(crate) fn take_current(mut self) -> Option<Permit> {
        if self.is_current() { self.permit.take() } else { None }
    }

    /// Whether the circuit is still in the period in which it was given.
    pub(crate) fn is_current(&self) -> bool {
        self.permit.as_ref().is_some_and(|permit| self.circuit.engine().is_current(permit))
    }

    /// Runs what belongs to the inner service; its panic is a failure of the call.
    #[inline]
    pub(crate) fn working<R>(&mut self, work: impl FnOnce() -> R) -> R {
        self.working = true;
        let result = work();
        self.working = false;
        result
    }

    fn since(&self, start: NonZeroU64) -> u64 {
        self.circuit.nanos().map_or(0, |now| now.get().saturating_sub(start.get()))
    }

    /// Whether it was slow, and the time, if that was asked for this.
    #[inline]
    fn timing(&self) -> (bool, Option<NonZeroU64>) {
        let engine = self.circuit.engine();
        // from the call to the first content, or to now
        match self.time {
            None => (false, None),
            Some(took) if self.content_seen => (engine.is_slow(took.get()), None),
            Some(start) => {
                let now = self.circuit.nanos();
                (engine.is_slow(now.map_or(0, |now| now.get().saturating_sub(start.get()))), now)
            }
        }
    }

    #[inline(never)]
    fn settle_else(&mut self, verdict: &Verdict) {
        let Some(permit) = &self.permit else { return };
        let timing @ (slow, now) = self.timing();
        if verdict.is_success() && !slow && self.circuit.defer(permit, now) {
            self.permit = None;
            self.circuit.succeeded();
        } else {
            self.book(verdict, timing);
        }
    }

    #[inline(never)]
    fn book(&mut self, verdict: &Verdict, (slow, now): (bool, Option<NonZeroU64>)) {
        let Some(permit) = self.permit.take() else { return };
        let waits = self.circuit.waits();
        if !verdict.is_success() && !waits {
            if let Some(circuit) = self.circuit.to_counted() {
                Call::record_blocker(|| circuit);
            }
        }
        let outcome = self.circuit.table().outcome(verdict, self.content_seen);
        let opened = self.circuit.settle(permit, verdict.class(), outcome, slow, now);
        if !opened && (verdict.is_success() || verdict.class() == Class::Cancelled || !self.circuit.refuses())
        {
            return;
        }
        match (waits, opened) {
            (true, _) => Call::record_waiting_circuit(opened),
            (false, true) => Call::record_opening(),
            (false, false) => Call::record_open_circuit(),
        }
    }

    #[cold]
    fn dropped(&mut self) {
        let verdict = if self.working { Verdict::of(Class::Unknown) } else { Verdict::CANCELLED };
        self.settle_else(&verdict);
    }
}

impl Guard for Ticket {
    fn content(&mut self) {
        let Some(permit) = &self.permit else { return };
        self.circuit.renew(permit);
        if !self.content_seen {
            self.content_seen = true;
            self.time = self.time.map(|start| NonZeroU64::MIN.saturating_add(self.since(start)));
        }
    }

    #[inline(always)]
    fn settle(&mut self, verdict: Verdict) {
        let Some(permit) = &self.permit else { return };
        if verdict.is_success() && self.time.is_none() && self.circuit.engine().is_clean_for(permit) {
            self.permit = None;
            self.circuit.succeeded();
        } else {
            self.settle_else(&verdict);
        }
        // Without a permit nothing looks at it any more.
        self.circuit.give_back();
    }
}

impl Drop for Ticket {
    #[inline]
    fn drop(&mut self) {
        if self.permit.is_some() {
            self.dropped();
        }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("permit", &self.permit).finish_non_exhaustive()
    }
}

/// The permit while the inner service is called: if that panics, the call failed.
///
/// It is not a ticket yet, so that this can stay in registers: a ticket that is built before and moved after
/// costs more than the rest of the call.
pub(crate) struct Starting<'a> {
    circuit: &'a Arc<Shared>,
    permit: Option<Permit>,
    time: Option<NonZeroU64>,
}

impl<'a> Starting<'a> {
    #[inline(always)]
    pub(crate) fn new(circuit: &'a Arc<Shared>, permit: Permit) -> Self {
        let time = if circuit.engine().times_calls() { circuit.nanos() } else { None };
        Self { circuit, permit: Some(permit), time }
    }

    #[inline(always)]
    pub(crate) fn ticket(self) -> Ticket {
        // it holds nothing but the permit, which goes on: dropping the rest would be code for nothing
        let mut this = ManuallyDrop::new(self);
        let (permit, time) = (this.permit.take(), this.time);
        Ticket { circuit: Lent::of(this.circuit), permit, time, content_seen: false, working: false }
    }
}

impl Drop for Starting<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            let (circuit, permit) = (Lent::of(self.circuit), Some(permit));
            drop(Ticket { circuit, permit, time: self.time, content_seen: false, working: true });
        }
    }
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_four_words() {
        assert!(size_of::<Option<Ticket>>() <= 4 * size_of::<u64>());
    }
}
