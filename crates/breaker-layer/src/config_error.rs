//! A setting that cannot be.

use std::fmt;

/// A setting that cannot be: which one, what it was, and what it may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    builder: &'static str,
    field: &'static str,
    value: String,
    expected: String,
}

impl ConfigError {
    pub(crate) fn new(
        builder: &'static str,
        field: &'static str,
        value: impl fmt::Display,
        expected: impl fmt::Display,
    ) -> Self {
        Self { builder, field, value: value.to_string(), expected: expected.to_string() }
    }

    /// The setting.
    pub fn field(&self) -> &'static str {
        self.field
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { builder, field, value, expected } = self;
        write!(f, "{builder}: {field} is {value}, expected {expected}")
    }
}

impl std::error::Error for ConfigError {}
