//! Who waits for a turn, in the order in which they came. Pure, but for the wakers.

use std::{collections::BTreeMap, task::Waker};

/// When a caller began to wait, counted over all budgets: of two that wait, one is always first, whichever budgets they wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn(pub(crate) u64);

impl Turn {
    /// Before all others: an attempt of a call that was admitted.
    pub(crate) const FIRST: Self = Self(0);
    /// After all others: who has not waited.
    pub(crate) const LAST: Self = Self(u64::MAX);
}

/// Those that wait for one budget, the first first. Whoever comes or goes takes the logarithm of their number.
#[derive(Debug, Default)]
pub(crate) struct Queue(BTreeMap<Turn, Waiting>);

#[derive(Debug)]
struct Waiting {
    waker: Waker,
    needs: u64,
}

impl Queue {
    /// Whether somebody else comes before.
    #[inline]
    pub(crate) fn comes_before(&self, turn: Turn) -> bool {
        self.0.first_key_value().is_some_and(|(first, _)| *first < turn)
    }

    /// Takes a place, or keeps it and is woken by another waker from now on. `false` when there are `most` already.
    pub(crate) fn wait(&mut self, turn: Turn, waker: &Waker, needs: u64, most: usize) -> bool {
        if let Some(waiting) = self.0.get_mut(&turn) {
            waiting.waker.clone_from(waker);
            waiting.needs = needs;
            return true;
        }
        let has_room = self.0.len() < most;
        if has_room {
            self.0.insert(turn, Waiting { waker: waker.clone(), needs });
        }
        has_room
    }

    /// Gives a place up.
    pub(crate) fn leave(&mut self, turn: Turn) {
        self.0.remove(&turn);
    }

    /// Whoever is first, to be woken when something has come free or one before it has left.
    #[inline]
    pub(crate) fn first(&self) -> Option<Waker> {
        self.0.first_key_value().map(|(_, waiting)| waiting.waker.clone())
    }

    /// What all of them need. This looks at each.
    pub(crate) fn needs(&self) -> u64 {
        self.0.values().fold(0, |sum, waiting| sum.saturating_add(waiting.needs))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use super::*;

    #[test]
    fn they_stand_in_the_order_in_which_they_came_and_whoever_leaves_lets_the_next_be_first() {
        let mut queue = Queue::default();
        for turn in [2, 1, 3] {
            assert!(queue.wait(Turn(turn), Waker::noop(), 5, 3));
        }
        assert!(queue.wait(Turn(2), Waker::noop(), 7, 3), "it keeps its place");
        assert!(!queue.wait(Turn(4), Waker::noop(), 5, 3));
        assert!(
            !queue.comes_before(Turn(1)) && queue.comes_before(Turn(2)) && queue.comes_before(Turn::LAST)
        );
        assert!(!queue.comes_before(Turn::FIRST));
        queue.leave(Turn(1));
        queue.leave(Turn(1));
        assert!(!queue.comes_before(Turn(2)) && queue.comes_before(Turn(3)));
        assert_eq!((queue.len(), queue.needs()), (2, 12));
    }
}
