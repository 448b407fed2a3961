//! What this crate counts through the crate [`metrics`](https://docs.rs/metrics), with its feature `metrics`. Every name has
//! the label `target`: what the budgets are called. Keys are no labels: there may be any number of them.
//!
//! ```
//! use budget_layer::metrics::{DENIED, NAMES};
//!
//! assert!(NAMES.contains(&DENIED));
//! ```
//!
//! Amounts are in the unit of the budget. The counters are those of all its keys together; the gauges are set when
//! [`Ledger::publish`](crate::Ledger::publish) is called, such as before a scrape.

/// Counter: calls that were settled. Label `outcome`: how they ended, such as `success` or `cancelled`.
pub const CALLS: &str = "failsoft_budget_calls_total";

/// Counter: what was spent, late usage included. Label `outcome`.
pub const SPENT: &str = "failsoft_budget_spent_total";

/// Counter: what was reserved for the calls that were settled: beside what they spent, it says how good the estimates are.
pub const RESERVED: &str = "failsoft_budget_reserved_total";

/// Counter: what calls spent beyond what was reserved for them, late usage included. While it stands still, nothing is overspent.
pub const OVERSHOOT: &str = "failsoft_budget_overshoot_total";

/// Counter: calls that did not say, or not fully, what they used: their estimate stands in.
pub const UNKNOWN_USAGE: &str = "failsoft_budget_unknown_usage_total";

/// Counter: how often usage was booked for a call that had already been settled.
pub const LATE_USAGE: &str = "failsoft_budget_late_usage_total";

/// Counter: calls that were denied. Label `reason`: a [`Reason`](crate::Reason), such as `used_up` or `unpriced`.
pub const DENIED: &str = "failsoft_budget_denied_total";

/// Counter: calls that went on to routes that cost nothing, instead of being denied. Label `reason`.
pub const FREE_ONLY: &str = "failsoft_budget_free_only_total";

/// Counter: further attempts of admitted calls, by a retry, a hedge or a fallback further in, for which there was nothing left.
pub const ATTEMPTS_DENIED: &str = "failsoft_budget_attempts_denied_total";

/// Counter: calls that had to wait for their turn.
pub const WAITED: &str = "failsoft_budget_waited_total";

/// Counter: lines that budgets passed. Label `line`: `soft`, or the share of the limit in percent, such as `50`.
pub const LINES_CROSSED: &str = "failsoft_budget_lines_crossed_total";

/// Counter: calls after which more was spent than the limit allows.
pub const OVERRUNS: &str = "failsoft_budget_overruns_total";

/// Counter: how often a budget was paused, because too much was spent in a short time.
pub const PAUSES: &str = "failsoft_budget_pauses_total";

/// Gauge: what is reserved for calls in flight, of all keys together.
pub const IN_FLIGHT: &str = "failsoft_budget_in_flight";

/// Gauge: how many keys there are.
pub const KEYS: &str = "failsoft_budget_keys";

/// Counter: how often the [store](crate::Store) was asked for a lease and failed.
pub const STORE_FAILURES: &str = "failsoft_budget_store_failures_total";

/// Gauge: 1 while the store fails, else 0.
pub const STORE_FAILING: &str = "failsoft_budget_store_failing";

/// All of the names.
pub const NAMES: [&str; 17] = [
    CALLS,
    SPENT,
    RESERVED,
    OVERSHOOT,
    UNKNOWN_USAGE,
    LATE_USAGE,
    DENIED,
    FREE_ONLY,
    ATTEMPTS_DENIED,
    WAITED,
    LINES_CROSSED,
    OVERRUNS,
    PAUSES,
    IN_FLIGHT,
    KEYS,
    STORE_FAILURES,
    STORE_FAILING,
];

/// What one settled call did to one budget.
#[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "nothing is counted"))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    pub(crate) outcome: crate::Outcome,
    pub(crate) reserved: u64,
    pub(crate) used: u64,
    pub(crate) unknown: bool,
}

#[cfg(feature = "metrics")]
mod handles {
    use std::{
        fmt,
        sync::{Mutex, OnceLock, PoisonError},
    };

    use metrics::{Counter, Label};

    use super::{
        ATTEMPTS_DENIED, CALLS, DENIED, FREE_ONLY, IN_FLIGHT, KEYS, LATE_USAGE, LINES_CROSSED, OVERRUNS,
        OVERSHOOT, PAUSES, RESERVED, SPENT, STORE_FAILING, STORE_FAILURES, Settled, UNKNOWN_USAGE, WAITED,
    };
    use crate::{Outcome, Reason};

    /// The handles of all budgets of a ledger; each is made when it is first used, when the recorder is there.
    #[derive(Default)]
    pub(crate) struct Meters {
        calls: [OnceLock<Counter>; Outcome::COUNT],
        spent: [OnceLock<Counter>; Outcome::COUNT],
        reserved: OnceLock<Counter>,
        overshoot: OnceLock<Counter>,
        unknown: OnceLock<Counter>,
        late: OnceLock<Counter>,
        /// Of what happens rarely.
        rare: Mutex<Vec<(Rare, Counter)>>,
    }

