//! What a call holds of its layer, without counting it up and down each time. For Failsoft's own layers.
//!
//! A future cannot borrow from its service, so each call needs a reference of its own. To count it is two atomic steps on one cache
//! line, which threads that share a layer take from each other: several times the price of all the rest. So a thread keeps the
//! reference of a call that ended and lends it to its next call through the same layer.
//!
//! A few layers a thread live a little longer than they would, until others take their places.

use std::{
    cell::Cell,
    fmt,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// How many references of one kind a thread keeps; each layer has one place that its own can be in.
const PLACES: usize = 4;

/// What can be lent: the part of a layer that its calls share.
pub trait Lend: Sized + 'static {
    /// Where a thread keeps a reference to it.
    fn place(&self) -> Place;

    /// Whether a thread may keep one: not where what it holds must go with the layer.
    fn may_be_kept(&self) -> bool {
        true
    }

    /// Works with what this thread keeps, a thread-local [`Kept`]; `None` where the thread is ending.
    fn with_kept<T>(f: impl FnOnce(&Kept<Self>) -> T) -> Option<T>;
}

/// The place of one layer, which it takes when it is made.
#[derive(Clone, Copy, Debug)]
pub struct Place(usize);

impl Place {
    /// In turn, so that the layers of one program have different ones where there are few.
    #[must_use]
    pub fn next() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Self(NEXT.fetch_add(1, Relaxed))
    }
}

/// What a thread keeps.
pub struct Kept<T>([Cell<Option<Arc<T>>>; PLACES]);

impl<T> Kept<T> {
    /// Nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self([const { Cell::new(None) }; PLACES])
    }

    #[inline(always)]
    fn at(&self, Place(place): Place) -> &Cell<Option<Arc<T>>> {
        &self.0[place % PLACES]
    }
}

/// A reference for one call. It is there until it drops, or is given back or taken elsewhere.
pub struct Lent<T: Lend>(Option<Arc<T>>);

impl<T: Lend> Lent<T> {
    /// The one that this thread has kept, or one that is counted.
    #[inline(always)]
    pub fn of(shared: &Arc<T>) -> Self {
        match T::with_kept(|kept| kept.at(shared.place()).take()).flatten() {
            Some(kept) if Arc::ptr_eq(&kept, shared) => Self(Some(kept)),
            other => Self::counted(shared, other),
        }
    }

    #[cold]
    fn counted(shared: &Arc<T>, other: Option<Arc<T>>) -> Self {
        // Of another layer that has the same place: the one that is called last has it.
        drop(other);
        Self(Some(Arc::clone(shared)))
    }

    /// A reference that is counted.
    #[must_use]
    pub fn to_counted(&self) -> Option<Arc<T>> {
        self.0.clone()
    }

    /// The reference itself; it is not lent any more.
    #[must_use]
    pub fn into_counted(mut self) -> Option<Arc<T>> {
        self.0.take()
    }

    /// Takes it to another place, for a while: it must come back before anything looks at it here.
    #[inline(always)]
    #[must_use]
    pub const fn take(&mut self) -> Self {
        Self(self.0.take())
    }

    /// Whether it was not [taken](Self::take).
    #[inline(always)]
    pub const fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// None, as after a [`take`](Self::take).
    #[must_use]
    pub const fn none() -> Self {
        Self(None)
    }

    /// The call is over: gives it back to the thread, as its drop does, but in line. Nothing may look at it any more.
    #[inline(always)]
    pub fn give_back(&mut self) {
        let Some(shared) = &self.0 else { return };
        if shared.may_be_kept() {
            let place = shared.place();
            // Taken from where it lies. Where the thread is ending already, it is only counted down.
            T::with_kept(|kept| {
                if let Some(other) = kept.at(place).replace(self.0.take()) {
                    Self::let_go(other);
                }
            });
        }
    }

    /// Another call through the layer has ended since.
    #[cold]
    fn let_go(other: Arc<T>) {
        drop(other);
    }

    #[cold]
    fn dropped(&mut self) {
        self.give_back();
    }
}

impl<T: Lend> Deref for Lent<T> {
    type Target = T;

    #[inline]
    #[allow(clippy::expect_used, reason = "nobody looks at it where it was taken from")]
    fn deref(&self) -> &T {
        self.0.as_deref().expect("it is there until the call is over, or it is taken elsewhere")
    }
}

impl<T: Lend> Drop for Lent<T> {
    /// Most were given back before.
    #[inline]
    fn drop(&mut self) {
        if self.0.is_some() {
            self.dropped();
        }
    }
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Kept<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").finish_non_exhaustive()
    }
}

impl<T: Lend> fmt::Debug for Lent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Shared {
        place: Place,
        may_be_kept: bool,
    }

    thread_local! {
        static KEPT: Kept<Shared> = const { Kept::new() };
    }

    impl Lend for Shared {
        fn place(&self) -> Place {
            self.place
        }

        fn may_be_kept(&self) -> bool {
            self.may_be_kept
        }

        fn with_kept<T>(f: impl FnOnce(&Kept<Self>) -> T) -> Option<T> {
            KEPT.try_with(f).ok()
        }
    }

    fn shared(may_be_kept: bool) -> Arc<Shared> {
        Arc::new(Shared { place: Place::next(), may_be_kept })
    }

    #[test]
    fn the_next_call_of_a_thread_gets_what_the_last_one_held() {
        let shared = shared(true);
        drop(Lent::of(&shared));
        assert_eq!(Arc::strong_count(&shared), 2, "kept");
        let calls = (Lent::of(&shared), Lent::of(&shared));
        assert_eq!(Arc::strong_count(&shared), 3, "the first one was there, the second was counted");
        drop(calls);
        assert_eq!(Arc::strong_count(&shared), 2, "one is enough");
        std::thread::scope(|scope| scope.spawn(|| drop(Lent::of(&shared))).join().unwrap());
        assert_eq!(Arc::strong_count(&shared), 2, "a thread that ends keeps nothing");
    }

    #[test]
    fn of_many_layers_a_thread_keeps_a_few() {
        let all: Vec<_> = (0..100).map(|_| shared(true)).collect();
        all.iter().for_each(|shared| drop(Lent::of(shared)));
        let kept = all.iter().filter(|shared| Arc::strong_count(shared) > 1).count();
        assert!((1..=PLACES).contains(&kept), "{kept}");
    }

    #[test]
    fn what_must_go_with_its_layer_is_not_kept() {
        let shared = shared(false);
        drop(Lent::of(&shared));
        assert_eq!(Arc::strong_count(&shared), 1);
    }

    #[test]
    fn a_call_may_end_while_its_thread_does() {
        struct Late(Option<Lent<Shared>>);
        impl Drop for Late {
            fn drop(&mut self) {
                assert!(self.0.take().is_some_and(|call| call.may_be_kept));
            }
        }
        thread_local! {
            static LATE: Cell<Option<Late>> = const { Cell::new(None) };
        }
        let shared = shared(true);
        std::thread::scope(|scope| {
            let late = || {
                LATE.set(None);
                LATE.set(Some(Late(Some(Lent::of(&shared)))));
                drop(Lent::of(&shared));
            };
            scope.spawn(late).join().unwrap();
        });
        assert_eq!(Arc::strong_count(&shared), 1);
    }
}
