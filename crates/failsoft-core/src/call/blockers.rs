//! What inside of a retry may come to refuse calls, so that who waits to call again need not wait to be refused.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use super::{Call, Frame, with_frame};

/// So many are remembered of one attempt: the breakers inside each other, and those of its hedges.
const MAX_BLOCKERS: usize = 4;

/// What lets calls pass, or refuses them: a breaker's circuit.
pub trait Blocker: Send + Sync {
    /// Whether it refuses calls now, and will for a while. Must not block.
    fn refuses(&self) -> bool;

    /// From now on the next change wakes the task; under a key, which it sets where there is none yet.
    fn listen(&self, key: &mut Option<u64>, cx: &Context<'_>);

    /// Who has this key listens no longer.
    fn forget(&self, key: u64);
}

/// The blockers that an attempt went through, see [`Call::take_blockers`]; and who waits for one of them to refuse. Dropped, it waits no
/// longer.
#[derive(Default)]
pub struct Blockers(Vec<Listening>);

struct Listening {
    blocker: Arc<dyn Blocker>,
    key: Option<u64>,
}

impl Blockers {
    /// Ready when one of them refuses; else the task is woken when that may have changed. Never ready where there are none.
    pub fn poll_refused(&mut self, cx: &Context<'_>) -> Poll<()> {
        for Listening { blocker, key } in &mut self.0 {
            // Listens first and looks then: what changes in between is not missed.
            blocker.listen(key, cx);
            if blocker.refuses() {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn push(&mut self, blocker: Arc<dyn Blocker>) {
        let known = |other: &Listening| std::ptr::addr_eq(Arc::as_ptr(&other.blocker), Arc::as_ptr(&blocker));
        if !self.0.iter().any(known) {
            self.0.truncate(MAX_BLOCKERS - 1);
            self.0.insert(0, Listening { blocker, key: None });
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.blocker.forget(key);
        }
    }
}

impl fmt::Debug for Blockers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Blockers").field(&self.0.len()).finish()
    }
}

impl Call {
    /// Notes that an attempt of the current call came through a blocker and failed, for the retries around it, but not for those
    /// around a fallback, which has other ways. Does nothing, and makes nothing, where there is no such retry.
    pub fn record_blocker<G: Blocker + 'static>(blocker: impl FnOnce() -> Arc<G>) {
        let call =
            with_frame(|frame| frame.is_retrying().then(|| Frame::materialise(frame))).flatten().flatten();
        let Some(call) = call else { return };
        let blocker: Arc<dyn Blocker> = blocker();
        call.each_retrying(|call| call.with_own_notes(|notes| notes.blockers.push(Arc::clone(&blocker))));
    }

    /// The blockers that were noted in the current scope, which is a retry's own, since it asked last.
    #[must_use]
    pub fn take_blockers() -> Blockers {
        let take = |call: &Self| call.lock().as_mut().map(|notes| std::mem::take(&mut notes.blockers));
        with_frame(|frame| frame.innermost().and_then(take)).flatten().unwrap_or_default()
    }

    /// Whether a retry's scope is around, and no fallback between.
    pub(super) fn is_retrying(&self) -> bool {
        let mut found = false;
        self.each_retrying(|_| found = true);
        found
    }

