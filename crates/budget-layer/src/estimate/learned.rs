//! [`Learned`]: how long answers were, for the estimate of those that nothing limits.
//!
//! A model that answers in 200 tokens on average needs no reservation of a thousand. By default
//! [`FromRequest`](crate::FromRequest) learns it by the model; an estimator of your own can by whatever it likes:
//!
//! ```
//! use budget_layer::{Estimate, Estimator, Learned};
//!
//! /// Agents write plans of one length and summaries of another.
//! #[derive(Clone)]
//! struct ByKind(Learned);
//!
//! impl Estimator<http::Request<String>> for ByKind {
//!     fn estimate(&self, request: &http::Request<String>) -> Estimate {
//!         let average = self.0.of(request.uri().path());
//!         let output = average.expected().unwrap_or(2_000);
//!         Estimate::parts(request.body().len() as u64 / 4, output).learning(average)
//!     }
//! }
//!
//! let learned = Learned::new();
//! let layer = budget_layer::BudgetLayer::builder().estimator(ByKind(learned.clone())).build()?;
//! // The layer teaches it; so can you, with what you know from elsewhere.
//! for tokens in [90, 110, 100, 95, 105, 100, 90, 110] {
//!     learned.of("/summary").learn(tokens);
//! }
//! let expected = learned.of("/summary").expected().unwrap();
//! assert!((110..200).contains(&expected), "{expected}");
//! # let _ = layer;
//! # Ok::<(), failsoft_core::ConfigError>(())
//! ```

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use failsoft_core::{Evict, KeyMap};

/// More models than anybody calls through one layer; a caller who makes names up only makes others be learnt again.
const MAX_KEYS: usize = 1_000;

/// A longer name is no model's.
const MAX_NAME: usize = 256;

/// After so many answers an average is relied on: what the mean forgets in one go is an eighth.
const ENOUGH: u64 = 8;

/// No answer counts for more tokens: far above what any model writes, and the figures still fit.
const MAX_ANSWER: u64 = (1 << 27) - 1;

/// [Averages](Average) by their keys, such as models: at most 1 000, of which the least recently used goes for a new one. Clones are
/// the same averages.
#[derive(Clone)]
pub struct Learned(Arc<KeyMap<Arc<str>, State>>);

impl Learned {
    /// Nothing is known yet.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(KeyMap::refusing(MAX_KEYS)))
    }

    /// The average of a key. One whose name is longer than 256 bytes is not kept.
    #[must_use]
    pub fn of(&self, key: &str) -> Average {
        let kept = || {
            let found = self.0.get(key);
            found.or_else(|| self.0.get_or_insert_with(key.into(), State::default).ok())
        };
        let state = if key.len() <= MAX_NAME { kept() } else { None };
        Average { state: state.unwrap_or_default(), most: MAX_ANSWER, least: 0 }
    }

    /// How many keys are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Default for Learned {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Learned {
    /// Without the keys, which callers make up.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Learned").field("keys", &self.len()).finish_non_exhaustive()
    }
}

/// How long answers are: a mean that forgets, and the mean deviation from it. Clones are the same average.
///
/// The rule is that of TCP's retransmission timeout (Jacobson and Karels 1988, RFC 6298), which asks the same: below what will nearly
/// all of them stay? Each answer moves the mean by an eighth of its distance, and the deviation by a quarter; what is
/// [expected](Self::expected) is the mean and four deviations. Of answers whose lengths are alike, or spread exponentially, at least 19 of 20
/// stay below that. In integers, in one word, without a lock.
#[derive(Clone)]
pub struct Average {
    state: Arc<State>,
    most: u64,
    /// It expects no less.
    least: u64,
}

impl Average {
    /// What nearly all answers stay below, in tokens. `None` before 8 answers were learnt.
    #[must_use]
    pub fn expected(&self) -> Option<u64> {
        let expected = Lengths::unpack(self.state.0.load(Ordering::Relaxed)).expected();
        expected.map(|expected| expected.max(self.least))
    }

    /// Learns of a complete answer.
    pub fn learn(&self, tokens: u64) {
        let tokens = tokens.min(self.most);
        let next = |packed| Some(Lengths::unpack(packed).and(tokens).pack());
        // Another thread may be faster, and then it is tried again: the closure always has an answer.
        let _ = self.state.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    /// Counts no answer for more than so many tokens: what a peer claims must not be remembered for long.
    #[must_use]
    pub fn up_to(self, most: u64) -> Self {
        Self { most: most.min(MAX_ANSWER), ..self }
    }

    /// Expects no less than so many tokens.
    #[cfg_attr(not(feature = "http"), allow(dead_code))]
    pub(crate) const fn at_least(mut self, least: u64) -> Self {
        self.least = least;
        self
    }

    /// The same bounds as those of another.
    pub(crate) const fn within_those_of(mut self, other: &Self) -> Self {
        (self.most, self.least) = (other.most, other.least);
        self
    }
}

/// They are equal when they are the same.
impl PartialEq for Average {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }
}

impl Eq for Average {}

impl fmt::Debug for Average {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Average").field("expected", &self.expected()).finish_non_exhaustive()
    }
}

