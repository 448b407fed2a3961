//! [`Estimate`]: what a call may cost, before it is made.
//!
//! The estimate is reserved, so calls that run at once cannot spend together what is there once. The closer it is from
//! above, the better: while no call uses more than its estimate, nothing is ever overspent.
//!
//! ```
//! use budget_layer::{Estimate, Estimator};
//!
//! /// Knows its own requests.
//! #[derive(Clone)]
//! struct ByWords;
//!
//! impl Estimator<String> for ByWords {
//!     fn estimate(&self, request: &String) -> Estimate {
//!         Estimate::parts(2 * request.split(' ').count() as u64, 300)
//!     }
//! }
//!
//! assert_eq!(ByWords.estimate(&"what is the weather".to_owned()).total(), 308);
//! ```

#[cfg(feature = "http")]
mod from_request;
mod learned;
#[cfg(feature = "http")]
mod prompt;
#[cfg(feature = "tokenizer")]
mod vocabulary;

use std::{fmt, sync::Arc, time::Duration};

pub use self::learned::{Average, Learned};
#[cfg(feature = "tokenizer")]
pub use self::vocabulary::Vocabulary;
use crate::Price;

/// Tokens that a call may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// The prompt's part, where it is known apart.
    input: Option<u64>,
    total: u64,
    price: Option<Price>,
    /// In milliseconds.
    time: Option<u64>,
    /// What is to learn of the answer.
    learning: Option<Average>,
}

impl Estimate {
    /// An estimate of the whole only. Where a call tells its input but not its output, or the other way round, it
    /// counts for the larger of that and the estimate.
    #[must_use]
    pub const fn whole(tokens: u64) -> Self {
        Self { input: None, total: tokens, price: None, time: None, learning: None }
    }

    /// An estimate of the prompt and of the answer. Where a call tells one of them, the estimate stands in for the
    /// other.
    #[must_use]
    pub const fn parts(input: u64, output: u64) -> Self {
        Self {
            input: Some(input),
            total: input.saturating_add(output),
            price: None,
            time: None,
            learning: None,
        }
    }

    /// What the tokens of this call cost, for budgets of money.
    #[must_use]
    pub fn at(mut self, price: Price) -> Self {
        self.price = Some(price);
        self
    }

    /// How long the call may take, for budgets of time.
    #[must_use]
    pub fn taking(mut self, time: Duration) -> Self {
        self.time = Some(millis(time));
        self
    }

    /// What is to learn how long the answer is, where the output was guessed: the call's output, or all of it where the estimate is of the
    /// whole. Only a complete answer teaches, of one attempt, that says itself what it used.
    #[must_use]
    pub fn learning(mut self, average: Average) -> Self {
        self.learning = Some(average);
        self
    }

    /// What is to learn of the answer.
    pub(crate) const fn learns(&self) -> Option<&Average> {
        self.learning.as_ref()
    }

    /// The same by what another average expects, and that learns.
    fn expecting(self, average: Average) -> Self {
        let total = match (average.expected(), self.input) {
            (Some(output), Some(input)) => input.saturating_add(output),
            (Some(total), None) => total,
            (None, _) => self.total,
        };
        Self { total, learning: Some(average), ..self }
    }

    /// The price, where one was given.
    #[must_use]
    pub const fn price(&self) -> Option<&Price> {
        self.price.as_ref()
    }

    /// How long the call may take, where that was said.
    #[must_use]
    pub fn time(&self) -> Option<Duration> {
        self.time.map(Duration::from_millis)
    }

    /// The same, without the way over a [`Duration`] and back.
    #[inline]
    pub(crate) const fn time_millis(&self) -> Option<u64> {
        self.time
    }

    /// At least 1 token: calls that cost nothing would be without number. At a price, where there is none yet.
    #[inline]
    pub(crate) fn complete(&mut self, price: Option<&Price>) {
        self.total = self.total.max(1);
        if let Some(price) = price.filter(|_| self.price.is_none()) {
            self.price = Some(*price);
        }
    }

    /// What is reserved.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// The prompt's part and the answer's, where they are known apart.
    #[must_use]
    pub fn split(&self) -> Option<(u64, u64)> {
        self.input.map(|input| (input, self.total.saturating_sub(input)))
    }
}

/// Whole milliseconds, rounded up.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

impl From<u64> for Estimate {
    fn from(tokens: u64) -> Self {
        Self::whole(tokens)
    }
}

/// Estimates what a request may cost.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot estimate the request `{Req}`",
    note = "`FromRequest`, the default, reads `http::Request` and `reqwest::Request` (feature `reqwest-013`); for other \
            requests call `.estimate(|request: &{Req}| …)` or `.estimate_fixed(…)`, or implement `Estimator`"
)]
pub trait Estimator<Req> {
    /// What it may cost. Counted as at least 1 token.
    fn estimate(&self, request: &Req) -> Estimate;
}

