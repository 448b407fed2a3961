//! The service inside answers with a value that nobody here knows, and the layer was not told what to make of it.
use diagnostics::*;

use breaker_layer::BreakerLayer;
use budget_layer::BudgetLayer;
use failsoft_core::{BoxError, Call, CallLayer, ErrorsOnly};
use fallback_layer::{FallbackLayer, Route};
use llm_layer::{LlmLayer, Provider};
use retry_layer::RetryLayer;
use tower::{Layer, Service, ServiceExt, service_fn};
use validate_layer::ValidateLayer;

pub struct Weather(String);

fn tool() -> impl Service<String, Response = Weather, Error = BoxError> + Clone {
    service_fn(async |_: String| Ok(Weather(String::new())))
}

pub fn classified() -> Result<(), BoxError> {
    let breaker = either!(BreakerLayer::builder().build()?, mended: BreakerLayer::builder().classify(ErrorsOnly).build()?);
    takes::<String>(breaker.layer(tool())); //~ the default classifier does not know the response `Weather` //~ for plain values call `.classify(ErrorsOnly)` or `.classify(classify_fn(|response: &Weather| …))` //~ `reqwest::Response` by the feature `reqwest-013`
    let retry = either!(RetryLayer::new(), mended: RetryLayer::builder().classify(ErrorsOnly).build()?);
    takes::<String>(retry.layer(tool())); //~ the default classifier does not know the response `Weather`
    let fallback = FallbackLayer::builder().route(Route::new("a", tool()));
    let fallback = either!(fallback.build()?, mended: fallback.classify(ErrorsOnly).build()?);
    takes::<String>(fallback.layer(tool())); //~ the default classifier does not know the response `Weather`
    let budget = BudgetLayer::builder().estimate_fixed(1);
    let budget = either!(budget.build()?, mended: budget.classify(ErrorsOnly).build()?);
    takes::<String>(budget.layer(tool())); //~ the default classifier does not know the response `Weather`
    Ok(())
}

/// What the README says to write where the compiler says no more than that bounds are not satisfied.
pub fn asked_for_by_name() -> Result<(), BoxError> {
    let breaker = either!(BreakerLayer::builder().build()?, mended: BreakerLayer::builder().classify(ErrorsOnly).build()?);
    let mut service = breaker.layer(tool());
    let _ = ServiceExt::<String>::ready(&mut service); //~ the default classifier does not know the response `Weather`
    Ok(())
}

pub fn looked_into() -> Result<(), BoxError> {
    let validate = either!(
        ValidateLayer::builder().build()?,
        mended: ValidateLayer::values(|weather: &Weather| validate_layer::Answer::new(weather.0.clone())).build()?
    );
    takes::<String>(validate.layer(tool())); //~ validate-layer cannot look into the response `Weather` //~ `ValidateLayer::values(|response: &_| Answer::new(…))`
    Ok(())
}

pub fn with_a_trail() {
    let service = either!(CallLayer::new().layer(tool()), mended: tool());
    takes::<String>(service); //~ `Weather` cannot carry a trail //~ begin the call yourself
    let _ = Call::begin();
}

/// There is no body to read: this is for HTTP.
pub fn read_as_a_body() {
    let service = either!(LlmLayer::new(Provider::Auto).layer(tool()), mended: tool());
    takes::<String>(service); //~ `Weather` cannot take the body
}
