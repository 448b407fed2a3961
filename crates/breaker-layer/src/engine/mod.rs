//! The circuit breaker as a pure state machine: no I/O, no timer, no task, and time comes in as an argument.
//!
//! Take this where the [`tower::Layer`](crate) does not fit: around something that is not a `Service`. A call
//! takes a [`Permit`] with [`Engine::acquire`] and gives it back with its [`Outcome`] to [`Engine::settle`];
//! both return the [`Transition`]s that they caused, each with its reason.
//!
//! ```
//! use std::time::Duration;
//! use breaker_layer::engine::{Engine, Outcome, Over, Reason, Settings, State};
//! use tokio::time::Instant;
//!
//! let settings = Settings::builder()
//!     .over(Over::Calls(4))
//!     .min_calls(4)
//!     .open_time(Duration::from_secs(1))
//!     .jitter(0.0)
//!     .build()?;
//! let start = Instant::now();
//! let engine = Engine::new(settings, start);
//!
//! for _ in 0..4 {
//!     let Ok(permit) = engine.acquire(|| start).admission else { panic!("closed: nothing is refused") };
//!     for transition in engine.settle(permit, Outcome::FAILURE, Duration::ZERO, || start) {
//!         assert_eq!((transition.to, transition.reason), (State::Open, Reason::FailureRate));
//!     }
//! }
//! let Err(refusal) = engine.acquire(|| start).admission else { panic!("open: refused") };
//! assert_eq!(refusal.retry_after, Some(Duration::from_secs(1)));
//!
//! let later = start + Duration::from_secs(1);
//! assert!(engine.acquire(|| later).admission.is_ok_and(|permit| permit.is_probe()));
//! # Ok::<(), failsoft_core::ConfigError>(())
//! ```
//!
//! # Time
//!
//! A clock read costs more than all the rest, so `now` is a closure that is called only where a rule needs
//! it: never on the way through a closed circuit over the last N calls. Time that goes back books into the
//! newest bucket. States change when somebody looks: the end of a lease, noticed late, counts from when it
//! was.
//!
//! # Cost
//!
//! The way through a closed circuit is one atomic load; settling is one more if the last N calls were all
//! good. A success that can meet no rule is one atomic step: one into a full window of the last N calls, or
//! into any other window without failures and slow calls. All else, and every 64th of those, is a short lock.
//! Every step is O(1) in the number of calls; a time window costs one step for
//! each bucket that has passed, at most as many as there are.

mod build;
mod builder;
mod change;
mod check;
mod half_open;
mod inner;
#[cfg(all(test, failsoft_loom))]
mod loom_models;
mod open_time;
mod outcome;
mod pending;
mod report;
mod rules;
mod settings;
mod sync;
mod window;
mod word;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use self::inner::{Inner, Locked};
use self::pending::Pending;
use self::sync::{AtomicU64, Mutex, Ordering};
use self::word::{Kind, Word};

pub use self::builder::SettingsBuilder;
pub use self::outcome::{Outcome, Weight};
pub use self::report::{Changes, Counts, Mode, Reason, Snapshot, State, Transition};
pub use self::settings::{Over, Probes, Settings, TripOn};
pub use self::word::Permit;

/// A circuit breaker's state machine; shared by reference, all methods take `&self`.
pub struct Engine {
    /// The only thing that a call through a closed circuit reads. Written under the lock.
    word: AtomicU64,
    /// Nanoseconds since `epoch`; written under the lock, before the word that makes it hold.
    open_until: AtomicU64,
    lease_until: AtomicU64,
    refused: AtomicU64,
    pending: Pending,
    /// Until when a success belongs to the newest bucket, in nanoseconds; written while `pending` is closed.
    bucket_ends: AtomicU64,
    rules_spare_successes: bool,
    /// In nanoseconds, if calls are timed.
    slow_after: u64,
    /// One byte to look at on every call.
    times_calls: bool,
    epoch: Instant,
    settings: Arc<Settings>,
    inner: Mutex<Inner>,
}

/// What [`Engine::acquire`] answers.
#[derive(Debug)]
#[must_use]
pub struct Acquired {
    /// Whether the call may go.
    pub admission: Result<Permit, Refusal>,
    /// What changed by asking.
    pub changes: Changes,
}

