//! [`HashedNgrams`]: a vector of what a text is made of, without a model.

use super::{Embedding, NoEmbedding};
use crate::ConfigError;

/// The built-in embedder: words, pairs of words and groups of three characters, each counted in one of a fixed number of
/// dimensions.
///
/// It sees wording and not meaning. Texts that differ in case, punctuation, spaces or a slip of the pen are near each
/// other; the same thing said in other words is not, and in long texts a single word that changes everything hardly
/// shows. It needs no network, and gives one text the same vector in every process and
/// release of the same major version, so that vectors can be kept.
///
/// Repetition counts by its square root. Scripts without spaces are taken by characters and pairs of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashedNgrams {
    dimensions: u16,
}

/// 512 numbers, 2 KiB: two texts that share nothing come out at a cosine of 0 ± 0.04 by chance, one divided by the root
/// of this number.
const DIMENSIONS: u16 = 512;

impl HashedNgrams {
    /// Vectors of 512 dimensions.
    #[must_use]
    pub const fn new() -> Self {
        Self { dimensions: DIMENSIONS }
    }

    /// Vectors of as many dimensions as that. Fewer make unlike texts come out nearer to each other, by chance.
    ///
    /// # Errors
    ///
    /// Below 64 and above 8192.
    pub fn with_dimensions(dimensions: u16) -> Result<Self, ConfigError> {
        if !(64..=8192).contains(&dimensions) {
            return Err(ConfigError::new("HashedNgrams", "dimensions", dimensions, "64 to 8192"));
        }
        Ok(Self { dimensions })
    }

    /// The vector of a text.
    ///
    /// # Errors
    ///
    /// When there is no letter and no digit in it.
    pub fn vector(&self, text: &str) -> Result<Embedding, NoEmbedding> {
        let mut counts = Counts(vec![0.0; usize::from(self.dimensions)]);
        let mut words = Words::default();
        for c in text.chars() {
            if is_word_by_itself(c) {
                words.end(&mut counts);
                words.push(c, &mut counts);
                words.end(&mut counts);
            } else if c.is_alphanumeric() {
                c.to_lowercase().for_each(|c| words.push(c, &mut counts));
            } else if !is_inside_word(c) {
                words.end(&mut counts);
            }
        }
        words.end(&mut counts);
        let mut values = counts.0;
        for value in &mut values {
            *value = value.signum() * value.abs().sqrt();
        }
        Embedding::new(values)
    }
}

impl Default for HashedNgrams {
    fn default() -> Self {
        Self::new()
    }
}

/// The words as they come by, none of which is kept: only hashes are.
struct Words {
    /// Of the word so far.
    hash: u64,
    is_empty: bool,
    /// Of the word before.
    before: u64,
    /// The last two characters; a space before the word.
    last: [char; 2],
}

impl Default for Words {
    fn default() -> Self {
        Self { hash: BASIS, is_empty: true, before: BASIS, last: [' ', ' '] }
    }
}

impl Words {
    fn push(&mut self, c: char, counts: &mut Counts) {
        self.hash = mix(self.hash, c);
        self.group(c, counts);
        self.is_empty = false;
    }

    fn end(&mut self, counts: &mut Counts) {
        if self.is_empty {
            return;
        }
        self.group(' ', counts);
        let pair = (self.before.rotate_left(31) ^ self.hash).wrapping_mul(PRIME);
        counts.add(self.hash, 1.0);
        counts.add(pair, 1.0);
        *self = Self { before: self.hash, ..Self::default() };
    }

    /// Three characters; those that begin and end a word count the space beside it as one.
    fn group(&mut self, c: char, counts: &mut Counts) {
        let [first, second] = self.last;
        if second != ' ' {
            let hash = [first, second, c].into_iter().fold(!BASIS, mix);
            // A word of five letters has five groups: together they count for about as much as the word.
            counts.add(hash, 0.25);
        }
        self.last = [second, c];
    }
}

struct Counts(Vec<f32>);

