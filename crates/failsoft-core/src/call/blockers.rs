//! What inside of a retry may come to refuse calls, so that who waits to call again need not wait to be refused.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use super::{Call, with_frame};

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
///
/// One of them is enough, but those of a fallback's routes, of which [each has to refuse](Call::record_routes).
#[derive(Default)]
pub struct Blockers(Vec<Blocking>);

enum Blocking {
    One(Listening),
    /// Every one of these has something that refuses.
    Each(Vec<Blockers>),
}

struct Listening {
    blocker: Arc<dyn Blocker>,
    key: Option<u64>,
}

impl Blockers {
    /// Ready when one of them refuses; else the task is woken when that may have changed. Never ready where there are none.
    pub fn poll_refused(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.0.iter_mut().any(|blocking| blocking.refuses(cx)) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// The same, to be listened to by somebody else.
    fn again(&self) -> Self {
        Self(self.0.iter().map(Blocking::again).collect())
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds one, as a retry or a fallback around it is told of it.
    pub fn add(&mut self, blocker: Arc<dyn Blocker>) {
        let known = |other: &Blocking| matches!(other, Blocking::One(other) if other.is(&blocker));
        if !self.0.iter().any(known) {
            self.push(Blocking::One(Listening { blocker, key: None }));
        }
    }

    fn push(&mut self, blocking: Blocking) {
        self.0.truncate(MAX_BLOCKERS - 1);
        self.0.insert(0, blocking);
    }
}

impl Blocking {
    fn refuses(&mut self, cx: &Context<'_>) -> bool {
        match self {
            Self::One(Listening { blocker, key }) => {
                // Listens first and looks then: what changes in between is not missed.
                blocker.listen(key, cx);
                blocker.refuses()
            }
            // While one does not, only what changes with it matters.
            Self::Each(routes) => routes.iter_mut().all(|route| route.poll_refused(cx).is_ready()),
        }
    }

    fn again(&self) -> Self {
        match self {
            Self::One(Listening { blocker, .. }) => {
                Self::One(Listening { blocker: Arc::clone(blocker), key: None })
            }
            Self::Each(routes) => Self::Each(routes.iter().map(Blockers::again).collect()),
        }
    }
}

impl Listening {
    fn is(&self, blocker: &Arc<dyn Blocker>) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.blocker), Arc::as_ptr(blocker))
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
    /// Notes that an attempt of the current call came through a blocker and failed, or was refused by it, for the retries around it; but
    /// for those around a fallback only that [one of its routes](Self::record_routes) did. Does nothing, and makes nothing, where there
    /// is no retry around.
    pub fn record_blocker<G: Blocker + 'static>(blocker: impl FnOnce() -> Arc<G>) {
        let Some(call) = Self::inside_retry() else { return };
        let blocker: Arc<dyn Blocker> = blocker();
        call.each_blocked(|blockers| blockers.add(Arc::clone(&blocker)));
    }

    /// As [`record_blocker`](Self::record_blocker), by a fallback that has failed: what refuses each of its routes, so that a retry around
    /// has nobody to ask when all of them do. For each route what was [taken](Self::take_blockers) in its attempt's scope. Does nothing
    /// where one of them has nothing that could refuse it, or there is none.
    pub fn record_routes(routes: &[Blockers]) {
        if routes.is_empty() || routes.iter().any(Blockers::is_empty) {
            return;
        }
        let Some(call) = Self::inside_retry() else { return };
        let again = || routes.iter().map(Blockers::again).collect();
        call.each_blocked(|blockers| blockers.push(Blocking::Each(again())));
    }

    /// The current call, if there is a retry's scope around.
    fn inside_retry() -> Option<Self> {
        with_frame(|frame| frame.is_retrying().then(|| frame.materialise())).flatten().flatten()
    }

    /// The blockers that were noted in the current scope, which is a retry's own or that of a fallback's route, since it asked last.
    #[must_use]
    pub fn take_blockers() -> Blockers {
        let take = |call: &Self| call.lock().as_mut().map(|notes| std::mem::take(&mut notes.blockers));
        with_frame(|frame| frame.innermost().and_then(take)).flatten().unwrap_or_default()
    }

    /// Whether a retry's scope is around.
    pub(super) fn is_retrying(&self) -> bool {
        let mut next = Some(self);
        while let Some(call) = next {
            if call.0.retrying.is_own {
                return true;
            }
            next = call.0.parent.as_ref();
        }
        false
    }

    /// Visits what the retries around know of, up to the nearest fallback, and what that knows of the route, where a retry is around it.
    fn each_blocked(&self, visit: impl Fn(&mut Blockers)) {
        let mut next = Some(self);
        while let Some(call) = next {
            let is_routes = call.is_routes();
            if call.0.retrying.is_own || (is_routes && call.0.parent.as_ref().is_some_and(Self::is_retrying))
            {
                call.with_own_notes(|notes| visit(&mut notes.blockers));
            }
            if is_routes {
                return;
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
    fn a_retry_around_a_fallback_is_refused_when_each_of_its_routes_is() {
        let doors: [Arc<Door>; 3] = Default::default();
        let [first, second, beside] = &doors;
        let mut outermost = Deferred::retrying(9);
        let mut outer = Deferred::retrying(3);
        let (mut own, mut other) = outermost.enter(|| {
            let own = outer.enter(|| {
                let mut fallback = Deferred::routing();
                let mut routes = Vec::new();
                routes.push(fallback.enter(|| {
                    Call::record_blocker(|| Arc::clone(first));
                    Call::take_blockers()
                }));
                let route = fallback.enter(|| Call::options().route(false).begin());
                routes.push(route.enter(|| {
                    // Either of the two is enough for this route; a retry inside of it knows of them, too.
                    Deferred::retrying(1).enter(|| {
                        Call::record_blocker(|| Arc::clone(second));
                        Call::record_blocker(|| Arc::clone(beside));
                        assert!(!Call::take_blockers().is_empty());
                    });
                    Call::take_blockers()
                }));
                assert!(fallback.enter(Call::take_blockers).is_empty(), "each route has its own");
                Call::record_routes(&routes);
                Call::take_blockers()
            });
            (own, Call::take_blockers())
        });
        let shut = |door: &Door, shut| door.shut.store(shut, Ordering::SeqCst);
        assert!(!refused(&mut own) && !refused(&mut other));
        // Each of the two retries listens to a route that may still answer: it is enough.
        assert_eq!(doors.each_ref().map(|door| door.listening.lock().unwrap().len()), [2, 0, 0]);
        shut(first, true);
        assert!(!refused(&mut own));
        assert_eq!(doors.each_ref().map(|door| door.listening.lock().unwrap().len()), [2, 1, 1]);
        shut(beside, true);
        assert!(refused(&mut own) && refused(&mut other));
        shut(first, false);
        assert!(!refused(&mut own));
        drop((own, other));
        assert!(doors.iter().all(|door| door.listening.lock().unwrap().is_empty()));
    }

    #[test]
    fn a_route_that_nothing_refuses_keeps_a_retry_around_waiting() {
        let door = Arc::<Door>::default();
        Deferred::retrying(3).enter(|| {
            let mut known = Blockers::default();
            known.add(door);
            Call::record_routes(&[known, Blockers::default()]);
            Call::record_routes(&[]);
            assert!(Call::take_blockers().is_empty());
        });
    }

    #[test]
    fn a_fallback_around_a_retry_is_told_of_nothing() {
        let door = Arc::<Door>::default();
        let mut fallback = Deferred::routing();
        fallback.enter(|| {
            Deferred::retrying(3).enter(|| Call::record_blocker(|| Arc::clone(&door)));
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
