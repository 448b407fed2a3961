//! What a failing server says about when to come back, read from its response headers.
//!
//! [`retry_after`] looks, in this order, at `retry-after-ms`, at `Retry-After`, and at the rate-limit headers of the
//! model providers and of the IETF draft, where the longest reset among the *exhausted* limits counts. The first that
//! gives a wait wins. Read it on failures only: a success carries the same rate-limit headers and means nothing by them.
//!
//! ```
//! use std::time::Duration;
//! use failsoft_core::advice;
//!
//! let mut headers = http::HeaderMap::new();
//! headers.insert("retry-after", http::HeaderValue::from_static("1.5"));
//! assert_eq!(advice::retry_after(&headers, advice::wall_clock()), Some(Duration::from_millis(1500)));
//! ```
//!
//! Nothing a server sends makes these functions panic or take long. What is unreadable, negative, zero or past is no
//! advice at all, so that the caller's own back-off decides; what is too large saturates at [`LONGEST`], so that
//! "far beyond what anyone waits for" stays visible as such.

mod left;

use std::time::{Duration, SystemTime};

use http::HeaderMap;

pub use self::left::{Left, Remaining, remaining};

/// What an absurdly large advice saturates at: a century. Any later time arithmetic stays far from an overflow.
pub const LONGEST: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);

/// A longer value is not looked at: no form of advice needs this many bytes, and a peer may send megabytes.
const MAX_BYTES: usize = 1024;

/// From here on a bare number is a point in time (the year 2001 in seconds), below it is a number of seconds (31 years).
const EPOCH_SECONDS: f64 = 1e9;

/// From here on it is one in milliseconds (the year 1973), below in seconds (the year 5138).
const EPOCH_MILLIS: f64 = 1e11;

/// The wall clock. Only dates in headers need it; everything else runs on a monotonic clock.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "a date in a header can only be compared with the wall clock")]
pub fn wall_clock() -> SystemTime {
    SystemTime::now()
}

/// How long the server asks to be left alone, from `now` on; `None` where it gives no usable advice.
///
/// In order: `retry-after-ms` (milliseconds, may be a fraction), `Retry-After` (see [`parse_retry_after`]), and the
/// [reset of the exhausted rate limits](exhausted_reset). Of a header sent several times the longest value counts. The
/// result is above zero and at most [`LONGEST`].
#[must_use]
pub fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    longest(headers, "retry-after-ms", |text| positive(number(text)? / 1e3))
        .or_else(|| longest(headers, "retry-after", |text| parse_retry_after(text, now)))
        .or_else(|| exhausted_reset(headers, now))
}

/// Whether the server itself says that trying again makes sense: `x-should-retry: true` or `false`.
///
/// `false` wins where both were sent.
#[must_use]
pub fn should_retry(headers: &HeaderMap) -> Option<bool> {
    let said = |wanted: &str| texts(headers, "x-should-retry").any(|text| text.eq_ignore_ascii_case(wanted));
    if said("false") {
        Some(false)
    } else if said("true") {
        Some(true)
    } else {
        None
    }
}

/// The value of a `Retry-After` header: seconds, whole or with a fraction, or one of the three HTTP-date forms
/// (IMF-fixdate, RFC 850, asctime).
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
/// use failsoft_core::advice::parse_retry_after;
///
/// let now = UNIX_EPOCH + Duration::from_secs(784_111_770);
/// assert_eq!(parse_retry_after("Sun, 06 Nov 1994 08:49:37 GMT", now), Some(Duration::from_secs(7)));
/// assert_eq!(parse_retry_after("0", now), None);
/// assert_eq!(parse_retry_after("-5", now), None);
/// ```
#[must_use]
pub fn parse_retry_after(text: &str, now: SystemTime) -> Option<Duration> {
    let text = bounded(text)?;
    match number(text) {
        Some(seconds) => positive(seconds),
        None => http_date(text, now),
    }
}

