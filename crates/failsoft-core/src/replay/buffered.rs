use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body::Body;

#[cfg(feature = "reqwest-013")]
use super::Repeat;
use super::{
    Replay, ReplayBody, Stamp,
    body::KeptBody,
    headers::{is_idempotent, sent_before, stamp, timeout, without_userinfo},
};
use crate::BoxError;

/// Sends again also requests whose body is a stream, up to so many bytes: those of tonic, of an axum router, of a proxy.
///
/// The first attempt reads the body as it comes, and what it has read is recorded; a further one reads the recording, trailers
/// and all, and then the rest. Nothing is read ahead or copied: a recorded piece shares the memory of the one that was sent. A
/// body of more bytes than `cap`, or one that failed, is sent once; of one that says so before it begins nothing is recorded.
/// The recording goes when the call has its answer, or is dropped. It costs a call some four small allocations.
///
/// `wrap` makes a body of the request's own type out of a [`ReplayBody`]:
///
/// | requests of | strategy |
/// |---|---|
/// | an axum router | `Buffered::new(64 << 10, axum::body::Body::new)` |
/// | a tonic channel | `Buffered::new(64 << 10, tonic::body::Body::new)` |
/// | boxed bodies | <code>Buffered::new(64 << 10, \|body\| body.boxed())</code> |
/// | reqwest (feature `reqwest-013`) | `Buffered::new(64 << 10, reqwest::Body::wrap)` |
///
/// ```
/// use bytes::Bytes;
/// use failsoft_core::{Buffered, BoxError, Replay, ReplayBody};
/// use http_body_util::{BodyExt as _, combinators::BoxBody};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let replay = Buffered::new(64 << 10, |body: ReplayBody<BoxBody<Bytes, BoxError>>| body.boxed());
/// let body = http_body_util::Full::from("a question").map_err(|never| match never {}).boxed();
/// let (first, mut kept) = replay.keep(http::Request::post("http://models.example/").body(body)?);
/// assert_eq!(first.into_body().collect().await?.to_bytes(), "a question");
///
/// let second = replay.again(&mut kept, true).expect("it was short enough");
/// assert_eq!(second.into_body().collect().await?.to_bytes(), "a question");
/// # Ok::<(), BoxError>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy)]
pub struct Buffered<F> {
    cap: usize,
    wrap: F,
}

impl<F> Buffered<F> {
    /// Records at most `cap` bytes of each body, with its trailers. A body in very small pieces counts 64 bytes for each.
    pub const fn new<B>(cap: usize, wrap: F) -> Self
    where
        B: Body<Data = Bytes, Error: Into<BoxError>>,
        F: Fn(ReplayBody<B>) -> B,
    {
        Self { cap, wrap }
    }
}

/// What [`Buffered`] keeps of a request.
pub struct KeptRequest<H, B> {
    head: H,
    body: KeptBody<B>,
}

impl<B, F> Replay<http::Request<B>> for Buffered<F>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
    F: Fn(ReplayBody<B>) -> B,
{
    type Kept = KeptRequest<http::request::Parts, B>;

    fn keep(&self, request: http::Request<B>) -> (http::Request<B>, Option<Self::Kept>) {
        if is_longer(request.body(), self.cap) {
            return (request, None);
        }
        let (head, body) = request.into_parts();
        let (kept, body) = KeptBody::new(body, self.cap);
        let kept = KeptRequest { head: head.clone(), body: kept };
        (http::Request::from_parts(head, (self.wrap)(body)), Some(kept))
    }

    fn again(&self, kept: &mut Option<Self::Kept>, last: bool) -> Option<http::Request<B>> {
        let KeptRequest { head, body } = kept.as_ref()?;
        let body = (self.wrap)(body.read()?);
        let head = if last { kept.take()?.head } else { head.clone() };
        Some(http::Request::from_parts(head, body))
    }

    fn is_idempotent(&self, request: &http::Request<B>) -> bool {
        is_idempotent(request.method(), request.headers())
    }

    fn declares_idempotent(&self, request: &http::Request<B>) -> bool {
        self.is_idempotent(request)
    }

    fn target(&self, request: &http::Request<B>) -> Option<Arc<str>> {
        request.uri().authority().map(|authority| without_userinfo(authority.as_str()))
    }

    fn timeout(&self, request: &http::Request<B>) -> Option<Duration> {
        timeout(request.version(), request.headers())
    }

    fn sent_before(&self, request: &http::Request<B>) -> u32 {
        sent_before(request.headers())
    }

    fn stamp(&self, request: &mut http::Request<B>, told: &Stamp<'_>) {
        let method = request.method().clone();
        stamp(&method, request.headers_mut(), told);
    }
}

