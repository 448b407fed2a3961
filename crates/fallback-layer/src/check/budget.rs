//! What checks may be made by all that share it.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// So many checks in so much time, for all that have a clone of it. What is not used is saved, up to the whole.
#[derive(Clone)]
pub struct CheckBudget(Arc<Bucket>);

struct Bucket {
    checks: u32,
    /// In which one more may be made.
    each: Duration,
    /// When it will be full again, if nothing is taken.
    full_at: Mutex<Option<Instant>>,
}

impl CheckBudget {
    /// At most `checks` in each `per`. None where `checks` is 0.
    #[must_use]
    pub fn new(checks: u32, per: Duration) -> Self {
        let each = per.checked_div(checks).unwrap_or(Duration::MAX);
        Self(Arc::new(Bucket { checks, each, full_at: Mutex::new(None) }))
    }

    /// Takes one check, where there is one left.
    pub(super) fn take(&self, now: Instant) -> bool {
        let Bucket { checks, each, ref full_at } = *self.0;
        if checks == 0 {
            return false;
        }
        let mut full_at = full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let debt = full_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        // What is owed before this one must leave room for it.
        let may = debt <= each.saturating_mul(checks - 1);
        if may {
            *full_at = now.checked_add(debt.saturating_add(each));
        }
        may
    }
}

impl fmt::Debug for CheckBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckBudget").field("checks", &self.0.checks).field("each", &self.0.each).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_any_time_no_more_than_the_whole_and_what_is_saved() {
        let budget = CheckBudget::new(4, Duration::from_secs(60));
        let start = Instant::now();
        let at = |secs| start + Duration::from_secs(secs);
        let taken = |secs, tries| (0..tries).filter(|_| budget.take(at(secs))).count();
        assert_eq!(taken(0, 10), 4, "a full bucket");
        assert_eq!(taken(14, 10), 0);
        assert_eq!(taken(15, 10), 1, "one each 15 s");
        assert_eq!(taken(45, 10), 2);
        assert_eq!(taken(10_000, 10), 4, "never more than the whole");
        assert!(!CheckBudget::new(0, Duration::from_secs(1)).take(start));
        assert!(CheckBudget::new(1, Duration::MAX).take(start));
    }
}
