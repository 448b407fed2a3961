//! How long to wait before the next attempt.
//!
//! A [`Backoff`] gives, for each further attempt, a range, and draws a wait from it evenly. The cap is applied before the
//! jitter and the floor is part of the range, so that clients that failed together stay spread everywhere, also at the cap.
//!
//! ```
//! use std::time::Duration;
//! use failsoft_core::backoff::{Backoff, Jitter, Rng};
//!
//! let backoff = Backoff::exponential(Duration::from_millis(250)).factor(3.0).max(Duration::from_secs(5));
//! assert_eq!(backoff.nominal(2), Duration::from_millis(750));
//!
//! let mut last = Duration::ZERO;
//! let rng = Rng::seeded(7);
//! for attempt in 1..=20 {
//!     last = backoff.delay(attempt, last, &rng);
//!     assert!(last <= Duration::from_secs(5));
//! }
//! ```

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::ConfigError;

const INITIAL: Duration = Duration::from_secs(1);
const MAX: Duration = Duration::from_secs(60);
const FLOOR: Duration = Duration::from_millis(100);

/// A rule for waits: a shape over the attempt number, a cap, a floor and jitter.
///
/// The default is 1 s, doubled each time, to 60 s, with full jitter, never below 0.1 s. Every shape starts with full jitter;
/// the [cap](Self::max) and the [floor](Self::min) have defaults that follow the shape's first delay.
///
/// The setters take anything; [`check`](Self::check) says what cannot work. Without it a senseless setting gives senseless
/// waits, but never a panic, never more than the cap, and always in constant time.
#[derive(Clone)]
pub struct Backoff {
    shape: Shape,
    factor: Option<f64>,
    max: Option<Duration>,
    min: Option<Duration>,
    jitter: Option<Jitter>,
}

#[derive(Clone)]
enum Shape {
    Exponential { initial: Duration },
    Fixed { delay: Duration },
    Linear { initial: Duration, step: Duration },
    Decorrelated { base: Duration },
    Custom(Arc<dyn Fn(u32) -> Duration + Send + Sync>),
}

/// How a wait is spread around what its [`Backoff`] says. The spread never goes above the cap or below the floor: it is cut
/// there *before* the draw, so that no wait is piled up on either.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Jitter {
    /// None: clients that failed together come back together. For tests, and for a single client.
    None,
    /// Anything from the floor to the delay (AWS's "full jitter"); the default.
    Full,
    /// From half the delay to the delay.
    Equal,
    /// The delay, more or less by this share of it: `0.25` is ±25 %. From 0 to 1.
    Proportional(f64),
    /// The delay, more or less by this time.
    Spread(Duration),
}

impl Backoff {
    /// `initial`, then multiplied by the [factor](Self::factor) (2 unless set) with each attempt.
    #[must_use]
    pub const fn exponential(initial: Duration) -> Self {
        Self::of(Shape::Exponential { initial })
    }

    /// The same delay before each attempt.
    #[must_use]
    pub const fn fixed(delay: Duration) -> Self {
        Self::of(Shape::Fixed { delay })
    }

    /// `initial`, then `step` more with each attempt.
    #[must_use]
    pub const fn linear(initial: Duration, step: Duration) -> Self {
        Self::of(Shape::Linear { initial, step })
    }

    /// Anything from `base` to three times the previous wait (AWS's "decorrelated jitter"). This is jitter in itself and
    /// takes no other.
    #[must_use]
    pub const fn decorrelated(base: Duration) -> Self {
        Self::of(Shape::Decorrelated { base })
    }

    /// Whatever `delay` says for the attempt (1 before the first further one), then capped and jittered like the others.
    #[must_use]
    pub fn custom(delay: impl Fn(u32) -> Duration + Send + Sync + 'static) -> Self {
        Self::of(Shape::Custom(Arc::new(delay)))
    }

    /// Whether it holds a closure of the user's.
    #[doc(hidden)]
    #[must_use]
    pub const fn is_custom(&self) -> bool {
        matches!(self.shape, Shape::Custom(_))
    }

    const fn of(shape: Shape) -> Self {
        Self { shape, factor: None, max: None, min: None, jitter: None }
    }

