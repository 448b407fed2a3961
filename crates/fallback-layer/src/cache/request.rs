//! What a cache must see of a request.

use std::borrow::Cow;

use http::{HeaderMap, Method};

pub use crate::in_memory::InMemory;

/// A request that a cache can look at: method, address, headers and the whole body.
#[diagnostic::on_unimplemented(
    message = "a cache cannot look at requests of the type `{Self}`",
    note = "`http::Request` with a body of `Bytes`, `String`, `Vec<u8>` or `&'static str` is known, and `reqwest::Request` \
            by the feature `reqwest-013`; implement `InMemory` for a body of your own"
)]
pub trait CacheRequest {
    /// The method.
    fn method(&self) -> &Method;

    /// Where it goes to, with the query.
    fn address(&self) -> Address<'_>;

    /// The headers.
    fn headers(&self) -> &HeaderMap;

    /// The whole body; `None` where it does not lie in memory, and then the request is not looked up.
    fn body(&self) -> Option<Cow<'_, [u8]>>;
}

/// Where a request goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Address<'a> {
    /// The scheme and the authority, where the request says them.
    pub origin: (&'a str, &'a str),
    /// The path.
    pub path: &'a str,
    /// The query, without the `?`.
    pub query: Option<&'a str>,
}

impl<'a> Address<'a> {
    /// A path, without an origin.
    #[must_use]
    pub const fn new(path: &'a str) -> Self {
        Self { origin: ("", ""), path, query: None }
    }
}

impl<B: InMemory> CacheRequest for http::Request<B> {
    fn method(&self) -> &Method {
        self.method()
    }

    fn address(&self) -> Address<'_> {
        let uri = self.uri();
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        Address { origin: (uri.scheme_str().unwrap_or(""), authority), path: uri.path(), query: uri.query() }
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }

    fn body(&self) -> Option<Cow<'_, [u8]>> {
        self.body().whole()
    }
}

#[cfg(feature = "reqwest-013")]
impl CacheRequest for reqwest::Request {
    fn method(&self) -> &Method {
        self.method()
    }

    fn address(&self) -> Address<'_> {
        let url = self.url();
        Address { origin: (url.scheme(), url.authority()), path: url.path(), query: url.query() }
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }

    fn body(&self) -> Option<Cow<'_, [u8]>> {
        self.body().map_or(Some(Cow::Borrowed(&[])), InMemory::whole)
    }
}
