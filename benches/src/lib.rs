//! What the layers cost a call, beside the published peers, in one process.
//!
//! `cargo run --release -q -p benches --bin overhead` prints a table: nanoseconds of a whole call with one thread and
//! with two that start together, allocations, and polls that found it pending. The inner service is always ready and
//! answers at once, so all of it is overhead. Each figure is the least of several runs: the machine's noise only adds.

mod measure;

pub use self::measure::{Echo, Row, measure};
