//! What vouches for a body as it is.

use http::{HeaderMap, HeaderName, HeaderValue, header::AUTHORIZATION};

/// Whether a signature or a digest vouches for the body as it is, so that another one would be refused: by a header, in the
/// authorization, or in the URL's query. A signature by a header of a provider's own cannot be recognised.
#[must_use]
pub fn is_sealed(headers: &HeaderMap, query: Option<&str>) -> bool {
    const DIGESTS: [&str; 6] =
        ["content-md5", "digest", "content-digest", "repr-digest", "signature", "signature-input"];
    // As several clouds have it, each with a prefix of its own: x-amz-, x-goog-, x-ms-, x-acs-, x-.
    let is_hash = |name: &HeaderName| name.as_str().ends_with("content-sha256");
    headers.get_all(AUTHORIZATION).iter().any(is_signature)
        || DIGESTS.iter().any(|name| headers.contains_key(*name))
        || headers.keys().any(is_hash)
        || is_presigned(query)
}

/// Whether the authorization is a signature of the request: those of AWS (`AWS4-HMAC-SHA256`) and of the clouds that took after it
/// cover the body's hash also where that has no header of its own.
fn is_signature(authorization: &HeaderValue) -> bool {
    let scheme = authorization.as_bytes().split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
    let has = |part: &[u8]| scheme.windows(part.len()).any(|bytes| bytes.eq_ignore_ascii_case(part));
    has(b"HMAC-SHA") || has(b"AWS4") || scheme.eq_ignore_ascii_case(b"Signature")
}

/// Whether the URL itself carries such a signature. One of Azure's shared access (`sig`) says nothing of the body.
fn is_presigned(query: Option<&str>) -> bool {
    let names = query.unwrap_or_default().split('&').filter_map(|pair| pair.split('=').next());
    let is_signature = |name: &str| {
        ["x-amz-signature", "x-goog-signature"].iter().any(|known| name.eq_ignore_ascii_case(known))
    };
    names.into_iter().any(is_signature)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_and_digests_are_seen_and_keys_are_not_taken_for_them() {
        for (name, value, sealed) in [
            ("authorization", "AWS4-HMAC-SHA256 Credential=a/b", true),
            ("authorization", "TC3-HMAC-SHA256 Credential=a", true),
            ("authorization", "Signature keyId=\"a\"", true),
            ("authorization", "Bearer AWS4-HMAC-SHA256", false),
            ("x-api-key", "sk-1", false),
            ("content-md5", "1B2M2Y8AsgTpgAmY7PhCfg==", true),
            ("content-digest", "sha-256=:47DE=:", true),
            ("x-amz-content-sha256", "UNSIGNED-PAYLOAD", true),
            ("signature-input", "sig1=()", true),
        ] {
            let headers = HeaderMap::from_iter([(name.parse().unwrap(), HeaderValue::from_static(value))]);
            assert_eq!(is_sealed(&headers, None), sealed, "{name}: {value}");
        }
        for (query, sealed) in
            [("a=1&X-Amz-Signature=2", true), ("x-goog-signature=1", true), ("sig=1", false)]
        {
            assert_eq!(is_sealed(&HeaderMap::new(), Some(query)), sealed, "{query}");
        }
    }
}
