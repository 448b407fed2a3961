//! Earlier answers to similar requests: what differs is the last thing that the user says, and that only a little.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    hash::{BuildHasher, RandomState},
    pin::Pin,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use failsoft_core::{BoxError, ConfigError, Embed, Embedding};

use super::key::{CacheKey, Digest};

/// How requests are found that are similar, see [`Builder::similar`](super::Builder::similar).
///
/// | setting | default | range |
/// |---|---|---|
/// | [`threshold`](Self::threshold) | 0.88 | above 0 and at most 1 |
/// | [`bytes`](Self::bytes) | 32 MiB | at least 64 KiB |
/// | [`within`](Self::within) | 250 ms | above 0 |
pub struct Similar {
    embed: Box<dyn EmbedBoxed>,
    threshold: f32,
    bytes: usize,
    pub(super) within: Duration,
    numbers: RandomState,
    index: Mutex<Index>,
}

/// Of one context at most so many are compared: a quarter of a millisecond with vectors of 512 dimensions.
const EACH: usize = 1_000;

/// What a vector takes beside its numbers, about.
const OVERHEAD: usize = 128;

type Vector = Pin<Box<dyn Future<Output = Result<Embedding, BoxError>> + Send>>;

trait EmbedBoxed: Send + Sync {
    fn embed(&self, text: &str) -> Vector;
}

impl<E: Embed<Future: 'static>> EmbedBoxed for E {
    fn embed(&self, text: &str) -> Vector {
        Box::pin(Embed::embed(self, text))
    }
}

#[derive(Default)]
struct Index {
    contexts: HashMap<Digest, VecDeque<Item>>,
    /// The contexts of all, the oldest first; in each context they lie in the same order.
    ages: VecDeque<Digest>,
    bytes: usize,
}

struct Item {
    exact: Digest,
    numbers: u64,
    vector: Embedding,
}

impl Similar {
    /// By the vectors of an embedder: [`HashedNgrams`](failsoft_core::HashedNgrams), or a model through
    /// [`EmbedWith`](failsoft_core::EmbedWith).
    pub fn new<E: Embed<Future: 'static> + 'static>(embed: E) -> Self {
        Self {
            embed: Box::new(embed),
            threshold: 0.88,
            bytes: 32 * 1024 * 1024,
            within: Duration::from_millis(250),
            numbers: RandomState::new(),
            index: Mutex::default(),
        }
    }

    /// From which [cosine](Embedding::cosine) on two prompts count as similar. Below 0.88, what reads alike answers differently
    /// too often; what the figures of a model are worth, only its own texts tell.
    #[must_use]
    pub const fn threshold(mut self, cosine: f32) -> Self {
        self.threshold = cosine;
        self
    }

    /// At most so many bytes of vectors; beyond that the oldest goes. One takes 4 bytes for each dimension, and 128. Of one context
    /// at most 1 000 are kept.
    #[must_use]
    pub const fn bytes(mut self, bytes: usize) -> Self {
        self.bytes = bytes;
        self
    }

    /// How long a call may be held up by the embedder: when it looks for a similar request, and when an answer is there and its
    /// vector is not. After that it is a miss, or the answer is found by the same request only.
    #[must_use]
    pub const fn within(mut self, within: Duration) -> Self {
        self.within = within;
        self
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let error = |field, value: &dyn fmt::Display, expected| {
            Err(ConfigError::new("Similar", field, value, expected))
        };
        if !(self.threshold > 0.0 && self.threshold <= 1.0) {
            return error("threshold", &self.threshold, "above 0 and at most 1");
        }
        if self.bytes < 64 * 1024 {
            return error("bytes", &self.bytes, "at least 64 KiB");
        }
        if self.within.is_zero() {
            return error("within", &"0 s", "more than zero");
        }
        Ok(())
    }

    /// Begins to make the vector of what a request asks.
    pub(super) fn ask(&self, key: &CacheKey) -> Option<Asked> {
        let (context, text) = key.prompt.as_ref()?;
        let numbers = self.numbers.hash_one(numbers(text));
        let vector = State::Pending(Mutex::new(self.embed.embed(text)));
        let mut asked = Asked { context: *context, exact: key.exact.0, numbers, vector };
        // One that needs no wait is done with.
        let _ = asked.poll(&mut Context::from_waker(Waker::noop()));
        Some(asked)
    }

