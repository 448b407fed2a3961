//! Days and months in a time zone.

use std::time::Duration;

use failsoft_core::ConfigError;
use jiff::{Timestamp, ToSpan as _, ZonedDateTime, tz::TimeZone};

/// A day or a month in a time zone.
#[derive(Clone, Debug)]
pub(crate) struct Calendar {
    every: Every,
    zone: TimeZone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Every {
    Day,
    Month,
}

impl Calendar {
    pub(crate) fn new(every: Every, zone: &str) -> Result<Self, ConfigError> {
        let zone = TimeZone::get(zone)
            .map_err(|_| ConfigError::new("Window", "zone", zone, "the name of a time zone, such as UTC"))?;
        Ok(Self { every, zone })
    }

    /// When the period ends that a time lies in; both in milliseconds since 1970. A time that no calendar knows lies in a period
    /// without an end.
    pub(crate) fn ends(&self, now: i64) -> i64 {
        self.next(now).map_or(i64::MAX, |next| next.timestamp().as_millisecond())
    }

    fn next(&self, now: i64) -> Option<ZonedDateTime> {
        let now = Timestamp::from_millisecond(now).ok()?.to_zoned_datetime(self.zone.clone());
        // The first moment of a day is not always midnight: where the clocks change then, it is one o'clock.
        let next = match self.every {
            Every::Day => now.checked_add(1.day()).ok()?,
            Every::Month => now.first_of_month().ok()?.checked_add(1.month()).ok()?,
        };
        next.start_of_day().ok()
    }
}

/// From a time to another, both in milliseconds since 1970.
pub(crate) fn between(now: i64, then: i64) -> Duration {
    Duration::from_millis(u64::try_from(then.saturating_sub(now)).unwrap_or(0))
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use super::*;

    #[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
    fn at(time: &str) -> i64 {
        time.parse::<Timestamp>().unwrap().as_millisecond()
    }

    #[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
    #[track_caller]
    fn ends(every: Every, zone: &str, now: &str, then: &str) {
        assert_eq!(Calendar::new(every, zone).unwrap().ends(at(now)), at(then), "{zone} {now}");
    }

    // G110: an offset that is stripped renews a day eight or nine hours late.
    #[test]
    fn a_day_ends_at_midnight_in_its_own_zone() {
        ends(Every::Day, "Asia/Tokyo", "2025-06-01T14:59:59Z", "2025-06-01T15:00:00Z");
        ends(Every::Day, "Asia/Tokyo", "2025-06-01T15:00:00Z", "2025-06-02T15:00:00Z");
        ends(Every::Day, "UTC", "2025-06-01T00:00:00Z", "2025-06-02T00:00:00Z");
    }

    #[test]
    fn a_day_on_which_the_clocks_change_has_23_or_25_hours() {
        ends(Every::Day, "Europe/Berlin", "2025-03-29T23:00:00Z", "2025-03-30T22:00:00Z");
        ends(Every::Day, "Europe/Berlin", "2025-10-25T22:00:00Z", "2025-10-26T23:00:00Z");
        // An hour that comes twice, the second time: the same day.
        ends(Every::Day, "Europe/Berlin", "2025-10-26T01:30:00Z", "2025-10-26T23:00:00Z");
        // In Beirut the clocks went from midnight to one: the day began then.
        ends(Every::Day, "Asia/Beirut", "2022-03-26T21:00:00Z", "2022-03-26T22:00:00Z");
        ends(Every::Day, "Asia/Beirut", "2022-03-26T22:00:00Z", "2022-03-27T21:00:00Z");
        // And Samoa left a whole day out.
        ends(Every::Day, "Pacific/Apia", "2011-12-30T09:00:00Z", "2011-12-30T10:00:00Z");
    }

    #[test]
    fn a_month_ends_when_the_next_begins() {
        ends(Every::Month, "Europe/Berlin", "2025-03-31T21:59:59Z", "2025-03-31T22:00:00Z");
        ends(Every::Month, "Europe/Berlin", "2025-10-31T22:59:59Z", "2025-10-31T23:00:00Z");
        ends(Every::Month, "UTC", "2024-01-31T12:00:00Z", "2024-02-01T00:00:00Z");
        ends(Every::Month, "UTC", "2025-12-31T12:00:00Z", "2026-01-01T00:00:00Z");
    }

    #[test]
    fn no_time_is_too_odd() {
        let calendar = Calendar::new(Every::Month, "Europe/Berlin").unwrap();
        for now in [i64::MIN, i64::MAX, 0, -1, 253_402_207_200_000, -377_705_116_800_000] {
            assert!(calendar.ends(now) > now || calendar.ends(now) == i64::MAX, "{now}");
        }
        assert!(Calendar::new(Every::Day, "Mars/Olympus").is_err());
    }
}
