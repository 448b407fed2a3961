//! How long the target's answers take: a quantile of the last of them, in bounded memory and constant time.

use std::time::Duration;

/// Each power of two is cut into so many steps: the estimate is at most a sixteenth too long, and never too short.
const STEPS: usize = 1 << STEP_BITS;
const STEP_BITS: u32 = 4;
/// The longest time that is told apart, in powers of two of microseconds: 71 minutes.
const LONGEST_BITS: u32 = 32;
const BUCKETS: usize = ((LONGEST_BITS - STEP_BITS) as usize + 1) * STEPS;

/// A generation has at least so many latencies, and at least ten of them lie beyond the quantile.
const GENERATION: u64 = 500;

/// Parts per million: whole numbers, in which no quantile is rounded up by a hair.
const WHOLE: u64 = 1_000_000;

/// A histogram of the last one to two generations of latencies, with a pointer to the quantile's bucket that moves with each of
/// them. It does not read the clock.
#[derive(Debug)]
pub(super) struct Latencies {
    quantile: u64,
    min_calls: u64,
    generation: u64,
    seen: u64,
    current: Box<[u32]>,
    previous: Box<[u32]>,
    in_current: u64,
    in_previous: u64,
    /// The quantile's bucket, and how many latencies lie below it.
    at: usize,
    below: u64,
}

impl Latencies {
    /// `quantile` is a share, of which nothing is known before `min_calls` latencies.
    pub(super) fn new(quantile: f64, min_calls: u32) -> Self {
        // The casts saturate; the builder has checked the share.
        let quantile = ((quantile * WHOLE as f64).round() as u64).min(WHOLE);
        let beyond = 10 * WHOLE / (WHOLE - quantile).max(1);
        Self {
            quantile,
            min_calls: u64::from(min_calls),
            generation: GENERATION.max(beyond).min(u64::from(u32::MAX)),
            seen: 0,
            current: vec![0; BUCKETS].into(),
            previous: vec![0; BUCKETS].into(),
            in_current: 0,
            in_previous: 0,
            at: 0,
            below: 0,
        }
    }

    pub(super) fn record(&mut self, latency: Duration) {
        let bucket = bucket(latency);
        self.seen = self.seen.saturating_add(1);
        self.in_current += 1;
        self.current[bucket] += 1;
        if bucket < self.at {
            self.below += 1;
        }
        if self.in_current == self.generation {
            std::mem::swap(&mut self.current, &mut self.previous);
            self.current.fill(0);
            self.in_previous = std::mem::take(&mut self.in_current);
            (self.at, self.below) = (0, 0);
        }
        self.settle();
    }

    /// A call that took so long was given up: that it is longer than the quantile is known if it is so by now, and then counts. Else
    /// nothing is known of it.
    pub(super) fn record_unfinished(&mut self, at_least: Duration) {
        if self.is_known() && bucket(at_least) > self.at {
            self.record(at_least);
        }
    }

    /// The quantile; `None` while too little is known.
    pub(super) fn quantile(&self) -> Option<Duration> {
        self.is_known().then(|| end(self.at))
    }

    const fn is_known(&self) -> bool {
        self.seen > 0 && self.seen >= self.min_calls
    }

    /// Moves the pointer to the bucket in which the quantile's rank lies.
    fn settle(&mut self) {
        let rank = (self.quantile * (self.in_current + self.in_previous)).div_ceil(WHOLE).max(1);
        while self.below >= rank {
            self.at -= 1;
            self.below -= self.count(self.at);
        }
        while self.at + 1 < BUCKETS && self.below + self.count(self.at) < rank {
            self.below += self.count(self.at);
            self.at += 1;
        }
    }

    fn count(&self, bucket: usize) -> u64 {
        u64::from(self.current[bucket]) + u64::from(self.previous[bucket])
    }
}

fn bucket(latency: Duration) -> usize {
    let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX).min((1 << LONGEST_BITS) - 1);
    let Some(shift) = micros.checked_ilog2().unwrap_or(0).checked_sub(STEP_BITS) else {
        return micros as usize;
    };
    (shift as usize) * STEPS + (micros >> shift) as usize
}

