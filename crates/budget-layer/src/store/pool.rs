//! One budget as a store keeps it: what all have spent, and what is leased to whom. Pure.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use super::{Exchange, Grant, Holder};
use crate::{
    Unit, Window,
    window::{Clocks, Now, Ring},
};

/// So many processes hold leases of one budget; of more than that, those whose leases have expired are forgotten first.
const MAX_HOLDERS: usize = 1_000;

#[derive(Debug)]
pub(super) struct Pool {
    unit: Unit,
    window: Window,
    /// Somebody has set it.
    limit: Option<u64>,
    /// What was spent; what has expired counts as reserved there until its holder says what became of it.
    ring: Ring,
    held: HashMap<Holder, Held>,
}

#[derive(Debug)]
struct Held {
    number: u64,
    /// What it has told that it spent.
    spent: u64,
    leased: u64,
    until: Instant,
    /// What expired, and the cell of the window in which that counts.
    expired: Option<(u64, u64)>,
}

impl Pool {
    pub(super) fn new(exchange: &Exchange) -> Self {
        let Exchange { unit, window, .. } = exchange;
        Self {
            unit: *unit,
            window: window.clone(),
            limit: None,
            ring: Ring::new(window),
            held: HashMap::new(),
        }
    }

    /// Which clocks it needs.
    pub(super) const fn clocks(&self) -> Clocks {
        self.window.clocks().and(Clocks { steady: true, wall: false })
    }

    pub(super) fn exchange(&mut self, exchange: &Exchange, lasts: Duration, now: Now) -> Option<Grant> {
        let at = now.at?;
        self.expire(now);
        self.limit = exchange.set_limit.or(self.limit);
        let (holder, limit) = (exchange.holder, self.limit.unwrap_or(exchange.limit));
        // Of one that is not known: all it has spent, or what came after it was forgotten.
        let known = exchange.told.min(exchange.spent);
        if !self.held.contains_key(&holder) && !self.make_room() {
            self.ring.book(exchange.spent - known);
            return Some(Grant::new(0, lasts, limit, self.committed_without(holder)));
        }
        let until = at.checked_add(lasts)?;
        let Exchange { number, spent, reserved, needs, wants, .. } = *exchange;
        let new = Held { number: 0, spent: known, leased: 0, until, expired: None };
        let held = self.held.entry(holder).or_insert(new);
        let is_new = number > held.number;
        if is_new {
            let more = spent.saturating_sub(held.spent);
            match held.expired.take() {
                // Of what had expired, so much was really spent, or still is.
                Some((tick, expired)) => self.ring.settle(tick, expired, more),
                None => self.ring.book(more),
            }
            (held.number, held.spent) = (number, held.spent.max(spent));
        }
        let committed = self.committed_without(holder);
        let free = limit.saturating_sub(committed);
        let wanted = reserved.saturating_add(wants.max(needs));
        let needed = reserved.saturating_add(needs);
        let held = self.held.get_mut(&holder)?;
        if is_new {
            (held.leased, held.until) = (reserved.max(wanted.min(free)), until);
        }
        let renews_in = match limit.checked_sub(needed) {
            Some(most) if held.leased < needed => {
                let leased = committed.saturating_sub(self.ring.committed());
                most.checked_sub(leased).and_then(|most| self.ring.falls_to(most, now))
            }
            _ => None,
        };
        let left = held.until.saturating_duration_since(at);
        Some(Grant::new(held.leased, left, limit, committed).renewing_in(renews_in))
    }

    /// Whether it may be forgotten.
    pub(super) fn may_go(&mut self, now: Now) -> bool {
        self.expire(now);
        let spent = self.ring.committed() > 0 || self.limit.is_some();
        !spent && self.held.values().all(|held| held.leased == 0)
    }

    /// What all have spent, and what others than this one hold.
    fn committed_without(&self, holder: Holder) -> u64 {
        let others = self.held.iter().filter(|(other, _)| **other != holder).map(|(_, held)| held.leased);
        others.fold(self.ring.committed(), u64::saturating_add)
    }