impl Acquired {
    #[inline]
    fn permit(permit: Permit) -> Self {
        Self { admission: Ok(permit), changes: Changes::default() }
    }
}

/// Why a call may not go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// The state that refused: open, half-open (all probes are taken) or forced open.
    pub state: State,
    /// Until a probe is admitted, while open. Nobody knows while probing or forced open.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// Whether a probe is running just now: its result will come soon.
    pub fn is_probing(&self) -> bool {
        self.state == State::HalfOpen
    }
}

/// A step that the present state does not allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidTransition {
    /// The present state.
    pub from: State,
    /// The state that was asked for.
    pub to: State,
}

impl fmt::Display for InvalidTransition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a circuit that is {} cannot go to {} by hand", self.from, self.to)
    }
}

impl std::error::Error for InvalidTransition {}

impl Engine {
    /// A closed circuit, or one in the settings' mode. Times before `epoch` count as `epoch`; buckets of a
    /// time window start at it.
    pub fn new(settings: impl Into<Arc<Settings>>, epoch: Instant) -> Self {
        let settings = settings.into();
        let (state, advisory) = inner::state_of(settings.mode, false);
        Self {
            word: AtomicU64::new(Word::new(state, advisory).0),
            open_until: AtomicU64::new(0),
            lease_until: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            pending: Pending::new(),
            bucket_ends: AtomicU64::new(0),
            rules_spare_successes: settings.rules.spare_successes(),
            slow_after: settings.slow_after.map_or(u64::MAX, inner::nanos),
            times_calls: settings.slow_after.is_some(),
            epoch,
            inner: Mutex::new(Inner::new(&settings)),
            settings,
        }
    }

    /// The settings it was made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether it needs to know how long a call took. If not, nobody has to read a clock for it.
    #[inline]
    pub fn times_calls(&self) -> bool {
        self.times_calls
    }

    /// Asks to make a call.
    #[inline]
    pub fn acquire(&self, now: impl Fn() -> Instant) -> Acquired {
        let word = self.load();
        match word.state() {
            State::Closed | State::ObserveOnly => Acquired::permit(word.permit(Kind::Counted)),
            _ => self.acquire_else(word, &now, false),
        }
    }

    /// Asks to make a call that has nowhere else to go: an open or probing circuit lets a few pass at once,
    /// as the settings say. A circuit forced open refuses them too.
    ///
    /// While it is open, their outcomes are booked as those of probes: enough good ones close it before its open
    /// time is over, and bad ones only make the count begin again. They decide nothing until the server's advice
    /// is over, nor in a circuit that was opened by hand; nor, while half-open, in place of a probe.
    #[inline]
    pub fn acquire_as_last_resort(&self, now: impl Fn() -> Instant) -> Acquired {
        let word = self.load();
        match word.state() {
            State::Closed | State::ObserveOnly => Acquired::permit(word.permit(Kind::Counted)),
            _ => self.acquire_else(word, &now, true),
        }
    }

    /// Whether a call would be refused now, without asking for one: nothing is taken, nothing changes, and a
    /// last resort is not looked at. [`refresh`](Self::refresh) first where the end of a lease matters.
    #[inline]
    pub fn would_refuse(&self, now: impl Fn() -> Instant) -> Option<Refusal> {
        let word = self.load();
        match word.state() {
            State::Closed | State::ObserveOnly | State::Disabled => None,
            _ if word.is_advisory() => None,
            _ => self.refusal_without_lock(word, || self.nanos(now())),
        }
    }

    /// How long an open circuit still refuses; none in any other state, and none once it would admit a probe.
    /// Takes no lock.
    #[inline]
    pub fn refuses_for(&self, now: impl Fn() -> Instant) -> Option<Duration> {
        if self.load().state() != State::Open {
            return None;
        }
        let left = self.open_until.load(Ordering::Acquire).saturating_sub(self.nanos(now()));
        (left > 0).then(|| Duration::from_nanos(left))
    }

    /// Whether the permit is of the present period: its outcome will be booked.
    #[inline]
    pub fn is_current(&self, permit: &Permit) -> bool {
        self.load().is_of(permit)
    }

