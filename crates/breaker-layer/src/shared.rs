//! What the calls of a circuit hold: all of it but its handles.

use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::task;

use failsoft_core::lent::Place;
use failsoft_core::{Blocker, BoxError, Call, Class, Denier, Fault, Mark, Verdict};
use tokio::time::Instant;

use crate::circuit::{Circuit, Handle};
use crate::engine::{
    Acquired, Changes, Engine, Mode, Outcome, Permit, Reason, Refusal, Settings, Snapshot, State, Transition,
};
use crate::events;
use crate::keyed::Group;
use crate::listeners::Listeners;
use crate::metrics::Meters;
use crate::table::Table;
use crate::waiters::Waiters;

/// A circuit without its handles.
pub(crate) struct Shared {
    engine: Engine,
    name: Option<Arc<str>>,
    table: Arc<Table>,
    waiters: Waiters,
    listeners: Listeners<Listener>,
    /// The keyed circuits that it is one of.
    group: Option<Arc<Group>>,
    /// Its services wait while it is open, and refuse nobody.
    waits: bool,
    /// The mode that it was made with.
    first_mode: Mode,
    meters: Meters,
    handle: Weak<Handle>,
    /// Where a thread keeps it for its next call.
    pub(crate) place: Place,
}

type Listener = dyn Fn(&Transition) + Send + Sync;

