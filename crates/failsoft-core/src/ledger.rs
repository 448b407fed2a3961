//! Usage slots: tokens that add up over the scopes of a call, whatever is dropped when.
//!
//! Whoever reads an answer opens a [`Slot`] for its attempt and sets what it learns; the slot closes when it drops and adds
//! its last value to its scope and to every scope around it. A budget begins the call with its [`Reservation`](crate::Reservation), which is told the
//! sum once the budget's own guard is dropped and no slot below is open, and later whatever comes after that.
//!
//! ```
//! use std::sync::{Arc, Mutex};
//! use failsoft_core::{Call, Closing, Reservation, Usage};
//!
//! #[derive(Clone, Default)]
//! struct Unlimited(Arc<Mutex<Vec<Closing>>>);
//!
//! impl Reservation for Unlimited {
//!     fn reserve(&self) -> bool { true }
//!     fn release(&self) {}
//!     fn close(&self, closing: Closing) { self.0.lock().unwrap().push(closing); }
//! }
//!
//! let tokens = |output| Usage { output: Some(output), ..Usage::default() };
//! let told = Unlimited::default();
//! let reserved = Call::options().reserving(told.clone());
//! let (mut failed, mut good) = reserved.call().enter(|| (Call::slot().unwrap(), Call::slot().unwrap()));
//! failed.set(&tokens(3));
//! drop(failed);
//! good.set(&tokens(1));
//! drop(reserved); // the budget's own guard is gone, one body still runs
//! assert!(told.0.lock().unwrap().is_empty());
//! good.set(&tokens(5)); // cumulative counts: the last value wins
//! drop(good);
//! assert_eq!(*told.0.lock().unwrap(), [Closing::Settled { usage: tokens(8), unknown: 0 }]);
//! ```

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{Call, Class, Usage};

/// What a call's [`Reservation`](crate::Reservation) is told. Each is told exactly once; with several threads, a `Late` may overtake the
/// `Settled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// The budget's guard is gone and no slot is open.
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

/// One attempt that is over, as whoever read its answer knew it: what a [`Slot`] was told.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Attempted<'a> {
    /// What it used.
    pub usage: &'a Usage,
    /// The target's name, where it has one.
    pub target: Option<&'a Arc<str>>,
    /// What its outcome meant. `None` where nobody said: it was dropped before its end, or its reader does not know.
    pub class: Option<Class>,
}

/// The sum of one scope.
#[derive(Default)]
pub(crate) struct Ledger(Mutex<Sum>);

#[derive(Default)]
struct Sum {
    usage: Usage,
    unknown: u32,
    open: u32,
    /// Whether there ever was a slot: without one, all the rest is as it was made.
    was_opened: bool,
    /// There was more than one.
    has_many: bool,
    /// The sum is what was seen of the one attempt, which itself said nothing.
    is_seen: bool,
    state: State,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum State {
    /// No budget wants to know.
    #[default]
    Free,
    Held,
    /// The budget's guard is gone, slots are open.
    Waiting,
    Settled,
}

impl Ledger {
    /// Of a scope in which a budget has reserved something.
    pub(crate) fn held() -> Self {
        Self(Mutex::new(Sum { state: State::Held, ..Sum::default() }))
    }

    /// The budget's guard is gone, and nobody else has the scope: no slot is open. What is given is to be told, once.
    #[inline]
    pub(crate) fn release_alone(&mut self) -> Option<(&Usage, u32)> {
        let sum = self.sum();
        let held = std::mem::replace(&mut sum.state, State::Settled) == State::Held;
        held.then_some((&sum.usage, sum.unknown))
    }

    /// As [`held`](Self::held), for another call.
    #[inline]
    pub(crate) fn hold_again(&mut self) {
        let sum = self.sum();
        sum.state = State::Held;
        if sum.was_opened {
            *sum = Sum { state: State::Held, ..Sum::default() };
        }
    }

