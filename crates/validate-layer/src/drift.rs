//! [`Drift`]: an answer that is unlike the good ones before it.
//!
//! For endpoints that answer one kind of question: a prompt's answers lie near each other, and one that lies elsewhere is worth a look, such as
//! after a provider changed the model behind a name. Off unless it is asked for, and a suspicion: an answer is not wrong for being unlike others.
//!
//! ```
//! use failsoft_core::{BoxError, HashedNgrams, ToolCall};
//! use validate_layer::{Answer, Asked, Drift, ValidateLayer};
//!
//! let layer = ValidateLayer::values(|reply: &String| Answer::new(reply.as_str()))
//!     .asked_fn(|question: &(&'static str, String)| Asked::new().with_key(question.0)) // one centroid a prompt
//!     .drift(Drift::new(HashedNgrams::new()).warm_up(20))
//!     .build()?;
//! # let _ = layer;
//! # Ok::<(), BoxError>(())
//! ```
//!
//! # How
//!
//! Each good answer's text is embedded: by [`HashedNgrams`](failsoft_core::HashedNgrams), which is built in and sees wording, or by a service of yours
//! ([`EmbedWith`](failsoft_core::EmbedWith)). For each [key](crate::Asked::with_key) a rolling centroid is kept, with the mean and the spread of the cosines to it.
//! After the [warm-up](Drift::warm_up) an answer is suspicious whose cosine is more than [`deviations`](Drift::deviations) below that
//! mean: the limit is each key's own, for how near answers are to each other differs from prompt to prompt, and no fixed
//! one fits two. With [`below`](Drift::below) a fixed limit is set in its place.
//!
//! A suspicious answer has a warning `drift` of [`SoftKind::Drift`] in its report and is not learnt from; with
//! [`fails`](Drift::fails) it is a soft failure. [`forget`](Drift::forget) begins anew, after a prompt was changed.
//!
//! | | default | |
//! |---|---|---|
//! | warm-up | 20 answers | a mean of fewer is one of chance |
//! | deviations | 4 | of a thousand answers of any distribution at most 63 lie so far off (Chebyshev), of a normal one none |
//! | memory | the last 100 answers or so | older ones fade: what changes slowly is followed |
//! | shortest text | 64 bytes | the direction of "Yes." says nothing |
//! | keys | 10 000 | the least recently used go; new ones that find no room share one centroid; of one beyond 256 bytes the beginning and a hash are kept |
//! | time for an embedding | 5 s, and never longer than the deadline of the current [`Call`](failsoft_core::Call) | an embedding that fails, or takes longer, is no finding |

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use failsoft_core::{
    BoxError, ConfigError, DEFAULT_KEYS, Embed, Embedding, Evict, Finding, KeyMap, Report, Severity,
    SoftKind, bounded_key,
};

use crate::{
    Answer,
    judge::{Checking, SlowCheck, Spending},
};

const WARM_UP: u32 = 20;
const DEVIATIONS: f32 = 4.0;
const MEMORY: f32 = 100.0;
const SHORTEST: usize = 64;
const TIMEOUT: Duration = Duration::from_secs(5);

/// Cosines of answers that are all alike have no spread: one that differs in a word is not suspicious for that.
const LEAST_SPREAD: f32 = 0.02;

/// Looks for answers that are unlike those before. See the [module](self). Clones share what was learnt.
#[derive(Clone)]
pub struct Drift {
    embed: Arc<dyn EmbedText>,
    centroids: Arc<KeyMap<Arc<str>, Centroid>>,
    max_keys: usize,
    warm_up: u32,
    deviations: f32,
    below: Option<f32>,
    shortest: usize,
    timeout: Duration,
    fails: bool,
}

