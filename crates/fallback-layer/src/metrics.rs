//! What this crate counts through the crate [`metrics`](https://docs.rs/metrics), with its feature `metrics`. Every name
//! has the label `target`, the first route's name. Five activations a minute are worth an alert.
//!
//! ```
//! use fallback_layer::metrics::{ACTIVATIONS, NAMES};
//!
//! assert!(NAMES.contains(&ACTIVATIONS));
//! ```

/// Counter: routes that were asked in another's place. Labels `route`: the one that was asked; `class`: what the one before
/// had failed of, such as `overloaded`, or `denied.circuit` where it was passed over for its health.
pub const ACTIVATIONS: &str = "failsoft_fallback_activations_total";

/// Histogram: the [cost factor](crate::Route::cost_factor) of each activation. Label `route`.
pub const COST_FACTOR: &str = "failsoft_fallback_cost_factor";

/// Counter: last good answers that stood in. Label `class`: what the call had failed of.
pub const LAST_GOOD: &str = "failsoft_fallback_last_good_total";

/// Counter: routes that were asked as a last resort, because all that were left were in poor health. Label `route`.
pub const LAST_RESORTS: &str = "failsoft_fallback_last_resorts_total";

/// Counter: routes that were started beside one that was [slow](crate::Builder::slow_start); they are among the activations
/// too, with the class `timeout.first_content`. Label `route`: the one that was started.
pub const SLOW_STARTS: &str = "failsoft_fallback_slow_starts_total";

/// Counter: calls that failed after more than one route, or without any. Label `class`: of what.
pub const EXHAUSTED: &str = "failsoft_fallback_exhausted_total";

/// Counter: [active checks](crate::check). Label `outcome`: `good`, `bad`, or `none` for those that were not made, because the
/// budget was used up or a layer of ours denied them. The label `target` is the check's name.
pub const CHECKS: &str = "failsoft_fallback_checks_total";

/// Counter: looks into a [cache](crate::Builder::keep_last_good), whose name is the label `target`. Label `result`: `hit`,
/// `similar`, `shared` (the answer of another call that was running), `miss`, or `bypass` (not to be looked up).
pub const CACHE_LOOKUPS: &str = "failsoft_fallback_cache_lookups_total";

/// Counter: answers that a cache did not keep. Label `why`: `head`, `personal`, `vary`, `degraded`, `too_long`, `trailers`,
/// `cut`, `bad`, `unjudged`, `no_room`.
pub const CACHE_NOT_KEPT: &str = "failsoft_fallback_cache_not_kept_total";

/// Gauge: answers in a cache.
pub const CACHE_ENTRIES: &str = "failsoft_fallback_cache_entries";

/// Gauge: bytes that the answers in a cache count for.
pub const CACHE_BYTES: &str = "failsoft_fallback_cache_bytes";

/// All of the names.
pub const NAMES: [&str; 11] = [
    ACTIVATIONS,
    COST_FACTOR,
    LAST_GOOD,
    LAST_RESORTS,
    SLOW_STARTS,
    EXHAUSTED,
    CHECKS,
    CACHE_LOOKUPS,
    CACHE_NOT_KEPT,
    CACHE_ENTRIES,
    CACHE_BYTES,
];

#[cfg(feature = "metrics")]
mod handles {
    use std::{
        fmt,
        sync::{Arc, Mutex, PoisonError},
    };

    use failsoft_core::Class;
    use metrics::{Counter, Histogram};

    use super::{ACTIVATIONS, CHECKS, COST_FACTOR, EXHAUSTED, LAST_GOOD, LAST_RESORTS, SLOW_STARTS};

    /// The handles of one layer; each is made when it is first used, when the recorder is there. Routes have their place
    /// as key, and there are a few dozen classes. Only failures come here.
    #[derive(Default)]
    pub(crate) struct Meters {
        target: Arc<str>,
        activations: Each<(usize, &'static str), Counter>,
        cost_factor: Each<usize, Histogram>,
        last_good: Each<&'static str, Counter>,
        last_resorts: Each<usize, Counter>,
        slow_starts: Each<usize, Counter>,
        exhausted: Each<&'static str, Counter>,
    }

    struct Each<K, H>(Mutex<Vec<(K, H)>>);

