//! What the layer tells `tracing`: the one place where its names are. Nothing of a request or an answer is in it.

use std::time::Duration;

use failsoft_core::{Next, Verdict};

/// The target of all events.
const TARGET: &str = "failsoft_retry";

/// An attempt failed, and there will be another after `delay`.
pub(crate) fn again(target: Option<&str>, verdict: &Verdict, attempt: u32, delay: Duration) {
    let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
    tracing::debug!(
        name: "failsoft_retry_again",
        target: TARGET,
        upstream = target,
        class = verdict.class().as_str(),
        attempt,
        delay_ms,
        "trying again"
    );
}

/// A call failed for good after `attempts` attempts.
pub(crate) fn gave_up(target: Option<&str>, verdict: &Verdict, attempts: u32, why: Next) {
    tracing::debug!(
        name: "failsoft_retry_gave_up",
        target: TARGET,
        upstream = target,
        class = verdict.class().as_str(),
        attempts,
        why = why.as_str(),
        "not trying again"
    );
}

/// A call succeeded, but not at once.
pub(crate) fn recovered(target: Option<&str>, attempts: u32) {
    tracing::debug!(name: "failsoft_retry_recovered", target: TARGET, upstream = target, attempts, "succeeded");
}

/// The target asked to be left alone for `hold`: so long all calls of the layer to it wait.
pub(crate) fn held(target: Option<&str>, verdict: &Verdict, hold: Duration) {
    let hold_ms = u64::try_from(hold.as_millis()).unwrap_or(u64::MAX);
    tracing::debug!(
        name: "failsoft_retry_held",
        target: TARGET,
        upstream = target,
        class = verdict.class().as_str(),
        hold_ms,
        "the target asks to wait"
    );
}
