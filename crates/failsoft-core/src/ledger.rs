//! Usage slots: tokens that add up over the scopes of a call, whatever is dropped when.
//!
//! Whoever reads an answer opens a [`Slot`] for its attempt and sets what it learns; the slot closes when it drops and adds
//! its last value to its scope and to every scope around it. A budget holds a [`Closer`] on its own scope: it is told the
//! sum once the closer is dropped and no slot below is open, and later whatever comes after that.
//!
//! ```
//! use std::sync::{Arc, Mutex};
//! use failsoft_core::{Call, Closing, Usage};
//!
//! let tokens = |output| Usage { output: Some(output), ..Usage::default() };
//! let settled = Arc::new(Mutex::new(Vec::new()));
//! let seen = Arc::clone(&settled);
//!
//! let session = Call::begin();
//! let closer = session.closer(move |closing| seen.lock().unwrap().push(closing));
//! let (mut failed, mut good) = session.enter(|| (Call::slot().unwrap(), Call::slot().unwrap()));
//! failed.set(&tokens(3));
//! drop(failed);
//! good.set(&tokens(1));
//! drop(closer); // the budget's own guard is gone, one body still runs
//! assert!(settled.lock().unwrap().is_empty());
//! good.set(&tokens(5)); // cumulative counts: the last value wins
//! drop(good);
//! assert_eq!(*settled.lock().unwrap(), [Closing::Settled { usage: tokens(8), unknown: 0 }]);
//! ```

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{Call, Usage};

/// What a scope's [`Closer`] is told. Each is told exactly once; with several threads, a `Late` may overtake the
/// `Settled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// The closer is gone and no slot is open.
    Settled {
        /// What all attempts used.
        usage: Usage,
        /// How many attempts ended without saying what they used.
        unknown: u32,
    },
    /// An attempt that ended after the scope had settled used this much more.
    Late {
        /// What that attempt used.
        usage: Usage,
    },
}

type OnClose = Arc<dyn Fn(Closing) + Send + Sync>;

/// The sum of one scope.
#[derive(Default)]
pub(crate) struct Ledger(Mutex<Sum>);

#[derive(Default)]
struct Sum {
    usage: Usage,
    unknown: u32,
    open: u32,
    closers: Vec<(OnClose, State)>,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Held,
    /// The closer is gone, slots are open.
    Waiting,
    Settled,
}

impl Ledger {
    pub(crate) fn usage(&self) -> Usage {
        self.with(|sum| sum.usage)
    }

    fn open(&self) {
        self.with(|sum| sum.open = sum.open.saturating_add(1));
    }

    fn close(&self, usage: Usage) {
        let tell = self.with(|sum| {
            sum.usage += usage;
            sum.unknown = sum.unknown.saturating_add(u32::from(usage.is_unknown()));
            sum.open = sum.open.saturating_sub(1);
            let late = sum.closers.iter().filter(|(_, state)| *state == State::Settled);
            let late: Vec<_> =
                late.map(|(on_close, _)| (Arc::clone(on_close), Closing::Late { usage })).collect();
            late.into_iter().chain(sum.settle()).collect::<Vec<_>>()
        });
        // Outside the lock: a budget may ask this ledger.
        tell.into_iter().for_each(|(on_close, closing)| on_close(closing));
    }

    /// The closer's place among the scope's.
    fn hold(&self, on_close: OnClose) -> usize {
        self.with(|sum| {
            sum.closers.push((on_close, State::Held));
            sum.closers.len() - 1
        })
    }

    fn release(&self, closer: usize) {
        let tell = self.with(|sum| {
            if let Some((_, state @ State::Held)) = sum.closers.get_mut(closer) {
                *state = State::Waiting;
            }
            sum.settle()
        });
        tell.into_iter().for_each(|(on_close, closing)| on_close(closing));
    }

    fn with<R>(&self, f: impl FnOnce(&mut Sum) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Sum {
    /// Settles the closers that are gone, once no slot is open.
    fn settle(&mut self) -> Vec<(OnClose, Closing)> {
        if self.open > 0 {
            return Vec::new();
        }
        let closing = Closing::Settled { usage: self.usage, unknown: self.unknown };
        let waiting = self.closers.iter_mut().filter(|(_, state)| *state == State::Waiting);
        waiting
            .map(|(on_close, state)| {
                *state = State::Settled;
                (Arc::clone(on_close), closing)
            })
            .collect()
    }
}

/// Where one attempt's usage is set. It closes when it drops, and adds its last value to its scope and all around it.
#[must_use = "it closes as soon as it drops"]
pub struct Slot {
    call: Call,
    usage: Usage,
}

impl Slot {
    /// Sets what is known now: of each bucket the last value wins.
    pub fn set(&mut self, usage: &Usage) {
        self.usage.set(usage);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.call.each_scope(|ledger| ledger.close(self.usage));
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("usage", &self.usage).finish_non_exhaustive()
    }
}

/// A budget's guard on its own scope, made by [`Call::closer`].
#[must_use = "the scope settles as soon as it drops and no slot is open"]
pub struct Closer {
    call: Call,
    place: usize,
}

impl Drop for Closer {
    fn drop(&mut self) {
        self.call.ledger().release(self.place);
    }
}

impl fmt::Debug for Closer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closer").finish_non_exhaustive()
    }
}

