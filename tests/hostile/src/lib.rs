//! What must hold for any bytes that a peer sends: no panic, bounded memory, and the same however the bytes are cut.
//!
//! Each function takes the bytes of a fuzzer and panics where something does not hold. `tests/any_bytes.rs` calls them with
//! what proptest makes up, and the targets in `fuzz/` are one line each.

#![allow(clippy::panic, reason = "to panic is how a target says no")]

mod advice;
mod answers;
mod arguments;
mod cuts;
mod framers;

pub use self::{
    advice::advice,
    answers::answers,
    arguments::arguments,
    framers::{arrays, events, lines, messages},
};