    /// The growth of an exponential delay: at least 1, default 2.
    #[must_use]
    pub const fn factor(mut self, factor: f64) -> Self {
        self.factor = Some(factor);
        self
    }

    /// The cap, which no wait exceeds. Default 60 s, or the shape's first delay where that is longer.
    #[must_use]
    pub const fn max(mut self, max: Duration) -> Self {
        self.max = Some(max);
        self
    }

    /// The floor, below which no wait goes. Default 0.1 s, or a tenth of the shape's first delay where that is shorter.
    #[must_use]
    pub const fn min(mut self, min: Duration) -> Self {
        self.min = Some(min);
        self
    }

    /// How waits are spread. Default [`Jitter::Full`].
    #[must_use]
    pub const fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = Some(jitter);
        self
    }

    /// Whether these settings can work.
    ///
    /// # Errors
    ///
    /// Names the first of these that is wrong: `factor` is a finite number from 1 on, and only an exponential back-off has
    /// one; a proportional `jitter` is a number from 0 to 1, and a decorrelated back-off has none to set; `min` is at most
    /// `max`.
    pub fn check(&self) -> Result<(), ConfigError> {
        const NAME: &str = "Backoff";
        if let Some(factor) = self.factor {
            if !(factor.is_finite() && factor >= 1.0) {
                return Err(ConfigError::new(NAME, "factor", factor, "a finite number from 1 on"));
            }
            if !matches!(self.shape, Shape::Exponential { .. }) {
                return Err(ConfigError::new(
                    NAME,
                    "factor",
                    factor,
                    "none: only an exponential back-off grows by one",
                ));
            }
        }
        match self.jitter {
            Some(Jitter::Proportional(share)) if !(0.0..=1.0).contains(&share) => {
                return Err(ConfigError::new(NAME, "jitter", share, "a share from 0 to 1"));
            }
            Some(jitter) if matches!(self.shape, Shape::Decorrelated { .. }) => {
                let jitter = format_args!("{jitter:?}");
                return Err(ConfigError::new(
                    NAME,
                    "jitter",
                    jitter,
                    "none: a decorrelated back-off is jitter already",
                ));
            }
            _ => {}
        }
        if self.floor() > self.cap() {
            let (min, max) = (self.floor(), self.cap());
            return Err(ConfigError::new(
                NAME,
                "min",
                format_args!("{min:?}"),
                format_args!("at most max, {max:?}"),
            ));
        }
        Ok(())
    }

    /// The delay before jitter: what the shape says for this attempt (1 before the first further one), capped and not below
    /// the floor. For a decorrelated back-off the longest wait it can have reached by then.
    #[must_use]
    pub fn nominal(&self, attempt: u32) -> Duration {
        self.bound(self.shape_at(attempt))
    }

    /// The shortest and the longest wait that can be drawn for this attempt (1 before the first further one), after a
    /// `previous` wait (zero before the first), which only a decorrelated back-off looks at.
    #[must_use]
    pub fn range(&self, attempt: u32, previous: Duration) -> (Duration, Duration) {
        let jitter = self.jitter.unwrap_or(Jitter::Full);
        let (low, high) = if let Shape::Decorrelated { base } = self.shape {
            (base, previous.max(base).saturating_mul(3))
        } else {
            let delay = self.nominal(attempt);
            match jitter {
                Jitter::None => (delay, delay),
                Jitter::Full => (Duration::ZERO, delay),
                Jitter::Equal => (delay / 2, delay),
                Jitter::Proportional(share) => (scale(delay, 1.0 - share), scale(delay, 1.0 + share)),
                Jitter::Spread(by) => (delay.saturating_sub(by), delay.saturating_add(by)),
            }
        };
        let (low, high) = (self.bound(low), self.bound(high));
        (low.min(high), high)
    }

    /// The wait before this attempt (1 before the first further one): an even draw from its [range](Self::range).
    #[must_use]
    pub fn delay(&self, attempt: u32, previous: Duration, rng: &Rng) -> Duration {
        self.delay_at(attempt, previous, rng.unit())
    }

    /// Like [`delay`](Self::delay), with the place in the range given: from 0, the shortest, to 1, the longest wait.
    #[must_use]
    pub fn delay_at(&self, attempt: u32, previous: Duration, place: f64) -> Duration {
        let (low, high) = self.range(attempt, previous);
        low.saturating_add(scale(high - low, place.clamp(0.0, 1.0))).min(high)
    }

    fn shape_at(&self, attempt: u32) -> Duration {
        let before = attempt.saturating_sub(1);
        match &self.shape {
            Shape::Exponential { initial } => grown(*initial, self.factor.unwrap_or(2.0), before),
            Shape::Fixed { delay } => *delay,
            Shape::Linear { initial, step } => initial.saturating_add(step.saturating_mul(before)),
            Shape::Decorrelated { base } => grown(*base, 3.0, attempt.max(1)),
            Shape::Custom(delay) => delay(attempt.max(1)),
        }
    }

    fn bound(&self, delay: Duration) -> Duration {
        delay.max(self.floor()).min(self.cap())
    }

    fn cap(&self) -> Duration {
        self.max.unwrap_or_else(|| MAX.max(self.first().unwrap_or(MAX)))
    }

    fn floor(&self) -> Duration {
        self.min.unwrap_or_else(|| FLOOR.min(self.first().map_or(FLOOR, |first| first / 10)).min(self.cap()))
    }

    /// The first delay, where it is known without asking a function of the user's.
    const fn first(&self) -> Option<Duration> {
        match self.shape {
            Shape::Exponential { initial: first }
            | Shape::Fixed { delay: first }
            | Shape::Linear { initial: first, .. }
            | Shape::Decorrelated { base: first } => Some(first),
            Shape::Custom(_) => None,
        }
    }
}

