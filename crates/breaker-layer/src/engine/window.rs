//! What is remembered of past calls: the last N, the last span of time, or all since the state was entered.
//!
//! Each keeps running sums, so that a step costs the same however full the window is.

/// One outcome as a window keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample(u16);

const SLOW: u16 = 1 << 15;
/// The weight of a hard failure.
const FULL: u64 = 1000;

impl Sample {
    /// Neither failed nor slow.
    pub(super) const SUCCESS: Self = Self(0);

    /// `weight` in thousandths, 0 for a call that did not fail.
    pub(super) fn new(weight: u16, slow: bool) -> Self {
        Self(weight & !SLOW | if slow { SLOW } else { 0 })
    }

    fn sums(self) -> Sums {
        let weight = u64::from(self.0 & !SLOW);
        let (failed, slow) = (u64::from(weight > 0), u64::from(self.0 & SLOW != 0));
        let soft = failed & u64::from(weight < FULL);
        Sums { total: 1, failed, weight, soft, slow, slow_failed: failed & slow }
    }
}

/// Sums over a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sums {
    pub(super) total: u64,
    pub(super) failed: u64,
    /// In thousandths.
    pub(super) weight: u64,
    /// Failures of less than full weight.
    pub(super) soft: u64,
    pub(super) slow: u64,
    pub(super) slow_failed: u64,
}

impl Sums {
    pub(super) fn add(&mut self, other: Self) {
        self.total += other.total;
        self.failed += other.failed;
        self.weight += other.weight;
        self.soft += other.soft;
        self.slow += other.slow;
        self.slow_failed += other.slow_failed;
    }

    fn subtract(&mut self, other: Self) {
        self.total -= other.total;
        self.failed -= other.failed;
        self.weight -= other.weight;
        self.soft -= other.soft;
        self.slow -= other.slow;
        self.slow_failed -= other.slow_failed;
    }

    pub(super) fn record(&mut self, sample: Sample) {
        if sample == Sample::SUCCESS {
            self.total += 1;
            return;
        }
        self.add(sample.sums());
    }
}

/// A window with its sums.
#[derive(Debug)]
pub(super) enum Window {
    Count(CountWindow),
    Time(TimeWindow),
    SinceEntered(Sums),
}

impl Window {
    /// `now` is asked for only where the window depends on time.
    pub(super) fn record(&mut self, sample: Sample, now: impl FnOnce() -> u64) {
        match self {
            Self::Count(window) => window.record(sample),
            Self::Time(window) => window.record(sample, now()),
            Self::SinceEntered(sums) => sums.record(sample),
        }
    }

    /// Quick successes, in one step where that is possible; of the newest bucket.
    pub(super) fn record_successes(&mut self, count: u64) {
        match self {
            Self::Count(window) => (0..count).for_each(|_| window.record(Sample::SUCCESS)),
            Self::Time(window) => window.record_successes(count),
            Self::SinceEntered(sums) => sums.total += count,
        }
    }

    /// Forgets what is too old.
    pub(super) fn advance(&mut self, now: u64) {
        if let Self::Time(window) = self {
            window.advance(now);
        }
    }

    pub(super) fn sums(&self) -> &Sums {
        match self {
            Self::Count(window) => &window.sums,
            Self::Time(window) => &window.sums,
            Self::SinceEntered(sums) => sums,
        }
    }

    pub(super) fn clear(&mut self) {
        match self {
            Self::Count(window) => window.clear(),
            Self::Time(window) => window.clear(),
            Self::SinceEntered(sums) => *sums = Sums::default(),
        }
    }

