//! [`Trail`]: the steps that one call took, kept when there was more than one or somebody asked.
//!
//! ```
//! use failsoft_core::{Attempt, Class, Next, Trail, Verdict};
//!
//! let mut trail = Trail::default();
//! trail.push(Attempt::new("retry-layer", Verdict::of(Class::Overloaded)).then(Next::Retry));
//! assert_eq!(trail.attempts()[0].verdict.class(), Class::Overloaded);
//! ```

use std::{fmt, sync::Arc, time::Duration};

use crate::{Usage, Verdict};

/// At most so many attempts are kept; later ones are counted.
pub const MAX_ATTEMPTS: usize = 32;

/// One attempt, as the layer saw it that decided what came next.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Attempt {
    /// The crate that recorded it.
    pub layer: &'static str,
    /// The target's name, where it has one.
    pub target: Option<Arc<str>>,
    /// What the outcome meant.
    pub verdict: Verdict,
    /// How long the layer waited before the next attempt.
    pub delay: Option<Duration>,
    /// How long the attempt took.
    pub took: Option<Duration>,
    /// Tokens that the attempt used, where they are known.
    pub usage: Option<Usage>,
    /// What was done next, and why: by the last one that decided about it, which is the outermost.
    pub next: Next,
    /// What was decided about it before, in that order: by layers further in that handed it on, and by one that could not do what it had
    /// meant to. All are shown: `a transient (retry, not_ready, next_route)`. That it was answered is not among them, where another
    /// one decided otherwise.
    pub earlier: Vec<Decision>,
    /// Whether this outcome opened a circuit.
    pub opened: bool,
}

/// What one layer did after an attempt that another one had the last word about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Decision {
    /// The crate that decided.
    pub layer: &'static str,
    /// What was done next.
    pub next: Next,
}

/// What a layer did after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Next {
    /// Asked the same target again.
    Retry,
    /// Asked the same target a second time, beside this attempt that was still running.
    Hedge,
    /// Dropped this attempt: one beside it answered first.
    Overtaken,
    /// Asked the same target with a changed request.
    Reask,
    /// Went on to the next route.
    NextRoute,
    /// Returned a good answer.
    Answered,
    /// Returned a cached answer.
    Cached,
    /// Skipped this route without asking it.
    Skipped,
    /// Gave up: the verdict says that nothing more helps here.
    Final,
    /// Gave up: all attempts that the layer or the call allows are spent.
    AttemptsSpent,
    /// Gave up: the retry budget is empty.
    BudgetEmpty,
    /// Gave up: a budget around the call has nothing left for another attempt.
    SpendDenied,
    /// Gave up: the next attempt would begin after the deadline.
    DeadlineNear,
    /// Gave up: the server asks for a longer wait than this layer grants.
    AdviceTooLong,
    /// Gave up: the target was not ready for another attempt in time.
    NotReady,
    /// Gave up: the request cannot be sent twice, or must not be.
    NotRepeatable,
    /// Gave up: whoever sent the request retries by itself, and this was such a retry.
    ClientRetries,
    /// Gave up: no route is left.
    NoRouteLeft,
}

impl Next {
    /// A short stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Hedge => "hedge",
            Self::Overtaken => "overtaken",
            Self::Reask => "reask",
            Self::NextRoute => "next_route",
            Self::Answered => "answered",
            Self::Cached => "cached",
            Self::Skipped => "skipped",
            Self::Final => "final",
            Self::AttemptsSpent => "attempts_spent",
            Self::BudgetEmpty => "budget_empty",
            Self::SpendDenied => "spend_denied",
            Self::DeadlineNear => "deadline_near",
            Self::AdviceTooLong => "advice_too_long",
            Self::NotReady => "not_ready",
            Self::NotRepeatable => "not_repeatable",
            Self::ClientRetries => "client_retries",
            Self::NoRouteLeft => "no_route_left",
        }
    }

    /// Whether the layer handed the outcome on, to those around it.
    pub(crate) const fn hands_on(self) -> bool {
        match self {
            Self::Retry | Self::Hedge | Self::Overtaken | Self::Reask | Self::NextRoute | Self::Skipped => {
                false
            }
            Self::Answered
            | Self::Cached
            | Self::Final
            | Self::AttemptsSpent
            | Self::BudgetEmpty
            | Self::SpendDenied
            | Self::DeadlineNear
            | Self::AdviceTooLong
            | Self::NotReady
            | Self::NotRepeatable
            | Self::ClientRetries
            | Self::NoRouteLeft => true,
        }
    }
}

impl Attempt {
    /// An attempt with a verdict, after which the layer gave up because nothing more helps.
    #[must_use]
    pub const fn new(layer: &'static str, verdict: Verdict) -> Self {
        Self {
            layer,
            target: None,
            verdict,
            delay: None,
            took: None,
            usage: None,
            next: Next::Final,
            earlier: Vec::new(),
            opened: false,
        }
    }

