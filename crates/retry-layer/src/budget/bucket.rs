//! The token bucket, as a pure state machine: the time is an argument.

#[cfg(failsoft_loom)]
use loom::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::atomic::Ordering::Relaxed;
#[cfg(not(failsoft_loom))]
use std::sync::atomic::{AtomicI64, AtomicU64};

/// Tokens are counted in these: any fraction a user may set then holds to far better than a percent.
pub(super) const TOKEN: i64 = 1_000_000_000;

/// More than this is never stored, so that one more deposit cannot overflow.
const HIGH: i64 = i64::MAX / 2;

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

/// Lock-free. A token is granted once: the balance changes in single steps, each of which sees the one before.
///
/// Deposits, on the path of every call, are one addition; the cap is applied by the next withdrawal, which is the same as
/// if each deposit had applied it.
#[derive(Debug)]
pub(super) struct Bucket {
    rules: Rules,
    balance: AtomicI64,
    /// When time was last turned into tokens, in nanoseconds.
    touched: AtomicU64,
    /// What withdrawals, trickle and caps have changed so far: the balance without it is what was ever deposited.
    changed: AtomicI64,
    /// All deposits at the time of `touched`.
    seen: AtomicI64,
    /// The deposits of about the last span before `touched`.
    recent: AtomicI64,
}

impl Bucket {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            balance: AtomicI64::new(rules.initial),
            touched: AtomicU64::new(0),
            changed: AtomicI64::new(rules.initial),
            seen: AtomicI64::new(0),
            recent: AtomicI64::new(0),
        }
    }

    #[inline]
    pub(super) fn deposit(&self) {
        if self.balance.fetch_add(self.rules.deposit, Relaxed) > HIGH {
            self.balance.fetch_min(HIGH, Relaxed);
        }
    }

    /// Puts back what a withdrawal took. It is no deposit: what was deposited lately, and with it the cap, stays as it is.
    pub(super) fn refund(&self, cost: i64) {
        if let Cap::Recent { .. } = self.rules.cap {
            self.changed.fetch_add(cost, Relaxed);
        }
        if self.balance.fetch_add(cost, Relaxed) > HIGH {
            self.balance.fetch_min(HIGH, Relaxed);
        }
    }

    /// Takes `cost`, or nothing.
    pub(super) fn withdraw(&self, cost: i64, now: u64) -> bool {
        let (earned, cap) = self.pass(now);
        let mut granted = false;
        let mut change = 0;
        self.update(|balance| {
            let held = balance.saturating_add(earned).min(cap);
            granted = held >= cost;
            let left = if granted { held - cost } else { held };
            change = left - balance;
            left
        });
        if let Cap::Recent { .. } = self.rules.cap {
            self.changed.fetch_add(change, Relaxed);
        }
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
        let balance = self.balance.load(Relaxed);
        match self.rules.cap {
            Cap::Fixed(cap) => balance.min(cap),
            Cap::Recent { .. } => balance,
        }
    }

    pub(super) fn needs_time(&self) -> bool {
        self.rules.trickle > 0.0 || matches!(self.rules.cap, Cap::Recent { .. })
    }

    fn update(&self, mut step: impl FnMut(i64) -> i64) {
        let mut balance = self.balance.load(Relaxed);
        loop {
            match self.balance.compare_exchange_weak(balance, step(balance), Relaxed, Relaxed) {
                Ok(_) => return,
                Err(other) => balance = other,
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
        let total = self.balance.load(Relaxed).wrapping_sub(self.changed.load(Relaxed));
        let since = total.wrapping_sub(self.seen.swap(total, Relaxed)).max(0);
        let recent = if elapsed >= span {
            // Most of it is older than the span: what traffic at an even rate has brought within it.
            since as f64 * (span as f64 / elapsed as f64)
        } else {
            let kept = self.recent.load(Relaxed) as f64 * (1.0 - elapsed as f64 / span as f64);
            kept + since as f64
        };
        let recent = recent as i64;
        self.recent.store(recent, Relaxed);
        recent
    }
}
