//! Each layer keeps the contract, in one binary: to link one for each file takes minutes.

mod breaker;
mod budget;
mod cache;
mod layers;
