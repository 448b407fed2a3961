//! Routes of different types.
use diagnostics::*;

use failsoft_core::BoxError;
use fallback_layer::{FallbackLayer, Route};
use tower::{Layer, Service, service_fn};

type Request = http::Request<String>;
type Response = http::Response<String>;

fn client() -> impl Service<Request, Response = Response, Error = BoxError, Future: Send> + Clone + Send + Sync + 'static {
    service_fn(async |_: Request| Ok(Response::default()))
}

fn local() -> impl Service<Request, Response = Response, Error = BoxError, Future: Send> + Clone + Send + Sync + 'static {
    service_fn(async |_: Request| Ok(Response::default()))
}

pub fn differ() -> Result<(), BoxError> {
    let routes = FallbackLayer::builder();
    let routes = either!(routes.route(Route::new("a", client())), mended: routes.route(Route::boxed("a", client())));
    let second = either!(Route::new("b", local()), mended: Route::boxed("b", local()));
    takes::<Request>(routes.route(second).build()?.layer(client())); //~ mismatched types
    Ok(())
}
