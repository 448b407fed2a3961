//! A bounded map of answers from which the least recently used goes first.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

pub(crate) struct Store<K, V> {
    pub(crate) entries: usize,
    /// In all; what an answer counts for is said when it comes in.
    pub(crate) bytes: usize,
    pub(crate) ttl: Duration,
    answers: Mutex<Answers<K, V>>,
}

struct Answers<K, V> {
    by_key: HashMap<K, Answer<V>>,
    by_use: BTreeMap<u64, K>,
    next: u64,
    bytes: usize,
}

struct Answer<V> {
    value: Arc<V>,
    kept: Instant,
    turn: u64,
    bytes: usize,
}

impl<K: Hash + Eq + Clone, V> Store<K, V> {
    pub(crate) fn new(entries: usize, bytes: usize, ttl: Duration) -> Self {
        let answers = Answers { by_key: HashMap::new(), by_use: BTreeMap::new(), next: 0, bytes: 0 };
        Self { entries, bytes, ttl, answers: Mutex::new(answers) }
    }

    /// Whether it found room. Then it has taken the place of an earlier one, and of what was used longest ago.
    pub(crate) fn insert(&self, key: K, value: Arc<V>, bytes: usize, now: Instant) -> bool {
        if self.entries == 0 || bytes > self.bytes {
            return false;
        }
        // What was replaced and what had to go are dropped after the lock is released.
        let mut gone = Vec::new();
        self.with(|answers| {
            gone.extend(answers.remove(&key));
            let turn = answers.turn();
            answers.bytes += bytes;
            answers.by_use.insert(turn, key.clone());
            answers.by_key.insert(key, Answer { value, kept: now, turn, bytes });
            while answers.by_key.len() > self.entries
                || answers.bytes > self.bytes
                || answers.is_oldest_over(self.ttl, now)
            {
                let Some((_, oldest)) = answers.by_use.pop_first() else { break };
                gone.extend(answers.remove(&oldest));
            }
        });
        true
    }

    /// The answer and its age, which this makes the most recently used. One that is too old goes.
    pub(crate) fn get(&self, key: &K, now: Instant) -> Option<(Arc<V>, Duration)> {
        let (found, _gone) = self.with(|answers| {
            let next = answers.turn();
            let Some(answer) = answers.by_key.get_mut(key) else { return (None, None) };
            let age = now.saturating_duration_since(answer.kept);
            if age >= self.ttl {
                return (None, answers.remove(key));
            }
            let found = Arc::clone(&answer.value);
            let turn = std::mem::replace(&mut answer.turn, next);
            if let Some(key) = answers.by_use.remove(&turn) {
                answers.by_use.insert(next, key);
            }
            (Some((found, age)), None)
        });
        found
    }

    /// How many there are, and how many bytes they count for.
    pub(crate) fn size(&self) -> (usize, usize) {
        self.with(|answers| (answers.by_key.len(), answers.bytes))
    }

    /// Forgets all.
    #[cfg(any(test, feature = "cache"))]
    pub(crate) fn clear(&self) {
        let _gone = self.with(|answers| {
            answers.bytes = 0;
            answers.by_use.clear();
            std::mem::take(&mut answers.by_key)
        });
    }

