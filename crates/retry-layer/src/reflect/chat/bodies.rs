//! Requests whose body lies in memory, and can be another.

use std::borrow::Cow;

use bytes::Bytes;
use failsoft_core::is_sealed;
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH},
};

static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A request whose JSON can be read and replaced.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no request whose body lies in memory",
    note = "`http::Request` with a body of `Bytes`, `String` or `Vec<u8>` is one, with `Full<Bytes>` by the feature \
            `http-body-util-01`, and `reqwest::Request` by the feature `reqwest-013`; implement `BodyInMemory` for a body \
            of your own"
)]
pub trait ChatRequest: Sized {
    /// The body, where it is text, in memory, not compressed, and no signature or digest vouches for it.
    fn json(&self) -> Option<Cow<'_, str>>;

    /// The same request with another body, which is the `number`-th changed one of its call: its headers are put right for that.
    #[must_use]
    fn with_json(self, body: String, number: u32) -> Self;
}

/// A body that lies in memory.
pub trait BodyInMemory: Sized {
    /// The whole body; `None` where it does not lie in memory after all.
    fn bytes(&self) -> Option<Cow<'_, [u8]>>;

    /// A body of this text.
    fn of_text(text: String) -> Self;
}

impl<B: BodyInMemory> ChatRequest for http::Request<B> {
    fn json(&self) -> Option<Cow<'_, str>> {
        text(self.headers(), self.uri().query(), self.body().bytes()?)
    }

    fn with_json(self, body: String, number: u32) -> Self {
        let (mut parts, _) = self.into_parts();
        put_right(&mut parts.headers, body.len(), number);
        Self::from_parts(parts, B::of_text(body))
    }
}

#[cfg(feature = "reqwest-013")]
impl ChatRequest for reqwest::Request {
    fn json(&self) -> Option<Cow<'_, str>> {
        text(self.headers(), self.url().query(), Cow::Borrowed(self.body()?.as_bytes()?))
    }

    fn with_json(mut self, body: String, number: u32) -> Self {
        put_right(self.headers_mut(), body.len(), number);
        *self.body_mut() = Some(body.into());
        self
    }
}

fn text<'a>(headers: &HeaderMap, query: Option<&str>, body: Cow<'a, [u8]>) -> Option<Cow<'a, str>> {
    let is_encoded = headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity");
    if is_encoded || is_sealed(headers, query) {
        return None;
    }
    match body {
        Cow::Borrowed(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
        Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
    }
}

fn put_right(headers: &mut HeaderMap, length: usize, number: u32) {
    // Where none was set, the client sets it.
    if headers.contains_key(CONTENT_LENGTH) {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Some(key) = headers.get(&IDEMPOTENCY_KEY) {
        let mut other = key.as_bytes().to_vec();
        other.extend_from_slice(format!("-reask-{number}").as_bytes());
        match HeaderValue::from_bytes(&other) {
            Ok(other) => headers.insert(&IDEMPOTENCY_KEY, other),
            // Too long for a header: better none than that of another request.
            Err(_) => headers.remove(&IDEMPOTENCY_KEY),
        };
    }
}

impl BodyInMemory for Bytes {
    fn bytes(&self) -> Option<Cow<'_, [u8]>> {
        Some(Cow::Borrowed(self))
    }

    fn of_text(text: String) -> Self {
        text.into()
    }
}

impl BodyInMemory for String {
    fn bytes(&self) -> Option<Cow<'_, [u8]>> {
        Some(Cow::Borrowed(self.as_bytes()))
    }

    fn of_text(text: String) -> Self {
        text
    }
}

impl BodyInMemory for Vec<u8> {
    fn bytes(&self) -> Option<Cow<'_, [u8]>> {
        Some(Cow::Borrowed(self))
    }

    fn of_text(text: String) -> Self {
        text.into()
    }
}

#[cfg(feature = "reqwest-013")]
impl BodyInMemory for reqwest::Body {
    fn bytes(&self) -> Option<Cow<'_, [u8]>> {
        self.as_bytes().map(Cow::Borrowed)
    }

    fn of_text(text: String) -> Self {
        text.into()
    }
}

#[cfg(feature = "http-body-util-01")]
impl BodyInMemory for http_body_util::Full<Bytes> {
    /// It shows its bytes frame by frame only; a clone, which shares them, gives its one frame.
    fn bytes(&self) -> Option<Cow<'_, [u8]>> {
        use std::task::{Context, Poll, Waker};
        let mut body = self.clone();
        let frame = http_body::Body::poll_frame(
            std::pin::Pin::new(&mut body),
            &mut Context::from_waker(Waker::noop()),
        );
        match frame {
            Poll::Ready(Some(Ok(frame))) => frame.into_data().ok().map(|data| Cow::Owned(data.into())),
            Poll::Ready(None) => Some(Cow::Borrowed(&[])),
            _ => None,
        }
    }

    fn of_text(text: String) -> Self {
        Self::from(Bytes::from(text))
    }
}