    /// Counts a call that was refused by what [`would_refuse`](Self::would_refuse) said.
    pub fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Books how a call ended. `took` matters only if [`times_calls`](Self::times_calls); it is the time to
    /// first content.
    ///
    /// A permit of an earlier period books nothing, whatever happened; but advice that arrives late still
    /// prolongs the time of an open circuit, and never shortens it.
    #[inline]
    #[allow(clippy::needless_pass_by_value)] // taken, so that it is settled once
    pub fn settle(
        &self,
        permit: Permit,
        outcome: Outcome,
        took: Duration,
        now: impl Fn() -> Instant,
    ) -> Changes {
        self.settle_at(permit, outcome, self.is_slow(inner::nanos(took)), || self.nanos(now()))
    }

    /// Whether slow probes decide anything.
    pub(crate) fn minds_slow_probes(&self) -> bool {
        self.settings.decision.minds_slow()
    }

    /// Whether a call that took so many nanoseconds is slow.
    #[inline]
    pub(crate) fn is_slow(&self, took: u64) -> bool {
        took > self.slow_after
    }

    /// The same for who knows whether it was slow, and has the time in nanoseconds since the epoch.
    #[inline]
    #[allow(clippy::needless_pass_by_value)] // as above
    pub(crate) fn settle_at(
        &self,
        permit: Permit,
        outcome: Outcome,
        slow: bool,
        now: impl Fn() -> u64,
    ) -> Changes {
        if matches!(outcome, Outcome::Success) && !slow {
            if self.load().is_clean_for(&permit) || self.defer(&permit, &now) {
                return Changes::default();
            }
        } else if permit.kind() == Kind::Counted && outcome.is_neutral(slow) {
            return Changes::default();
        }
        self.settle_under_lock(&permit, outcome, slow, &now)
    }

    /// Counts a quick success that need not be in the window yet; false if it must.
    #[inline]
    pub(crate) fn defer(&self, permit: &Permit, now: impl Fn() -> u64) -> bool {
        permit.kind() == Kind::Counted
            && self.pending.add(permit, || {
                let ends = self.bucket_ends.load(Ordering::Relaxed);
                ends == u64::MAX || now() < ends
            })
    }

    /// Content of a probe arrived: the lease of its half-open period starts again. Keepalives are not content.
    /// Nothing for other permits, but that last-resort slots have a lease of the same kind.
    pub fn renew(&self, permit: &Permit, now: impl Fn() -> Instant) -> Changes {
        if !matches!(permit.kind(), Kind::Probe | Kind::LastResort) {
            return Changes::default();
        }
        let now = self.nanos(now());
        let mut locked = self.lock();
        locked.end_lease(now);
        locked.renew(permit, now);
        locked.changes
    }

    /// Brings the state up to `now`: a half-open period whose lease has ended opens. Only for observers;
    /// calls do it themselves.
    pub fn refresh(&self, now: Instant) -> Changes {
        if self.load().state() != State::HalfOpen {
            return Changes::default();
        }
        let mut locked = self.lock();
        locked.end_lease(self.nanos(now));
        locked.changes
    }

    /// The state as it was left by the last step. [`refresh`](Self::refresh) first where the end of a lease
    /// matters.
    #[inline]
    pub fn state(&self) -> State {
        self.load().state()
    }

    /// The mode.
    pub fn mode(&self) -> Mode {
        inner::mode_of(self.load())
    }

    /// Everything at `now`.
    pub fn snapshot(&self, now: Instant) -> (Snapshot, Changes) {
        let now = self.nanos(now);
        let mut locked = self.lock();
        locked.end_lease(now);
        (locked.snapshot(now), locked.changes)
    }

    /// Forgets everything, ends a forced or disabled mode, and closes. Calls made before book nothing.
    pub fn reset(&self, now: Instant) -> Changes {
        let mut locked = self.lock();
        locked.reset(self.nanos(now));
        locked.changes
    }

    /// Switches the mode and starts over in it. The present mode again changes nothing.
    pub fn set_mode(&self, mode: Mode, now: Instant) -> Changes {
        let mut locked = self.lock();
        locked.set_mode(mode, self.nanos(now));
        locked.changes
    }

