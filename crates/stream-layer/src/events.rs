//! What this crate says of one answer: through `tracing`, all at the level debug, and through `metrics`. Nothing of a body
//! is ever in it.

use std::{sync::Arc, time::Duration};

use failsoft_core::{Class, Fault};

use crate::metrics::Meters;

/// Whose answer it is, and who counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Witness {
    pub(crate) target: Option<Arc<str>>,
    meters: Meters,
}

impl Witness {
    pub(crate) fn new(target: Option<Arc<str>>) -> Self {
        Self { meters: Meters::new(target.clone()), target }
    }

    /// A failure, with the target's name where it bears none yet.
    pub(crate) fn name(&self, fault: Fault) -> Fault {
        if fault.target().is_some() { fault } else { fault.with_target_if(self.target.clone()) }
    }

    /// A limit of time passed, and the answer has failed.
    pub(crate) fn limit_passed(&self, fault: &Fault) {
        tracing::debug!(
            name: "failsoft_stream_limit_passed",
            class = fault.class().as_str(),
            target_name = fault.target(),
            message = fault.message(),
        );
        if let Class::Timeout(limit) = fault.class() {
            self.meters.hard_limit(limit);
        }
    }

    /// The first content came; `late` is the soft limit that it had passed.
    pub(crate) fn first_content(&self, after: Duration, late: Option<Duration>) {
        self.meters.first_content(after, late.is_some());
        if let Some(limit) = late {
            tracing::debug!(
                name: "failsoft_stream_slow_first_content",
                target_name = self.target.as_deref(),
                ?after,
                ?limit,
            );
        }
    }

    /// The target was silent for longer than the soft limit, and went on.
    pub(crate) fn stalled(&self, silence: Duration) {
        self.meters.stalled();
        tracing::debug!(
            name: "failsoft_stream_stalled",
            target_name = self.target.as_deref(),
            ?silence,
        );
    }

    /// A stream was handed on without content, because more than enough was held.
    pub(crate) fn committed_without_content(&self, events: usize, bytes: usize) {
        self.meters.committed_without_content();
        tracing::debug!(
            name: "failsoft_stream_committed_without_content",
            target_name = self.target.as_deref(),
            events,
            bytes,
        );
    }

    /// A stream failed after it was handed on.
    pub(crate) fn failed_after_commit(&self, class: Class) {
        self.meters.failed_after_commit();
        tracing::debug!(
            name: "failsoft_stream_failed_after_commit",
            class = class.as_str(),
            target_name = self.target.as_deref(),
        );
    }
}
