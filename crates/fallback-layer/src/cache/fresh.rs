//! How long an answer is good by what it says itself: RFC 9111, sections 4.2, 5.1 and 5.2.2.

use std::time::Duration;

use http::{
    HeaderMap,
    header::{AGE, DATE, EXPIRES},
};

use super::key::directives;

/// What an answer says of its own age, and of the age from which it is stale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Freshness {
    /// How old it was when it came: a cache on its way had it.
    pub(crate) age: Duration,
    /// `None` where it does not say.
    pub(crate) lifetime: Option<Duration>,
    /// Once stale it is not to be given again, not even when nobody else can answer.
    pub(crate) is_strict: bool,
}

/// A larger number of seconds counts as this one (RFC 9111, 1.2.2).
const MAX_SECONDS: u64 = 1 << 31;

impl Freshness {
    /// `shared`: whether several users may get the answer. What is only said to caches of that kind does not count for a private one.
    pub(super) fn of(headers: &HeaderMap, shared: bool) -> Self {
        let (mut max_age, mut s_maxage, mut is_strict, mut no_cache) = (None, None, false, false);
        for (name, value) in directives(headers) {
            let is = |known: &str| name.eq_ignore_ascii_case(known);
            // Of one that is said twice the first counts.
            if is("max-age") {
                max_age.get_or_insert_with(|| seconds(value));
            } else if shared && is("s-maxage") {
                s_maxage.get_or_insert_with(|| seconds(value));
                is_strict = true;
            } else {
                is_strict |= is("must-revalidate") || (shared && is("proxy-revalidate"));
                no_cache |= is("no-cache");
            }
        }
        let expires = || if no_cache { None } else { expires(headers) };
        let age = headers.get(AGE).and_then(|age| age.to_str().ok()).and_then(whole).unwrap_or_default();
        Self { age, lifetime: s_maxage.or(max_age).or_else(expires), is_strict }
    }

    /// Whether it says something.
    pub(super) const fn is_said(&self) -> bool {
        self.lifetime.is_some() || !self.age.is_zero()
    }

    /// Whether an answer of this age is stale.
    pub(super) fn is_stale(&self, age: Duration) -> bool {
        self.lifetime.is_some_and(|lifetime| age >= lifetime)
    }
}

/// One that cannot be read says that something was meant: the answer is stale at once.
fn seconds(value: &str) -> Duration {
    let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
    whole(value).unwrap_or_default()
}

fn whole(value: &str) -> Option<Duration> {
    let value = value.trim();
    let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| Duration::from_secs(value.parse().unwrap_or(MAX_SECONDS).min(MAX_SECONDS)))
}

/// What lies between the date of an answer and that on which it expires; nothing where it expires on no date, such as `0`.
fn expires(headers: &HeaderMap) -> Option<Duration> {
    let date = |name| headers.get(name).map(|value| httpdate::parse_http_date(value.to_str().ok()?).ok());
    let Some(expires) = date(EXPIRES)? else { return Some(Duration::ZERO) };
    // Our own clock may be another than the server's: without its date nothing is known.
    Some(expires.duration_since(date(DATE)??).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(headers: &[(&'static str, &'static str)], shared: bool) -> Freshness {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        Freshness::of(&map, shared)
    }

    fn lifetime(control: &'static str, shared: bool) -> Option<u64> {
        of(&[("cache-control", control)], shared).lifetime.map(|lifetime| lifetime.as_secs())
    }

    #[test]
    fn a_lifetime_is_read_as_the_rfc_says() {
        for (control, private, shared) in [
            ("", None, None),
            ("no-cache, must-revalidate", None, None),
            ("max-age=60", Some(60), Some(60)),
            ("Public, MAX-AGE=60", Some(60), Some(60)),
            ("max-age=\"60\"", Some(60), Some(60)),
            ("max-age=60, s-maxage=5", Some(60), Some(5)),
            ("s-maxage=5", None, Some(5)),
            ("max-age=0", Some(0), Some(0)),
            ("max-age=60, max-age=5", Some(60), Some(60)),
            // What cannot be read is not taken for nothing.
            ("max-age", Some(0), Some(0)),
            ("max-age=-1", Some(0), Some(0)),
            ("max-age=1.5", Some(0), Some(0)),
            ("max-age=99999999999999999999", Some(MAX_SECONDS), Some(MAX_SECONDS)),
        ] {
            assert_eq!((lifetime(control, false), lifetime(control, true)), (private, shared), "{control}");
        }
    }

    #[test]
    fn a_date_counts_where_nothing_else_is_said() {
        const DATE: (&str, &str) = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        const MINUTE: (&str, &str) = ("expires", "Sun, 06 Nov 1994 08:50:37 GMT");
        let secs = |headers: &[_]| of(headers, false).lifetime.map(|lifetime| lifetime.as_secs());
        assert_eq!(secs(&[DATE, MINUTE]), Some(60));
        assert_eq!(secs(&[DATE, MINUTE, ("cache-control", "max-age=5")]), Some(5));
        assert_eq!(secs(&[DATE, ("expires", "Sun, 06 Nov 1994 08:49:00 GMT")]), Some(0));
        assert_eq!(secs(&[("expires", "0")]), Some(0));
        assert_eq!(secs(&[MINUTE]), None);
        // Frameworks send both with whatever is made for one request, and the one does not count.
        assert_eq!(secs(&[DATE, ("expires", "0"), ("cache-control", "no-cache")]), None);
    }

    #[test]
    fn the_age_of_an_answer_counts_and_who_may_give_it_when_it_is_stale() {
        let read = of(&[("age", "40"), ("cache-control", "max-age=60, must-revalidate")], false);
        assert_eq!((read.age.as_secs(), read.is_strict), (40, true));
        assert!(!read.is_stale(Duration::from_secs(59)) && read.is_stale(Duration::from_secs(60)));
        assert_eq!(of(&[("age", "soon")], false), Freshness::default());
        let proxies = [("cache-control", "max-age=60, proxy-revalidate")];
        assert_eq!((of(&proxies, false).is_strict, of(&proxies, true).is_strict), (false, true));
        assert!(of(&[("cache-control", "s-maxage=60")], true).is_strict);
    }
}
