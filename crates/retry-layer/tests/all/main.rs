//! The tests of `retry-layer`, in one binary: to link one for each file takes minutes.
#![allow(clippy::unwrap_used, reason = "a test that fails ends here")]

mod attempts;
mod blockers;
mod common;
mod contract;
mod faults;
mod hedge;
mod hedge_http;
mod hedge_http2;
mod limits;
mod metrics;
mod outage;
mod presets;
mod reflect;
mod requests;
mod reqwest;
mod retry_metrics;
mod shared_advice;
