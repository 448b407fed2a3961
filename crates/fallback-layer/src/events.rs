//! Every event that this crate emits. Nothing of a request or an answer is in them.

use std::time::Duration;

use failsoft_core::{Condition, Next, Verdict};

const ROUTE: &str = "-";

/// A route failed and another one is taken.
pub(crate) fn next_route(failed: Option<&str>, verdict: Verdict, next: Option<&str>) {
    tracing::info!(
        name: "failsoft_fallback_next_route",
        failed = failed.unwrap_or(ROUTE),
        class = verdict.class().as_str(),
        next = next.unwrap_or(ROUTE),
        "failsoft_fallback_next_route"
    );
}

/// A route has no content yet, and the next one is started beside it.
pub(crate) fn slow_start(slow: Option<&str>, after: Duration, next: Option<&str>) {
    tracing::info!(
        name: "failsoft_fallback_slow_start",
        slow = slow.unwrap_or(ROUTE),
        after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX),
        next = next.unwrap_or(ROUTE),
        "failsoft_fallback_slow_start"
    );
}

/// A route was passed over before it was asked.
pub(crate) fn skipped(route: Option<&str>, verdict: Verdict) {
    tracing::debug!(
        name: "failsoft_fallback_skipped",
        route = route.unwrap_or(ROUTE),
        class = verdict.class().as_str(),
        "failsoft_fallback_skipped"
    );
}

/// All routes that are left are in poor health, and the least bad is asked all the same.
pub(crate) fn last_resort(route: Option<&str>) {
    tracing::warn!(
        name: "failsoft_fallback_last_resort",
        route = route.unwrap_or(ROUTE),
        "failsoft_fallback_last_resort"
    );
}

/// An earlier answer stands in.
pub(crate) fn last_good(verdict: Verdict) {
    tracing::warn!(
        name: "failsoft_fallback_last_good",
        class = verdict.class().as_str(),
        "failsoft_fallback_last_good"
    );
}

/// The call failed after more than one route, or without any.
pub(crate) fn exhausted(tried: u32, verdict: Verdict, why: Next) {
    tracing::warn!(
        name: "failsoft_fallback_exhausted",
        tried,
        class = verdict.class().as_str(),
        why = why.as_str(),
        "failsoft_fallback_exhausted"
    );
}

/// A route was cut off by the limit of time that it had.
pub(crate) fn timed_out(route: Option<&str>, after: Duration) {
    tracing::info!(
        name: "failsoft_fallback_timed_out",
        route = route.unwrap_or(ROUTE),
        after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX),
        "failsoft_fallback_timed_out"
    );
}

/// A check has changed what is known of a route.
pub(crate) fn checked(route: &str, verdict: Option<Verdict>, now: Condition) {
    tracing::info!(
        name: "failsoft_fallback_checked",
        route,
        class = verdict.map_or(ROUTE, |verdict| verdict.class().as_str()),
        condition = ?now,
        "failsoft_fallback_checked"
    );
}

/// A stream broke off after its first content, and another route's follows.
#[cfg(feature = "http")]
pub(crate) fn restarted(route: Option<&str>, verdict: Verdict) {
    tracing::warn!(
        name: "failsoft_fallback_restarted",
        route = route.unwrap_or(ROUTE),
        class = verdict.class().as_str(),
        "failsoft_fallback_restarted"
    );
}
