//! Server advice in headers.

use std::time::{Duration, SystemTime};

use failsoft_core::{class_of_status, with_headers};
use http::{HeaderMap, HeaderValue, StatusCode};

/// Headers that hold advice, with all their spellings.
const NAMES: [&str; 16] = [
    "retry-after",
    "retry-after-ms",
    "x-should-retry",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-tokens",
    "x-ratelimit-reset",
    "x-ratelimit-remaining",
    "anthropic-ratelimit-requests-remaining",
    "anthropic-ratelimit-requests-reset",
    "anthropic-ratelimit-unified-reset",
    "ratelimit-reset",
    "ratelimit",
    "grpc-retry-pushback-ms",
];

/// Each line is a header: its first byte chooses the name, the rest is the value.
pub fn advice(input: &[u8]) {
    let mut headers = HeaderMap::new();
    for line in input.split(|byte| *byte == b'\n').take(64) {
        let Some((name, value)) = line.split_first() else { continue };
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.append(NAMES[usize::from(*name) % NAMES.len()], value);
        }
    }
    for status in [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE, StatusCode::OK] {
        let verdict = with_headers(failsoft_core::Verdict::of(class_of_status(status)), &headers);
        // It can be waited for, and added to a time, by whoever is careful.
        let wait = verdict.retry_after().unwrap_or(Duration::ZERO);
        let _ = SystemTime::UNIX_EPOCH.checked_add(wait);
    }
}
