//! The tests of `stream-layer`, in one binary: to link one for each file takes minutes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod array;
mod commit;
mod common;
mod eventstream;
mod faults;
mod framing;
mod soft;
mod timers;
mod wire;
