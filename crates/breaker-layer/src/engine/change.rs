//! Every change of state is made here, with its reason.

use std::time::Duration;

use super::InvalidTransition;
use super::half_open::Tally;
use super::inner::{Locked, mode_of, nanos, state_of};
use super::report::{Mode, Reason, State, Transition};
use super::sync::Ordering;
use super::word::Word;

impl Locked<'_> {
    // ===== somebody asks for it =====

    pub(super) fn reset(&mut self, now: u64) {
        let advisory = self.word().is_advisory();
        self.start_over(State::Closed, advisory, Reason::Reset, now);
    }

    pub(super) fn set_mode(&mut self, mode: Mode, now: u64) {
        let word = self.word();
        if mode_of(word) != mode {
            let (state, advisory) = state_of(mode, word.is_advisory());
            self.start_over(state, advisory, Reason::ModeChanged, now);
        }
    }

    pub(super) fn allows_by_hand(&self, to: State) -> Result<(), InvalidTransition> {
        match self.word().state() {
            State::ObserveOnly => Err(InvalidTransition { from: State::ObserveOnly, to }),
            _ => Ok(()),
        }
    }

    pub(super) fn open_by_hand(&mut self, open_for: Option<Duration>, now: u64) {
        self.inner.openings = self.inner.openings.saturating_add(1);
        let open_for = open_for.unwrap_or_else(|| self.open_time());
        self.enter_open(Reason::ByHand, now, now.saturating_add(nanos(open_for)));
    }

    pub(super) fn half_open_by_hand(&mut self, now: u64) {
        self.enter_half_open(Reason::ByHand, now, 0);
    }

    // ===== states are entered =====

    pub(super) fn open_because(&mut self, reason: Reason, now: u64) {
        self.inner.openings = self.inner.openings.saturating_add(1);
        let settings = &self.engine.settings;
        let open_for = match reason {
            // until the advice is over: the server knows
            Reason::RateLimited => Duration::ZERO,
            Reason::AtOnce => {
                let least = settings.open.spread(settings.at_once, self.inner.random.f64());
                self.open_time().max(least)
            }
            _ => self.open_time(),
        };
        self.open_at_least(reason, now, open_for);
    }

    /// Opens for this time, and not before the server's advice is over.
    pub(super) fn open_at_least(&mut self, reason: Reason, now: u64, open_for: Duration) {
        let until = now.saturating_add(nanos(open_for)).max(self.advised_until(now));
        self.enter_open(reason, now, until);
    }

    /// The end of the advice, and a little later: all who were told the same moment would probe at it together.
    fn advised_until(&mut self, now: u64) -> u64 {
        let advised = self.inner.advised_until;
        let jitter = self.engine.settings.open.jitter;
        if jitter == 0.0 || advised <= now {
            return advised;
        }
        let later = (advised - now) as f64 * jitter * self.inner.random.f64();
        // `as` saturates
        advised.saturating_add(later as u64)
    }

    pub(super) fn open_time(&mut self) -> Duration {
        let random = self.inner.random.f64();
        self.engine.settings.open.after(self.inner.openings, self.inner.failed_half_opens, random)
    }

    fn enter_open(&mut self, reason: Reason, now: u64, until: u64) {
        self.engine.open_until.store(until, Ordering::Release);
        let open_for = Some(Duration::from_nanos(until.saturating_sub(now)));
        let word = self.word();
        self.change(word, word.next(State::Open, word.is_advisory()), reason, open_for, now);
    }

    pub(super) fn enter_half_open(&mut self, reason: Reason, now: u64, probes: u32) {
        self.start_lease(now);
        let word = self.word();
        let next = word.next(State::HalfOpen, word.is_advisory()).with_probes(probes);
        self.change(word, next, reason, None, now);
    }

    pub(super) fn start_lease(&self, now: u64) {
        let until = now.saturating_add(nanos(self.engine.settings.lease));
        self.engine.lease_until.store(until, Ordering::Release);
    }

    pub(super) fn renew_lease(&self, now: u64) {
        let until = now.saturating_add(nanos(self.engine.settings.lease));
        self.engine.lease_until.fetch_max(until, Ordering::Release);
    }

    pub(super) fn close_because(&mut self, reason: Reason, now: u64) {
        let word = self.word();
        self.change(word, word.next(State::Closed, word.is_advisory()), reason, None, now);
    }

    fn start_over(&mut self, state: State, advisory: bool, reason: Reason, now: u64) {
        let word = self.word();
        let next = word.next(state, advisory);
        self.change(word, next, reason, None, now);
        self.inner.first_generation = next.generation();
    }

    /// The only place where the state changes.
    fn change(&mut self, from: Word, to: Word, reason: Reason, open_for: Option<Duration>, now: u64) {
        let time_in_state = self.time_in_state(now);
        let inner = &mut *self.inner;
        let openings_at_end = inner.openings;
        if !matches!(to.state(), State::Open | State::HalfOpen) {
            inner.openings = 0;
            inner.failed_half_opens = 0;
            inner.advised_until = 0;
        }
        self.tell(from.state(), to, reason, open_for, openings_at_end, time_in_state);
        let inner = &mut *self.inner;
        inner.window.clear();
        inner.tally = Tally::default();
        // the first call of a half-open period is a probe, and may be the one that began it
        inner.to_skip = if to.probes() > 0 { self.engine.settings.decision.passed_over() } else { 0 };
        inner.streak = 0;
        inner.rate_limited = 0;
        inner.would_have_opened = false;
        // a clock that went back does not make the state begin again
        inner.entered_at = now.max(inner.entered_at);
        inner.entered_by = Some(reason);
        inner.refused_before = self.engine.refused.load(Ordering::Relaxed);
        self.store(to);
    }

    /// How long the present state has lasted.
    pub(super) fn time_in_state(&self, now: u64) -> Duration {
        Duration::from_nanos(now.saturating_sub(self.inner.entered_at))
    }

    pub(super) fn tell(
        &mut self,
        from: State,
        to: Word,
        reason: Reason,
        open_for: Option<Duration>,
        openings: u32,
        time_in_state: Duration,
    ) {
        let counts = self.counts();
        self.changes.push(Transition {
            sequence: to.generation(),
            from,
            to: to.state(),
            reason,
            counts,
            consecutive_openings: openings,
            open_for,
            time_in_state,
        });
    }
}
