//! The builder of a layer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use failsoft_core::{ByResponse, Class, ConfigError};

use crate::engine::{Mode, Over, Probes, Settings, SettingsBuilder, TripOn};
use crate::keyed::OneForAll;
use crate::table::Table;
use crate::{BreakerLayer, Circuit, Registry, Row};

/// Makes a [`BreakerLayer`]; [`build`](Self::build) checks. Ranges and defaults of what concerns the circuit
/// stand at the methods of [`SettingsBuilder`], which have the same names.
///
/// ```
/// use std::time::Duration;
/// use breaker_layer::{BreakerLayer, Row, engine::Over};
/// use failsoft_core::Class;
///
/// let layer = BreakerLayer::builder()
///     .name("model-a")
///     .over(Over::Calls(100))
///     .failure_rate(0.3)
///     .slow_after(Duration::from_secs(4)) // to first content
///     .slow_rate(0.5)
///     .on(Class::Auth, Row::AtOnce)
///     .build()?;
///
/// let err = BreakerLayer::builder().failure_rate(1.5).build().unwrap_err();
/// assert_eq!(err.to_string(), "BreakerLayer: `failure_rate` is 1.5, expected 0 to 1");
/// # Ok::<(), failsoft_core::ConfigError>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct BreakerBuilder<C = ByResponse, K = OneForAll> {
    pub(crate) circuit: CircuitBuilder,
    pub(crate) classify: C,
    pub(crate) waits: bool,
    pub(crate) registries: Vec<Registry>,
    pub(crate) keys: K,
}

/// What is set of a circuit; checked by [`plan`](Self::plan).
#[derive(Debug, Clone)]
pub(crate) struct CircuitBuilder {
    settings: SettingsBuilder,
    pub(crate) name: Option<Arc<str>>,
    rows: Vec<(Class, Row)>,
}

/// How to make a circuit, checked; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) settings: Arc<Settings>,
    pub(crate) table: Arc<Table>,
    pub(crate) name: Option<Arc<str>>,
}

impl CircuitBuilder {
    pub(crate) fn plan(self) -> Result<Plan, ConfigError> {
        if self.name.as_ref().is_some_and(|name| name.trim().is_empty()) {
            return Err(ConfigError::new("BreakerLayer", "name", "blank", "a name"));
        }
        let settings = self.settings.build()?;
        let table = Table::new(self.rows, settings.soft_weight())?;
        Ok(Plan { settings: settings.into(), table: table.into(), name: self.name })
    }
}

impl BreakerBuilder {
    pub(crate) fn new() -> Self {
        Self::of(CircuitBuilder { settings: Settings::builder(), name: None, rows: Vec::new() })
    }

    pub(crate) fn of(circuit: CircuitBuilder) -> Self {
        Self { circuit, classify: ByResponse, waits: false, registries: Vec::new(), keys: OneForAll }
    }
}

macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*);)+) => {$(
        $(#[$doc])*
        #[doc = concat!("\n\nSee also [`SettingsBuilder::", stringify!($name), "`].")]
        pub fn $name(mut self $(, $argument: $type)*) -> Self {
            self.circuit.settings = self.circuit.settings.$name($($argument),*);
            self
        }
    )+};
}

