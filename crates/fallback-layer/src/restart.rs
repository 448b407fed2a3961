//! [`RestartLayer`]: a stream that breaks off after its first content goes on with the next route, and says so.
//!
//! Until its first content a stream fails like a call, and the next route is taken without anybody seeing it (with a layer
//! inside that holds it so long, such as stream-layer or llm-layer). After that the caller has read a part of an answer.
//! Another route would give another answer, so nothing is ever spliced silently: the failure is the stream's. With this
//! layer around a [`FallbackLayer`](crate::FallbackLayer) the caller gets an event instead, and after it the next
//! route's stream from its start:
//!
//! ```text
//! event: failsoft.restart
//! data: {"type":"failsoft.restart","class":"transient","route":"us"}
//!
//! ```
//!
//! `class` is what the stream before has failed of, `route` the name of the one that follows, where it is known. A client
//! that gets it throws away what it has read of the answer, its usage and its tool calls, and reads on as from the
//! beginning. Clients that do not know the event must not be given it: put the layer only where they do.
//!
//! ```
//! use failsoft_core::BoxError;
//! use fallback_layer::{FallbackLayer, Route, restart::RestartLayer};
//! # use bytes::Bytes;
//! # use http::{Request, Response};
//! # use http_body::Frame;
//! # use http_body_util::{BodyExt, StreamBody};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! # type Pieces = Vec<Result<Frame<Bytes>, BoxError>>;
//! # fn stream(pieces: Pieces) -> Response<impl http_body::Body<Data = Bytes, Error = BoxError> + Unpin> {
//! #     let body = StreamBody::new(futures_util::stream::iter(pieces));
//! #     Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
//! # }
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! # let data = |text: &'static str| Ok(Frame::data(Bytes::from_static(text.as_bytes())));
//! # let eu = service_fn(move |_: Request<String>| async move {
//! #     Ok::<_, BoxError>(stream(vec![data("data: The ans\n\n"), Err("cut".into())]))
//! # });
//! # let us = service_fn(move |_: Request<String>| async move { Ok::<_, BoxError>(stream(vec![data("data: 42\n\n")])) });
//! let layer = FallbackLayer::builder().name("eu").route(Route::boxed("us", us)).build()?;
//! let service = ServiceBuilder::new().layer(RestartLayer::new()).layer(layer).service(eu);
//!
//! let response = service.oneshot(Request::new("question".to_owned())).await?;
//! assert_eq!(
//!     response.into_body().collect().await?.to_bytes(),
//!     "data: The ans\n\n\
//!      event: failsoft.restart\ndata: {\"type\":\"failsoft.restart\",\"class\":\"transient\",\"route\":\"us\"}\n\n\
//!      data: 42\n\n"
//! );
//! # Ok::<_, BoxError>(())
//! # }).unwrap();
//! ```
//!
//! Rules:
//!
//! - Only streams of server-sent events that are not encoded restart, when their body fails of what another route may
//!   help with by the [table](crate::table). All else passes as it is.
//! - An event that was not whole when the stream broke off is not passed on, and so is what comes of any event before its
//!   end: an event is held until its blank line, up to 256 KiB.
//! - The next route is one that this call has not asked: the fallback inside remembers. When none answers, the stream
//!   ends with its own failure, and no event is written.
//! - A stream that fails after its protocol's own last event (`[DONE]`, `message_stop`, `response.completed`) does not restart: its answer
//!   is whole.
//! - A cache around it keeps no answer that was restarted.
//! - The head stays that of the first stream, but for `content-length`. Each restart takes one of the call's attempts, and is in
//!   its trail.

mod body;
mod events;

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use failsoft_core::{Auto, BoxError, CloneService, Deferred, Hold, IntoBoxError, Rebody, Replay, is_encoded};
use http::{
    HeaderValue,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
    response::Parts,
};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

pub use self::body::RestartBody;
use self::body::Source;

/// The name of the event, and its `type`.
pub const EVENT: &str = "failsoft.restart";

/// Whether a stream has such an event in it.
#[cfg(feature = "cache")]
pub(crate) fn has_restarted(events: &[u8]) -> bool {
    let lines = events.split(|byte| matches!(byte, b'\n' | b'\r'));
    let mut names = lines.filter_map(|line| line.strip_prefix(b"event:"));
    names.any(|name| name.trim_ascii() == EVENT.as_bytes())
}