    /// Whether one more success, quick as it was, takes the place of an older call: then nothing that a rule counts
    /// grows by it.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        match self {
            Self::Count(window) => window.samples.len() == window.size,
            Self::Time(_) | Self::SinceEntered(_) => false,
        }
    }

    /// Up to when what is recorded belongs to the same bucket, in nanoseconds.
    #[inline]
    pub(super) fn bucket_ends(&self) -> u64 {
        match self {
            Self::Time(window) => window.next_at,
            Self::Count(_) | Self::SinceEntered(_) => u64::MAX,
        }
    }

    /// Whether one more success, quick as it was, would leave everything as it is.
    pub(super) fn is_full_of_successes(&self) -> bool {
        match self {
            Self::Count(window) => {
                let Sums { total, failed, slow, .. } = window.sums;
                failed == 0 && slow == 0 && total == window.size as u64
            }
            Self::Time(_) | Self::SinceEntered(_) => false,
        }
    }
}

/// The last `size` outcomes.
#[derive(Debug)]
pub(super) struct CountWindow {
    size: usize,
    /// Grows to `size`, then is written round.
    samples: Vec<Sample>,
    next: usize,
    sums: Sums,
}

impl CountWindow {
    pub(super) fn new(size: usize) -> Self {
        Self { size, samples: Vec::with_capacity(size), next: 0, sums: Sums::default() }
    }

    fn record(&mut self, sample: Sample) {
        match self.samples.get_mut(self.next) {
            // one like it goes for it
            Some(oldest) if *oldest == sample => {}
            Some(oldest) => {
                self.sums.subtract(std::mem::replace(oldest, sample).sums());
                self.sums.record(sample);
            }
            None => {
                self.samples.push(sample);
                self.sums.record(sample);
            }
        }
        self.next += 1;
        if self.next == self.size {
            self.next = 0;
        }
    }

    fn clear(&mut self) {
        self.samples.clear();
        self.next = 0;
        self.sums = Sums::default();
    }
}

/// The outcomes of the last `buckets.len()` buckets; bucket `floor(t / width)`, times in nanoseconds.
#[derive(Debug)]
pub(super) struct TimeWindow {
    width: u64,
    buckets: Box<[Sums]>,
    /// The number of the newest bucket, counted from the beginning of time. It never goes back.
    newest: u64,
    /// Where it is, and when the next one begins: most calls then divide nothing.
    index: usize,
    next_at: u64,
    sums: Sums,
}

impl TimeWindow {
    pub(super) fn new(width: u64, buckets: usize) -> Self {
        let buckets = vec![Sums::default(); buckets.max(1)].into_boxed_slice();
        let width = width.max(1);
        Self { width, buckets, newest: 0, index: 0, next_at: width, sums: Sums::default() }
    }

    /// A clock that went back records into the newest bucket and forgets nothing.
    fn record(&mut self, sample: Sample, now: u64) {
        self.advance(now);
        if let Some(bucket) = self.buckets.get_mut(self.index) {
            bucket.record(sample);
            self.sums.record(sample);
        }
    }

    fn record_successes(&mut self, count: u64) {
        if let Some(bucket) = self.buckets.get_mut(self.index) {
            bucket.total += count;
            self.sums.total += count;
        }
    }

    /// Costs one step a bucket that fell out, at most one a bucket there is: a year idle costs no more.
    fn advance(&mut self, now: u64) {
        if now >= self.next_at {
            self.advance_to(now / self.width);
        }
    }

    fn advance_to(&mut self, number: u64) {
        let passed = number.saturating_sub(self.newest);
        if passed == 0 {
            return;
        }
        if passed >= self.buckets.len() as u64 {
            self.clear();
        } else {
            for number in self.newest + 1..=number {
                let index = self.index_of(number);
                if let Some(bucket) = self.buckets.get_mut(index) {
                    self.sums.subtract(std::mem::take(bucket));
                }
            }
        }
        self.newest = number;
        self.index = self.index_of(number);
        self.next_at = number.saturating_add(1).saturating_mul(self.width);
    }

    fn index_of(&self, number: u64) -> usize {
        (number % self.buckets.len() as u64) as usize
    }

    fn clear(&mut self) {
        self.buckets.fill(Sums::default());
        self.sums = Sums::default();
    }
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use super::*;

    const OK: Sample = Sample(0);

    fn fail() -> Sample {
        Sample::new(1000, false)
    }