    /// Remembers a request whose answer was kept.
    pub(super) fn insert(&self, asked: &Asked) {
        let State::Known(vector) = &asked.vector else { return };
        let size = size(vector);
        if size > self.bytes {
            return;
        }
        let mut gone = Vec::new();
        let mut index = self.lock();
        let items = index.contexts.entry(asked.context).or_default();
        if items.iter().any(|item| item.exact == asked.exact) {
            return;
        }
        items.push_back(Item { exact: asked.exact, numbers: asked.numbers, vector: vector.clone() });
        let full = items.len() > EACH;
        index.ages.push_back(asked.context);
        index.bytes += size;
        if full {
            gone.extend(index.forget_in(asked.context));
        }
        while index.bytes > self.bytes {
            let Some(oldest) = index.ages.front().copied() else { break };
            gone.extend(index.forget_in(oldest));
        }
    }

    /// Requests that are similar, the nearest first.
    pub(super) fn find(&self, asked: &Asked) -> Vec<(f32, Digest)> {
        let State::Known(vector) = &asked.vector else { return Vec::new() };
        let index = self.lock();
        let Some(items) = index.contexts.get(&asked.context) else { return Vec::new() };
        // What differs in a number alone reads nearly the same, and asks for something else.
        let same = items.iter().filter(|item| item.numbers == asked.numbers);
        let mut found: Vec<_> = same
            .filter_map(|item| Some((item.vector.cosine(vector)?, item.exact)))
            .filter(|(cosine, _)| *cosine >= self.threshold)
            .collect();
        drop(index);
        found.sort_unstable_by(|(a, _), (b, _)| b.total_cmp(a));
        found
    }

    pub(super) fn clear(&self) {
        let _gone = std::mem::take(&mut *self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Index {
    /// Forgets the oldest of a context.
    fn forget_in(&mut self, context: Digest) -> Option<Item> {
        let items = self.contexts.get_mut(&context)?;
        let gone = items.pop_front();
        if items.is_empty() {
            self.contexts.remove(&context);
        }
        if let Some(place) = self.ages.iter().position(|age| *age == context) {
            self.ages.remove(place);
        }
        if let Some(gone) = &gone {
            self.bytes = self.bytes.saturating_sub(size(&gone.vector));
        }
        gone
    }
}

fn size(vector: &Embedding) -> usize {
    OVERHEAD + size_of_val(vector.values())
}

/// The numbers in a text, in their order, with their signs: `-5`, but not the `5` of `3-5`.
fn numbers(text: &str) -> Vec<(bool, &str)> {
    let is_minus = |c: char| matches!(c, '-' | '\u{2212}' | '\u{2013}');
    let (mut numbers, mut rest) = (Vec::new(), text);
    while let Some(start) = rest.find(char::is_numeric) {
        let (before, number) = rest.split_at(start);
        let end = number.find(|c: char| !c.is_numeric()).unwrap_or(number.len());
        let mut before = before.chars().rev();
        let is_negative = before.next().is_some_and(is_minus)
            && before.next().map_or(numbers.is_empty(), |c| c.is_whitespace() || "([{=<>,;:*/+^".contains(c));
        let (number, after) = number.split_at(end);
        numbers.push((is_negative, number));
        rest = after;
    }
    numbers
}

impl fmt::Debug for Similar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Similar")
            .field("threshold", &self.threshold)
            .field("bytes", &self.bytes)
            .field("within", &self.within)
            .finish_non_exhaustive()
    }
}

/// What a request asks, and its vector when that is there.
pub(super) struct Asked {
    context: Digest,
    exact: Digest,
    numbers: u64,
    vector: State,
}

enum State {
    /// In a mutex that nobody locks, so that bodies can be shared.
    Pending(Mutex<Vector>),
    Known(Embedding),
    /// The embedder has failed.
    None,
}

impl Asked {
    /// Ready when there is nothing to wait for.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let State::Pending(vector) = &mut self.vector {
            let vector = vector.get_mut().unwrap_or_else(PoisonError::into_inner);
            let Poll::Ready(vector) = vector.as_mut().poll(cx) else { return Poll::Pending };
            self.vector = vector.map_or(State::None, State::Known);
        }
        Poll::Ready(())
    }
}

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Asked")
    }
}