    fn each_retrying(&self, mut visit: impl FnMut(&Self)) {
        let mut next = Some(self);
        while let Some(call) = next.filter(|call| !call.0.routing) {
            if call.0.retrying.is_own {
                visit(call);
            }
            next = call.0.parent.as_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        sync::{
            Mutex,
            atomic::{AtomicBool, Ordering},
        },
        task::Waker,
    };

    use super::*;
    use crate::Deferred;

    #[derive(Default)]
    struct Door {
        shut: AtomicBool,
        /// Somebody else shuts it just then.
        shuts_when_listened_to: bool,
        listening: Mutex<BTreeSet<u64>>,
    }

    impl Blocker for Door {
        fn refuses(&self) -> bool {
            self.shut.load(Ordering::SeqCst)
        }

        fn listen(&self, key: &mut Option<u64>, _: &Context<'_>) {
            let mut listening = self.listening.lock().unwrap();
            let next = listening.last().map_or(0, |last| last + 1);
            listening.insert(*key.get_or_insert(next));
            self.shut.fetch_or(self.shuts_when_listened_to, Ordering::SeqCst);
        }

        fn forget(&self, key: u64) {
            self.listening.lock().unwrap().remove(&key);
        }
    }

    fn refused(blockers: &mut Blockers) -> bool {
        blockers.poll_refused(&Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_retry_learns_of_the_blockers_of_its_attempt_once_and_one_that_shuts_is_enough() {
        let doors: [Arc<Door>; 2] = Default::default();
        let mut retry = Deferred::retrying(3);
        let mut blockers = retry.enter(|| {
            for _ in 0..9 {
                doors.iter().for_each(|door| Call::record_blocker(|| Arc::clone(door)));
            }
            let blockers = Call::take_blockers();
            assert!(Call::take_blockers().is_empty());
            blockers
        });
        assert!(!refused(&mut blockers) && !refused(&mut blockers));
        assert!(doors.iter().all(|door| door.listening.lock().unwrap().len() == 1));
        doors[1].shut.store(true, Ordering::SeqCst);
        assert!(refused(&mut blockers));
        drop(blockers);
        assert!(doors.iter().all(|door| door.listening.lock().unwrap().is_empty()));
        assert!(doors.iter().all(|door| Arc::strong_count(door) == 1));
    }

    #[test]
    fn retries_inside_each_other_learn_of_it_all_but_none_outside_of_a_fallback() {
        let door = Arc::<Door>::default();
        let (mut outer, mut inner) = (Deferred::retrying(u32::MAX), Deferred::retrying(3));
        outer.enter(|| {
            inner.enter(|| Call::record_blocker(|| Arc::clone(&door)));
            assert!(!Call::take_blockers().is_empty());
        });
        assert!(!inner.enter(Call::take_blockers).is_empty());
        outer.enter(|| {
            Deferred::routing().enter(|| {
                Deferred::retrying(1).enter(|| {
                    Call::record_blocker(|| Arc::clone(&door));
                    assert!(!Call::take_blockers().is_empty());
                });
                Call::record_blocker(|| Arc::clone(&door));
            });
            assert!(Call::take_blockers().is_empty());
        });
    }

    #[test]
    fn a_blocker_that_shuts_before_anybody_listens_is_not_missed() {
        let door = Arc::new(Door { shuts_when_listened_to: true, ..Door::default() });
        let mut retry = Deferred::retrying(3);
        let mut blockers = retry.enter(|| {
            Call::record_blocker(|| Arc::clone(&door));
            Call::take_blockers()
        });
        assert!(refused(&mut blockers));
    }

    #[test]
    fn without_a_retry_nothing_is_made() {
        Call::record_blocker(|| -> Arc<Door> { unreachable!() });
        Call::begin().enter(|| Call::record_blocker(|| -> Arc<Door> { unreachable!() }));
        let mut scope = Deferred::routing();
        scope.enter(|| Call::record_blocker(|| -> Arc<Door> { unreachable!() }));
        assert!(scope.call().is_none());
    }

    #[test]
    fn a_scope_that_is_not_real_takes_nothing_of_the_one_around_it() {
        let door = Arc::<Door>::default();
        let mut outer = Deferred::retrying(3);
        outer.enter(|| {
            Call::record_blocker(|| Arc::clone(&door));
            Deferred::retrying(3).enter(|| assert!(Call::take_blockers().is_empty()));
            assert!(!Call::take_blockers().is_empty());
        });
    }

    #[test]
    fn of_many_blockers_the_last_few_are_remembered() {
        let doors: Vec<Arc<Door>> = std::iter::repeat_with(Arc::default).take(9).collect();
        let mut retry = Deferred::retrying(3);
        let blockers = retry.enter(|| {
            doors.iter().for_each(|door| Call::record_blocker(|| Arc::clone(door)));
            Call::take_blockers()
        });
        let kept: Vec<_> = doors.iter().map(|door| Arc::strong_count(door) > 1).collect();
        assert_eq!(blockers.0.len(), MAX_BLOCKERS);
        assert_eq!(kept[9 - MAX_BLOCKERS..], [true; MAX_BLOCKERS]);
    }
}