/// The same for every call, see [`BudgetBuilder::estimate_fixed`](crate::BudgetBuilder::estimate_fixed).
#[derive(Clone, Debug)]
pub struct Fixed(pub(crate) Estimate);

impl<Req> Estimator<Req> for Fixed {
    fn estimate(&self, _: &Req) -> Estimate {
        self.0.clone()
    }
}

/// A function of the request, see [`BudgetBuilder::estimate`](crate::BudgetBuilder::estimate).
#[derive(Clone, Copy)]
pub struct EstimateFn<F>(F);

impl<F> EstimateFn<F> {
    pub(crate) const fn new(estimate: F) -> Self {
        Self(estimate)
    }
}

impl<Req, F: Fn(&Req) -> u64> Estimator<Req> for EstimateFn<F> {
    fn estimate(&self, request: &Req) -> Estimate {
        Estimate::whole((self.0)(request))
    }
}

impl<F> fmt::Debug for EstimateFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EstimateFn")
    }
}

/// Adds the price, see [`BudgetBuilder::prices`](crate::BudgetBuilder::prices).
#[derive(Clone, Copy)]
pub struct Priced<E, F> {
    estimator: E,
    price: F,
}

impl<E, F> Priced<E, F> {
    pub(crate) const fn new(estimator: E, price: F) -> Self {
        Self { estimator, price }
    }
}

impl<Req, E: Estimator<Req>, F: Fn(&Req) -> Option<Price>> Estimator<Req> for Priced<E, F> {
    fn estimate(&self, request: &Req) -> Estimate {
        let estimate = self.estimator.estimate(request);
        match (self.price)(request) {
            Some(price) => estimate.at(price),
            None => estimate,
        }
    }
}

impl<E: fmt::Debug, F> fmt::Debug for Priced<E, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Priced").field("estimator", &self.estimator).finish_non_exhaustive()
    }
}

/// Learns by a key of the request's, see [`BudgetBuilder::learn_by`](crate::BudgetBuilder::learn_by).
#[derive(Clone)]
pub struct LearnBy<E, F> {
    estimator: E,
    key: F,
    learned: Learned,
}

impl<E, F> LearnBy<E, F> {
    pub(crate) fn new(estimator: E, key: F) -> Self {
        Self { estimator, key, learned: Learned::new() }
    }
}

impl<Req, O, E, F> Estimator<Req> for LearnBy<E, F>
where
    E: Estimator<Req>,
    F: Fn(&Req) -> O,
    O: AsRef<str>,
{
    fn estimate(&self, request: &Req) -> Estimate {
        let estimate = self.estimator.estimate(request);
        match estimate.learns() {
            Some(by_model) => {
                let average = self.learned.of((self.key)(request).as_ref()).within_those_of(by_model);
                estimate.expecting(average)
            }
            None => estimate,
        }
    }
}

impl<E: fmt::Debug, F> fmt::Debug for LearnBy<E, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LearnBy")
            .field("estimator", &self.estimator)
            .field("learned", &self.learned)
            .finish_non_exhaustive()
    }
}

/// Reads the request itself: the default.
///
/// For a body in memory the prompt counts by its characters (a token for 4 of ASCII, for 2 of other alphabets, for each
/// CJK character), and the answer by `max_tokens` and its other names, times `n`. A body that is streamed counts by its
/// announced length, and one that is encoded (`content-encoding`) for a token a byte, because text is compressed to a quarter. In memory are `reqwest::Body` made of bytes, and for `http::Request` the bodies
/// `http_body_util::Full<Bytes>` and `String`.
///
/// Where nothing limits the answer, it counts for what nearly all answers of the same model stayed below; see [`Average`] for the rule. A
/// model is known by its name in the body, or else by the path of the request. Calls of tools, which have no body, are learnt by
/// their path too, where somebody tells what they used.
///
/// ```
/// use budget_layer::{Estimator, FromRequest};
///
/// let request = http::Request::new(r#"{"max_tokens": 100, "messages": [{"role": "user", "content": "hello"}]}"#.to_owned());
/// let (input, output) = FromRequest::new().estimate(&request).split().unwrap();
/// assert_eq!((input, output), (18, 100));
///
/// // Nothing says how long the answer may be, and none was seen: 1 000 tokens.
/// let request = http::Request::new(r#"{"messages": []}"#.to_owned());
/// assert_eq!(FromRequest::new().estimate(&request).total(), 4 + 1_000);
/// ```
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "http"), allow(dead_code))]
pub struct FromRequest {
    default_output: u64,
    max_input: u64,
    max_output: u64,
    unknown: u64,
    learned: Option<Learned>,
    tokenizer: Option<TokenizerFn>,
    tokenize_up_to: usize,
}

