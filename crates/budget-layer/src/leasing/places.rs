//! Those that wait for an exchange with a store, in the order in which they came. Pure, but for the wakers.

use std::{collections::BTreeMap, mem, task::Waker};

use failsoft_core::BoxError;

use super::Refusal;
use crate::account::{Ask, Crossed, Share};

/// So many are woken when the store has something to say: one of them is enough to hear it, but whoever is woken may be busy with other
/// things for as long as it likes.
const HEARERS: usize = 16;

/// Whoever comes or goes takes the logarithm of their number.
#[derive(Default)]
pub(super) struct Places {
    next: u64,
    waiting: BTreeMap<u64, Waiting>,
    /// Calls in flight for which more is asked ahead: they wait for nothing, but can hear the store.
    ahead: Vec<Waker>,
    /// The store has something to say, and nobody has listened since.
    is_unheard: bool,
}

struct Waiting {
    waker: Waker,
    wants: Wants,
    /// The exchange that tells of it is running, or has ended.
    is_told: bool,
    ended: Option<Ended>,
}

#[derive(Clone, Copy)]
pub(super) enum Wants {
    /// A call needs so much.
    More { needs: u64, ask: Ask },
    /// The store is to be told what was spent.
    ToTell,
}

/// What an exchange has brought for one that waited for it.
pub(super) enum Ended {
    /// It is reserved.
    Given(Share, Crossed),
    /// It may try; what to say if that is in vain.
    Tries(Option<Refusal>),
    Told(Result<(), BoxError>),
}

/// What those want together of whom the store is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) needs: u64,
    pub(super) largest: u64,
}

impl Places {
    pub(super) fn join(&mut self, wants: Wants, waker: &Waker) -> u64 {
        let place = self.next;
        self.next += 1;
        self.waiting.insert(place, Waiting { waker: waker.clone(), wants, is_told: false, ended: None });
        place
    }

    /// It is woken by this waker from now on; `false` where its exchange has ended.
    pub(super) fn keep(&mut self, place: u64, waker: &Waker) -> bool {
        let Some(waiting) = self.waiting.get_mut(&place).filter(|waiting| waiting.ended.is_none()) else {
            return false;
        };
        waiting.waker.clone_from(waker);
        true
    }

    /// Whether its exchange has ended: then it is time to [leave](Self::leave).
    pub(super) fn has_ended(&self, place: u64) -> bool {
        self.waiting.get(&place).is_none_or(|waiting| waiting.ended.is_some())
    }

    /// Gives a place up: how its exchange has ended, and whom to wake, because this one was to hear the store.
    pub(super) fn leave(&mut self, place: u64) -> (Option<Ended>, Vec<Waker>) {
        let ended = self.waiting.remove(&place).and_then(|waiting| waiting.ended);
        (ended, self.unheard())
    }

    /// Whom to wake, if the store has something to say that nobody has heard.
    pub(super) fn unheard(&mut self) -> Vec<Waker> {
        if self.is_unheard { self.hearers() } else { Vec::new() }
    }

    /// A call in flight hears the store too; there are enough of them.
    pub(super) fn hear(&mut self, waker: &Waker) {
        if self.ahead.len() < HEARERS && !self.ahead.iter().any(|other| other.will_wake(waker)) {
            self.ahead.push(waker.clone());
        }
    }

    /// Nobody waits for what comes.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// An exchange begins that tells of all that have come until now.
    pub(super) fn tell(&mut self) -> Told {
        let mut told = Told::default();
        for waiting in self.waiting.values_mut().filter(|waiting| !waiting.is_told) {
            waiting.is_told = true;
            if let Wants::More { needs, .. } = waiting.wants {
                told.needs = told.needs.saturating_add(needs);
                told.largest = told.largest.max(needs);
            }
        }
        told
    }

    /// The exchange has ended; says to each, in their order, what it has brought. Whoever has come since and gets nothing of it is told of
    /// in the next one, but where that would bring no more just now.
    pub(super) fn end(&mut self, is_last: bool, mut end: impl FnMut(Wants) -> Ended) {
        for waiting in self.waiting.values_mut().filter(|waiting| waiting.ended.is_none()) {
            if !waiting.is_told && matches!(waiting.wants, Wants::ToTell) {
                continue;
            }
            let ended = end(waiting.wants);
            if waiting.is_told || is_last || matches!(ended, Ended::Given(..)) {
                waiting.ended = Some(ended);
            }
        }
    }

    /// Whom to wake after that: all, because one of those that have come since asks on.
    pub(super) fn all(&mut self) -> Vec<Waker> {
        let ahead = mem::take(&mut self.ahead);
        self.waiting.values().map(|waiting| waiting.waker.clone()).chain(ahead).collect()
    }

    /// Somebody listens to the store.
    pub(super) const fn heard(&mut self) {
        self.is_unheard = false;
    }

    /// The store has something to say: whom to wake. Where those that were woken before have not come, all.
    pub(super) fn call(&mut self) -> Vec<Waker> {
        if mem::replace(&mut self.is_unheard, true) { self.all() } else { self.hearers() }
    }

    fn hearers(&mut self) -> Vec<Waker> {
        let waiting = self.waiting.values().filter(|waiting| waiting.ended.is_none());
        let first = waiting.take(HEARERS).map(|waiting| waiting.waker.clone());
        first.chain(mem::take(&mut self.ahead)).collect()
    }
}
