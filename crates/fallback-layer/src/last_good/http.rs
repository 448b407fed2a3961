//! Answers over HTTP, held whole.

use std::{
    fmt,
    future::Pending,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use failsoft_core::{BoxError, Call, Degraded, Held, Hold, Mark, ReadWhole, StandIn, Whole};
use http::{StatusCode, response::Parts};
use http_body::Body as _;
use tokio::time::Instant;

use super::{ENTRIES, Keep, Kept, Key, Replayed, TTL_SECS};
use crate::{
    answer::{Answer, is_broken_json, is_good, is_of_a_route, is_stream, is_whole},
    store::Store,
};

/// Keeps answers over HTTP, under the keys that `key` gives the requests.
///
/// An answer with status 200 that is no stream (of events, JSON lines or gRPC messages) and not longer than the [cap](HttpAnswers::body_cap) is read to
/// its end before it is handed on, with a [`Held`] body; one that breaks off on the way is a failure of its route,
/// and the next one is taken. It is kept when it is whole, without trailers, as long as its `Content-Length` says,
/// and nothing that an inner layer learnt of it ([`Insight`](failsoft_core::Insight)) speaks against it: no failure, no finish but a normal
/// one. Everything else passes through unread and is not kept.
///
/// An answer that stands in has status and body as they were, the headers that describe the body, an `Age`, the
/// header `x-failsoft-degraded: last-good`, and [`Degraded`] in its extensions, beside the `Insight` that
/// was learnt of it, so that checks outside see the same answer; its usage is zero, as it costs nothing again. Cookies and all else that was of
/// the one exchange are not repeated.
pub fn http<Req, F>(key: F) -> HttpAnswers<F>
where
    F: Fn(&Req) -> Option<Key>,
{
    HttpAnswers {
        key,
        cap: HttpAnswers::<F>::BODY_CAP,
        store: Arc::new(Store::new(ENTRIES, usize::MAX, Duration::from_secs(TTL_SECS))),
    }
}

/// The store made by [`http`](http()).
pub struct HttpAnswers<F> {
    key: F,
    cap: usize,
    store: Arc<Store<Key, Answer>>,
}

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
    fn set(&mut self, f: impl FnOnce(&mut Store<Key, Answer>)) {
        if let Some(store) = Arc::get_mut(&mut self.store) {
            f(store);
        }
    }

    fn may_keep(&self, parts: &Parts, at_least: u64) -> bool {
        parts.status == StatusCode::OK && !is_stream(&parts.headers) && at_least <= self.cap as u64
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
    type Replaying = Pending<Option<Res::Out>>;

    fn key(&self, request: &Req) -> Option<Key> {
        (self.key)(request)
    }

    fn keep(&self, key: Option<&Key>, response: Res) -> Kept<Res::Out, KeepWhole<Res>> {
        let (parts, body) = response.open();
        match key.filter(|key| key.fits() && self.may_keep(&parts, body.size_hint().lower())) {
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

    fn replay(&self, key: Key) -> Replayed<Res::Out, Pending<Option<Res::Out>>> {
        // With that mark, what was answered before was wrong.
        let earlier = || self.store.get(&key, Instant::now()).filter(|_| !Call::is_marked(Mark::NoCache));
        let Some((answer, age)) = earlier() else { return Replayed::Now(None) };
        let mut parts = answer.head(age);
        let mark = Degraded::by(StandIn::LastGood).with_age(age);
        mark.put(&mut parts.headers, &mut parts.extensions, true);
        Replayed::Now(Some(Res::close(parts, Held::whole(answer.bytes.clone(), None))))
    }
}

/// Reads an answer to its end and keeps it, see [`http`](http()).
pub struct KeepWhole<Res: Hold> {
    read: ReadWhole<Res::Body>,
    /// Taken when it is handed on.
    rest: Option<(Parts, Key)>,
    store: Arc<Store<Key, Answer>>,
}

impl<Res: Hold<Body: Unpin>> Future for KeepWhole<Res> {
    type Output = Result<Res::Out, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let whole = ready!(Pin::new(&mut this.read).poll(cx));
        let Some((parts, key)) = this.rest.take() else { return Poll::Pending };
        Poll::Ready(match whole {
            Whole::Complete { bytes, trailers } => {
                let whole = trailers.is_none()
                    && is_whole(&parts.headers, bytes.len())
                    && !is_broken_json(&parts.headers, &parts.extensions, &bytes);
                if whole && is_good(&parts.extensions, false) && is_of_a_route(&parts.extensions) {
                    this.store.insert(key, Arc::new(Answer::new(&parts, &bytes)), 0, Instant::now());
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

impl<F> fmt::Debug for HttpAnswers<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpAnswers")
            .field("cap", &self.cap)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}
