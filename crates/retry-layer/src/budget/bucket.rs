//! The token bucket, as a pure state machine: the time is an argument.

#[cfg(failsoft_loom)]
use loom::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
#[cfg(not(failsoft_loom))]
use std::sync::atomic::{AtomicI64, AtomicU64};

use super::place::{PLACES, Place};

/// Tokens are counted in these: any fraction a user may set then holds to far better than a percent.
pub(super) const TOKEN: i64 = 1_000_000_000;

/// A balance above this is cut off now and then, so that it cannot overflow meanwhile.
const HIGH: i64 = i64::MAX / 2;

/// After so many deposits in one place the balance is cut off: in all places together, and with the largest ratio of all, they
/// bring less than what is free above [`HIGH`].
const CUT_EVERY: u64 = 1 << 16;

/// How a bucket fills, and when it gives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) deposit: i64,
    pub(super) initial: i64,
    pub(super) cap: Cap,
    /// Tokens a second, whatever is deposited.
    pub(super) trickle: f64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Cap {
    Fixed(i64),
    /// `base`, and what was deposited in about the last `span` nanoseconds.
    Recent {
        base: i64,
        span: u64,
    },
}

/// Lock-free. A token is granted once: what was withdrawn changes in single steps, each of which sees the one before.
///
/// Deposits are on the path of every call, so each thread counts its own in a place that no other writes: that takes no atomic
/// step and no cache line from another thread. A withdrawal adds them up. The cap is applied by the next withdrawal, which is the
/// same as if each deposit had applied it.
#[derive(Debug)]
pub(super) struct Bucket {
    rules: Rules,
    /// What withdrawals, trickle, caps and the beginning make of the balance; the deposits are the rest of it. Wraps, as does
    /// their sum: the balance itself is in range.
    changed: AtomicI64,
    deposits: [Count; PLACES],
    /// Those of threads that have no place.
    other_deposits: AtomicU64,
    /// When time was last turned into tokens, in nanoseconds.
    touched: AtomicU64,
    /// All deposits at the time of `touched`.
    seen: AtomicU64,
    /// What the deposits of about the last span before `touched` brought.
    recent: AtomicI64,
}

/// Alone on its cache lines: processors fetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Count(AtomicU64);

impl Bucket {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            changed: AtomicI64::new(rules.initial),
            deposits: std::array::from_fn(|_| Count(AtomicU64::new(0))),
            other_deposits: AtomicU64::new(0),
            touched: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            recent: AtomicI64::new(0),
        }
    }

    /// `place` is the thread's own.
    #[inline]
    pub(super) fn deposit(&self, place: Place) {
        let count = match self.deposits.get(place.index()) {
            Some(Count(own)) => {
                let count = own.load(Relaxed).wrapping_add(1);
                own.store(count, Relaxed);
                count
            }
            None => self.other_deposits.fetch_add(1, Relaxed).wrapping_add(1),
        };
        if count % CUT_EVERY == 0 {
            self.cut();
        }
    }

    #[cold]
    fn cut(&self) {
        self.update(|balance| balance.min(HIGH));
    }

    /// Puts back what a withdrawal took. It is no deposit: what was deposited lately, and with it the cap, stays as it is.
    pub(super) fn refund(&self, cost: i64) {
        self.update(|balance| balance.saturating_add(cost).min(HIGH));
    }

    /// Takes `cost`, or nothing.
    pub(super) fn withdraw(&self, cost: i64, now: u64) -> bool {
        let (earned, cap) = self.pass(now);
        let mut granted = false;
        self.update(|balance| {
            let held = balance.saturating_add(earned).min(cap);
            granted = held >= cost;
            if granted { held - cost } else { held }
        });
        granted
    }

    /// Takes `cost`, or what is left of it, and says what is left.
    pub(super) fn charge(&self, cost: i64, now: u64) -> i64 {
        let (earned, cap) = self.pass(now);
        let mut left = 0;
        self.update(|balance| {
            left = (balance.saturating_add(earned).min(cap) - cost).max(0);
            left
        });
        left
    }

    /// What could be withdrawn now, without the trickle since the last withdrawal.
    pub(super) fn balance(&self) -> i64 {
        let balance = self.changed.load(Acquire).wrapping_add(self.brought(self.deposits()));
        match self.rules.cap {
            Cap::Fixed(cap) => balance.min(cap),
            Cap::Recent { .. } => balance.min(HIGH),
        }
    }

    pub(super) fn needs_time(&self) -> bool {
        self.rules.trickle > 0.0 || matches!(self.rules.cap, Cap::Recent { .. })
    }

    fn deposits(&self) -> u64 {
        let others = self.other_deposits.load(Relaxed);
        self.deposits.iter().fold(others, |sum, Count(own)| sum.wrapping_add(own.load(Relaxed)))
    }

    /// What so many deposits have brought; wraps.
    const fn brought(&self, deposits: u64) -> i64 {
        (deposits as i64).wrapping_mul(self.rules.deposit)
    }

    /// The deposits are read after what was changed, and so are none fewer than those that it was reckoned from: of later ones
    /// none is lost, and none counts twice.
    fn update(&self, mut step: impl FnMut(i64) -> i64) {
        let mut changed = self.changed.load(Acquire);
        loop {
            let brought = self.brought(self.deposits());
            let next = step(changed.wrapping_add(brought)).wrapping_sub(brought);
            match self.changed.compare_exchange_weak(changed, next, AcqRel, Acquire) {
                Ok(_) => return,
                Err(other) => changed = other,
            }
        }
    }

    /// The tokens that the time since the last withdrawal has brought, and the cap. Each interval is given to one caller only;
    /// the others at that moment see no time pass, and apply no cap that moves with it.
    fn pass(&self, now: u64) -> (i64, i64) {
        let elapsed =
            if self.needs_time() { now.saturating_sub(self.touched.fetch_max(now, Relaxed)) } else { 0 };
        // A token a second is a nano-token a nanosecond. The cast saturates.
        let earned = (self.rules.trickle * elapsed as f64) as i64;
        let cap = match self.rules.cap {
            Cap::Fixed(cap) => cap,
            Cap::Recent { .. } if elapsed == 0 => HIGH,
            Cap::Recent { base, span } => base.saturating_add(self.recent_deposits(elapsed, span)),
        };
        (earned.clamp(0, HIGH), cap)
    }

    fn recent_deposits(&self, elapsed: u64, span: u64) -> i64 {
        let total = self.deposits();
        let since = total.saturating_sub(self.seen.swap(total, Relaxed)) as f64 * self.rules.deposit as f64;
        let recent = if elapsed >= span {
            // Most of it is older than the span: what traffic at an even rate has brought within it.
            since * (span as f64 / elapsed as f64)
        } else {
            let kept = self.recent.load(Relaxed) as f64 * (1.0 - elapsed as f64 / span as f64);
            kept + since
        };
        let recent = recent as i64;
        self.recent.store(recent, Relaxed);
        recent
    }
}