impl Counts {
    /// Counts up or down by a bit of the hash, so that what meets in one dimension by chance evens out.
    fn add(&mut self, hash: u64, weight: f32) {
        let hash = spread(hash);
        let len = self.0.len() as u64;
        // The high half picks the dimension, without a remainder.
        #[allow(clippy::cast_possible_truncation, reason = "below the length")]
        let at = (((hash >> 32) * len) >> 32) as usize;
        if let Some(count) = self.0.get_mut(at) {
            *count += if hash & 1 == 0 { weight } else { -weight };
        }
    }
}

/// FNV-1a's, over whole characters. Whoever makes texts meet on purpose only spoils their own tenant's cache.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

fn mix(hash: u64, c: char) -> u64 {
    (hash ^ u64::from(u32::from(c))).wrapping_mul(PRIME)
}

/// The end of splitmix64: every bit of the hash acts on every bit.
const fn spread(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// Scripts that are written without spaces: Han, Hiragana, Katakana, Thai, Lao, Khmer, Burmese.
const fn is_word_by_itself(c: char) -> bool {
    matches!(c, '\u{0e01}'..='\u{0eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{3040}'..='\u{30ff}'
        | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{323af}')
}

/// Don't, l'eau.
const fn is_inside_word(c: char) -> bool {
    matches!(c, '\'' | '\u{2019}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: &str, b: &str) -> f32 {
        let [a, b] = [a, b].map(|text| HashedNgrams::new().vector(text).unwrap());
        a.cosine(&b).unwrap()
    }

    #[test]
    fn case_punctuation_and_spaces_do_not_matter() {
        let same = near("What's the capital of France?", "  what’s the CAPITAL, of france ");
        assert!(same > 0.999, "{same}");
    }

    #[test]
    fn a_slip_of_the_pen_is_near_and_another_word_in_a_short_text_is_not() {
        let slip =
            near("how do I reset the password of my account", "how do I reset the pasword of my account");
        assert!(slip > 0.75, "{slip}");
        let other = near("What is the capital of France?", "What is the capital of Spain?");
        assert!(other < 0.85, "{other}");
    }

    #[test]
    fn texts_with_nothing_in_common_are_far_from_each_other() {
        let far =
            near("The quick brown fox jumps over the lazy dog", "Please sum up our invoices from August");
        assert!(far.abs() < 0.2, "{far}");
    }

    #[test]
    fn the_order_of_words_matters_a_little() {
        let turned = near("dog bites man", "man bites dog");
        assert!((0.5..0.95).contains(&turned), "{turned}");
    }

    #[test]
    fn scripts_without_spaces_are_compared_too() {
        assert!(near("東京の天気はどうですか", "東京の天気はどうですか？") > 0.999);
        assert!(near("東京の天気はどうですか", "請求書を送ってください") < 0.4);
    }

    #[test]
    fn a_vector_is_the_same_in_every_process() {
        let vector = HashedNgrams::with_dimensions(64).unwrap().vector("one").unwrap();
        let set: Vec<_> =
            vector.values().iter().enumerate().filter(|(_, v)| **v != 0.0).map(|(at, _)| at).collect();
        assert_eq!(set, [18, 23, 35, 41, 54]);
    }

    #[test]
    fn nothing_to_compare_is_an_error_and_dimensions_have_a_range() {
        for text in ["", " \n", "?!", "''"] {
            assert!(HashedNgrams::new().vector(text).is_err(), "{text:?}");
        }
        assert_eq!(HashedNgrams::with_dimensions(63).unwrap_err().field(), "dimensions");
        assert!(HashedNgrams::with_dimensions(8192).is_ok());
    }

    #[test]
    fn a_long_repetition_weighs_by_its_root() {
        let long = "again ".repeat(400);
        let mixed = near(&format!("{long} the invoice of August"), "the invoice of August");
        // 0.01 if it weighed in full.
        assert!(mixed > 0.06, "{mixed}");
    }
}
