//! Stacks of several layers around real clients; the tests are in `tests/`. The code of the READMEs that have several layers in
//! it is compiled here.

#![cfg_attr(doctest, doc = include_str!("../../../README.md"))]

#[cfg(doctest)]
#[doc = include_str!("../../../crates/retry-layer/README.md")]
mod retry_layer {}
