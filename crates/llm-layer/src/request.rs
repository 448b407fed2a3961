//! Requests of types that are known here: what can be seen of them, and how their body is changed.

use std::{
    any::Any,
    borrow::Cow,
    pin::Pin,
    task::{Context, Waker},
};

use bytes::Bytes;
use failsoft_core::is_encoded;
use http::{HeaderMap, HeaderValue, header::CONTENT_LENGTH};
use http_body::Body as _;
use http_body_util::{Empty, Full};

/// What can be seen of a request.
#[derive(Debug, Default)]
pub(crate) struct Look<'a> {
    pub(crate) path: Option<&'a str>,
    pub(crate) query: Option<&'a str>,
    pub(crate) headers: Option<&'a HeaderMap>,
    /// Its body, where that lies in memory.
    pub(crate) body: Option<Cow<'a, [u8]>>,
}

/// Looks at a request. A body that is encoded says nothing here, as one that does not lie in memory.
pub(crate) fn look<Req: 'static>(request: &Req) -> Look<'_> {
    let look = look_at(request);
    let body = look.body.filter(|body| body.is_empty() || !look.headers.is_some_and(is_encoded));
    Look { body, ..look }
}

fn look_at(request: &dyn Any) -> Look<'_> {
    #[cfg(feature = "reqwest-013")]
    {
        if let Some(request) = request.downcast_ref::<reqwest::Request>() {
            let body = match request.body() {
                Some(body) => body.as_bytes().map(Cow::Borrowed),
                None => Some(Cow::Borrowed(&[][..])),
            };
            let url = request.url();
            return Look {
                path: Some(url.path()),
                query: url.query(),
                headers: Some(request.headers()),
                body,
            };
        }
        if let Some(request) = request.downcast_ref::<http::Request<reqwest::Body>>() {
            return Look { body: request.body().as_bytes().map(Cow::Borrowed), ..Look::head(request) };
        }
    }
    if let Some(request) = request.downcast_ref::<http::Request<Full<Bytes>>>() {
        return Look { body: full(request.body()).map(Cow::Owned), ..Look::head(request) };
    }
    if let Some(request) = request.downcast_ref::<http::Request<Empty<Bytes>>>() {
        return Look { body: Some(Cow::Borrowed(&[])), ..Look::head(request) };
    }
    fn bytes<B: AsRef<[u8]> + 'static>(request: &dyn Any) -> Option<Look<'_>> {
        let request = request.downcast_ref::<http::Request<B>>()?;
        Some(Look { body: Some(Cow::Borrowed(request.body().as_ref())), ..Look::head(request) })
    }
    bytes::<Bytes>(request)
        .or_else(|| bytes::<String>(request))
        .or_else(|| bytes::<Vec<u8>>(request))
        .or_else(|| bytes::<&'static str>(request))
        .unwrap_or_default()
}

impl<'a> Look<'a> {
    fn head<B>(request: &'a http::Request<B>) -> Self {
        let uri = request.uri();
        Self { path: Some(uri.path()), query: uri.query(), headers: Some(request.headers()), body: None }
    }
}

/// Puts another body in the place of one that lies in memory, and corrects the length that was announced. Nothing where
/// the request is of a type whose body cannot be changed.
pub(crate) fn replace_body<Req: 'static>(request: &mut Req, body: &str) {
    let length = HeaderValue::from(body.len());
    let request: &mut dyn Any = request;
    #[cfg(feature = "reqwest-013")]
    {
        if let Some(request) = request.downcast_mut::<reqwest::Request>() {
            correct(request.headers_mut(), length);
            *request.body_mut() = Some(body.to_owned().into());
            return;
        }
    }
    fn put<B: From<String> + 'static>(request: &mut dyn Any, body: &str, length: &HeaderValue) -> bool {
        let Some(request) = request.downcast_mut::<http::Request<B>>() else { return false };
        correct(request.headers_mut(), length.clone());
        *request.body_mut() = body.to_owned().into();
        true
    }
    #[cfg(feature = "reqwest-013")]
    if put::<reqwest::Body>(request, body, &length) {
        return;
    }
    let _ = put::<Full<Bytes>>(request, body, &length)
        || put::<Bytes>(request, body, &length)
        || put::<String>(request, body, &length)
        || put::<Vec<u8>>(request, body, &length);
}

fn correct(headers: &mut HeaderMap, length: HeaderValue) {
    if headers.contains_key(CONTENT_LENGTH) {
        headers.insert(CONTENT_LENGTH, length);
    }
}

/// What a `Full` holds: it shows it only frame by frame, so a clone, which shares the bytes, gives its one frame.
fn full(body: &Full<Bytes>) -> Option<Vec<u8>> {
    let mut body = body.clone();
    match Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop())) {
        std::task::Poll::Ready(Some(Ok(frame))) => frame.into_data().ok().map(Vec::from),
        std::task::Poll::Ready(None) => Some(Vec::new()),
        _ => None,
    }
}