/// [`Lengths`], packed.
#[derive(Default)]
struct State(AtomicU64);

impl Evict for State {
    fn may_go(&self) -> bool {
        true
    }
}

/// What is known of lengths. Pure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lengths {
    /// How many were learnt, up to [`ENOUGH`].
    answers: u64,
    /// The mean, eight times.
    mean8: u64,
    /// The mean deviation, four times.
    deviation4: u64,
}

const BITS: u32 = 30;
const MASK: u64 = (1 << BITS) - 1;

impl Lengths {
    const fn pack(self) -> u64 {
        self.answers << (2 * BITS) | self.mean8 << BITS | self.deviation4
    }

    const fn unpack(packed: u64) -> Self {
        Self { answers: packed >> (2 * BITS), mean8: packed >> BITS & MASK, deviation4: packed & MASK }
    }

    fn and(self, tokens: u64) -> Self {
        let Self { answers, mean8, deviation4 } = self;
        if answers == 0 {
            return Self { answers: 1, mean8: 8 * tokens, deviation4: 2 * tokens };
        }
        let mean = mean8 / 8;
        Self {
            answers: (answers + 1).min(ENOUGH),
            mean8: (mean8 + tokens).saturating_sub(mean),
            deviation4: deviation4 - deviation4 / 4 + tokens.abs_diff(mean),
        }
    }

    fn expected(self) -> Option<u64> {
        (self.answers >= ENOUGH).then(|| self.mean8.div_ceil(8) + self.deviation4)
    }
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use super::*;

    fn learn(lengths: impl IntoIterator<Item = u64>) -> Average {
        let average = Learned::new().of("model");
        lengths.into_iter().for_each(|tokens| average.learn(tokens));
        average
    }

    /// Numbers from 0 to 1 that look random, always the same.
    fn draws() -> impl Iterator<Item = f64> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        std::iter::from_fn(move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            #[allow(clippy::cast_precision_loss, reason = "a test")]
            Some((state >> 11) as f64 / (1_u64 << 53) as f64)
        })
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a test")]
    fn tokens(length: f64) -> u64 {
        length as u64
    }

    #[test]
    fn at_least_19_of_20_answers_stay_below_what_is_expected_and_it_is_not_far_above_them() {
        let length = |kind, draw: f64| match kind {
            "alike" => 300.0,
            "even" => 100.0 + 400.0 * draw,
            "exponential" => -300.0 * (1.0 - draw).ln(),
            _ => [50.0, 550.0][usize::from(draw < 0.5)],
        };
        for kind in ["alike", "even", "exponential", "two kinds"] {
            let (average, mut below, mut sum) = (learn([300; 8]), 0, 0);
            for draw in draws().take(10_000) {
                let (expected, tokens) = (average.expected().unwrap(), tokens(length(kind, draw)));
                below += u64::from(tokens <= expected);
                sum += expected;
                average.learn(tokens);
            }
            assert!(below >= 9_500, "{kind}: {below}");
            // All have a mean of 300.
            assert!((300..5 * 300).contains(&(sum / 10_000)), "{kind}: {}", sum / 10_000);
        }
    }

    #[test]
    fn nothing_is_expected_before_there_were_enough_answers() {
        assert_eq!(learn([100; 7]).expected(), None);
        assert!(learn([100; 8]).expected().is_some_and(|expected| (100..300).contains(&expected)));
        assert_eq!(learn([100; 100]).expected(), Some(100 + 3));
        assert_eq!(learn([0; 8]).expected(), Some(0));
    }

    #[test]
    fn what_changes_is_learnt_and_what_a_peer_claims_is_soon_forgotten() {
        let average = learn([100; 50]);
        (0..40).for_each(|_| average.learn(1_000));
        assert!(average.expected().is_some_and(|expected| (1_000..1_100).contains(&expected)));
        let average = learn([100; 50]).up_to(8_192);
        average.learn(u64::MAX);
        (0..40).for_each(|_| average.learn(100));
        assert!(average.expected().is_some_and(|expected| expected < 200), "{average:?}");
    }

    #[test]
    fn figures_fit_whatever_is_claimed() {
        for lengths in
            [[u64::MAX; 20], [0; 20], std::array::from_fn(|at| if at % 2 == 0 { u64::MAX } else { 0 })]
        {
            let mut slow = Lengths::default();
            for tokens in lengths {
                slow = slow.and(tokens.min(MAX_ANSWER));
                assert_eq!(Lengths::unpack(slow.pack()), slow);
            }
            assert_eq!(learn(lengths).expected(), slow.expected());
        }
    }

    #[test]
    fn keys_are_bounded_and_one_that_is_far_too_long_is_not_kept() {
        let learned = Learned::new();
        for key in 0..2 * MAX_KEYS {
            learned.of(&key.to_string()).learn(1);
        }
        assert_eq!(learned.len(), MAX_KEYS);
        let long = "x".repeat(MAX_NAME + 1);
        (0..8).for_each(|_| learned.of(&long).learn(1));
        assert_eq!((learned.of(&long).expected(), learned.len()), (None, MAX_KEYS));
    }
}
