//! What hedging tells `tracing`: the one place where its names are. Nothing of a request or an answer is in it.

use std::time::Duration;

use failsoft_core::{Next, Verdict};

use super::race::Which;

/// The target of all events.
const TARGET: &str = "failsoft_hedge";

/// The `hedge`-th request beside the first was sent, `after` the first began.
pub(super) fn begun(target: Option<&str>, hedge: u32, after: Duration) {
    let after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
    tracing::debug!(
        name: "failsoft_hedge_begun",
        target: TARGET,
        upstream = target,
        hedge,
        after_ms,
        "sent once more"
    );
}

/// A call that was hedged has its answer.
pub(super) fn won(target: Option<&str>, verdict: &Verdict, which: Which) {
    tracing::debug!(
        name: "failsoft_hedge_answered",
        target: TARGET,
        upstream = target,
        class = verdict.class().as_str(),
        by_hedge = which != Which::First,
        "answered"
    );
}

/// A call that was hedged has failed all the same.
pub(super) fn lost(target: Option<&str>, verdict: &Verdict, hedges: usize) {
    tracing::debug!(
        name: "failsoft_hedge_failed",
        target: TARGET,
        upstream = target,
        class = verdict.class().as_str(),
        hedges,
        "failed in spite of hedging"
    );
}

/// The delay was over, and yet nothing more is sent.
pub(super) fn suppressed(target: Option<&str>, why: Next) {
    tracing::debug!(
        name: "failsoft_hedge_suppressed",
        target: TARGET,
        upstream = target,
        why = why.as_str(),
        "not sent once more"
    );
}
