//! The names of everything that this crate tells `tracing`.

use std::time::Duration;

use failsoft_core::Class;
use tracing::level_filters::LevelFilter;

use crate::engine::{Outcome, Refusal, State, Transition};

/// A transition: a warning when it opens, else for information.
pub(crate) fn transition(circuit: Option<&str>, transition: &Transition) {
    let Transition { from, to, reason, counts, consecutive_openings, sequence, .. } = transition;
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    macro_rules! tell {
        ($level:ident) => {
            tracing::$level!(
                name: "failsoft_circuit_transition",
                circuit,
                from = from.as_str(),
                to = to.as_str(),
                reason = reason.as_str(),
                sequence,
                calls = counts.total,
                failed = counts.failed,
                soft = counts.soft,
                failure_rate = counts.failure_rate,
                slow_rate = counts.slow_rate,
                refused = counts.refused,
                consecutive_openings,
                open_ms = transition.open_for.map(millis),
                time_in_state_ms = millis(transition.time_in_state),
                "circuit {transition}"
            )
        };
    }
    if *to == State::Open { tell!(warn) } else { tell!(info) }
}

/// How a call ended; plain successes are not told one by one.
#[inline]
pub(crate) fn outcome(circuit: Option<&str>, class: Class, outcome: Outcome, slow: bool) {
    // looked at here, so that the rest is out of the way of those who do not listen
    if LevelFilter::current() >= LevelFilter::TRACE {
        tell_outcome(circuit, class, outcome, slow);
    }
}

#[cold]
fn tell_outcome(circuit: Option<&str>, class: Class, outcome: Outcome, slow: bool) {
    tracing::trace!(
        name: "failsoft_circuit_outcome",
        circuit,
        class = class.as_str(),
        counted = counted(outcome),
        weight = weight(outcome),
        slow,
        "a call ended"
    );
}

/// How a probe ended.
pub(crate) fn probe(circuit: Option<&str>, class: Class, result: &'static str) {
    tracing::debug!(name: "failsoft_circuit_probe", circuit, class = class.as_str(), result, "a probe ended");
}

/// What an outcome did to a circuit, for events and metrics.
pub(crate) const fn counted(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Success => "success",
        Outcome::Failure { .. } => "failure",
        Outcome::RateLimited { .. } => "rate_limited",
        Outcome::AtOnce { .. } => "at_once",
        Outcome::Alive => "alive",
        Outcome::Neutral => "neutral",
        Outcome::Cancelled => "cancelled",
    }
}

/// The weight of a failure; 0 for anything else.
pub(crate) fn weight(outcome: Outcome) -> f64 {
    match outcome {
        Outcome::Failure { weight, .. } => weight.into(),
        _ => 0.0,
    }
}

/// What a probe's outcome says, for events and metrics.
pub(crate) const fn probe_result(
    outcome: Outcome,
    slow: bool,
    slow_decides: bool,
    current: bool,
) -> &'static str {
    match outcome {
        _ if !current => "late",
        Outcome::Cancelled if !slow_decides => "given_back",
        Outcome::Failure { .. } | Outcome::RateLimited { .. } | Outcome::AtOnce { .. } => "failed",
        Outcome::Success | Outcome::Alive | Outcome::Cancelled if slow => "slow",
        Outcome::Success | Outcome::Alive => "good",
        Outcome::Neutral | Outcome::Cancelled => "given_back",
    }
}

/// A call that was refused.
pub(crate) fn refused(circuit: Option<&str>, refusal: &Refusal) {
    tracing::debug!(
        name: "failsoft_circuit_refused",
        circuit,
        state = refusal.state.as_str(),
        retry_after_ms = refusal.retry_after.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
        "circuit refuses a call"
    );
}

/// A listener that panicked.
pub(crate) fn listener_panicked(circuit: Option<&str>) {
    tracing::error!(name: "failsoft_circuit_listener_panicked", circuit, "a listener of a circuit panicked");
}

/// New keys find no room: told once, and again after there was room in between.
pub(crate) fn keys_overflow(layer: Option<&str>, capacity: usize) {
    tracing::warn!(
        name: "failsoft_circuit_keys_overflow",
        layer,
        capacity,
        "every key of a breaker is in use or refusing; new ones share one circuit"
    );
}
