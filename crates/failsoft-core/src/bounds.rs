//! What the layers ask of the services around which they are put, each with what to do where it is missing.
//!
//! Every type that has what such a trait asks for implements it by itself; there is nothing to implement. The compiler then
//! tells a newcomer what is wanted and why, instead of the trait of the standard library that is missing somewhere.

use crate::BoxError;

/// The service inside a layer that clones it: every service that is `Clone`.
#[diagnostic::on_unimplemented(
    message = "the service `{Self}` is not `Clone`",
    note = "a layer that calls again, waits or refuses keeps a clone of the service inside: derive `Clone` for it, with what is \
            shared in an `Arc`; or put `tower::buffer::BufferLayer` between the layer and the service"
)]
pub trait CloneService: Clone {}

#[diagnostic::do_not_recommend]
impl<S: Clone> CloneService for S {}

/// The error of the service inside a layer: every type that converts into a [`BoxError`].
#[diagnostic::on_unimplemented(
    message = "the error `{Self}` of the service inside cannot become a `BoxError`",
    note = "implement `std::error::Error` for it and make it `Send + Sync + 'static`, or change it on the way: \
            `ServiceBuilder::new().layer(…).map_err(|error| …).service(…)`"
)]
pub trait IntoBoxError: Into<BoxError> {}

#[diagnostic::do_not_recommend]
impl<E: Into<BoxError>> IntoBoxError for E {}

/// A body that a layer moves while it reads it: every `http_body::Body` that is `Unpin`, with an error that converts into a
/// [`BoxError`].
#[cfg(feature = "http")]
#[diagnostic::on_unimplemented(
    message = "the body `{Self}` cannot be read by the layer",
    note = "it must be an `http_body::Body` with an error that converts into `BoxError`, and `Unpin`: `http_body_util::BodyExt` \
            makes any body so by `.map_err(…)` and `.boxed()`"
)]
pub trait UnpinBody: http_body::Body<Error: Into<BoxError>> + Unpin {}

#[cfg(feature = "http")]
#[diagnostic::do_not_recommend]
impl<B: http_body::Body<Error: Into<BoxError>> + Unpin> UnpinBody for B {}

/// What a builder says where a layer is expected.
#[doc(hidden)]
pub mod unbuilt {
    use std::convert::Infallible;

    pub use tower_layer::Layer;

    /// A builder that is a layer; there is none.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` is a builder, and no layer yet",
        label = "`.build()?` is missing",
        note = "`build()` checks the settings and gives the layer: `.layer(BreakerLayer::builder().build()?)`"
    )]
    pub trait Built<S> {
        fn never(&self, inner: &S) -> Infallible;
    }

    /// Builders are layers of the two services that there cannot be. With none or one, the compiler would know that a builder is
    /// no layer while it still looks for `ServiceBuilder::service`, and would say no more than that.
    #[derive(Clone, Copy, Debug)]
    pub enum One {}

    /// See [`One`].
    #[derive(Clone, Copy, Debug)]
    pub enum Two {}
}

/// Lets the compiler say that `build` was forgotten where a builder, with its parameters, is given for a layer.
#[doc(hidden)]
#[macro_export]
macro_rules! unbuilt {
    ([$($param:ident),*] $builder:ty) => {
        #[doc(hidden)]
        impl<$($param),*> $crate::unbuilt::Built<$crate::unbuilt::One> for $builder {
            fn never(&self, inner: &$crate::unbuilt::One) -> ::std::convert::Infallible {
                match *inner {}
            }
        }

        #[doc(hidden)]
        impl<$($param),*> $crate::unbuilt::Built<$crate::unbuilt::Two> for $builder {
            fn never(&self, inner: &$crate::unbuilt::Two) -> ::std::convert::Infallible {
                match *inner {}
            }
        }

        #[doc(hidden)]
        impl<InnerService, $($param),*> $crate::unbuilt::Layer<InnerService> for $builder
        where
            Self: $crate::unbuilt::Built<InnerService>,
        {
            type Service = InnerService;

            fn layer(&self, inner: InnerService) -> InnerService {
                match $crate::unbuilt::Built::never(self, &inner) {}
            }
        }
    };
}
