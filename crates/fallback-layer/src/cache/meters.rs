//! What a cache counts.

use super::core::NotKept;

/// What became of a look into the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// An earlier answer to the same request.
    Hit,
    /// An earlier answer to a similar request.
    Similar,
    /// The answer to the same request of another caller, that was running.
    Shared,
    /// None.
    Miss,
    /// Not to be looked up.
    Bypass,
}

impl Look {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Similar => "similar",
            Self::Shared => "shared",
            Self::Miss => "miss",
            Self::Bypass => "bypass",
        }
    }
}

#[cfg(feature = "metrics")]
mod handles {
    use std::{
        fmt,
        sync::{Arc, OnceLock},
    };

    use metrics::{Counter, Gauge};

    use super::{Look, NotKept};
    use crate::metrics::{CACHE_BYTES, CACHE_ENTRIES, CACHE_LOOKUPS, CACHE_NOT_KEPT};

    /// The handles of one cache; each is made when it is first used, when the recorder is there.
    pub(in crate::cache) struct Meters {
        target: Arc<str>,
        looks: [OnceLock<Counter>; 5],
        not_kept: [OnceLock<Counter>; 10],
        size: OnceLock<(Gauge, Gauge)>,
    }

    impl Meters {
        pub(in crate::cache) fn new(target: Arc<str>) -> Self {
            Self { target, looks: Default::default(), not_kept: Default::default(), size: OnceLock::new() }
        }

        fn target(&self) -> String {
            self.target.to_string()
        }

        pub(in crate::cache) fn look(&self, look: Look) {
            let make =
                || metrics::counter!(CACHE_LOOKUPS, "target" => self.target(), "result" => look.as_str());
            if let Some(counter) = self.looks.get(look as usize) {
                counter.get_or_init(make).increment(1);
            }
        }

        pub(in crate::cache) fn not_kept(&self, why: NotKept) {
            let make = || metrics::counter!(CACHE_NOT_KEPT, "target" => self.target(), "why" => why.as_str());
            if let Some(counter) = self.not_kept.get(why as usize) {
                counter.get_or_init(make).increment(1);
            }
        }

        pub(in crate::cache) fn kept(&self, (entries, bytes): (usize, usize)) {
            let (of_entries, of_bytes) = self.size.get_or_init(|| {
                let entries = metrics::gauge!(CACHE_ENTRIES, "target" => self.target());
                (entries, metrics::gauge!(CACHE_BYTES, "target" => self.target()))
            });
            #[allow(clippy::cast_precision_loss, reason = "exact to 2^53")]
            let (entries, bytes) = (entries as f64, bytes as f64);
            of_entries.set(entries);
            of_bytes.set(bytes);
        }
    }

    impl fmt::Debug for Meters {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Meters").field("target", &self.target).finish_non_exhaustive()
        }
    }
}

#[cfg(not(feature = "metrics"))]
mod handles {
    use std::sync::Arc;

    use super::{Look, NotKept};

    /// Nothing is counted.
    #[derive(Clone, Copy, Debug)]
    pub(in crate::cache) struct Meters;

    impl Meters {
        #[allow(clippy::needless_pass_by_value, reason = "as with the feature")]
        pub(in crate::cache) fn new(_: Arc<str>) -> Self {
            Self
        }

        #[allow(clippy::unused_self, reason = "as with the feature")]
        pub(in crate::cache) fn look(self, look: Look) {
            let _ = look.as_str();
        }

        pub(in crate::cache) fn not_kept(self, why: NotKept) {
            let _ = why.as_str();
        }

        pub(in crate::cache) const fn kept(self, _: (usize, usize)) {}
    }
}

pub(super) use self::handles::Meters;