impl Shared {
    pub(crate) fn new(
        settings: Arc<Settings>,
        name: Option<Arc<str>>,
        table: Arc<Table>,
        group: Option<Arc<Group>>,
        waits: bool,
        handle: Weak<Handle>,
    ) -> Self {
        let engine = Engine::new(settings, Instant::now());
        let (waiters, listeners, meters) = Default::default();
        let first_mode = engine.mode();
        if let Some(group) = &group {
            group.meters.entered(group.name(), engine.state(), 1.0);
        }
        let place = Place::next();
        Self { engine, name, table, waiters, listeners, group, waits, first_mode, meters, handle, place }
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub(crate) fn target(&self) -> Option<Arc<str>> {
        self.name.clone()
    }

    pub(crate) fn first_mode(&self) -> Mode {
        self.first_mode
    }

    pub(crate) fn listeners(&self) -> &Listeners<Listener> {
        &self.listeners
    }

    /// Whether its services wait while it is open, and refuse nobody: whoever stands around a balancer of such services may
    /// well be served by another.
    pub(crate) fn waits(&self) -> bool {
        self.waits
    }

    /// The last handle is gone: nobody can listen any more.
    pub(crate) fn left(&self) {
        self.listeners.clear();
    }

    /// The state now: the lease of a half-open period may have ended since the last call.
    pub(crate) fn state(&self) -> State {
        if self.engine.state() == State::HalfOpen {
            self.tell(self.engine.refresh(Instant::now()));
        }
        self.engine.state()
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let (snapshot, changes) = self.engine.snapshot(Instant::now());
        self.tell(changes);
        snapshot
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn counts(&self) -> crate::engine::Counts {
        self.snapshot().counts
    }

    #[inline]
    pub(crate) fn group(&self) -> Option<&Group> {
        self.group.as_deref()
    }

    /// Brings the gauges up to date.
    #[cfg(feature = "metrics")]
    pub(crate) fn publish(&self) {
        self.meters.publish(self);
    }

    #[inline]
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Now, in nanoseconds since the circuit's epoch, and never 0.
    pub(crate) fn nanos(&self) -> Option<NonZeroU64> {
        Some(NonZeroU64::MIN.saturating_add(self.engine.nanos(Instant::now())))
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    pub(crate) fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    /// Asks to make a call, whatever the state.
    #[inline]
    pub(crate) fn admit(&self) -> Result<Permit, Refusal> {
        self.engine.acquire_if_closed().map_or_else(|| self.acquire(), Ok)
    }

    /// Asks to make a call through a circuit that may not be simply closed; a call marked as a last resort passes
    /// where others are refused.
    #[cold]
    pub(crate) fn acquire(&self) -> Result<Permit, Refusal> {
        let engine = &self.engine;
        let last_resort = Call::is_marked(Mark::LastResort);
        let Acquired { admission, changes } = if last_resort {
            engine.acquire_as_last_resort(Instant::now)
        } else {
            engine.acquire(Instant::now)
        };
        self.tell(changes);
        admission
    }

    /// A call succeeded, and that changed nothing.
    #[inline]
    pub(crate) fn succeeded(&self) {
        self.meters.success(self);
    }

    /// Counts a quick success where that can be done without the lock. `now` is as below.
    #[inline]
    pub(crate) fn defer(&self, permit: &Permit, now: Option<NonZeroU64>) -> bool {
        self.engine.defer(permit, || self.nanos_now(now))
    }

    /// The window of time needs to know the time too, and one clock read does for both.
    #[inline]
    fn nanos_now(&self, now: Option<NonZeroU64>) -> u64 {
        now.map_or_else(|| self.engine.nanos(Instant::now()), |now| now.get() - 1)
    }

    /// Whether this outcome opened it. `now` is what [`nanos`](Self::nanos) said, if it was just asked.
    pub(crate) fn settle(
        &self,
        permit: Permit,
        class: Class,
        outcome: Outcome,
        slow: bool,
        now: Option<NonZeroU64>,
    ) -> bool {
        let engine = &self.engine;
        let has_place = permit.has_place();
        let probe = permit.is_probe().then(|| {
            events::probe_result(outcome, slow, engine.minds_slow_probes(), engine.is_current(&permit))
        });
        let changes = engine.settle_at(permit, outcome, slow, || self.nanos_now(now));
        if !class.is_denied() {
            if outcome != Outcome::Success || slow {
                events::outcome(self.name(), class, outcome, slow);
            }
            self.meters.outcome(self, class, outcome, slow);
        }
        if let Some(result) = probe {
            events::probe(self.name(), class, result);
            self.meters.probe(self, result);
        }
        if changes.is_empty() {
            if outcome != Outcome::Success {
                self.meters.rates(self);
            }
            if has_place {
                // its place may be free again
                self.waiters.wake();
            }
            return false;
        }
        self.tell_all(changes)
    }

    pub(crate) fn renew(&self, permit: &Permit) {
        self.tell(self.engine.renew(permit, Instant::now));
    }

    /// Tells of a refusal; the error that says so.
    #[cold]
    pub(crate) fn refuse(self: &Arc<Self>, refusal: &Refusal) -> BoxError {
        // A fallback takes another route, and a retry around that waits for all of them.
        if !self.waits && Call::is_routed() {
            Call::record_blocker(|| Arc::clone(self));
        }
        events::refused(self.name(), refusal);
        self.meters.refused(self, refusal);
        let verdict = Verdict::of(Class::Denied(Denier::Circuit)).with_advice(refusal.retry_after);
        let message = match refusal.state {
            State::HalfOpen => "the circuit is probing",
            State::ForcedOpen => "the circuit is forced open",
            _ => "the circuit is open",
        };
        let fault = Fault::with_verdict(verdict, env!("CARGO_PKG_NAME"));
        let fault = fault.with_target_if(self.name.clone()).with_message(message);
        if refusal.is_probing() { fault.with_probing().into() } else { fault.into() }
    }

    #[inline]
    pub(crate) fn tell(&self, changes: Changes) {
        if !changes.is_empty() {
            self.tell_all(changes);
        }
    }

    /// Whether an outcome opened it. The end of a lease is none, though the end of a call may be when it is noticed.
    #[cold]
    fn tell_all(&self, changes: Changes) -> bool {
        let listeners = self.listeners.all();
        let mut opened = false;
        for transition in changes {
            opened |= transition.to == State::Open
                && transition.is_change()
                && transition.reason != Reason::LeaseEnded;
            events::transition(self.name(), &transition);
            self.meters.transition(self, &transition);
            for listener in &listeners {
                self.guarded(|| listener(&transition));
            }
            if let (Some(group), Some(circuit)) = (&self.group, self.handle.upgrade()) {
                let circuit = Circuit::from_handle(circuit);
                for listener in group.listeners() {
                    self.guarded(|| listener(&circuit, &transition));
                }
            }
        }
        self.waiters.wake();
        opened
    }

    /// Runs a listener. It may run while a call is dropped, where a second panic would abort.
    fn guarded(&self, listener: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(listener)).is_err() {
            events::listener_panicked(self.name());
        }
    }
}

/// For retries around that wait to call again: what changes wakes them, as it wakes services that wait to be ready.
impl Blocker for Shared {
    /// Whether it is open, and will be for a while. Without a clock read where it is closed.
    fn refuses(&self) -> bool {
        match self.state() {
            State::Open if self.engine.mode() == Mode::Enforcing => {
                self.snapshot().time_left.is_some_and(|left| !left.is_zero())
            }
            State::ForcedOpen => true,
            _ => false,
        }
    }

    fn listen(&self, key: &mut Option<u64>, cx: &task::Context<'_>) {
        self.waiters.wait(key, cx);
    }

    fn forget(&self, key: u64) {
        self.waiters.forget(key);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(group) = &self.group {
            group.meters.entered(group.name(), self.engine.state(), -1.0);
        }
    }
}
