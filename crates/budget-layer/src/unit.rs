//! [`Unit`] and [`Price`]: what a budget counts.
//!
//! ```
//! use budget_layer::Price;
//! use failsoft_core::Usage;
//!
//! // 3 $ and 15 $ for a million tokens, in millionths of a dollar; what is read from a cache costs a tenth.
//! let price = Price::new(3_000_000, 15_000_000).cache_read(300_000);
//! let usage = Usage { input: Some(1_000), cache_read: Some(10_000), output: Some(200), ..Usage::default() };
//! assert_eq!(price.of(&usage), 3_000 + 3_000 + 3_000);
//! ```

use std::fmt;

use failsoft_core::Usage;

use crate::Estimate;

/// What a budget counts. All are whole numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Unit {
    /// Tokens, of input and output together.
    #[default]
    Tokens,
    /// Money, in millionths of whatever the prices are in.
    Money,
    /// Calls; each further attempt that a retry, a hedge or a fallback further in makes counts as one more.
    Calls,
    /// The time that calls take, from their beginning to the end of their bodies, in milliseconds.
    Time,
    /// Calls at the same time: nothing is spent.
    Concurrent,
}

impl Unit {
    /// A short stable name, for labels and messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::Money => "micro-units of money",
            Self::Calls => "calls",
            Self::Time => "milliseconds",
            Self::Concurrent => "calls at once",
        }
    }
}

impl Unit {
    /// Whether each further attempt of a call counts as much again.
    pub(crate) const fn adds_up(self) -> bool {
        matches!(self, Self::Tokens | Self::Money | Self::Calls)
    }

    /// Whether what a call counts for follows from its tokens.
    pub(crate) const fn is_plain(self) -> bool {
        matches!(self, Self::Tokens | Self::Calls | Self::Concurrent)
    }

    /// What one attempt of so many tokens reserves, where that [follows](Self::is_plain) from them.
    #[inline]
    pub(crate) const fn plainly(self, tokens: u64) -> u64 {
        if matches!(self, Self::Tokens) { tokens } else { 1 }
    }

    /// What a call of one attempt counts for that used so many tokens.
    #[inline]
    pub(crate) const fn plainly_used(self, tokens: u64) -> u64 {
        match self {
            Self::Tokens => tokens,
            Self::Calls => 1,
            _ => 0,
        }
    }

    /// What a budget is called that is given no name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::Money => "money",
            Self::Calls => "calls",
            Self::Time => "time",
            Self::Concurrent => "concurrent",
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What tokens cost: millionths of a unit of money for a million tokens, which is the number of whole units that price lists
/// give, times a million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    input: u64,
    cache_read: u64,
    cache_write: u64,
    output: u64,
    reasoning: u64,
}

impl Price {
    /// The price of input and of output. Tokens read from and written to a cache cost what input costs, and reasoning what output
    /// costs, until they are told apart: what has no price is never free.
    #[must_use]
    pub const fn new(input: u64, output: u64) -> Self {
        Self { input, cache_read: input, cache_write: input, output, reasoning: output }
    }

    /// The price of input that is read from a cache.
    #[must_use]
    pub const fn cache_read(mut self, price: u64) -> Self {
        self.cache_read = price;
        self
    }

    /// The price of input that is written to a cache.
    #[must_use]
    pub const fn cache_write(mut self, price: u64) -> Self {
        self.cache_write = price;
        self
    }

    /// The price of output that is spent on reasoning.
    #[must_use]
    pub const fn reasoning(mut self, price: u64) -> Self {
        self.reasoning = price;
        self
    }

    /// What was used costs so many millionths, rounded up. What is unknown counts as nothing.
    #[must_use]
    pub fn of(&self, usage: &Usage) -> u64 {
        self.sum([
            (usage.input, self.input),
            (usage.cache_read, self.cache_read),
            (usage.cache_write, self.cache_write),
            (usage.output, self.output),
            (usage.reasoning, self.reasoning),
        ])
    }

    /// The most that what is estimated may cost: nobody knows yet what a cache will serve or take, and where the parts are not
    /// known apart, what is output.
    pub(crate) fn of_estimate(&self, estimate: &Estimate) -> u64 {
        let input = self.input.max(self.cache_read).max(self.cache_write);
        let output = self.output.max(self.reasoning);
        match estimate.split() {
            Some((prompt, answer)) => self.sum([(Some(prompt), input), (Some(answer), output)]),
            None => self.sum([(Some(estimate.total()), input.max(output))]),
        }
    }

    fn sum<const N: usize>(&self, parts: [(Option<u64>, u64); N]) -> u64 {
        let sum = parts.into_iter().fold(0_u128, |sum, (tokens, price)| {
            sum.saturating_add(u128::from(tokens.unwrap_or(0)) * u128::from(price))
        });
        u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use super::*;

    // G95
    #[test]
    fn tokens_of_a_cache_without_a_price_cost_what_input_costs() {
        let price = Price::new(2_000_000, 8_000_000);
        let cached = Usage { cache_read: Some(10), cache_write: Some(10), ..Usage::default() };
        assert_eq!(price.of(&cached), 40);
        let reasoning = Usage { reasoning: Some(10), ..Usage::default() };
        assert_eq!(price.of(&reasoning), 80);
    }

    // G94: what was read from a cache is a bucket of its own, billed once and at its own price.
    #[test]
    fn each_bucket_is_billed_once() {
        let price = Price::new(1_000_000, 0).cache_read(100_000);
        let usage =
            Usage { input: Some(1_270_492 - 1_202_176), cache_read: Some(1_202_176), ..Usage::default() };
        assert_eq!(price.of(&usage), 68_316 + 120_218);
    }

    #[test]
    fn an_estimate_is_priced_at_the_most_and_the_largest_numbers_saturate() {
        let price = Price::new(1_000_000, 5_000_000).cache_write(1_250_000);
        assert_eq!(price.of_estimate(&Estimate::parts(100, 10)), 125 + 50);
        assert_eq!(price.of_estimate(&Estimate::whole(100)), 500);
        let most = Price::new(u64::MAX, u64::MAX);
        let usage = Usage { input: Some(u64::MAX), output: Some(u64::MAX), ..Usage::default() };
        assert_eq!(most.of(&usage), u64::MAX);
        assert_eq!(Price::new(1, 1).of(&Usage { input: Some(1), ..Usage::default() }), 1, "rounded up");
    }
}