/// The first time that lies above the bucket.
fn end(bucket: usize) -> Duration {
    let micros = match (bucket / STEPS).checked_sub(1) {
        None => bucket as u64 + 1,
        Some(shift) => ((bucket % STEPS + STEPS + 1) as u64) << shift,
    };
    Duration::from_micros(micros)
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn buckets_are_in_order_and_at_most_a_sixteenth_wide() {
        let mut last = 0;
        for micros in (0..5_000).chain((13..32).flat_map(|bits| [(1_u64 << bits) - 1, 1 << bits])) {
            let latency = Duration::from_micros(micros);
            let bucket = bucket(latency);
            assert!(bucket == last || bucket == last + 1 || micros > 5_000 && bucket > last, "{micros}");
            assert!(end(bucket) > latency, "{micros}");
            assert!(end(bucket) <= latency + latency / 16 + Duration::from_micros(1), "{micros}");
            last = bucket;
        }
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
    }

    #[test]
    fn nothing_is_known_before_the_first_calls() {
        let mut latencies = Latencies::new(0.9, 3);
        for _ in 0..2 {
            latencies.record(MS);
            assert_eq!(latencies.quantile(), None);
        }
        latencies.record(MS);
        assert!(latencies.quantile().is_some());
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let mut latencies = Latencies::new(0.95, 1);
        (0..2 * GENERATION).for_each(|_| latencies.record(MS * 1_000));
        assert!(latencies.quantile() >= Some(MS * 1_000));
        (0..2 * GENERATION).for_each(|_| latencies.record(MS));
        assert!(latencies.quantile() < Some(MS * 2));
    }

    /// Milliseconds from 1 to 1000, each as often as the others, in no order.
    fn even(calls: u32) -> impl Iterator<Item = Duration> {
        (0..calls).map(|i| MS * (1 + i * 7_919 % 1_000))
    }

    #[test]
    fn who_gives_up_long_calls_does_not_make_the_others_look_slow() {
        // All above 600 ms are given up; half of all are above 500.
        let limit = MS * 600;
        let mut latencies = Latencies::new(0.5, 100);
        for latency in even(5_000) {
            if latency <= limit { latencies.record(latency) } else { latencies.record_unfinished(limit) }
        }
        let quantile = latencies.quantile().unwrap();
        assert!((MS * 490..MS * 540).contains(&quantile), "{quantile:?}");
        // Given up before the quantile, whatever they would have taken, they say nothing.
        let known = latencies.in_current + latencies.in_previous;
        even(1_000).for_each(|latency| latencies.record_unfinished(latency.min(MS * 300)));
        assert_eq!(
            (latencies.quantile(), latencies.in_current + latencies.in_previous),
            (Some(quantile), known)
        );
    }

    #[test]
    fn of_calls_that_are_all_given_up_no_quantile_is_known() {
        let mut latencies = Latencies::new(0.5, 1);
        even(1_000).for_each(|latency| latencies.record_unfinished(latency));
        assert_eq!(latencies.quantile(), None);
    }

    #[test]
    fn a_high_quantile_has_ten_latencies_beyond_it() {
        assert_eq!(Latencies::new(0.999, 1).generation, 10_000);
        assert_eq!(Latencies::new(0.5, 1).generation, GENERATION);
    }

    proptest! {
        // Each has up to 1800 steps.
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// The model: the same calls, if none of them had been given up.
        #[test]
        fn what_is_given_up_never_makes_the_quantile_longer_than_it_is(
            all in proptest::collection::vec((0..5_000_000_u64, 0..5_000_000_u64), 1..1_000),
            quantile in 0.5..0.999_f64,
        ) {
            let [mut seen, mut cut] = [(); 2].map(|()| Latencies::new(quantile, 1));
            for (latency, limit) in all {
                let (latency, limit) = (Duration::from_micros(latency), Duration::from_micros(limit));
                if limit < latency && cut.is_known() && bucket(limit) > cut.at {
                    cut.record_unfinished(limit);
                    seen.record(latency);
                } else {
                    seen.record(latency);
                    cut.record(latency);
                }
                prop_assert_eq!(seen.in_current, cut.in_current);
                prop_assert!(cut.quantile() <= seen.quantile());
            }
        }

        /// The slow and obvious model: all latencies of the last generations, sorted.
        #[test]
        fn it_is_the_quantile_of_the_sorted_latencies(
            quantile in 0.5..0.999_f64,
            all in proptest::collection::vec(prop_oneof![0..100_u64, 0..5_000_000_u64, Just(u64::MAX)], 1..1_800),
        ) {
            let mut latencies = Latencies::new(quantile, 1);
            let generation = usize::try_from(latencies.generation).unwrap();
            for (i, micros) in all.iter().enumerate() {
                latencies.record(Duration::from_micros(*micros));
                if i % 300 == 0 || i + 1 == all.len() {
                    // The generation that runs, and the last that is full.
                    let from = ((i + 1) / generation).saturating_sub(1) * generation;
                    let mut sorted = all[from..=i].to_vec();
                    sorted.sort_unstable();
                    let share = (quantile * WHOLE as f64).round() as u64;
                    let rank = (share * sorted.len() as u64).div_ceil(WHOLE).max(1);
                    let exact = Duration::from_micros(sorted[usize::try_from(rank).unwrap() - 1]);
                    prop_assert_eq!(latencies.quantile(), Some(end(bucket(exact))));
                }
            }
        }
    }
}
