//! The days or months of a budget, by a clock that may be set ahead and back. Pure.
//!
//! What is spent counts in the period that the clock shows, for as long as that is known: each renews what there is once, however often the
//! clock comes to it. A clock that is set back gives nothing back: what was spent since counts in the period that it comes back to as
//! well. Then that one renews at its own end, and not at the end of the one that the clock had shown.

use super::{calendar::Calendar, ring::Amounts};

/// Set back by less than a minute, a clock was set right, or a thread has read it a little earlier: that is no other day.
const SLACK: i64 = 60_000;

/// Of periods ahead, which were shown too early, so many are known.
const AHEAD: usize = 3;

#[derive(Debug)]
pub(super) struct Periods {
    calendar: Calendar,
    /// When the present one ends, in milliseconds since 1970; not known before the first call.
    ends: Option<i64>,
    /// The earliest time at which it was seen.
    since: i64,
    /// What it began with, this time.
    began_with: u64,
    /// How many were begun, after the first.
    begun: u64,
    /// By their ends: the last before the present one, and those that lie ahead.
    left: Vec<Left>,
}

/// A period that the clock has left, and may come back to.
#[derive(Debug)]
struct Left {
    ends: i64,
    tick: u64,
    amounts: Amounts,
    /// What was spent in others since it was left.
    meanwhile: u64,
}

impl Periods {
    pub(super) const fn new(calendar: Calendar) -> Self {
        Self { calendar, ends: None, since: 0, began_with: 0, begun: 0, left: Vec::new() }
    }

    pub(super) const fn ends(&self) -> Option<i64> {
        self.ends
    }

    /// Goes to the period that the clock shows now; `true` if it is another. `tick` is the one whose amounts these are.
    pub(super) fn advance(&mut self, wall: i64, tick: &mut u64, amounts: &mut Amounts) -> bool {
        let Some(ends) = self.ends else {
            (self.ends, self.since) = (Some(self.calendar.ends(wall)), wall);
            return true;
        };
        if wall < ends && wall >= self.since.saturating_sub(SLACK) {
            return false;
        }
        let next = self.calendar.ends(wall);
        if next == ends {
            self.since = self.since.min(wall);
            return false;
        }
        let was = *amounts;
        self.leave(Left { ends, tick: *tick, amounts: was, meanwhile: 0 });
        let known = self.take(next);
        (*tick, *amounts) = known
            .as_ref()
            .map_or_else(|| (self.begun + 1, Amounts::default()), |known| (known.tick, known.amounts));
        self.begun = self.begun.max(*tick);
        if next < ends {
            let meanwhile = known.map_or(0, |known| known.meanwhile);
            amounts.committed = amounts.committed.saturating_add(meanwhile).max(was.committed);
        }
        self.began_with = amounts.committed;
        (self.ends, self.since) = (Some(next), wall);
        self.forget(next);
        true
    }

    /// Changes a period that was left, if it is known.
    pub(super) fn change(&mut self, tick: u64, change: impl Fn(&mut Amounts)) {
        if let Some(left) = self.left.iter_mut().find(|left| left.tick == tick) {
            change(&mut left.amounts);
        }
    }

    fn leave(&mut self, left: Left) {
        let spent = left.amounts.committed.saturating_sub(self.began_with);
        for other in &mut self.left {
            other.meanwhile = other.meanwhile.saturating_add(spent);
        }
        let at = self.left.partition_point(|other| other.ends < left.ends);
        self.left.insert(at, left);
    }

    fn take(&mut self, ends: i64) -> Option<Left> {
        let at = self.left.iter().position(|left| left.ends == ends)?;
        Some(self.left.remove(at))
    }

    /// Of those before the present one only the last is kept, and of those ahead the next.
    fn forget(&mut self, present: i64) {
        let before = self.left.partition_point(|left| left.ends < present);
        self.left.drain(..before.saturating_sub(1));
        self.left.truncate(before.min(1) + AHEAD);
    }
}

#[cfg(all(test, not(failsoft_loom)))]
impl Periods {
    pub(super) fn known(&self) -> usize {
        self.left.len()
    }
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::super::{Now, Ring, Window};

    const HOUR: i64 = 3_600_000;
    const DAY: i64 = 24 * HOUR;

    #[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
    fn days() -> Ring {
        Ring::new(&Window::day("UTC").unwrap())
    }

    fn at(ring: &mut Ring, wall: i64) -> u64 {
        ring.advance(Now { wall: Some(wall), ..Now::default() });
        ring.committed()
    }

