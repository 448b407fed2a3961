//! What this crate counts through the crate [`metrics`](https://docs.rs/metrics), with its feature `metrics`. Every name
//! has the label `target`: the name given to the builder, or `unnamed`.
//!
//! ```
//! use validate_layer::metrics::{CONFIDENCE, NAMES};
//!
//! assert!(NAMES.contains(&CONFIDENCE));
//! ```

/// Counter: answers that were looked at.
pub const CHECKED: &str = "failsoft_validate_checked_total";

/// Counter: answers that were wrong, those included that a reader inside had found wrong. Label `class`: in which way, such
/// as `soft.truncated`.
pub const FAILED: &str = "failsoft_validate_failed_total";

/// Counter: answers that passed without being looked at. Label `reason`: `stream`, `head` or `too large`.
pub const UNCHECKED: &str = "failsoft_validate_unchecked_total";

/// Counter: bodies that broke off while they were read. Label `class`.
pub const CUT: &str = "failsoft_validate_cut_total";

/// Counter: findings, also those of answers that passed. Labels `code`, such as `json.lossy`, and `severity`: `info`,
/// `warning` or `error`.
pub const FINDINGS: &str = "failsoft_validate_findings_total";

/// Histogram, 0 to 1: the confidence in each answer that was looked at.
pub const CONFIDENCE: &str = "failsoft_validate_confidence";

/// Counter: [rails](crate::rails) that tripped. Labels `rail`, such as `forbidden_tool`, and `severity`: `medium`, `high` or
/// `critical`.
pub const RAILS_TRIPPED: &str = "failsoft_validate_rails_tripped_total";

/// All of the names.
pub const NAMES: [&str; 7] = [CHECKED, FAILED, UNCHECKED, CUT, FINDINGS, CONFIDENCE, RAILS_TRIPPED];

#[cfg(feature = "metrics")]
mod handles {
    use std::sync::{Mutex, OnceLock, PoisonError};

    #[cfg(feature = "http")]
    use failsoft_core::Class;
    use failsoft_core::{Report, Severity, Verdict};
    use metrics::{Counter, Histogram};

    use crate::Rail;

    use super::{CHECKED, CONFIDENCE, FAILED, FINDINGS, RAILS_TRIPPED};
    #[cfg(feature = "http")]
    use super::{CUT, UNCHECKED};

    /// The handles of one layer; each is made when it is first used, when the recorder is there. There are a few dozen
    /// classes and codes. Of good answers only the first and the last two come here.
    #[derive(Default)]
    pub(crate) struct Meters {
        checked: OnceLock<Counter>,
        confidence: OnceLock<Histogram>,
        failed: Each<&'static str>,
        #[cfg(feature = "http")]
        unchecked: Each<&'static str>,
        #[cfg(feature = "http")]
        cut: Each<&'static str>,
        findings: Each<(&'static str, Severity)>,
        rails: Each<Rail>,
    }

    struct Each<K>(Mutex<Vec<(K, Counter)>>);

    impl<K: PartialEq> Each<K> {
        fn add(&self, key: K, make: impl FnOnce() -> Counter) {
            let mut handles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, counter)) = handles.iter().find(|(of, _)| *of == key) {
                counter.increment(1);
                return;
            }
            let counter = make();
            counter.increment(1);
            handles.push((key, counter));
        }
    }

    impl<K> Default for Each<K> {
        fn default() -> Self {
            Self(Mutex::default())
        }
    }

    fn named(target: Option<&str>) -> String {
        target.unwrap_or("unnamed").to_owned()
    }

    impl Meters {
        pub(crate) fn new() -> Self {
            Self::default()
        }

        pub(crate) fn judged(&self, target: Option<&str>, verdict: &Verdict, report: &Report) {
            self.checked.get_or_init(|| metrics::counter!(CHECKED, "target" => named(target))).increment(1);
            if let Some(confidence) = report.confidence() {
                let make = || metrics::histogram!(CONFIDENCE, "target" => named(target));
                self.confidence.get_or_init(make).record(confidence);
            }
            if !verdict.is_success() {
                let class = verdict.class().as_str();
                let make = || metrics::counter!(FAILED, "target" => named(target), "class" => class);
                self.failed.add(class, make);
            }
            for finding in report.findings() {
                let (code, severity) = (finding.code(), finding.severity());
                let word = severity.as_str();
                let make = || metrics::counter!(FINDINGS, "target" => named(target), "code" => code, "severity" => word);
                self.findings.add((code, severity), make);
            }
        }

        pub(crate) fn tripped(&self, target: Option<&str>, rail: Rail) {
            let make = || {
                let (name, severity) = (rail.as_str(), rail.severity());
                metrics::counter!(RAILS_TRIPPED, "target" => named(target), "rail" => name, "severity" => severity)
            };
            self.rails.add(rail, make);
        }

        #[cfg(feature = "http")]
        pub(crate) fn unchecked(&self, target: Option<&str>, reason: &'static str) {
            let make = || metrics::counter!(UNCHECKED, "target" => named(target), "reason" => reason);
            self.unchecked.add(reason, make);
        }

        #[cfg(feature = "http")]
        pub(crate) fn cut(&self, target: Option<&str>, class: Class) {
            let class = class.as_str();
            let make = || metrics::counter!(CUT, "target" => named(target), "class" => class);
            self.cut.add(class, make);
        }
    }
}

#[cfg(not(feature = "metrics"))]
mod handles {
    #[cfg(feature = "http")]
    use failsoft_core::Class;
    use failsoft_core::{Report, Verdict};

    use crate::Rail;

    /// Nothing is counted.
    pub(crate) struct Meters;

    impl Meters {
        pub(crate) const fn new() -> Self {
            Self
        }

        pub(crate) const fn judged(&self, _: Option<&str>, _: &Verdict, _: &Report) {}
        pub(crate) const fn tripped(&self, _: Option<&str>, _: Rail) {}
        #[cfg(feature = "http")]
        pub(crate) const fn unchecked(&self, _: Option<&str>, _: &'static str) {}
        #[cfg(feature = "http")]
        pub(crate) const fn cut(&self, _: Option<&str>, _: Class) {}
    }
}

pub(crate) use self::handles::Meters;
