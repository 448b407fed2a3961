//! The handle on a circuit: what it is doing, and how to steer it.

use std::fmt;
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use failsoft_core::{BoxError, Call, Class, Condition, Denier, Evict, Fault, Health, Mark, Verdict};
use tokio::time::Instant;

use crate::engine::{
    Acquired, Changes, Counts, Engine, InvalidTransition, Mode, Outcome, Permit, Reason, Refusal, Settings,
    Snapshot, State, Transition,
};
use crate::events;
use crate::keyed::Group;
use crate::listeners::{Listeners, Subscription};
use crate::metrics::Meters;
use crate::table::Table;
use crate::waiters::Waiters;

/// A handle on the circuit that the services of one [`BreakerLayer`](crate::BreakerLayer) share. Clones are
/// the same circuit.
///
/// ```
/// use breaker_layer::{BreakerLayer, engine::{Mode, State}};
/// use failsoft_core::{Condition, Health};
///
/// let layer = BreakerLayer::builder().name("model-a").build()?;
/// let circuit = layer.circuit().clone();
/// let heard = circuit.subscribe(|transition| println!("{transition}"));
///
/// circuit.set_mode(Mode::ForcedOpen); // prints "closed -> forced_open (mode_changed)"
/// assert_eq!((circuit.state(), circuit.condition()), (State::ForcedOpen, Condition::Poor));
/// circuit.reset();
/// assert_eq!(circuit.snapshot().counts.total, 0);
/// drop(heard); // listens no longer
/// # Ok::<(), failsoft_core::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct Circuit(Arc<Shared>);

struct Shared {
    engine: Engine,
    name: Option<Arc<str>>,
    table: Arc<Table>,
    waiters: Waiters,
    listeners: Listeners<Listener>,
    /// The keyed circuits that it is one of.
    group: Option<Arc<Group>>,
    /// The mode that it was made with.
    first_mode: Mode,
    meters: Meters,
}

type Listener = dyn Fn(&Transition) + Send + Sync;

impl Circuit {
    pub(crate) fn new(
        settings: Arc<Settings>,
        name: Option<Arc<str>>,
        table: Arc<Table>,
        group: Option<Arc<Group>>,
    ) -> Self {
        let engine = Engine::new(settings, Instant::now());
        let (waiters, listeners, meters) = Default::default();
        let first_mode = engine.mode();
        if let Some(group) = &group {
            group.meters.entered(group.name(), engine.state(), 1.0);
        }
        Self(Arc::new(Shared { engine, name, table, waiters, listeners, group, first_mode, meters }))
    }

    /// Its name, which is the target of its refusals.
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// Its state now.
    pub fn state(&self) -> State {
        if self.0.engine.state() == State::HalfOpen {
            // the lease may have ended
            self.tell(self.0.engine.refresh(Instant::now()));
        }
        self.0.engine.state()
    }

    /// Its mode.
    pub fn mode(&self) -> Mode {
        self.0.engine.mode()
    }

    /// How long it refuses calls, while it is open.
    pub fn time_left(&self) -> Option<Duration> {
        self.0.engine.refuses_for(Instant::now)
    }

    /// What it has counted.
    pub fn counts(&self) -> Counts {
        self.snapshot().counts
    }

    /// All that there is to know of it at one moment.
    pub fn snapshot(&self) -> Snapshot {
        let (snapshot, changes) = self.0.engine.snapshot(Instant::now());
        self.tell(changes);
        snapshot
    }

    /// Switches its mode and starts over in it; calls made before count no longer. The present mode again
    /// changes nothing.
    pub fn set_mode(&self, mode: Mode) {
        self.tell(self.0.engine.set_mode(mode, Instant::now()));
    }

    /// Forgets everything and closes, whatever the state; ends a mode that was laid over enforcing or advisory.
    pub fn reset(&self) {
        self.tell(self.0.engine.reset(Instant::now()));
    }

    /// Opens it for the open time that is due.
    ///
    /// # Errors
    ///
    /// While it only observes.
    pub fn open(&self) -> Result<(), InvalidTransition> {
        self.0.engine.open(None, Instant::now()).map(|changes| self.tell(changes))
    }

    /// Opens it for a time.
    ///
    /// # Errors
    ///
    /// While it only observes.
    pub fn open_for(&self, time: Duration) -> Result<(), InvalidTransition> {
        self.0.engine.open(Some(time), Instant::now()).map(|changes| self.tell(changes))
    }

    /// Starts probing now.
    ///
    /// # Errors
    ///
    /// While it only observes.
    pub fn half_open(&self) -> Result<(), InvalidTransition> {
        self.0.engine.half_open(Instant::now()).map(|changes| self.tell(changes))
    }

    /// Calls `listener` with each transition, on the thread that caused it and outside of every lock: it may
    /// use the circuit itself. It should be quick; hand over to a channel what is not. A panic in it is
    /// logged and goes no further.
    ///
    /// Two transitions that two threads cause at once may be heard in either order: `sequence` tells.
    #[must_use = "it listens until this is dropped; `forever` keeps it"]
    pub fn subscribe(&self, listener: impl Fn(&Transition) + Send + Sync + 'static) -> Subscription {
        let id = self.0.listeners.add(Arc::new(listener));
        let circuit = Arc::downgrade(&self.0);
        Subscription::new(move || {
            if let Some(circuit) = circuit.upgrade() {
                circuit.listeners.remove(id);
            }
        })
    }

    /// Does not keep it alive.
    pub(crate) fn downgrade(&self) -> WeakCircuit {
        WeakCircuit(Arc::downgrade(&self.0))
    }

