//! The handle on a circuit: what it is doing, and how to steer it.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use failsoft_core::{Condition, Evict, Health};
use tokio::time::Instant;

use crate::engine::{Counts, InvalidTransition, Mode, Settings, Snapshot, State, Transition};
use crate::keyed::Group;
use crate::listeners::Subscription;
use crate::shared::Shared;
use crate::table::Table;

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
pub struct Circuit(Arc<Handle>);

/// What all handles have in common. Calls in flight hold only what is shared.
pub(crate) struct Handle {
    shared: Arc<Shared>,
}

impl Circuit {
    pub(crate) fn new(
        settings: Arc<Settings>,
        name: Option<Arc<str>>,
        table: Arc<Table>,
        group: Option<Arc<Group>>,
        waits: bool,
    ) -> Self {
        Self(Arc::new_cyclic(|handle| {
            let shared = Arc::new(Shared::new(settings, name, table, group, waits, Weak::clone(handle)));
            Handle { shared }
        }))
    }

    pub(crate) fn from_handle(handle: Arc<Handle>) -> Self {
        Self(handle)
    }

    /// What its calls hold.
    #[inline]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    /// Its name, which is the target of its refusals.
    pub fn name(&self) -> Option<&str> {
        self.shared().name()
    }

    /// Its state now.
    pub fn state(&self) -> State {
        self.shared().state()
    }

    /// Its mode.
    pub fn mode(&self) -> Mode {
        self.shared().engine().mode()
    }

    /// How long it refuses calls, while it is open.
    pub fn time_left(&self) -> Option<Duration> {
        match self.state() {
            State::Open => self.shared().engine().refuses_for(Instant::now),
            _ => None,
        }
    }

    /// What it has counted.
    pub fn counts(&self) -> Counts {
        self.snapshot().counts
    }

    /// All that there is to know of it at one moment.
    pub fn snapshot(&self) -> Snapshot {
        self.shared().snapshot()
    }

    /// Switches its mode and starts over in it; calls made before count no longer. The present mode again
    /// changes nothing.
    pub fn set_mode(&self, mode: Mode) {
        self.shared().tell(self.shared().engine().set_mode(mode, Instant::now()));
    }

    /// Forgets everything and closes, whatever the state; ends a mode that was laid over enforcing or advisory.
    pub fn reset(&self) {
        self.shared().tell(self.shared().engine().reset(Instant::now()));
    }

    /// Opens it for the open time that is due.
    ///
    /// # Errors
    ///
    /// While it only observes.
    pub fn open(&self) -> Result<(), InvalidTransition> {
        self.shared().engine().open(None, Instant::now()).map(|changes| self.shared().tell(changes))
    }

    /// Opens it for a time.
    ///
    /// # Errors
    ///
    /// While it only observes.
    pub fn open_for(&self, time: Duration) -> Result<(), InvalidTransition> {
        self.shared().engine().open(Some(time), Instant::now()).map(|changes| self.shared().tell(changes))
    }

    /// Starts probing now.
    ///
    /// # Errors
    ///
    /// While it only observes.
    pub fn half_open(&self) -> Result<(), InvalidTransition> {
        self.shared().engine().half_open(Instant::now()).map(|changes| self.shared().tell(changes))
    }

    /// Calls `listener` with each transition, on the thread that caused it and outside of every lock: it may
    /// use the circuit itself. It should be quick; hand over to a channel what is not. A panic in it is
    /// logged and goes no further.
    ///
    /// It listens as long as there is a handle on the circuit: a layer, a service or a `Circuit`. A call that is in
    /// flight, or a body that is being read, is none.
    ///
    /// Two transitions that two threads cause at once may be heard in either order: `sequence` tells.
    #[must_use = "it listens until this is dropped; `forever` keeps it"]
    pub fn subscribe(&self, listener: impl Fn(&Transition) + Send + Sync + 'static) -> Subscription {
        let id = self.shared().listeners().add(Arc::new(listener));
        let circuit = Arc::downgrade(&self.0);
        Subscription::new(move || {
            if let Some(circuit) = circuit.upgrade() {
                circuit.shared.listeners().remove(id);
            }
        })
    }

    /// Does not keep it alive.
    pub(crate) fn downgrade(&self) -> WeakCircuit {
        WeakCircuit(Arc::downgrade(&self.0))
    }

    /// Brings the gauges up to date.
    #[cfg(feature = "metrics")]
    pub(crate) fn publish(&self) {
        self.shared().publish();
    }
}

impl Health for Circuit {
    /// Poor while it refuses; degraded while it probes or would admit a probe.
    fn condition(&self) -> Condition {
        match self.state() {
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
pub(crate) struct WeakCircuit(Weak<Handle>);

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

impl Drop for Handle {
    /// Calls in flight, and threads that keep what calls hold, may outlive it; who listened must not.
    fn drop(&mut self) {
        self.shared.left();
    }
}

impl Evict for Circuit {
    /// Nobody holds it, no call is in flight, it refuses nothing, and nobody switched its mode by hand.
    fn may_go(&self) -> bool {
        let is_quiet =
            matches!(self.shared().engine().state(), State::Closed | State::ObserveOnly | State::Disabled);
        let is_unused = Arc::strong_count(&self.0) == 1 && Arc::strong_count(self.shared()) == 1;
        is_unused && is_quiet && self.mode() == self.shared().first_mode()
    }
}

impl fmt::Debug for Circuit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Circuit")
            .field("name", &self.name())
            .field("state", &self.shared().engine().state())
            .finish_non_exhaustive()
    }
}
