//! Answers over HTTP, held whole.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use failsoft_core::{BoxError, Facts, Finish, Held, Hold, Insight, ReadWhole, Slow, Whole};
use http::{
    Extensions, HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{self, AGE, CONTENT_LENGTH, CONTENT_TYPE},
    response::Parts,
};
use http_body::Body as _;

use super::{Keep, Kept, Key, store::Store};

/// Keeps answers over HTTP, under the keys that `key` gives the requests.
///
/// An answer with status 200 that is no stream (of events, JSON lines or gRPC messages) and not longer than the [cap](HttpAnswers::body_cap) is read to
/// its end before it is handed on, with a [`Held`] body; one that breaks off on the way is a failure of its route,
/// and the next one is taken. It is kept when it is whole, without trailers, as long as its `Content-Length` says,
/// and nothing that an inner layer learnt of it ([`Insight`]) speaks against it: no failure, no finish but a normal
/// one. Everything else passes through unread and is not kept.
///
/// An answer that stands in has status and body as they were, the headers that describe the body, an `Age`, the
/// header `x-failsoft-degraded: last-good`, and [`Degraded`] in its extensions, beside the [`Insight`] that
/// was learnt of it, so that checks outside see the same answer; its usage is zero, as it costs nothing again. Cookies and all else that was of
/// the one exchange are not repeated.
pub fn http<Req, F>(key: F) -> HttpAnswers<F>
where
    F: Fn(&Req) -> Option<Key>,
{
    HttpAnswers { key, cap: HttpAnswers::<F>::BODY_CAP, store: Arc::new(Store::new()) }
}

/// The store made by [`http`](http()).
pub struct HttpAnswers<F> {
    key: F,
    cap: usize,
    store: Arc<Store<Answer>>,
}

/// On the extensions of an answer that stands in: it is an earlier one, this old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Degraded {
    age: Duration,
}

impl Degraded {
    /// The mark on an answer, where it has one.
    #[must_use]
    pub fn of(extensions: &Extensions) -> Option<&Self> {
        extensions.get()
    }

    /// How old the answer is.
    #[must_use]
    pub const fn age(&self) -> Duration {
        self.age
    }
}

struct Answer {
    headers: HeaderMap,
    /// Among them, in a type of its own, the URL of a reqwest response.
    extensions: Extensions,
    /// What was learnt of it, for checks outside this layer.
    facts: Option<Facts>,
    bytes: Bytes,
}

/// Content that is read while it comes, so that nobody may wait for its end.
const STREAMS: [&str; 5] = [
    "text/event-stream",
    "application/grpc",
    "application/x-ndjson",
    "application/jsonl",
    "application/stream+json",
];

/// Headers that describe the body, and go with it.
const KEPT: [HeaderName; 6] = [
    CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    CONTENT_LENGTH,
    header::ETAG,
    header::LAST_MODIFIED,
];

impl<F> HttpAnswers<F> {
    /// A longer body, in bytes, is not kept by default: 64 KiB, so that the default number of answers takes at most
    /// 64 MB.
    pub const BODY_CAP: usize = 64 * 1024;

    /// At most so many answers, by default [`ENTRIES`](super::ENTRIES); 0 keeps none.
    #[must_use]
    pub fn entries(mut self, entries: usize) -> Self {
        self.set(|store| store.entries = entries);
        self
    }

    /// How long an answer may be given again, by default [an hour](super::TTL_SECS).
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.set(|store| store.ttl = ttl);
        self
    }

    /// A longer body, in bytes, is not kept; by default [`BODY_CAP`](Self::BODY_CAP).
    #[must_use]
    pub const fn body_cap(mut self, cap: usize) -> Self {
        self.cap = cap;
        self
    }

    /// While it is being set up, nobody else has the store.
    fn set(&mut self, f: impl FnOnce(&mut Store<Answer>)) {
        if let Some(store) = Arc::get_mut(&mut self.store) {
            f(store);
        }
    }

    fn may_keep(&self, parts: &Parts, at_least: u64) -> bool {
        let content_type = parts.headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        let is_stream = STREAMS.iter().any(|name| {
            content_type.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name.as_bytes()))
        });
        parts.status == StatusCode::OK && !is_stream && at_least <= self.cap as u64
    }
}

