//! The tests of `breaker-layer`, in one binary: to link one for each file takes minutes.
//! Those of events stand alone, see CONTRIBUTING.md.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod balance;
mod bench;
mod bodies;
mod engine_canary;
mod engine_faults;
mod engine_last_resort;
mod engine_model;
mod engine_rules;
mod engine_settings;
mod engine_threads;
mod keyed;
mod keyed_bounds;
mod keyed_model;
mod layer;
mod layer_faults;
mod metrics;
mod model;
mod observation;
mod presets;
mod registry;
mod trail;
