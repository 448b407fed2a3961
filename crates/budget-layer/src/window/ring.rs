//! What lies in a window: booked and reserved, by the time at which the calls began. Pure.

use std::time::Duration;

use tokio::time::Instant;

use super::{Kind, Now, Window};
#[cfg(feature = "calendar")]
use super::{calendar::between, periods::Periods};

/// A sliding window moves on by a thirtieth at a time.
const STEPS: u32 = 30;

/// One cell more than there are steps: an amount stays for the whole window, wherever in its cell it began.
const CELLS: usize = STEPS as usize + 1;

/// The amounts in a window.
#[derive(Debug)]
pub(crate) struct Ring {
    shape: Shape,
    /// The newest cell, counted from the beginning; of a calendar, the period.
    tick: u64,
    sum: Amounts,
}

#[derive(Debug)]
enum Shape {
    Lifetime,
    /// A lifetime, of which a store knows what lies in its window; what is leased from it is so for a time.
    Leased {
        until: Option<Instant>,
    },
    Sliding {
        width: Duration,
        origin: Option<Instant>,
        cells: Box<[Amounts; CELLS]>,
    },
    #[cfg(feature = "calendar")]
    Calendar(Box<Periods>),
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Amounts {
    /// Spent and reserved.
    pub(super) committed: u64,
    reserved: u64,
}

impl Ring {
    pub(crate) fn new(window: &Window) -> Self {
        let shape = match &window.0 {
            Kind::Lifetime => Shape::Lifetime,
            Kind::Sliding(length) => Shape::Sliding {
                width: (*length / STEPS).max(Duration::from_nanos(1)),
                origin: None,
                cells: Box::new([Amounts::default(); CELLS]),
            },
            #[cfg(feature = "calendar")]
            Kind::Calendar(calendar) => Shape::Calendar(Box::new(Periods::new(calendar.clone()))),
        };
        Self { shape, tick: 0, sum: Amounts::default() }
    }

    pub(crate) const fn committed(&self) -> u64 {
        self.sum.committed
    }

    pub(crate) const fn reserved(&self) -> u64 {
        self.sum.reserved
    }

    /// A lifetime in which nothing is leased yet.
    pub(crate) fn leased() -> Self {
        Self { shape: Shape::Leased { until: None }, tick: 0, sum: Amounts::default() }
    }

    /// Something is leased until then.
    pub(crate) fn lease_until(&mut self, then: Instant) {
        if let Shape::Leased { until } = &mut self.shape {
            *until = Some(then);
        }
    }

    /// Lets go of what has left the window; `true` if something may have, or a lease is over.
    #[inline]
    pub(crate) fn advance(&mut self, now: Now) -> bool {
        match self.shape {
            Shape::Lifetime => false,
            _ => self.roll(now),
        }
    }

    fn roll(&mut self, now: Now) -> bool {
        match &mut self.shape {
            Shape::Lifetime => false,
            Shape::Leased { until } => {
                let is_over = until.zip(now.at).is_some_and(|(until, at)| at >= until);
                if is_over {
                    *until = None;
                }
                is_over
            }
            Shape::Sliding { width, origin, cells } => {
                let Some(at) = now.at else { return false };
                let since = at.saturating_duration_since(*origin.get_or_insert(at));
                let tick = u64::try_from(since.as_nanos() / width.as_nanos().max(1)).unwrap_or(u64::MAX);
                // A clock that goes back, or a thread that read it earlier, changes nothing.
                let steps = tick.saturating_sub(self.tick).min(CELLS as u64);
                for step in 0..steps {
                    let gone = std::mem::take(cell(cells, tick - step));
                    self.sum.committed = self.sum.committed.saturating_sub(gone.committed);
                    self.sum.reserved = self.sum.reserved.saturating_sub(gone.reserved);
                }
                self.tick = self.tick.max(tick);
                steps > 0
            }
            #[cfg(feature = "calendar")]
            Shape::Calendar(periods) => {
                now.wall.is_some_and(|wall| periods.advance(wall, &mut self.tick, &mut self.sum))
            }
        }
    }

    /// Reserves in the newest cell, and says which that is.
    pub(crate) fn reserve(&mut self, amount: u64) -> u64 {
        self.change(self.tick, |amounts| {
            amounts.committed = amounts.committed.saturating_add(amount);
            amounts.reserved = amounts.reserved.saturating_add(amount);
        });
        self.tick
    }

    /// Whether all that ever was counts for good.
    pub(crate) const fn is_lifetime(&self) -> bool {
        matches!(self.shape, Shape::Lifetime)
    }

    /// The same over a lifetime, whose one cell is 0; sums that do not overflow.
    #[inline]
    pub(crate) const fn reserve_plainly(&mut self, amount: u64) {
        self.sum.committed += amount;
        self.sum.reserved += amount;
    }