/// The value of a rate limit's reset header: seconds (`12`, `0.5`), a duration as Go prints it (`6m0s`, `120ms`,
/// `2m59.56s`, also with days), an RFC 3339 time, an HTTP-date, or a Unix time in seconds or milliseconds. Bare numbers
/// are told apart by magnitude: from 10⁹ on they are a Unix time in seconds, from 10¹¹ on one in milliseconds.
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
/// use failsoft_core::advice::parse_reset;
///
/// let now = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
/// assert_eq!(parse_reset("6m0s", now), Some(Duration::from_secs(360)));
/// assert_eq!(parse_reset("1700000030000", now), Some(Duration::from_secs(30)));
/// assert_eq!(parse_reset("2023-11-14T22:13:50Z", now), Some(Duration::from_secs(30)));
/// assert_eq!(parse_reset("1699999999", now), None);
/// ```
#[must_use]
pub fn parse_reset(text: &str, now: SystemTime) -> Option<Duration> {
    let text = bounded(text)?;
    if let Some(value) = number(text) {
        return match value {
            v if v >= EPOCH_MILLIS => until(v / 1e3, now),
            v if v >= EPOCH_SECONDS => until(v, now),
            v => positive(v),
        };
    }
    go_duration(text).or_else(|| rfc_3339(text, now)).or_else(|| http_date(text, now))
}

/// The longest reset among the rate limits that these headers show as used up.
///
/// Understood are `x-ratelimit-remaining-NAME` with `x-ratelimit-reset-NAME` (and without a name), the same with
/// `ratelimit-`, `anthropic-ratelimit-NAME-remaining` (or a `-status` of `rejected`) with `-reset`, and the structured
/// `RateLimit` header in both its forms (`limit=10, remaining=0, reset=30` and `"burst";r=0;t=30`). A limit with
/// something left does not count, whatever its reset. Resets without any word on what remains count only if no limit
/// says more than that. A negative remainder is a placeholder and says nothing.
#[must_use]
pub fn exhausted_reset(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let mut seen = Seen::default();
    for name in headers.keys() {
        let name = name.as_str();
        if let Some((remaining, status)) = counterparts(name) {
            let left = remainder(headers, &remaining)
                .or_else(|| status.and_then(|status| rejected(headers, &status)));
            seen.add(left, longest(headers, name, |text| parse_reset(text, now)));
        } else if name == "ratelimit" {
            for text in texts(headers, name) {
                structured(text, now, |left, reset| seen.add(left, reset));
            }
        }
    }
    seen.exhausted.or(if seen.some_remaining_known { None } else { seen.undeclared })
}

/// What a gRPC server says about retrying, in the `grpc-retry-pushback-ms` trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushback {
    /// Again after exactly this time, which may be zero.
    After(Duration),
    /// Not again: the value is negative, unreadable, or there are several.
    Stop,
}

/// Reads [`Pushback`] from a gRPC answer's trailers (or from the headers of one that has nothing else).
#[must_use]
pub fn grpc_pushback(trailers: &HeaderMap) -> Option<Pushback> {
    let mut values = trailers.get_all("grpc-retry-pushback-ms").iter();
    let (first, more) = (values.next()?, values.next());
    let text = std::str::from_utf8(first.as_bytes()).ok().filter(|_| more.is_none());
    Some(text.map_or(Pushback::Stop, parse_pushback))
}

/// The value of a `grpc-retry-pushback-ms` trailer: whole milliseconds, an `int32` by gRPC's rules.
#[must_use]
pub fn parse_pushback(text: &str) -> Pushback {
    match text.parse::<i32>().map(u64::try_from) {
        Ok(Ok(ms)) => Pushback::After(Duration::from_millis(ms)),
        _ => Pushback::Stop,
    }
}

/// What the rate limits read so far amount to.
#[derive(Default)]
struct Seen {
    exhausted: Option<Duration>,
    undeclared: Option<Duration>,
    some_remaining_known: bool,
}

impl Seen {
    fn add(&mut self, left: Option<f64>, reset: Option<Duration>) {
        match left {
            Some(left) => {
                self.some_remaining_known = true;
                if left == 0.0 {
                    self.exhausted = self.exhausted.max(reset);
                }
            }
            None => self.undeclared = self.undeclared.max(reset),
        }
    }
}

/// For the name of a reset header, the names of the headers that say what is left of the same limit.
fn counterparts(name: &str) -> Option<(String, Option<String>)> {
    for family in ["x-ratelimit", "ratelimit"] {
        if let Some(limit) = name.strip_prefix(family).and_then(|rest| rest.strip_prefix("-reset")) {
            return Some((format!("{family}-remaining{limit}"), None));
        }
    }
    let limit = name.strip_prefix("anthropic-ratelimit-")?.strip_suffix("-reset")?;
    let sibling = |what| format!("anthropic-ratelimit-{limit}-{what}");
    Some((sibling("remaining"), Some(sibling("status"))))
}