impl<F, Req, Res> Keep<Req, Res> for HttpAnswers<F>
where
    F: Fn(&Req) -> Option<Key>,
    Res: Hold<Body: Unpin>,
{
    type Key = Key;
    type Out = Res::Out;
    type Keeping = KeepWhole<Res>;

    fn key(&self, request: &Req) -> Option<Key> {
        (self.key)(request)
    }

    fn keep(&self, key: Option<&Key>, response: Res) -> Kept<Res::Out, KeepWhole<Res>> {
        let (parts, body) = response.open();
        match key.filter(|_| self.may_keep(&parts, body.size_hint().lower())) {
            None => Kept::Now(Res::close(parts, Held::unread(body))),
            Some(key) => Kept::Later(KeepWhole {
                read: ReadWhole::new(body, self.cap),
                rest: Some((parts, key.clone())),
                store: Arc::clone(&self.store),
            }),
        }
    }

    fn pass(&self, response: Res) -> Res::Out {
        let (parts, body) = response.open();
        Res::close(parts, Held::unread(body))
    }

    fn replay(&self, key: &Key) -> Option<Res::Out> {
        let (answer, age) = self.store.get(key)?;
        let mut parts = http::Response::new(()).into_parts().0;
        parts.headers.clone_from(&answer.headers);
        parts.headers.insert(AGE, HeaderValue::from(age.as_secs()));
        let degraded = HeaderName::from_static("x-failsoft-degraded");
        parts.headers.insert(degraded, HeaderValue::from_static("last-good"));
        parts.extensions.clone_from(&answer.extensions);
        parts.extensions.insert(Degraded { age });
        if let Some(facts) = &answer.facts {
            // One of its own: what is learnt of one answer is not told of another.
            let insight = Insight::new();
            insight.learn(|new| new.clone_from(facts));
            parts.extensions.insert(insight);
        }
        Some(Res::close(parts, Held::whole(answer.bytes.clone(), None)))
    }
}

/// Reads an answer to its end and keeps it, see [`http`](http()).
pub struct KeepWhole<Res: Hold> {
    read: ReadWhole<Res::Body>,
    /// Taken when it is handed on.
    rest: Option<(Parts, Key)>,
    store: Arc<Store<Answer>>,
}

impl<Res: Hold<Body: Unpin>> Future for KeepWhole<Res> {
    type Output = Result<Res::Out, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let whole = ready!(Pin::new(&mut this.read).poll(cx));
        let Some((parts, key)) = this.rest.take() else { return Poll::Pending };
        Poll::Ready(match whole {
            Whole::Complete { bytes, trailers } => {
                if trailers.is_none() && is_good(&parts, &bytes) {
                    this.store.insert(key, Answer::new(&parts, &bytes));
                }
                Ok(Res::close(parts, Held::whole(bytes, trailers)))
            }
            Whole::TooLarge(body) => Ok(Res::close(parts, body)),
            Whole::Failed { error, .. } => Err(error),
            // A way to end that this version does not know is none to keep.
            _ => Err("the body could not be read".into()),
        })
    }
}

impl<Res: Hold> fmt::Debug for KeepWhole<Res> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeepWhole").field("read", &self.read).finish_non_exhaustive()
    }
}

/// What an inner layer learnt may be known only now that the body has ended.
fn is_good(parts: &Parts, bytes: &Bytes) -> bool {
    let length = parts.headers.get(CONTENT_LENGTH).map(HeaderValue::as_bytes);
    let whole = length.is_none_or(|length| length == bytes.len().to_string().as_bytes());
    let learnt_good = Insight::of(&parts.extensions).is_none_or(|insight| {
        insight.read(|facts| {
            facts.verdict.is_none_or(|verdict| verdict.is_success())
                && matches!(facts.finish, None | Some(Finish::Stop | Finish::ToolCalls))
        })
    });
    whole && learnt_good
}

impl Answer {
    fn new(parts: &Parts, bytes: &Bytes) -> Self {
        let mut headers = HeaderMap::new();
        for name in KEPT {
            if let Some(value) = parts.headers.get(&name) {
                headers.insert(name, value.clone());
            }
        }
        let mut extensions = parts.extensions.clone();
        let facts = extensions.remove::<Insight>().map(|insight| {
            let mut facts = insight.read(|facts| facts.within(bytes.len()));
            // The tokens were counted when it was made: standing in costs none, which is not the same as unknown.
            let zero = Some(0);
            let none = &mut facts.usage;
            (none.input, none.cache_read, none.cache_write) = (zero, zero, zero);
            (none.output, none.reasoning) = (zero, zero);
            // Nor does it say anything of how quick a target is now.
            (facts.output_bytes, facts.first_content, facts.slow) = (0, None, Slow::default());
            facts
        });
        // Copied: the bytes may be a small part of a large buffer.
        Self { headers, extensions, facts, bytes: Bytes::copy_from_slice(bytes) }
    }
}

impl<F> fmt::Debug for HttpAnswers<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpAnswers")
            .field("cap", &self.cap)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}
