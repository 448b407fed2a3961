//! Several layers together, in one binary: to link one for each file takes minutes.
#![allow(clippy::unwrap_used, reason = "a test's helpers fail by panicking")]

mod advice;
mod allocations;
mod answers;
mod async_openai;
mod bill;
mod book;
mod faults;
mod hedge;
mod opening;
mod outlive;
mod probes;
mod providers;
mod reflect;
mod replay;
mod server;
mod soft;
mod spend;
mod stream_wire;
mod streams;
mod told;
mod trail;
