//! [`Embed`]: texts as vectors, so that texts which say nearly the same can be found: a semantic cache, a check for drift.
//!
//! [`HashedNgrams`] is built in, needs no model and compares wording; [`EmbedWith`] asks a service, which may be a
//! model with layers around it.
//!
//! ```
//! use failsoft_core::HashedNgrams;
//!
//! let ngrams = HashedNgrams::new();
//! let [asked, again, other] = ["How do I reset my password?", "how do I reset my password", "Translate this to French"]
//!     .map(|text| ngrams.vector(text).unwrap());
//! assert!(asked.cosine(&again).unwrap() > 0.9);
//! assert!(asked.cosine(&other).unwrap() < 0.3);
//! ```

mod ngrams;

use std::{
    error::Error,
    fmt,
    future::{Ready, ready},
    pin::Pin,
    sync::Arc,
    task::{self, Context, Poll},
};

use pin_project_lite::pin_project;
use tower_service::Service;

pub use self::ngrams::HashedNgrams;
use crate::{BoxError, CloneService, IntoBoxError};

/// Makes a vector of a text.
///
/// Who asks decides what a failure means: for a cache it is a miss, for a check no finding. Both bound the time that the
/// answer may take by their own limits.
pub trait Embed: Send + Sync {
    /// Resolves to the vector.
    type Future: Future<Output = Result<Embedding, BoxError>> + Send;

    /// Makes the vector of a text.
    fn embed(&self, text: &str) -> Self::Future;
}

impl<E: Embed + ?Sized> Embed for Arc<E> {
    type Future = E::Future;

    fn embed(&self, text: &str) -> Self::Future {
        (**self).embed(text)
    }
}

impl Embed for HashedNgrams {
    type Future = Ready<Result<Embedding, BoxError>>;

    fn embed(&self, text: &str) -> Self::Future {
        ready(self.vector(text).map_err(Into::into))
    }
}

/// A vector of length 1; clones share it.
#[derive(Clone, PartialEq)]
pub struct Embedding(Arc<[f32]>);

impl Embedding {
    /// A vector, which is brought to length 1.
    ///
    /// # Errors
    ///
    /// When it has no numbers, only zeros, or one that is not finite.
    pub fn new(values: impl Into<Vec<f32>>) -> Result<Self, NoEmbedding> {
        let mut values = values.into();
        let length = values.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt();
        // Also where a value is no number. The square of any `f32` fits into an `f64`.
        if !length.is_finite() || length <= 0.0 {
            return Err(NoEmbedding { dimensions: values.len() });
        }
        for value in &mut values {
            #[allow(clippy::cast_possible_truncation, reason = "at most 1")]
            let scaled = (f64::from(*value) / length) as f32;
            *value = scaled;
        }
        Ok(Self(values.into()))
    }

    /// How near two texts are: 1 for one direction, 0 for nothing in common, -1 for opposites. `None` where the vectors have
    /// different numbers of dimensions: they come from different models.
    #[must_use]
    pub fn cosine(&self, other: &Self) -> Option<f32> {
        if self.0.len() != other.0.len() {
            return None;
        }
        // Eight sums beside each other, which the compiler can add at once.
        let (ours, theirs) = (self.0.chunks_exact(8), other.0.chunks_exact(8));
        let rest: f32 = ours.remainder().iter().zip(theirs.remainder()).map(|(a, b)| a * b).sum();
        let mut sums = [0.0_f32; 8];
        for (ours, theirs) in ours.zip(theirs) {
            for ((sum, a), b) in sums.iter_mut().zip(ours).zip(theirs) {
                *sum += a * b;
            }
        }
        Some((sums.iter().sum::<f32>() + rest).clamp(-1.0, 1.0))
    }

    /// The numbers, whose squares add up to 1.
    #[must_use]
    pub fn values(&self) -> &[f32] {
        &self.0
    }
}

impl fmt::Debug for Embedding {
    /// Without the numbers: a text can be guessed from them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedding").field("dimensions", &self.0.len()).finish_non_exhaustive()
    }
}

/// Numbers that have no direction, so that nothing can be near them: none at all, only zeros, or one that is not finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoEmbedding {
    dimensions: usize,
}

impl fmt::Display for NoEmbedding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no direction in a vector of {} dimensions", self.dimensions)
    }
}

impl Error for NoEmbedding {}

/// Asks a service for the vectors, such as an embedding model behind a timeout and a circuit.
///
/// ```
/// # use failsoft_core::{Embed, EmbedWith};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let model = tower::service_fn(|text: String| async move { Ok::<_, std::io::Error>(vec![text.len() as f32, 1.0]) });
/// assert_eq!(EmbedWith::new(model).embed("four").await.unwrap().values().len(), 2);
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct EmbedWith<S>(S);