    #[inline]
    fn sum(&mut self) -> &mut Sum {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn usage(&self) -> Usage {
        self.with(|sum| sum.usage)
    }

    fn open(&self) {
        self.with(|sum| {
            sum.open = sum.open.saturating_add(1);
            sum.has_many |= std::mem::replace(&mut sum.was_opened, true);
            if std::mem::take(&mut sum.is_seen) {
                // Beside others it is unknown: nobody could tell whose prompt is missing in the sum.
                (sum.usage, sum.unknown) = (Usage::default(), 1);
            }
        });
    }

    /// Adds what an attempt used, or what was seen of it. What is given back is to be told when nothing is locked.
    fn close(&self, usage: Usage, seen: u64) -> Option<Closing> {
        self.with(|sum| {
            let says_nothing = usage.is_unknown() && seen > 0;
            let usage = match says_nothing && (!sum.has_many || sum.state == State::Settled) {
                true => Usage { output: Some(seen), ..usage },
                false => usage,
            };
            sum.is_seen = says_nothing && !sum.has_many;
            sum.usage += usage;
            sum.unknown = sum.unknown.saturating_add(u32::from(usage.is_unknown()));
            sum.open = sum.open.saturating_sub(1);
            match sum.state {
                State::Settled => Some(Closing::Late { usage }),
                _ => sum.settle(),
            }
        })
    }

    /// The budget's guard is gone. What is given back is to be told when nothing is locked.
    pub(crate) fn release(&self) -> Option<Closing> {
        self.with(|sum| {
            if sum.state == State::Held {
                sum.state = State::Waiting;
            }
            sum.settle()
        })
    }

    fn with<R>(&self, f: impl FnOnce(&mut Sum) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Sum {
    /// Settles once no slot is open.
    fn settle(&mut self) -> Option<Closing> {
        (self.state == State::Waiting && self.open == 0).then(|| {
            self.state = State::Settled;
            Closing::Settled { usage: self.usage, unknown: self.unknown }
        })
    }
}

/// Where one attempt's usage is set. It closes when it drops, and adds its last value to its scope and all around it.
#[must_use = "it closes as soon as it drops"]
pub struct Slot {
    call: Call,
    usage: Usage,
    target: Option<Arc<str>>,
    class: Option<Class>,
    seen: u64,
}

impl Slot {
    /// Sets what is known now: of each bucket the last value wins.
    pub fn set(&mut self, usage: &Usage) {
        self.usage.set(usage);
    }

    /// Says which target the attempt is on.
    pub fn on(&mut self, target: Option<Arc<str>>) {
        self.target = target;
    }

    /// Says what the outcome of the attempt meant. What is said last counts.
    pub const fn ended(&mut self, class: Class) {
        self.class = Some(class);
    }

    /// At least so many tokens of an answer were seen that did not come to its end. Where nothing else is [set](Self::set), and this is
    /// the only attempt of a call, they are the output that it used; beside other attempts it has said nothing.
    pub const fn saw(&mut self, output: u64) {
        self.seen = output;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Self { usage, seen, target, class, .. } = &*self;
        let attempted = Attempted { usage, target: target.as_ref(), class: *class };
        self.call.each_ledger(|ledger, reservation| {
            reservation.attempted(&attempted);
            if let Some(closing) = ledger.close(*usage, *seen) {
                reservation.close(closing);
            }
        });
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("usage", &self.usage).finish_non_exhaustive()
    }
}

impl Call {
    /// Opens a slot for one attempt in the current call. `None` where no call is current: nobody adds up.
    ///
    /// Inside a [`Deferred`](crate::Deferred) scope nothing is made real for it: the slot belongs to the call around.
    #[must_use]
    pub fn slot() -> Option<Slot> {
        let call = Self::current()?;
        call.each_ledger(|ledger, _| ledger.open());
        Some(Slot { call, usage: Usage::default(), seen: 0, target: None, class: None })
    }

    /// What the attempts below this scope used, as far as they are over.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.ledger().usage()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Next, Reservation, Reserved};

    type Told = Arc<Mutex<Vec<Closing>>>;

    /// Pays for as many further attempts as are left, and remembers what it is told.
    struct Paid {
        left: Mutex<u32>,
        told: Told,
    }

    impl Reservation for Paid {
        fn reserve(&self) -> bool {
            let mut left = self.left.lock().unwrap();
            let less = left.checked_sub(1);
            *left = less.unwrap_or(0);
            less.is_some()
        }

        fn release(&self) {
            *self.left.lock().unwrap() += 1;
        }

        fn close(&self, closing: Closing) {
            self.told.lock().unwrap().push(closing);
        }
    }

    fn tokens(output: u64) -> Usage {
        Usage { output: Some(output), ..Usage::default() }
    }

    fn paying(left: u32) -> (Reserved<Paid>, Told) {
        let told = Told::default();
        let paid = Paid { left: left.into(), told: Arc::clone(&told) };
        (Call::options().reserving(paid), told)
    }

    /// A call that is told of what it used.
    fn call() -> (Call, Reserved<Paid>, Told) {
        let (reserved, told) = paying(0);
        (reserved.call(), reserved, told)
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
        let (call, closer, told) = call();
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
    fn each_attempt_is_told_to_every_budget_around_before_the_sum_is() {
        #[derive(Clone, Default)]
        struct Keeps(Arc<Mutex<Vec<String>>>);

        impl Reservation for Keeps {
            fn reserve(&self) -> bool {
                true
            }

            fn release(&self) {}

            fn attempted(&self, attempted: &Attempted<'_>) {
                let Attempted { usage, target, class } = *attempted;
                let class = class.map(Class::as_str);
                self.0.lock().unwrap().push(format!("{:?} {target:?} {class:?}", usage.output));
            }

            fn close(&self, _: Closing) {
                self.0.lock().unwrap().push("closed".to_owned());
            }
        }

        let (outer, inner) = (Keeps::default(), Keeps::default());
        let around = Call::options().reserving(outer.clone());
        let reserved = around.call().enter(|| Call::options().reserving(inner.clone()));
        let mut slot = attempt(&reserved.call(), Some(3));
        slot.on(Some("a".into()));
        slot.ended(Class::Overloaded);
        drop(slot);
        drop(attempt(&reserved.call(), None));
        drop(reserved);
        drop(around);
        let told = [r#"Some(3) Some("a") Some("overloaded")"#, "None None None", "closed"];
        assert_eq!(
            (&*outer.0.lock().unwrap(), &*inner.0.lock().unwrap()),
            (&told.map(String::from).to_vec(), &told.map(String::from).to_vec())
        );
    }

    #[test]
    fn nested_budgets_each_settle_their_own_scope() {
        let (outer, outer_closer, outer_told) = call();
        let (inner, inner_closer, inner_told) = outer.enter(call);
        drop(attempt(&inner, Some(5)));
        drop(inner_closer);
        drop(attempt(&outer, Some(2)));
        drop(outer_closer);
        assert_eq!(*inner_told.lock().unwrap(), [Closing::Settled { usage: tokens(5), unknown: 0 }]);
        assert_eq!(*outer_told.lock().unwrap(), [Closing::Settled { usage: tokens(7), unknown: 0 }]);
    }

    #[test]
    fn what_comes_after_the_settling_is_told_late() {
        let (call, closer, told) = call();
        drop(closer);
        drop(attempt(&call, Some(6)));
        let all = told.lock().unwrap().clone();
        let none = Closing::Settled { usage: Usage::default(), unknown: 0 };
        assert_eq!(all, [none, Closing::Late { usage: tokens(6) }]);
    }

    #[test]
    fn an_attempt_that_says_nothing_is_counted_as_unknown() {
        let (call, closer, told) = call();
        drop(attempt(&call, None));
        drop(closer);
        assert_eq!(*told.lock().unwrap(), [Closing::Settled { usage: Usage::default(), unknown: 1 }]);
    }

    #[test]
    fn what_was_seen_of_an_answer_that_was_cut_counts_for_the_only_attempt_and_is_unknown_beside_others() {
        let seen = |call: &Call| {
            let mut slot = attempt(call, None);
            slot.saw(7);
            slot
        };
        let settled = |usage, unknown| [Closing::Settled { usage, unknown }];
        let (call, closer, told) = call();
        drop(seen(&call));
        drop(closer);
        assert_eq!(*told.lock().unwrap(), settled(tokens(7), 0));
        let (call, closer, told) = self::call();
        let mut slot = seen(&call);
        slot.set(&tokens(3));
        drop((slot, closer));
        assert_eq!(*told.lock().unwrap(), settled(tokens(3), 0), "what was said counts");
        // Before another, after another, and at the same time.
        let (call, closer, told) = self::call();
        drop(seen(&call));
        drop(attempt(&call, Some(5)));
        drop(closer);
        assert_eq!(*told.lock().unwrap(), settled(tokens(5), 1));
        let (call, closer, told) = self::call();
        drop(attempt(&call, Some(5)));
        drop(seen(&call));
        drop(closer);
        assert_eq!(*told.lock().unwrap(), settled(tokens(5), 1));
        let (call, closer, told) = self::call();
        drop((seen(&call), seen(&call), closer));
        assert_eq!(*told.lock().unwrap(), settled(Usage::default(), 2));
        drop(seen(&call));
        assert_eq!(told.lock().unwrap().last(), Some(&Closing::Late { usage: tokens(7) }));
    }

    #[test]
    fn an_isolated_call_adds_nothing_to_the_one_around_it() {
        let outer = Call::begin();
        let inner = outer.enter(|| Call::options().isolated().begin());
        drop(attempt(&inner, Some(5)));
        assert_eq!((inner.usage(), outer.usage()), (tokens(5), Usage::default()));
    }

    #[test]
    fn each_further_attempt_is_paid_by_every_budget_around_or_by_none() {
        let (outer, _) = paying(1);
        let (inner, _) = outer.call().enter(|| paying(2));
        let left = || (*outer.left.lock().unwrap(), *inner.left.lock().unwrap());
        inner.call().enter(|| {
            let unsent = Call::take_retry().unwrap();
            assert_eq!(left(), (0, 1));
            assert_eq!(Call::take_attempt(), Err(Next::SpendDenied));
            assert_eq!(left(), (0, 1), "what the inner one had reserved is given back");
            drop(unsent);
            assert_eq!(left(), (1, 2));
            Call::take_attempt().unwrap();
            Call::give_attempt_back();
            assert_eq!(left(), (1, 2));
            Call::take_retry().unwrap().sent();
            assert_eq!(Call::take_retry().unwrap_err(), Next::SpendDenied);
        });
        assert_eq!(
            (left(), outer.call().further_attempts(), inner.call().further_attempts()),
            ((0, 1), 1, 1)
        );
    }

    #[test]
    fn an_attempt_over_a_cap_is_not_paid_for() {
        let capped = Call::options().max_attempts(1).begin();
        let (inner, _) = capped.enter(|| paying(1));
        assert_eq!(inner.call().enter(Call::take_attempt), Err(Next::AttemptsSpent));
        assert_eq!((*inner.left.lock().unwrap(), inner.call().further_attempts()), (1, 0));
    }

    #[test]
    fn many_threads_settle_exactly_once_with_the_whole_sum() {
        for _ in 0..200 {
            let (call, closer, told) = call();
            let slots: Vec<_> = (0..4).map(|_| attempt(&call, Some(1))).collect();
            let threads: Vec<_> =
                slots.into_iter().map(|slot| std::thread::spawn(move || drop(slot))).collect();
            drop(closer);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(*told.lock().unwrap(), [Closing::Settled { usage: tokens(4), unknown: 0 }]);
        }
    }
}
