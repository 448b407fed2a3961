//! [`Health`]: how fit a target is to be asked now, for whoever chooses between targets.
//!
//! ```
//! use failsoft_core::{Condition, Health};
//!
//! struct Always(Condition);
//!
//! impl Health for Always {
//!     fn condition(&self) -> Condition { self.0 }
//! }
//!
//! assert!(Always(Condition::Poor).condition() > Always(Condition::Good).condition());
//! ```

use std::{sync::Arc, time::Duration};

/// How fit a target is to be asked. Ordered from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Condition {
    /// Nothing known against it.
    Good,
    /// Being tried again after trouble, or partly failing.
    Degraded,
    /// Ask others first.
    Poor,
}

/// How fit a target is now: a breaker's circuit, an active check, or the user's own knowledge.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not know the health of a target",
    note = "a breaker's circuit does: `.health(layer.circuit().clone())`"
)]
pub trait Health: Send + Sync {
    /// The condition now. Called for each choice, so it must be cheap and must not block.
    fn condition(&self) -> Condition;

    /// How long until a target in [`Condition::Poor`] is worth asking again, where that is known.
    fn recovers_in(&self) -> Option<Duration> {
        None
    }
}

impl<H: Health + ?Sized> Health for Arc<H> {
    fn condition(&self) -> Condition {
        (**self).condition()
    }

    fn recovers_in(&self) -> Option<Duration> {
        (**self).recovers_in()
    }
}

/// The worse of two: what a circuit has learnt from calls, and what active checks say.
impl<A: Health, B: Health> Health for (A, B) {
    fn condition(&self) -> Condition {
        self.0.condition().max(self.1.condition())
    }

    /// When both have recovered; `None` when one that is poor does not say.
    fn recovers_in(&self) -> Option<Duration> {
        let in_time = |health: &dyn Health| match health.condition() {
            Condition::Poor => health.recovers_in(),
            Condition::Good | Condition::Degraded => Some(Duration::ZERO),
        };
        Some(in_time(&self.0)?.max(in_time(&self.1)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Is(Condition, Option<u64>);

    impl Health for Is {
        fn condition(&self) -> Condition {
            self.0
        }

        fn recovers_in(&self) -> Option<Duration> {
            self.1.map(Duration::from_secs)
        }
    }

    #[test]
    fn of_a_pair_the_worse_counts_and_the_later_recovery() {
        use Condition::{Degraded, Good, Poor};
        let secs = |secs| Some(Duration::from_secs(secs));
        assert_eq!((Is(Good, None), Is(Degraded, None)).condition(), Degraded);
        let one = (Is(Good, Some(90)), Is(Poor, Some(9)));
        assert_eq!((one.condition(), one.recovers_in()), (Poor, secs(9)));
        assert_eq!((Is(Poor, Some(30)), Is(Poor, Some(9))).recovers_in(), secs(30));
        assert_eq!((Is(Poor, None), Is(Poor, Some(9))).recovers_in(), None);
    }
}
