//! The handle on a circuit: what it is doing, and how to steer it.

use std::fmt;
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use failsoft_core::{Condition, Health};
use tokio::time::Instant;

use crate::engine::{
    Acquired, Changes, Counts, Engine, InvalidTransition, Mode, Outcome, Permit, Refusal, Snapshot, State,
    Transition,
};
use crate::events;
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
    table: Table,
    waiters: Waiters,
    listeners: Mutex<Listeners>,
}

type Listener = Arc<dyn Fn(&Transition) + Send + Sync>;

#[derive(Default)]
struct Listeners {
    next: u64,
    all: Vec<(u64, Listener)>,
}

impl Circuit {
    pub(crate) fn new(engine: Engine, name: Option<Arc<str>>, table: Table) -> Self {
        let (waiters, listeners) = Default::default();
        Self(Arc::new(Shared { engine, name, table, waiters, listeners }))
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
        let mut listeners = self.listeners();
        listeners.next += 1;
        let id = listeners.next;
        listeners.all.push((id, Arc::new(listener)));
        Subscription { circuit: Arc::downgrade(&self.0), id }
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

    pub(crate) fn target(&self) -> Option<Arc<str>> {
        self.0.name.clone()
    }

    pub(crate) fn acquire(&self, last_resort: bool) -> Result<Permit, Refusal> {
        let Acquired { admission, changes } = if last_resort {
            self.0.engine.acquire_as_last_resort(Instant::now)
        } else {
            self.0.engine.acquire(Instant::now)
        };
        self.tell(changes);
        admission
    }

    /// Whether this outcome opened it.
    pub(crate) fn settle(&self, permit: Permit, outcome: Outcome, took: Duration) -> bool {
        let probe = permit.is_probe();
        let changes = self.0.engine.settle(permit, outcome, took, Instant::now);
        if changes.is_empty() {
            if probe {
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

    pub(crate) fn refused(&self, refusal: &Refusal) {
        events::refused(self.name(), refusal);
    }

    #[inline]
    fn tell(&self, changes: Changes) {
        if !changes.is_empty() {
            self.tell_all(changes);
        }
    }

    /// Whether it opened.
    #[cold]
    fn tell_all(&self, changes: Changes) -> bool {
        let listeners: Vec<Listener> =
            self.listeners().all.iter().map(|(_, listener)| Arc::clone(listener)).collect();
        let mut opened = false;
        for transition in changes {
            opened |= transition.to == State::Open && transition.is_change();
            events::transition(self.name(), &transition);
            for listener in &listeners {
                // this may run while a call is dropped, where a second panic would abort
                if catch_unwind(AssertUnwindSafe(|| listener(&transition))).is_err() {
                    events::listener_panicked(self.name());
                }
            }
        }
        self.0.waiters.wake();
        opened
    }

    fn listeners(&self) -> std::sync::MutexGuard<'_, Listeners> {
        self.0.listeners.lock().unwrap_or_else(PoisonError::into_inner)
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

impl fmt::Debug for Circuit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Circuit")
            .field("name", &self.name())
            .field("state", &self.0.engine.state())
            .finish_non_exhaustive()
    }
}

/// A listener of a circuit. Dropping it ends the listening.
#[must_use = "it listens until this is dropped; `forever` keeps it"]
pub struct Subscription {
    circuit: Weak<Shared>,
    id: u64,
}

impl Subscription {
    /// Listens as long as the circuit lives.
    pub fn forever(mut self) {
        self.circuit = Weak::new();
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let Some(circuit) = self.circuit.upgrade().map(Circuit) else { return };
        let mut listeners = circuit.listeners();
        let removed = listeners
            .all
            .iter()
            .position(|(id, _)| *id == self.id)
            .map(|index| listeners.all.swap_remove(index));
        drop(listeners);
        // what the listener owns drops outside of the lock
        drop(removed);
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("id", &self.id).finish_non_exhaustive()
    }
}
