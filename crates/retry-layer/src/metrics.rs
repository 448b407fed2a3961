//! What this crate counts through the crate [`metrics`](https://docs.rs/metrics), with its feature `metrics`. Every name has
//! the label `target`: the name given to the builder, or `unnamed`. Hosts that requests name are no labels: there may be any
//! number of them.
//!
//! ```
//! use retry_layer::metrics::{GAVE_UP, NAMES};
//!
//! assert!(NAMES.contains(&GAVE_UP));
//! ```

/// Counter: further attempts that were decided on. Label `class`: what the attempt before had failed of, such as `overloaded`.
pub const RETRIES: &str = "failsoft_retry_retries_total";

/// Counter: calls that succeeded, but not at once.
pub const RECOVERED: &str = "failsoft_retry_recovered_total";

/// Counter: calls that failed. Label `reason`: why there was no further attempt, such as `attempts_spent`, `budget_empty`,
/// `spend_denied` (a budget-layer's) or `final`.
pub const GAVE_UP: &str = "failsoft_retry_gave_up_total";

/// Counter: calls that waited before their first attempt, because another had been told to come back later.
pub const HELD: &str = "failsoft_retry_held_total";

/// Histogram, in seconds: the waits before further attempts.
pub const WAIT: &str = "failsoft_retry_wait_seconds";

/// Gauge: the tokens in the layer's budget, as of its last retry.
pub const BUDGET: &str = "failsoft_retry_budget_tokens";

/// Counter: requests that were sent beside a first one.
pub const HEDGES_SENT: &str = "failsoft_hedge_sent_total";

/// Counter: calls that such a request answered before the first.
pub const HEDGES_WON: &str = "failsoft_hedge_won_total";

/// Counter: calls that took longer than the delay, and were not sent once more. Label `reason`: `budget_empty`,
/// `spend_denied`, `attempts_spent`, `deadline_near`, `advice_too_long` (the target has said that it is too much), `not_ready` or
/// `not_repeatable`.
pub const HEDGES_SUPPRESSED: &str = "failsoft_hedge_suppressed_total";

/// Counter: changed requests that answered a wrong answer.
pub const REASKS_SENT: &str = "failsoft_reflect_reasks_total";

/// Counter: calls whose answer was good after that.
pub const REASKS_CURED: &str = "failsoft_reflect_cured_total";

/// Counter: calls whose answer stayed wrong. Label `reason`: as above, and `final` where no change could help.
pub const REASKS_GIVEN_UP: &str = "failsoft_reflect_given_up_total";

/// All of the names.
pub const NAMES: [&str; 12] = [
    RETRIES,
    RECOVERED,
    GAVE_UP,
    HELD,
    WAIT,
    BUDGET,
    HEDGES_SENT,
    HEDGES_WON,
    HEDGES_SUPPRESSED,
    REASKS_SENT,
    REASKS_CURED,
    REASKS_GIVEN_UP,
];

mod retries;

#[cfg(feature = "metrics")]
mod handles {
    use std::sync::OnceLock;

    use failsoft_core::Next;
    use metrics::Counter;

    /// One counter of one layer; it is made when it is first used, when the recorder is there.
    #[derive(Default)]
    pub(crate) struct Count(OnceLock<Counter>);

    /// One counter for each reason.
    #[derive(Default)]
    pub(crate) struct CountByReason([OnceLock<Counter>; 8]);

    impl Count {
        pub(crate) fn add(&self, name: &'static str, target: Option<&str>) {
            self.0.get_or_init(|| metrics::counter!(name, "target" => named(target))).increment(1);
        }
    }

    impl CountByReason {
        pub(crate) fn add(&self, name: &'static str, target: Option<&str>, why: Next) {
            let place = match why {
                Next::BudgetEmpty => 0,
                Next::AttemptsSpent => 1,
                Next::DeadlineNear => 2,
                Next::AdviceTooLong => 3,
                Next::NotReady => 4,
                Next::NotRepeatable => 5,
                Next::SpendDenied => 6,
                _ => 7,
            };
            let why = if place == 7 { Next::Final } else { why };
            let make = || metrics::counter!(name, "target" => named(target), "reason" => why.as_str());
            self.0[place].get_or_init(make).increment(1);
        }
    }

    fn named(target: Option<&str>) -> String {
        target.unwrap_or("unnamed").to_owned()
    }
}

#[cfg(not(feature = "metrics"))]
mod handles {
    use failsoft_core::Next;

    /// Nothing is counted.
    #[derive(Default)]
    pub(crate) struct Count;

    /// Nothing is counted.
    #[derive(Default)]
    pub(crate) struct CountByReason;

    impl Count {
        pub(crate) const fn add(&self, _: &'static str, _: Option<&str>) {}
    }

    impl CountByReason {
        pub(crate) const fn add(&self, _: &'static str, _: Option<&str>, _: Next) {}
    }
}

pub(crate) use self::{
    handles::{Count, CountByReason},
    retries::Meters,
};
