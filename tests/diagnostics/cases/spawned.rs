//! A boxed service whose error stands in its type, inside a layer, in a spawned block that awaits `oneshot`: rustc says that "`From`
//! is not general enough" (rust-lang/rust#102211). These are the ways around it, which the README tells.
use diagnostics::*;

use breaker_layer::{Breaker, BreakerLayer};
use failsoft_core::BoxError;
use fallback_layer::BoxRoute;
use tower::{Layer, Service, ServiceExt, util::BoxCloneSyncService};

type Request = http::Request<String>;
type Response = http::Response<String>;
type Boxed = BoxCloneSyncService<Request, Response, BoxError>;

/// The error is not a part of its type.
pub fn in_a_box_of_ours(model: BoxRoute<Request, Response>, breaker: BreakerLayer, request: Request) {
    let service = breaker.layer(model);
    tokio::spawn(async move { service.oneshot(request).await });
}

/// The whole in a box, instead of a part.
pub fn boxed_as_a_whole(model: Boxed, breaker: BreakerLayer, request: Request) {
    let service = BoxCloneSyncService::new(breaker.layer(model));
    tokio::spawn(async move { service.oneshot(request).await });
}

/// The future itself, instead of a block around it.
pub fn without_a_block(model: Boxed, breaker: BreakerLayer, request: Request) {
    tokio::spawn(breaker.layer(model).oneshot(request));
}

/// Readiness and call one after the other.
pub fn step_by_step(model: Boxed, breaker: BreakerLayer, request: Request) {
    let mut service: Breaker<Boxed> = breaker.layer(model);
    tokio::spawn(async move { service.ready().await?.call(request).await });
}
