//! What the layer tells `tracing`: the one place where its names are. No key, no request and no answer is in it.

use crate::account::{Crossed, Denied, Why};

/// The target of all events.
const TARGET: &str = "failsoft_budget";

/// A call was denied.
pub(crate) fn denied(budget: &str, denied: &Denied, needed: u64) {
    let line = match denied.why {
        Why::Soft => "soft",
        Why::Hard => "hard",
    };
    tracing::info!(
        name: "failsoft_budget_denied",
        target: TARGET,
        budget,
        line,
        needed,
        left = denied.left,
        limit = denied.limit,
        "budget denies a call"
    );
}

/// A further attempt of a call that was admitted is not made.
pub(crate) fn attempt_denied(budget: &str, denied: &Denied, needed: u64) {
    tracing::info!(
        name: "failsoft_budget_attempt_denied",
        target: TARGET,
        budget,
        needed,
        left = denied.left,
        limit = denied.limit,
        "budget has nothing left for another attempt"
    );
}

/// A line was crossed.
pub(crate) fn crossed(budget: &str, crossed: Crossed, limit: u64) {
    if crossed.soft {
        tracing::warn!(
            name: "failsoft_budget_soft_line",
            target: TARGET,
            budget,
            limit,
            "budget is past its soft line: calls are restricted"
        );
    }
    if crossed.overrun > 0 {
        tracing::warn!(
            name: "failsoft_budget_overrun",
            target: TARGET,
            budget,
            limit,
            over = crossed.overrun,
            "a call used more than was estimated, and the budget is overspent"
        );
    }
}

/// A call ended without saying, or fully saying, what it used.
pub(crate) fn unknown_usage(budget: &str, booked: u64) {
    tracing::debug!(
        name: "failsoft_budget_unknown_usage",
        target: TARGET,
        budget,
        booked,
        "usage is unknown: the estimate stands in"
    );
}

/// Usage came after its call was settled.
pub(crate) fn late_usage(budget: &str, booked: u64) {
    tracing::debug!(name: "failsoft_budget_late_usage", target: TARGET, budget, booked, "late usage is booked");
}

/// A new key found no room.
pub(crate) fn keys_full(budget: &str, keys: usize) {
    tracing::warn!(
        name: "failsoft_budget_keys_full",
        target: TARGET,
        budget,
        keys,
        "no room for another key: its call is denied"
    );
}