/// Whether a body says that it is longer than what may be recorded.
fn is_longer(body: &impl Body, cap: usize) -> bool {
    usize::try_from(body.size_hint().lower()).map_or(true, |length| length > cap)
}

/// What [`Buffered`] keeps of a `reqwest::Request`: all of it, unless its body is a stream.
#[cfg(feature = "reqwest-013")]
pub enum KeptReqwest {
    /// A request that can be cloned.
    Whole(Box<reqwest::Request>),
    /// One with a stream, recorded.
    Streamed(Box<KeptRequest<reqwest::Request, reqwest::Body>>),
}

#[cfg(feature = "reqwest-013")]
impl<F> Replay<reqwest::Request> for Buffered<F>
where
    F: Fn(ReplayBody<reqwest::Body>) -> reqwest::Body,
{
    type Kept = KeptReqwest;

    fn keep(&self, mut request: reqwest::Request) -> (reqwest::Request, Option<KeptReqwest>) {
        if let Some(clone) = request.try_clone() {
            return (request, Some(KeptReqwest::Whole(Box::new(clone))));
        }
        let Some(body) = request.body_mut().take() else { return (request, None) };
        match request.try_clone().filter(|_| !is_longer(&body, self.cap)) {
            Some(head) => {
                let (kept, body) = KeptBody::new(body, self.cap);
                *request.body_mut() = Some((self.wrap)(body));
                (request, Some(KeptReqwest::Streamed(Box::new(KeptRequest { head, body: kept }))))
            }
            None => {
                *request.body_mut() = Some(body);
                (request, None)
            }
        }
    }

    fn again(&self, kept: &mut Option<KeptReqwest>, last: bool) -> Option<reqwest::Request> {
        let request = match kept.as_ref()? {
            KeptReqwest::Whole(request) => request.try_clone()?,
            KeptReqwest::Streamed(streamed) => {
                let mut request = streamed.head.try_clone()?;
                *request.body_mut() = Some((self.wrap)(streamed.body.read()?));
                request
            }
        };
        if last {
            *kept = None;
        }
        Some(request)
    }

    fn is_idempotent(&self, request: &reqwest::Request) -> bool {
        Repeat::is_idempotent(request)
    }

    fn declares_idempotent(&self, request: &reqwest::Request) -> bool {
        Repeat::declares_idempotent(request)
    }

    fn target(&self, request: &reqwest::Request) -> Option<Arc<str>> {
        Repeat::target(request)
    }

    fn timeout(&self, request: &reqwest::Request) -> Option<Duration> {
        Repeat::timeout(request)
    }

    fn sent_before(&self, request: &reqwest::Request) -> u32 {
        Repeat::sent_before(request)
    }

    fn stamp(&self, request: &mut reqwest::Request, stamp: &Stamp<'_>) {
        Repeat::stamp(request, stamp);
    }
}

impl<H, B> fmt::Debug for KeptRequest<H, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptRequest").finish_non_exhaustive()
    }
}

#[cfg(feature = "reqwest-013")]
impl fmt::Debug for KeptReqwest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptReqwest").finish_non_exhaustive()
    }
}

impl<F> fmt::Debug for Buffered<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffered").field("cap", &self.cap).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