    /// [`settle`](Self::settle) over a lifetime.
    #[inline]
    pub(crate) const fn settle_plainly(&mut self, reserved: u64, used: u64) {
        self.sum.reserved = self.sum.reserved.saturating_sub(reserved);
        self.sum.committed = self.sum.committed.saturating_sub(reserved).saturating_add(used);
    }

    /// Gives back what was reserved in a cell, if that is still in the window.
    pub(crate) fn release(&mut self, tick: u64, amount: u64) {
        self.settle(tick, amount, 0);
    }

    /// Turns what was reserved in a cell into what was used, as far as that is in the window; what is used beyond it counts from now
    /// on.
    pub(crate) fn settle(&mut self, tick: u64, reserved: u64, used: u64) {
        let within = used.min(reserved);
        self.change(tick, |amounts| {
            amounts.reserved = amounts.reserved.saturating_sub(reserved);
            amounts.committed = amounts.committed.saturating_sub(reserved - within);
        });
        self.book(used - within);
    }

    /// Books what nothing was reserved for.
    pub(crate) fn book(&mut self, more: u64) {
        if more > 0 {
            self.change(self.tick, |amounts| amounts.committed = amounts.committed.saturating_add(more));
        }
    }

    /// Sets what is spent; what is reserved stays.
    pub(crate) fn set_spent(&mut self, spent: u64) {
        if let Shape::Sliding { cells, .. } = &mut self.shape {
            self.sum = Amounts { committed: self.sum.reserved, ..self.sum };
            cells.iter_mut().for_each(|cell| cell.committed = cell.reserved);
            self.book(spent);
        } else {
            self.sum.committed = self.sum.reserved.saturating_add(spent);
        }
    }

    /// When the period ends, in milliseconds since 1970, if it is one of a calendar that has begun.
    #[cfg_attr(not(feature = "calendar"), allow(clippy::unused_self, reason = "as with the feature"))]
    pub(crate) fn ends(&self) -> Option<i64> {
        match &self.shape {
            #[cfg(feature = "calendar")]
            Shape::Calendar(periods) => periods.ends(),
            _ => None,
        }
    }

    /// Whether what was spent in a period that ends then, if it is one, is still spent.
    #[cfg_attr(
        not(feature = "calendar"),
        allow(unused_variables, clippy::unused_self, reason = "as with the feature")
    )]
    pub(crate) fn is_in_period(&self, period_ends: Option<i64>, now: Now) -> bool {
        match self.shape {
            #[cfg(feature = "calendar")]
            Shape::Calendar(_) => period_ends.zip(now.wall).is_none_or(|(ends, now)| now < ends),
            _ => true,
        }
    }

    /// Whether a cell is still in the window.
    pub(crate) const fn holds(&self, tick: u64) -> bool {
        match self.shape {
            Shape::Lifetime | Shape::Leased { .. } => true,
            Shape::Sliding { .. } => tick.saturating_add(CELLS as u64) > self.tick,
            #[cfg(feature = "calendar")]
            Shape::Calendar(_) => tick == self.tick,
        }
    }

    fn change(&mut self, tick: u64, change: impl Fn(&mut Amounts)) {
        if !self.holds(tick) {
            #[cfg(feature = "calendar")]
            if let Shape::Calendar(periods) = &mut self.shape {
                periods.change(tick, change);
            }
            return;
        }
        if let Shape::Sliding { cells, .. } = &mut self.shape {
            change(cell(cells, tick));
        }
        change(&mut self.sum);
    }

    /// In how long no more than `most` is committed any more, if nothing else happens. `None` where time alone does not help.
    pub(crate) fn falls_to(&self, most: u64, now: Now) -> Option<Duration> {
        match &self.shape {
            Shape::Lifetime | Shape::Leased { .. } => None,
            Shape::Sliding { width, origin, cells } => {
                let (at, origin) = (now.at?, (*origin)?);
                let mut left = self.sum.committed;
                let oldest = self.tick.saturating_sub(u64::from(STEPS));
                for tick in oldest..=self.tick {
                    if left <= most {
                        break;
                    }
                    left = left.saturating_sub(cells[index(tick)].committed);
                    if left <= most {
                        let leaves = u128::from(tick.saturating_add(CELLS as u64)) * width.as_nanos();
                        let leaves = origin.checked_add(Duration::from_nanos(u64::try_from(leaves).ok()?))?;
                        return Some(leaves.saturating_duration_since(at));
                    }
                }
                (left <= most).then_some(Duration::ZERO)
            }
            #[cfg(feature = "calendar")]
            Shape::Calendar(periods) => Some(periods.ends()?)
                .filter(|end| *end < i64::MAX)
                .map(|end| between(now.wall.unwrap_or(end), end)),
        }
    }
}

#[cfg(all(test, feature = "calendar", not(failsoft_loom)))]
impl Ring {
    pub(super) fn periods_known(&self) -> usize {
        if let Shape::Calendar(periods) = &self.shape { periods.known() } else { 0 }
    }
}

