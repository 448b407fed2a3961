//! The handles, made when they are first used: one that is made before the recorder is there never reports.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use failsoft_core::{Class, KeyMap};
use metrics::{Counter, Gauge, Label};

use crate::engine::{Counts, Outcome, Refusal, State, Transition};
use crate::events;
use crate::keyed::Group;
use crate::shared::Shared;

/// What one circuit counts.
#[derive(Default)]
pub(crate) struct Meters(OnceLock<Arc<Handles>>);

/// What the circuits under one label count.
struct Handles {
    target: String,
    /// One circuit has this label, and no other will: gauges make sense.
    of_one: bool,
    success: OnceLock<Counter>,
    gauges: OnceLock<Gauges>,
    counters: Mutex<HashMap<Counted, Counter>>,
}

/// A counter with its labels.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Counted {
    /// The weight in thousandths.
    Outcome(&'static str, &'static str, u16),
    Slow,
    Probe(&'static str),
    Refused(&'static str),
    Transition(&'static str, &'static str, &'static str),
}

struct Gauges {
    state: Gauge,
    failure_rate: Gauge,
    soft_failure_rate: Gauge,
    slow_rate: Gauge,
    openings: Gauge,
    time_in_state: Gauge,
}

impl Meters {
    fn handles(&self, circuit: &Shared) -> &Handles {
        self.0.get_or_init(|| match circuit.group() {
            Some(group) => group.meters.handles(group, circuit.name()),
            None => Handles::new(named(circuit.name()), true),
        })
    }

    #[inline]
    pub(crate) fn success(&self, circuit: &Shared) {
        self.handles(circuit).success(circuit);
    }

    pub(crate) fn outcome(&self, circuit: &Shared, class: Class, outcome: Outcome, slow: bool) {
        let handles = self.handles(circuit);
        if slow {
            handles.count(Counted::Slow);
        }
        if outcome == Outcome::Success {
            return handles.success(circuit);
        }
        let weight = (events::weight(outcome) * 1000.0).round() as u16;
        handles.count(Counted::Outcome(class.as_str(), events::counted(outcome), weight));
    }

    /// Brings the rates up to date.
    pub(crate) fn rates(&self, circuit: &Shared) {
        if let Some(gauges) = self.handles(circuit).gauges() {
            gauges.set_rates(&circuit.counts());
        }
    }

    pub(crate) fn probe(&self, circuit: &Shared, result: &'static str) {
        self.handles(circuit).count(Counted::Probe(result));
    }

    pub(crate) fn refused(&self, circuit: &Shared, refusal: &Refusal) {
        self.handles(circuit).count(Counted::Refused(refusal.state.as_str()));
    }

    pub(crate) fn transition(&self, circuit: &Shared, transition: &Transition) {
        let Transition { from, to, reason, time_in_state, .. } = transition;
        let handles = self.handles(circuit);
        handles.count(Counted::Transition(from.as_str(), to.as_str(), reason.as_str()));
        if transition.is_change() {
            let target = handles.target.clone();
            // rarely, so that a handle for each state is not worth its place
            metrics::histogram!(super::STATE_LASTED, "target" => target, "state" => from.as_str())
                .record(*time_in_state);
            if let Some(group) = circuit.group() {
                group.meters.entered(group.name(), *from, -1.0);
                group.meters.entered(group.name(), *to, 1.0);
            }
        }
        handles.publish(circuit);
    }

    /// Brings the gauges up to date. A circuit of a key that was not used takes no label for that.
    pub(crate) fn publish(&self, circuit: &Shared) {
        if circuit.group().is_none() || self.0.get().is_some() {
            self.handles(circuit).publish(circuit);
        }
    }
}

impl Handles {
    fn new(target: String, of_one: bool) -> Arc<Self> {
        let (success, gauges, counters) = Default::default();
        Arc::new(Self { target, of_one, success, gauges, counters })
    }

    fn success(&self, circuit: &Shared) {
        if self.success.get().is_none() {
            // whoever sees calls sees a state as well
            self.publish(circuit);
        }
        let of = Counted::Outcome(Class::Success.as_str(), events::counted(Outcome::Success), 0);
        self.success.get_or_init(|| of.counter(&self.target)).increment(1);
    }

    fn count(&self, counted: Counted) {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let counter = counters.entry(counted).or_insert_with(|| counted.counter(&self.target)).clone();
        drop(counters);
        counter.increment(1);
    }

    fn gauges(&self) -> Option<&Gauges> {
        let gauge = |name: &'static str| metrics::gauge!(name, "target" => self.target.clone());
        self.of_one.then(|| {
            self.gauges.get_or_init(|| Gauges {
                state: gauge(super::STATE),
                failure_rate: gauge(super::FAILURE_RATE),
                soft_failure_rate: gauge(super::SOFT_FAILURE_RATE),
                slow_rate: gauge(super::SLOW_RATE),
                openings: gauge(super::CONSECUTIVE_OPENINGS),
                time_in_state: gauge(super::TIME_IN_STATE),
            })
        })
    }

    fn publish(&self, circuit: &Shared) {
        let Some(gauges) = self.gauges() else { return };
        // Two threads may tell of two transitions in either order: who writes last looks whether it is still so.
        loop {
            let snapshot = circuit.snapshot();
            gauges.state.set(number(snapshot.state));
            gauges.openings.set(snapshot.consecutive_openings);
            gauges.time_in_state.set(snapshot.time_in_state);
            gauges.set_rates(&snapshot.counts);
            if circuit.engine().state() == snapshot.state {
                return;
            }
        }
    }
}

impl Gauges {
    fn set_rates(&self, counts: &Counts) {
        self.failure_rate.set(counts.failure_rate.unwrap_or(f64::NAN));
        self.soft_failure_rate.set(counts.soft_failure_rate.unwrap_or(f64::NAN));
        self.slow_rate.set(counts.slow_rate.unwrap_or(f64::NAN));
    }
}

impl Counted {
    fn counter(self, target: &str) -> Counter {
        let mut labels = vec![Label::new("target", target.to_owned())];
        let mut label =
            |name: &'static str, value: &'static str| labels.push(Label::from_static_parts(name, value));
        let name = match self {
            Self::Outcome(class, counted, weight) => {
                label("class", class);
                label("counted", counted);
                labels.push(Label::new("weight", (f64::from(weight) / 1000.0).to_string()));
                super::OUTCOMES
            }
            Self::Slow => super::SLOW,
            Self::Probe(result) => {
                label("result", result);
                super::PROBES
            }
            Self::Refused(state) => {
                label("state", state);
                super::REFUSED
            }
            Self::Transition(from, to, reason) => {
                label("from", from);
                label("to", to);
                label("reason", reason);
                super::TRANSITIONS
            }
        };
        metrics::counter!(name, labels)
    }
}

/// What a keyed layer counts.
pub(crate) struct GroupMeters {
    /// How many circuits have a label of their own.
    most: usize,
    labelled: Mutex<HashMap<String, Arc<Handles>>>,
    others: OnceLock<Arc<Handles>>,
    keys: OnceLock<(Gauge, Counter, Counter)>,
    in_state: [OnceLock<Gauge>; 3],
}

impl GroupMeters {
    pub(crate) fn new(most: usize) -> Self {
        let (labelled, others, keys, in_state) = Default::default();
        Self { most, labelled, others, keys, in_state }
    }

    fn handles(&self, group: &Group, name: Option<&str>) -> Arc<Handles> {
        let name = named(name);
        let mut labelled = self.labelled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handles) = labelled.get(&name) {
            return Arc::clone(handles);
        }
        if labelled.len() >= self.most {
            drop(labelled);
            let others = || {
                Handles::new(
                    group.name().map_or_else(|| OTHER.to_owned(), |name| format!("{name}/{OTHER}")),
                    false,
                )
            };
            return Arc::clone(self.others.get_or_init(others));
        }
        let handles = Handles::new(name.clone(), true);
        labelled.insert(name, Arc::clone(&handles));
        handles
    }

    /// A circuit entered, or with -1 left, a state.
    pub(crate) fn entered(&self, layer: Option<&str>, state: State, by: f64) {
        let index = match state {
            State::Open => 0,
            State::HalfOpen => 1,
            State::ForcedOpen => 2,
            _ => return,
        };
        let make =
            || metrics::gauge!(super::KEYS_IN_STATE, "target" => named(layer), "state" => state.as_str());
        self.in_state[index].get_or_init(make).increment(by);
    }

    /// A new key came.
    pub(crate) fn keys<K, V>(&self, layer: Option<&str>, keys: &KeyMap<K, V>) {
        let make = || {
            (
                metrics::gauge!(super::KEYS, "target" => named(layer)),
                metrics::counter!(super::KEYS_EVICTED, "target" => named(layer)),
                metrics::counter!(super::KEYS_OVERFLOWED, "target" => named(layer)),
            )
        };
        let (count, evicted, overflowed) = self.keys.get_or_init(make);
        count.set(keys.len() as f64);
        evicted.absolute(keys.evicted());
        overflowed.absolute(keys.turned_away());
    }
}

/// What counts together.
const OTHER: &str = "(other)";

fn named(name: Option<&str>) -> String {
    name.unwrap_or("unnamed").to_owned()
}

fn number(state: State) -> f64 {
    match state {
        State::Closed => 0.0,
        State::HalfOpen => 1.0,
        State::Open => 2.0,
        State::ForcedOpen => 3.0,
        State::Disabled => 4.0,
        State::ObserveOnly => 5.0,
    }
}