    fn expire(&mut self, now: Now) {
        self.ring.advance(now);
        let Some(at) = now.at else { return };
        for held in self.held.values_mut().filter(|held| held.until <= at && held.leased > 0) {
            let lost = std::mem::take(&mut held.leased);
            if self.unit != Unit::Concurrent {
                held.expired = Some((self.ring.reserve(lost), lost));
            }
        }
    }

    /// Whether there is room for another holder.
    fn make_room(&mut self) -> bool {
        if self.held.len() < MAX_HOLDERS {
            return true;
        }
        let expired = self.held.iter().filter(|(_, held)| held.leased == 0);
        let Some((&oldest, _)) = expired.min_by_key(|(_, held)| held.until) else { return false };
        self.held.remove(&oldest);
        true
    }
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use super::*;

    const LASTS: Duration = Duration::from_secs(30);

    fn exchange(holder: Holder, number: u64, spent: u64, told: u64) -> Exchange {
        Exchange {
            budget: "test".into(),
            key: None,
            unit: Unit::Tokens,
            window: Window::lifetime(),
            limit: 100_000,
            set_limit: None,
            holder,
            number,
            spent,
            told,
            reserved: 0,
            needs: 0,
            wants: 10,
        }
    }

    fn at(at: Instant) -> Now {
        Now { at: Some(at), ..Now::default() }
    }

    #[test]
    fn of_a_holder_that_is_not_known_what_it_has_not_told_counts_also_where_there_is_no_room_for_it() {
        let (start, holder) = (Instant::now(), Holder::new());
        let mut pool = Pool::new(&exchange(holder, 1, 0, 0));
        // What it told before was lost.
        let grant = pool.exchange(&exchange(holder, 3, 70, 0), LASTS, at(start)).unwrap();
        assert_eq!((grant.leased, grant.committed), (10, 70));
        // It was told of more than it knows: the answer was lost.
        let grant = pool.exchange(&exchange(holder, 4, 80, 0), LASTS, at(start)).unwrap();
        assert_eq!(grant.committed, 80);
        for _ in 1..MAX_HOLDERS {
            assert_eq!(
                pool.exchange(&exchange(Holder::new(), 1, 0, 0), LASTS, at(start)).unwrap().leased,
                10
            );
        }
        let too_many = Holder::new();
        let grant = pool.exchange(&exchange(too_many, 7, 1_005, 1_000), LASTS, at(start)).unwrap();
        assert_eq!((grant.leased, grant.committed), (0, 85 + 10 * MAX_HOLDERS as u64));
        // The others' leases are over, and count as spent; one of them is forgotten.
        let later = at(start + LASTS);
        let grant = pool.exchange(&exchange(too_many, 8, 1_005, 1_005), LASTS, later).unwrap();
        assert_eq!((grant.leased, grant.committed), (10, 85 + 10 * MAX_HOLDERS as u64));
    }

    #[test]
    fn exchanges_that_come_twice_or_out_of_order_change_nothing() {
        let (start, holder) = (Instant::now(), Holder::new());
        let mut pool = Pool::new(&exchange(holder, 1, 0, 0));
        let first = exchange(holder, 1, 5, 0);
        let second = Exchange { wants: 20, ..exchange(holder, 2, 9, 5) };
        let granted = pool.exchange(&first, LASTS, at(start)).unwrap();
        assert_eq!(pool.exchange(&first, LASTS, at(start)).unwrap(), granted);
        let granted = pool.exchange(&second, LASTS, at(start + LASTS / 2)).unwrap();
        let again = pool.exchange(&first, LASTS, at(start + LASTS)).unwrap();
        assert_eq!((again.leased, again.committed, again.lasts), (granted.leased, 9, LASTS / 2));
        // A lease that is over is not there again for being asked for again.
        let over = pool.exchange(&second, LASTS, at(start + 2 * LASTS)).unwrap();
        assert_eq!((over.leased, over.committed, over.lasts), (0, 29, Duration::ZERO));
    }
}