    /// Opens by hand, for the open time that is due, or for `open_for`, whatever the server advised.
    ///
    /// # Errors
    ///
    /// From observe-only, which never opens.
    pub fn open(&self, open_for: Option<Duration>, now: Instant) -> Result<Changes, InvalidTransition> {
        let mut locked = self.lock();
        locked.allows_by_hand(State::Open)?;
        locked.open_by_hand(open_for, self.nanos(now));
        Ok(locked.changes)
    }

    /// Starts probing by hand.
    ///
    /// # Errors
    ///
    /// From observe-only, which never probes.
    pub fn half_open(&self, now: Instant) -> Result<Changes, InvalidTransition> {
        let mut locked = self.lock();
        locked.allows_by_hand(State::HalfOpen)?;
        locked.half_open_by_hand(self.nanos(now));
        Ok(locked.changes)
    }

    #[inline]
    fn load(&self) -> Word {
        Word(self.word.load(Ordering::Acquire))
    }

    /// Whether a call is let through for sure: one load.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.load().state(), State::Closed | State::ObserveOnly)
    }

    /// The permit of a call through a closed circuit: one load. None where there is more to ask.
    #[inline]
    pub(crate) fn acquire_if_closed(&self) -> Option<Permit> {
        let word = self.load();
        matches!(word.state(), State::Closed | State::ObserveOnly).then(|| word.permit(Kind::Counted))
    }

    /// Whether a success of this permit, quick enough, changes nothing: one load.
    #[inline]
    pub(crate) fn is_clean_for(&self, permit: &Permit) -> bool {
        self.load().is_clean_for(permit)
    }

    /// Nanoseconds since the epoch: enough for 584 years.
    pub(crate) fn nanos(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.epoch).as_nanos()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> Locked<'_> {
        Locked::new(self)
    }

    /// The refusal that can be told without the lock, if it is one for sure.
    ///
    /// The word is read again after the deadline: if it is the same, then so was the deadline's period.
    fn refusal_without_lock(&self, word: Word, now: impl FnOnce() -> u64) -> Option<Refusal> {
        match word.state() {
            State::ForcedOpen => Some(Refusal { state: State::ForcedOpen, retry_after: None }),
            State::Open => {
                let until = self.open_until.load(Ordering::Acquire);
                let left = until.saturating_sub(now());
                let refusal = Refusal { state: State::Open, retry_after: Some(Duration::from_nanos(left)) };
                (left > 0 && self.load() == word).then_some(refusal)
            }
            State::HalfOpen if word.probes() >= self.settings.decision.probes => {
                let until = self.lease_until.load(Ordering::Acquire);
                let refusal = Refusal { state: State::HalfOpen, retry_after: None };
                (now() < until && self.load() == word).then_some(refusal)
            }
            _ => None,
        }
    }

    /// Out of line: what is not closed may cost more.
    #[cold]
    fn acquire_else(&self, word: Word, now: &dyn Fn() -> Instant, last_resort: bool) -> Acquired {
        if word.state() == State::Disabled {
            return Acquired::permit(word.permit(Kind::Uncounted));
        }
        let mut read = None;
        let mut now = || *read.get_or_insert_with(|| self.nanos(now()));
        if !last_resort && !word.is_advisory() {
            if let Some(refusal) = self.refusal_without_lock(word, &mut now) {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return Acquired { admission: Err(refusal), changes: Changes::default() };
            }
        }
        let mut locked = self.lock();
        let admission = locked.acquire(last_resort, now());
        Acquired { admission, changes: locked.changes }
    }

    fn settle_under_lock(
        &self,
        permit: &Permit,
        outcome: Outcome,
        slow: bool,
        now: &dyn Fn() -> u64,
    ) -> Changes {
        let mut read = None;
        let mut now = || *read.get_or_insert_with(now);
        let mut locked = self.lock();
        locked.settle(permit, outcome, slow, &mut now);
        locked.open_pending();
        locked.changes
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("state", &self.state())
            .field("mode", &self.mode())
            .finish_non_exhaustive()
    }
}