#[cfg(test)]
mod tests {
    use failsoft_core::HashedNgrams;
    use http::Request;

    use super::*;
    use crate::cache::key::Keys;

    fn asked(similar: &Similar, keys: &Keys, scope: &str, text: &str) -> Asked {
        let body = format!(r#"{{"messages":[{{"role":"user","content":"{text}"}}]}}"#);
        similar.ask(&keys.key(scope, &Request::post("/").body(body).unwrap()).unwrap()).unwrap()
    }

    fn keys() -> Keys {
        let mut keys = Keys::new();
        keys.prompts = true;
        keys
    }

    #[test]
    fn the_nearest_comes_first_and_numbers_that_differ_are_never_similar() {
        let (similar, keys) = (Similar::new(HashedNgrams::new()).threshold(0.3), keys());
        let ask = |text| asked(&similar, &keys, "t", text);
        similar.insert(&ask("please reset my password for order 17 today"));
        similar.insert(&ask("please reset my password for order 17"));
        similar.insert(&ask("please reset my password for order 18"));
        let found = similar.find(&ask("Please reset my password, for order 17!"));
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].1, ask("please reset my password for order 17").exact);
        assert!(found[0].0 > 0.99 && found[1].0 < 0.99);
    }

    #[test]
    fn a_sign_makes_another_number_and_a_range_does_not() {
        let of = |text| {
            numbers(text)
                .into_iter()
                .map(|(minus, n)| format!("{}{n}", if minus { "-" } else { "" }))
                .collect::<Vec<_>>()
        };
        for (text, wanted) in [
            ("what is -5 + 3", "-5 3"),
            ("what is 5 + 3", "5 3"),
            ("-7", "-7"),
            ("\u{2212}7 degrees, (-8)", "-7 -8"),
            ("3-5 people, gpt-4, 2020\u{2013}2021", "3 5 4 2020 2021"),
            ("no. 1.5\u{b2}", "1 5\u{b2}"),
            ("", ""),
        ] {
            assert_eq!(of(text).join(" "), wanted, "{text}");
        }
    }

    #[test]
    fn scopes_are_contexts_of_their_own() {
        let (similar, keys) = (Similar::new(HashedNgrams::new()), keys());
        similar.insert(&asked(&similar, &keys, "a", "the very same prompt"));
        assert!(similar.find(&asked(&similar, &keys, "b", "the very same prompt")).is_empty());
        assert_eq!(similar.find(&asked(&similar, &keys, "a", "the very same prompt")).len(), 1);
    }

    #[test]
    fn the_index_stays_within_its_bytes_and_each_context_within_its_number() {
        let (similar, keys) = (Similar::new(HashedNgrams::new()).bytes(65_536), keys());
        for number in 0..100 {
            similar.insert(&asked(
                &similar,
                &keys,
                &format!("t{}", number % 7),
                &format!("prompt number {number}"),
            ));
            let index = similar.lock();
            assert!(index.bytes <= 65_536);
            assert_eq!(index.bytes, index.ages.len() * (OVERHEAD + 2048));
            assert_eq!(index.contexts.values().map(VecDeque::len).sum::<usize>(), index.ages.len());
        }
        assert!(similar.find(&asked(&similar, &keys, "t0", "prompt number 0")).is_empty(), "the oldest went");
        assert_eq!(similar.find(&asked(&similar, &keys, "t1", "prompt number 99")).len(), 1);

        let many = Similar::new(HashedNgrams::with_dimensions(64).unwrap());
        for number in 0..EACH + 5 {
            many.insert(&asked(&many, &keys, "t", &format!("prompt number {number}")));
        }
        assert_eq!(many.lock().ages.len(), EACH);
        many.clear();
        assert_eq!(many.lock().bytes, 0);
    }

    #[test]
    fn what_has_no_meaning_is_refused_by_name() {
        let new = || Similar::new(HashedNgrams::new());
        for (similar, field) in [
            (new().threshold(0.0), "threshold"),
            (new().threshold(f32::NAN), "threshold"),
            (new().threshold(1.1), "threshold"),
            (new().bytes(1), "bytes"),
            (new().within(Duration::ZERO), "within"),
        ] {
            assert_eq!(similar.check().unwrap_err().field(), field);
        }
        assert!(new().threshold(1.0).check().is_ok());
    }
}
