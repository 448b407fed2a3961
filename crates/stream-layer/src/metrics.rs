//! What this crate counts through the crate [`metrics`](https://docs.rs/metrics), with its feature `metrics`. Every name has
//! the label `target`: the target's name, or `unnamed`.
//!
//! ```
//! use stream_layer::metrics::{LIMITS_PASSED, NAMES};
//!
//! assert!(NAMES.contains(&LIMITS_PASSED));
//! ```

/// Histogram, in seconds: from the call to the first content.
pub const FIRST_CONTENT: &str = "failsoft_stream_first_content_seconds";

/// Counter: limits of time that passed. Labels `limit` (`first_content`, `idle`, `total`) and `kind`: `hard` for one that
/// failed the answer, `soft` for one that is only reported.
pub const LIMITS_PASSED: &str = "failsoft_stream_limits_passed_total";

/// Counter: answers that were handed on without content, because as much as may be held was held.
pub const COMMITTED_WITHOUT_CONTENT: &str = "failsoft_stream_committed_without_content_total";

/// Counter: answers that failed after they were handed on.
pub const FAILED_AFTER_COMMIT: &str = "failsoft_stream_failed_after_commit_total";

/// All of the names.
pub const NAMES: [&str; 4] = [FIRST_CONTENT, LIMITS_PASSED, COMMITTED_WITHOUT_CONTENT, FAILED_AFTER_COMMIT];

#[cfg(feature = "metrics")]
mod handles {
    use std::{
        fmt,
        sync::{Arc, OnceLock},
        time::Duration,
    };

    use failsoft_core::Limit;
    use metrics::{Counter, Histogram};

    /// The handles of one layer; each is made when it is first used, when the recorder is there.
    #[derive(Clone, Default)]
    pub(crate) struct Meters(Arc<Handles>);

    #[derive(Default)]
    struct Handles {
        target: Option<Arc<str>>,
        first_content: OnceLock<Histogram>,
        hard: [OnceLock<Counter>; 3],
        soft: [OnceLock<Counter>; 2],
        without_content: OnceLock<Counter>,
        after_commit: OnceLock<Counter>,
    }

    impl Meters {
        pub(crate) fn new(target: Option<Arc<str>>) -> Self {
            Self(Arc::new(Handles { target, ..Handles::default() }))
        }

        fn target(&self) -> String {
            self.0.target.as_deref().unwrap_or("unnamed").to_owned()
        }

        fn passed(&self, handle: &OnceLock<Counter>, limit: &'static str, kind: &'static str) {
            let make = || metrics::counter!(super::LIMITS_PASSED, "target" => self.target(), "limit" => limit, "kind" => kind);
            handle.get_or_init(make).increment(1);
        }

        pub(crate) fn hard_limit(&self, limit: Limit) {
            match limit {
                Limit::FirstContent => self.passed(&self.0.hard[0], "first_content", "hard"),
                Limit::Idle => self.passed(&self.0.hard[1], "idle", "hard"),
                _ => self.passed(&self.0.hard[2], "total", "hard"),
            }
        }

        pub(crate) fn first_content(&self, after: Duration, is_late: bool) {
            let make = || metrics::histogram!(super::FIRST_CONTENT, "target" => self.target());
            self.0.first_content.get_or_init(make).record(after);
            if is_late {
                self.passed(&self.0.soft[0], "first_content", "soft");
            }
        }

        pub(crate) fn stalled(&self) {
            self.passed(&self.0.soft[1], "idle", "soft");
        }

        pub(crate) fn committed_without_content(&self) {
            let make = || metrics::counter!(super::COMMITTED_WITHOUT_CONTENT, "target" => self.target());
            self.0.without_content.get_or_init(make).increment(1);
        }

        pub(crate) fn failed_after_commit(&self) {
            let make = || metrics::counter!(super::FAILED_AFTER_COMMIT, "target" => self.target());
            self.0.after_commit.get_or_init(make).increment(1);
        }
    }

    impl fmt::Debug for Meters {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Meters").field("target", &self.0.target).finish_non_exhaustive()
        }
    }
}

#[cfg(not(feature = "metrics"))]
mod handles {
    use std::{sync::Arc, time::Duration};

    use failsoft_core::Limit;

    /// Nothing is counted.
    #[derive(Clone, Copy, Debug, Default)]
    pub(crate) struct Meters;

    impl Meters {
        #[allow(clippy::needless_pass_by_value, reason = "as with the feature")]
        pub(crate) fn new(_: Option<Arc<str>>) -> Self {
            Self
        }

        pub(crate) const fn hard_limit(self, _: Limit) {}
        pub(crate) const fn first_content(self, _: Duration, _: bool) {}
        pub(crate) const fn stalled(self) {}
        pub(crate) const fn committed_without_content(self) {}
        pub(crate) const fn failed_after_commit(self) {}
    }
}

pub(crate) use self::handles::Meters;