/// The smallest remainder that a header states.
fn remainder(headers: &HeaderMap, name: &str) -> Option<f64> {
    texts(headers, name).filter_map(number).reduce(f64::min)
}

/// A limit that states no number may state whether it refused.
fn rejected(headers: &HeaderMap, name: &str) -> Option<f64> {
    let mut values = texts(headers, name).peekable();
    values.peek()?;
    Some(if values.any(|text| text.eq_ignore_ascii_case("rejected")) { 0.0 } else { 1.0 })
}

/// The structured header: `limit=10, remaining=0, reset=30`, or a list of `"name";r=0;t=30`.
fn structured(text: &str, now: SystemTime, mut add: impl FnMut(Option<f64>, Option<Duration>)) {
    let (mut left, mut reset) = (None, None);
    for member in split_unquoted(text, ',') {
        let (mut member_left, mut member_reset) = (None, None);
        for parameter in split_unquoted(member, ';') {
            let Some((key, value)) = parameter.split_once('=') else { continue };
            let value = value.trim();
            match key.trim() {
                "remaining" => left = number(value),
                "reset" => reset = parse_reset(value, now),
                "r" => member_left = number(value),
                "t" => member_reset = parse_reset(value, now),
                _ => {}
            }
        }
        if member_left.is_some() || member_reset.is_some() {
            add(member_left, member_reset);
        }
    }
    if left.is_some() || reset.is_some() {
        add(left, reset);
    }
}

/// Splits at a separator, but not inside a quoted string.
fn split_unquoted(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    let mut escaped = false;
    text.split(move |c| {
        if quoted {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => quoted = false,
                _ => {}
            }
            return false;
        }
        quoted = c == '"';
        c == separator
    })
}

/// The longest advice among a header's values.
fn longest(headers: &HeaderMap, name: &str, parse: impl Fn(&str) -> Option<Duration>) -> Option<Duration> {
    texts(headers, name).filter_map(parse).max()
}

/// A header's values that are text of a sane length, trimmed.
fn texts<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).iter();
    values.filter_map(|value| bounded(std::str::from_utf8(value.as_bytes()).ok()?))
}

fn bounded(text: &str) -> Option<&str> {
    (text.len() <= MAX_BYTES).then(|| text.trim())
}

/// A number that is not negative, as it is written in a header: no sign, no `inf` or `nan`. May be infinite by magnitude.
fn number(text: &str) -> Option<f64> {
    let starts = text.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    if starts { text.parse().ok() } else { None }
}

/// A wait of so many seconds, unless that is none at all.
fn positive(seconds: f64) -> Option<Duration> {
    if seconds.is_nan() || seconds <= 0.0 {
        return None;
    }
    some_wait(Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST))
}

/// The wait until a Unix time.
fn until(unix_seconds: f64, now: SystemTime) -> Option<Duration> {
    let at = Duration::try_from_secs_f64(unix_seconds).unwrap_or(Duration::MAX);
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    at.checked_sub(now).and_then(some_wait)
}

/// A duration as Go prints it: `1h2m3.5s`, `120ms`, `80µs`.
fn go_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (value, tail) = rest.split_at_checked(digits)?;
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at_checked(unit_end)?;
        let unit = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        total += number(value)? * unit;
        rest = tail;
    }
    positive(total)
}

fn rfc_3339(text: &str, now: SystemTime) -> Option<Duration> {
    let at: jiff::Timestamp = text.parse().ok()?;
    let now = jiff::Timestamp::try_from(now).ok()?;
    Duration::try_from(at.duration_since(now)).ok().and_then(some_wait)
}

fn http_date(text: &str, now: SystemTime) -> Option<Duration> {
    httpdate::parse_http_date(text).ok()?.duration_since(now).ok().and_then(some_wait)
}

fn some_wait(wait: Duration) -> Option<Duration> {
    (!wait.is_zero()).then_some(wait.min(LONGEST))
}

#[cfg(test)]
mod tests;
