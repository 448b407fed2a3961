//! [`KeyMap`]: state for each key of a caller's choosing, in bounded memory.
//!
//! A layer that keeps a circuit or a budget for each tenant, session or host must not grow with the number of names that
//! callers make up. The map holds at most so many keys; for a new one the least recently used goes, but never one whose
//! value is still needed. When none can go, the new key gets what the map was made for: a shared value, or nothing.
//!
//! ```
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use failsoft_core::{Evict, KeyMap};
//!
//! struct Spent(AtomicU64);
//!
//! impl Evict for Spent {
//!     fn may_go(&self) -> bool { self.0.load(Ordering::Relaxed) == 0 }
//! }
//!
//! let spent = KeyMap::refusing(2);
//! let tokens = |key, tokens| {
//!     spent.get_or_insert_with(key, || Spent(AtomicU64::new(0))).map(|spent| spent.0.fetch_add(tokens, Ordering::Relaxed))
//! };
//! assert!(tokens("a", 10).is_ok() && tokens("b", 0).is_ok());
//! assert!(tokens("c", 10).is_ok()); // "b" spent nothing and goes
//! assert!(tokens("d", 10).is_err()); // neither "a" nor "c" may be forgotten
//! assert_eq!((spent.evicted(), spent.turned_away()), (1, 1));
//! ```

mod list;
#[cfg(test)]
mod tests;

use std::{
    borrow::{Borrow, Cow},
    collections::HashMap,
    error::Error,
    fmt,
    hash::{BuildHasher, Hash, RandomState},
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use self::list::{Ends, Links, Nodes};

/// How many keys a layer keeps state for, unless it is told otherwise.
pub const DEFAULT_KEYS: usize = 10_000;

/// So many of the oldest keys are looked at for one new key.
const LOOK: usize = 64;

/// And so many of those that were set aside before any other.
const AGAIN: usize = 2;

/// The longest key that [`bounded_key`] leaves as it is, in bytes.
pub const MAX_KEY: usize = 256;

/// So much of a longer one is kept, in bytes.
const BEGINNING: usize = 200;

/// A text that callers make up as a key that has at most [`MAX_KEY`] bytes: ten thousand keys are bounded memory only if
/// each of them is.
///
/// A longer one becomes its beginning and a hash of the whole, of 128 bits. That is another one in each process, so nobody can
/// find two texts that become the same key, and it is not for what is saved. A bounded key stays as it is.
///
/// ```
/// use failsoft_core::{MAX_KEY, bounded_key};
///
/// assert_eq!(bounded_key("tenant-7"), "tenant-7");
/// let [one, two] = ["1", "2"].map(|end| ["x".repeat(1_000_000), end.into()].concat());
/// assert!(bounded_key(&one).len() <= MAX_KEY && bounded_key(&one) != bounded_key(&two));
/// ```
#[must_use]
pub fn bounded_key(key: &str) -> Cow<'_, str> {
    if key.len() <= MAX_KEY { Cow::Borrowed(key) } else { Cow::Owned(shortened(key)) }
}

#[cold]
fn shortened(key: &str) -> String {
    static HASHES: LazyLock<[RandomState; 2]> = LazyLock::new(|| [RandomState::new(), RandomState::new()]);
    let end = (0..=BEGINNING).rev().find(|&at| key.is_char_boundary(at)).unwrap_or(0);
    let [one, two] = [&HASHES[0], &HASHES[1]].map(|hash| hash.hash_one(key));
    format!("{}…#{one:016x}{two:016x}", &key[..end])
}

/// A value of a [`KeyMap`] says whether it may be forgotten.
pub trait Evict {
    /// `false` while forgetting it would be wrong: an open circuit, a call in flight, something spent for good.
    ///
    /// A value that somebody holds besides the map stays in any case. Asked while the map is locked: read a few
    /// atomics, and do not come back to the map.
    fn may_go(&self) -> bool;
}