    fn renews_at(ring: &Ring, wall: i64) -> Option<i64> {
        let falls = ring.falls_to(0, Now { wall: Some(wall), ..Now::default() })?;
        Some(wall + i64::try_from(falls.as_millis()).unwrap_or(i64::MAX))
    }

    #[test]
    fn a_clock_that_was_a_year_ahead_and_came_back_renews_at_the_next_midnight_and_all_counts_until_then() {
        let mut ring = days();
        at(&mut ring, 10 * HOUR);
        ring.book(80);
        assert_eq!(at(&mut ring, 365 * DAY), 0, "it cannot know that this is wrong");
        ring.book(30);
        let noon = 12 * HOUR;
        assert_eq!((at(&mut ring, noon), renews_at(&ring, noon)), (110, Some(DAY)));
        ring.book(5);
        for day in 1..365 {
            assert_eq!(at(&mut ring, day * DAY), 0, "{day}");
            ring.book(7);
        }
        assert_eq!(at(&mut ring, 365 * DAY), 30, "that was spent on this day");
        assert_eq!(at(&mut ring, 366 * DAY), 0);
    }

    #[test]
    fn a_clock_that_is_set_around_midnight_renews_once_and_counts_twice_what_was_spent_between() {
        let mut ring = days();
        at(&mut ring, DAY - HOUR);
        ring.book(40);
        at(&mut ring, DAY + HOUR);
        ring.book(3);
        for _ in 0..3 {
            assert_eq!(at(&mut ring, DAY - HOUR), 43, "not again each time");
            assert_eq!(at(&mut ring, DAY + HOUR), 3);
        }
        at(&mut ring, DAY - HOUR);
        ring.book(2);
        assert_eq!(at(&mut ring, DAY + HOUR), 3);
        ring.book(4);
        assert_eq!(at(&mut ring, DAY - HOUR), 49);
        // Earlier on the same day, and a thread that has read the clock a little before others: nothing happens.
        let mut ring = days();
        at(&mut ring, DAY + 2 * HOUR);
        ring.book(9);
        assert_eq!(at(&mut ring, DAY + 1), 9);
        assert_eq!(at(&mut ring, DAY - 1), 9);
        assert_eq!(renews_at(&ring, DAY - 1), Some(2 * DAY));
    }

    #[test]
    fn a_call_settles_in_the_period_in_which_it_began_wherever_the_clock_has_gone() {
        let mut ring = days();
        at(&mut ring, 0);
        let today = ring.reserve(10);
        at(&mut ring, 30 * DAY);
        let ahead = ring.reserve(10);
        assert_eq!((at(&mut ring, HOUR), ring.reserved()), (20, 10), "the one, and what was reserved since");
        ring.settle(ahead, 10, 4);
        ring.settle(today, 10, 1);
        assert_eq!((ring.committed(), ring.reserved()), (11, 0));
        assert_eq!((at(&mut ring, 30 * DAY), ring.reserved()), (4, 0));
        // Of a day that is long over, nothing is known.
        at(&mut ring, 32 * DAY);
        at(&mut ring, 33 * DAY);
        ring.settle(ahead, 10, 10);
        assert_eq!(ring.committed(), 0);
    }

    #[test]
    fn a_clock_that_goes_anywhere_keeps_a_few_periods_and_no_time_is_too_odd() {
        let mut ring = days();
        for wall in [i64::MIN, i64::MAX, 0, 5, -1, i64::MAX - 1, i64::MIN + 1] {
            at(&mut ring, wall);
            ring.book(u64::MAX / 3);
        }
        for day in (0..10_000).rev() {
            at(&mut ring, day * DAY);
            ring.book(1);
        }
        assert!(ring.periods_known() <= 4);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn going_back_gives_nothing_back(steps in prop::collection::vec((0..5 * 24_i64, 0..50_u64), 1..80)) {
            let mut ring = days();
            let mut before: Option<(i64, u64)> = None;
            for (hour, amount) in steps {
                let (day, committed) = (hour / 24, at(&mut ring, hour * HOUR));
                if let Some((last, was)) = before {
                    prop_assert!(day > last || committed >= was, "back from {last} to {day}");
                }
                ring.book(amount);
                before = Some((day, committed + amount));
            }
        }

        #[test]
        fn neither_of_two_days_is_renewed_again(steps in prop::collection::vec((0..48_i64, 0..50_u64), 1..80)) {
            let mut ring = days();
            let (mut spent, mut all) = ([0_u64; 2], 0);
            for (hour, amount) in steps {
                let (day, committed) = (usize::from(hour >= 24), at(&mut ring, hour * HOUR));
                prop_assert!(committed >= spent[day] && committed <= all);
                ring.book(amount);
                spent[day] += amount;
                all += amount;
            }
        }
    }
}