impl<C, K> BreakerBuilder<C, K> {
    /// The circuit's name: the target of its refusals, and the label of its events. Default none.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.circuit.name = Some(name.into());
        self
    }

    /// Who says what an outcome means. Default: [`ByResponse`], for `http::Response` and `reqwest::Response`;
    /// plain values take [`ErrorsOnly`](failsoft_core::ErrorsOnly) or
    /// [`classify_fn`](failsoft_core::classify_fn()).
    pub fn classify<D>(self, classify: D) -> BreakerBuilder<D, K> {
        let Self { circuit, waits, registries, keys, .. } = self;
        BreakerBuilder { circuit, classify, waits, registries, keys }
    }

    /// Changes what one class does to the circuit. Default: the table of the [crate](crate#what-counts).
    /// `Timeout` and `Soft` are changed kind by kind; what the target is not to blame for stays neutral, and so
    /// does a call that was dropped after its first content. Not for success and denials.
    pub fn on(mut self, class: Class, row: Row) -> Self {
        self.circuit.rows.push((class, row));
        self
    }

    /// Pending instead of ready while the circuit refuses, for balancers, which then ask another endpoint.
    /// Default: ready, and the call is refused. Readiness then holds the permit. Needs tokio's timer. Not
    /// together with a canary. A retry around the balancer goes on when this circuit opens, where one around a circuit
    /// that refuses would end.
    pub fn pending_while_open(mut self) -> Self {
        self.waits = true;
        self
    }

    /// Registers what is built, for a view of all circuits of a process; see [`Registry`].
    pub fn registry(mut self, registry: &Registry) -> Self {
        self.registries.push(registry.clone());
        self
    }

    settings! {
        /// Which past calls are looked at. Default: the last 60 s in 10 buckets. Practice for model
        /// endpoints is 20 to 100 calls, or 60 s to 5 min; longer than 5 min holds a grudge.
        over(over: Over);
        /// The calls below which no rate is formed. Default 10; clamped to the size of a window of
        /// calls, as the other minima. Counts and streaks have minima of their own. Where many calls begin
        /// at once, take more than run at the same time: failures end first.
        min_calls(calls: u32);
        /// The minimum for the slow rate alone. Default: as for the failure rate.
        slow_min_calls(calls: u32);
        /// The minimum for the share of soft failures alone. Default: as for the failure rate.
        soft_min_calls(calls: u32);
        /// The calls in the window below which no number of failures opens. Default 0.
        failures_min_calls(calls: u32);
        /// The calls in the window below which no streak opens. Default 0.
        consecutive_min_calls(calls: u32);
        /// Opens at this share of weighted failures, 0 to 1. Default 0.4; `None` for no such rule.
        failure_rate(rate: impl Into<Option<f64>>);
        /// Opens at this share of soft failures, 0 to 1, each counted as one. Default none: they count by
        /// their weight in the failure rate.
        soft_failure_rate(rate: impl Into<Option<f64>>);
        /// Opens at this share of slow calls, 0 to 1. Default none; needs
        /// [`slow_after`](Self::slow_after).
        slow_rate(rate: impl Into<Option<f64>>);
        /// A call that takes longer is slow; up to a year. Default none: then no clock is read for it.
        /// For bodies it is the time to first content.
        slow_after(limit: impl Into<Option<Duration>>);
        /// Opens when this quantile of the times to first content is over a limit, instead of `slow_after`
        /// and `slow_rate`: `slow_quantile(0.99, 4 s)`. Default none. `build()` refuses a minimum of calls
        /// that could not see it: a p99 needs 100.
        slow_quantile(quantile: f64, limit: Duration);
        /// Opens at so many soft failures in the window, each counted as one; from 1. Default none.
        soft_failures(failures: impl Into<Option<u32>>);
        /// Opens at so many failures in the window, by weight; from 1. Default none.
        failures(failures: impl Into<Option<u32>>);
        /// Opens at so many failures in a row, by weight; from 1. Default none: three timeouts in a
        /// quiet minute must not open a circuit.
        consecutive_failures(failures: impl Into<Option<u32>>);
        /// Which outcomes may open it. Default: any.
        trip_on(trip_on: TripOn);
        /// How much a soft failure weighs, above 0 and up to 1. Default 0.6.
        soft_weight(weight: f64);
        /// Accepts thresholds that soft failures alone could never reach. Default: they are refused.
        soft_alone_may_not_open();
        /// The first open time, 0 to a year. Default 30 s; below that circuits flap at peak hours. 0
        /// admits the next call as a probe.
        open_time(time: Duration);
        /// By how much the open time grows with each opening in a row, 1 to 1000. Default 2. Closing
        /// starts over.
        open_time_factor(factor: f64);
        /// The open times one by one instead: the first, after one failed half-open period, after two,
        /// …; the last one stays.
        open_times(times: impl IntoIterator<Item = Duration>);
        /// The longest open time it grows to, up to a year. Default 5 min, or the open time if that is
        /// longer.
        max_open_time(time: Duration);
        /// The part of the open time that is added at random, 0 to 1, inside the longest; and of the server's
        /// advice, whose end many are told alike, and which it never shortens. Default 0.1.
        jitter(jitter: f64);
        /// The open time after an outcome that opens at once, such as a spent quota: at least this, up
        /// to a year. Default: the longest open time, because a quota does not come back in seconds.
        at_once_open_time(time: Duration);
        /// The advice of a rate limit from which on the circuit opens until it is over. Default 5 s:
        /// shorter waits are the retry's.
        hold_from(advice: Duration);
        /// The longest advice that is believed, up to a year. Default 1 h: a wrong header must not shut
        /// a circuit for days.
        max_advice(advice: Duration);
        /// So many rate limits in a row without advice open it; from 1. Default 5.
        rate_limited_in_a_row(calls: u32);
        /// How a half-open period is decided: by probes, or by a canary. Default: 3 probes, at least 85 %
        /// good.
        probes(probes: Probes);
        /// So many slow probes open, 1 to the number of probes. Default: the slow rate's share of the
        /// probes.
        slow_probes_to_open(probes: u32);
        /// How long a half-open period may last without decision and without progress of a probe, 1 ms
        /// to a year. Default 60 s. After that it opens again, for the same time as before, and not before
        /// the server's advice is over; but if all its probes came back good, it goes on waiting for more
        /// calls. It should be longer than a probe needs to its first content.
        lease(lease: Duration);
        /// How many last-resort calls may run at once while it refuses, 0 to 1 000 000. Default 3. While it is
        /// open, enough good ones close it, as probes would.
        last_resort(calls: u32);
        /// The mode it starts in. Default enforcing.
        mode(mode: Mode);
        /// Makes jitter repeatable. Default: another one each time.
        seed(seed: u64);
    }
}

