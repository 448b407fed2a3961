//! How long an answer is, in any script.

use failsoft_core::{ConfigError, Finding, Report, SoftKind, estimate_tokens};

use crate::{Answer, Check};

/// An answer below this part of the expected length is cut short. Low, because an estimate is one.
const BELOW: f64 = 0.2;

/// The text has about the expected length: at least 0.2 of it, or the part set with [`below`](Self::below).
///
/// Longer than expected is never wrong. Only give an expectation where there is one: a question that can be answered
/// with one word has none.
///
/// ```
/// use validate_layer::{Check, checks::Length};
///
/// let check = Length::words(50);
/// assert!(check.on_text(&"word ".repeat(10)).is_empty());
/// assert_eq!(check.on_text("And so the").leading().unwrap().code(), "length");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Length {
    expected: usize,
    unit: Unit,
    /// Where it was said.
    below: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Words,
    Chars,
    Tokens,
}

impl Length {
    /// About so many words, as [`count_words`] counts them. At least 1.
    #[must_use]
    pub const fn words(expected: usize) -> Self {
        Self { expected, unit: Unit::Words, below: None }
    }

    /// About so many characters other than whitespace. At least 1.
    #[must_use]
    pub const fn chars(expected: usize) -> Self {
        Self { expected, unit: Unit::Chars, below: None }
    }

    /// About so many tokens, as [`estimate_tokens`] estimates them. At least 1.
    #[must_use]
    pub const fn tokens(expected: usize) -> Self {
        Self { expected, unit: Unit::Tokens, below: None }
    }

    /// The part of the expected length below which an answer is cut short: above 0, to 1. 0.2 by default.
    #[must_use]
    pub const fn below(mut self, part: f64) -> Self {
        self.below = Some(part);
        self
    }

    /// The same with another part, where none was set.
    pub(crate) fn or_below(self, part: Option<f64>) -> Self {
        Self { below: self.below.or(part), ..self }
    }

    fn part(&self) -> f64 {
        self.below.unwrap_or(BELOW)
    }

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        const BUILDER: &str = "ValidateLayer";
        if self.expected == 0 {
            return Err(ConfigError::new(BUILDER, "expected_length", 0, "at least 1"));
        }
        ConfigError::check_range(BUILDER, "below", self.part(), f64::MIN_POSITIVE, 1.0)
    }

    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a length is far below 2^52, and the cast saturates"
    )]
    fn least(&self) -> usize {
        (self.expected as f64 * self.part()).ceil() as usize
    }
}

impl Check for Length {
    fn check(&self, answer: &Answer, report: &mut Report) {
        let Some(text) = answer.text().filter(|_| answer.is_textual()) else { return };
        let least = self.least();
        let (length, unit) = match self.unit {
            Unit::Words => (words_up_to(text, least) as u64, "words"),
            Unit::Chars => {
                (text.chars().filter(|c| !c.is_whitespace()).take(least).count() as u64, "characters")
            }
            Unit::Tokens => (tokens_up_to(text, least), "tokens, as an estimate,"),
        };
        if length < least as u64 {
            let message = format!("{length} {unit} where about {} were expected", self.expected);
            report.push(Finding::new(SoftKind::Truncated, "length", message));
        }
    }
}

/// How many words a text has, roughly, in any script.
///
/// A word is what stands between whitespace and has a letter or a digit in it. Scripts without spaces are counted by
/// the mean length of their words: two characters of Chinese and Japanese, five letters of Thai, Lao, Khmer, Burmese and their
/// neighbours are a word. Tibetan and Ethiopic have marks of their own between syllables or words, which count as spaces.
///
/// ```
/// use validate_layer::checks::count_words;
///
/// assert_eq!(count_words("Two words, — not three dashes."), 5);
/// assert_eq!(count_words("断路器会打开"), 3);
/// ```
#[must_use]
pub fn count_words(text: &str) -> usize {
    words_up_to(text, usize::MAX)
}

/// Counts no further than needed: most answers are long enough after a part of them.
fn tokens_up_to(text: &str, enough: usize) -> u64 {
    // A byte is a quarter of a token at least, unless it stands in what may be an image.
    let part = enough.saturating_mul(4).min(text.len());
    let tokens = estimate_tokens(&text.as_bytes()[..part]);
    if tokens < enough as u64 { estimate_tokens(text) } else { tokens }
}

/// Counts no further than needed: most answers are long enough after a part of them.
fn words_up_to(text: &str, enough: usize) -> usize {
    let (mut words, mut dense, mut letters) = (0, 0_usize, 0_usize);
    let mut in_word = false;
    for c in text.chars() {
        match script(c) {
            Script::Space => in_word = false,
            Script::Dense => {
                dense += 1;
                if dense / 2 >= enough {
                    break;
                }
                in_word = false;
            }
            Script::Letters => {
                letters += 1;
                in_word = false;
            }
            Script::Spaced if !in_word => {
                words += 1;
                in_word = true;
                if words >= enough {
                    break;
                }
            }
            Script::Spaced | Script::Other => {}
        }
    }
    words + dense.div_ceil(2) + letters.div_ceil(5)
}

enum Script {
    Space,
    /// A letter or a digit of a script with spaces.
    Spaced,
    /// A character of Chinese or Japanese.
    Dense,
    /// A letter of a South-East Asian script without spaces.
    Letters,
    /// Anything else, such as punctuation.
    Other,
}

fn script(c: char) -> Script {
    match c {
        ' ' | '\n' | '\u{f0b}' | '\u{1361}' => Script::Space,
        'a'..='z' | 'A'..='Z' | '0'..='9' => Script::Spaced,
        c if c.is_whitespace() => Script::Space,
        c if !c.is_alphanumeric() => Script::Other,
        '\u{3040}'..='\u{30ff}'
        | '\u{31f0}'..='\u{31ff}'
        | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}'
        | '\u{f900}'..='\u{faff}'
        | '\u{ff66}'..='\u{ff9f}'
        | '\u{20000}'..='\u{3fffd}' => Script::Dense,
        '\u{e00}'..='\u{eff}'
        | '\u{1000}'..='\u{109f}'
        | '\u{1780}'..='\u{17ff}'
        | '\u{1950}'..='\u{19df}'
        | '\u{1a20}'..='\u{1aaf}'
        | '\u{1b00}'..='\u{1b7f}'
        | '\u{a980}'..='\u{a9df}' => Script::Letters,
        _ => Script::Spaced,
    }
}
