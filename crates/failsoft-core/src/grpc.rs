//! The default classifier's knowledge of gRPC: the status in headers or trailers, and advice in both its forms.
//!
//! A response whose content type is `application/grpc` is judged by its `grpc-status`: at once when the headers have
//! it, else at the end of the body by the trailers. A call that ends without a status was cut, and is a failure.
//!
//! | code | class |
//! |---|---|
//! | `OK` | success |
//! | `CANCELLED` | cancelled |
//! | `DEADLINE_EXCEEDED` | timeout |
//! | `RESOURCE_EXHAUSTED` | rate limited |
//! | `UNAVAILABLE` | overloaded |
//! | `ABORTED`, `INTERNAL`, `DATA_LOSS` | transient |
//! | `PERMISSION_DENIED`, `UNAUTHENTICATED` | auth |
//! | `UNKNOWN`, and numbers beyond 16 | unknown |
//! | the rest | invalid |
//!
//! Advice is `grpc-retry-pushback-ms`, where a value that is no number forbids retrying, else the `RetryInfo` of
//! `grpc-status-details-bin`.
//!
//! ```
//! use failsoft_core::{Class, verdict_of_grpc};
//!
//! let mut trailers = http::HeaderMap::new();
//! trailers.insert("grpc-status", http::HeaderValue::from_static("8"));
//! trailers.insert("grpc-retry-pushback-ms", http::HeaderValue::from_static("250"));
//! let verdict = verdict_of_grpc(&trailers).expect("it has a status");
//! assert_eq!(verdict.class(), Class::RateLimited);
//! assert_eq!(verdict.retry_after().map(|after| after.as_millis()), Some(250));
//! ```

use std::time::Duration;

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use http::HeaderMap;

use crate::{
    Class, Hint, Limit, Verdict,
    advice::{LONGEST, Pushback, grpc_pushback},
};

/// Details longer than this are not looked at; a `RetryInfo` takes some fifty bytes.
const MAX_DETAILS: usize = 16 * 1024;

/// Whether the content type says gRPC, so that the verdict is in the trailers.
#[must_use]
pub fn is_grpc(headers: &HeaderMap) -> bool {
    let Some(content_type) = headers.get(http::header::CONTENT_TYPE) else { return false };
    let Some(rest) = content_type.as_bytes().strip_prefix(b"application/grpc") else { return false };
    // `application/grpc-web` carries its trailers in the body, where they are not looked for.
    matches!(rest.first(), None | Some(b'+' | b';' | b' '))
}

static STATUS: http::HeaderName = http::HeaderName::from_static("grpc-status");

/// What the `grpc-status` in headers or trailers means, with the advice beside it; `None` where there is none.
#[must_use]
pub fn verdict_of_grpc(headers: &HeaderMap) -> Option<Verdict> {
    let status = headers.get(&STATUS)?;
    let code = status.to_str().ok().and_then(|text| text.trim().parse().ok());
    let verdict = Verdict::of(code.map_or(Class::Unknown, class_of_grpc_code));
    if verdict.is_success() {
        return Some(verdict);
    }
    Some(match grpc_pushback(headers) {
        Some(Pushback::After(after)) => verdict.with_retry_after(after),
        Some(Pushback::Stop) => verdict.with_hint(Hint::Never),
        None => verdict.with_advice(retry_info(headers)),
    })
}

/// What a gRPC status code means by itself.
#[must_use]
pub const fn class_of_grpc_code(code: u32) -> Class {
    match code {
        0 => Class::Success,
        1 => Class::Cancelled,
        4 => Class::Timeout(Limit::Total),
        7 | 16 => Class::Auth,
        8 => Class::RateLimited,
        10 | 13 | 15 => Class::Transient,
        14 => Class::Overloaded,
        3 | 5 | 6 | 9 | 11 | 12 => Class::Invalid,
        _ => Class::Unknown,
    }
}

fn retry_info(headers: &HeaderMap) -> Option<Duration> {
    let encoded = headers.get("grpc-status-details-bin")?.as_bytes();
    // Binary headers come with or without padding.
    const CONFIG: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    const BASE64: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, CONFIG);
    let details = BASE64.decode(encoded.get(..encoded.len().min(MAX_DETAILS))?).ok()?;
    retry_delay(&details)
}

/// The delay of the `google.rpc.RetryInfo` among the details of a `google.rpc.Status`.
pub(crate) fn retry_delay(status: &[u8]) -> Option<Duration> {
    Fields(status).filter_map(|field| field.bytes(3)).find_map(|any| {
        let url = Fields(any).find_map(|field| field.bytes(1))?;
        let value = Fields(any).find_map(|field| field.bytes(2))?;
        if !url.ends_with(b"google.rpc.RetryInfo") {
            return None;
        }
        let duration = Fields(value).find_map(|field| field.bytes(1))?;
        let number = |tag| Fields(duration).find_map(|field| field.number(tag)).unwrap_or(0);
        // Protobuf writes negative numbers as huge ones; a negative delay is no advice.
        let (seconds, nanos) = (i64::try_from(number(1)).ok()?, u32::try_from(number(2)).ok()?);
        let delay = Duration::from_secs(u64::try_from(seconds).ok()?)
            .saturating_add(Duration::from_nanos(nanos.into()));
        (!delay.is_zero()).then_some(delay.min(LONGEST))
    })
}