/// Values for a bounded number of keys, shared behind an [`Arc`]; the least recently used goes first.
///
/// Each access takes one lock for a few steps, however many keys there are. Values are made and dropped outside the
/// lock; the keys' `Hash`, `Eq` and `Clone` run inside it.
pub struct KeyMap<K, V> {
    capacity: usize,
    /// What a key shares for which there is no room.
    overflow: Option<Arc<V>>,
    evicted: AtomicU64,
    turned_away: AtomicU64,
    inner: Mutex<Inner<K, V>>,
}

/// There is no room for another key, and none of those that are there may be forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeysFull {
    capacity: usize,
}

struct Inner<K, V> {
    index: HashMap<K, usize>,
    nodes: Nodes<Node<K, V>>,
    /// From the least to the most recently used.
    used: Ends,
    /// Those that could not go when they were the oldest, in that order: a few are looked at again for each new key, and all when no
    /// other can go.
    aside: Ends,
}

struct Node<K, V> {
    key: K,
    value: Arc<V>,
    is_aside: bool,
    links: Links,
}

impl<K, V> KeyMap<K, V> {
    /// At most `capacity` keys, at least 1; a new key that finds no room gets an error.
    #[must_use]
    pub fn refusing(capacity: usize) -> Self {
        Self::new(capacity, None)
    }

    /// At most `capacity` keys, at least 1; all new keys that find no room share `overflow`.
    #[must_use]
    pub fn sharing(capacity: usize, overflow: V) -> Self {
        Self::new(capacity, Some(Arc::new(overflow)))
    }

    fn new(capacity: usize, overflow: Option<Arc<V>>) -> Self {
        let inner = Inner {
            index: HashMap::new(),
            nodes: Nodes::default(),
            used: Ends::default(),
            aside: Ends::default(),
        };
        Self {
            capacity: capacity.max(1),
            overflow,
            evicted: AtomicU64::new(0),
            turned_away: AtomicU64::new(0),
            inner: Mutex::new(inner),
        }
    }

    /// How many keys fit.
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.lock().index.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What keys share that found no room.
    pub const fn overflow(&self) -> Option<&Arc<V>> {
        self.overflow.as_ref()
    }

