//! Who waits for a turn, in the order in which they came. Pure, but for the wakers.

use std::task::Waker;

/// When a caller began to wait, counted over all budgets: of two that wait, one is always first, whichever budgets they wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn(pub(crate) u64);

impl Turn {
    /// Before all others: an attempt of a call that was admitted.
    pub(crate) const FIRST: Self = Self(0);
    /// After all others: who has not waited.
    pub(crate) const LAST: Self = Self(u64::MAX);
}

/// Those that wait for one budget, the first first.
#[derive(Debug, Default)]
pub(crate) struct Queue(Vec<(Turn, Waker)>);

impl Queue {
    /// Whether somebody else comes before.
    #[inline]
    pub(crate) fn comes_before(&self, turn: Turn) -> bool {
        self.0.first().is_some_and(|(first, _)| *first < turn)
    }

    /// Takes a place, or keeps it and is woken by another waker from now on. `false` when there are `most` already.
    pub(crate) fn wait(&mut self, turn: Turn, waker: &Waker, most: usize) -> bool {
        match self.0.binary_search_by_key(&turn, |(turn, _)| *turn) {
            Ok(place) => self.0[place].1.clone_from(waker),
            Err(_) if self.0.len() >= most => return false,
            Err(place) => self.0.insert(place, (turn, waker.clone())),
        }
        true
    }

    /// Gives a place up.
    pub(crate) fn leave(&mut self, turn: Turn) {
        if let Ok(place) = self.0.binary_search_by_key(&turn, |(turn, _)| *turn) {
            self.0.remove(place);
        }
    }

    /// Whoever is first, to be woken when something has come free or one before it has left.
    #[inline]
    pub(crate) fn first(&self) -> Option<Waker> {
        self.0.first().map(|(_, waker)| waker.clone())
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
            assert!(queue.wait(Turn(turn), Waker::noop(), 3));
        }
        assert!(queue.wait(Turn(2), Waker::noop(), 3), "it keeps its place");
        assert!(!queue.wait(Turn(4), Waker::noop(), 3));
        assert!(
            !queue.comes_before(Turn(1)) && queue.comes_before(Turn(2)) && queue.comes_before(Turn::LAST)
        );
        assert!(!queue.comes_before(Turn::FIRST));
        queue.leave(Turn(1));
        queue.leave(Turn(1));
        assert!(!queue.comes_before(Turn(2)) && queue.comes_before(Turn(3)));
        assert_eq!(queue.len(), 2);
    }
}
