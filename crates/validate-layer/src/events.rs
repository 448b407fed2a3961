//! What the layer tells `tracing`, and its metrics: the one place where the names of events are. Nothing of a request or an
//! answer is in it.

use crate::Rail;
use failsoft_core::{Finding, Report, Verdict};

use crate::Validator;

/// The target of all events.
const TARGET: &str = "failsoft_validate";

/// An answer was looked at: silent when nothing was found.
pub(crate) fn judged(validator: &Validator, verdict: &Verdict, report: &Report) {
    let upstream = validator.name();
    validator.meters.judged(upstream, verdict, report);
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
            confidence = report.confidence(),
            "a wrong answer"
        );
    } else if findings > 0 {
        tracing::debug!(
            name: "failsoft_validate_warned",
            target: TARGET,
            upstream,
            code,
            findings,
            confidence = report.confidence(),
            "an answer passed with findings"
        );
    }
}

/// A rail tripped: an event for those who watch over security, under a target of its own.
pub(crate) fn tripped(validator: &Validator, rail: Rail) {
    let upstream = validator.name();
    validator.meters.tripped(upstream, rail);
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
pub(crate) fn unchecked(validator: &Validator, why: &'static str) {
    let upstream = validator.name();
    validator.meters.unchecked(upstream, why);
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
pub(crate) fn cut(validator: &Validator, verdict: &Verdict) {
    let upstream = validator.name();
    validator.meters.cut(upstream, verdict.class());
    tracing::debug!(
        name: "failsoft_validate_cut",
        target: TARGET,
        upstream,
        class = verdict.class().as_str(),
        "a body broke off"
    );
}
