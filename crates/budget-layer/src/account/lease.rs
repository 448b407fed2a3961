//! An account that has leased a part of a budget from a store: it reserves from that as from a limit. Its own spending counts from
//! its beginning, for ever; which of it lies in a window the store knows.

use tokio::time::Instant;

use super::{Account, Rules};
use crate::{Grant, window::Ring};

/// What is leased, and how things stood when the store was asked last.
#[derive(Debug)]
pub(crate) struct Lease {
    /// The limit of all together.
    limit: u64,
    /// What this account had spent when the store was told last.
    told: u64,
    /// What all had spent then, and what others held.
    committed: u64,
    /// This account may spend so much since its beginning.
    leased: u64,
    /// As far as that is from the store, and not what it goes on with while the store fails: so far it asks for it again.
    granted: u64,
    /// To be told: somebody has set it.
    set_limit: Option<u64>,
    /// The largest that an attempt has reserved since the store answered last, and between that and the time before.
    largest: [u64; 2],
}

/// So many of the calls in flight are made again, as far as a retry's own budget goes by default: a fifth.
const AGAIN: u64 = 5;

/// What a store is told of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) limit: u64,
    pub(crate) set_limit: Option<u64>,
    pub(crate) spent: u64,
    /// What of that the store is known to have been told.
    pub(crate) told: u64,
    pub(crate) reserved: u64,
    /// What the store has leased and is not used.
    pub(crate) idle: u64,
    /// Something was spent since the store was told last.
    pub(crate) is_busy: bool,
}

impl Lease {
    pub(super) fn nothing(rules: &Rules) -> Self {
        Self {
            limit: rules.limit,
            told: 0,
            committed: 0,
            leased: 0,
            granted: 0,
            set_limit: None,
            largest: [0; 2],
        }
    }

    /// Where an amount that all may spend together lies in what this account spends.
    fn own(&self, of_all: u64) -> u64 {
        self.told.saturating_add(of_all.saturating_sub(self.committed))
    }

    /// An attempt has reserved so much.
    pub(super) fn saw(&mut self, amount: u64) {
        self.largest[0] = self.largest[0].max(amount);
    }

    /// Somebody has set the limit, and the store has not been told.
    pub(super) const fn has_limit_to_tell(&self) -> bool {
        self.set_limit.is_some()
    }

    pub(super) const fn limit(&self) -> u64 {
        match self.set_limit {
            Some(limit) => limit,
            None => self.limit,
        }
    }
}

impl Account {
    /// Nothing is leased before the first call asks.
    pub(super) fn lease_nothing(&mut self, rules: &Rules) {
        self.ring = Ring::leased();
        self.lease = Some(Box::new(Lease::nothing(rules)));
        self.look_at_lines_again(rules);
    }

    /// What to tell the store. With `giving_back`, nothing more is reserved from what is idle now.
    pub(crate) fn figures(&mut self, giving_back: bool) -> Option<Figures> {
        let committed = self.ring.committed();
        let reserved = self.ring.reserved();
        let spent = committed - reserved;
        let lease = self.lease.as_mut()?;
        if giving_back {
            (lease.leased, lease.granted) = (lease.leased.min(committed), lease.granted.min(committed));
            (self.limit, self.hard) = (self.limit.min(committed), self.hard.min(committed));
        }
        Some(Figures {
            limit: lease.limit,
            set_limit: lease.set_limit,
            spent,
            told: lease.told,
            reserved,
            idle: lease.granted.saturating_sub(committed),
            is_busy: spent != lease.told || reserved > 0,
        })
    }

    /// Takes in what the store leases, until then; `figures` are what it was told.
    pub(crate) fn take_lease(&mut self, rules: &Rules, figures: &Figures, grant: &Grant, until: Instant) {
        let Some(lease) = &mut self.lease else { return };
        (lease.limit, lease.told, lease.committed) = (grant.limit, figures.spent, grant.committed);
        lease.leased = figures.spent.saturating_add(grant.leased);
        lease.granted = lease.leased;
        lease.largest = [0, lease.largest[0]];
        if lease.set_limit == figures.set_limit {
            lease.set_limit = None;
        }
        self.limit = lease.leased;
        self.hard = lease.leased.min(lease.own(rules.hard(lease.limit)));
        self.soft = lease.own(rules.line(0, lease.limit));
        self.ring.lease_until(until);
        self.look_at_lines_again(rules);
    }

