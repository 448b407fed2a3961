//! The names of what this crate says through `tracing`, all at the level debug. Nothing of a body is ever in it.

use failsoft_core::{Fault, FaultDetails};

/// A limit of time passed.
pub(crate) fn limit_passed(fault: &Fault) {
    tracing::debug!(
        name: "failsoft_stream_limit_passed",
        class = fault.class().as_str(),
        target_name = fault.target(),
        message = fault.message(),
    );
}

/// A stream was handed on without content, because more than enough was held.
pub(crate) fn committed_without_content(events: usize, bytes: usize) {
    tracing::debug!(name: "failsoft_stream_committed_without_content", events, bytes);
}

/// A stream failed after it was handed on.
pub(crate) fn failed_after_commit(fault: &FaultDetails) {
    tracing::debug!(
        name: "failsoft_stream_failed_after_commit",
        class = fault.class().as_str(),
        target_name = fault.target(),
    );
}
