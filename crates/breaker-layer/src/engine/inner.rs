//! The locked half of the engine: calls that come and end, and time that passes.

use std::sync::PoisonError;
use std::time::Duration;

use super::half_open::Tally;
use super::outcome::Outcome;
use super::report::{Changes, Counts, Mode, Reason, Snapshot, State};
use super::settings::{Settings, TripOn};
use super::sync::{MutexGuard, Ordering};
use super::window::{Sample, Sums, Window};
use super::word::{Kind, Permit, Word};
use super::{Engine, Refusal};

/// What the lock guards.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) window: Window,
    /// Failures in a row, in thousandths.
    pub(super) streak: u64,
    /// Rate limits in a row without advice.
    pub(super) rate_limited: u32,
    pub(super) tally: Tally,
    /// Calls that a canary still passes over before it takes one.
    pub(super) to_skip: u32,
    /// Openings in a row without closing in between.
    pub(super) openings: u32,
    /// Half-open periods in a row that failed.
    pub(super) failed_half_opens: u32,
    /// The farthest end of advice heard since it was last closed.
    pub(super) advised_until: u64,
    /// `Engine::refused` when the state was entered.
    pub(super) refused_before: u64,
    /// Observe-only has told that it would have opened.
    pub(super) would_have_opened: bool,
    /// When the state was entered, and why; none before the first change.
    pub(super) entered_at: u64,
    pub(super) entered_by: Option<Reason>,
    /// Permits of earlier generations are of before a reset or a change of mode.
    pub(super) first_generation: u64,
    pub(super) last_resort: LastResort,
    pub(super) random: fastrand::Rng,
}

/// The slots for last-resort calls. They have a lease as well: if calls never end, the slots come back.
#[derive(Debug, Default)]
pub(super) struct LastResort {
    running: u32,
    round: u8,
    lease_until: u64,
}

impl Inner {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            window: settings.window(),
            streak: 0,
            rate_limited: 0,
            tally: Tally::default(),
            to_skip: 0,
            openings: 0,
            failed_half_opens: 0,
            advised_until: 0,
            refused_before: 0,
            would_have_opened: false,
            entered_at: 0,
            entered_by: None,
            first_generation: 0,
            last_resort: LastResort::default(),
            random: settings.seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed),
        }
    }
}

/// The state to start a mode in, and whether it is advisory; the modes that overlay keep what they lie over.
pub(super) fn state_of(mode: Mode, advisory: bool) -> (State, bool) {
    match mode {
        Mode::Enforcing => (State::Closed, false),
        Mode::Advisory => (State::Closed, true),
        Mode::ObserveOnly => (State::ObserveOnly, advisory),
        Mode::ForcedOpen => (State::ForcedOpen, advisory),
        Mode::Disabled => (State::Disabled, advisory),
    }
}

pub(super) fn mode_of(word: Word) -> Mode {
    match word.state() {
        State::ObserveOnly => Mode::ObserveOnly,
        State::ForcedOpen => Mode::ForcedOpen,
        State::Disabled => Mode::Disabled,
        State::Closed | State::Open | State::HalfOpen if word.is_advisory() => Mode::Advisory,
        State::Closed | State::Open | State::HalfOpen => Mode::Enforcing,
    }
}

/// The engine while its lock is held, and the changes made meanwhile.
pub(super) struct Locked<'a> {
    pub(super) engine: &'a Engine,
    pub(super) inner: MutexGuard<'a, Inner>,
    pub(super) changes: Changes,
}

impl<'a> Locked<'a> {
    pub(super) fn new(engine: &'a Engine) -> Self {
        // nothing panics under the lock; were it so, counts that are off by one are better than no calls
        let mut inner = engine.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let successes = engine.pending.close();
        if successes > 0 {
            inner.streak = 0;
            inner.rate_limited = 0;
            inner.window.record_successes(successes);
        }
        Self { engine, inner, changes: Changes::default() }
    }

    /// From now on successes that can meet no rule are only counted, until the lock is taken again.
    pub(super) fn open_pending(&self) {
        let (word, window) = (self.word(), &self.inner.window);
        if !matches!(word.state(), State::Closed | State::ObserveOnly) {
            return;
        }
        let sums = window.sums();
        let calm = sums.failed == 0 && sums.slow == 0 && self.engine.rules_spare_successes;
        if window.is_full() || calm {
            self.engine.bucket_ends.store(window.bucket_ends(), Ordering::Relaxed);
            self.engine.pending.open(word.generation());
        }
    }

    // ===== a call comes =====