    #[test]
    fn the_last_n_calls_decide_however_many_there_were() {
        // P1: a "sliding" window that only counted up
        let mut window = CountWindow::new(100);
        (0..100_000).for_each(|_| window.record(OK));
        (0..50).for_each(|_| window.record(fail()));
        assert_eq!((window.sums.total, window.sums.failed), (100, 50));
    }

    #[test]
    fn slow_failures_leave_the_sums_with_their_sample() {
        // C32: a counter that was not reset on eviction grew, or went negative
        let mut window = CountWindow::new(2);
        (0..100).for_each(|_| window.record(Sample::new(1000, true)));
        (0..2).for_each(|_| window.record(OK));
        assert_eq!(window.sums, Sums { total: 2, ..Sums::default() });
    }

    #[test]
    fn a_million_calls_take_no_more_memory_than_one() {
        // P2: memory without bound, and a scan of it under the lock at each call
        let mut count = CountWindow::new(100);
        let mut time = TimeWindow::new(1000, 10);
        for call in 0..1_000_000 {
            count.record(fail());
            time.record(fail(), call / 1000);
        }
        assert_eq!((count.samples.capacity(), time.buckets.len()), (100, 10));
        assert_eq!((count.sums.total, time.sums.total), (100, 1_000_000));
    }

    #[test]
    fn sums_equal_a_recount_after_any_schedule() {
        // C32
        let mut random = fastrand::Rng::with_seed(1);
        let (mut count, mut time) = (CountWindow::new(17), TimeWindow::new(1000, 7));
        let mut now = 0;
        for _ in 0..20_000 {
            now += random.u64(0..300) * random.u64(0..4) * random.u64(0..4);
            let sample = Sample::new([0, 0, 1000, 600, 1][random.usize(0..5)], random.bool());
            count.record(sample);
            time.record(sample, now.saturating_sub(random.u64(0..3_000)));
            let mut recount = Sums::default();
            count.samples.iter().for_each(|sample| recount.record(*sample));
            assert_eq!(count.sums, recount);
            let mut recount = Sums::default();
            time.buckets.iter().for_each(|bucket| recount.add(*bucket));
            assert_eq!(time.sums, recount);
        }
        assert!(time.sums.soft > 0 && time.sums.slow_failed > 0);
    }

    #[test]
    fn a_window_of_one_works_in_both_kinds() {
        // C33
        let mut count = CountWindow::new(1);
        count.record(fail());
        count.record(OK);
        assert_eq!((count.sums.total, count.sums.failed), (1, 0));
        let mut time = TimeWindow::new(1000, 1);
        time.record(fail(), 999);
        time.record(OK, 1000);
        assert_eq!((time.sums.total, time.sums.failed), (1, 0));
    }

    #[test]
    fn a_clock_that_goes_back_forgets_nothing() {
        // C34: each read evicted a bucket
        let mut window = TimeWindow::new(1000, 10);
        (0..10).for_each(|second| window.record(fail(), second * 1000));
        (0..10).for_each(|_| window.advance(0));
        window.record(fail(), 0);
        window.advance(9000);
        assert_eq!(window.sums.total, 11);
    }

    #[test]
    fn an_idle_gap_of_any_length_empties_it_at_once() {
        let mut window = TimeWindow::new(1, 10);
        window.record(fail(), 0);
        window.advance(u64::MAX);
        assert_eq!(window.sums, Sums::default());
        window.record(OK, u64::MAX);
        assert_eq!(window.sums.total, 1);
    }

    #[test]
    fn only_a_count_window_full_of_quick_successes_is_clean() {
        let mut window = Window::Count(CountWindow::new(2));
        window.record(OK, || 0);
        assert!(!window.is_full_of_successes());
        window.record(OK, || 0);
        assert!(window.is_full_of_successes());
        window.record(Sample::new(0, true), || 0);
        assert!(!window.is_full_of_successes());
        assert!(!Window::SinceEntered(Sums::default()).is_full_of_successes());
    }
}
