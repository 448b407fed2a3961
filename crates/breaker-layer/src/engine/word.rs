//! The one word of the call path, and the ticket that a call carries.
//!
//! ```text
//! bit   63 ............ 25 | 24 ........... 5 | 4        | 3     | 2 ... 0
//!       generation (39)    | probes taken (20)| advisory | clean | state
//! ```
//!
//! Every write happens under the engine's lock; readers only load. The generation grows with each transition,
//! mode change and reset, so one comparison tells whether a ticket is of the present period.

use std::num::NonZeroU64;

use super::report::State;

const STATE_MASK: u64 = 0b111;
const CLEAN: u64 = 1 << 3;
const ADVISORY: u64 = 1 << 4;
const PROBES_SHIFT: u32 = 5;
const PROBES_BITS: u32 = 20;
const PROBES_MASK: u64 = ((1 << PROBES_BITS) - 1) << PROBES_SHIFT;
pub(super) const GENERATION_SHIFT: u32 = PROBES_SHIFT + PROBES_BITS;

/// As many probes as the word can count.
pub(super) const MAX_PROBES: u32 = 1_000_000;

/// A value of the word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(pub(super) u64);

impl Word {
    pub(super) fn new(state: State, advisory: bool) -> Self {
        Self(state_bits(state) | if advisory { ADVISORY } else { 0 })
    }

    /// The word of the next period: another generation, no probe taken, not clean.
    pub(super) fn next(self, state: State, advisory: bool) -> Self {
        let generation = self.generation().wrapping_add(1);
        Self(Self::new(state, advisory).0 | generation << GENERATION_SHIFT)
    }

    #[inline]
    pub(super) fn state(self) -> State {
        match self.0 & STATE_MASK {
            0 => State::Closed,
            1 => State::Open,
            2 => State::HalfOpen,
            3 => State::ForcedOpen,
            4 => State::Disabled,
            _ => State::ObserveOnly,
        }
    }

    #[inline]
    pub(super) fn is_advisory(self) -> bool {
        self.0 & ADVISORY != 0
    }

    pub(super) fn generation(self) -> u64 {
        self.0 >> GENERATION_SHIFT
    }

    pub(super) fn probes(self) -> u32 {
        ((self.0 & PROBES_MASK) >> PROBES_SHIFT) as u32
    }

    pub(super) fn with_probes(self, probes: u32) -> Self {
        Self(self.0 & !PROBES_MASK | u64::from(probes.min(MAX_PROBES)) << PROBES_SHIFT)
    }

    pub(super) fn with_clean(self, clean: bool) -> Self {
        Self(if clean { self.0 | CLEAN } else { self.0 & !CLEAN })
    }

    /// Whether a success of this permit changes nothing: closed, of this generation, and the window is full
    /// of nothing but successes.
    #[inline]
    pub(super) fn is_clean_for(self, permit: &Permit) -> bool {
        self.0 & (STATE_MASK | CLEAN) == CLEAN && self.is_of(permit) && permit.kind() == Kind::Counted
    }

    /// Whether the permit was given in the present period.
    #[inline]
    pub(super) fn is_of(self, permit: &Permit) -> bool {
        self.0 >> GENERATION_SHIFT == permit.generation()
    }

    #[inline]
    pub(super) fn permit(self, kind: Kind) -> Permit {
        Permit::new(self.generation(), kind, 0)
    }
}

fn state_bits(state: State) -> u64 {
    match state {
        State::Closed => 0,
        State::Open => 1,
        State::HalfOpen => 2,
        State::ForcedOpen => 3,
        State::Disabled => 4,
        State::ObserveOnly => 5,
    }
}

/// What a permit is worth when its call ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Goes to the window.
    Counted,
    /// One of the probes of a half-open period.
    Probe,
    /// Let through without a say: while disabled, or by an advisory circuit that is open.
    Uncounted,
    /// Let through an open circuit as a last resort; holds one of its slots.
    LastResort,
}

/// The right to make one call, and the ticket by which its outcome is booked: one word.
///
/// Give it back with [`Engine::settle`](super::Engine::settle), exactly once; a call that came to nothing
/// settles as [`Outcome::Cancelled`](super::Outcome::Cancelled). A permit that is lost holds its probe until
/// the lease of the half-open period ends.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a permit must be settled, or its probe is held until the lease ends"]
pub struct Permit(NonZeroU64);

const KIND_MASK: u64 = 0b111;
const ROUND_SHIFT: u32 = 3;

impl Permit {
    /// `round` tells the last resort's slots of one lease from those of the next.
    #[inline]
    pub(super) fn new(generation: u64, kind: Kind, round: u8) -> Self {
        let kind = match kind {
            Kind::Counted => 1,
            Kind::Probe => 3,
            Kind::Uncounted => 5,
            Kind::LastResort => 7,
        };
        // every kind is odd, so the lowest bit is set and the ticket is never zero
        Self(NonZeroU64::MIN | (generation << GENERATION_SHIFT | u64::from(round) << ROUND_SHIFT | kind))
    }

    /// Whether this call probes a half-open circuit: its progress should be reported with
    /// [`Engine::renew`](super::Engine::renew).
    #[inline]
    pub fn is_probe(&self) -> bool {
        self.kind() == Kind::Probe
    }

    /// Whether its end makes room for another call: it has one of few places.
    #[inline]
    pub(crate) fn has_place(&self) -> bool {
        matches!(self.kind(), Kind::Probe | Kind::LastResort)
    }

    #[inline]
    pub(super) fn kind(&self) -> Kind {
        match self.0.get() & KIND_MASK {
            1 => Kind::Counted,
            3 => Kind::Probe,
            5 => Kind::Uncounted,
            _ => Kind::LastResort,
        }
    }

    #[inline]
    pub(super) fn generation(&self) -> u64 {
        self.0.get() >> GENERATION_SHIFT
    }

    pub(super) fn round(&self) -> u8 {
        (self.0.get() >> ROUND_SHIFT) as u8
    }
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_one_word_also_as_an_option() {
        assert_eq!(size_of::<Option<Permit>>(), size_of::<u64>());
    }

    #[test]
    fn what_is_packed_comes_out_again() {
        let word = Word::new(State::HalfOpen, true).next(State::HalfOpen, true).with_probes(MAX_PROBES);
        assert_eq!(word.state(), State::HalfOpen);
        assert_eq!((word.generation(), word.probes(), word.is_advisory()), (1, MAX_PROBES, true));
        assert_eq!(word.with_clean(true).with_probes(0).probes(), 0);
        for kind in [Kind::Counted, Kind::Probe, Kind::Uncounted, Kind::LastResort] {
            let permit = Permit::new(u64::MAX >> GENERATION_SHIFT, kind, 255);
            assert_eq!((permit.kind(), permit.round()), (kind, 255));
            assert_eq!(permit.generation(), u64::MAX >> GENERATION_SHIFT);
        }
    }

    #[test]
    fn the_generation_wraps_without_touching_the_rest() {
        let last = Word(u64::MAX >> GENERATION_SHIFT << GENERATION_SHIFT);
        let word = last.next(State::Open, false);
        assert_eq!((word.generation(), word.state(), word.is_advisory()), (0, State::Open, false));
    }
}
