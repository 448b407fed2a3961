//! What this crate counts through the crate [`metrics`](https://docs.rs/metrics), with its feature `metrics`. Every name
//! has the label `target`: the circuit's name, or `unnamed`.
//!
//! ```
//! use breaker_layer::metrics::{NAMES, REFUSED};
//!
//! assert!(NAMES.contains(&REFUSED));
//! ```
//!
//! # Keys
//!
//! A label for each key that callers make up would cost more than the circuits. So the first
//! `metric_keys` circuits (a method of the builder) of a keyed layer (100 by default) have a label of their
//! own, for good, also if they are forgotten and come again; all others count together under `(other)`, behind the
//! layer's name, and without the gauges of one circuit. How many keys refuse is told for the layer as a whole, by
//! [`KEYS_IN_STATE`].
//!
//! # Gauges
//!
//! The gauges of a circuit are set by each transition, and those that tell of outcomes by each that is not a plain
//! success. What changes by time alone is as old as that; `Registry::publish`, called before
//! a scrape, brings them all up to date.

/// Counter: how calls ended. Labels `class`, such as `overloaded` or `soft.truncated`; `counted`, what that did to the
/// circuit: `success`, `failure`, `rate_limited`, `at_once`, `alive`, `neutral` or `cancelled`; and `weight`, that of a
/// failure, such as `0.6`, else `0`.
pub const OUTCOMES: &str = "failsoft_breaker_outcomes_total";

/// Counter: calls that took longer than the slow limit.
pub const SLOW: &str = "failsoft_breaker_slow_total";

/// Counter: calls that were refused. Label `state`: `open`, `half_open` or `forced_open`.
pub const REFUSED: &str = "failsoft_breaker_refused_total";

/// Counter: probes that ended. Label `result`: `good`, `failed`, `slow`, `given_back` for one that said nothing, or
/// `late` for one whose half-open period was over.
pub const PROBES: &str = "failsoft_breaker_probes_total";

/// Counter: changes of state. Labels `from`, `to` and `reason`.
pub const TRANSITIONS: &str = "failsoft_breaker_transitions_total";

/// Gauge: the state, as one number: 0 closed, 1 half-open, 2 open, 3 forced open, 4 disabled, 5 observe-only.
pub const STATE: &str = "failsoft_breaker_state";

/// Gauge: weighted failures by calls of the window, 0 to 1; NaN below the minimum of calls.
pub const FAILURE_RATE: &str = "failsoft_breaker_failure_rate";

/// Gauge: soft failures, each as one, by calls of the window, 0 to 1; NaN below the minimum of calls.
pub const SOFT_FAILURE_RATE: &str = "failsoft_breaker_soft_failure_rate";

/// Gauge: slow calls by calls of the window, 0 to 1; NaN below the minimum of calls.
pub const SLOW_RATE: &str = "failsoft_breaker_slow_rate";

/// Gauge: openings in a row without closing in between.
pub const CONSECUTIVE_OPENINGS: &str = "failsoft_breaker_consecutive_openings";

/// Gauge, in seconds: how long the present state has lasted.
pub const TIME_IN_STATE: &str = "failsoft_breaker_time_in_state_seconds";

/// Histogram, in seconds: how long a state had lasted when it was left. Label `state`.
pub const STATE_LASTED: &str = "failsoft_breaker_state_lasted_seconds";

/// Gauge: how many keys a keyed layer has. Its `target` is the layer's name, as with all that follow.
pub const KEYS: &str = "failsoft_breaker_keys";

/// Gauge: how many circuits of a keyed layer refuse or probe. Label `state`: `open`, `half_open` or `forced_open`.
pub const KEYS_IN_STATE: &str = "failsoft_breaker_keys_in_state";

/// Counter: keys that were forgotten for new ones.
pub const KEYS_EVICTED: &str = "failsoft_breaker_keys_evicted_total";

/// Counter: calls whose new key found no room, so that they shared the overflow circuit.
pub const KEYS_OVERFLOWED: &str = "failsoft_breaker_keys_overflowed_total";

/// All of the names.
pub const NAMES: [&str; 16] = [
    OUTCOMES,
    SLOW,
    REFUSED,
    PROBES,
    TRANSITIONS,
    STATE,
    FAILURE_RATE,
    SOFT_FAILURE_RATE,
    SLOW_RATE,
    CONSECUTIVE_OPENINGS,
    TIME_IN_STATE,
    STATE_LASTED,
    KEYS,
    KEYS_IN_STATE,
    KEYS_EVICTED,
    KEYS_OVERFLOWED,
];

#[cfg(feature = "metrics")]
mod handles;
#[cfg(not(feature = "metrics"))]
mod nothing;

#[cfg(feature = "metrics")]
pub(crate) use self::handles::{GroupMeters, Meters};
#[cfg(not(feature = "metrics"))]
pub(crate) use self::nothing::{GroupMeters, Meters};
