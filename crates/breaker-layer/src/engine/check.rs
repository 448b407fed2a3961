//! Ranges, with an error that names the setting.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::word::MAX_PROBES;
use failsoft_core::ConfigError;

/// Checks settings of the builder of this name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Check(pub(crate) &'static str);

impl Check {
    pub(crate) fn error(
        self,
        field: &'static str,
        value: impl Display,
        expected: impl Display,
    ) -> ConfigError {
        ConfigError::new(self.0, field, value, expected)
    }

    pub(crate) fn count(
        self,
        field: &'static str,
        value: u32,
        range: RangeInclusive<u32>,
    ) -> Result<(), ConfigError> {
        if range.contains(&value) {
            return Ok(());
        }
        Err(self.error(field, value, format_args!("{} to {}", range.start(), range.end())))
    }

    pub(crate) fn probes(self, field: &'static str, probes: u32) -> Result<(), ConfigError> {
        self.count(field, probes, 1..=MAX_PROBES)
    }

    /// 0 to 1, not NaN.
    pub(crate) fn share(self, field: &'static str, value: f64) -> Result<f64, ConfigError> {
        if (0.0..=1.0).contains(&value) { Ok(value) } else { Err(self.error(field, value, "0 to 1")) }
    }

    pub(crate) fn optional_share(
        self,
        field: &'static str,
        value: Option<f64>,
    ) -> Result<Option<f64>, ConfigError> {
        value.map(|value| self.share(field, value)).transpose()
    }

    pub(crate) fn at_most(
        self,
        field: &'static str,
        value: Duration,
        most: Duration,
    ) -> Result<(), ConfigError> {
        self.within(field, value, Duration::ZERO, most)
    }

    pub(crate) fn within(
        self,
        field: &'static str,
        value: Duration,
        least: Duration,
        most: Duration,
    ) -> Result<(), ConfigError> {
        if (least..=most).contains(&value) {
            return Ok(());
        }
        Err(self.error(field, format_args!("{value:?}"), format_args!("{least:?} to {most:?}")))
    }
}
