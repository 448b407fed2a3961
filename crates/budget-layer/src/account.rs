//! One budget's state: what is committed in its window, what was spent on what, who is paused. Pure: no lock, no clock; what
//! happened is returned, to be told when nothing is locked.

pub(crate) mod lease;
pub(crate) mod queue;
pub(crate) mod server;
mod state;
#[cfg(all(test, not(failsoft_loom)))]
mod tests;

use std::{sync::Arc, task::Waker, time::Duration};

use tokio::time::Instant;

use self::{
    lease::Lease,
    queue::{Queue, Turn},
    server::{Mark, Server},
};
use crate::{
    Outcome, Spend, Unit, Window,
    leasing::Shared,
    metrics::Meters,
    window::{Clocks, Now, Ring},
};

/// No call counts for more: what a peer claims to have used must not overflow sums that are meant to be exact.
pub(crate) const MAX_CALL: u64 = 1 << 40;

/// At most so many lines may be told, the soft line among them.
pub(crate) const MAX_LINES: usize = 16;

/// What is the same for all budgets of a ledger, and does not change.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) name: Arc<str>,
    pub(crate) unit: Unit,
    pub(crate) window: Window,
    /// What a new budget begins with.
    pub(crate) limit: u64,
    pub(crate) lines: Lines,
    /// No call may reserve more.
    pub(crate) per_call: Option<u64>,
    pub(crate) pause: Option<Pause>,
    /// It is no looser than the server says in its answers.
    pub(crate) heeds_quota: bool,
    pub(crate) meters: Meters,
    /// Where its budgets lease from; otherwise each has its limit to itself.
    pub(crate) shared: Option<Shared>,
}

/// Where calls are restricted, and where that or something else is told.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    /// The soft line, and then the lines that are only told, in millionths of what is there for calls that are not final.
    pub(crate) millionths: Box<[u32]>,
    /// The last part of the limit, kept for calls that are marked final.
    pub(crate) closing_reserve: u64,
}

/// A budget that spends more than `most` within `within` is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    pub(crate) most: u64,
    pub(crate) within: Duration,
    pub(crate) pause: Duration,
}

impl Rules {
    pub(crate) fn clocks(&self) -> Clocks {
        let steady = self.pause.is_some() || self.unit == Unit::Time || self.shared.is_some();
        self.window.clocks().and(Clocks { steady, wall: false })
    }

    /// What is there for calls that are not final.
    const fn hard(&self, limit: u64) -> u64 {
        limit.saturating_sub(self.lines.closing_reserve)
    }

    fn line(&self, which: usize, limit: u64) -> u64 {
        let line = u128::from(self.hard(limit)) * u128::from(self.lines.millionths[which]) / 1_000_000;
        u64::try_from(line).unwrap_or(u64::MAX)
    }
}

#[derive(Debug)]
pub(crate) struct Account {
    unit: Unit,
    limit: u64,
    soft: u64,
    hard: u64,
    ring: Ring,
    /// Which lines were crossed and told: a bit each.
    told: u16,
    /// The lowest line that was not told.
    next_line: u64,
    /// Below this nothing is crossed and nothing refused, but by who waits and by the soft line. 0 where there is always more to it.
    plain_below: u64,
    /// What was spent lately, for the pause.
    lately: Option<Ring>,
    paused_until: Option<Instant>,
    /// Somebody set the limit or restored the state: forgetting it would undo that.
    adjusted: bool,
    /// Somebody set the limit: it is not the configuration's.
    limit_is_set: bool,
    spend: Spend,
    /// What it has of a budget that others spend from too.
    lease: Option<Box<Lease>>,
    /// What the server says, where that is heeded.
    server: Option<Box<Server>>,
    /// Those that wait for their turn.
    pub(crate) queue: Queue,
}

/// What a call wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    /// It may take the closing reserve.
    pub(crate) is_final: bool,
    pub(crate) passes_soft: bool,
    /// It is no further attempt of a call that was admitted.
    pub(crate) is_first: bool,
    /// Nobody passes who came earlier and waits.
    pub(crate) turn: Turn,
}

