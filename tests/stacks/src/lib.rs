//! Stacks of several layers around real clients; the tests are in `tests/`. The code of the root README is compiled here.

#![cfg_attr(doctest, doc = include_str!("../../../README.md"))]