    impl<K: PartialEq, H: Clone> Each<K, H> {
        fn get(&self, key: K, make: impl FnOnce() -> H) -> H {
            let mut handles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, handle)) = handles.iter().find(|(of, _)| *of == key) {
                return handle.clone();
            }
            let handle = make();
            handles.push((key, handle.clone()));
            handle
        }
    }

    impl<K, H> Default for Each<K, H> {
        fn default() -> Self {
            Self(Mutex::default())
        }
    }

    impl Meters {
        pub(crate) fn new(target: Arc<str>) -> Self {
            Self { target, ..Self::default() }
        }

        fn target(&self) -> String {
            self.target.to_string()
        }

        pub(crate) fn activation(&self, place: usize, route: Option<&str>, after: Class, cost_factor: f64) {
            let (class, route) = (after.as_str(), || route.unwrap_or("-").to_owned());
            let make = || metrics::counter!(ACTIVATIONS, "target" => self.target(), "route" => route(), "class" => class);
            self.activations.get((place, class), make).increment(1);
            let make = || metrics::histogram!(COST_FACTOR, "target" => self.target(), "route" => route());
            self.cost_factor.get(place, make).record(cost_factor);
        }

        pub(crate) fn last_good(&self, after: Class) {
            let class = after.as_str();
            let make = || metrics::counter!(LAST_GOOD, "target" => self.target(), "class" => class);
            self.last_good.get(class, make).increment(1);
        }

        pub(crate) fn last_resort(&self, place: usize, route: Option<&str>) {
            let route = || route.unwrap_or("-").to_owned();
            let make = || metrics::counter!(LAST_RESORTS, "target" => self.target(), "route" => route());
            self.last_resorts.get(place, make).increment(1);
        }

        pub(crate) fn slow_start(&self, place: usize, route: Option<&str>) {
            let route = || route.unwrap_or("-").to_owned();
            let make = || metrics::counter!(SLOW_STARTS, "target" => self.target(), "route" => route());
            self.slow_starts.get(place, make).increment(1);
        }

        pub(crate) fn exhausted(&self, class: Class) {
            let class = class.as_str();
            let make = || metrics::counter!(EXHAUSTED, "target" => self.target(), "class" => class);
            self.exhausted.get(class, make).increment(1);
        }
    }

    /// The handles of one active check.
    pub(crate) struct CheckMeters {
        target: Arc<str>,
        checks: Each<&'static str, Counter>,
    }

    impl CheckMeters {
        pub(crate) fn new(target: Arc<str>) -> Self {
            Self { target, checks: Each::default() }
        }

        pub(crate) fn checked(&self, good: Option<bool>) {
            let outcome = match good {
                Some(true) => "good",
                Some(false) => "bad",
                None => "none",
            };
            let make =
                || metrics::counter!(CHECKS, "target" => self.target.to_string(), "outcome" => outcome);
            self.checks.get(outcome, make).increment(1);
        }
    }

    impl fmt::Debug for Meters {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Meters").field("target", &self.target).finish_non_exhaustive()
        }
    }
}

#[cfg(not(feature = "metrics"))]
mod handles {
    use std::sync::Arc;

    use failsoft_core::Class;

    /// Nothing is counted.
    #[derive(Clone, Copy, Debug, Default)]
    pub(crate) struct Meters;

    /// Nothing is counted.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct CheckMeters;

    #[allow(clippy::needless_pass_by_value, reason = "as with the feature")]
    impl CheckMeters {
        pub(crate) fn new(_: Arc<str>) -> Self {
            Self
        }

        pub(crate) const fn checked(self, _: Option<bool>) {}
    }

    impl Meters {
        #[allow(clippy::needless_pass_by_value, reason = "as with the feature")]
        pub(crate) fn new(_: Arc<str>) -> Self {
            Self
        }

        pub(crate) const fn activation(self, _: usize, _: Option<&str>, _: Class, _: f64) {}
        pub(crate) const fn last_good(self, _: Class) {}
        pub(crate) const fn last_resort(self, _: usize, _: Option<&str>) {}
        pub(crate) const fn slow_start(self, _: usize, _: Option<&str>) {}
        pub(crate) const fn exhausted(self, _: Class) {}
    }
}

pub(crate) use self::handles::{CheckMeters, Meters};
