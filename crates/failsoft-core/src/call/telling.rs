//! What layers tell of a call's attempts.
//!
//! An attempt is told once, however many layers decide about its outcome: whoever hands an outcome on leaves its place in the trail with
//! the scopes around ([`Handed`]), and whoever decides next finds it in its own scope. That is known, and not guessed from what the
//! outcome is like: layers of one kind may lie inside each other, and what lies between them may find a good answer bad.

use std::fmt;

use super::{Call, Frame, Notes, with_frame};
use crate::{Attempt, Class, Next};

/// An outcome that was handed on, and that nobody around has decided about yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handed {
    /// Its place in the trail, counted on beyond what that holds.
    place: usize,
    class: Class,
    is_cached: bool,
    /// Whoever was to make another attempt was dropped before that: what is decided is decided about this one.
    is_cut: bool,
}

/// Which attempt was told, for the layer that told of it, see [`Call::decide`].
#[derive(Clone)]
#[must_use = "needed only where what was decided may come to nothing"]
pub struct Told(Option<(Call, Handed)>);

impl Call {
    /// Records an attempt in the current call; inside a [`Deferred`](super::Deferred) scope this makes it a real one. Does nothing
    /// where there is neither.
    ///
    /// For what no layer further in can have told, such as a route that was skipped; a layer that decides about an outcome says so with
    /// [`decide`](Self::decide).
    pub fn record(attempt: Attempt) {
        if let Some(call) = with_frame(Frame::materialise).flatten() {
            let hands_on = attempt.next.hands_on();
            let handed = call.push(attempt);
            if hands_on {
                // Who records may have no scope of his own: then this is that of a layer around.
                call.with_own_notes(|notes| notes.handed = Some(handed));
            }
        }
    }

    /// Records what a layer did next about an outcome. Where a layer further in had nothing more to do about it and handed it on, such as
    /// a retry that gave up before the next route was taken, the attempt is told already: then this decision is
    /// [added to it](Attempt::earlier). Else as [`record`](Self::record).
    ///
    /// The current scope must be the layer's own, or that of the attempt: only what was told inside it is looked at.
    pub fn decide(attempt: Attempt) -> Told {
        let Some(call) = with_frame(Frame::materialise).flatten() else { return Told(None) };
        let handed = call.lock().as_mut().and_then(|notes| notes.handed.take());
        if let Some(handed) = handed {
            // Whatever becomes of it, it is decided here.
            call.withhold(handed);
        }
        let told = match handed.filter(|handed| handed.is_outcome_of(&attempt)) {
            Some(handed) => call.settle(handed, attempt),
            None => call.push(attempt),
        };
        Told(Some((call, told)))
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

    /// Tells of another attempt.
    fn push(&self, attempt: Attempt) -> Handed {
        let hands_on = attempt.next.hands_on();
        let (class, is_cached) = (attempt.verdict.class(), attempt.next == Next::Cached);
        let place = self.with_notes(|notes| {
            let opened = notes.take_opened() || attempt.opened;
            let place = notes.trail.next_place();
            notes.trail.push(Attempt { opened, ..attempt });
            place
        });
        let handed = Handed { place, class, is_cached, is_cut: false };
        if hands_on {
            self.hand_on(handed);
        }
        handed
    }

    /// Adds a decision to what was told.
    fn settle(&self, handed: Handed, attempt: Attempt) -> Handed {
        let next = attempt.next;
        let is_bad_after_all = handed.class == Class::Success;
        let class = if is_bad_after_all { attempt.verdict.class() } else { handed.class };
        // A route has its name from the one who has made it one; that of a layer around a fallback says less than the route's.
        let of_route = self.is_routes();
        self.with_notes(|notes| {
            let opened = notes.take_opened() || attempt.opened;
            notes.trail.decide(handed.place, Attempt { opened, ..attempt }, of_route);
        });
        let is_cached = handed.is_cached || next == Next::Cached;
        let handed = Handed { class, is_cached, is_cut: false, ..handed };
        if next.hands_on() {
            self.hand_on(handed);
        }
        handed
    }

    /// Whether it is the scope of a fallback's route: of the first one that is the fallback's own.
    pub(super) fn is_routes(&self) -> bool {
        self.0.routing || (self.0.route && self.0.parent.as_ref().is_some_and(|call| call.0.routing))
    }

    /// Leaves it with the scopes around.
    fn hand_on(&self, handed: Handed) {
        self.each_around(|notes| notes.handed = Some(handed));
    }

    /// Takes it back.
    fn withhold(&self, handed: Handed) {
        self.each_around(|notes| {
            notes.handed.take_if(|other| other.place == handed.place);
        });
    }

    /// Visits the scopes around in which an outcome of this one is one of theirs.
    fn each_around(&self, visit: impl Fn(&mut Notes)) {
        let (mut next, mut beside) = (self.0.parent.as_ref(), self.0.route);
        while let Some(call) = next {
            // The scope around attempts beside each other is that of the first of them.
            if !beside {
                call.with_own_notes(&visit);
            }
            beside = call.0.route;
            next = call.0.parent.as_ref();
        }
    }
}

impl Handed {
    /// Whether what is decided can be about this outcome. It is not where something between has an answer of its own.
    fn is_outcome_of(&self, decided: &Attempt) -> bool {
        let class = decided.verdict.class();
        if self.is_cut {
            return true;
        }
        match (self.class, class) {
            (Class::Success, _) => true,
            (_, Class::Success) => self.is_cached,
            (Class::Denied(_), _) => true,
            (_, Class::Denied(_)) => false,
            _ => true,
        }
    }
}

impl Told {
    /// What was decided came to nothing; what was done instead.
    pub fn then(&self, next: Next) {
        let Some((call, handed)) = &self.0 else { return };
        call.with_notes(|notes| notes.trail.then(handed.place, next));
        if next.hands_on() {
            call.hand_on(*handed);
        }
    }

    /// Hands the outcome on although others were told since, such as a refusal of the next attempt.
    pub fn hand_on(&self) {
        if let Some((call, handed)) = &self.0 {
            call.hand_on(*handed);
        }
    }

    /// The outcome is handed on to nobody, although the layer can do nothing about it: another attempt of its own still runs.
    pub fn withhold(&self) {
        if let Some((call, handed)) = &self.0 {
            call.withhold(*handed);
        }
    }

    /// The attempt that was to follow will not be made, and whoever was to make it does not say what comes now.
    pub(super) fn cut(&self) {
        if let Some((call, handed)) = &self.0 {
            call.hand_on(Handed { is_cut: true, ..*handed });
        }
    }
}

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Told").field(&self.0.as_ref().map(|(_, handed)| handed.place)).finish()
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
}

#[cfg(test)]
mod tests;