    /// Where its lease ends, or what it has committed beyond.
    pub(crate) fn leased_to(&self) -> u64 {
        let granted = self.lease.as_ref().map_or(0, |lease| lease.granted);
        granted.max(self.ring.committed())
    }

    /// The store fails: this account may go on to `most` until then, or to what is leased.
    pub(crate) fn go_without(&mut self, most: u64, until: Instant) {
        let committed = self.ring.committed();
        let Some(lease) = &mut self.lease else { return };
        lease.leased = lease.leased.max(most);
        (self.limit, self.hard) = (lease.leased, lease.leased);
        let was_told = lease.told > 0 || lease.committed > 0;
        if committed < self.soft || !was_told {
            // How much all have spent, nobody knows: what was not restricted before is not restricted now.
            self.soft = lease.leased;
        }
        self.ring.lease_until(until);
    }

    /// The lease is over: its holder reserves nothing from it, and the store counts it as spent.
    #[cold]
    pub(super) fn lapse(&mut self) {
        if let Some(lease) = &mut self.lease {
            (lease.leased, lease.granted) = (0, 0);
            (self.limit, self.hard) = (0, 0);
        }
    }

    /// `true` for an account that leases: the limit counts once the store has been told, which the next call does.
    pub(super) fn set_leased_limit(&mut self, limit: u64) -> bool {
        let Some(lease) = &mut self.lease else { return false };
        lease.set_limit = Some(limit);
        (self.limit, self.hard) = (0, 0);
        true
    }

    /// Whether anything would be missed if it were forgotten: the store remembers the rest.
    pub(super) fn lease_may_go(&self, lease: &Lease) -> bool {
        let committed = self.ring.committed();
        self.ring.reserved() == 0
            && lease.told == committed
            && lease.leased <= committed
            && lease.set_limit.is_none()
    }

    /// What further attempts may need of the calls in flight, and of those that are about to be, one of which needs so much: they cannot
    /// wait for a lease. One of the largest always may, and a fifth of all.
    pub(crate) fn keeps(&self, rules: &Rules, needs: u64, largest: u64) -> u64 {
        let Some(lease) = self.lease.as_ref().filter(|_| rules.unit.adds_up()) else { return 0 };
        let in_flight = self.ring.reserved().saturating_add(needs);
        largest.max(lease.largest[0]).max(lease.largest[1]).max(in_flight / AGAIN).min(in_flight)
    }

    /// Whether less is left of the lease than further attempts may need, and a larger one could be had.
    pub(crate) fn is_low(&self, rules: &Rules) -> bool {
        let left = self.hard.saturating_sub(self.ring.committed());
        left < self.keeps(rules, 0, 0) && self.hard < self.own_hard(rules)
    }

    /// Whether so much more lies within the limit, of all together, as far as is known.
    pub(crate) fn may_fit(&self, rules: &Rules, amount: u64, is_final: bool) -> bool {
        let most = if is_final { self.own_limit() } else { self.own_hard(rules) };
        self.ring.committed().checked_add(amount).is_some_and(|next| next <= most)
    }

    /// Whether so much fits where nothing else is spent.
    pub(crate) fn may_ever_fit(&self, rules: &Rules, amount: u64, is_final: bool) -> bool {
        let limit = self.limit_of_all();
        amount <= if is_final { limit } else { rules.hard(limit) }
    }

    /// The limit, of all together where it leases.
    pub(crate) fn limit_of_all(&self) -> u64 {
        self.lease.as_ref().map_or(self.limit, |lease| lease.limit())
    }

    /// Where the limit and the lines lie in what this account spends, as far as is known.
    pub(crate) fn own_limit(&self) -> u64 {
        self.lease.as_ref().map_or(self.limit, |lease| lease.own(lease.limit()))
    }

    pub(crate) fn own_hard(&self, rules: &Rules) -> u64 {
        self.lease.as_ref().map_or(self.hard, |lease| lease.own(rules.hard(lease.limit())))
    }

    pub(crate) fn own_line(&self, rules: &Rules, which: usize) -> u64 {
        match &self.lease {
            None => rules.line(which, self.limit),
            Some(lease) => lease.own(rules.line(which, lease.limit())),
        }
    }
}
