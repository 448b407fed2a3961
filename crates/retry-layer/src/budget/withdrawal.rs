use std::fmt;

use super::RetryBudget;

/// The cost of one retry, taken out of a [`RetryBudget`] by [`withdraw`](RetryBudget::withdraw). Dropped before the retry was
/// [sent](Self::sent), it goes back, exactly.
#[must_use = "it goes back as soon as it drops"]
pub struct Withdrawal {
    budget: RetryBudget,
    cost: i64,
    is_sent: bool,
}

impl Withdrawal {
    pub(super) fn new(budget: &RetryBudget, cost: i64) -> Self {
        Self { budget: budget.clone(), cost, is_sent: false }
    }

    /// The retry is under way: from now on a drop gives nothing back.
    pub const fn sent(&mut self) {
        self.is_sent = true;
    }

    /// Gives it back although the retry was on its way: it was refused before it reached anybody.
    pub fn refund(mut self) {
        self.is_sent = false;
    }
}

impl Drop for Withdrawal {
    fn drop(&mut self) {
        if !self.is_sent && self.cost > 0 {
            self.budget.0.bucket.refund(self.cost);
        }
    }
}

impl fmt::Debug for Withdrawal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Withdrawal").field("is_sent", &self.is_sent).finish_non_exhaustive()
    }
}
