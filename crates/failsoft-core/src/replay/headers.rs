//! What a request says in its HTTP headers about being sent again, and what an attempt writes there.

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};

use super::{Repeat, Stamp};
use crate::is_grpc;

/// How many attempts there were before this one, as a retry here says it.
static RETRY_COUNT: HeaderName = HeaderName::from_static("x-retry-count");
/// The same, as the clients say it that Stainless generates: OpenAI's and Anthropic's own.
static STAINLESS_COUNT: HeaderName = HeaderName::from_static("x-stainless-retry-count");
/// The same, as gRPC says it (gRFC A6).
static GRPC_COUNT: HeaderName = HeaderName::from_static("grpc-previous-rpc-attempts");
static GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Whether HTTP calls the method idempotent (RFC 9110, section 9.2.2), or the request carries an `Idempotency-Key`.
pub(super) fn is_idempotent(method: &Method, headers: &HeaderMap) -> bool {
    method.is_idempotent() || headers.contains_key(&IDEMPOTENCY_KEY)
}

/// A name of a target ends up in logs, and a password must not.
pub(super) fn without_userinfo(authority: &str) -> Arc<str> {
    authority.rsplit('@').next().unwrap_or(authority).into()
}

/// The largest count that any sender states.
pub(super) fn sent_before(headers: &HeaderMap) -> u32 {
    [&RETRY_COUNT, &STAINLESS_COUNT, &GRPC_COUNT]
        .into_iter()
        .filter_map(|name| headers.get(name)?.to_str().ok()?.trim().parse().ok())
        .max()
        .unwrap_or(0)
}

/// gRPC needs HTTP/2, so that the requests of other protocols are not searched.
#[inline]
pub(super) fn timeout(version: Version, headers: &HeaderMap) -> Option<Duration> {
    if version < Version::HTTP_2 {
        return None;
    }
    parse_grpc_timeout(headers.get(&GRPC_TIMEOUT)?.to_str().ok()?)
}

/// At most eight digits and a unit; anything else is no timeout.
fn parse_grpc_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let value: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(value * 3_600),
        "M" => Duration::from_secs(value * 60),
        "S" => Duration::from_secs(value),
        "m" => Duration::from_millis(value),
        "u" => Duration::from_micros(value),
        "n" => Duration::from_nanos(value),
        _ => return None,
    })
}

/// In the finest unit that eight digits hold, rounded down: nobody is promised time that is not there.
fn grpc_timeout(left: Duration) -> String {
    const MOST: u128 = 99_999_999;
    let units = [(left.as_nanos(), 'n'), (left.as_micros(), 'u'), (left.as_millis(), 'm')];
    let seconds = u128::from(left.as_secs());
    let coarse = [(seconds, 'S'), (seconds / 60, 'M'), (seconds / 3_600, 'H')];
    let fits = units.into_iter().chain(coarse).find(|(value, _)| *value <= MOST);
    let (value, unit) = fits.unwrap_or((MOST, 'H'));
    format!("{value}{unit}")
}

/// Writes a stamp into the headers; a key that is there already stays, and what is idempotent by its method needs none.
pub(super) fn stamp(method: &Method, headers: &mut HeaderMap, stamp: &Stamp<'_>) {
    let grpc = is_grpc(headers);
    if stamp.sent_before > 0 {
        let name = if grpc { &GRPC_COUNT } else { &RETRY_COUNT };
        let count = sent_before(headers).saturating_add(stamp.sent_before);
        headers.insert(name.clone(), HeaderValue::from(count));
    }
    if let Some(key) = stamp.idempotency_key.filter(|_| !is_idempotent(method, headers)) {
        if let Ok(key) = HeaderValue::from_str(key) {
            headers.insert(IDEMPOTENCY_KEY.clone(), key);
        }
    }
    if let Some(left) = stamp.time_left.filter(|_| grpc) {
        if let Ok(left) = HeaderValue::from_str(&grpc_timeout(left)) {
            headers.insert(GRPC_TIMEOUT.clone(), left);
        }
    }
}

#[diagnostic::do_not_recommend]
impl<B: Clone> Repeat for http::Request<B> {
    fn repeat(&self) -> Option<Self> {
        Some(self.clone())
    }

    fn is_idempotent(&self) -> bool {
        is_idempotent(self.method(), self.headers())
    }

    fn declares_idempotent(&self) -> bool {
        Repeat::is_idempotent(self)
    }

    fn target(&self) -> Option<Arc<str>> {
        self.uri().authority().map(|authority| without_userinfo(authority.as_str()))
    }

    #[inline]
    fn timeout(&self) -> Option<Duration> {
        timeout(self.version(), self.headers())
    }

    fn sent_before(&self) -> u32 {
        sent_before(self.headers())
    }

    fn stamp(&mut self, told: &Stamp<'_>) {
        let method = self.method().clone();
        stamp(&method, self.headers_mut(), told);
    }
}

#[cfg(feature = "reqwest-013")]
impl Repeat for reqwest::Request {
    /// `None` for a streaming body.
    fn repeat(&self) -> Option<Self> {
        self.try_clone()
    }