impl<C> BreakerBuilder<C> {
    /// Checks everything and makes the circuit.
    ///
    /// # Errors
    ///
    /// Names the first setting that is out of its range or contradicts another.
    pub fn build(self) -> Result<BreakerLayer<C>, ConfigError> {
        let Plan { settings, table, name } = self.circuit.plan()?;
        if self.waits && settings.is_canary() {
            let expected = "off beside a canary: what waits makes no calls, of which a share could be taken";
            return Err(ConfigError::new("BreakerLayer", "pending_while_open", "on", expected));
        }
        let circuit = Circuit::new(settings, name, table, None, self.waits);
        self.registries.iter().for_each(|registry| registry.add(&circuit));
        Ok(BreakerLayer { circuit, classify: self.classify, waits: self.waits })
    }
}

failsoft_core::unbuilt!([C, K] BreakerBuilder<C, K>);

impl<C, K> fmt::Debug for BreakerBuilder<C, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BreakerBuilder")
            .field("name", &self.circuit.name)
            .field("settings", &self.circuit.settings)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_waits_makes_no_calls_for_a_canary() {
        let canary = BreakerBuilder::new().probes(Probes::Canary { one_in: 20, calls: 5, good: 0.8 });
        assert!(canary.clone().build().is_ok());
        assert_eq!(canary.pending_while_open().build().unwrap_err().field(), "pending_while_open");
    }

    #[test]
    fn a_blank_name_is_refused() {
        for blank in ["", " \n"] {
            assert_eq!(BreakerBuilder::new().name(blank).build().unwrap_err().field(), "name");
        }
    }
}
