//! The builder of a layer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use failsoft_core::{ByResponse, Class, ConfigError};
use tokio::time::Instant;

use crate::engine::{Engine, Mode, Over, Probes, Settings, SettingsBuilder, TripOn};
use crate::table::Table;
use crate::{BreakerLayer, Circuit, Row};

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
pub struct BreakerBuilder<C = ByResponse> {
    settings: SettingsBuilder,
    name: Option<Arc<str>>,
    classify: C,
    rows: Vec<(Class, Row)>,
    waits: bool,
}

impl BreakerBuilder {
    pub(crate) fn new() -> Self {
        let settings = Settings::builder();
        Self { settings, name: None, classify: ByResponse, rows: Vec::new(), waits: false }
    }
}

macro_rules! settings {
    ($($name:ident($($argument:ident: $type:ty)?);)+) => {$(
        #[doc = concat!("[`SettingsBuilder::", stringify!($name), "`]")]
        pub fn $name(mut self $(, $argument: $type)?) -> Self {
            self.settings = self.settings.$name($($argument)?);
            self
        }
    )+};
}

impl<C> BreakerBuilder<C> {
    /// The circuit's name: the target of its refusals, and the label of its events. Default none.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Who says what an outcome means. Default: [`ByResponse`], for `http::Response` and `reqwest::Response`;
    /// plain values take [`ErrorsOnly`](failsoft_core::ErrorsOnly) or
    /// [`classify_fn`](failsoft_core::classify_fn()).
    pub fn classify<D>(self, classify: D) -> BreakerBuilder<D> {
        let Self { settings, name, rows, waits, .. } = self;
        BreakerBuilder { settings, name, classify, rows, waits }
    }

    /// Changes what one class does to the circuit. Default: the table of the [crate](crate#what-counts).
    /// `Timeout` and `Soft` are changed kind by kind; what the target is not to blame for stays neutral. Not
    /// for success and denials.
    pub fn on(mut self, class: Class, row: Row) -> Self {
        self.rows.push((class, row));
        self
    }

    /// Pending instead of ready while the circuit refuses, for balancers, which then ask another endpoint.
    /// Default: ready, and the call is refused. Readiness then holds the permit. Needs tokio's timer.
    pub fn pending_while_open(mut self) -> Self {
        self.waits = true;
        self
    }

    settings! {
        over(over: Over);
        min_calls(calls: u32);
        slow_min_calls(calls: u32);
        failure_rate(rate: impl Into<Option<f64>>);
        slow_rate(rate: impl Into<Option<f64>>);
        slow_after(limit: impl Into<Option<Duration>>);
        failures(failures: impl Into<Option<u32>>);
        consecutive_failures(failures: impl Into<Option<u32>>);
        trip_on(trip_on: TripOn);
        soft_weight(weight: f64);
        soft_alone_may_not_open();
        open_time(time: Duration);
        open_time_factor(factor: f64);
        open_times(times: impl IntoIterator<Item = Duration>);
        max_open_time(time: Duration);
        jitter(jitter: f64);
        at_once_open_time(time: Duration);
        hold_from(advice: Duration);
        max_advice(advice: Duration);
        rate_limited_in_a_row(calls: u32);
        probes(probes: Probes);
        slow_probes_to_open(probes: u32);
        lease(lease: Duration);
        last_resort(calls: u32);
        mode(mode: Mode);
        seed(seed: u64);
    }

    /// Checks everything and makes the circuit.
    ///
    /// # Errors
    ///
    /// Names the first setting that is out of its range or contradicts another.
    pub fn build(self) -> Result<BreakerLayer<C>, ConfigError> {
        if self.name.as_ref().is_some_and(|name| name.trim().is_empty()) {
            return Err(ConfigError::new("BreakerLayer", "name", "blank", "a name"));
        }
        let settings = self.settings.build()?;
        let table = Table::new(self.rows, settings.soft_weight())?;
        let engine = Engine::new(settings, Instant::now());
        let circuit = Circuit::new(engine, self.name, table);
        Ok(BreakerLayer { circuit, classify: self.classify, waits: self.waits })
    }
}

impl<C> fmt::Debug for BreakerBuilder<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BreakerBuilder")
            .field("name", &self.name)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blank_name_is_refused() {
        for blank in ["", " \n"] {
            assert_eq!(BreakerBuilder::new().name(blank).build().unwrap_err().field(), "name");
        }
    }
}