const fn index(tick: u64) -> usize {
    (tick % CELLS as u64) as usize
}

fn cell(cells: &mut [Amounts; CELLS], tick: u64) -> &mut Amounts {
    &mut cells[index(tick)]
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn minute() -> Ring {
        Ring::new(&Window::sliding(MINUTE))
    }

    fn now(at: Instant) -> Now {
        Now::at(at)
    }

    // G111: a counter that lived exactly as long as its window was lost before the window was over.
    #[test]
    fn what_began_a_window_ago_has_left_and_what_began_later_has_not() {
        let (mut ring, start) = (minute(), Instant::now());
        ring.advance(now(start));
        ring.reserve(7);
        ring.advance(now(start + MINUTE));
        assert_eq!(ring.committed(), 7);
        assert_eq!(ring.falls_to(0, now(start + MINUTE)), Some(MINUTE / STEPS));
        ring.advance(now(start + MINUTE + MINUTE / STEPS));
        assert_eq!((ring.committed(), ring.reserved()), (0, 0));
    }

    #[test]
    fn a_call_that_ends_after_it_left_the_window_adds_only_what_it_used_beyond_its_reservation() {
        let (mut ring, start) = (minute(), Instant::now());
        ring.advance(now(start));
        let tick = ring.reserve(10);
        ring.advance(now(start + 10 * MINUTE));
        ring.settle(tick, 10, 8);
        assert_eq!((ring.committed(), ring.reserved()), (0, 0));
        ring.settle(tick, 10, 13);
        assert_eq!(ring.committed(), 3);
    }

    // G109: what is given back too late belongs to somebody else by now.
    #[test]
    fn what_is_given_back_after_it_left_the_window_takes_nothing_from_others() {
        let (mut ring, start) = (minute(), Instant::now());
        ring.advance(now(start));
        let first = ring.reserve(10);
        // The very cell that the first was in.
        ring.advance(now(start + MINUTE + MINUTE / STEPS));
        let second = ring.reserve(10);
        assert_eq!(index(first), index(second));
        ring.release(first, 10);
        assert_eq!((ring.committed(), ring.reserved()), (10, 10));
        ring.release(second, 10);
        assert_eq!((ring.committed(), ring.reserved()), (0, 0));
    }

    #[test]
    fn a_clock_that_goes_back_changes_nothing() {
        let (mut ring, start) = (minute(), Instant::now());
        ring.advance(now(start));
        ring.advance(now(start + 2 * MINUTE));
        let tick = ring.reserve(5);
        ring.advance(now(start));
        assert!(ring.holds(tick));
        assert_eq!(ring.committed(), 5);
    }

    #[cfg(feature = "calendar")]
    #[test]
    fn a_day_renews_at_once_and_a_clock_set_back_does_not_bring_it_back() {
        let mut ring = Ring::new(&Window::day("UTC").unwrap());
        let wall = |hours: i64| Now { wall: Some(hours * 3_600_000), ..Now::default() };
        ring.advance(wall(23));
        let tick = ring.reserve(5);
        assert_eq!(ring.falls_to(0, wall(23)), Some(Duration::from_secs(3_600)));
        ring.advance(wall(24));
        assert_eq!((ring.committed(), ring.holds(tick)), (0, false));
        ring.reserve(3);
        ring.advance(wall(1));
        ring.advance(wall(25));
        assert_eq!(ring.committed(), 3);
        ring.settle(tick, 5, 5);
        assert_eq!(ring.committed(), 3, "yesterday's");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn in_no_stretch_of_the_length_does_more_lie_than_the_window_says(
            steps in prop::collection::vec((0..9_000_u64, 1..50_u64, 0..60_u64), 1..60),
        ) {
            let (mut ring, start) = (minute(), Instant::now());
            let mut at = start;
            let mut booked: Vec<(Instant, u64)> = Vec::new();
            for (pause, estimate, used) in steps {
                at += Duration::from_millis(pause);
                ring.advance(now(at));
                let tick = ring.reserve(estimate);
                ring.settle(tick, estimate, used);
                booked.push((at, used));
                let of_last = |length: Duration| {
                    booked.iter().filter(|(began, _)| at.duration_since(*began) < length).map(|(_, used)| used).sum::<u64>()
                };
                prop_assert!(ring.committed() >= of_last(MINUTE));
                prop_assert!(ring.committed() <= of_last(MINUTE + MINUTE / STEPS));
                if let Some(wait) = ring.falls_to(20, now(at)) {
                    let mut later = Ring { shape: Shape::Lifetime, ..minute() };
                    std::mem::swap(&mut later, &mut ring);
                    later.advance(now(at + wait));
                    prop_assert!(later.committed() <= 20);
                    break;
                }
            }
        }
    }
}