/// What a call has of one budget: it begins with nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    /// Reserved in the cell `tick` of the window.
    pub(crate) reserved: u64,
    tick: u64,
    /// Reserved in cells that have left the window since.
    gone: u64,
    /// What had been reserved by then, where somebody counts it.
    mark: Mark,
}

impl Share {
    /// What is reserved [plainly](Account::reserve_plainly).
    #[inline]
    pub(crate) const fn plain(amount: u64) -> Self {
        Self { reserved: amount, tick: 0, gone: 0, mark: Mark::NONE }
    }

    /// All that was reserved.
    pub(crate) const fn all(&self) -> u64 {
        self.reserved.saturating_add(self.gone)
    }
}

/// Why a reservation was refused, and how things stood then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Denied {
    pub(crate) why: Why,
    pub(crate) limit: u64,
    /// What is left for a call of this kind.
    pub(crate) left: u64,
    /// In how long there may be enough, if time alone brings it.
    pub(crate) renews_in: Option<Duration>,
    /// The caller has taken a place among those that wait.
    pub(crate) waits: bool,
}

/// Why a call is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Past the soft line, and not of the calls that pass there.
    Soft,
    /// It does not fit.
    Hard,
    /// It is larger than any call may be.
    TooLarge,
    /// Too much was spent in a short time.
    Paused,
    /// The server says that it has less.
    Server,
    /// Others wait for the same.
    NotYetItsTurn,
    /// It does not fit into what is leased, and the store fails.
    NoStore,
}

impl Denied {
    /// Whether a larger lease may help.
    pub(crate) const fn is_for_lease(&self) -> bool {
        matches!(self.why, Why::Hard | Why::Soft)
    }

    /// Whether there may be enough in a while, for whoever waits.
    pub(crate) fn passes(&self, rules: &Rules) -> bool {
        match self.why {
            Why::NotYetItsTurn | Why::Server => true,
            Why::Hard => self.renews_in.is_some() || (rules.unit == Unit::Concurrent && self.limit > 0),
            Why::Soft | Why::TooLarge | Why::Paused | Why::NoStore => false,
        }
    }

    /// Whether whoever waits takes a place for it; of a lease, only where the store has said that it has to wait.
    pub(crate) fn stands_in_line(&self, rules: &Rules, of_leases: bool) -> bool {
        if self.why == Why::Hard && rules.shared.is_some() { of_leases } else { self.passes(rules) }
    }
}

/// What is worth telling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Crossed {
    /// The lines that were crossed: a bit each, the soft line's the lowest.
    pub(crate) lines: u16,
    /// More is spent than the limit allows: some call used more than was estimated.
    pub(crate) overrun: bool,
    /// The budget is paused from now on.
    pub(crate) paused: bool,
}

impl Crossed {
    #[inline]
    pub(crate) const fn is_nothing(&self) -> bool {
        self.lines == 0 && !self.overrun && !self.paused
    }
}

impl Account {
    pub(crate) fn new(rules: &Rules) -> Self {
        let lately = rules.pause.map(|pause| Ring::new(&Window::sliding(pause.within)));
        let mut account = Self {
            unit: rules.unit,
            limit: 0,
            soft: 0,
            hard: 0,
            ring: Ring::new(&rules.window),
            told: 0,
            next_line: 0,
            plain_below: 0,
            lately,
            paused_until: None,
            adjusted: false,
            limit_is_set: false,
            spend: Spend::default(),
            lease: None,
            server: rules.heeds_quota.then(Box::default),
            queue: Queue::default(),
        };
        if rules.shared.is_some() {
            account.lease_nothing(rules);
        } else {
            account.limit_to(rules.limit, rules);
        }
        account
    }

    /// As its rules say.
    #[inline]
    pub(crate) const fn unit(&self) -> Unit {
        self.unit
    }

    /// Lets go of what has left the window.
    #[inline]
    pub(crate) fn advance(&mut self, rules: &Rules, now: Now) {
        if self.ring.advance(now) {
            self.lapse();
            if let Some(server) = &mut self.server {
                server.forget(now);
            }
            self.look_at_lines_again(rules);
        }
    }

