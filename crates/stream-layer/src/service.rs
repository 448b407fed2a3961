//! [`Streamed`]: the service.

use std::task::{Context, Poll};

use failsoft_core::{BoxError, Call, Hold, IntoBoxError, Mark, Rebody, UnpinBody};
use tokio::time::Instant;
use tower_service::Service;

use crate::{Protocol, Reader, StreamedBody, StreamedFuture, clock::Clock, future::Calling, layer::Settings};

/// A service whose streamed answers fail like calls; made by a [`StreamLayer`](crate::StreamLayer).
#[derive(Clone, Debug)]
pub struct Streamed<S, P> {
    inner: S,
    protocol: P,
    settings: Settings,
}

impl<S, P> Streamed<S, P> {
    pub(crate) const fn new(inner: S, protocol: P, settings: Settings) -> Self {
        Self { inner, protocol, settings }
    }

    /// The service inside.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The service inside.
    pub const fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The service inside.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

type DecoderOf<P, Req> = <<P as Protocol<Req>>::Reader as Reader>::Decoder;
type BodyOf<Res> = <Res as Hold>::Body;

impl<S, P, Req, Res> Service<Req> for Streamed<S, P>
where
    S: Service<Req, Response = Res, Error: IntoBoxError>,
    P: Protocol<Req>,
    Res: Hold<Body: UnpinBody> + Rebody<StreamedBody<BodyOf<Res>, DecoderOf<P, Req>>>,
{
    type Response = Res::Rebodied;
    type Error = BoxError;
    type Future = StreamedFuture<S::Future, P::Reader, BodyOf<Res>, DecoderOf<P, Req>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let Settings { witness, limits, until, cold_grace } = self.settings.clone();
        let limits = if Call::is_marked(Mark::Cold) { limits.with_grace(cold_grace) } else { limits };
        let reader = self.protocol.request(&request);
        let clock = Clock::new(Instant::now(), reader.limits(limits), Call::current_deadline());
        StreamedFuture::new(self.inner.call(request), Calling { reader, until, clock, limits, witness })
    }
}
