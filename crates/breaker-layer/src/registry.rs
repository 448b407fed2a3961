//! All circuits of a process in one view, for health endpoints.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use failsoft_core::{Condition, Health as _};

use crate::circuit::WeakCircuit;
use crate::engine::{Snapshot, State};
use crate::keyed::WeakCircuits;
use crate::{Circuit, Circuits};

/// The circuits that were registered in it, as long as they live.
///
/// It holds them weakly, costs nothing on the way of a call, and clones are the same registry. There is no global one: a
/// process that wants one makes it a `static` of its own, and tests do not meet each other's circuits.
///
/// ```
/// use std::sync::LazyLock;
/// use breaker_layer::{BreakerLayer, Registry, engine::State};
///
/// static CIRCUITS: LazyLock<Registry> = LazyLock::new(Registry::new);
///
/// let model = BreakerLayer::builder().name("model-a").registry(&CIRCUITS).build()?;
/// let tools = BreakerLayer::builder()
///     .name("tools")
///     .key_fn(|call: &(&'static str, u32)| call.0)
///     .registry(&CIRCUITS)
///     .build()?;
/// model.circuit().open().expect("an enforcing circuit can be opened");
///
/// let all = CIRCUITS.snapshot();
/// assert_eq!(all.circuits[0].name.as_deref(), Some("model-a"));
/// assert_eq!(all.circuits[0].snapshot.state, State::Open);
/// assert_eq!((all.keyed[0].name.as_deref(), all.keyed[0].keys), (Some("tools"), 0));
/// drop(model);
/// assert!(CIRCUITS.circuits().is_empty());
/// # Ok::<(), failsoft_core::ConfigError>(())
/// ```
///
/// # A health endpoint
///
/// With the feature `serde` snapshots can be serialised; their [JSON](RegistrySnapshot#json) is part of this crate's
/// interface.
///
#[cfg_attr(feature = "serde", doc = "```")]
#[cfg_attr(not(feature = "serde"), doc = "```ignore")]
/// use axum::{Json, Router, extract::State, routing::get};
/// use breaker_layer::{BreakerLayer, Registry, RegistrySnapshot};
/// use http_body_util::BodyExt;
/// use tower::ServiceExt;
///
/// async fn circuits(State(registry): State<Registry>) -> Json<RegistrySnapshot> {
///     Json(registry.snapshot())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let registry = Registry::new();
/// let layer = BreakerLayer::builder().name("model-a").registry(&registry).build()?;
/// let app = Router::new().route("/health/circuits", get(circuits)).with_state(registry);
///
/// let request = http::Request::get("/health/circuits").body(axum::body::Body::empty())?;
/// let answer = app.oneshot(request).await?.into_body().collect().await?.to_bytes();
/// let json: serde_json::Value = serde_json::from_slice(&answer)?;
/// assert_eq!(json["circuits"][0]["name"], "model-a");
/// assert_eq!(json["circuits"][0]["state"], "closed");
/// # drop(layer);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Registry(Arc<Mutex<Members>>);

#[derive(Default)]
struct Members {
    circuits: Vec<WeakCircuit>,
    keyed: Vec<WeakCircuits>,
}

/// So many circuits of a keyed layer are listed one by one in a snapshot.
pub const MAX_LISTED: usize = 100;

/// Everything in a [`Registry`] at one moment.
///
/// # JSON
///
/// With the feature `serde`: an object with the arrays `circuits` and `keyed`. A circuit is
///
/// ```json
/// {
///   "name": "model-a",
///   "state": "open",
///   "mode": "enforcing",
///   "condition": "poor",
///   "reason": "failure_rate",
///   "time_in_state_ms": 1200,
///   "time_left_ms": 28800,
///   "consecutive_openings": 1,
///   "probes": 0,
///   "calls": 0,
///   "failed": 0,
///   "failed_weight": 0.0,
///   "failure_rate": null,
///   "soft": 0,
///   "soft_failure_rate": null,
///   "slow": 0,
///   "slow_failed": 0,
///   "slow_rate": null,
///   "refused": 12,
///   "refused_in_all": 12
/// }
/// ```
///
/// where `state` is `closed`, `half_open`, `open`, `forced_open`, `disabled` or `observe_only`; `mode` is `enforcing`,
/// `advisory`, `observe_only`, `forced_open` or `disabled`; `condition` is `good`, `degraded` or `poor`; `name`, `reason`,
/// `time_left_ms` and the rates can be `null`; times are in whole milliseconds, rounded down; `refused` is since the state
/// was entered. A [`Snapshot`] by itself is the same without `name` and `condition`.
///
/// A keyed layer is
///
/// ```json
/// {
///   "name": "tools",
///   "keys": 3,
///   "capacity": 10000,
///   "evicted": 0,
///   "overflowed": 0,
///   "closed": 2,
///   "half_open": 0,
///   "open": 1,
///   "forced_open": 0,
///   "circuits": []
/// }
/// ```
///
/// where `circuits` lists those that refuse or probe. Fields may be added; none is taken away or changes its meaning.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct RegistrySnapshot {
    /// The circuits of layers without keys, in the order in which they were registered.
    pub circuits: Vec<CircuitSnapshot>,
    /// The layers with a circuit for each key.
    pub keyed: Vec<KeyedSnapshot>,
}