    pub(super) fn acquire(&mut self, last_resort: bool, now: u64) -> Result<Permit, Refusal> {
        self.end_lease(now);
        let word = self.word();
        let retry_after = match word.state() {
            State::Closed | State::ObserveOnly => return Ok(word.permit(Kind::Counted)),
            State::Disabled => return Ok(word.permit(Kind::Uncounted)),
            State::Open => {
                let left = self.engine.open_until.load(Ordering::Relaxed).saturating_sub(now);
                if left == 0 {
                    // one step with its first probe: nobody can come in between
                    self.enter_half_open(Reason::OpenTimeOver, now, 1);
                    return Ok(self.word().permit(Kind::Probe));
                }
                Some(Duration::from_nanos(left))
            }
            State::HalfOpen if self.takes_probe(word) => {
                if now >= self.engine.lease_until.load(Ordering::Relaxed) || self.waits_as_canary(word) {
                    // it was waiting for this call
                    self.start_lease(now);
                }
                self.store(word.with_probes(word.probes() + 1));
                return Ok(word.permit(Kind::Probe));
            }
            State::HalfOpen | State::ForcedOpen => None,
        };
        if word.state() != State::ForcedOpen {
            if word.is_advisory() {
                return Ok(word.permit(Kind::Uncounted));
            }
            if let Some(permit) = self.last_resort(last_resort, word, now) {
                return Ok(permit);
            }
        }
        self.engine.refused.fetch_add(1, Ordering::Relaxed);
        Err(Refusal { state: word.state(), retry_after })
    }

    /// Whether the call that asks becomes a probe; a canary counts those that it passes over.
    fn takes_probe(&mut self, word: Word) -> bool {
        let decision = &self.engine.settings.decision;
        if word.probes() >= decision.probes {
            return false;
        }
        let take = self.inner.to_skip == 0;
        self.inner.to_skip = if take { decision.passed_over() } else { self.inner.to_skip - 1 };
        take
    }

    fn last_resort(&mut self, asked: bool, word: Word, now: u64) -> Option<Permit> {
        let most = self.engine.settings.last_resort;
        let slots = &mut self.inner.last_resort;
        if !asked || most == 0 {
            return None;
        }
        if slots.running >= most {
            if now < slots.lease_until {
                return None;
            }
            *slots = LastResort { running: 0, round: slots.round.wrapping_add(1), lease_until: 0 };
        }
        slots.running += 1;
        slots.lease_until = now.saturating_add(nanos(self.engine.settings.lease));
        Some(Permit::new(word.generation(), Kind::LastResort, slots.round))
    }

    // ===== a call ends =====

    pub(super) fn settle(
        &mut self,
        permit: &Permit,
        outcome: Outcome,
        slow: bool,
        now: &mut dyn FnMut() -> u64,
    ) {
        if self.word().state() == State::HalfOpen {
            self.end_lease(now());
        }
        if permit.kind() == Kind::LastResort {
            let slots = &mut self.inner.last_resort;
            slots.running -= u32::from(slots.round == permit.round() && slots.running > 0);
        }
        let word = self.word();
        match (permit.kind(), word.state()) {
            (Kind::Counted, State::Closed | State::ObserveOnly) if word.is_of(permit) => {
                self.settle_counted(outcome, slow, now);
            }
            (Kind::Probe, State::HalfOpen) if word.is_of(permit) => self.settle_probe(outcome, slow, now),
            (kind, State::Open) => {
                self.settle_late(permit, outcome, now);
                if kind == Kind::LastResort && word.is_of(permit) {
                    self.settle_last_resort(outcome, slow, now);
                }
            }
            _ => {}
        }
    }

    fn settle_counted(&mut self, outcome: Outcome, slow: bool, now: &mut dyn FnMut() -> u64) {
        self.hear_advice(outcome, now);
        let inner = &mut *self.inner;
        match outcome {
            Outcome::Success => {
                inner.streak = 0;
                inner.rate_limited = 0;
                let may_meet_rules = slow || !inner.window.is_full();
                inner.window.record(Sample::new(0, slow), &mut *now);
                if !may_meet_rules {
                    return self.update_clean();
                }
            }
            Outcome::Failure { weight, .. } => {
                inner.streak = inner.streak.saturating_add(weight.thousandths());
                inner.rate_limited = 0;
                inner.window.record(Sample::new(weight.bits(), slow), &mut *now);
            }
            Outcome::Cancelled if slow && self.engine.settings.rules.slow_rate.is_some() => {
                inner.window.record(Sample::new(0, true), &mut *now);
            }
            Outcome::RateLimited { advice: None } => {
                inner.rate_limited = inner.rate_limited.saturating_add(1);
            }
            Outcome::RateLimited { .. } | Outcome::AtOnce { .. } => {}
            Outcome::Alive | Outcome::Neutral | Outcome::Cancelled => return,
        }
        if let Some(reason) = self.reason_to_open(outcome) {
            self.trip(reason, now);
        }
        self.update_clean();
    }

