//! What stands in the wrong place.
use diagnostics::*;

use breaker_layer::BreakerLayer;
use failsoft_core::{BoxError, CarryLayer, UncarryLayer};
use fallback_layer::{FallbackLayer, Route};
use retry_layer::RetryLayer;
use tower::{ServiceBuilder, ServiceExt};

/// What carries calls across a buffer has two ends.
pub fn carried(client: reqwest::Client) {
    let both = ServiceBuilder::new().layer(CarryLayer).layer(UncarryLayer).service(client.clone());
    let service = either!(ServiceBuilder::new().layer(CarryLayer).service(client), mended: both);
    takes::<reqwest::Request>(service); //~ does not take the requests that `CarryLayer` hands on //~ `.layer(CarryLayer).buffer(8).layer(UncarryLayer)`
}

/// A route's health is told by the circuit, not by the layer.
pub fn health() -> Result<(), BoxError> {
    let breaker = BreakerLayer::builder().build()?;
    FallbackLayer::builder().route(Route::new("a", reqwest::Client::new()))
        .health(either!(breaker, mended: breaker.circuit().clone())); //~ BreakerLayer` does not know the health of a target //~ `.health(layer.circuit().clone())`
    Ok(())
}
