//! One call for all that ask the same at once: who leads, who follows, and who takes over.
//!
//! A follower is woken when there is something for it to do and not before; what it then finds is decided under one lock:
//!
//! | the leader | followers |
//! |---|---|
//! | brought a good answer | all get it |
//! | was cancelled | one of them takes over |
//! | failed | two of them take over; if those fail, four: a target that is down is not asked by all at once, and they do not queue either |
//! | brought an answer that stood in | all get it, and it is not kept |
//! | brought an answer that cannot be shared | all ask for themselves |
//! | shows no life for too long | one of them takes over |

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    fmt,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::time::Instant;

/// The calls that run, by what they ask.
pub(super) struct Flights<K, V>(Mutex<HashMap<K, Arc<Flight<V>>>>);

struct Flight<V>(Mutex<State<V>>);

enum State<V> {
    Runs(Runs),
    Done(Arc<V>),
    /// There is nothing to share.
    Off,
}

#[derive(Default)]
struct Runs {
    leaders: usize,
    /// How many followers may take over, and have not yet.
    seats: usize,
    waiting: BTreeMap<u64, Waker>,
    /// Of followers, woken ones included.
    followers: usize,
    next: u64,
    /// When a leader last showed life.
    alive: Option<Instant>,
}

/// What a call that joins is.
pub(super) enum Joined<K: Hash + Eq + Clone, V> {
    Leads(Leader<K, V>),
    Follows(Follower<K, V>),
}

/// Asks on behalf of all. Dropped before it says how that ended, it was cancelled.
pub(super) struct Leader<K: Hash + Eq + Clone, V> {
    flights: Arc<Flights<K, V>>,
    key: K,
    flight: Arc<Flight<V>>,
    is_over: bool,
}

/// Waits for what a leader brings.
pub(super) struct Follower<K: Hash + Eq + Clone, V> {
    flights: Arc<Flights<K, V>>,
    key: K,
    flight: Arc<Flight<V>>,
    /// Its place among those that wait.
    id: u64,
    is_over: bool,
}

/// What becomes of a follower.
pub(super) enum Followed<K: Hash + Eq + Clone, V> {
    Answer(Arc<V>),
    Leads(Leader<K, V>),
    /// Asks for itself alone.
    Alone,
}

impl<K: Hash + Eq + Clone, V> Flights<K, V> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::default()))
    }

    /// Leads where nobody else asks the same.
    pub(super) fn join(self: &Arc<Self>, key: K) -> Joined<K, V> {
        let mut flights = lock(&self.0);
        let flight = match flights.entry(key.clone()) {
            Entry::Occupied(entry) => {
                let flight = Arc::clone(entry.get());
                let mut state = lock(&flight.0);
                if let State::Runs(runs) = &mut *state {
                    let id = runs.next;
                    runs.next += 1;
                    runs.followers += 1;
                    drop(state);
                    return Joined::Follows(Follower {
                        flights: Arc::clone(self),
                        key,
                        flight,
                        id,
                        is_over: false,
                    });
                }
                drop(state);
                // It is over, and about to go.
                let flight = Flight::with_leader();
                *entry.into_mut() = Arc::clone(&flight);
                flight
            }
            Entry::Vacant(entry) => Arc::clone(entry.insert(Flight::with_leader())),
        };
        drop(flights);
        Joined::Leads(Leader { flights: Arc::clone(self), key, flight, is_over: false })
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.0).len()
    }

    /// Forgets a flight, and no other one that has its key by now.
    fn forget(&self, key: &K, flight: &Arc<Flight<V>>) {
        let mut flights = lock(&self.0);
        if flights.get(key).is_some_and(|is| Arc::ptr_eq(is, flight)) {
            flights.remove(key);
        }
    }

    /// Forgets a flight that nobody is in any more. Under the lock of the map nobody can come in meanwhile.
    fn forget_if_empty(&self, key: &K, flight: &Arc<Flight<V>>) {
        let mut flights = lock(&self.0);
        let mut state = lock(&flight.0);
        if matches!(&*state, State::Runs(runs) if runs.leaders == 0 && runs.followers == 0) {
            *state = State::Off;
            if flights.get(key).is_some_and(|is| Arc::ptr_eq(is, flight)) {
                flights.remove(key);
            }
        }
    }
}

impl<V> Flight<V> {
    fn with_leader() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State::Runs(Runs { leaders: 1, ..Runs::default() }))))
    }

    /// Ends it for all.
    fn end(&self, with: State<V>) {
        let was = std::mem::replace(&mut *lock(&self.0), with);
        if let State::Runs(runs) = was {
            runs.waiting.into_values().for_each(Waker::wake);
        }
    }
}

