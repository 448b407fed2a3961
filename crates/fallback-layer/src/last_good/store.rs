//! A bounded map of answers from which the oldest goes first.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::{ENTRIES, Key, TTL_SECS};

pub(super) struct Store<V> {
    pub(super) entries: usize,
    pub(super) ttl: Duration,
    answers: Mutex<Answers<V>>,
}

struct Answers<V> {
    by_key: HashMap<Key, Answer<V>>,
    by_age: BTreeMap<u64, Key>,
    next: u64,
}

struct Answer<V> {
    value: Arc<V>,
    kept: Instant,
    turn: u64,
}

impl<V> Store<V> {
    pub(super) fn new() -> Self {
        let answers = Answers { by_key: HashMap::new(), by_age: BTreeMap::new(), next: 0 };
        Self { entries: ENTRIES, ttl: Duration::from_secs(TTL_SECS), answers: Mutex::new(answers) }
    }

    pub(super) fn insert(&self, key: Key, value: V) {
        if self.entries == 0 || !key.fits() {
            return;
        }
        let (value, kept) = (Arc::new(value), Instant::now());
        // What was replaced and what had to go are dropped after the lock is released.
        let _gone = self.with(|answers| {
            let turn = answers.next;
            answers.next = turn.wrapping_add(1);
            let replaced = answers.by_key.insert(key.clone(), Answer { value, kept, turn });
            if let Some(replaced) = &replaced {
                answers.by_age.remove(&replaced.turn);
            }
            answers.by_age.insert(turn, key);
            let oldest = (answers.by_age.len() > self.entries).then(|| answers.by_age.pop_first()).flatten();
            (replaced, oldest.and_then(|(_, key)| answers.by_key.remove(&key)))
        });
    }

    /// The answer and its age. One that is too old goes.
    pub(super) fn get(&self, key: &Key) -> Option<(Arc<V>, Duration)> {
        let now = Instant::now();
        let (found, _gone) = self.with(|answers| {
            let Some(answer) = answers.by_key.get(key) else { return (None, None) };
            let age = now.saturating_duration_since(answer.kept);
            if age < self.ttl {
                return (Some((Arc::clone(&answer.value), age)), None);
            }
            let gone = answers.by_key.remove(key);
            if let Some(gone) = &gone {
                answers.by_age.remove(&gone.turn);
            }
            (None, gone)
        });
        found
    }

    fn with<R>(&self, f: impl FnOnce(&mut Answers<V>) -> R) -> R {
        f(&mut self.answers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<V> fmt::Debug for Store<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("entries", &self.entries)
            .field("ttl", &self.ttl)
            .field("kept", &self.with(|answers| answers.by_key.len()))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(scope: &str, request: u8) -> Key {
        Key::new(scope, [request])
    }

    fn get(store: &Store<u8>, key: &Key) -> Option<u8> {
        store.get(key).map(|(value, _)| *value)
    }

    #[tokio::test(start_paused = true)]
    async fn the_store_is_bounded_and_the_oldest_answer_goes_first() {
        let mut store = Store::new();
        store.entries = 2;
        store.insert(key("t", 1), 1);
        store.insert(key("t", 2), 2);
        store.insert(key("t", 1), 11); // renewed, so that 2 is the oldest now
        store.insert(key("t", 3), 3);
        assert_eq!([1, 2, 3].map(|r| get(&store, &key("t", r))), [Some(11), None, Some(3)]);
        store.with(|answers| assert_eq!((answers.by_key.len(), answers.by_age.len()), (2, 2)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_older_than_its_time_to_live_is_gone() {
        let store = Store::new();
        store.insert(key("t", 1), 1);
        tokio::time::advance(Duration::from_secs(TTL_SECS - 1)).await;
        assert_eq!(store.get(&key("t", 1)).map(|(_, age)| age.as_secs()), Some(TTL_SECS - 1));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(get(&store, &key("t", 1)), None);
        store.with(|answers| assert!(answers.by_key.is_empty() && answers.by_age.is_empty()));
    }

    #[tokio::test(start_paused = true)]
    async fn scopes_never_share_and_a_huge_key_is_not_kept() {
        let store = Store::new();
        store.insert(key("tenant-a", 1), 1);
        assert_eq!(get(&store, &key("tenant-b", 1)), None);
        let huge = Key::new("t", vec![0; Key::MAX_BYTES]);
        store.insert(huge.clone(), 1);
        assert_eq!(get(&store, &huge), None);
    }
}
