//! What all handles of one cache share: the answers, the calls that run, the settings.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use failsoft_core::{Degraded, StandIn, Verdict};
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{self, CONTENT_ENCODING, SET_COOKIE, VARY},
    response::Parts,
};
use tokio::time::Instant;

use super::{
    flight::{Flights, Leader},
    form,
    fresh::Freshness,
    key::{CacheKey, Dialect, Digest, Keys, Want, directives, is_readable},
    meters::Meters,
    similar::{Asked, Similar},
};
use crate::{answer::Answer, store::Store};

/// Where an answer lies.
pub(super) type Place = (Digest, Want);

pub(super) type Lead = Leader<Place, Answer>;

pub(super) struct Core {
    pub(super) name: Arc<str>,
    pub(super) keys: Keys,
    pub(super) store: Store<Place, Answer>,
    pub(super) flights: Arc<Flights<Place, Answer>>,
    pub(super) body_cap: usize,
    pub(super) patience: Duration,
    /// Whether only answers are kept that somebody has judged.
    pub(super) judged: bool,
    /// Whether answers are kept that are `private`.
    pub(super) private: bool,
    /// Whether it counts what answers say of how long they are good.
    pub(super) lifetimes: bool,
    /// Cookies that are of the way and not of the user.
    pub(super) cookies: Vec<Box<str>>,
    pub(super) similar: Option<Similar>,
    pub(super) meters: Meters,
}

/// Why an answer is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotKept {
    /// Its head: the status, an encoding.
    Head,
    /// It says so: `no-store`, `private`, a cookie.
    Personal,
    /// It says that it is good no longer.
    Stale,
    /// It depends on headers that are not in the key.
    Vary,
    /// It stands in for the one that was asked for.
    Degraded,
    TooLong,
    Trailers,
    /// Shorter than announced.
    Cut,
    /// Judged, and not good.
    Bad,
    Unjudged,
    /// It is larger than all room.
    NoRoom,
}

impl NotKept {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Personal => "personal",
            Self::Stale => "stale",
            Self::Vary => "vary",
            Self::Degraded => "degraded",
            Self::TooLong => "too_long",
            Self::Trailers => "trailers",
            Self::Cut => "cut",
            Self::Bad => "bad",
            Self::Unjudged => "unjudged",
            Self::NoRoom => "no_room",
        }
    }
}

/// Cookies of load balancers and of the protection against bots, which come with every answer and are never given again.
pub(super) const COOKIES: [&str; 7] =
    ["__cf_bm", "_cfuvid", "__cflb", "AWSALB", "AWSALBCORS", "AWSALBTG", "GCLB"];

/// Headers on which nothing depends that is given again: answers in an encoding are not kept, and those for scripts of other
/// pages keep no header that says so.
const HARMLESS: [&str; 4] = ["accept-encoding", "origin", "x-origin", "referer"];

/// What an answer takes beside its bytes, about: its headers, its place in the maps.
const OVERHEAD: usize = 2048;

/// What an answer is given again before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// Before the service is asked. What stood in for its answer is none.
    Asking,
    /// Before the caller is told that all have failed.
    Failure,
}

/// An answer that is given again.
pub(super) struct Again {
    pub(super) parts: Parts,
    pub(super) bytes: Bytes,
    pub(super) age: Duration,
}

impl Core {
    /// Whether an answer may be kept, by its head.
    pub(super) fn may_keep(&self, parts: &Parts, at_least: u64, from_routes: bool) -> Result<(), NotKept> {
        let headers = &parts.headers;
        let encoded = headers
            .get_all(CONTENT_ENCODING)
            .iter()
            .any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"));
        if parts.status != StatusCode::OK || encoded || headers.contains_key(header::CONTENT_RANGE) {
            return Err(NotKept::Head);
        }
        let says_no = directives(headers).any(|(name, _)| {
            name.eq_ignore_ascii_case("no-store") || (!self.private && name.eq_ignore_ascii_case("private"))
        });
        if says_no
            || !is_readable(headers)
            || !headers.get_all(SET_COOKIE).iter().all(|cookie| self.is_of_the_way(cookie))
        {
            return Err(NotKept::Personal);
        }
        if !self.knows_all_that_varies(headers) {
            return Err(NotKept::Vary);
        }
        // One that is to be asked for in front may be stale, and stand in for all routes.
        let freshness = self.freshness(headers);
        if freshness.is_stale(freshness.age) && (!from_routes || freshness.is_strict) {
            return Err(NotKept::Stale);
        }
        let mark = Degraded::of(&parts.extensions);
        if mark.is_some_and(|mark| !from_routes || mark.stand_in != StandIn::Route) {
            return Err(NotKept::Degraded);
        }
        if at_least > self.body_cap as u64 {
            return Err(NotKept::TooLong);
        }
        Ok(())
    }

    fn freshness(&self, headers: &HeaderMap) -> Freshness {
        let said = Freshness::of(headers, !self.private);
        if self.lifetimes { said } else { Freshness { age: said.age, ..Freshness::default() } }
    }