impl Call {
    /// Opens a slot for one attempt in the current call. `None` where no call is current: nobody adds up.
    ///
    /// Inside a [`Deferred`](crate::Deferred) scope nothing is made real for it: the slot belongs to the call around.
    #[must_use]
    pub fn slot() -> Option<Slot> {
        let call = Self::current()?;
        call.each_scope(Ledger::open);
        Some(Slot { call, usage: Usage::default() })
    }

    /// What the attempts below this scope used, as far as they are over.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.ledger().usage()
    }

    /// Calls `on_close` when the closer is dropped and no slot of this scope is open, and again for what comes late.
    /// Several closers of one scope are told each for itself.
    pub fn closer(&self, on_close: impl Fn(Closing) + Send + Sync + 'static) -> Closer {
        let place = self.ledger().hold(Arc::new(on_close));
        Closer { call: self.clone(), place }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Told = Arc<Mutex<Vec<Closing>>>;

    fn tokens(output: u64) -> Usage {
        Usage { output: Some(output), ..Usage::default() }
    }

    fn told(call: &Call) -> (Closer, Told) {
        let told = Told::default();
        let push = Arc::clone(&told);
        (call.closer(move |closing| push.lock().unwrap().push(closing)), told)
    }

    fn attempt(call: &Call, usage: Option<u64>) -> Slot {
        let mut slot = call.enter(Call::slot).expect("a call is current");
        if let Some(output) = usage {
            slot.set(&tokens(output));
        }
        slot
    }

    #[test]
    fn two_failed_attempts_a_dropped_hedge_loser_and_a_good_one_add_up_and_settle_once() {
        let call = Call::begin();
        let (closer, told) = told(&call);
        drop(attempt(&call, Some(3)));
        drop(attempt(&call, Some(4)));
        let (loser, winner) = call.enter(|| (Call::begin(), Call::begin()));
        let (loser, winner) = (attempt(&loser, Some(1)), attempt(&winner, Some(10)));
        drop(loser);
        drop(closer);
        assert!(told.lock().unwrap().is_empty());
        // Another task reads the body.
        std::thread::spawn(move || drop(winner)).join().unwrap();
        assert_eq!(*told.lock().unwrap(), [Closing::Settled { usage: tokens(18), unknown: 0 }]);
        assert_eq!(call.usage(), tokens(18));
    }

    #[test]
    fn nested_budgets_each_settle_their_own_scope() {
        let outer = Call::begin();
        let inner = outer.enter(Call::begin);
        let (outer_closer, outer_told) = told(&outer);
        let (inner_closer, inner_told) = told(&inner);
        drop(attempt(&inner, Some(5)));
        drop(inner_closer);
        drop(attempt(&outer, Some(2)));
        drop(outer_closer);
        assert_eq!(*inner_told.lock().unwrap(), [Closing::Settled { usage: tokens(5), unknown: 0 }]);
        assert_eq!(*outer_told.lock().unwrap(), [Closing::Settled { usage: tokens(7), unknown: 0 }]);
    }

    #[test]
    fn what_comes_after_the_settling_is_told_late() {
        let call = Call::begin();
        let (closer, told) = told(&call);
        drop(closer);
        drop(attempt(&call, Some(6)));
        let all = told.lock().unwrap().clone();
        let none = Closing::Settled { usage: Usage::default(), unknown: 0 };
        assert_eq!(all, [none, Closing::Late { usage: tokens(6) }]);
    }

    #[test]
    fn an_attempt_that_says_nothing_is_counted_as_unknown() {
        let call = Call::begin();
        let (closer, told) = told(&call);
        drop(attempt(&call, None));
        drop(closer);
        assert_eq!(*told.lock().unwrap(), [Closing::Settled { usage: Usage::default(), unknown: 1 }]);
    }

    #[test]
    fn an_isolated_call_adds_nothing_to_the_one_around_it() {
        let outer = Call::begin();
        let inner = outer.enter(|| Call::options().isolated().begin());
        drop(attempt(&inner, Some(5)));
        assert_eq!((inner.usage(), outer.usage()), (tokens(5), Usage::default()));
    }

    #[test]
    fn a_second_closer_takes_nothing_from_the_first() {
        let call = Call::begin();
        let (first, first_told) = told(&call);
        let (second, second_told) = told(&call);
        drop(second);
        drop(attempt(&call, Some(2)));
        drop(first);
        let late =
            [Closing::Settled { usage: Usage::default(), unknown: 0 }, Closing::Late { usage: tokens(2) }];
        assert_eq!(*second_told.lock().unwrap(), late);
        assert_eq!(*first_told.lock().unwrap(), [Closing::Settled { usage: tokens(2), unknown: 0 }]);
    }

    #[test]
    fn many_threads_settle_exactly_once_with_the_whole_sum() {
        for _ in 0..200 {
            let call = Call::begin();
            let (closer, told) = told(&call);
            let slots: Vec<_> = (0..4).map(|_| attempt(&call, Some(1))).collect();
            let threads: Vec<_> =
                slots.into_iter().map(|slot| std::thread::spawn(move || drop(slot))).collect();
            drop(closer);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(*told.lock().unwrap(), [Closing::Settled { usage: tokens(4), unknown: 0 }]);
        }
    }
}