    /// Says what was done next.
    #[must_use]
    pub const fn then(mut self, next: Next) -> Self {
        self.next = next;
        self
    }

    /// All that was decided about it, in that order; the last is [`next`](Self::next).
    pub fn decisions(&self) -> impl Iterator<Item = Decision> + '_ {
        self.earlier.iter().copied().chain([Decision { layer: self.layer, next: self.next }])
    }

    /// The last word was another's before.
    fn then_by(&mut self, layer: &'static str, next: Next) {
        if self.next != Next::Answered {
            self.earlier.push(Decision { layer: self.layer, next: self.next });
        }
        (self.layer, self.next) = (layer, next);
    }

    fn was_decided_by(&self, layer: &str) -> bool {
        self.layer == layer || self.earlier.iter().any(|decision| decision.layer == layer)
    }

    /// Names the target.
    #[must_use]
    pub fn on(mut self, target: Option<Arc<str>>) -> Self {
        self.target = target;
        self
    }

    /// Says how long the attempt took.
    #[must_use]
    pub const fn with_took(mut self, took: Duration) -> Self {
        self.took = Some(took);
        self
    }
}

/// The attempts of one call, oldest first, at most [`MAX_ATTEMPTS`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trail {
    attempts: Vec<Attempt>,
    dropped: usize,
}

impl Trail {
    /// Adds an attempt; beyond [`MAX_ATTEMPTS`] it is only counted.
    pub fn push(&mut self, attempt: Attempt) {
        if self.attempts.len() < MAX_ATTEMPTS {
            self.attempts.push(attempt);
        } else {
            self.dropped = self.dropped.saturating_add(1);
        }
    }

    /// The place of the next attempt, counted on beyond those that are kept.
    pub(crate) fn next_place(&self) -> usize {
        self.attempts.len().saturating_add(self.dropped)
    }

    /// Adds what a layer around has decided about an attempt. `names_it`: the layer's name for the target is the one that counts.
    pub(crate) fn decide(&mut self, place: usize, decided: Attempt, names_it: bool) {
        let Some(told) = self.attempts.get_mut(place) else { return };
        told.opened |= decided.opened;
        // What is found wrong with a good answer is news. Of a failure, who saw it first knows most: what is handed on may stand for more
        // than this attempt.
        if told.verdict.is_success() || told.verdict.class() == decided.verdict.class() {
            let unsent = told.verdict.is_unsent();
            told.verdict = if unsent { decided.verdict.with_unsent() } else { decided.verdict };
        }
        // The one around has seen all of those before it, too.
        told.took = told.took.or(decided.took);
        told.delay = decided.delay.or(told.delay);
        // A fallback inside of another has named it already.
        let is_named = !names_it || told.was_decided_by(decided.layer);
        let (first, second) = if is_named {
            (told.target.take(), decided.target)
        } else {
            (decided.target, told.target.take())
        };
        told.target = first.or(second);
        if (told.next, decided.next) != (Next::Cached, Next::Answered) {
            told.then_by(decided.layer, decided.next);
        }
    }

    /// What was decided about an attempt came to nothing.
    pub(crate) fn then(&mut self, place: usize, next: Next) {
        if let Some(told) = self.attempts.get_mut(place) {
            told.then_by(told.layer, next);
        }
    }

    /// The attempts, oldest first.
    #[must_use]
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    /// How many attempts did not fit.
    #[must_use]
    pub const fn dropped(&self) -> usize {
        self.dropped
    }

    /// Whether nothing was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.attempts.is_empty()
    }
}

impl fmt::Display for Trail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, attempt) in self.attempts.iter().enumerate() {
            write!(f, "{}{}", if i == 0 { "" } else { " > " }, attempt.target.as_deref().unwrap_or("-"))?;
            write!(f, " {} (", attempt.verdict.class())?;
            let mut said = None;
            for decision in attempt.decisions() {
                // Layers of one kind inside each other often say the same.
                if said != Some(decision.next) {
                    write!(f, "{}{}", if said.is_some() { ", " } else { "" }, decision.next.as_str())?;
                }
                said = Some(decision.next);
            }
            f.write_str(")")?;
        }
        if self.dropped > 0 {
            write!(f, " > and {} more", self.dropped)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Class;

    #[test]
    fn a_trail_is_bounded_and_says_what_it_left_out() {
        let mut trail = Trail::default();
        for _ in 0..MAX_ATTEMPTS + 5 {
            trail.push(Attempt::new("x", Verdict::of(Class::Transient)).then(Next::Retry));
        }
        assert_eq!((trail.attempts().len(), trail.dropped()), (MAX_ATTEMPTS, 5));
        assert!(trail.to_string().ends_with("and 5 more"));
    }
}