    fn reason_to_open(&self, outcome: Outcome) -> Option<Reason> {
        let settings = &self.engine.settings;
        match outcome {
            Outcome::AtOnce { .. } => return Some(Reason::AtOnce),
            Outcome::RateLimited { advice } => {
                let hold = advice.is_some_and(|advice| advice >= settings.hold_from);
                let many = advice.is_none() && self.inner.rate_limited >= settings.rate_limited_in_a_row;
                let in_a_row = many.then_some(Reason::RateLimitedInARow);
                return if hold { Some(Reason::RateLimited) } else { in_a_row };
            }
            Outcome::Success if settings.trip_on == TripOn::FailureOnly => return None,
            _ => {}
        }
        settings.rules.met(self.inner.window.sums(), self.inner.streak)
    }

    fn trip(&mut self, reason: Reason, now: &mut dyn FnMut() -> u64) {
        if self.word().state() == State::Closed {
            self.open_because(reason, now());
        } else if !std::mem::replace(&mut self.inner.would_have_opened, true) {
            let time_in_state = self.time_in_state(now());
            self.tell(State::ObserveOnly, self.word(), reason, None, self.inner.openings, time_in_state);
        }
    }

    fn settle_probe(&mut self, outcome: Outcome, slow: bool, now: &mut dyn FnMut() -> u64) {
        self.hear_advice(outcome, now);
        let decision = self.engine.settings.decision;
        let at_once = match outcome {
            Outcome::RateLimited { advice: Some(advice) } if advice >= self.engine.settings.hold_from => {
                Some(Reason::RateLimited)
            }
            Outcome::AtOnce { .. } => Some(Reason::AtOnce),
            _ => None,
        };
        if let Some(reason) = at_once {
            self.inner.failed_half_opens = self.inner.failed_half_opens.saturating_add(1);
            return self.open_because(reason, now());
        }
        let Some((weight, slow)) = outcome.as_probe(slow, decision.minds_slow()) else {
            let word = self.word();
            return self.store(word.with_probes(word.probes().saturating_sub(1)));
        };
        self.inner.tally.record(weight, slow, &decision);
        match self.inner.tally.decide(&decision) {
            // a canary goes on as long as its calls come back
            None if decision.is_canary() => self.renew_lease(now()),
            None => {}
            Some(Reason::ProbesGood) => self.close_because(Reason::ProbesGood, now()),
            Some(reason) => {
                self.inner.failed_half_opens = self.inner.failed_half_opens.saturating_add(1);
                self.open_because(reason, now());
            }
        }
    }

    /// A call that was let through an open circuit shows what a probe would show. So it is booked as one, and
    /// enough good ones close: else a target that is back refuses everybody for the rest of its open time,
    /// though it answers. Bad ones change nothing but that the count begins again; the open time stays.
    ///
    /// Not while the server has asked to be left alone: its advice is a floor, and that it serves a few does
    /// not say that it serves all. And not if somebody opened it by hand: they know more than a few calls.
    fn settle_last_resort(&mut self, outcome: Outcome, slow: bool, now: &mut dyn FnMut() -> u64) {
        if self.inner.entered_by == Some(Reason::ByHand) || now() < self.inner.advised_until {
            self.inner.tally = Tally::default();
            return;
        }
        let decision = self.engine.settings.decision;
        let tally = &mut self.inner.tally;
        if matches!(outcome, Outcome::AtOnce { .. }) {
            *tally = Tally::default();
        }
        let Some((weight, slow)) = outcome.as_probe(slow, decision.minds_slow()) else { return };
        tally.record(weight, slow, &decision);
        match tally.decide(&decision) {
            None => {}
            Some(Reason::ProbesGood) => self.close_because(Reason::LastResortGood, now()),
            Some(_) => *tally = Tally::default(),
        }
    }

    /// A call of an earlier period, or of the last resort, ended while open: what the server asks for counts.
    fn settle_late(&mut self, permit: &Permit, outcome: Outcome, now: &mut dyn FnMut() -> u64) {
        let Some(advice) = outcome.advice() else { return };
        if advice < self.engine.settings.hold_from || permit.generation() < self.inner.first_generation {
            return;
        }
        self.hear_advice(outcome, now);
        self.engine.open_until.fetch_max(self.inner.advised_until, Ordering::Release);
    }

