//! The tests of `budget-layer`, in one binary: to link one for each file takes minutes.
//! Those of events stand alone, see CONTRIBUTING.md.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails ends here")]

mod admission;
mod allocations;
mod book;
mod budgets;
#[path = "../common/mod.rs"]
mod common;
mod hostile;
mod learning;
mod lease_line;
mod loopback;
mod metrics;
mod model;
mod model_budgets;
mod model_threads;
mod plain;
#[path = "../common/processes.rs"]
mod processes;
mod quota;
mod restart;
mod settling;
mod store;
mod waiting;
