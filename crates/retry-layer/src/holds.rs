//! Advice that one call has learnt, for the layer's other calls to the same target.
//!
//! A target that says "come back in 30 s" to one call means all of them; without this, every call would learn it anew, at the
//! target's expense. While nothing is held, asking costs one atomic load.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use failsoft_core::{Evict, KeyMap, Verdict};
use tokio::time::Instant;

/// So many targets are held at once; of more, the least recently used is forgotten, and its calls find out by themselves.
const TARGETS: usize = 1024;

pub(crate) struct Holds {
    born: Instant,
    /// When the last of all holds ends, in nanoseconds since `born`; 0 while there is none.
    last: AtomicU64,
    targets: KeyMap<Arc<str>, Slot>,
}

/// What is known of one target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Hold {
    /// What the outcome meant that brought the advice.
    pub(crate) verdict: Verdict,
    /// Until then nobody asks.
    pub(crate) until: Instant,
    /// What the target really said: later than `until` where that was longer than anybody here waits.
    pub(crate) advised: Instant,
    /// Over so much time those that waited come back.
    pub(crate) spread: Duration,
}

#[derive(Default)]
struct Slot(Mutex<Option<Hold>>);

impl Holds {
    pub(crate) fn new() -> Self {
        Self { born: Instant::now(), last: AtomicU64::new(0), targets: KeyMap::refusing(TARGETS) }
    }

    /// Whether any target is held, or was until lately.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.last.load(Relaxed) != 0
    }

    /// The hold on this target, where there is one now. A target without a name is one of its own.
    pub(crate) fn find(&self, target: Option<&str>, now: Instant) -> Option<Hold> {
        let last = self.last.load(Relaxed);
        if self.nanos(now) >= last {
            // Back to the cheap path, unless somebody has learnt something just now.
            let _ = self.last.compare_exchange(last, 0, Relaxed, Relaxed);
            return None;
        }
        let slot = self.targets.get(target.unwrap_or_default())?;
        slot.with(|hold| hold.filter(|hold| now < hold.until))
    }

    /// Holds a target. Of two holds the longer counts.
    pub(crate) fn learn(&self, target: Option<Arc<str>>, new: Hold) {
        let Some(slot) = self.slot(target) else { return };
        let until = slot.with(|known| {
            let old = known.unwrap_or(new);
            let until = old.until.max(new.until);
            *known = Some(Hold {
                verdict: new.verdict,
                until,
                advised: old.advised.max(new.advised),
                spread: if old.until > new.until { old.spread } else { new.spread },
            });
            until
        });
        self.last.fetch_max(self.nanos(until), Relaxed);
    }

    /// Nobody need wait here any more: a circuit further in looks after the target.
    pub(crate) fn end(&self, target: Option<&str>) {
        if let Some(slot) = self.targets.get(target.unwrap_or_default()) {
            slot.with(|known| *known = None);
        }
    }

    fn slot(&self, target: Option<Arc<str>>) -> Option<Arc<Slot>> {
        self.targets.get_or_insert_with(target.unwrap_or_default(), Slot::default).ok()
    }

    fn nanos(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.born).as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Slot {
    fn with<T>(&self, f: impl FnOnce(&mut Option<Hold>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Evict for Slot {
    /// Forgetting one is not wrong, only less kind to the target.
    fn may_go(&self) -> bool {
        true
    }
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use failsoft_core::Class;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn hold(now: Instant, time: Duration) -> Hold {
        let (verdict, until) = (Verdict::of(Class::RateLimited).with_retry_after(time), now + time);
        Hold { verdict, until, advised: until, spread: time / 10 }
    }

    #[test]
    fn a_target_is_held_alone_and_until_its_time() {
        let (holds, now) = (Holds::new(), Instant::now());
        assert!(!holds.any());
        holds.learn(Some("a".into()), hold(now, SECOND));
        assert!(holds.any());
        assert_eq!(holds.find(Some("a"), now), Some(hold(now, SECOND)));
        assert_eq!((holds.find(Some("b"), now), holds.find(None, now)), (None, None));
        assert_eq!(holds.find(Some("a"), now + SECOND), None);
        // And from then on nothing costs anything.
        assert!(!holds.any());
    }

    // G28
    #[test]
    fn a_shorter_advice_does_not_shorten_a_longer_one() {
        let (holds, now) = (Holds::new(), Instant::now());
        for seconds in [3, 9, 1] {
            holds.learn(None, hold(now, SECOND * seconds));
        }
        let longest = Hold { verdict: hold(now, SECOND).verdict, ..hold(now, SECOND * 9) };
        assert_eq!(holds.find(None, now + SECOND * 8), Some(longest));
    }

    #[test]
    fn what_a_circuit_acts_on_is_left_to_it_and_what_is_learnt_later_holds_again() {
        let (holds, now) = (Holds::new(), Instant::now());
        holds.learn(None, hold(now, SECOND * 9));
        holds.learn(Some("a".into()), hold(now, SECOND * 9));
        holds.end(None);
        assert_eq!(holds.find(None, now), None);
        assert!(holds.find(Some("a"), now).is_some());
        holds.learn(None, hold(now, SECOND * 10));
        assert_eq!(holds.find(None, now), Some(hold(now, SECOND * 10)));
    }

    #[test]
    fn any_number_of_targets_takes_bounded_memory() {
        let (holds, now) = (Holds::new(), Instant::now());
        for name in 0..TARGETS + 100 {
            holds.learn(Some(name.to_string().into()), hold(now, SECOND));
        }
        assert_eq!(holds.targets.len(), TARGETS);
        assert!(holds.find(Some(&(TARGETS + 99).to_string()), now).is_some());
    }
}
