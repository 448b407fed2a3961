//! [`Vocabulary`]: exact counts of tokens.
//!
//! ```
//! use budget_layer::{Estimator, FromRequest, Vocabulary};
//!
//! assert_eq!(Vocabulary::O200k.count("The capital of Switzerland is Bern."), 7);
//!
//! let estimator = FromRequest::new().vocabulary(Vocabulary::O200k);
//! let body = r#"{"max_tokens": 100, "messages": [{"role": "user", "content": "hello"}]}"#;
//! let (input, _) = estimator.estimate(&http::Request::new(body.to_owned())).split().unwrap();
//! assert_eq!(input, 8, "as the provider bills it; without a tokenizer 18");
//! ```

use bpe_openai::{Tokenizer, cl100k_base, o200k_base};

/// A vocabulary of OpenAI's. For other providers' models it is still closer than an estimate by characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Vocabulary {
    /// `o200k_base`, of GPT-4o and the models since.
    O200k,
    /// `cl100k_base`, of GPT-4 and GPT-3.5.
    Cl100k,
}

impl Vocabulary {
    /// How many tokens a text has, in a time that is linear in its length whatever it is made of. The first count of a vocabulary reads
    /// it, which takes a fraction of a second: see [`load`](Self::load).
    #[must_use]
    pub fn count(self, text: &str) -> u64 {
        self.tokenizer().count(text) as u64
    }

    /// Reads the vocabulary, so that the first call need not; some tens of megabytes of memory, once for a process.
    pub fn load(self) {
        self.tokenizer();
    }

    fn tokenizer(self) -> &'static Tokenizer {
        match self {
            Self::O200k => o200k_base(),
            Self::Cl100k => cl100k_base(),
        }
    }
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use super::*;
    use crate::estimate::prompt::count_prompt;

    /// The messages, and the figures that the API gave for them, by which OpenAI shows how prompts are counted.
    #[test]
    fn a_prompt_counts_as_many_tokens_as_the_api_says() {
        let body = r#"{"model": "gpt-4o", "messages": [
            {"role": "system", "content": "You are a helpful, pattern-following assistant that translates corporate jargon into plain English."},
            {"role": "system", "name": "example_user", "content": "New synergies will help drive top-line growth."},
            {"role": "system", "name": "example_assistant", "content": "Things working well together will increase revenue."},
            {"role": "system", "name": "example_user", "content": "Let's circle back when we have more bandwidth to touch base on opportunities for increased leverage."},
            {"role": "system", "name": "example_assistant", "content": "Let's talk later when we're less busy about how to do better."},
            {"role": "user", "content": "This late pivot means we don't have time to boil the ocean for the client deliverable."}]}"#;
        let of = |vocabulary: Vocabulary| count_prompt(body.as_bytes(), &|text| vocabulary.count(text));
        assert_eq!((of(Vocabulary::Cl100k), of(Vocabulary::O200k)), (Some(129), Some(124)));
    }

    #[test]
    fn no_text_is_too_odd_and_a_megabyte_of_one_letter_is_counted() {
        for vocabulary in [Vocabulary::O200k, Vocabulary::Cl100k] {
            vocabulary.load();
            assert_eq!(vocabulary.count(""), 0);
            for text in
                ["\0", "\u{fffd}\u{10ffff}", " \n\t\r ", "e\u{301}\u{301}\u{301}", "👩‍👩‍👧‍👦", "<|endoftext|>"]
            {
                assert!((1..=24).contains(&vocabulary.count(text)), "{text:?}");
            }
        }
        // A merge of pairs that looks at all of them for each takes hours here.
        assert_eq!(Vocabulary::O200k.count(&"a".repeat(1_000_000)), 125_000);
        assert_eq!(Vocabulary::O200k.count(&" ".repeat(1_000_000)), 7_813);
    }
}