    /// Whether there is enough for `amount` more; changes nothing. The window must have been advanced.
    #[inline]
    pub(crate) fn check(
        &self,
        rules: &Rules,
        share: &Share,
        amount: u64,
        ask: Ask,
        now: Now,
    ) -> Result<(), Denied> {
        let committed = self.ring.committed();
        let hard = if ask.is_final { self.limit } else { self.hard };
        let is_open = ask.passes_soft || ask.is_final || committed < self.soft;
        let fits = committed.checked_add(amount).is_some_and(|next| next <= hard);
        let plain = is_open
            && fits
            && rules.per_call.is_none()
            && self.paused_until.is_none()
            && self.server.as_ref().is_none_or(|server| server.has(amount))
            && !self.queue.comes_before(ask.turn);
        if plain { Ok(()) } else { self.examine(rules, share, amount, ask, now) }
    }

    #[cold]
    fn examine(&self, rules: &Rules, share: &Share, amount: u64, ask: Ask, now: Now) -> Result<(), Denied> {
        let committed = self.ring.committed();
        let hard = if ask.is_final { self.limit } else { self.hard };
        let of_all = if ask.is_final { self.own_limit() } else { self.own_hard(rules) };
        let left = of_all.saturating_sub(committed);
        let limit = self.limit_of_all();
        let denied = |why, renews_in| Denied { why, limit, left, renews_in, waits: false };
        let of_call = amount.saturating_add(share.all());
        if let Some(most) = rules.per_call.filter(|most| of_call > *most) {
            return Err(Denied {
                why: Why::TooLarge,
                limit: most,
                left: most,
                renews_in: None,
                waits: false,
            });
        }
        if let Some(left) = self.paused_for(now).filter(|_| !ask.is_final) {
            return Err(denied(Why::Paused, Some(left)));
        }
        if !ask.passes_soft && !ask.is_final && committed >= self.soft {
            let renews_in = self.soft.checked_sub(1).and_then(|below| self.ring.falls_to(below, now));
            return Err(denied(Why::Soft, renews_in));
        }
        let fits = committed.checked_add(amount).is_some_and(|next| next <= hard);
        if self.queue.comes_before(ask.turn) {
            return Err(denied(Why::NotYetItsTurn, None));
        }
        let server =
            self.server.as_ref().and_then(|server| server.left(now)).filter(|(has, _)| amount > *has);
        if fits {
            return match server {
                Some((has, holds)) => Err(Denied { left: left.min(has), ..denied(Why::Server, Some(holds)) }),
                None => Ok(()),
            };
        }
        let falls_in = hard.checked_sub(amount).and_then(|most| self.ring.falls_to(most, now));
        let renews_in = falls_in.map(|falls| server.map_or(falls, |(_, holds)| falls.max(holds)));
        Err(denied(Why::Hard, renews_in))
    }

    /// Whether `amount` more is so far from every line and limit that [`check`](Self::check) would find nothing, and
    /// [`reserve`](Self::reserve) cross nothing.
    #[inline]
    pub(crate) fn takes_plainly(&self, amount: u64, ask: Ask) -> bool {
        let committed = self.ring.committed();
        committed.saturating_add(amount) < self.plain_below
            && (ask.passes_soft || committed < self.soft)
            && self.queue.is_empty()
    }

    /// Reserves, for a call that has nothing yet, what it [takes plainly](Self::takes_plainly).
    #[inline]
    pub(crate) const fn reserve_plainly(&mut self, amount: u64) -> Share {
        self.ring.reserve_plainly(amount);
        Share::plain(amount)
    }

    /// Whether a call that used so much is settled so far from every line and limit that [`settle`](Self::settle) would cross nothing, and
    /// nobody waits for what it gives back.
    #[inline]
    pub(crate) fn settles_plainly(&self, share: &Share, used: u64) -> bool {
        let committed = self.ring.committed().saturating_sub(share.reserved).saturating_add(used);
        committed < self.plain_below && used <= MAX_CALL && self.queue.is_empty()
    }

