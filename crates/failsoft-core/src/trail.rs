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
    /// What was done next, and why.
    pub next: Next,
    /// Why a layer further in had given up on it, where the layer around it took this next step; both are shown, in their order:
    /// `a transient (attempts_spent, next_route)`.
    pub gave_up: Option<Next>,
    /// Whether this outcome opened a circuit.
    pub opened: bool,
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
    const fn hands_on(self) -> bool {
        match self {
            Self::Retry
            | Self::Hedge
            | Self::Overtaken
            | Self::Reask
            | Self::NextRoute
            | Self::Cached
            | Self::Skipped => false,
            Self::Answered
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
            gave_up: None,
            opened: false,
        }
    }

    /// Says what was done next.
    #[must_use]
    pub const fn then(mut self, next: Next) -> Self {
        self.next = next;
        self
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

    /// Puts a layer's decision to the attempt whose outcome another one has handed on to it: the last of those `told` (a bit for
    /// each place) that was no loser beside it. Gives it back where that is another attempt.
    pub(crate) fn settle(&mut self, told: u32, decided: Attempt) -> Option<Attempt> {
        let places = (0..self.attempts.len()).rev().filter(|place| (told >> place) & 1 == 1);
        let mut ended = places.filter(|&place| self.attempts[place].next != Next::Overtaken);
        let last = ended.next().and_then(|place| self.attempts.get_mut(place));
        let same = |last: &&mut Attempt| {
            last.layer != decided.layer
                && last.next.hands_on()
                && last.verdict.class() == decided.verdict.class()
        };
        let Some(last) = last.filter(same) else { return Some(decided) };
        let gave_up = if last.next == Next::Answered { None } else { Some(last.next) };
        // What the layer further in knows is the attempt's own; the one around has seen all of those before it, too.
        *last = Attempt {
            target: decided.target.or_else(|| last.target.take()),
            delay: last.delay,
            took: last.took.or(decided.took),
            usage: last.usage,
            opened: last.opened || decided.opened,
            gave_up: last.gave_up.or(gave_up),
            ..decided
        };
        None
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
            if let Some(gave_up) = attempt.gave_up.filter(|gave_up| *gave_up != attempt.next) {
                write!(f, "{}, ", gave_up.as_str())?;
            }
            write!(f, "{})", attempt.next.as_str())?;
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
