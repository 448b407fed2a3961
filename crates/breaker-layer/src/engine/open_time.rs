//! How long a circuit stays open.

use std::time::Duration;

/// How the open time grows.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Growth {
    /// By a factor for each opening in a row.
    Factor(f64),
    /// By a list, one entry more for each half-open period that failed; the last entry stays.
    List(Box<[Duration]>),
}

/// How long a circuit stays open: base, growth, cap, jitter.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OpenTime {
    pub(super) base: Duration,
    pub(super) growth: Growth,
    pub(super) cap: Duration,
    /// 0 to 1.
    pub(super) jitter: f64,
}

impl OpenTime {
    /// `openings` in a row, this one included; `failed` half-open periods in a row; `random` from 0 to below 1.
    pub(super) fn after(&self, openings: u32, failed: u32, random: f64) -> Duration {
        let nominal = match &self.growth {
            Growth::Factor(factor) => {
                let exponent = i32::try_from(openings.saturating_sub(1)).unwrap_or(i32::MAX);
                scaled(self.base, factor.powi(exponent), self.cap)
            }
            Growth::List(list) => {
                let index = (failed as usize).min(list.len().saturating_sub(1));
                list.get(index).copied().unwrap_or(self.base).min(self.cap)
            }
        };
        self.spread(nominal, random)
    }

    /// Adds up to `jitter` of itself, from so far below the cap that it does not pass it: circuits that have
    /// grown to the cap are spread as well.
    pub(super) fn spread(&self, nominal: Duration, random: f64) -> Duration {
        if self.jitter == 0.0 {
            return nominal;
        }
        let room = scaled(self.cap, 1.0 / (1.0 + self.jitter), self.cap);
        scaled(nominal.min(room), 1.0 + self.jitter * random, self.cap)
    }
}

/// `duration * factor`, at most `cap`, whatever overflows.
fn scaled(duration: Duration, factor: f64, cap: Duration) -> Duration {
    if factor == 1.0 {
        return duration.min(cap);
    }
    Duration::try_from_secs_f64(duration.as_secs_f64() * factor).map_or_else(
        // 0 times infinity is no number: still nothing
        |_| if duration.is_zero() { Duration::ZERO } else { cap },
        |grown| grown.min(cap),
    )
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use super::*;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn doubling(jitter: f64) -> OpenTime {
        OpenTime { base: secs(30), growth: Growth::Factor(2.0), cap: secs(300), jitter }
    }

    #[test]
    fn it_doubles_up_to_the_cap_for_ever() {
        let times: Vec<_> = (1..=6).map(|openings| doubling(0.0).after(openings, 0, 0.0).as_secs()).collect();
        assert_eq!(times, [30, 60, 120, 240, 300, 300]);
        assert_eq!(doubling(0.0).after(u32::MAX, 0, 0.0), secs(300));
    }

    #[test]
    fn an_open_time_of_nothing_stays_nothing() {
        let open = OpenTime { base: Duration::ZERO, ..doubling(0.1) };
        assert_eq!(open.after(u32::MAX, 0, 0.99), Duration::ZERO);
    }

    #[test]
    fn jitter_stays_inside_the_cap_and_still_spreads_there() {
        let open = doubling(0.1);
        assert!(open.after(1, 0, 0.0) == secs(30) && open.after(1, 0, 0.999) <= secs(33));
        let (low, high) = (open.after(9, 0, 0.0), open.after(9, 0, 0.999));
        assert!(low < secs(273) && high > secs(299) && high <= secs(300), "{low:?} {high:?}");
    }

    #[test]
    fn a_list_is_indexed_by_failed_half_opens_and_its_last_entry_stays() {
        let list = [1, 2, 3].map(secs).into();
        let open = OpenTime { growth: Growth::List(list), ..doubling(0.0) };
        let times: Vec<_> = (0..5).map(|failed| open.after(failed + 1, failed, 0.0).as_secs()).collect();
        assert_eq!(times, [1, 2, 3, 3, 3]);
    }
}
