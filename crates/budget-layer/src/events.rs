//! What the layer tells `tracing`, and what of that is counted: the one place where the names of the events are. No key, no request and no answer is in it.

use crate::{
    Budget, Outcome, Reason,
    account::{Crossed, Denied, Rules},
};

/// The target of all events.
const TARGET: &str = "failsoft_budget";

/// A call was denied.
pub(crate) fn denied(rules: &Rules, denied: &Denied, needed: u64) {
    let (budget, reason) = (&*rules.name, Reason::from(denied.why));
    rules.meters.denied(budget, reason);
    let reason = reason.as_str();
    tracing::info!(
        name: "failsoft_budget_denied",
        target: TARGET,
        budget,
        reason,
        needed,
        left = denied.left,
        limit = denied.limit,
        "budget denies a call"
    );
}

/// A call was denied, because nobody knows what it costs.
pub(crate) fn unpriced(rules: &Rules) {
    let (budget, reason) = (&*rules.name, Reason::Unpriced);
    rules.meters.denied(budget, reason);
    let reason = reason.as_str();
    tracing::warn!(
        name: "failsoft_budget_unpriced",
        target: TARGET,
        budget,
        reason,
        "budget denies a call of which nobody knows what it costs"
    );
}

/// A call waits for its turn.
pub(crate) fn waits(rules: &Rules) {
    let budget = &*rules.name;
    rules.meters.waits(budget);
    tracing::debug!(name: "failsoft_budget_waits", target: TARGET, budget, "a call waits for its turn");
}

/// There is not enough for a call: it goes on to routes that cost nothing.
pub(crate) fn free_only(rules: &Rules, denied: &Denied, needed: u64) {
    let (budget, reason) = (&*rules.name, Reason::from(denied.why));
    rules.meters.free_only(budget, reason);
    let reason = reason.as_str();
    tracing::info!(
        name: "failsoft_budget_free_only",
        target: TARGET,
        budget,
        reason,
        needed,
        left = denied.left,
        limit = denied.limit,
        "budget lets a call go on to free routes only"
    );
}

/// A further attempt of a call that was admitted is not made.
pub(crate) fn attempt_denied(rules: &Rules, denied: &Denied) {
    let budget = &*rules.name;
    rules.meters.attempt_denied(budget);
    tracing::info!(
        name: "failsoft_budget_attempt_denied",
        target: TARGET,
        budget,
        left = denied.left,
        limit = denied.limit,
        "budget has nothing left for another attempt"
    );
}

/// Something was crossed.
#[cold]
pub(crate) fn crossed(budget: &Budget, crossed: Crossed) {
    let (rules, limit, over) =
        (budget.rules(), budget.limit(), budget.spent().saturating_sub(budget.limit()));
    let budget = &*rules.name;
    if crossed.lines & 1 != 0 {
        rules.meters.soft_line(budget);
        tracing::warn!(
            name: "failsoft_budget_soft_line",
            target: TARGET,
            budget,
            limit,
            "budget is past its soft line: calls are restricted"
        );
    }
    for (which, millionths) in rules.lines.millionths.iter().enumerate().skip(1) {
        if crossed.lines & (1 << which) != 0 {
            rules.meters.alert(budget, *millionths);
            let percent = f64::from(*millionths) / 1e4;
            tracing::warn!(name: "failsoft_budget_alert", target: TARGET, budget, limit, percent, "budget is past a line");
        }
    }
    if crossed.overrun {
        rules.meters.overrun(budget);
        tracing::warn!(
            name: "failsoft_budget_overrun",
            target: TARGET,
            budget,
            limit,
            over,
            "a call used more than was estimated, and the budget is overspent"
        );
    }
    if let Some(pause) = rules.pause.filter(|_| crossed.paused) {
        rules.meters.paused(budget);
        let seconds = pause.pause.as_secs_f64();
        tracing::warn!(name: "failsoft_budget_paused", target: TARGET, budget, seconds, "budget is paused: too much in too short a time");
    }
}

/// Whether anybody listens.
#[inline]
pub(crate) fn tells_unknown_usage() -> bool {
    tracing::enabled!(target: TARGET, tracing::Level::DEBUG)
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
pub(crate) fn late_usage(rules: &Rules, outcome: Outcome, booked: u64) {
    let budget = &*rules.name;
    rules.meters.late(budget, outcome, booked);
    tracing::debug!(name: "failsoft_budget_late_usage", target: TARGET, budget, booked, "late usage is booked");
}

/// A new key found no room.
pub(crate) fn keys_full(rules: &Rules, keys: usize) {
    let budget = &*rules.name;
    rules.meters.denied(budget, Reason::KeysFull);
    tracing::warn!(
        name: "failsoft_budget_keys_full",
        target: TARGET,
        budget,
        keys,
        "no room for another key: its call is denied"
    );
}

/// The store was asked, and failed.
pub(crate) fn store_failed(rules: &Rules, is_first: bool, error: &str) {
    let budget = &*rules.name;
    rules.meters.store_failed(budget);
    // Of an outage once, and not for each time that it is asked.
    if is_first {
        tracing::warn!(name: "failsoft_budget_store_failed", target: TARGET, budget, error, "the store of a budget fails");
    }
}

/// The store answers again.
pub(crate) fn store_recovered(rules: &Rules) {
    let budget = &*rules.name;
    rules.meters.store_recovered(budget);
    tracing::info!(name: "failsoft_budget_store_recovered", target: TARGET, budget, "the store of a budget answers again");
}