/// One circuit at one moment, with its name.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CircuitSnapshot {
    /// Its name.
    pub name: Option<Arc<str>>,
    /// How fit its target is to be asked.
    pub condition: Condition,
    /// All else.
    pub snapshot: Snapshot,
}

/// The circuits of a keyed layer at one moment.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct KeyedSnapshot {
    /// The layer's name.
    pub name: Option<Arc<str>>,
    /// How many keys there are.
    pub keys: usize,
    /// How many fit.
    pub capacity: usize,
    /// How many were forgotten for new ones.
    pub evicted: u64,
    /// How many calls shared the overflow circuit.
    pub overflowed: u64,
    /// Circuits that refuse nothing: closed, disabled or only observing.
    pub closed: usize,
    /// Circuits that probe.
    pub half_open: usize,
    /// Circuits that are open.
    pub open: usize,
    /// Circuits that were forced open.
    pub forced_open: usize,
    /// Those that refuse or probe, the overflow circuit among them; by name, at most [`MAX_LISTED`].
    pub circuits: Vec<CircuitSnapshot>,
}

impl Registry {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a circuit; [`BreakerBuilder::registry`](crate::BreakerBuilder::registry) does it for a new one. Again
    /// changes nothing.
    pub fn add(&self, circuit: &Circuit) {
        let circuit = circuit.downgrade();
        let mut members = self.lock();
        members.circuits.retain(WeakCircuit::is_alive);
        if !members.circuits.contains(&circuit) {
            members.circuits.push(circuit);
        }
    }

    /// Registers the circuits of a keyed layer, also those that are yet to come.
    pub fn add_keyed(&self, circuits: &Circuits) {
        let circuits = circuits.downgrade();
        let mut members = self.lock();
        members.keyed.retain(WeakCircuits::is_alive);
        if !members.keyed.contains(&circuits) {
            members.keyed.push(circuits);
        }
    }

    /// The circuits of layers without keys, in the order in which they were registered.
    pub fn circuits(&self) -> Vec<Circuit> {
        self.lock().circuits.iter().filter_map(WeakCircuit::upgrade).collect()
    }

    /// The circuits of layers with keys.
    pub fn keyed(&self) -> Vec<Circuits> {
        self.lock().keyed.iter().filter_map(WeakCircuits::upgrade).collect()
    }

    /// Everything at this moment. It looks at each circuit once, those of each key too.
    pub fn snapshot(&self) -> RegistrySnapshot {
        RegistrySnapshot {
            circuits: self.circuits().iter().map(CircuitSnapshot::of).collect(),
            keyed: self.keyed().iter().map(KeyedSnapshot::of).collect(),
        }
    }

    /// Brings the gauges of the [`metrics`](crate::metrics) up to date, also where only time has passed; call it before
    /// a scrape.
    #[cfg(feature = "metrics")]
    pub fn publish(&self) {
        self.circuits().iter().for_each(Circuit::publish);
        for circuits in self.keyed() {
            circuits.entries().iter().for_each(|(_, circuit)| circuit.publish());
            circuits.overflow().publish();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Members> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CircuitSnapshot {
    fn of(circuit: &Circuit) -> Self {
        let snapshot = circuit.snapshot();
        Self { name: circuit.shared().target(), condition: circuit.condition(), snapshot }
    }
}

impl KeyedSnapshot {
    fn of(circuits: &Circuits) -> Self {
        let entries = circuits.entries();
        let mut of = Self {
            name: circuits.target(),
            keys: entries.len(),
            capacity: circuits.capacity(),
            evicted: circuits.evicted(),
            overflowed: circuits.overflowed(),
            closed: 0,
            half_open: 0,
            open: 0,
            forced_open: 0,
            circuits: Vec::new(),
        };
        let mut listed: Vec<&Circuit> = Vec::new();
        for circuit in entries.iter().map(|(_, circuit)| circuit) {
            let count = match circuit.state() {
                State::HalfOpen => &mut of.half_open,
                State::Open => &mut of.open,
                State::ForcedOpen => &mut of.forced_open,
                _ => {
                    of.closed += 1;
                    continue;
                }
            };
            *count += 1;
            listed.push(circuit);
        }
        let overflow = circuits.overflow();
        if !matches!(overflow.state(), State::Closed | State::Disabled | State::ObserveOnly) {
            listed.push(overflow);
        }
        listed.sort_unstable_by_key(|circuit| circuit.name());
        of.circuits = listed.into_iter().take(MAX_LISTED).map(CircuitSnapshot::of).collect();
        of
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("circuits", &self.circuits())
            .field("keyed", &self.keyed())
            .finish_non_exhaustive()
    }
}
