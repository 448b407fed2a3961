//! What re-asking tells `tracing`: the one place where its names are. Nothing of a request or an answer is in it.

use failsoft_core::{Next, Verdict};

/// The target of all events.
const TARGET: &str = "failsoft_reflect";

/// An answer is wrong, and the `number`-th changed request of its call is sent.
pub(super) fn reask(target: Option<&str>, verdict: &Verdict, number: u32) {
    tracing::debug!(
        name: "failsoft_reflect_reask",
        target: TARGET,
        upstream = target,
        class = verdict.class().as_str(),
        number,
        "asking again with a changed request"
    );
}

/// A changed request has a good answer.
pub(super) fn cured(target: Option<&str>, reasks: u32) {
    tracing::debug!(name: "failsoft_reflect_cured", target: TARGET, upstream = target, reasks, "cured");
}

/// An answer is wrong and stays so.
pub(super) fn gave_up(target: Option<&str>, verdict: &Verdict, reasks: u32, why: Next) {
    tracing::debug!(
        name: "failsoft_reflect_gave_up",
        target: TARGET,
        upstream = target,
        class = verdict.class().as_str(),
        reasks,
        why = why.as_str(),
        "not asking again"
    );
}
