//! What the layers cost a call, beside the published peers, in one process.
//!
//! `cargo run --release -q -p benches --bin overhead` prints a table: nanoseconds of a whole call with one task and
//! with two OS threads that start together, allocations, and how often a call made its task yield. The inner service
//! is always ready and answers at once, so what a row costs more than `bare` is overhead. The README says what bounds
//! each figure.

mod echo;
mod measure;

pub use self::{
    echo::Echo,
    measure::{Row, Subject, measure_all},
};
