//! A classifier for another response than the service inside answers with.
use diagnostics::*;

use breaker_layer::BreakerLayer;
use failsoft_core::{BoxError, Classify, NoBody, Step, Verdict, classify_fn};
use retry_layer::RetryLayer;
use tower::{Layer, Service};

pub struct Weather;
pub struct Flight;

pub fn function<S: Service<String, Response = Weather, Error = BoxError> + Clone>(tool: S) -> Result<(), BoxError> {
    let judge = either!(classify_fn(|_: &Flight| Verdict::SUCCESS), mended: classify_fn(|_: &Weather| Verdict::SUCCESS));
    takes::<String>(BreakerLayer::builder().classify(judge).build()?.layer(tool.clone())); //~ ClassifyFn<Flight, //~ cannot give a verdict on the response `Weather` //~ it must judge what the service inside answers with //~ `.classify(classify_fn(|response: &Weather| …))`
    takes::<String>(RetryLayer::builder().classify(judge).build()?.layer(tool)); //~ cannot give a verdict on the response `Weather`
    Ok(())
}

pub fn bare_closure<S: Service<String, Response = Weather, Error = BoxError> + Clone>(tool: S) -> Result<(), BoxError> {
    let judge = either!(|_: &Weather| Verdict::SUCCESS, mended: classify_fn(|_: &Weather| Verdict::SUCCESS));
    takes::<String>(BreakerLayer::builder().classify(judge).build()?.layer(tool)); //~ cannot give a verdict on the response `Weather` //~ `.classify(classify_fn(|response: &Weather| …))`
    Ok(())
}

#[derive(Clone)]
pub struct ByCode;

#[cfg(not(mended))]
type Judged = Flight;
#[cfg(mended)]
type Judged = Weather;

impl Classify<Judged> for ByCode {
    type Judge = NoBody;

    fn response(&self, _: &Judged) -> Step<NoBody> {
        Step::Now(Verdict::SUCCESS)
    }
}

pub fn of_ones_own<S: Service<String, Response = Weather, Error = BoxError> + Clone>(tool: S) -> Result<(), BoxError> {
    takes::<String>(BreakerLayer::builder().classify(ByCode).build()?.layer(tool)); //~ `ByCode` cannot give a verdict on the response `Weather`
    Ok(())
}