    /// What [`settle`](Self::settle) does then.
    #[inline]
    pub(crate) const fn settle_plainly(&mut self, share: &Share, used: u64, outcome: Outcome, unknown: bool) {
        self.ring.settle_plainly(share.reserved, used);
        self.spend.settled(outcome, used, unknown);
    }

    /// Reserves what [`check`](Self::check) has found to fit. What the call has already reserved moves along to now, so that it
    /// stays one share.
    #[inline]
    pub(crate) fn reserve(&mut self, rules: &Rules, share: &mut Share, amount: u64) -> Crossed {
        if share.reserved > 0 {
            if self.ring.holds(share.tick) {
                self.ring.release(share.tick, share.reserved);
            } else {
                share.gone = share.gone.saturating_add(share.reserved);
                share.reserved = 0;
            }
        }
        share.reserved = share.reserved.saturating_add(amount);
        if let Some(server) = &mut self.server {
            share.mark = server.take(amount);
        }
        if let Some(lease) = &mut self.lease {
            lease.saw(amount);
        }
        share.tick = self.ring.reserve(share.reserved);
        self.crossed(rules)
    }

    /// Gives a part of a reservation back as if it had never been.
    pub(crate) fn release(&mut self, share: &mut Share, amount: u64) {
        let amount = amount.min(share.reserved);
        share.reserved -= amount;
        self.ring.release(share.tick, amount);
    }

    /// Turns a reservation into what was used.
    #[inline]
    pub(crate) fn settle(
        &mut self,
        rules: &Rules,
        share: &Share,
        used: u64,
        outcome: Outcome,
        unknown: bool,
        now: Now,
    ) -> Crossed {
        let used = used.min(MAX_CALL);
        // Which attempts used it nobody knows: as much as may have been in the window counts there.
        let beyond = used.saturating_sub(share.all());
        let here = used.min(share.reserved).saturating_add(beyond);
        self.ring.settle(share.tick, share.reserved, here);
        self.spend.settled(outcome, used, unknown);
        let paused = self.spent_lately(rules, used, now);
        Crossed { paused, ..self.crossed_by_spending(rules) }
    }

    /// Books what came after a call was settled.
    pub(crate) fn late(&mut self, rules: &Rules, more: u64, outcome: Outcome, now: Now) -> Crossed {
        let more = more.min(MAX_CALL);
        self.ring.book(more);
        self.spend.booked_late(outcome, more);
        let paused = self.spent_lately(rules, more, now);
        Crossed { paused, ..self.crossed_by_spending(rules) }
    }

    #[inline]
    fn spent_lately(&mut self, rules: &Rules, used: u64, now: Now) -> bool {
        rules.pause.is_some_and(|pause| self.count_for_pause(pause, used, now))
    }

    /// `true` if it is paused from now on.
    fn count_for_pause(&mut self, pause: Pause, used: u64, now: Now) -> bool {
        let (Some(lately), Some(at)) = (&mut self.lately, now.at) else { return false };
        lately.advance(now);
        lately.book(used);
        if lately.committed() <= pause.most {
            return false;
        }
        let was = self.paused_until;
        self.paused_until = at.checked_add(pause.pause);
        was.is_none_or(|until| until <= at)
    }

    /// A call was turned away.
    pub(crate) fn count_denied(&mut self) {
        self.spend.denied = self.spend.denied.saturating_add(1);
    }

    /// Sets the limit; calls in flight keep what they reserved.
    pub(crate) fn set_limit(&mut self, rules: &Rules, limit: u64) {
        if !self.set_leased_limit(limit) {
            (self.adjusted, self.limit_is_set) = (true, true);
            self.limit_to(limit, rules);
        }
    }

    fn limit_to(&mut self, limit: u64, rules: &Rules) {
        (self.limit, self.hard, self.soft) = (limit, rules.hard(limit), rules.line(0, limit));
        self.look_at_lines_again(rules);
    }

