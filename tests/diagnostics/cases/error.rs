//! The error of the service inside is no error, or cannot leave its thread.
use std::rc::Rc;

use diagnostics::*;

use breaker_layer::BreakerLayer;
use budget_layer::BudgetLayer;
use fallback_layer::{FallbackLayer, Route};
use llm_layer::{LlmLayer, Provider};
use retry_layer::{HedgeLayer, RetryLayer};
use stream_layer::{AnyContent, StreamLayer};
use tower::{Layer, Service, service_fn};
use validate_layer::ValidateLayer;

type Request = http::Request<String>;
type Response = http::Response<String>;

#[derive(Debug)]
pub struct MyError;

#[cfg(mended)]
impl std::fmt::Display for MyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("mine")
    }
}

#[cfg(mended)]
impl std::error::Error for MyError {}

fn client() -> impl Service<Request, Response = Response, Error = MyError, Future: Send> + Clone + Send + Sync + 'static {
    service_fn(async |_: Request| Err(MyError))
}

pub fn layers() -> Result<(), failsoft_core::ConfigError> {
    takes::<Request>(BreakerLayer::builder().build()?.layer(client())); //~ the error `MyError` of the service inside cannot become a `BoxError` //~ implement `std::error::Error` for it and make it `Send + Sync + 'static` //~ .map_err(|error| …)
    takes::<Request>(BudgetLayer::builder().build()?.layer(client())); //~ the error `MyError` of the service inside cannot become a `BoxError`
    takes::<Request>(FallbackLayer::builder().route(Route::new("a", client())).build()?.layer(client())); //~ the error `MyError` of the service inside cannot become a `BoxError`
    takes::<Request>(LlmLayer::new(Provider::Auto).layer(client())); //~ the error `MyError` of the service inside cannot become a `BoxError`
    takes::<Request>(RetryLayer::new().layer(client())); //~ the error `MyError` of the service inside cannot become a `BoxError`
    takes::<Request>(HedgeLayer::builder().build()?.layer(client())); //~ the error `MyError` of the service inside cannot become a `BoxError`
    takes::<Request>(StreamLayer::new(AnyContent).layer(client())); //~ the error `MyError` of the service inside cannot become a `BoxError`
    takes::<Request>(ValidateLayer::builder().build()?.layer(client())); //~ the error `MyError` of the service inside cannot become a `BoxError`
    takes::<Request>(failsoft_core::RespondLayer.layer(client())); //~ the error `MyError` of the service inside cannot become a `BoxError`
    Ok(())
}

pub fn route() {
    Route::<_>::boxed("a", client()); //~ the error `MyError` of the service inside cannot become a `BoxError`
}

/// As it is, it is an error, but one that cannot be sent.
#[derive(Debug)]
pub struct Local(#[cfg(not(mended))] Rc<()>);

impl std::fmt::Display for Local {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("local")
    }
}

impl std::error::Error for Local {}

pub fn local<S: Service<Request, Response = Response, Error = Local> + Clone>(client: S) {
    takes::<Request>(RetryLayer::new().layer(client)); //~ the error `Local` of the service inside cannot become a `BoxError`
}