    fn with<R>(&self, f: impl FnOnce(&mut Answers<K, V>) -> R) -> R {
        f(&mut self.answers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<K: Hash + Eq + Clone, V> Answers<K, V> {
    fn turn(&mut self) -> u64 {
        self.next = self.next.wrapping_add(1);
        self.next
    }

    fn remove(&mut self, key: &K) -> Option<Answer<V>> {
        let gone = self.by_key.remove(key)?;
        self.by_use.remove(&gone.turn);
        self.bytes = self.bytes.saturating_sub(gone.bytes);
        Some(gone)
    }

    fn is_oldest_over(&self, ttl: Duration, now: Instant) -> bool {
        let oldest = self.by_use.first_key_value().and_then(|(_, key)| self.by_key.get(key));
        // Not the one that has just come in, also where answers live for no time at all.
        oldest.is_some_and(|oldest| oldest.kept < now && now.saturating_duration_since(oldest.kept) >= ttl)
    }
}

impl<K: Hash + Eq + Clone, V> fmt::Debug for Store<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("entries", &self.entries)
            .field("ttl", &self.ttl)
            .field("kept", &self.size().0)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TTL: Duration = Duration::from_secs(60);

    fn get(store: &Store<u8, u8>, key: u8, now: Instant) -> Option<u8> {
        store.get(&key, now).map(|(value, _)| *value)
    }

    #[tokio::test(start_paused = true)]
    async fn the_store_is_bounded_and_the_least_recently_used_answer_goes_first() {
        let (store, now) = (Store::new(2, usize::MAX, TTL), Instant::now());
        let insert = |key, value| store.insert(key, Arc::new(value), 1, now);
        insert(1, 1);
        insert(2, 2);
        insert(1, 11); // renewed, so that 2 goes
        insert(3, 3);
        assert_eq!([1, 2, 3].map(|key| get(&store, key, now)), [Some(11), None, Some(3)]);
        get(&store, 1, now); // used, so that 3 goes
        insert(4, 4);
        assert_eq!([1, 3, 4].map(|key| get(&store, key, now)), [Some(11), None, Some(4)]);
        store.with(|answers| assert_eq!((answers.by_key.len(), answers.by_use.len()), (2, 2)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_older_than_its_time_to_live_is_gone() {
        let (store, now) = (Store::new(9, 9, TTL), Instant::now());
        store.insert(1, Arc::new(1), 1, now);
        let late = now + TTL - Duration::from_secs(1);
        assert_eq!(store.get(&1, late).map(|(_, age)| age.as_secs()), Some(59));
        assert_eq!(get(&store, 1, now + TTL), None);
        assert_eq!(store.size(), (0, 0));
        // One that nobody asks for any more goes with the next that comes.
        store.insert(1, Arc::new(1), 1, now);
        store.insert(2, Arc::new(2), 1, now + TTL);
        assert_eq!(store.size(), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_larger_than_all_room_is_refused_and_moves_nothing() {
        let (store, now) = (Store::new(9, 9, TTL), Instant::now());
        assert!(store.insert(1, Arc::new(1), 9, now));
        assert!(!store.insert(2, Arc::new(2), 10, now));
        assert_eq!(get(&store, 1, now), Some(1));
        store.clear();
        assert_eq!(store.size(), (0, 0));
    }

    proptest! {
        /// Beside a list that is searched from end to end.
        #[test]
        fn the_store_does_what_a_plain_list_does(
            acts in proptest::collection::vec((any::<bool>(), 0_u8..6, 1_usize..6, 0_u64..20), 0..60)
        ) {
            let start = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async { Instant::now() });
            let store = Store::new(4, 12, TTL);
            // Oldest use first: key, value, bytes, since when.
            let mut list: Vec<(u8, u8, usize, Instant)> = Vec::new();
            let (mut now, mut count) = (start, 0);
            for (insert, key, bytes, seconds) in acts {
                now += Duration::from_secs(seconds);
                let place = list.iter().position(|entry| entry.0 == key);
                if insert {
                    count += 1;
                    store.insert(key, Arc::new(count), bytes, now);
                    place.map(|place| list.remove(place));
                    list.push((key, count, bytes, now));
                    while list.len() > 4 || list.iter().map(|entry| entry.2).sum::<usize>() > 12 {
                        list.remove(0);
                    }
                } else {
                    let mut expected = None;
                    if let Some(place) = place {
                        let entry = list.remove(place);
                        if now - entry.3 < TTL {
                            expected = Some(entry.1);
                            list.push(entry);
                        }
                    }
                    prop_assert_eq!(get(&store, key, now), expected);
                }
                let (entries, bytes) = store.size();
                // What is too old may have gone earlier than in the list.
                prop_assert!(entries <= list.len() && bytes <= 12);
                let young = list.iter().filter(|entry| now - entry.3 < TTL).count();
                prop_assert!(entries >= young.min(entries));
            }
        }
    }
}