impl Drift {
    /// Embeds answers with this.
    pub fn new<E>(embed: E) -> Self
    where
        E: Embed<Future: 'static> + 'static,
    {
        Self {
            embed: Arc::new(Embedder(embed)),
            centroids: Arc::new(KeyMap::sharing(DEFAULT_KEYS, Centroid::default())),
            max_keys: DEFAULT_KEYS,
            warm_up: WARM_UP,
            deviations: DEVIATIONS,
            below: None,
            shortest: SHORTEST,
            timeout: TIMEOUT,
            fails: false,
        }
    }

    /// After how many good answers of a key it begins to judge; at least 2.
    #[must_use]
    pub const fn warm_up(mut self, answers: u32) -> Self {
        self.warm_up = answers;
        self
    }

    /// How many standard deviations below a key's mean cosine an answer is suspicious; above 0.
    #[must_use]
    pub const fn deviations(mut self, deviations: f32) -> Self {
        self.deviations = deviations;
        self
    }

    /// Below which cosine, -1 to 1, an answer is suspicious, in place of a limit of each key's own.
    #[must_use]
    pub const fn below(mut self, cosine: f32) -> Self {
        self.below = Some(cosine);
        self
    }

    /// The shortest text, in bytes, that is looked at.
    #[must_use]
    pub const fn shortest(mut self, bytes: usize) -> Self {
        self.shortest = bytes;
        self
    }

    /// How long an embedding may take; more than zero.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// At most so many keys, at least 1. What was learnt is forgotten.
    #[must_use]
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.max_keys = keys;
        self.centroids = Arc::new(KeyMap::sharing(keys, Centroid::default()));
        self
    }

    /// A suspicious answer is a soft failure.
    #[must_use]
    pub const fn fails(mut self) -> Self {
        self.fails = true;
        self
    }

    /// Forgets what was learnt of a key; the key of requests that have none is the empty one.
    pub fn forget(&self, key: &str) {
        self.centroids.remove(&*bounded_key(key));
    }

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        const BUILDER: &str = "ValidateLayer";
        if self.warm_up < 2 {
            return Err(ConfigError::new(BUILDER, "drift.warm_up", self.warm_up, "at least 2"));
        }
        if self.max_keys == 0 {
            return Err(ConfigError::new(BUILDER, "drift.max_keys", 0, "at least 1"));
        }
        if self.timeout.is_zero() {
            return Err(ConfigError::new(BUILDER, "drift.timeout", 0, "more than 0"));
        }
        ConfigError::check_range(
            BUILDER,
            "drift.deviations",
            f64::from(self.deviations),
            f64::MIN_POSITIVE,
            100.0,
        )?;
        ConfigError::check_range(BUILDER, "drift.below", f64::from(self.below.unwrap_or(0.0)), -1.0, 1.0)
    }

    /// Compares an answer with those before, and learns of it where it is like them.
    fn compare(&self, key: &str, embedding: &Embedding) -> Report {
        let Ok(centroid) = self.centroids.get_or_insert_with(bounded_key(key).into(), Centroid::default)
        else {
            return Report::new();
        };
        let suspicion = centroid.see(embedding, |state, cosine| {
            let own = state.mean - self.deviations * state.spread().max(LEAST_SPREAD);
            let limit = self.below.unwrap_or(own);
            (state.seen >= self.warm_up && cosine < limit).then_some(limit)
        });
        let Some((cosine, limit)) = suspicion else { return Report::new() };
        let message =
            format!("unlike the answers before: a cosine of {cosine:.2}, where {limit:.2} is the least");
        let severity = if self.fails { Severity::Error } else { Severity::Warning };
        Finding::new(SoftKind::Drift, "drift", message).with_severity(severity).into()
    }
}

