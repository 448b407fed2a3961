//! The tests of `validate-layer`, in one binary: to link one for each file takes minutes.
//! Those of events stand alone, see CONTRIBUTING.md.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod bounds;
mod checks;
mod confidence;
mod config;
mod corpus;
mod drift;
mod faults;
mod hostile;
mod judge;
mod markers;
mod metrics;
mod rails;
mod schema;
mod service;
mod sockets;
mod streams;
