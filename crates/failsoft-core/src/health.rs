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
