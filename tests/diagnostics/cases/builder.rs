//! `build` was forgotten.
use diagnostics::*;

use breaker_layer::BreakerLayer;
use budget_layer::BudgetLayer;
use failsoft::presets::{HostedModel, Server, Tool};
use failsoft_core::{BoxError, Health};
use fallback_layer::{FallbackLayer, Route};
use llm_layer::LlmLayer;
use retry_layer::{HedgeLayer, RetryLayer};
use stream_layer::{AnyContent, StreamLayer};
use tower::{Layer, ServiceBuilder};
use validate_layer::ValidateLayer;

pub fn layers(client: reqwest::Client) -> Result<(), BoxError> {
    let client = || client.clone();
    let layer = BreakerLayer::builder();
    ServiceBuilder::new().layer(either!(layer, mended: layer.build()?)).service(client()); //~ BreakerBuilder` is a builder, and no layer yet //~ `.build()?` is missing //~ `build()` checks the settings and gives the layer
    let layer = BudgetLayer::builder();
    ServiceBuilder::new().layer(either!(layer, mended: layer.build()?)).service(client()); //~ BudgetBuilder` is a builder
    let layer = FallbackLayer::builder().route(Route::new("a", client()));
    ServiceBuilder::new().layer(either!(layer, mended: layer.build()?)).service(client()); //~ is a builder, and no layer yet
    let layer = LlmLayer::builder();
    ServiceBuilder::new().layer(either!(layer, mended: layer.build()?)).service(client()); //~ LlmLayerBuilder` is a builder
    let layer = RetryLayer::builder();
    ServiceBuilder::new().layer(either!(layer, mended: layer.build()?)).service(client()); //~ RetryBuilder` is a builder
    let layer = HedgeLayer::builder();
    ServiceBuilder::new().layer(either!(layer, mended: layer.build()?)).service(client()); //~ HedgeBuilder` is a builder
    let layer = StreamLayer::builder(AnyContent);
    ServiceBuilder::new().layer(either!(layer, mended: layer.build()?)).service(client()); //~ is a builder, and no layer yet
    let layer = ValidateLayer::builder();
    ServiceBuilder::new().layer(either!(layer, mended: layer.build()?)).service(client()); //~ ValidateBuilder` is a builder
    let layer = HostedModel::new("a");
    ServiceBuilder::new().layer(either!(layer, mended: layer.build()?)).service(client()); //~ HostedModel` is a builder
    let layer = Tool::new("a");
    ServiceBuilder::new().layer(either!(layer, mended: layer.build()?)).service(client()); //~ Tool` is a builder
    let layer = Server::new("a");
    ServiceBuilder::new().layer(either!(layer, mended: layer.build()?)).service(client()); //~ Server` is a builder
    // Without a `ServiceBuilder` too.
    let layer = BreakerLayer::builder();
    either!(layer, mended: layer.build()?).layer(client()); //~ BreakerBuilder` is a builder
    Ok(())
}
