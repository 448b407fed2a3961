//! The service inside is not `Clone`.
use std::convert::Infallible;
use std::future::Ready;
use std::task::{Context, Poll};

use diagnostics::*;

use breaker_layer::BreakerLayer;
use budget_layer::BudgetLayer;
use failsoft::presets::{HostedModel, Server, Tool};
use fallback_layer::{FallbackLayer, Route};
use retry_layer::{HedgeLayer, RetryLayer};
use tower::{Layer, Service, ServiceBuilder};

type Request = http::Request<String>;
type Response = http::Response<String>;

#[cfg_attr(mended, derive(Clone))]
struct Client;

impl Service<Request> for Client {
    type Response = Response;
    type Error = Infallible;
    type Future = Ready<Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request) -> Self::Future {
        std::future::ready(Ok(Response::default()))
    }
}

pub fn layers() -> Result<(), failsoft_core::ConfigError> {
    BreakerLayer::builder().build()?.layer(Client); //~ the service `Client` is not `Clone` //~ keeps a clone of the service inside: derive `Clone` for it, with what is shared in an `Arc` //~ put `tower::buffer::BufferLayer` between
    BreakerLayer::builder().key_fn(|_: &Request| "").build()?.layer(Client); //~ the service `Client` is not `Clone`
    RetryLayer::new().layer(Client); //~ the service `Client` is not `Clone`
    HedgeLayer::builder().build()?.layer(Client); //~ the service `Client` is not `Clone`
    BudgetLayer::builder().build()?.layer(Client); //~ the service `Client` is not `Clone`
    FallbackLayer::builder().route(Route::new("a", Client)).build()?.layer(Client); //~ the service `Client` is not `Clone`
    HostedModel::new("a").build()?.layer(Client); //~ the service `Client` is not `Clone`
    Server::new("a").build()?.layer(Client); //~ the service `Client` is not `Clone`
    Tool::new("a").build()?.layer(Client); //~ the service `Client` is not `Clone`
    ServiceBuilder::new().layer(RetryLayer::new()).service(Client); //~ the service `Client` is not `Clone`
    Ok(())
}

pub fn route() {
    Route::boxed("a", Client); //~ the service `Client` is not `Clone`
}

pub fn function<S: Service<Request, Response = Response, Error = Infallible>>(retry: retry_layer::Retry<S>) {
    // A bound of one's own is enough.
    either!((), mended: bounded(RetryLayer::new().layer(Client)));
}

#[cfg(mended)]
fn bounded<S: Service<Request, Response = Response, Error = Infallible> + Clone>(retry: retry_layer::Retry<S>) {
    takes::<Request>(retry);
}
