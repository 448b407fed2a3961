//! An account that is saved, and loaded by another process.

use super::{Account, Rules};
use crate::{State, Unit, estimate::millis, window::Now};

impl Account {
    /// The window must have been advanced.
    pub(crate) fn save(&self, now: Now) -> State {
        let reserved = self.ring.reserved();
        State {
            limit: self.limit_of_all(),
            // What a store was told, it knows.
            limit_is_set: Some(
                self.lease.as_ref().map_or(self.limit_is_set, |lease| lease.has_limit_to_tell()),
            ),
            spent: self.ring.committed() - reserved,
            reserved,
            spend: self.spend,
            paused_ms: self.paused_for(now).map(millis),
            period_ends_ms: self.ring.ends(),
        }
    }

    /// What was reserved counts as spent: nobody is there any more to say what became of it. But the places of calls at once are free:
    /// those calls have ended with their process. Calls in flight here keep what they reserved.
    pub(crate) fn load(&mut self, rules: &Rules, state: &State, now: Now) {
        // As far from the end as sums of calls will ever come.
        let bounded = |amount: u64| amount.min(u64::MAX / 2);
        let lost = if rules.unit == Unit::Concurrent { 0 } else { bounded(state.reserved) };
        self.spend = state.spend;
        self.spend.spent = bounded(state.spend.spent.max(state.spent)).saturating_add(lost);
        if let Some(at) = now.at {
            let paused = state.paused_ms.map(std::time::Duration::from_millis);
            self.paused_until = paused.and_then(|paused| at.checked_add(paused));
        }
        if self.lease.is_some() {
            // What was spent the store knows, and of the limit all that it was told.
            if state.limit_is_set == Some(true) {
                self.set_leased_limit(state.limit);
            }
            return;
        }
        let in_period = self.ring.is_in_period(state.period_ends_ms, now);
        self.ring.set_spent(if in_period { bounded(state.spent).saturating_add(lost) } else { 0 });
        if state.limit_is_set.unwrap_or(state.limit != rules.limit) {
            self.set_limit(rules, state.limit);
        } else {
            self.look_at_lines_again(rules);
        }
    }
}