impl<S> EmbedWith<S> {
    /// A service from a text to its vector. Each text is given to a clone of it that no other text has used.
    pub const fn new(service: S) -> Self {
        Self(service)
    }

    /// The service.
    pub const fn get_ref(&self) -> &S {
        &self.0
    }
}

impl<S> Embed for EmbedWith<S>
where
    S: Service<String, Response = Vec<f32>, Error: IntoBoxError, Future: Send> + CloneService + Send + Sync,
{
    type Future = EmbedFuture<S, S::Future>;

    fn embed(&self, text: &str) -> Self::Future {
        EmbedFuture { state: State::Readying { service: self.0.clone(), text: Some(text.to_owned()) } }
    }
}

pin_project! {
    /// The future of [`EmbedWith`].
    pub struct EmbedFuture<S, F> {
        #[pin]
        state: State<S, F>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, F> {
        Readying { service: S, text: Option<String> },
        Called { #[pin] future: F },
    }
}

impl<S> Future for EmbedFuture<S, S::Future>
where
    S: Service<String, Response = Vec<f32>, Error: Into<BoxError>>,
{
    type Output = Result<Embedding, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            match state.as_mut().project() {
                StateProj::Readying { service, text } => {
                    task::ready!(service.poll_ready(cx)).map_err(Into::into)?;
                    let future = service.call(text.take().unwrap_or_default());
                    state.set(State::Called { future });
                }
                StateProj::Called { future } => {
                    let values = task::ready!(future.poll(cx)).map_err(Into::into)?;
                    return Poll::Ready(Embedding::new(values).map_err(Into::into));
                }
            }
        }
    }
}

impl<S, F> fmt::Debug for EmbedFuture<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbedFuture").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_without_a_direction_are_no_embedding() {
        for bad in [vec![], vec![0.0, -0.0], vec![1.0, f32::NAN], vec![f32::INFINITY, 1.0]] {
            assert!(Embedding::new(bad).is_err());
        }
        // Squares beyond what an f32 holds, and below it.
        for good in [vec![f32::MAX, f32::MAX], vec![f32::MIN_POSITIVE, 0.0], vec![1e-45]] {
            let good = Embedding::new(good).unwrap();
            assert!((good.cosine(&good).unwrap() - 1.0).abs() < 1e-5);
        }
    }

    #[test]
    fn vectors_of_different_models_are_not_compared() {
        let [short, long] = [vec![1.0], vec![1.0, 0.0]].map(|values| Embedding::new(values).unwrap());
        assert_eq!(short.cosine(&long), None);
    }

    #[test]
    fn debug_keeps_the_numbers_back() {
        let text = format!("{:?}", Embedding::new(vec![0.125]).unwrap());
        assert_eq!(text, "Embedding { dimensions: 1, .. }");
    }

    #[tokio::test]
    async fn a_service_is_readied_before_each_text_and_its_failures_are_errors() {
        use std::io;

        /// Panics when it is called without readiness.
        #[derive(Default)]
        struct Strict(bool);

        impl Clone for Strict {
            fn clone(&self) -> Self {
                Self(false)
            }
        }

        impl Service<String> for Strict {
            type Response = Vec<f32>;
            type Error = io::Error;
            type Future = Ready<io::Result<Vec<f32>>>;

            fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.0 = true;
                Poll::Ready(Ok(()))
            }

            fn call(&mut self, text: String) -> Self::Future {
                assert!(std::mem::take(&mut self.0), "not ready");
                ready(match &*text {
                    "down" => Err(io::ErrorKind::ConnectionReset.into()),
                    text => Ok(vec![0.0; text.len()]),
                })
            }
        }

        let embed = EmbedWith::new(Strict::default());
        assert!(embed.embed("down").await.unwrap_err().is::<io::Error>());
        assert!(embed.embed("zeros").await.unwrap_err().is::<NoEmbedding>());
    }

    proptest! {
        #[test]
        fn the_cosine_is_that_of_the_plain_sum(pairs in proptest::collection::vec((-1e3_f32..1e3, -1e3_f32..1e3), 1..40)) {
            let (a, b): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
            let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
            let slow = dot(&a, &b) / (dot(&a, &a) * dot(&b, &b)).sqrt();
            if let (Ok(a), Ok(b)) = (Embedding::new(a), Embedding::new(b)) {
                prop_assert!((f64::from(a.cosine(&b).unwrap()) - slow).abs() < 1e-4);
            }
        }
    }
}
