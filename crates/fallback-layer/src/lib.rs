#![doc = "lib docs"]
mod cascade;
mod events;
mod future;
pub mod last_good;
mod layer;
mod plan;
pub mod route;
mod service;
pub mod table;

/// Who originates this crate's faults and records its attempts.
const LAYER: &str = "fallback-layer";

pub use self::{
    future::ResponseFuture,
    layer::{Builder, FallbackLayer},
    plan::{Return, WhenAllPoor},
    route::{BoxRoute, NoRoute, Route},
    service::Fallback,
    table::{Row, To},
};
