//! The tests of `llm-layer`, in one binary: to link one for each file takes minutes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod alike;
mod alike_native;
mod allocations;
mod anthropic_sse;
mod attempted;
mod common;
mod dropping;
mod hostile;
mod limits;
mod native;
mod native_hostile;
mod native_http;
mod responses_sse;
mod service;
mod slots;
mod small_room;
mod sse;
mod sse_hostile;
mod sse_http;
mod wire;
mod wire_http;