    /// A counter with its label.
    type Rare = (&'static str, Option<(&'static str, Value)>);

    /// The value of a label.
    #[derive(Clone, Copy, PartialEq)]
    enum Value {
        Name(&'static str),
        Millionths(u32),
    }

    impl Meters {
        #[inline]
        pub(crate) fn settled(&self, target: &str, settled: Settled) {
            let Settled { outcome, reserved, used, unknown } = settled;
            by_outcome(&self.calls, CALLS, target, outcome, 1);
            by_outcome(&self.spent, SPENT, target, outcome, used);
            plain(&self.reserved, RESERVED, target, reserved);
            plain(&self.overshoot, OVERSHOOT, target, used.saturating_sub(reserved));
            plain(&self.unknown, UNKNOWN_USAGE, target, u64::from(unknown));
        }

        pub(crate) fn late(&self, target: &str, outcome: Outcome, more: u64) {
            by_outcome(&self.spent, SPENT, target, outcome, more);
            plain(&self.overshoot, OVERSHOOT, target, more);
            plain(&self.late, LATE_USAGE, target, 1);
        }

        pub(crate) fn denied(&self, target: &str, reason: Reason) {
            self.rare(target, (DENIED, Some(("reason", Value::Name(reason.as_str())))));
        }

        pub(crate) fn free_only(&self, target: &str, reason: Reason) {
            self.rare(target, (FREE_ONLY, Some(("reason", Value::Name(reason.as_str())))));
        }

        pub(crate) fn attempt_denied(&self, target: &str) {
            self.rare(target, (ATTEMPTS_DENIED, None));
        }

        pub(crate) fn waits(&self, target: &str) {
            self.rare(target, (WAITED, None));
        }

        pub(crate) fn soft_line(&self, target: &str) {
            self.rare(target, (LINES_CROSSED, Some(("line", Value::Name("soft")))));
        }

        pub(crate) fn alert(&self, target: &str, millionths: u32) {
            self.rare(target, (LINES_CROSSED, Some(("line", Value::Millionths(millionths)))));
        }

        pub(crate) fn overrun(&self, target: &str) {
            self.rare(target, (OVERRUNS, None));
        }

        pub(crate) fn paused(&self, target: &str) {
            self.rare(target, (PAUSES, None));
        }

        pub(crate) fn store_failed(&self, target: &str) {
            self.rare(target, (STORE_FAILURES, None));
            metrics::gauge!(STORE_FAILING, "target" => target.to_owned()).set(1);
        }

        #[allow(clippy::unused_self, reason = "as the others")]
        pub(crate) fn store_recovered(&self, target: &str) {
            metrics::gauge!(STORE_FAILING, "target" => target.to_owned()).set(0);
        }

        /// Not often enough for handles of their own.
        #[allow(clippy::unused_self, reason = "as the others")]
        pub(crate) fn publish(&self, target: &str, in_flight: u64, keys: usize) {
            metrics::gauge!(IN_FLIGHT, "target" => target.to_owned()).set(in_flight as f64);
            metrics::gauge!(KEYS, "target" => target.to_owned()).set(keys as f64);
        }

        fn rare(&self, target: &str, rare: Rare) {
            let mut counters = self.rare.lock().unwrap_or_else(PoisonError::into_inner);
            let known = counters.iter().find(|(of, _)| *of == rare).map(|(_, counter)| counter.clone());
            let counter = known.unwrap_or_else(|| {
                let counter = make(rare, target);
                counters.push((rare, counter.clone()));
                counter
            });
            drop(counters);
            counter.increment(1);
        }
    }

    #[inline]
    fn by_outcome(
        counters: &[OnceLock<Counter>; Outcome::COUNT],
        name: &'static str,
        target: &str,
        outcome: Outcome,
        by: u64,
    ) {
        if by > 0 {
            let make =
                || metrics::counter!(name, "target" => target.to_owned(), "outcome" => outcome.as_str());
            counters[outcome.index()].get_or_init(make).increment(by);
        }
    }

    #[inline]
    fn plain(counter: &OnceLock<Counter>, name: &'static str, target: &str, by: u64) {
        if by > 0 {
            counter.get_or_init(|| metrics::counter!(name, "target" => target.to_owned())).increment(by);
        }
    }

    fn make((name, label): Rare, target: &str) -> Counter {
        let mut labels = vec![Label::new("target", target.to_owned())];
        labels.extend(label.map(|(label, value)| match value {
            Value::Name(value) => Label::from_static_parts(label, value),
            Value::Millionths(value) => Label::new(label, (f64::from(value) / 1e4).to_string()),
        }));
        metrics::counter!(name, labels)
    }

    impl fmt::Debug for Meters {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Meters").finish_non_exhaustive()
        }
    }
}

#[cfg(not(feature = "metrics"))]
mod handles {
    use super::Settled;
    use crate::{Outcome, Reason};

    /// Nothing is counted.
    #[derive(Debug, Default)]
    pub(crate) struct Meters(());

    #[allow(clippy::unused_self, reason = "as with the feature")]
    impl Meters {
        #[inline]
        pub(crate) const fn settled(&self, _: &str, _: Settled) {}
        pub(crate) const fn late(&self, _: &str, _: Outcome, _: u64) {}
        pub(crate) const fn denied(&self, _: &str, _: Reason) {}
        pub(crate) const fn free_only(&self, _: &str, _: Reason) {}
        pub(crate) const fn attempt_denied(&self, _: &str) {}
        pub(crate) const fn waits(&self, _: &str) {}
        pub(crate) const fn soft_line(&self, _: &str) {}
        pub(crate) const fn alert(&self, _: &str, _: u32) {}
        pub(crate) const fn overrun(&self, _: &str) {}
        pub(crate) const fn paused(&self, _: &str) {}
        pub(crate) const fn store_failed(&self, _: &str) {}
        pub(crate) const fn store_recovered(&self, _: &str) {}
        pub(crate) const fn publish(&self, _: &str, _: u64, _: usize) {}
    }
}

pub(crate) use self::handles::Meters;
