//! The handles of a retry layer.

#[cfg(feature = "metrics")]
mod handles {
    use std::{
        fmt,
        sync::{Arc, Mutex, OnceLock, PoisonError},
        time::Duration,
    };

    use failsoft_core::{Class, Next};
    use metrics::{Counter, Gauge, Histogram};

    use crate::RetryBudget;

    /// The handles of one layer; each is made when it is first used, when the recorder is there.
    #[derive(Default)]
    pub(crate) struct Meters {
        target: Option<Arc<str>>,
        retries: PerValue,
        gave_up: PerValue,
        recovered: OnceLock<Counter>,
        held: OnceLock<Counter>,
        wait: OnceLock<Histogram>,
        budget: OnceLock<Gauge>,
    }

    /// A counter for each value of a label, of which there are a few dozen at most. Only failures come here.
    #[derive(Default)]
    struct PerValue(Mutex<Vec<(&'static str, Counter)>>);

    impl PerValue {
        fn count(&self, value: &'static str, make: impl FnOnce() -> Counter) {
            let mut counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, counter)) = counters.iter().find(|(of, _)| *of == value) {
                return counter.increment(1);
            }
            let counter = make();
            counter.increment(1);
            counters.push((value, counter));
        }
    }

    impl Meters {
        pub(crate) fn new(target: Option<Arc<str>>) -> Self {
            Self { target, ..Self::default() }
        }

        fn target(&self) -> String {
            self.target.as_deref().unwrap_or("unnamed").to_owned()
        }

        pub(crate) fn retry(&self, after: Class, wait: Duration, budget: Option<&RetryBudget>) {
            let class = after.as_str();
            self.retries.count(
                class,
                || metrics::counter!(crate::metrics::RETRIES, "target" => self.target(), "class" => class),
            );
            let make = || metrics::histogram!(crate::metrics::WAIT, "target" => self.target());
            self.wait.get_or_init(make).record(wait);
            if let Some(budget) = budget {
                let make = || metrics::gauge!(crate::metrics::BUDGET, "target" => self.target());
                self.budget.get_or_init(make).set(budget.balance());
            }
        }

        pub(crate) fn gave_up(&self, why: Next) {
            let why = why.as_str();
            self.gave_up.count(
                why,
                || metrics::counter!(crate::metrics::GAVE_UP, "target" => self.target(), "reason" => why),
            );
        }

        pub(crate) fn recovered(&self) {
            let make = || metrics::counter!(crate::metrics::RECOVERED, "target" => self.target());
            self.recovered.get_or_init(make).increment(1);
        }

        pub(crate) fn held(&self) {
            let make = || metrics::counter!(crate::metrics::HELD, "target" => self.target());
            self.held.get_or_init(make).increment(1);
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
    use std::{sync::Arc, time::Duration};

    use failsoft_core::{Class, Next};

    use crate::RetryBudget;

    /// Nothing is counted.
    #[derive(Clone, Copy, Debug, Default)]
    pub(crate) struct Meters;

    impl Meters {
        #[allow(clippy::needless_pass_by_value, reason = "as with the feature")]
        pub(crate) fn new(_: Option<Arc<str>>) -> Self {
            Self
        }

        pub(crate) const fn retry(self, _: Class, _: Duration, _: Option<&RetryBudget>) {}
        pub(crate) const fn gave_up(self, _: Next) {}
        pub(crate) const fn recovered(self) {}
        pub(crate) const fn held(self) {}
    }
}

pub(crate) use self::handles::Meters;