impl Runs {
    /// Those to wake: as many as may take over. Each gives its place up and is counted until it comes.
    fn called(&mut self, count: usize) -> Vec<Waker> {
        std::iter::from_fn(|| self.waiting.pop_first()).take(count).map(|(_, waker)| waker).collect()
    }
}

impl<K: Hash + Eq + Clone, V> Leader<K, V> {
    /// Brought an answer that all can have.
    pub(super) fn done(mut self, answer: Arc<V>) {
        self.is_over = true;
        self.flights.forget(&self.key, &self.flight);
        self.flight.end(State::Done(answer));
    }

    /// Brought an answer that cannot be shared.
    pub(super) fn alone(mut self) {
        self.is_over = true;
        self.flights.forget(&self.key, &self.flight);
        self.flight.end(State::Off);
    }

    /// Failed.
    pub(super) fn failed(mut self) {
        self.leave(2);
    }

    /// Makes progress.
    pub(super) fn alive(&self, now: Instant) {
        if let State::Runs(runs) = &mut *lock(&self.flight.0) {
            runs.alive = Some(now);
        }
    }

    fn leave(&mut self, seats: usize) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let mut woken = Vec::new();
        let mut empty = false;
        if let State::Runs(runs) = &mut *lock(&self.flight.0) {
            runs.leaders = runs.leaders.saturating_sub(1);
            // As many as there are to take them: seats that stay would let late comers past a leader.
            runs.seats = (runs.seats + seats).min(runs.followers);
            woken = runs.called(seats);
            empty = runs.leaders == 0 && runs.followers == 0;
        }
        woken.into_iter().for_each(Waker::wake);
        if empty {
            self.flights.forget_if_empty(&self.key, &self.flight);
        }
    }
}

impl<K: Hash + Eq + Clone, V> Drop for Leader<K, V> {
    fn drop(&mut self) {
        self.leave(1);
    }
}

impl<K: Hash + Eq + Clone, V> Follower<K, V> {
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Followed<K, V>> {
        // A waker is foreign code: it is cloned before the lock, and dropped after it.
        let waker = cx.waker().clone();
        let mut state = lock(&self.flight.0);
        let runs = match &mut *state {
            State::Runs(runs) => runs,
            State::Done(answer) => {
                let answer = Arc::clone(answer);
                self.is_over = true;
                return Poll::Ready(Followed::Answer(answer));
            }
            State::Off => {
                self.is_over = true;
                return Poll::Ready(Followed::Alone);
            }
        };
        if runs.seats == 0 {
            let replaced = runs.waiting.insert(self.id, waker);
            drop(state);
            drop(replaced);
            return Poll::Pending;
        }
        runs.seats -= 1;
        let replaced = Self::promote(runs, self.id);
        drop(state);
        drop(replaced);
        Poll::Ready(Followed::Leads(self.lead()))
    }

    /// When a leader last showed life.
    pub(super) fn alive(&self) -> Option<Instant> {
        match &*lock(&self.flight.0) {
            State::Runs(runs) => runs.alive,
            State::Done(_) | State::Off => None,
        }
    }

    /// Takes over from leaders that have shown no life for as long as that; of several followers that find so, one does.
    pub(super) fn take_over(&mut self, patience: Duration, now: Instant) -> Option<Leader<K, V>> {
        let mut state = lock(&self.flight.0);
        let State::Runs(runs) = &mut *state else { return None };
        if runs.alive.is_some_and(|alive| now.saturating_duration_since(alive) < patience) {
            return None;
        }
        runs.alive = Some(now);
        let replaced = Self::promote(runs, self.id);
        drop(state);
        drop(replaced);
        Some(self.lead())
    }

    /// Gives what is to be dropped after the lock.
    fn promote(runs: &mut Runs, id: u64) -> Option<Waker> {
        runs.followers = runs.followers.saturating_sub(1);
        runs.leaders += 1;
        runs.waiting.remove(&id)
    }

    fn lead(&mut self) -> Leader<K, V> {
        self.is_over = true;
        let (flights, flight) = (Arc::clone(&self.flights), Arc::clone(&self.flight));
        Leader { flights, key: self.key.clone(), flight, is_over: false }
    }
}

