//! Requests whose JSON can be changed.

use std::{
    borrow::Cow,
    fmt,
    future::{Ready, ready},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use failsoft_core::{BoxError, is_encoded, is_sealed};
use http::{HeaderMap, HeaderName, HeaderValue, header::CONTENT_LENGTH};

use super::{Edit, InMemory, edits::NO_OBJECT};
use crate::{adapt::Adapt, json::Raw};

static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A request whose body can be read and replaced.
#[diagnostic::on_unimplemented(
    message = "the body of `{Self}` cannot be edited",
    note = "`http::Request` with a body of `Bytes`, `String` or `Vec<u8>` can, and `reqwest::Request` by the feature `reqwest-013`; \
            implement `InMemory` and `From<String>` for a body of your own"
)]
pub trait ChatRequest: Sized {
    /// The headers.
    fn headers(&self) -> &HeaderMap;

    /// The query of the URL.
    fn query(&self) -> Option<&str>;

    /// The whole body; `None` where it does not lie in memory.
    fn body(&self) -> Option<Cow<'_, [u8]>>;

    /// The same request with another body. The headers are put right by who calls it.
    #[must_use]
    fn with_body(self, body: String) -> Self;

    /// The headers.
    fn headers_mut(&mut self) -> &mut HeaderMap;
}

impl<B: InMemory + From<String>> ChatRequest for http::Request<B> {
    fn headers(&self) -> &HeaderMap {
        self.headers()
    }

    fn query(&self) -> Option<&str> {
        self.uri().query()
    }

    fn body(&self) -> Option<Cow<'_, [u8]>> {
        self.body().whole()
    }

    fn with_body(self, body: String) -> Self {
        Self::from_parts(self.into_parts().0, body.into())
    }

    fn headers_mut(&mut self) -> &mut HeaderMap {
        self.headers_mut()
    }
}

#[cfg(feature = "reqwest-013")]
impl ChatRequest for reqwest::Request {
    fn headers(&self) -> &HeaderMap {
        self.headers()
    }

    fn query(&self) -> Option<&str> {
        self.url().query()
    }

    fn body(&self) -> Option<Cow<'_, [u8]>> {
        self.body().map_or(Some(Cow::Borrowed(&[])), InMemory::whole)
    }

    fn with_body(mut self, body: String) -> Self {
        *self.body_mut() = Some(body.into());
        self
    }

    fn headers_mut(&mut self) -> &mut HeaderMap {
        self.headers_mut()
    }
}

/// Edits the bodies of requests, made by [`request`](super::request) and [`Route::edit_request`](crate::Route::edit_request).
#[derive(Clone)]
pub struct Requests(Arc<dyn Edit>);

impl Requests {
    pub(crate) fn new(edit: impl Edit + 'static) -> Self {
        Self(Arc::new(edit))
    }
}

impl<Req: ChatRequest> Adapt<Req> for Requests {
    type Out = Req;
    type Future = Ready<Result<Req, BoxError>>;

    fn adapt(&self, request: Req) -> Self::Future {
        ready(match change(&request, &*self.0) {
            Ok(Some(body)) => Ok(changed(request, body)),
            Ok(None) => Ok(request),
            Err(error) => Err(error),
        })
    }
}

/// The changed body, where there is something to change.
fn change<Req: ChatRequest>(request: &Req, edit: &dyn Edit) -> Result<Option<String>, BoxError> {
    let body = request.body().ok_or("the body does not lie in memory")?;
    if body.is_empty() {
        return Ok(None);
    }
    if is_encoded(request.headers()) {
        return Err("the body is encoded".into());
    }
    let text = std::str::from_utf8(&body)?;
    Raw::parse(text).filter(|body| body.is_object()).ok_or(NO_OBJECT)?;
    let changed = edit.edit(text)?.filter(|changed| changed != text);
    if changed.is_some() && is_sealed(request.headers(), request.query()) {
        return Err("a signature or a digest vouches for the body as it is".into());
    }
    Ok(changed)
}

fn changed<Req: ChatRequest>(request: Req, body: String) -> Req {
    let length = body.len();
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    let mut request = request.with_body(body);
    let headers = request.headers_mut();
    // Where none was set, the client sets it.
    if headers.contains_key(CONTENT_LENGTH) {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    if let Some(key) = headers.get(&IDEMPOTENCY_KEY) {
        // The same for the same body, so that a retry further in or out is still known as one.
        let mut other = key.as_bytes().to_vec();
        other.extend_from_slice(format!("-{:08x}", hasher.finish() >> 32).as_bytes());
        match HeaderValue::from_bytes(&other) {
            Ok(other) => headers.insert(&IDEMPOTENCY_KEY, other),
            // Better none than that of another request.
            Err(_) => headers.remove(&IDEMPOTENCY_KEY),
        };
    }
    request
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").finish_non_exhaustive()
    }
}
