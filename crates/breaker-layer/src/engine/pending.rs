//! Successes that are booked, but not in the window yet.
//!
//! A quick success that can meet no rule, whatever comes with it, need not be in the window at once; it must be there
//! before anything else is. So it is counted here, by one atomic step, and whoever takes the engine's lock next puts
//! what was counted into the window first. To readers and to outcomes it is as if each had taken the lock itself.
//!
//! ```text
//! bits  63 ......... 25 | 24   | 23 ... 0
//!       generation (39) | open | successes
//! ```
//!
//! Taking the lock closes the count, so nothing is added while the lock is held; it is opened again at the end of an
//! outcome, for the generation of that moment. A success that finds it closed, or open for others, takes the lock.

use super::sync::{AtomicU64, Ordering};
use super::word::{GENERATION_SHIFT, Permit};

const OPEN: u64 = 1 << 24;
const COUNT: u64 = OPEN - 1;

/// So many at most, because each is one step for whoever puts them into a window of calls.
const MOST: u64 = 64;

#[derive(Debug)]
pub(super) struct Pending(AtomicU64);

impl Pending {
    /// Closed.
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Counts the success of a permit, if it is open for its generation. `fits` is asked after that was seen: what
    /// it reads is of this opening, or of a later one.
    #[inline]
    pub(super) fn add(&self, permit: &Permit, fits: impl FnOnce() -> bool) -> bool {
        let open = permit.generation() << GENERATION_SHIFT | OPEN;
        let has_room = |seen: u64| seen & !COUNT == open && seen & COUNT < MOST;
        let mut seen = self.0.load(Ordering::Acquire);
        if !has_room(seen) || !fits() {
            return false;
        }
        while has_room(seen) {
            match self.0.compare_exchange(seen, seen + 1, Ordering::Release, Ordering::Acquire) {
                Ok(_) => return true,
                Err(changed) => seen = changed,
            }
        }
        false
    }

    /// Closes it; what was counted. Under the lock.
    #[inline]
    pub(super) fn close(&self) -> u64 {
        if self.0.load(Ordering::Relaxed) & OPEN == 0 {
            return 0;
        }
        self.0.swap(0, Ordering::Acquire) & COUNT
    }

    /// Opens it for the permits of a generation. Under the lock, and closed.
    #[inline]
    pub(super) fn open(&self, generation: u64) {
        self.0.store(generation << GENERATION_SHIFT | OPEN, Ordering::Release);
    }
}
