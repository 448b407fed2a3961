//! What the layers share: advice from servers, and how long to wait.

#[cfg(feature = "http")]
pub mod advice;
pub mod backoff;

/// A builder's setting that cannot work: which one, its value, and what would.
#[derive(Debug)]
pub struct ConfigError {
    message: String,
}

impl ConfigError {
    /// Names the builder, the field, its value and the accepted range.
    pub fn new(
        builder: &'static str,
        field: &'static str,
        value: impl std::fmt::Display,
        expected: impl std::fmt::Display,
    ) -> Self {
        Self { message: format!("{builder}: `{field}` is {value}, expected {expected}") }
    }
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ConfigError {}
