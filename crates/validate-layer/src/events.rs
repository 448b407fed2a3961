//! What the layer tells `tracing`: the one place where its names are. Nothing of a request or an answer is in it.

use crate::Rail;
use failsoft_core::{Finding, Report, Verdict};

/// The target of all events.
const TARGET: &str = "failsoft_validate";

/// An answer was looked at: silent when nothing was found.
pub(crate) fn judged(upstream: Option<&str>, verdict: &Verdict, report: &Report) {
    let code = report.leading().map(Finding::code);
    let findings = report.findings().len().saturating_add(report.dropped());
    if !verdict.is_success() {
        tracing::debug!(
            name: "failsoft_validate_failed",
            target: TARGET,
            upstream,
            class = verdict.class().as_str(),
            code,
            findings,
            "a wrong answer"
        );
    } else if findings > 0 {
        tracing::debug!(
            name: "failsoft_validate_warned",
            target: TARGET,
            upstream,
            code,
            findings,
            "an answer passed with findings"
        );
    }
}

/// A rail tripped: an event for those who watch over security, under a target of its own.
pub(crate) fn tripped(upstream: Option<&str>, rail: Rail) {
    tracing::warn!(
        name: "failsoft_validate_rail_tripped",
        target: "failsoft_security",
        upstream,
        rail = rail.as_str(),
        severity = rail.severity(),
        "a rail tripped"
    );
}

/// An answer passed that was not looked at.
#[cfg(feature = "http")]
pub(crate) fn unchecked(upstream: Option<&str>, why: &'static str) {
    tracing::debug!(
        name: "failsoft_validate_unchecked",
        target: TARGET,
        upstream,
        why,
        "an answer was not looked at"
    );
}

/// A body failed while it was read.
#[cfg(feature = "http")]
pub(crate) fn cut(upstream: Option<&str>, verdict: &Verdict) {
    tracing::debug!(
        name: "failsoft_validate_cut",
        target: TARGET,
        upstream,
        class = verdict.class().as_str(),
        "a body broke off"
    );
}