/// So many restarts of one answer are made by default: as many as a fallback has further routes by default.
const MAX_RESTARTS: u32 = 2;

/// Restarts streams that break off, see the [module](self).
#[derive(Clone, Debug)]
pub struct RestartLayer<P = Auto> {
    replay: Arc<P>,
    max_restarts: u32,
}

/// The service made by a [`RestartLayer`].
pub struct Restart<S, P> {
    inner: S,
    replay: Arc<P>,
    max_restarts: u32,
}

impl RestartLayer {
    /// Restarts a stream at most twice.
    #[must_use]
    pub fn new() -> Self {
        Self { replay: Arc::new(Auto), max_restarts: MAX_RESTARTS }
    }
}

impl Default for RestartLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<P> RestartLayer<P> {
    /// At most so many restarts of one answer; 0 switches them off.
    #[must_use]
    pub const fn max_restarts(mut self, restarts: u32) -> Self {
        self.max_restarts = restarts;
        self
    }

    /// How a request is kept to be sent again.
    #[must_use]
    pub fn replay<Q>(self, replay: Q) -> RestartLayer<Q> {
        RestartLayer { replay: Arc::new(replay), max_restarts: self.max_restarts }
    }
}

impl<S: CloneService, P> Layer<S> for RestartLayer<P> {
    type Service = Restart<S, P>;

    fn layer(&self, inner: S) -> Self::Service {
        Restart { inner, replay: Arc::clone(&self.replay), max_restarts: self.max_restarts }
    }
}

impl<S, P, Req> Service<Req> for Restart<S, P>
where
    S: Service<Req, Error: IntoBoxError> + CloneService,
    S::Response: Rebody<RestartBody<S, Req, P>>,
    P: Replay<Req>,
{
    type Response = <S::Response as Rebody<RestartBody<S, Req, P>>>::Rebodied;
    type Error = BoxError;
    type Future = RestartFuture<S, Req, P>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let (request, kept) = if self.max_restarts > 0 { self.replay.keep(request) } else { (request, None) };
        let mut scope = Deferred::routing();
        let again = kept.is_some().then(|| self.inner.clone());
        let future = scope.enter(|| self.inner.call(request));
        let source =
            Source { service: again, kept, replay: Arc::clone(&self.replay), left: self.max_restarts, scope };
        RestartFuture { future, source: Some(source) }
    }
}

pin_project! {
    /// The future of a [`Restart`].
    #[must_use = "futures do nothing unless polled"]
    pub struct RestartFuture<S, Req, P>
    where
        S: Service<Req>,
        P: Replay<Req>,
    {
        #[pin]
        future: S::Future,
        // Taken when the head is there.
        source: Option<Source<S, Req, P>>,
    }
}

impl<S, Req, P> Future for RestartFuture<S, Req, P>
where
    S: Service<Req, Error: Into<BoxError>>,
    S::Response: Rebody<RestartBody<S, Req, P>>,
    P: Replay<Req>,
{
    type Output = Result<<S::Response as Rebody<RestartBody<S, Req, P>>>::Rebodied, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Some(source) = this.source else { return Poll::Pending };
        let polled = source.scope.enter(|| this.future.poll(cx));
        let response = ready!(polled).map_err(Into::into)?;
        let (mut parts, body) = response.open();
        let source = this.source.take().filter(|source| source.can_restart() && restarts(&parts));
        if source.is_some() {
            parts.headers.remove(CONTENT_LENGTH);
        }
        Poll::Ready(Ok(S::Response::rebody(parts, RestartBody::new(body, source))))
    }
}

/// Whether a response with this head is a stream that may be ended by an event, or go on after one.
fn restarts(parts: &Parts) -> bool {
    const SSE: &[u8] = b"text/event-stream";
    let content_type = parts.headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let is_sse = content_type.get(..SSE.len()).is_some_and(|start| start.eq_ignore_ascii_case(SSE));
    parts.status.is_success() && is_sse && !is_encoded(&parts.headers)
}

impl<S: Clone, P> Clone for Restart<S, P> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), replay: Arc::clone(&self.replay), max_restarts: self.max_restarts }
    }
}

impl<S: fmt::Debug, P> fmt::Debug for Restart<S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Restart").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<S: Service<Req>, Req, P: Replay<Req>> fmt::Debug for RestartFuture<S, Req, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestartFuture").finish_non_exhaustive()
    }
}
