//! Asks a store for leases: one exchange at a time for each account, driven by whoever waits for it. No task of its own: an
//! exchange for which nobody waits any more goes on when the next call comes, or is dropped when its time is over.

mod places;
mod run;

#[cfg(not(failsoft_loom))]
use std::sync::{Mutex, MutexGuard};
use std::{
    fmt, mem,
    sync::{Arc, PoisonError, Weak},
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use failsoft_core::BoxError;
#[cfg(failsoft_loom)]
use loom::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

pub(crate) use self::run::Shared;
use self::{
    places::{Ended, Places, Wants},
    run::Running,
};
use crate::{
    Budget, Holder,
    account::{Ask, Crossed, Share, Why},
};

/// How one account asks.
pub(crate) struct Leasing {
    key: Option<Arc<str>>,
    holder: Holder,
    core: Arc<Core>,
    /// What a store wakes.
    waker: Waker,
}

#[derive(Default)]
struct Core {
    state: Mutex<State>,
    /// Locked after the state and the account, if these are.
    places: Mutex<Places>,
}

#[derive(Default)]
struct State {
    /// The number of the last exchange that was begun.
    number: u64,
    /// The next one gives back what is idle, or takes no more than is in use.
    sparing: Option<Sparing>,
    running: Running,
    /// How the last one ended.
    end: End,
    /// When the store answered last.
    answered: Option<Instant>,
    /// Until then those for whom there is not enough are answered with how the last one ended.
    quiet_until: Option<Instant>,
    /// What further attempts may need is asked for ahead: not before the first call, nor once all was given back.
    asks_ahead: bool,
    /// Not before that.
    ahead_after: Option<Instant>,
    /// The outage that this account is in, and since when there is that: until the store has answered this account. An answer to another
    /// does not end it, and so gives this one no second grace.
    outage: Option<(u64, Instant)>,
    /// The outage in which the account last went on without the store, and to which amount.
    alone: (u64, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sparing {
    /// Only where nothing was spent lately.
    Idle,
    All,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    /// There was as much as was needed.
    #[default]
    Enough,
    Short {
        renews: Option<Renews>,
    },
    Failed,
}

/// What a call wants of one account's leases, and how far it has come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ticket {
    place: Option<u64>,
    /// What to say if what came does not do.
    refusal: Option<Refusal>,
    rounds: u8,
}

impl Ticket {
    /// It waits for an exchange. Until that has ended nothing is reserved for it but by that: otherwise it might be twice.
    pub(crate) const fn is_waiting(&self) -> bool {
        self.place.is_some()
    }
}

/// A call that does not fit into what is leased.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    pub(crate) why: Why,
    pub(crate) amount: u64,
    pub(crate) ask: Ask,
}

/// Others may take what was leased for a caller that could not have it then; it asks again so many times.
const ROUNDS: u8 = 16;

/// Why there is no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) why: Why,
    /// When there may be enough.
    pub(crate) renews: Option<Renews>,
    /// That is what the store said of more than this call.
    pub(crate) of_many: bool,
}

/// When there may be enough: how long it was until then when the store said so, which may be longer than any clock goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Renews {
    said: Instant,
    renews_in: Duration,
}

impl Renews {
    fn after(renews_in: Duration) -> Self {
        Self { said: Instant::now(), renews_in }
    }

    pub(crate) fn left(self) -> Duration {
        self.renews_in.saturating_sub(self.said.elapsed())
    }
}

impl Refusal {
    const NOT_ENOUGH: Self = Self { why: Why::Hard, renews: None, of_many: false };
}

impl Leasing {
    pub(crate) fn new(key: Option<Arc<str>>) -> Self {
        let core = Arc::new(Core::default());
        let waker = Waker::from(Arc::new(Speaker(Arc::downgrade(&core))));
        Self { key, holder: Holder::new(), core, waker }
    }

    /// For a call that needs more: ready with `None` when it may try again.
    pub(crate) fn poll(
        &self,
        (budget, shared): (&Budget, &Shared),
        need: Need,
        ticket: &mut Ticket,
        cx: &Context<'_>,
    ) -> Poll<Option<Refusal>> {
        if let Some(refusal) = ticket.refusal.take() {
            return Poll::Ready(Some(refusal));
        }
        let state = self.core.lock();
        if let Some(place) = ticket.place {
            if !self.core.places().keep(place, cx.waker()) {
                return Poll::Ready(None);
            }
        } else {
            if let Some(refusal) = state.refuses((budget, shared), need, ticket.rounds) {
                return Poll::Ready(Some(refusal));
            }
            let wants = Wants::More { needs: need.amount, ask: need.ask };
            ticket.place = Some(self.core.places().join(wants, cx.waker()));
            ticket.rounds += 1;
        }
        self.drive(state, budget, shared, cx).map(|()| None)
    }