    fn hear_advice(&mut self, outcome: Outcome, now: &mut dyn FnMut() -> u64) {
        if let Some(advice) = outcome.advice() {
            let until = now().saturating_add(nanos(advice.min(self.engine.settings.max_advice)));
            self.inner.advised_until = self.inner.advised_until.max(until);
        }
    }

    // ===== time passes =====

    /// A half-open period that came to no decision opens when its lease ended, not when somebody notices.
    ///
    /// Unless all its probes came back good and it only waits for more calls: nothing is lost then, and a
    /// target that is well but seldom called would never be let close. A canary, which waits by design, does so
    /// whatever they came to.
    pub(super) fn end_lease(&mut self, now: u64) {
        let ended = self.engine.lease_until.load(Ordering::Relaxed);
        let word = self.word();
        if word.state() != State::HalfOpen || now < ended || self.waits_for_calls(word) {
            return;
        }
        self.inner.openings = self.inner.openings.max(1);
        let open_for = self.open_time();
        self.open_at_least(Reason::LeaseEnded, ended, open_for);
    }

    fn waits_for_calls(&self, word: Word) -> bool {
        self.inner.tally.is_all_good(word.probes(), &self.engine.settings.decision)
            || self.waits_as_canary(word)
    }

    fn waits_as_canary(&self, word: Word) -> bool {
        self.engine.settings.decision.is_canary() && self.inner.tally.is_all_back(word.probes())
    }

    pub(super) fn renew(&mut self, permit: &Permit, now: u64) {
        let until = now.saturating_add(nanos(self.engine.settings.lease));
        let word = self.word();
        match permit.kind() {
            Kind::Probe if word.is_of(permit) && word.state() == State::HalfOpen => {
                self.renew_lease(now);
            }
            Kind::LastResort if permit.round() == self.inner.last_resort.round => {
                self.inner.last_resort.lease_until = self.inner.last_resort.lease_until.max(until);
            }
            _ => {}
        }
    }

    // ===== numbers =====

    pub(super) fn snapshot(&mut self, now: u64) -> Snapshot {
        self.inner.window.advance(now);
        let word = self.word();
        let left = |until: u64| Some(Duration::from_nanos(until.saturating_sub(now)));
        let time_left = match word.state() {
            State::Open => left(self.engine.open_until.load(Ordering::Relaxed)),
            State::HalfOpen => left(self.engine.lease_until.load(Ordering::Relaxed)),
            _ => None,
        };
        Snapshot {
            state: word.state(),
            mode: mode_of(word),
            counts: self.counts(),
            consecutive_openings: self.inner.openings,
            time_left,
            probes: word.probes(),
            refused_in_all: self.engine.refused.load(Ordering::Relaxed),
            time_in_state: self.time_in_state(now),
            reason: self.inner.entered_by,
        }
    }

    pub(super) fn counts(&self) -> Counts {
        let sums = match self.word().state() {
            State::Closed | State::ObserveOnly => *self.inner.window.sums(),
            State::HalfOpen | State::Open => self.inner.tally.sums,
            State::ForcedOpen | State::Disabled => Sums::default(),
        };
        let rules = &self.engine.settings.rules;
        let rate = |part: u64, least: u64| {
            (sums.total >= least.max(1)).then(|| part as f64 / 1000.0 / sums.total as f64)
        };
        Counts {
            total: sums.total,
            failed: sums.failed,
            failed_weight: sums.weight as f64 / 1000.0,
            soft: sums.soft,
            slow: sums.slow,
            slow_failed: sums.slow_failed,
            failure_rate: rate(sums.weight, rules.least),
            soft_failure_rate: rate(sums.soft * 1000, rules.soft_least),
            slow_rate: rate(sums.slow * 1000, rules.slow_least),
            refused: self.engine.refused.load(Ordering::Relaxed).saturating_sub(self.inner.refused_before),
        }
    }

    // ===== the word =====

    pub(super) fn word(&self) -> Word {
        Word(self.engine.word.load(Ordering::Relaxed))
    }

    pub(super) fn store(&self, word: Word) {
        self.engine.word.store(word.0, Ordering::Release);
    }

    /// While closed, the word says whether one more success would change nothing.
    fn update_clean(&self) {
        let word = self.word();
        if word.state() != State::Closed {
            return;
        }
        let clean = self.inner.rate_limited == 0
            && self.inner.streak == 0
            && self.inner.window.is_full_of_successes();
        if word.with_clean(clean) != word {
            self.store(word.with_clean(clean));
        }
    }
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
