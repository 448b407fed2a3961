//! [`PriceTable`]: what tokens cost, by model, from a file of yours in the shape of the widely used JSON price map
//! (LiteLLM's `model_prices_and_context_window.json`).
//!
//! ```
//! use failsoft_core::Usage;
//! use llm_layer::price::{Price, PriceTable, UnknownModel};
//!
//! let file = r#"{
//!     "gpt-4o": {"input_cost_per_token": 2.5e-06, "output_cost_per_token": 1e-05, "cache_read_input_token_cost": 1.25e-06},
//!     "gemini/gemini-1.5-pro": {"input_cost_per_token": 1.25e-06, "output_cost_per_token": 5e-06,
//!         "input_cost_per_token_above_128k_tokens": 2.5e-06, "output_cost_per_token_above_128k_tokens": 1e-05}
//! }"#;
//! // What a model costs that is not in it: nobody may call it, or a price for all of those, or tokens alone.
//! let table = PriceTable::from_json(file)?.unknown(UnknownModel::Default(Price::per_million(10_000_000, 30_000_000)));
//!
//! let usage = Usage { input: Some(1_000), cache_read: Some(4_000), output: Some(100), ..Usage::default() };
//! // 1 000 × 2.5 + 4 000 × 1.25 + 100 × 10 millionths of a dollar
//! assert_eq!(table.cost("gpt-4o-2024-08-06", &usage)?.micros, Some(8_500));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A budget in money takes it as a function, for what an answer has cost and for what one may cost at most:
//!
//! ```
//! # use std::sync::Arc;
//! # use failsoft_core::{Insight, Usage};
//! # use llm_layer::price::{PriceTable, Unpriced};
//! /// What an answer has cost so far, for whoever keeps the books.
//! fn spent(table: &PriceTable, model: &str, insight: &Insight) -> Result<u64, Unpriced> {
//!     Ok(table.cost(model, &insight.usage())?.micros.unwrap_or(0))
//! }
//!
//! /// What to reserve for a call before it is made.
//! fn reserved(table: &PriceTable, model: &str, prompt: u64, max_tokens: u64) -> Result<u64, Unpriced> {
//!     let usage = Usage { input: Some(prompt), output: Some(max_tokens), ..Usage::default() };
//!     Ok(table.cost(model, &usage)?.micros.unwrap_or(0))
//! }
//! # let table = PriceTable::from_json(r#"{"m": {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}}"#).unwrap();
//! # assert_eq!(reserved(&table, "m", 10, 5), Ok(20));
//! # assert_eq!(spent(&table, "m", &Insight::new()), Ok(0));
//! # assert!(spent(&table, "n", &Insight::new()).is_err());
//! ```
//!
//! # Units
//!
//! Money is an integer of micro-units: millionths of the currency of the file, which is the dollar. Prices are read as the
//! decimals that they are written as, and sums are exact; only the sum of a whole answer is rounded, up. What is too large
//! saturates.
//!
//! # What is read of an entry
//!
//! | field | for | where it is missing |
//! |---|---|---|
//! | `input_cost_per_token` | [`input`](Usage::input) | the output's price |
//! | `output_cost_per_token` | [`output`](Usage::output) | the input's price |
//! | `cache_read_input_token_cost` | [`cache_read`](Usage::cache_read) | the input's price |
//! | `cache_creation_input_token_cost` | [`cache_write`](Usage::cache_write) | the input's price |
//! | `output_cost_per_reasoning_token` | [`reasoning`](Usage::reasoning) | the output's price |
//! | each with `_above_128k_tokens`, or another number of thousands | the same, of a call whose prompt has more tokens than that, cached ones counted | the entry's own without it |
//! | `tiered_pricing`: a list of objects with `range` and the fields above, others are not read | the same, from the range's start on | |
//!
//! Nothing is free because its price is missing. An entry without any of these, such as one of a model that is paid by the
//! picture, is no entry; `sample_spec`, which explains the file, is none either. Other prices (batches, priority, sound,
//! searches) are not read.
//!
//! # How a model is found
//!
//! 1. By its name as it is, with the [provider](PriceTable::provider) before it where one was set: `azure/gpt-4o`.
//! 2. Without what stands before each `/`, one after the other: `openrouter/openai/gpt-4o`, `openai/gpt-4o`, `gpt-4o`;
//!    then without a Bedrock region: `us.anthropic.claude-3-haiku-20240307-v1:0`.
//! 3. All of these again without a date or `latest` at the end: `gpt-4o-2024-08-06`, `claude-3-haiku-20240307`,
//!    `claude-3-haiku@20240307`, `gpt-4-0613`, `chatgpt-4o-latest`.
//!
//! Never by a similar name: a wrong price is worse than none.