    /// Sets what was spent; calls in flight keep what they reserved.
    pub(crate) fn restore(&mut self, rules: &Rules, spent: u64) {
        if self.lease.is_some() {
            // The store knows it.
            return;
        }
        self.adjusted = true;
        // As far from the end as sums of calls will ever come.
        let spent = spent.min(u64::MAX / 2);
        self.ring.set_spent(spent);
        self.spend.spent = spent;
        self.look_at_lines_again(rules);
    }

    /// Ends a pause.
    pub(crate) fn resume(&mut self) {
        self.paused_until = None;
    }

    pub(crate) fn paused_for(&self, now: Now) -> Option<Duration> {
        let left = self.paused_until?.checked_duration_since(now.at?)?;
        (!left.is_zero()).then_some(left)
    }

    /// Whoever waits first, to be woken when something has come free.
    #[inline]
    pub(crate) fn first_in_line(&self) -> Option<Waker> {
        self.queue.first()
    }

    /// Spent and reserved, in the window.
    pub(crate) const fn committed(&self) -> u64 {
        self.ring.committed()
    }

    pub(crate) const fn reserved(&self) -> u64 {
        self.ring.reserved()
    }

    pub(crate) fn renews_in(&self, now: Now) -> Option<Duration> {
        self.ring.falls_to(0, now)
    }

    pub(crate) const fn spend(&self) -> Spend {
        self.spend
    }

    /// Lets go also of a pause that is over, and of what was spent before the time that counts for the next one: before it is asked whether
    /// it [may go](Self::may_go).
    pub(crate) fn advance_pause(&mut self, now: Now) {
        if self.paused_for(now).is_none() {
            self.paused_until = None;
        }
        if let Some(lately) = &mut self.lately {
            lately.advance(now);
        }
    }

    /// Whether it may be forgotten: nothing of it would be missed.
    pub(crate) fn may_go(&self, rules: &Rules) -> bool {
        let of_window = || {
            let spent = rules.window.is_lifetime() && self.spend.spent() > 0;
            self.committed() == 0 && !spent
        };
        self.lease.as_ref().map_or_else(of_window, |lease| self.lease_may_go(lease))
            && !self.adjusted
            && self.paused_until.is_none()
            && self.lately.as_ref().is_none_or(|lately| lately.committed() == 0)
            && !self.server.as_ref().is_some_and(|server| server.says_something())
            && self.queue.is_empty()
    }

    #[inline]
    fn crossed(&mut self, rules: &Rules) -> Crossed {
        if self.ring.committed() < self.next_line { Crossed::default() } else { self.cross(rules) }
    }

    #[cold]
    fn cross(&mut self, rules: &Rules) -> Crossed {
        let before = self.told;
        let mut next_line = u64::MAX;
        for which in 0..rules.lines.millionths.len() {
            let line = self.own_line(rules, which);
            if self.ring.committed() >= line {
                self.told |= 1 << which;
            } else {
                next_line = next_line.min(line);
            }
        }
        self.next_line = next_line;
        self.look_how_plain(rules);
        Crossed { lines: self.told & !before, ..Crossed::default() }
    }

    #[inline]
    fn crossed_by_spending(&mut self, rules: &Rules) -> Crossed {
        let spent = self.ring.committed() - self.ring.reserved();
        let overrun = spent > self.limit && spent > self.own_limit();
        Crossed { overrun, ..self.crossed(rules) }
    }

    /// The lines may lie elsewhere now, or less below them: a crossing is told again.
    fn look_at_lines_again(&mut self, rules: &Rules) {
        let mut next_line = u64::MAX;
        for which in 0..rules.lines.millionths.len() {
            let line = self.own_line(rules, which);
            if self.ring.committed() < line {
                self.told &= !(1 << which);
            }
            if self.told & (1 << which) == 0 {
                next_line = next_line.min(line);
            }
        }
        self.next_line = next_line;
        self.look_how_plain(rules);
    }

    /// Whenever a limit or the next line has changed.
    fn look_how_plain(&mut self, rules: &Rules) {
        let plain = self.ring.is_lifetime() && rules.per_call.is_none() && rules.pause.is_none();
        self.plain_below = if plain { self.next_line.min(self.hard.saturating_add(1)) } else { 0 };
    }
}
