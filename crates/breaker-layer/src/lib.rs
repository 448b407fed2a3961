//! A circuit breaker as a `tower` layer, and its engine.

mod config_error;
pub mod engine;

pub use crate::config_error::ConfigError;
