//! [`Authority`]: which host a request goes to.
//!
//! ```
//! use failsoft_core::Authority;
//!
//! let request = http::Request::get("https://user:secret@models.example:8443/v1").body(()).unwrap();
//! assert_eq!(Authority::authority(&request), Some("models.example:8443"));
//! ```

/// A request that knows the host and port it goes to: `http::Request`, and `reqwest::Request` (feature
/// `reqwest-013`).
#[diagnostic::on_unimplemented(
    message = "the request `{Self}` names no host",
    note = "take a key function instead, or implement `failsoft_core::Authority`"
)]
pub trait Authority {
    /// The host, with the port if one is given, and never with a user or a password.
    fn authority(&self) -> Option<&str>;
}

/// The URI's authority; a server's request has none and is named by its `Host` header.
impl<B> Authority for http::Request<B> {
    fn authority(&self) -> Option<&str> {
        let host = || self.headers().get(http::header::HOST)?.to_str().ok().filter(|host| !host.is_empty());
        self.uri().authority().map(|authority| without_userinfo(authority.as_str())).or_else(host)
    }
}

#[cfg(feature = "reqwest-013")]
impl Authority for reqwest::Request {
    fn authority(&self) -> Option<&str> {
        self.url().has_host().then(|| without_userinfo(self.url().authority()))
    }
}

/// A host ends up in logs, and a password must not.
fn without_userinfo(authority: &str) -> &str {
    authority.rsplit('@').next().unwrap_or(authority)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_to_a_server_is_named_by_its_host_header() {
        let request = |uri: &str| http::Request::get(uri).header("host", "b:1").body(()).unwrap();
        assert_eq!(Authority::authority(&request("/v1")), Some("b:1"));
        assert_eq!(Authority::authority(&request("http://a/v1")), Some("a"));
        assert_eq!(Authority::authority(&http::Request::get("/v1").body(()).unwrap()), None);
    }

    #[cfg(feature = "reqwest-013")]
    #[test]
    fn reqwests_requests_are_named_without_the_password() {
        let url = "https://user:secret@models.example/v1".parse().unwrap();
        let request = reqwest::Request::new(reqwest::Method::GET, url);
        assert_eq!(Authority::authority(&request), Some("models.example"));
    }
}
