//! The tests of `fallback-layer`, in one binary: to link one for each file takes minutes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's helpers fail by panicking")]

mod adapt;
mod adapt_chat;
mod allocations;
mod cache;
mod cache_flight;
mod cache_hostile;
mod cache_http;
mod check;
mod combinations;
mod contract;
mod http;
mod last_good;
mod metrics;
mod nested;
mod order;
mod restart;
mod routes;
mod slow_start;
mod support;
mod tiers;
mod time;
