//! [`Usage`]: tokens in disjoint buckets, where missing is not zero.
//!
//! ```
//! use failsoft_core::Usage;
//!
//! let mut attempt = Usage { input: Some(12), ..Usage::default() };
//! attempt.set(&Usage { output: Some(3), ..Usage::default() }); // within an attempt the last value wins
//! let mut call = Usage::default();
//! call += attempt; // attempts add up
//! call += attempt;
//! assert_eq!(call.input, Some(24));
//! assert_eq!(call.cache_read, None);
//! assert_eq!(call.total(), 30);
//! ```

use std::ops::AddAssign;

/// Tokens of one attempt or of a whole call, in buckets that do not overlap.
///
/// Providers count in different ways (some include cached tokens in the input, some do not): whoever reads a
/// provider's answer brings its numbers into these buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Usage {
    /// Prompt tokens that were neither read from nor written to a cache.
    pub input: Option<u64>,
    /// Prompt tokens read from a cache.
    pub cache_read: Option<u64>,
    /// Prompt tokens written to a cache.
    pub cache_write: Option<u64>,
    /// Generated tokens that the caller can see.
    pub output: Option<u64>,
    /// Generated tokens that were spent on reasoning.
    pub reasoning: Option<u64>,
}

impl Usage {
    /// Overwrites each bucket that `later` knows: within an attempt the last value wins.
    pub const fn set(&mut self, later: &Self) {
        const fn last(mine: &mut Option<u64>, later: Option<u64>) {
            if later.is_some() {
                *mine = later;
            }
        }
        last(&mut self.input, later.input);
        last(&mut self.cache_read, later.cache_read);
        last(&mut self.cache_write, later.cache_write);
        last(&mut self.output, later.output);
        last(&mut self.reasoning, later.reasoning);
    }

    /// All tokens of the prompt; missing buckets count as zero.
    #[must_use]
    pub fn total_input(&self) -> u64 {
        sum([self.input, self.cache_read, self.cache_write])
    }

    /// All generated tokens; missing buckets count as zero.
    #[must_use]
    pub fn total_output(&self) -> u64 {
        sum([self.output, self.reasoning])
    }

    /// All tokens; missing buckets count as zero.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total_input().saturating_add(self.total_output())
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }
}

fn sum<const N: usize>(buckets: [Option<u64>; N]) -> u64 {
    buckets.into_iter().flatten().fold(0, u64::saturating_add)
}

impl AddAssign for Usage {
    /// Adds bucket by bucket, saturating; a bucket is missing only when it is missing on both sides.
    fn add_assign(&mut self, other: Self) {
        fn add(mine: &mut Option<u64>, other: Option<u64>) {
            if let Some(other) = other {
                *mine = Some(mine.unwrap_or(0).saturating_add(other));
            }
        }
        add(&mut self.input, other.input);
        add(&mut self.cache_read, other.cache_read);
        add(&mut self.cache_write, other.cache_write);
        add(&mut self.output, other.output);
        add(&mut self.reasoning, other.reasoning);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cumulative_counts_of_a_stream_are_overwritten_not_added() {
        // V-H1: message_start said 1, message_delta says 15: the answer is 15.
        let mut usage = Usage { output: Some(1), input: Some(9), ..Usage::default() };
        usage.set(&Usage { output: Some(15), ..Usage::default() });
        assert_eq!((usage.input, usage.output), (Some(9), Some(15)));
    }

    #[test]
    fn an_explicit_zero_is_not_missing() {
        let mut usage = Usage { input: Some(5), ..Usage::default() };
        usage.set(&Usage { input: Some(0), ..Usage::default() });
        assert_eq!(usage.input, Some(0));
        assert!(!usage.is_unknown());
    }

    #[test]
    fn sums_saturate() {
        let mut usage = Usage { input: Some(u64::MAX), ..Usage::default() };
        usage += Usage { input: Some(1), output: Some(1), ..Usage::default() };
        assert_eq!((usage.input, usage.total()), (Some(u64::MAX), u64::MAX));
    }
}
