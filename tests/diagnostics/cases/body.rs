//! The body of the response is none, or none that a layer can read.
use std::marker::PhantomPinned;
use std::pin::Pin;
use std::task::{Context, Poll};

use diagnostics::*;

use breaker_layer::BreakerLayer;
use bytes::Bytes;
use failsoft_core::BoxError;
use http_body::Frame;
use llm_layer::{LlmLayer, Provider};
use retry_layer::RetryLayer;
use stream_layer::{AnyContent, StreamLayer};
use tower::{Layer, Service};
use validate_layer::ValidateLayer;

type Request = http::Request<String>;

#[cfg(not(mended))]
pub struct Json;
#[cfg(mended)]
pub type Json = String;

pub fn no_body<S: Service<Request, Response = http::Response<Json>, Error = BoxError> + Clone>(client: S) -> Result<(), BoxError> {
    takes::<Request>(BreakerLayer::builder().build()?.layer(client.clone())); //~ the default classifier does not know the response //~ `http::Response<B>` is known where `B` is an `http_body::Body` with an error that converts into `BoxError`
    takes::<Request>(RetryLayer::new().layer(client.clone())); //~ the default classifier does not know the response
    takes::<Request>(ValidateLayer::builder().build()?.layer(client.clone())); //~ validate-layer cannot look into the response //~ where `B: http_body::Body + Unpin` with an error that converts into `BoxError`
    takes::<Request>(LlmLayer::new(Provider::Auto).layer(client.clone())); //~ the body of //~ cannot be held //~ where `B: http_body::Body` with an error that converts into `BoxError`
    takes::<Request>(StreamLayer::new(AnyContent).layer(client)); //~ cannot be held
    Ok(())
}

pub struct Pinned(#[cfg(not(mended))] PhantomPinned);

impl http_body::Body for Pinned {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(None)
    }
}

pub fn pinned<S: Service<Request, Response = http::Response<Pinned>, Error = BoxError> + Clone>(client: S) -> Result<(), BoxError> {
    // Who only watches a body need not move it.
    takes::<Request>(BreakerLayer::builder().build()?.layer(client.clone()));
    takes::<Request>(RetryLayer::new().layer(client.clone()));
    takes::<Request>(ValidateLayer::builder().build()?.layer(client.clone())); //~ validate-layer cannot look into the response
    takes::<Request>(LlmLayer::new(Provider::Auto).layer(client.clone())); //~ the body `Pinned` cannot be read by the layer //~ `http_body_util::BodyExt` makes any body so by `.map_err(…)` and `.boxed()`
    takes::<Request>(StreamLayer::new(AnyContent).layer(client)); //~ the body `Pinned` cannot be read by the layer
    Ok(())
}