mod decimal;
mod entry;
mod names;

use std::{collections::HashMap, error::Error, fmt};

use failsoft_core::{Class, Denier, Fault, Usage, Verdict};

use self::decimal::Decimal;

/// What tokens cost, by model.
#[derive(Clone, Debug, Default)]
pub struct PriceTable {
    models: HashMap<Box<str>, Price>,
    provider: Option<Box<str>>,
    unknown: UnknownModel,
}

/// What a model costs that is not in the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnknownModel {
    /// Nobody knows: [`PriceTable::cost`] is an error, and the call should not be made.
    #[default]
    Deny,
    /// So much.
    Default(Price),
    /// Its tokens are counted, and cost nothing.
    CountOnly,
}

/// What an answer has cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cost {
    /// Millionths of the currency, rounded up; `None` where only tokens are counted.
    pub micros: Option<u64>,
    /// All tokens.
    pub tokens: u64,
    /// Whether the model was found in the table.
    pub is_known: bool,
}

impl PriceTable {
    /// A table without any model.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a price map: an object with an entry for each model.
    ///
    /// # Errors
    ///
    /// When it is no JSON object of objects, or a price in it is not a decimal of at least 0.
    pub fn from_json(text: &str) -> Result<Self, PriceError> {
        Ok(Self { models: entry::read(text)?, ..Self::default() })
    }

    /// Adds a model, or replaces its price.
    #[must_use]
    pub fn with(mut self, model: impl Into<Box<str>>, price: Price) -> Self {
        self.models.insert(model.into(), price);
        self
    }

    /// The provider whose prices count first: `azure` for the entry `azure/gpt-4o` before `gpt-4o`. None by default.
    #[must_use]
    pub fn provider(mut self, prefix: impl Into<Box<str>>) -> Self {
        self.provider = Some(prefix.into());
        self
    }

    /// What a model costs that is not in the table. [`UnknownModel::Deny`] by default.
    #[must_use]
    pub fn unknown(mut self, policy: UnknownModel) -> Self {
        self.unknown = policy;
        self
    }

    /// How many models have a price.
    #[must_use]
    pub fn len(&self) -> usize {
        self.models.len()
    }

    /// Whether no model has one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.models.is_empty()
    }

    /// The price of a model that is in the table.
    #[must_use]
    pub fn price(&self, model: &str) -> Option<&Price> {
        names::find(&self.models, self.provider.as_deref(), model)
    }

    /// What so many tokens of a model cost. Buckets that are not known count as none.
    ///
    /// # Errors
    ///
    /// When the model is not in the table and the policy is [`UnknownModel::Deny`].
    pub fn cost(&self, model: &str, usage: &Usage) -> Result<Cost, Unpriced> {
        let tokens = usage.total();
        let found = self.price(model);
        let is_known = found.is_some();
        let micros = match (found, &self.unknown) {
            (Some(price), _) | (None, UnknownModel::Default(price)) => Some(price.micros(usage)),
            (None, UnknownModel::CountOnly) => None,
            (None, UnknownModel::Deny) => return Err(Unpriced { model: model.into() }),
        };
        Ok(Cost { micros, tokens, is_known })
    }
}