    /// What was reserved for a call that waits, if it was. To be asked before it tries.
    pub(crate) fn take(&self, ticket: &mut Ticket) -> Option<(Share, Crossed)> {
        let place = ticket.place.filter(|place| self.core.places().has_ended(*place))?;
        ticket.place = None;
        match self.core.leave(place)? {
            Ended::Given(share, crossed) => return Some((share, crossed)),
            Ended::Tries(refusal) => ticket.refusal = refusal,
            Ended::Told(_) => {}
        }
        None
    }

    /// The call waits no longer; what was reserved for it meanwhile is given back.
    pub(crate) fn leave(&self, budget: &Budget, ticket: &mut Ticket) {
        let Some(place) = ticket.place.take() else { return };
        if let Some(Ended::Given(mut share, _)) = self.core.leave(place) {
            budget.change(|account, _, _| account.release(&mut share, u64::MAX));
        }
    }

    /// For a call in flight: where less is left than further attempts may need, more is asked for. It does not wait for that.
    pub(crate) fn ask_ahead(&self, budget: &Budget, shared: &Shared, cx: &Context<'_>) {
        let state = self.core.lock();
        let asks = match state.running {
            Running::Polled => false,
            // Those who wait for it drive it.
            Running::Yes(_) => self.core.places().is_empty(),
            Running::No => state.asks_ahead_at(Instant::now()) && budget.lock().is_low(budget.rules()),
        };
        if asks {
            self.core.places().hear(cx.waker());
            let _ = self.drive(state, budget, shared, cx);
        }
    }

    /// Tells the store what was spent.
    pub(crate) fn telling(&self, sparing: Sparing) -> Telling<'_> {
        let mut state = self.core.lock();
        // Who gives all back is not content with less.
        state.sparing = state.sparing.max(Some(sparing));
        Telling { leasing: self, place: None }
    }

    /// Whether the store was ever asked.
    pub(crate) fn has_asked(&self) -> bool {
        self.core.lock().number > 0
    }

    /// Something has changed: the next call that does not fit asks at once.
    pub(crate) fn ask_at_once(&self) {
        let mut state = self.core.lock();
        (state.quiet_until, state.answered) = (None, None);
    }

    /// Until an exchange has ended: the one that is running, or the next.
    fn drive<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        budget: &Budget,
        shared: &Shared,
        cx: &Context<'_>,
    ) -> Poll<()> {
        let run = match mem::replace(&mut state.running, Running::Polled) {
            // Whoever polls it wakes this one when it has ended.
            Running::Polled => return Poll::Pending,
            Running::Yes(run) => Some(run),
            Running::No => self.begin(&mut state, budget, shared),
        };
        let Some(mut run) = run else {
            // Not an account that leases.
            state.running = Running::No;
            return Poll::Ready(());
        };
        drop(state);
        self.core.places().heard();
        let polling = Polling { core: &self.core, shared };
        let polled = run.poll(&mut Context::from_waker(&self.waker));
        mem::forget(polling);
        let mut state = self.core.lock();
        let Poll::Ready(result) = polled else {
            state.running = Running::Yes(run);
            drop(state);
            // It spoke while it was polled, and whoever was woken then could not poll it. Nor was this one, if it stands in no line.
            let wake = self.core.places().unheard();
            if !wake.is_empty() {
                wake.into_iter().for_each(Waker::wake);
                cx.waker().wake_by_ref();
            }
            return Poll::Pending;
        };
        state.running = Running::No;
        let event = self.end(&mut state, budget, shared, &run, result);
        let wake = self.core.places().all();
        drop(state);
        // What the store held is dropped, and what happened is told, when nothing is locked.
        drop(run);
        event.tell(budget);
        wake.into_iter().for_each(Waker::wake);
        Poll::Ready(())
    }
}

impl State {
    fn asks_ahead_at(&self, at: Instant) -> bool {
        let is_over = |until: Option<Instant>| until.is_none_or(|until| until <= at);
        self.asks_ahead && is_over(self.quiet_until) && is_over(self.ahead_after)
    }

