//! [`ConfigError`]: what a builder says when it is asked to build nonsense.
//!
//! ```
//! use failsoft_core::ConfigError;
//!
//! let err = ConfigError::new("RetryLayer", "factor", 0.5, "at least 1");
//! assert_eq!(err.to_string(), "RetryLayer: `factor` is 0.5, expected at least 1");
//! assert_eq!(err.field(), "factor");
//! ```

use std::{error::Error, fmt};

/// A setting outside its range, or one that contradicts another. Every builder's `build()` returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    builder: &'static str,
    field: &'static str,
    value: Box<str>,
    expected: Box<str>,
}

impl ConfigError {
    /// Names the builder, the field, its value and the range that is accepted.
    #[must_use]
    pub fn new(
        builder: &'static str,
        field: &'static str,
        value: impl fmt::Display,
        expected: impl fmt::Display,
    ) -> Self {
        Self { builder, field, value: value.to_string().into(), expected: expected.to_string().into() }
    }

    /// Checks that a number is finite and within `min..=max`.
    ///
    /// # Errors
    ///
    /// Names the field when it is NaN, infinite or outside the range.
    pub fn check_range(
        builder: &'static str,
        field: &'static str,
        value: f64,
        min: f64,
        max: f64,
    ) -> Result<(), Self> {
        if value.is_finite() && value >= min && value <= max {
            return Ok(());
        }
        Err(Self::new(builder, field, value, format_args!("a number from {min} to {max}")))
    }

    /// The builder that refused.
    #[must_use]
    pub const fn builder(&self) -> &'static str {
        self.builder
    }

    /// The field's name, as the builder's method is called.
    #[must_use]
    pub const fn field(&self) -> &'static str {
        self.field
    }

    /// The value that was refused.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// What would have been accepted.
    #[must_use]
    pub fn expected(&self) -> &str {
        &self.expected
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { builder, field, value, expected } = self;
        write!(f, "{builder}: `{field}` is {value}, expected {expected}")
    }
}

impl Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_refuses_nan_infinity_and_what_lies_outside() {
        for bad in [f64::NAN, f64::INFINITY, -0.1, 1.1] {
            let err = ConfigError::check_range("X", "ratio", bad, 0.0, 1.0).unwrap_err();
            assert_eq!(err.field(), "ratio");
        }
        assert!(ConfigError::check_range("X", "ratio", 0.0, 0.0, 1.0).is_ok());
    }
}
