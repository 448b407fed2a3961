//! A place for each thread, where it may count without taking turns with others.

#[cfg(failsoft_loom)]
use loom::sync::atomic::AtomicU32;
#[cfg(not(failsoft_loom))]
use std::cell::Cell;
#[cfg(not(failsoft_loom))]
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// So many threads have one at a time; the others share what everybody may write.
#[cfg(not(failsoft_loom))]
pub(super) const PLACES: usize = u32::BITS as usize;
#[cfg(failsoft_loom)]
pub(super) const PLACES: usize = 2;

/// The place of one thread, for as long as it lives; or none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place(u32);

impl Place {
    pub(super) const NONE: Self = Self(PLACES as u32);
    /// The thread has not asked yet.
    #[cfg(not(failsoft_loom))]
    const UNKNOWN: Self = Self(u32::MAX);
    #[cfg(failsoft_loom)]
    pub(super) const FIRST: Self = Self(0);

    /// At [`PLACES`] where there is none.
    #[inline]
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }

    /// That of this thread.
    #[cfg(not(failsoft_loom))]
    #[inline]
    pub(super) fn of_thread() -> Self {
        let own = Self(OWN.get());
        if own == Self::UNKNOWN { Self::take() } else { own }
    }

    #[cfg(failsoft_loom)]
    pub(super) const fn of_thread() -> Self {
        Self::NONE
    }

    #[cfg(not(failsoft_loom))]
    #[cold]
    fn take() -> Self {
        // While the thread ends there is none any more.
        let place = HELD.try_with(|held| held.0).unwrap_or(Self::NONE);
        OWN.set(place.0);
        place
    }
}

/// Which places are taken, a bit each.
#[derive(Debug)]
pub(super) struct Places(AtomicU32);

impl Places {
    #[cfg(not(failsoft_loom))]
    const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    #[cfg(failsoft_loom)]
    pub(super) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// The lowest that is free. Who had it before has written his last there, and that is seen.
    pub(super) fn take(&self) -> Place {
        let lowest = |taken: u32| {
            let free = taken.trailing_ones();
            (free < PLACES as u32).then(|| taken | (1 << free))
        };
        let taken = self.0.fetch_update(Acquire, Relaxed, lowest);
        taken.map_or(Place::NONE, |before| Place(before.trailing_ones()))
    }

    pub(super) fn give_back(&self, place: Place) {
        if place != Place::NONE {
            self.0.fetch_and(!(1 << place.0), Release);
        }
    }
}

#[cfg(not(failsoft_loom))]
static ALL: Places = Places::new();

#[cfg(not(failsoft_loom))]
thread_local! {
    // Apart from what gives it back: a variable with nothing to drop costs a load.
    static OWN: Cell<u32> = const { Cell::new(Place::UNKNOWN.0) };
    static HELD: Held = Held(ALL.take());
}

/// Gives the place back when the thread ends.
#[cfg(not(failsoft_loom))]
struct Held(Place);

#[cfg(not(failsoft_loom))]
impl Drop for Held {
    fn drop(&mut self) {
        OWN.set(Place::NONE.0);
        ALL.give_back(self.0);
    }
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use std::{sync::Barrier, thread};

    use super::*;

    #[test]
    fn threads_at_work_have_places_of_their_own_and_too_many_have_none() {
        let places = Places::new();
        let taken: Vec<_> = (0..PLACES + 2).map(|_| places.take()).collect();
        assert!(taken[..PLACES].iter().enumerate().all(|(i, place)| place.index() == i));
        assert_eq!(taken[PLACES..], [Place::NONE; 2]);
        places.give_back(Place::NONE);
        places.give_back(taken[7]);
        assert_eq!((places.take(), places.take()), (taken[7], Place::NONE));
    }

    #[test]
    fn a_thread_keeps_its_place_and_leaves_it_when_it_ends() {
        // More than there are, one after the other.
        for _ in 0..3 * PLACES {
            let [first, again] = thread::spawn(|| [(); 2].map(|()| Place::of_thread())).join().unwrap();
            assert!(first == again);
        }
        let both = Barrier::new(2);
        let places = thread::scope(|scope| {
            let two = [(); 2].map(|()| {
                scope.spawn(|| {
                    let place = Place::of_thread();
                    both.wait();
                    place
                })
            });
            two.map(|thread| thread.join().unwrap())
        });
        assert!(places[0] != places[1] || places[0] == Place::NONE);
    }
}
