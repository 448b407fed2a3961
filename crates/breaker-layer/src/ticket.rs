//! The guard of one call: it moves from `call` into the future and then into the body, and settles once.

use std::fmt;
use std::time::Duration;

use failsoft_core::{Call, Class, Guard, Verdict};
use tokio::time::Instant;

use crate::Circuit;
use crate::engine::{Outcome, Permit};

/// The permit of one call. It settles with the verdict; dropped before that, the call was cancelled.
///
/// Public because it is part of the response's type: the body of an `http::Response` carries it.
pub struct Ticket {
    circuit: Circuit,
    permit: Option<Permit>,
    /// When the call began, if the circuit has a slow rule.
    start: Option<Instant>,
    /// From the call to the first content, once it came.
    first_content: Option<Duration>,
    content_seen: bool,
    /// The inner service or its future is at work just now: if the ticket is dropped meanwhile, it panicked.
    working: bool,
}

impl Ticket {
    /// A permit that is held before its call: dropped, it says nothing.
    pub(crate) fn reserved(circuit: Circuit, permit: Permit) -> Self {
        let (start, first_content) = (None, None);
        Self { circuit, permit: Some(permit), start, first_content, content_seen: true, working: false }
    }

    /// Whether the circuit is still in the period in which it was given.
    pub(crate) fn is_current(&self) -> bool {
        self.permit.as_ref().is_some_and(|permit| self.circuit.engine().is_current(permit))
    }

    /// The call begins now.
    #[inline]
    pub(crate) fn begin(mut self) -> Self {
        self.content_seen = false;
        if self.circuit.engine().times_calls() {
            self.start = Some(Instant::now());
        }
        self
    }

    /// Runs what belongs to the inner service; its panic is a failure of the call.
    #[inline]
    pub(crate) fn working<R>(&mut self, work: impl FnOnce() -> R) -> R {
        self.working = true;
        let result = work();
        self.working = false;
        result
    }

    #[inline]
    fn book(&mut self, outcome: impl FnOnce(&Self) -> Outcome) -> bool {
        if self.permit.is_none() {
            return false;
        }
        let outcome = outcome(self);
        let Some(permit) = self.permit.take() else { return false };
        let took = match (self.first_content, self.start) {
            (Some(took), _) => took,
            (None, Some(start)) => start.elapsed(),
            (None, None) => Duration::ZERO,
        };
        self.circuit.settle(permit, outcome, took)
    }
}

impl Guard for Ticket {
    fn content(&mut self) {
        if !self.content_seen {
            self.content_seen = true;
            self.first_content = self.start.map(|start| start.elapsed());
        }
        if let Some(permit) = &self.permit {
            self.circuit.renew(permit);
        }
    }

    #[inline]
    fn settle(&mut self, verdict: Verdict) {
        let opened = self.book(|this| this.circuit.table().outcome(&verdict, this.content_seen));
        if opened {
            Call::record_opening();
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.permit.is_some() {
            let verdict = if self.working { Verdict::of(Class::Unknown) } else { Verdict::CANCELLED };
            self.book(|this| this.circuit.table().outcome(&verdict, this.content_seen));
        }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("permit", &self.permit).finish_non_exhaustive()
    }
}
