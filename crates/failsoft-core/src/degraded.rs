//! [`Degraded`]: the mark on an answer that stands in for the one that was asked for.
//!
//! ```
//! use failsoft_core::{Degraded, StandIn};
//!
//! let mark = Degraded::by(StandIn::Route).on(Some("small".into()));
//! assert_eq!((mark.stand_in.as_str(), mark.route.as_deref()), ("route", Some("small")));
//! ```

use std::{sync::Arc, time::Duration};

/// The header that says [what stands in](StandIn::as_str).
pub const DEGRADED_HEADER: &str = "x-failsoft-degraded";

/// Says that an answer is the next best one, and which: on the response's extensions and in the [`Facts`](crate::Facts) of
/// its [`Insight`](crate::Insight).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Degraded {
    /// What stands in.
    pub stand_in: StandIn,
    /// The route that gave it, where it has a name.
    pub route: Option<Arc<str>>,
    /// How old it is, where it was given before.
    pub age: Option<Duration>,
    /// How near the question that it was given to is to the one that was asked, from -1 to 1, where the two are not the same.
    pub similarity: Option<f32>,
}

/// What stands in for the answer that was asked for. Ordered from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum StandIn {
    /// The answer of another route.
    Route,
    /// An earlier answer to the same request.
    LastGood,
    /// An earlier answer to a similar request.
    Similar,
    /// An answer that was computed without the targets.
    Computed,
    /// The promise of an answer.
    Deferred,
}

impl StandIn {
    /// A short stable name, as it stands in the header.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Route => "route",
            Self::LastGood => "last-good",
            Self::Similar => "similar",
            Self::Computed => "computed",
            Self::Deferred => "deferred",
        }
    }
}

impl Degraded {
    /// A mark of what stands in.
    #[must_use]
    pub const fn by(stand_in: StandIn) -> Self {
        Self { stand_in, route: None, age: None, similarity: None }
    }

    /// Names the route.
    #[must_use]
    pub fn on(mut self, route: Option<Arc<str>>) -> Self {
        self.route = route;
        self
    }

    /// Says how old the answer is.
    #[must_use]
    pub const fn with_age(mut self, age: Duration) -> Self {
        self.age = Some(age);
        self
    }

    /// Says how near the questions are.
    #[must_use]
    pub const fn with_similarity(mut self, similarity: f32) -> Self {
        self.similarity = Some(similarity);
        self
    }

    /// The mark on an answer, where it has one.
    #[cfg(feature = "http")]
    #[must_use]
    pub fn of(extensions: &http::Extensions) -> Option<&Self> {
        extensions.get()
    }

    /// Puts the mark on an answer, in the place of an earlier one: into its extensions, into its
    /// [`Insight`](crate::Insight) where it has one, and with `header` into [`DEGRADED_HEADER`].
    #[cfg(feature = "http")]
    pub fn put(self, headers: &mut http::HeaderMap, extensions: &mut http::Extensions, header: bool) {
        if header {
            let value = http::HeaderValue::from_static(self.stand_in.as_str());
            headers.insert(http::HeaderName::from_static(DEGRADED_HEADER), value);
        }
        if let Some(insight) = crate::Insight::of(extensions) {
            insight.learn(|facts| facts.degraded = Some(self.clone()));
        }
        extensions.insert(self);
    }
}

#[cfg(all(test, feature = "http"))]
mod tests {
    use super::*;
    use crate::{ByResponse, Classify as _, Insight};

    #[test]
    fn the_mark_is_in_the_extensions_the_insight_and_by_option_in_a_header() {
        let mut response = http::Response::new(http_body_util::Empty::<bytes::Bytes>::new());
        let insight = Insight::new();
        response.extensions_mut().insert(insight.clone());
        let mark = Degraded::by(StandIn::Similar).with_similarity(0.9).with_age(Duration::from_secs(1));
        ByResponse.degrade(&mut response, &mark, false);
        assert_eq!(Degraded::of(response.extensions()), Some(&mark));
        assert_eq!(insight.read(|facts| facts.degraded.clone()), Some(mark.clone()));
        assert!(response.headers().is_empty());
        ByResponse.degrade(&mut response, &mark, true);
        assert_eq!(response.headers()[DEGRADED_HEADER], "similar");
    }
}
