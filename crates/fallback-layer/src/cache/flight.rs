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
mod tests;