impl<K: Hash + Eq + Clone, V> Drop for Follower<K, V> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut next = Vec::new();
        let mut empty = false;
        let mut own = None;
        if let State::Runs(runs) = &mut *lock(&self.flight.0) {
            runs.followers = runs.followers.saturating_sub(1);
            own = runs.waiting.remove(&self.id);
            // Called and gone before it came: another one is called.
            if own.is_none() && runs.seats > 0 {
                next = runs.called(1);
            }
            runs.seats = runs.seats.min(runs.followers);
            empty = runs.leaders == 0 && runs.followers == 0;
        }
        drop(own);
        next.into_iter().for_each(Waker::wake);
        if empty {
            self.flights.forget_if_empty(&self.key, &self.flight);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K, V> fmt::Debug for Flights<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Flights").field(&lock(&self.0).len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        task::Wake,
    };

    use proptest::prelude::*;

    use super::*;

    type L = Leader<u8, u32>;
    type F = Follower<u8, u32>;

    fn leads(flights: &Arc<Flights<u8, u32>>) -> L {
        match flights.join(1) {
            Joined::Leads(leader) => leader,
            Joined::Follows(_) => panic!("follows"),
        }
    }

    fn follows(flights: &Arc<Flights<u8, u32>>) -> F {
        match flights.join(1) {
            Joined::Follows(follower) => follower,
            Joined::Leads(_) => panic!("leads"),
        }
    }

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn poll(follower: &mut F, wakes: &Arc<Wakes>) -> Poll<Followed<u8, u32>> {
        follower.poll(&mut Context::from_waker(&Arc::clone(wakes).into()))
    }

    fn wakes(wakes: &[Arc<Wakes>]) -> Vec<usize> {
        wakes.iter().map(|wakes| wakes.0.swap(0, Ordering::Relaxed)).collect()
    }

    /// Some followers that wait, with how often each is woken.
    fn some(flights: &Arc<Flights<u8, u32>>, count: usize) -> (Vec<F>, Vec<Arc<Wakes>>) {
        let mut all: Vec<_> = (0..count).map(|_| follows(flights)).collect();
        let wakes: Vec<_> = (0..count).map(|_| Arc::default()).collect();
        for (follower, wakes) in all.iter_mut().zip(&wakes) {
            assert!(poll(follower, wakes).is_pending());
        }
        (all, wakes)
    }

    #[test]
    fn a_good_answer_wakes_each_follower_once_and_the_next_call_leads_anew() {
        let flights = Flights::new();
        let leader = leads(&flights);
        let (mut all, woken) = some(&flights, 3);
        leader.done(Arc::new(7));
        assert_eq!(wakes(&woken), [1, 1, 1]);
        for (follower, wakes) in all.iter_mut().zip(&woken) {
            assert!(matches!(poll(follower, wakes), Poll::Ready(Followed::Answer(answer)) if *answer == 7));
        }
        assert_eq!(flights.len(), 0);
        drop(leads(&flights));
        assert_eq!(flights.len(), 0);
    }

    // P22, P23, G120, G121
    #[test]
    fn a_cancelled_leader_is_followed_by_exactly_one_and_wakes_nobody_else() {
        let flights = Flights::new();
        let leader = leads(&flights);
        let (mut all, woken) = some(&flights, 4);
        drop(leader);
        assert_eq!(wakes(&woken), [1, 0, 0, 0]);
        let Poll::Ready(Followed::Leads(second)) = poll(&mut all[0], &woken[0]) else { panic!("one leads") };
        assert!(poll(&mut all[1], &woken[1]).is_pending());
        assert!(matches!(flights.join(1), Joined::Follows(_)), "late comers follow the new leader");
        second.done(Arc::new(1));
        assert_eq!(wakes(&woken), [0, 1, 1, 1]);
    }

    #[test]
    fn a_called_follower_that_goes_before_it_comes_passes_the_call_on() {
        let flights = Flights::new();
        let leader = leads(&flights);
        let (mut all, woken) = some(&flights, 3);
        drop(leader);
        drop(all.remove(0));
        assert_eq!(wakes(&woken), [1, 1, 0]);
        assert!(matches!(poll(&mut all[0], &woken[1]), Poll::Ready(Followed::Leads(_))));
    }

    #[test]
    fn after_a_failure_two_take_over_then_four() {
        let flights = Flights::new();
        let first = leads(&flights);
        let (mut all, woken) = some(&flights, 9);
        first.failed();
        assert_eq!(wakes(&woken).iter().sum::<usize>(), 2);
        let mut leaders = Vec::new();
        for (follower, wakes) in all.iter_mut().zip(&woken) {
            if let Poll::Ready(Followed::Leads(leader)) = poll(follower, wakes) {
                leaders.push(leader);
            }
        }
        assert_eq!(leaders.len(), 2);
        leaders.into_iter().for_each(Leader::failed);
        assert_eq!(wakes(&woken).iter().sum::<usize>(), 4);
    }

    #[test]
    fn what_cannot_be_shared_lets_all_ask_for_themselves() {
        let flights = Flights::new();
        let leader = leads(&flights);
        let (mut all, woken) = some(&flights, 3);
        leader.alone();
        for (follower, wakes) in all.iter_mut().zip(&woken) {
            assert!(matches!(poll(follower, wakes), Poll::Ready(Followed::Alone)));
        }
        assert_eq!(flights.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_without_life_is_taken_over_from_by_one() {
        let flights = Flights::new();
        let (patience, now) = (Duration::from_secs(60), Instant::now());
        let leader = leads(&flights);
        leader.alive(now);
        let (mut all, _woken) = some(&flights, 2);
        assert!(all[0].take_over(patience, now + Duration::from_secs(59)).is_none());
        let late = now + patience;
        let second = all[0].take_over(patience, late).unwrap();
        assert!(all[1].take_over(patience, late).is_none());
        // The first one comes after all.
        leader.done(Arc::new(1));
        drop(second);
        assert_eq!(flights.len(), 0);
    }

    /// Holds a call that follows too, as the waker of a task may that owns it.
    struct Holds {
        _follower: Mutex<F>,
    }

    impl Wake for Holds {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn a_waker_that_lets_go_of_another_follower_when_it_drops_finds_no_lock() {
        let flights = Flights::new();
        let leader = leads(&flights);
        let holds = || Waker::from(Arc::new(Holds { _follower: Mutex::new(follows(&flights)) }));
        let mut replaced = follows(&flights);
        let mut dropped = follows(&flights);
        for follower in [&mut replaced, &mut dropped] {
            assert!(follower.poll(&mut Context::from_waker(&holds())).is_pending());
        }
        assert!(poll(&mut replaced, &Arc::default()).is_pending());
        drop(dropped);
        // Nor does it while it takes over.
        let mut woken = follows(&flights);
        assert!(woken.poll(&mut Context::from_waker(&holds())).is_pending());
        drop(leader);
        assert!(poll(&mut woken, &Arc::default()).is_ready());
        drop(replaced);
        drop(woken);
        assert_eq!(flights.len(), 0);
    }

    #[derive(Clone, Copy, Debug)]
    enum Act {
        Join,
        Poll(usize),
        DropFollower(usize),
        DropLeader(usize),
        Fail(usize),
        Done(usize),
        Alone(usize),
    }

    fn act() -> impl Strategy<Value = Act> {
        let n = || any::<usize>();
        prop_oneof![
            4 => Just(Act::Join),
            4 => n().prop_map(Act::Poll),
            2 => n().prop_map(Act::DropFollower),
            2 => n().prop_map(Act::DropLeader),
            1 => n().prop_map(Act::Fail),
            1 => n().prop_map(Act::Done),
            1 => n().prop_map(Act::Alone),
        ]
    }

    proptest! {
        /// Whatever happens in whatever order: whoever waits has a leader, or somebody that was woken to become one; and
        /// when all have gone, nothing is left.
        #[test]
        fn nobody_waits_for_nobody(acts in proptest::collection::vec(act(), 0..60)) {
            let flights = Flights::<u8, u32>::new();
            let mut leaders: Vec<L> = Vec::new();
            // With its wakes: one that was woken is polled again at the end.
            let mut followers: Vec<(F, Arc<Wakes>)> = Vec::new();
            for act in acts {
                match act {
                    Act::Join => match flights.join(1) {
                        Joined::Leads(leader) => leaders.push(leader),
                        Joined::Follows(follower) => followers.push((follower, Arc::default())),
                    },
                    Act::Poll(at) if !followers.is_empty() => {
                        let at = at % followers.len();
                        let (follower, wakes) = &mut followers[at];
                        match poll(follower, &Arc::clone(wakes)) {
                            Poll::Pending => {}
                            Poll::Ready(Followed::Leads(leader)) => {
                                leaders.push(leader);
                                followers.remove(at);
                            }
                            Poll::Ready(_) => {
                                followers.remove(at);
                            }
                        }
                    }
                    Act::DropFollower(at) if !followers.is_empty() => drop(followers.remove(at % followers.len())),
                    Act::DropLeader(at) if !leaders.is_empty() => drop(leaders.remove(at % leaders.len())),
                    Act::Fail(at) if !leaders.is_empty() => leaders.remove(at % leaders.len()).failed(),
                    Act::Done(at) if !leaders.is_empty() => leaders.remove(at % leaders.len()).done(Arc::new(1)),
                    Act::Alone(at) if !leaders.is_empty() => leaders.remove(at % leaders.len()).alone(),
                    _ => {}
                }
            }
            // A runtime polls new tasks and those that were woken; each time a leader comes out it is cancelled.
            leaders.clear();
            let mut first = true;
            loop {
                let before = followers.len();
                followers.retain_mut(|(follower, wakes)| {
                    let woken = wakes.0.swap(0, Ordering::Relaxed) > 0;
                    !(first || woken) || poll(follower, &Arc::clone(wakes)).is_pending()
                });
                first = false;
                if followers.len() == before {
                    break;
                }
            }
            prop_assert!(followers.is_empty(), "{} wait for nobody", followers.len());
            prop_assert_eq!(flights.len(), 0);
        }
    }
}