/// A tokenizer of anybody's.
#[derive(Clone)]
#[cfg_attr(not(feature = "http"), allow(dead_code))]
struct TokenizerFn(Arc<dyn Fn(&str) -> u64 + Send + Sync>);

impl fmt::Debug for TokenizerFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenizerFn")
    }
}

/// A body of so many bytes has some 16 000 tokens, which takes 5 ms, in which nothing else runs on a thread; and ten times as
/// much where somebody has made it for that.
const TOKENIZE_UP_TO: usize = 64 * 1024;

impl FromRequest {
    /// Starts from the defaults.
    #[must_use]
    pub fn new() -> Self {
        Self {
            default_output: 1_000,
            max_input: 200_000,
            max_output: 8_192,
            unknown: 500,
            learned: Some(Learned::new()),
            tokenizer: None,
            tokenize_up_to: TOKENIZE_UP_TO,
        }
    }

    /// The answer's part where the request sets no limit and too few answers were seen. Default 1 000 tokens: providers' own limits, up to
    /// 64 000, would block a session for nothing. What is learnt of a model's answers lowers it to a tenth of this at the least: who asks for
    /// short answers for a while, and then for many long ones at once, must not have them all admitted.
    #[must_use]
    pub const fn default_output(mut self, tokens: u64) -> Self {
        self.default_output = tokens;
        self
    }

    /// The answer's part is never more than this, whatever the request says or was learnt. Default 8 192 tokens. A model that really
    /// writes more is booked with what it wrote.
    #[must_use]
    pub const fn max_output(mut self, tokens: u64) -> Self {
        self.max_output = tokens;
        self
    }

    /// The prompt's part is never more than this. Default 200 000 tokens.
    #[must_use]
    pub const fn max_input(mut self, tokens: u64) -> Self {
        self.max_input = tokens;
        self
    }

    /// The whole where the request has no body, or none whose length is known, as many calls of tools, and nothing was learnt of such
    /// calls. Default 500 tokens.
    #[must_use]
    pub const fn unknown(mut self, tokens: u64) -> Self {
        self.unknown = tokens;
        self
    }

    /// Learns together with other layers, or from what is known already. Default: for itself and the clones of its layer.
    #[must_use]
    pub fn learned(mut self, learned: Learned) -> Self {
        self.learned = Some(learned);
        self
    }

    /// Counts the prompts of models by a tokenizer: the texts of their messages, instructions and tools, with 3 tokens for what stands around
    /// each message and 3 for the beginning of the answer, as OpenAI counts; images and files are estimated. A request of
    /// another form, or larger than [`tokenize_up_to`](Self::tokenize_up_to), is estimated as a whole. The tokenizer runs within the call:
    /// it should take a time that is linear in the text, whatever that is. Default: none, an estimate by characters. With the
    /// feature `tokenizer` there is `vocabulary`.
    ///
    /// ```
    /// use budget_layer::{Estimator, FromRequest};
    ///
    /// let estimator = FromRequest::new().tokenizer(|text| text.split_whitespace().count() as u64);
    /// let body = r#"{"max_tokens": 9, "messages": [{"role": "user", "content": "Where is Bern?"}]}"#;
    /// assert_eq!(estimator.estimate(&http::Request::new(body.to_owned())).split(), Some((3 + 1 + 3 + 3, 9)));
    /// ```
    #[must_use]
    pub fn tokenizer<F>(mut self, count: F) -> Self
    where
        F: Fn(&str) -> u64 + Send + Sync + 'static,
    {
        self.tokenizer = Some(TokenizerFn(Arc::new(count)));
        self
    }

    /// Counts prompts exactly, by one of OpenAI's vocabularies, which this reads: see [`tokenizer`](Self::tokenizer).
    #[cfg(feature = "tokenizer")]
    #[must_use]
    pub fn vocabulary(self, vocabulary: Vocabulary) -> Self {
        vocabulary.load();
        self.tokenizer(move |text| vocabulary.count(text))
    }

    /// Larger bodies are not given to the tokenizer, in bytes. Default 64 KiB, which take 5 ms, and 50 ms where somebody has made them for that.
    #[must_use]
    pub const fn tokenize_up_to(mut self, bytes: usize) -> Self {
        self.tokenize_up_to = bytes;
        self
    }

    /// Never learns: every answer that nothing limits counts for [`default_output`](Self::default_output).
    #[must_use]
    pub fn without_learning(mut self) -> Self {
        self.learned = None;
        self
    }
}

impl Default for FromRequest {
    fn default() -> Self {
        Self::new()
    }
}
