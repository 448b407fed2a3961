//! On a router errors have to become responses: `RespondLayer` is missing, or not outermost. What is asked for there is axum's,
//! and so are the words; the README tells what to do.
use diagnostics::*;

use axum::{Router, routing::get};
use breaker_layer::BreakerLayer;
use failsoft_core::{BoxError, RespondLayer};
use tower::ServiceBuilder;

pub fn missing() -> Result<Router, BoxError> {
    let breaker = BreakerLayer::builder().build()?;
    let layer = either!(breaker, mended: ServiceBuilder::new().layer(RespondLayer).layer(breaker));
    Ok(Router::new().route("/", get(async || "")).layer(layer)) //~ Infallible
}

pub fn inside() -> Result<Router, BoxError> {
    let breaker = BreakerLayer::builder().build()?;
    let stack = ServiceBuilder::new();
    let layer = either!(stack.layer(breaker).layer(RespondLayer), mended: stack.layer(RespondLayer).layer(breaker));
    Ok(Router::new().route("/", get(async || "")).layer(layer)) //~ Infallible
}
