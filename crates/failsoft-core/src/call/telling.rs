//! What layers tell of a call's attempts.

use super::{Call, Frame, Notes, with_frame};
use crate::Attempt;

impl Call {
    /// Records an attempt in the current call; inside a [`Deferred`](super::Deferred) scope this makes it a real one. Does nothing
    /// where there is neither.
    pub fn record(attempt: Attempt) {
        if let Some(call) = with_frame(Frame::materialise).flatten() {
            call.tell(attempt);
        }
    }

    /// Records what a layer did next, where the attempt may be told already: by a layer further in that had nothing more to do
    /// about it, such as a retry that gave up before the next route was taken. Then the attempt is told once, with
    /// [both decisions](Attempt::gave_up). Else as [`record`](Self::record).
    ///
    /// The current scope must be that of the attempt: only what was told in it is looked at.
    pub fn decide(attempt: Attempt) {
        let Some(call) = with_frame(Frame::materialise).flatten() else { return };
        let told = call.lock().as_ref().map_or(0, |notes| notes.told);
        if let Some(untold) = call.with_notes(|notes| notes.settle(told, attempt)) {
            call.tell(untold);
        }
    }

    /// Notes that an outcome of the current call opened a circuit; the next attempt that is recorded says so.
    pub fn record_opening() {
        if let Some(call) = with_frame(Frame::materialise).flatten() {
            call.with_notes(|notes| notes.opened = true);
        }
    }

    /// Notes that a failure of the current call came when another call's had opened the circuit already.
    pub fn record_open_circuit() {
        if let Some(call) = with_frame(Frame::materialise).flatten() {
            call.with_notes(|notes| notes.met_open = true);
        }
    }

    /// Notes that an outcome of the current call opened a circuit that refuses nobody but lets callers wait, or, where it has not
    /// `opened` it, that a failure came when it was open already. A further attempt may be made: it waits, or has another target.
    pub fn record_waiting_circuit(opened: bool) {
        if let Some(call) = with_frame(Frame::materialise).flatten() {
            call.with_notes(|notes| {
                notes.waits = true;
                *(if opened { &mut notes.opened } else { &mut notes.met_open }) = true;
            });
        }
    }

    fn tell(&self, attempt: Attempt) {
        let place = self.with_notes(|notes| {
            let opened = notes.take_opened() || attempt.opened;
            notes.trail.push(Attempt { opened, ..attempt });
            if notes.trail.dropped() > 0 { None } else { notes.trail.attempts().len().checked_sub(1) }
        });
        let Some(bit) = place.and_then(|place| 1_u32.checked_shl(u32::try_from(place).ok()?)) else { return };
        let (mut next, mut beside) = (Some(self), false);
        while let Some(call) = next {
            // A fallback's own scope is that of its first route: what is told of the others is not told of that one.
            if !(beside && call.0.routing) {
                call.with_own_notes(|notes| notes.told |= bit);
            }
            beside = call.0.route;
            next = call.0.parent.as_ref();
        }
    }
}

impl Notes {
    pub(super) fn has_opened(&self) -> bool {
        self.opened || self.met_open
    }

    fn take_opened(&mut self) -> bool {
        (self.met_open, self.waits) = (false, false);
        std::mem::take(&mut self.opened)
    }

    /// Puts a decision to the attempt that it is about, if that is the last one of those that were told.
    fn settle(&mut self, told: u32, attempt: Attempt) -> Option<Attempt> {
        let opened = self.opened;
        let untold = self.trail.settle(told, Attempt { opened: opened || attempt.opened, ..attempt });
        if untold.is_none() {
            self.take_opened();
        }
        untold
    }
}