/// `initial` times `factor` to the power `times`, in constant time however large that is.
fn grown(initial: Duration, factor: f64, times: u32) -> Duration {
    if initial.is_zero() { initial } else { scale(initial, factor.powf(f64::from(times))) }
}

/// Saturating; a factor that is not a number, or negative, gives zero.
fn scale(delay: Duration, factor: f64) -> Duration {
    let seconds = delay.as_secs_f64() * factor;
    if seconds.is_nan() || seconds <= 0.0 {
        return Duration::ZERO;
    }
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

impl Default for Backoff {
    fn default() -> Self {
        Self::exponential(INITIAL)
    }
}

impl fmt::Debug for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Backoff");
        match &self.shape {
            Shape::Exponential { initial } => {
                out.field("exponential", initial).field("factor", &self.factor.unwrap_or(2.0))
            }
            Shape::Fixed { delay } => out.field("fixed", delay),
            Shape::Linear { initial, step } => out.field("linear", initial).field("step", step),
            Shape::Decorrelated { base } => out.field("decorrelated", base),
            Shape::Custom(_) => out.field("custom", &"fn"),
        };
        out.field("max", &self.cap()).field("min", &self.floor());
        out.field("jitter", &self.jitter.unwrap_or(Jitter::Full)).finish()
    }
}

/// Random numbers for jitter: fast, lock-free, shared by reference, and repeatable from a seed. Not for secrets.
///
/// A clone goes on with the same numbers as its original would have.
#[derive(Debug)]
pub struct Rng {
    // SplitMix64: one add per draw, so threads that share it never wait and never draw the same number.
    state: AtomicU64,
}

impl Rng {
    /// Seeded by chance.
    #[must_use]
    pub fn new() -> Self {
        Self::seeded(fastrand::u64(..))
    }

    /// The same seed gives the same numbers.
    #[must_use]
    pub const fn seeded(seed: u64) -> Self {
        Self { state: AtomicU64::new(seed) }
    }

    /// Anything from 0 to below 1, evenly.
    #[must_use]
    pub fn unit(&self) -> f64 {
        const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut bits = self.state.fetch_add(GAMMA, Ordering::Relaxed).wrapping_add(GAMMA);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        // The 53 bits that a double holds.
        (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

impl Default for Rng {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for Rng {
    fn clone(&self) -> Self {
        Self::seeded(self.state.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests;