    /// Why a call is not asked for.
    fn refuses(&self, (budget, shared): (&Budget, &Shared), need: Need, rounds: u8) -> Option<Refusal> {
        let at = Instant::now();
        let is_fresh = |answered: Instant| at.saturating_duration_since(answered) < shared.ask_again();
        let is_fresh = self.answered.is_some_and(is_fresh);
        if need.why == Why::Soft && (rounds > 0 || is_fresh) {
            return Some(Refusal { why: Why::Soft, ..Refusal::NOT_ENOUGH });
        }
        if rounds >= ROUNDS {
            return Some(Refusal::NOT_ENOUGH);
        }
        if self.quiet_until.is_some_and(|until| until > at) {
            return Some(self.end.refusal(shared, true).unwrap_or(Refusal::NOT_ENOUGH));
        }
        // As of the last answer, it does not fit whatever is leased.
        let is_beyond = || !budget.lock().may_fit(budget.rules(), need.amount, need.ask.is_final);
        (is_fresh && is_beyond()).then_some(Refusal { of_many: true, ..Refusal::NOT_ENOUGH })
    }
}

impl End {
    fn refusal(self, shared: &Shared, of_many: bool) -> Option<Refusal> {
        match self {
            Self::Enough => None,
            Self::Short { renews } => Some(Refusal { why: Why::Hard, renews, of_many }),
            Self::Failed => {
                let renews = Some(Renews::after(shared.ask_again()));
                Some(Refusal { why: Why::NoStore, renews, of_many: false })
            }
        }
    }
}

impl Core {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leave(&self, place: u64) -> Option<Ended> {
        let (ended, wake) = self.places().leave(place);
        wake.into_iter().for_each(Waker::wake);
        ended
    }

    /// The store has something to say.
    fn speak(&self) {
        let mut places = self.places();
        let (wake, is_empty) = (places.call(), places.is_empty());
        drop(places);
        wake.into_iter().for_each(Waker::wake);
        if is_empty {
            // Nobody may ever come to hear that it took too long: it would hold its connection for ever.
            let at = Instant::now();
            let mut state = self.lock();
            let over = match &state.running {
                Running::Yes(run) if run.is_over(at) => mem::take(&mut state.running),
                _ => Running::No,
            };
            drop(state);
            drop(over);
        }
    }
}

/// What a store wakes: it does not keep alive what it is asked for.
struct Speaker(Weak<Core>);

impl Wake for Speaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(core) = self.0.upgrade() {
            core.speak();
        }
    }
}

/// A store that panics has failed; the panic goes on in whoever polled it.
struct Polling<'a> {
    core: &'a Core,
    shared: &'a Shared,
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        let mut state = self.core.lock();
        (state.running, state.end) = (Running::No, End::Failed);
        state.quiet_until = Instant::now().checked_add(self.shared.ask_again());
        let refusal = state.end.refusal(self.shared, false);
        let mut places = self.core.places();
        places.end(true, |wants| match wants {
            Wants::More { .. } => Ended::Tries(refusal),
            Wants::ToTell => Ended::Told(Err("the store has panicked".into())),
        });
        let wake = places.all();
        drop((places, state));
        wake.into_iter().for_each(Waker::wake);
    }
}

/// Somebody who tells the store what was spent; it gives its place up when it is dropped.
pub(crate) struct Telling<'a> {
    leasing: &'a Leasing,
    place: Option<u64>,
}

impl Telling<'_> {
    pub(crate) fn poll(
        &mut self,
        budget: &Budget,
        shared: &Shared,
        cx: &Context<'_>,
    ) -> Poll<Result<(), BoxError>> {
        let core = &self.leasing.core;
        loop {
            let state = core.lock();
            let place = *self.place.get_or_insert_with(|| core.places().join(Wants::ToTell, cx.waker()));
            if !core.places().keep(place, cx.waker()) {
                drop(state);
                self.place = None;
                return Poll::Ready(match core.leave(place) {
                    Some(Ended::Told(result)) => result,
                    _ => Ok(()),
                });
            }
            if self.leasing.drive(state, budget, shared, cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.leasing.core.leave(place);
        }
    }
}

impl fmt::Debug for Leasing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leasing").field("holder", &self.holder).finish_non_exhaustive()
    }
}

/// What the policy allows holds so long at least: otherwise nobody could reserve from it.
const HOLDS: Duration = Duration::from_millis(100);
