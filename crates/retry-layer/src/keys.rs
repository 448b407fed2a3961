//! Idempotency keys: the same for all attempts of a call, and for no other call anywhere.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Makes keys of 128 bits: a counter, hashed by two functions that the system's own randomness has keyed. A generator of
/// 64 bits would meet itself after four billion keys, and then one call would get another's answer.
#[derive(Clone)]
pub(crate) struct Keys(Arc<Maker>);

struct Maker {
    hashes: [RandomState; 2],
    count: AtomicU64,
}

impl Keys {
    pub(crate) fn new() -> Self {
        // Both states of one thread have nearly the same key, so that each is hashed with a number of its own.
        let hashes = [RandomState::new(), RandomState::new()];
        Self(Arc::new(Maker { hashes, count: AtomicU64::new(0) }))
    }

    pub(crate) fn next(&self) -> String {
        let count = self.0.count.fetch_add(1, Relaxed);
        let [high, low] = &self.0.hashes;
        format!("{:016x}{:016x}", high.hash_one((count, "high")), low.hash_one((count, "low")))
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys")
    }
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_differ_also_between_layers() {
        let (a, b) = (Keys::new(), Keys::new());
        let keys: HashSet<_> = (0..10_000).flat_map(|_| [a.next(), b.next()]).collect();
        assert_eq!(keys.len(), 20_000);
        assert!(keys.iter().all(|key| key.len() == 32 && key.bytes().all(|byte| byte.is_ascii_hexdigit())));
    }
}
