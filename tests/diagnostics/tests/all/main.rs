//! What the compiler says, and what `build` says.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's helpers fail by panicking")]

mod build_errors;
mod mistakes;