    fn is_of_the_way(&self, cookie: &HeaderValue) -> bool {
        let name = cookie.as_bytes().split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii();
        self.cookies.iter().any(|known| known.as_bytes() == name)
    }

    fn knows_all_that_varies(&self, headers: &HeaderMap) -> bool {
        headers.get_all(VARY).iter().all(|value| {
            value.to_str().is_ok_and(|value| {
                value.split([',', ';']).map(str::trim).filter(|name| !name.is_empty()).all(|name| {
                    let is_known = |known: &str| known.eq_ignore_ascii_case(name);
                    HARMLESS.into_iter().any(is_known)
                        || self.keys.headers.iter().any(|known| is_known(known.as_str()))
                })
            })
        })
    }

    /// Keeps an answer that is good and whole, whose head came then.
    pub(super) fn keep(
        &self,
        place: &Place,
        (parts, came): (&Parts, Instant),
        bytes: &[u8],
        asked: Option<&Asked>,
    ) -> Option<Arc<Answer>> {
        let (freshness, now) = (self.freshness(&parts.headers), Instant::now());
        // What it says of its age it says of its head; for what says nothing the time begins when it is there.
        let born = if freshness.is_said() { came.checked_sub(freshness.age) } else { Some(now) };
        let Some(born) = born.filter(|born| now.saturating_duration_since(*born) < self.store.ttl) else {
            self.meters.not_kept(NotKept::Stale);
            return None;
        };
        let answer = Arc::new(Answer::marked(parts, bytes).with_freshness(freshness));
        let size = OVERHEAD.saturating_add(bytes.len().saturating_mul(2));
        if !self.store.insert(*place, Arc::clone(&answer), size, born) {
            self.meters.not_kept(NotKept::NoRoom);
            return None;
        }
        if let (Some(similar), Some(asked)) = (&self.similar, asked) {
            similar.insert(asked);
        }
        self.meters.kept(self.store.size());
        Some(answer)
    }

    /// The answer to the same request, in the form that is asked for.
    pub(super) fn look_up(&self, key: &CacheKey, place: Before) -> Option<Again> {
        if key.control.no_cache { None } else { self.look_at(key.exact.0, key, place) }
    }

    /// The answer to a similar request, and how similar that is.
    pub(super) fn look_up_similar(
        &self,
        key: &CacheKey,
        asked: &Asked,
        place: Before,
    ) -> Option<(Again, f32)> {
        if key.control.no_cache {
            return None;
        }
        let found = self.similar.as_ref()?.find(asked);
        // Those whose answers have gone are few, and most of them the oldest.
        found
            .into_iter()
            .take(8)
            .find_map(|(cosine, digest)| Some((self.look_at(digest, key, place)?, cosine)))
    }

    /// Begins to make the vector of what a request asks, where that is wanted.
    pub(super) fn ask(&self, key: &CacheKey) -> Option<Asked> {
        self.similar.as_ref()?.ask(key)
    }

    fn look_at(&self, digest: Digest, key: &CacheKey, place: Before) -> Option<Again> {
        let now = Instant::now();
        let want = key.exact.1;
        let young = |found: Option<(Arc<Answer>, Duration)>| {
            found
                .filter(|(answer, age)| place.takes(answer, *age))
                .filter(|(_, age)| key.control.max_age.is_none_or(|max| *age <= max))
        };
        if let Some((answer, age)) = young(self.store.get(&(digest, want), now)) {
            return Some(Again::of(&answer, age));
        }
        if key.dialect == Dialect::Unknown {
            return None;
        }
        let others: &[Want] = match want {
            Want::Unsaid => &[],
            Want::Whole => &[Want::Stream { usage: true }, Want::Stream { usage: false }],
            Want::Stream { usage: true } => &[Want::Whole, Want::Stream { usage: false }],
            Want::Stream { usage: false } => &[Want::Whole, Want::Stream { usage: true }],
        };
        others.iter().find_map(|other| {
            let (answer, age) = young(self.store.get(&(digest, *other), now))?;
            let (content_type, bytes) = form::convert(&answer, want)?;
            let mut again = Again::of(&answer, age);
            again.bytes = bytes;
            let headers = &mut again.parts.headers;
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
            headers.remove(header::CONTENT_LENGTH);
            headers.remove(header::ETAG);
            Some(again)
        })
    }
}

impl Before {
    pub(super) fn takes(self, answer: &Answer, age: Duration) -> bool {
        let is_stale = answer.freshness.is_stale(age);
        match self {
            Self::Asking => !is_stale && !answer.stood_in(),
            Self::Failure => !is_stale || !answer.freshness.is_strict,
        }
    }
}

impl Again {
    pub(super) fn of(answer: &Answer, age: Duration) -> Self {
        Self { parts: answer.head(age), bytes: answer.bytes.clone(), age }
    }
}

/// What a failure in the place of an answer is for those who follow.
pub(super) fn is_failure(parts: &Parts) -> bool {
    let verdict = failsoft_core::Insight::of(&parts.extensions).and_then(failsoft_core::Insight::verdict);
    !parts.status.is_success() || verdict.is_some_and(|verdict: Verdict| !verdict.is_success())
}