    fn is_idempotent(&self) -> bool {
        is_idempotent(self.method(), self.headers())
    }

    fn declares_idempotent(&self) -> bool {
        Repeat::is_idempotent(self)
    }

    fn target(&self) -> Option<Arc<str>> {
        self.url().has_host().then(|| without_userinfo(self.url().authority()))
    }

    #[inline]
    fn timeout(&self) -> Option<Duration> {
        timeout(self.version(), self.headers())
    }

    fn sent_before(&self) -> u32 {
        sent_before(self.headers())
    }

    fn stamp(&mut self, told: &Stamp<'_>) {
        let method = self.method().clone();
        stamp(&method, self.headers_mut(), told);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn post() -> http::Request<()> {
        http::Request::post("http://a/").body(()).unwrap()
    }

    fn with(name: &'static str, value: &'static str) -> http::Request<()> {
        let mut request = post();
        *request.version_mut() = Version::HTTP_2;
        request.headers_mut().insert(name, HeaderValue::from_static(value));
        request
    }

    #[test]
    fn a_post_is_idempotent_only_with_a_key() {
        assert!(!post().is_idempotent() && !post().declares_idempotent());
        assert!(with("idempotency-key", "1").is_idempotent());
        let put = http::Request::put("http://a/").body(()).unwrap();
        assert!(put.is_idempotent() && put.declares_idempotent());
    }

    #[test]
    fn the_authority_names_the_target_without_its_password() {
        let target = |uri: &str| http::Request::get(uri).body(()).unwrap().target();
        assert_eq!(
            target("https://user:secret@models.example:8443/v1").as_deref(),
            Some("models.example:8443")
        );
        assert_eq!(target("/v1"), None);
    }

    #[test]
    fn a_grpc_timeout_is_read_in_every_unit_and_nothing_else_is_one() {
        let read = |value| with("grpc-timeout", value).timeout();
        for (text, millis) in
            [("2H", 7_200_000), ("3M", 180_000), ("4S", 4_000), ("50m", 50), ("7000u", 7), ("0n", 0)]
        {
            assert_eq!(read(text), Some(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(read("99999999H"), Some(Duration::from_secs(99_999_999 * 3_600)));
        for text in ["", "S", "5", "5s", "-5S", "+5S", "123456789S", "5.5S", "5 S"] {
            assert_eq!(read(text), None, "{text}");
        }
        let mut old = with("grpc-timeout", "1S");
        *old.version_mut() = Version::HTTP_11;
        assert_eq!(old.timeout(), None);
    }

    #[test]
    fn what_a_client_says_of_its_own_retries_is_read() {
        for name in ["x-retry-count", "x-stainless-retry-count", "grpc-previous-rpc-attempts"] {
            assert_eq!(with(name, "2").sent_before(), 2);
            assert_eq!(with(name, "-2").sent_before(), 0);
        }
        assert_eq!(post().sent_before(), 0);
    }

    #[test]
    fn a_stamp_is_written_as_its_protocol_says() {
        let stamp = Stamp::new()
            .with_sent_before(2)
            .with_idempotency_key("k")
            .with_time_left(Some(Duration::from_millis(1_500)));
        let mut request = post();
        request.stamp(&stamp);
        let header = |request: &http::Request<()>, name| {
            request.headers().get(name).map(|value: &HeaderValue| value.to_str().unwrap().to_owned())
        };
        assert_eq!(header(&request, "x-retry-count").as_deref(), Some("2"));
        assert_eq!(header(&request, "idempotency-key").as_deref(), Some("k"));
        assert_eq!(header(&request, "grpc-timeout"), None);

        let mut request = with("content-type", "application/grpc");
        request.headers_mut().insert("grpc-previous-rpc-attempts", HeaderValue::from_static("1"));
        request.headers_mut().insert("idempotency-key", HeaderValue::from_static("the client's own"));
        request.stamp(&stamp);
        assert_eq!(header(&request, "x-retry-count"), None);
        assert_eq!(header(&request, "grpc-previous-rpc-attempts").as_deref(), Some("3"));
        assert_eq!(header(&request, "idempotency-key").as_deref(), Some("the client's own"));
        assert_eq!(header(&request, "grpc-timeout").as_deref(), Some("1500000u"));

        let mut get = http::Request::get("http://a/").body(()).unwrap();
        get.stamp(&Stamp::new().with_idempotency_key("k"));
        assert!(get.headers().is_empty());
    }

    proptest! {
        #[test]
        fn a_written_timeout_is_read_again_never_longer_and_nearly_as_long(nanos in any::<u64>()) {
            let left = Duration::from_nanos(nanos);
            let read = parse_grpc_timeout(&grpc_timeout(left)).unwrap();
            prop_assert!(read <= left);
            prop_assert!(left - read <= left / 1_000 + Duration::from_nanos(1));
        }

        #[test]
        fn any_text_as_a_timeout_is_harmless(text in "\\PC{0,12}") {
            let _ = parse_grpc_timeout(&text);
        }
    }
}