/// The fields of a protobuf message, until something is not as it should be.
struct Fields<'a>(&'a [u8]);

struct Field<'a> {
    tag: u64,
    number: u64,
    bytes: Option<&'a [u8]>,
}

impl<'a> Field<'a> {
    fn bytes(&self, tag: u64) -> Option<&'a [u8]> {
        self.bytes.filter(|_| self.tag == tag)
    }

    fn number(&self, tag: u64) -> Option<u64> {
        (self.tag == tag && self.bytes.is_none()).then_some(self.number)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Field<'a>> {
        let key = self.varint()?;
        let tag = key >> 3;
        match key & 7 {
            0 => Some(Field { tag, number: self.varint()?, bytes: None }),
            1 => self.fixed(8).map(|_| Field { tag, number: 0, bytes: Some(&[]) }),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Some(Field { tag, number: 0, bytes: Some(self.fixed(length)?) })
            }
            5 => self.fixed(4).map(|_| Field { tag, number: 0, bytes: Some(&[]) }),
            _ => None,
        }
    }
}

impl<'a> Fields<'a> {
    fn fixed(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = *self.fixed(1)?.first()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn trailers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|&(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn each_code_has_its_class() {
        let classes = [
            Class::Success,
            Class::Cancelled,
            Class::Unknown,
            Class::Invalid,
            Class::Timeout(Limit::Total),
            Class::Invalid,
            Class::Invalid,
            Class::Auth,
            Class::RateLimited,
            Class::Invalid,
            Class::Transient,
            Class::Invalid,
            Class::Invalid,
            Class::Transient,
            Class::Overloaded,
            Class::Transient,
            Class::Auth,
            Class::Unknown,
        ];
        for (code, class) in (0..).zip(classes) {
            assert_eq!(class_of_grpc_code(code), class, "{code}");
        }
    }

    #[test]
    fn pushback_is_advice_and_an_unreadable_one_forbids_retrying() {
        let after =
            |text| verdict_of_grpc(&trailers(&[("grpc-status", "14"), ("grpc-retry-pushback-ms", text)]));
        assert_eq!(after("70").unwrap().retry_after(), Some(Duration::from_millis(70)));
        assert_eq!(after("-1").unwrap().hint(), Hint::Never);
        assert_eq!(after("x").unwrap().hint(), Hint::Never);
    }

    #[test]
    fn retry_info_is_read_from_the_details_with_and_without_padding() {
        // Status { code: 8, message: "slow", details: [Any { RetryInfo { 1 s + 500 ms } }] }
        let url = b"type.googleapis.com/google.rpc.RetryInfo";
        let mut duration = vec![0x08, 1, 0x10];
        duration.extend([0x80, 0xca, 0xb5, 0xee, 0x01]); // 500 000 000
        let mut info = vec![0x0a, u8::try_from(duration.len()).unwrap()];
        info.extend(&duration);
        let mut any = vec![0x0a, u8::try_from(url.len()).unwrap()];
        any.extend(url);
        any.extend([0x12, u8::try_from(info.len()).unwrap()]);
        any.extend(&info);
        let mut status = vec![0x08, 8, 0x12, 4];
        status.extend(b"slow");
        status.extend([0x1a, u8::try_from(any.len()).unwrap()]);
        status.extend(&any);
        for engine in
            [base64::engine::general_purpose::STANDARD, base64::engine::general_purpose::STANDARD_NO_PAD]
        {
            let mut headers = trailers(&[("grpc-status", "8")]);
            headers.insert("grpc-status-details-bin", engine.encode(&status).parse().unwrap());
            let verdict = verdict_of_grpc(&headers).unwrap();
            assert_eq!(verdict.retry_after(), Some(Duration::from_millis(1500)));
        }
    }

    #[test]
    fn grpc_is_told_by_the_content_type_and_grpc_web_is_not_grpc() {
        let is = |value| is_grpc(&trailers(&[("content-type", value)]));
        assert!(is("application/grpc") && is("application/grpc+proto") && is("application/grpc;x=y"));
        assert!(!is("application/grpc-web") && !is("application/json"));
    }

    proptest! {
        #[test]
        fn any_bytes_as_details_are_harmless(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = retry_delay(&bytes);
        }

        #[test]
        fn any_status_text_is_harmless(status in "\\PC{0,20}", details in "[A-Za-z0-9+/=]{0,200}") {
            let mut headers = HeaderMap::new();
            if let (Ok(status), Ok(details)) = (status.parse(), details.parse()) {
                headers.insert("grpc-status", status);
                headers.insert("grpc-status-details-bin", details);
                let _ = verdict_of_grpc(&headers);
            }
        }
    }
}