    /// How many keys were forgotten for a new one.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// How often a new key found no room.
    pub fn turned_away(&self) -> u64 {
        self.turned_away.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Inner<K, V>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq + Clone, V> KeyMap<K, V> {
    /// The value of a key, which this makes the most recently used.
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Arc<V>>
    where
        K: Borrow<Q>,
    {
        self.lock().touch(key)
    }

    /// Forgets a key, whether or not it may go. Whoever holds its value keeps that.
    pub fn remove<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Arc<V>>
    where
        K: Borrow<Q>,
    {
        let mut inner = self.lock();
        let at = *inner.index.get(key)?;
        let node = inner.take(at);
        drop(inner);
        node.map(|node| node.value)
    }

    /// All keys and values, in no order. This looks at everything, for reports.
    pub fn entries(&self) -> Vec<(K, Arc<V>)> {
        let inner = self.lock();
        let entry = |&at: &usize| inner.nodes.get(at).map(|node| (node.key.clone(), Arc::clone(&node.value)));
        inner.index.values().filter_map(entry).collect()
    }
}

impl<K: Hash + Eq + Clone, V: Evict> KeyMap<K, V> {
    /// The value of a key, which this makes the most recently used; made where there is none. Of several threads that
    /// make one at once, one wins and all get the same.
    ///
    /// For a new key at most 64 of the oldest are looked at. More that may not go than that are passed over by the
    /// next new keys, each of which goes on where the one before stopped.
    ///
    /// # Errors
    ///
    /// When there is no room, none of the looked at may go, and there is nothing to share.
    pub fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> V) -> Result<Arc<V>, KeysFull> {
        // What goes is dropped after the lock: it may run anything.
        let gone;
        {
            let mut inner = self.lock();
            if let Some(value) = inner.touch(&key) {
                return Ok(value);
            }
            gone = inner.make_room(self.capacity);
        }
        let Ok(gone) = gone else { return self.turn_away() };
        self.count_evicted(&gone);
        drop(gone);

        let made = Arc::new(make());
        let mut inner = self.lock();
        if let Some(value) = inner.touch(&key) {
            // Another thread was faster; `made` is dropped after the lock.
            drop(inner);
            return Ok(value);
        }
        // Another key may have taken the room.
        let gone = inner.make_room(self.capacity);
        if gone.is_ok() {
            inner.insert(key, Arc::clone(&made));
        }
        drop(inner);
        let Ok(gone) = gone else { return self.turn_away() };
        self.count_evicted(&gone);
        Ok(made)
    }

    /// Turns a key away as where there is no room for it, such as one that is too long to be kept.
    ///
    /// # Errors
    ///
    /// Where there is nothing that keys without room share.
    #[cold]
    pub fn turn_away(&self) -> Result<Arc<V>, KeysFull> {
        self.turned_away.fetch_add(1, Ordering::Relaxed);
        self.overflow.clone().ok_or(KeysFull { capacity: self.capacity })
    }

    fn count_evicted(&self, gone: &Option<Node<K, V>>) {
        if gone.is_some() {
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<K: Hash + Eq + Clone, V> Inner<K, V> {
    fn touch<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<Arc<V>>
    where
        K: Borrow<Q>,
    {
        let at = *self.index.get(key)?;
        self.unlink(at);
        self.link(at, false);
        self.nodes.get(at).map(|node| Arc::clone(&node.value))
    }

    fn insert(&mut self, key: K, value: Arc<V>) {
        let at = self.nodes.add(Node { key: key.clone(), value, is_aside: false, links: Links::default() });
        self.link(at, false);
        self.index.insert(key, at);
    }

    /// Takes a node out of everything.
    fn take(&mut self, at: usize) -> Option<Node<K, V>> {
        self.unlink(at);
        let node = self.nodes.remove(at)?;
        self.index.remove(&node.key);
        Some(node)
    }

    fn link(&mut self, at: usize, is_aside: bool) {
        if let Some(node) = self.nodes.get_mut(at) {
            node.is_aside = is_aside;
        }
        let ends = if is_aside { &mut self.aside } else { &mut self.used };
        ends.push(at, &mut self.nodes);
    }

    fn unlink(&mut self, at: usize) {
        let is_aside = self.nodes.get(at).is_some_and(|node| node.is_aside);
        let ends = if is_aside { &mut self.aside } else { &mut self.used };
        ends.take(at, &mut self.nodes);
    }
}

impl<K: Hash + Eq + Clone, V: Evict> Inner<K, V> {
    /// Takes out a key where there is no room for another; an error where none of those looked at may go.
    fn make_room(&mut self, capacity: usize) -> Result<Option<Node<K, V>>, ()> {
        if self.index.len() < capacity {
            return Ok(None);
        }
        // Each that was set aside is looked at once only, although it comes in again at the end.
        let mut again = self.aside.len();
        for looked in 0..LOOK {
            // Those are older than all others: were none looked at first, those that may go by now would stay, and the newest go.
            let other = self.used.first().filter(|_| again == 0 || looked >= AGAIN);
            let at = match other {
                Some(at) => at,
                None if again == 0 => break,
                None => {
                    again -= 1;
                    let Some(at) = self.aside.first() else { break };
                    at
                }
            };
            if self.nodes.get(at).is_some_and(Node::may_go) {
                return Ok(self.take(at));
            }
            self.unlink(at);
            self.link(at, true);
        }
        Err(())
    }
}

impl<K, V: Evict> Node<K, V> {
    /// While the map is locked nobody can come to hold a value that only the map holds.
    fn may_go(&self) -> bool {
        Arc::strong_count(&self.value) == 1 && self.value.may_go()
    }
}

impl<K, V> fmt::Debug for KeyMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyMap")
            .field("len", &self.len())
            .field("capacity", &self.capacity)
            .field("evicted", &self.evicted())
            .field("turned_away", &self.turned_away())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for KeysFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no room for another key: the {} that are kept may not be forgotten", self.capacity)
    }
}

impl Error for KeysFull {}