impl SlowCheck for Drift {
    fn begin(&self, answer: &Answer) -> Checking {
        let text = answer.text().filter(|text| text.len() >= self.shortest && answer.is_textual());
        let Some(text) = text else { return Box::pin(std::future::ready(Report::new())) };
        let drift = self.clone();
        let key: Arc<str> = answer.asked().and_then(crate::Asked::key).unwrap_or_default().into();
        let spending = Spending::within(self.timeout);
        let embedding = spending.call().enter(|| self.embed.embed(text));
        Box::pin(async move {
            // Outlives what spends.
            let spending = spending;
            let call = spending.call();
            // The deadline of the call whose answer it is may be nearer.
            let embedding = call.scope(embedding);
            let embedding = match call.deadline() {
                Some(deadline) => tokio::time::timeout_at(deadline, embedding).await,
                None => Ok(embedding.await),
            };
            match embedding {
                Ok(Ok(embedding)) => drift.compare(&key, &embedding),
                // That nothing could be compared is no finding.
                Ok(Err(_)) | Err(_) => Report::new(),
            }
        })
    }
}

impl fmt::Debug for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drift")
            .field("keys", &self.centroids.len())
            .field("warm_up", &self.warm_up)
            .field("deviations", &self.deviations)
            .field("below", &self.below)
            .field("fails", &self.fails)
            .finish_non_exhaustive()
    }
}

/// An embedder of any type.
trait EmbedText: Send + Sync {
    fn embed(&self, text: &str) -> Pin<Box<dyn Future<Output = Result<Embedding, BoxError>> + Send>>;
}

struct Embedder<E>(E);

impl<E: Embed<Future: 'static>> EmbedText for Embedder<E> {
    fn embed(&self, text: &str) -> Pin<Box<dyn Future<Output = Result<Embedding, BoxError>> + Send>> {
        Box::pin(self.0.embed(text))
    }
}

/// Where the good answers of one key lie.
#[derive(Default)]
struct Centroid(Mutex<State>);

#[derive(Default)]
struct State {
    seen: u32,
    /// The weighted sum of their directions.
    sum: Vec<f32>,
    /// The mean of the cosines to it, and of their squared distance from that.
    mean: f32,
    variance: f32,
}

impl Evict for Centroid {
    fn may_go(&self) -> bool {
        true
    }
}

impl Centroid {
    /// Looks at one answer, and learns of it unless it is suspicious: then its cosine and the limit.
    fn see(
        &self,
        embedding: &Embedding,
        limit: impl FnOnce(&State, f32) -> Option<f32>,
    ) -> Option<(f32, f32)> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let values = embedding.values();
        if state.sum.len() != values.len() {
            // The first one, or another model's: nothing can be compared with it.
            *state = State { seen: 0, sum: vec![0.0; values.len()], mean: 0.0, variance: 0.0 };
        }
        let cosine = state.cosine(values);
        if let Some(cosine) = cosine {
            if let Some(limit) = limit(&state, cosine) {
                return Some((cosine, limit));
            }
        }
        state.learn(values, cosine);
        None
    }
}

impl State {
    fn cosine(&self, values: &[f32]) -> Option<f32> {
        let length = self.sum.iter().map(|value| value * value).sum::<f32>().sqrt();
        let product: f32 = self.sum.iter().zip(values).map(|(a, b)| a * b).sum();
        (length > 0.0).then(|| (product / length).clamp(-1.0, 1.0))
    }

    fn learn(&mut self, values: &[f32], cosine: Option<f32>) {
        self.seen = self.seen.saturating_add(1);
        #[allow(clippy::cast_precision_loss, reason = "beyond the memory it is the memory")]
        let weight = 1.0 / (self.seen as f32).min(MEMORY);
        for (sum, value) in self.sum.iter_mut().zip(values) {
            *sum += weight * (value - *sum);
        }
        // The first has nothing to be compared with; from the second on they are a mean of one fewer.
        let Some(cosine) = cosine else { return };
        #[allow(clippy::cast_precision_loss, reason = "beyond the memory it is the memory")]
        let weight = 1.0 / (self.seen.saturating_sub(1).max(1) as f32).min(MEMORY);
        let off = cosine - self.mean;
        self.mean += weight * off;
        self.variance = (1.0 - weight) * (self.variance + weight * off * off);
    }

    fn spread(&self) -> f32 {
        self.variance.sqrt()
    }
}
