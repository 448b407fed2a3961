//! Answers that are plain `Clone` values.

use std::{
    fmt,
    future::{Pending, Ready},
    sync::Arc,
    time::Duration,
};

use failsoft_core::{BoxError, Call, Mark};
use tokio::time::Instant;

use super::{ENTRIES, Keep, Kept, Key, Replayed, TTL_SECS};
use crate::store::Store;

/// Keeps answers that are `Clone`, under the keys that `key` gives the requests.
///
/// For values that are whole and good when the classifier calls them good. A body that is read later is not such
/// a value: for HTTP take [`http`](super::http()).
pub fn cloned<Req, Res, F>(key: F) -> ClonedAnswers<F, Res>
where
    F: Fn(&Req) -> Option<Key>,
{
    ClonedAnswers { key, store: Store::new(ENTRIES, usize::MAX, Duration::from_secs(TTL_SECS)) }
}

/// The store made by [`cloned`].
pub struct ClonedAnswers<F, Res> {
    key: F,
    store: Store<Key, Res>,
}

impl<F, Res> ClonedAnswers<F, Res> {
    /// At most so many answers, by default [`ENTRIES`](super::ENTRIES); 0 keeps none.
    #[must_use]
    pub const fn entries(mut self, entries: usize) -> Self {
        self.store.entries = entries;
        self
    }

    /// How long an answer may be given again, by default [an hour](super::TTL_SECS).
    #[must_use]
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.store.ttl = ttl;
        self
    }
}

impl<F, Req, Res> Keep<Req, Res> for ClonedAnswers<F, Res>
where
    F: Fn(&Req) -> Option<Key>,
    Res: Clone,
{
    type Key = Key;
    type Out = Res;
    type Keeping = Ready<Result<Res, BoxError>>;
    type Replaying = Pending<Option<Res>>;

    fn key(&self, request: &Req) -> Option<Key> {
        (self.key)(request)
    }

    fn keep(&self, key: Option<&Key>, response: Res) -> Kept<Res, Self::Keeping> {
        if let Some(key) = key.filter(|key| key.fits()) {
            self.store.insert(key.clone(), Arc::new(response.clone()), 0, Instant::now());
        }
        Kept::Now(response)
    }

    fn pass(&self, response: Res) -> Res {
        response
    }

    fn replay(&self, key: Key) -> Replayed<Res, Pending<Option<Res>>> {
        // With that mark, what was answered before was wrong.
        let earlier = self.store.get(&key, Instant::now()).filter(|_| !Call::is_marked(Mark::NoCache));
        Replayed::Now(earlier.map(|(answer, _)| Res::clone(&answer)))
    }
}

impl<F, Res> fmt::Debug for ClonedAnswers<F, Res> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClonedAnswers").field("store", &self.store).finish_non_exhaustive()
    }
}
