//! A request that cannot be sent again, or of which a layer knows nothing.
use diagnostics::*;

use axum::body::Body;
use breaker_layer::BreakerLayer;
use budget_layer::BudgetLayer;
use failsoft_core::{BoxError, Buffered, Cloned, Once};
use fallback_layer::{FallbackLayer, Route, cache::{Cache, CacheLayer}};
use retry_layer::{HedgeLayer, RetryLayer};
use tower::{Layer, Service};
use validate_layer::ValidateLayer;

type Response = http::Response<String>;

#[derive(Clone)]
pub struct Question;

pub fn of_ones_own<S: Service<Question, Response = Response, Error = BoxError> + Clone>(tool: S) -> Result<(), BoxError> {
    let retry = either!(RetryLayer::new(), mended: RetryLayer::builder().replay(Cloned).build()?);
    takes::<Question>(retry.layer(tool.clone())); //~ the request `Question` does not say how it can be sent again //~ for a `Clone` type of your own `.replay(Cloned)` //~ for a request that must be sent once `.replay(Once)`
    let hedge = either!(HedgeLayer::builder().build()?, mended: HedgeLayer::builder().replay(Cloned).build()?);
    takes::<Question>(hedge.layer(tool.clone())); //~ the request `Question` does not say how it can be sent again
    let fallback = FallbackLayer::builder().route(Route::new("a", tool.clone()));
    let fallback = either!(fallback.build()?, mended: fallback.replay(Cloned).build()?);
    takes::<Question>(fallback.layer(tool.clone())); //~ the request `Question` does not say how it can be sent again
    let budget = either!(BudgetLayer::builder().build()?, mended: BudgetLayer::builder().estimate_fixed(1).build()?);
    takes::<Question>(budget.layer(tool)); //~ cannot estimate the request `Question` //~ call `.estimate(|request: &Question| …)` or `.estimate_fixed(…)`
    Ok(())
}

pub struct Single;

pub fn not_clone<S: Service<Single, Response = Response, Error = BoxError> + Clone>(tool: S) -> Result<(), BoxError> {
    let retry = either!(RetryLayer::builder().replay(Cloned).build()?, mended: RetryLayer::builder().replay(Once).build()?);
    takes::<Single>(retry.layer(tool)); //~ Cloned` cannot repeat the request `Single` //~ `.replay(Once)`
    Ok(())
}

type Streamed = http::Request<Body>;

pub fn streamed<S: Service<Streamed, Response = Response, Error = BoxError> + Clone>(client: S) -> Result<(), BoxError> {
    let retry = either!(RetryLayer::new(), mended: RetryLayer::builder().replay(Buffered::new(65_536, Body::new)).build()?);
    takes::<Streamed>(retry.layer(client.clone())); //~ does not say how it can be sent again //~ for a body that is a stream, such as axum's and tonic's, call `.replay(Buffered::new(65_536, Body::new))` on the layer's builder
    Ok(())
}

type Whole = http::Request<String>;

pub fn cached<S: Service<Whole, Response = Response, Error = BoxError> + Clone>(client: S) -> Result<(), BoxError> {
    let cache = either!(Cache::builder().build()?, mended: Cache::builder().shared_by_all().build()?);
    takes::<Whole>(CacheLayer::new(cache).layer(client)); //~ gives requests of the type //~ or `.shared_by_all()`, on the builder
    Ok(())
}