/// What the tokens of one model cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Price {
    base: Rates,
    /// Sorted by their start.
    tiers: Vec<Tier>,
}

/// Prices that hold for a call with a long prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tier {
    above: u64,
    rates: Rates,
}

/// The price of one token in each bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rates {
    input: Option<Decimal>,
    cache_read: Option<Decimal>,
    cache_write: Option<Decimal>,
    output: Option<Decimal>,
    reasoning: Option<Decimal>,
}

impl Price {
    /// A price for a million tokens of input and of output, in micro-units: 2 500 000 is 2.50.
    #[must_use]
    pub const fn per_million(input: u64, output: u64) -> Self {
        let (input, output) = (Some(Decimal::millionth(input)), Some(Decimal::millionth(output)));
        let base = Rates { input, output, cache_read: None, cache_write: None, reasoning: None };
        Self { base, tiers: Vec::new() }
    }

    /// The same with another price for a million tokens that were read from a cache.
    #[must_use]
    pub const fn cache_read(mut self, micros: u64) -> Self {
        self.base.cache_read = Some(Decimal::millionth(micros));
        self
    }

    /// The same with another price for a million tokens that were written to a cache.
    #[must_use]
    pub const fn cache_write(mut self, micros: u64) -> Self {
        self.base.cache_write = Some(Decimal::millionth(micros));
        self
    }

    /// The same with another price for a million tokens of reasoning.
    #[must_use]
    pub const fn reasoning(mut self, micros: u64) -> Self {
        self.base.reasoning = Some(Decimal::millionth(micros));
        self
    }

    /// What so many tokens cost, in micro-units and rounded up.
    #[must_use]
    pub fn micros(&self, usage: &Usage) -> u64 {
        let prompt = usage.total_input();
        let rates = self.tiers.iter().rev().find(|tier| prompt > tier.above).map(|tier| &tier.rates);
        // Of a tier, what it says; else what holds without it.
        let of = |rate: fn(&Rates) -> Option<Decimal>| rates.and_then(rate).or_else(|| rate(&self.base));
        let input = of(|rates| rates.input).or_else(|| of(|rates| rates.output)).unwrap_or_default();
        let output = of(|rates| rates.output).unwrap_or(input);
        let sum = [
            (usage.input, input),
            (usage.cache_read, of(|rates| rates.cache_read).unwrap_or(input)),
            (usage.cache_write, of(|rates| rates.cache_write).unwrap_or(input)),
            (usage.output, output),
            (usage.reasoning, of(|rates| rates.reasoning).unwrap_or(output)),
        ]
        .into_iter()
        .fold(Decimal::default(), |sum, (tokens, rate)| sum.plus(rate.times(tokens.unwrap_or(0))));
        sum.micros()
    }
}

/// A model without a price, where those are not to be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpriced {
    model: Box<str>,
}

impl Unpriced {
    /// Its name.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }
}

impl fmt::Display for Unpriced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the model `{}` has no price", self.model)
    }
}

impl Error for Unpriced {}

impl From<Unpriced> for Fault {
    /// A denial for the sake of a budget: no further attempt on the same target helps.
    fn from(err: Unpriced) -> Self {
        let message = err.to_string();
        Self::with_verdict(Verdict::of(Class::Denied(Denier::Budget)), crate::attempt::LAYER)
            .with_message(message)
            .with_source(err)
    }
}

/// What is wrong with a price map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceError {
    at: Box<str>,
    message: Box<str>,
}

impl PriceError {
    fn new(at: impl Into<Box<str>>, message: impl fmt::Display) -> Self {
        Self { at: at.into(), message: message.to_string().into() }
    }

    /// Where: a model and its field; empty for the whole file.
    #[must_use]
    pub fn at(&self) -> &str {
        &self.at
    }
}

impl fmt::Display for PriceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = if self.at.is_empty() { "the file" } else { &self.at };
        write!(f, "prices: {at}: {}", self.message)
    }
}

impl Error for PriceError {}

#[cfg(test)]
mod tests;