    pub(crate) fn target(&self) -> Option<Arc<str>> {
        self.0.name.clone()
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn group(&self) -> Option<&Group> {
        self.0.group.as_deref()
    }

    /// Brings the gauges up to date.
    #[cfg(feature = "metrics")]
    pub(crate) fn publish(&self) {
        self.0.meters.publish(self);
    }

    // ===== for the service =====

    #[inline]
    pub(crate) fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// Now, in nanoseconds since the circuit's epoch, and never 0.
    pub(crate) fn nanos(&self) -> Option<NonZeroU64> {
        Some(NonZeroU64::MIN.saturating_add(self.0.engine.nanos(Instant::now())))
    }

    pub(crate) fn table(&self) -> &Table {
        &self.0.table
    }

    pub(crate) fn waiters(&self) -> &Waiters {
        &self.0.waiters
    }

    /// Asks to make a call, whatever the state.
    #[inline]
    pub(crate) fn admit(&self) -> Result<Permit, Refusal> {
        self.0.engine.acquire_if_closed().map_or_else(|| self.acquire(), Ok)
    }

    /// Asks to make a call through a circuit that may not be simply closed; a call marked as a last resort passes
    /// where others are refused.
    #[cold]
    pub(crate) fn acquire(&self) -> Result<Permit, Refusal> {
        let engine = &self.0.engine;
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
        self.0.meters.success(self);
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
        let engine = &self.0.engine;
        let probe =
            permit.is_probe().then(|| events::probe_result(outcome, slow, engine.is_current(&permit)));
        let now = || now.map_or_else(|| engine.nanos(Instant::now()), |now| now.get() - 1);
        let changes = engine.settle_at(permit, outcome, slow, now);
        if !class.is_denied() {
            events::outcome(self.name(), class, outcome, slow);
            self.0.meters.outcome(self, class, outcome, slow);
        }
        if let Some(result) = probe {
            events::probe(self.name(), class, result);
            self.0.meters.probe(self, result);
        }
        if changes.is_empty() {
            if outcome != Outcome::Success {
                self.0.meters.rates(self);
            }
            if probe.is_some() {
                // it may have been given back
                self.0.waiters.wake();
            }
            return false;
        }
        self.tell_all(changes)
    }

    pub(crate) fn renew(&self, permit: &Permit) {
        self.tell(self.0.engine.renew(permit, Instant::now));
    }

    /// Tells of a refusal; the error that says so.
    #[cold]
    pub(crate) fn refuse(&self, refusal: &Refusal) -> BoxError {
        events::refused(self.name(), refusal);
        self.0.meters.refused(self, refusal);
        let verdict = Verdict::of(Class::Denied(Denier::Circuit)).with_advice(refusal.retry_after);
        let message = match refusal.state {
            State::HalfOpen => "the circuit is probing",
            State::ForcedOpen => "the circuit is forced open",
            _ => "the circuit is open",
        };
        let fault = Fault::with_verdict(verdict, env!("CARGO_PKG_NAME"));
        let fault = fault.with_target_if(self.0.name.clone()).with_message(message);
        if refusal.is_probing() { fault.with_probing().into() } else { fault.into() }
    }

    #[inline]
    fn tell(&self, changes: Changes) {
        if !changes.is_empty() {
            self.tell_all(changes);
        }
    }

    /// Whether an outcome opened it. The end of a lease is none, though the end of a call may be when it is noticed.
    #[cold]
    fn tell_all(&self, changes: Changes) -> bool {
        let listeners = self.0.listeners.all();
        let mut opened = false;
        for transition in changes {
            opened |= transition.to == State::Open
                && transition.is_change()
                && transition.reason != Reason::LeaseEnded;
            events::transition(self.name(), &transition);
            self.0.meters.transition(self, &transition);
            for listener in &listeners {
                self.guarded(|| listener(&transition));
            }
            if let Some(group) = &self.0.group {
                for listener in group.listeners() {
                    self.guarded(|| listener(self, &transition));
                }
            }
        }
        self.0.waiters.wake();
        opened
    }

    /// Runs a listener. It may run while a call is dropped, where a second panic would abort.
    fn guarded(&self, listener: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(listener)).is_err() {
            events::listener_panicked(self.name());
        }
    }
}

impl Health for Circuit {
    /// Poor while it refuses; degraded while it probes or would admit a probe.
    fn condition(&self) -> Condition {
        match self.0.engine.state() {
            State::Closed | State::Disabled | State::ObserveOnly => Condition::Good,
            State::HalfOpen => Condition::Degraded,
            State::Open if self.time_left().is_none() => Condition::Degraded,
            _ => Condition::Poor,
        }
    }

    fn recovers_in(&self) -> Option<Duration> {
        self.time_left()
    }
}

/// A circuit that may be gone.
pub(crate) struct WeakCircuit(Weak<Shared>);

impl WeakCircuit {
    pub(crate) fn is_alive(&self) -> bool {
        self.0.strong_count() > 0
    }

    pub(crate) fn upgrade(&self) -> Option<Circuit> {
        self.0.upgrade().map(Circuit)
    }
}

impl PartialEq for WeakCircuit {
    fn eq(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(group) = &self.group {
            group.meters.entered(group.name(), self.engine.state(), -1.0);
        }
    }
}

impl Evict for Circuit {
    /// Nobody holds it, no call is in flight, it refuses nothing, and nobody switched its mode by hand.
    fn may_go(&self) -> bool {
        let is_quiet = matches!(self.0.engine.state(), State::Closed | State::ObserveOnly | State::Disabled);
        Arc::strong_count(&self.0) == 1 && is_quiet && self.0.engine.mode() == self.0.first_mode
    }
}

impl fmt::Debug for Circuit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Circuit")
            .field("name", &self.name())
            .field("state", &self.0.engine.state())
            .finish_non_exhaustive()
    }
}
