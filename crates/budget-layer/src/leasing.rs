//! Asks a store for leases: one exchange at a time for each account, driven by whoever waits for it. No task of its own: an
//! exchange for which nobody waits any more goes on when the next call comes.

use std::{
    fmt, mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use failsoft_core::BoxError;
use tokio::time::{Instant, timeout};

use crate::{
    Budget, Exchange, Grant, Holder, Leases, StoreFailure,
    account::{Why, lease::Figures},
    events,
    store::LONGEST,
};

/// What all accounts of a ledger lease from.
#[derive(Debug)]
pub(crate) struct Shared {
    leases: Leases,
    /// So much at once.
    each: u64,
    outage: Mutex<Outage>,
}

#[derive(Debug, Default)]
struct Outage {
    /// Counts them.
    number: u64,
    /// Since when there is one.
    since: Option<Instant>,
}

impl Shared {
    pub(crate) fn new(leases: Leases, limit: u64) -> Self {
        let each = leases.each.unwrap_or(limit / 100).max(1);
        Self { leases, each, outage: Mutex::default() }
    }

    /// How soon a store that had not enough is asked again.
    pub(crate) const fn ask_again(&self) -> Duration {
        self.leases.ask_again
    }

    fn outage(&self) -> MutexGuard<'_, Outage> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How one account asks.
pub(crate) struct Leasing {
    key: Option<Arc<str>>,
    holder: Holder,
    state: Mutex<State>,
    waiting: Arc<Waiting>,
}

#[derive(Default)]
struct State {
    /// The number of the last exchange that was begun.
    number: u64,
    /// And of the last one that has ended.
    ended: u64,
    /// What those want that wait for the next one.
    wanted: u64,
    /// The next one gives back what is idle, or takes no more than is in use.
    sparing: Option<Sparing>,
    running: Running,
    /// How the last one ended.
    end: End,
    /// When the store answered last.
    answered: Option<Instant>,
    /// Until then those for whom there is not enough are answered with how the last one ended.
    quiet_until: Option<Instant>,
    /// The outage that this account is in, and since when there is that: until the store has answered this account. An answer to another
    /// does not end it, and so gives this one no second grace.
    outage: Option<(u64, Instant)>,
    /// The outage in which the account last went on without the store, and to which amount.
    alone: (u64, u64),
    error: Option<BoxError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sparing {
    /// Only where nothing was spent lately.
    Idle,
    All,
}

#[derive(Default)]
enum Running {
    #[default]
    No,
    Yes(Box<Run>),
    /// Somebody polls it just now.
    Polled,
}

struct Run {
    exchanging: Pin<Box<dyn Future<Output = Result<Grant, BoxError>> + Send>>,
    began: Instant,
    figures: Figures,
    needs: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    /// There was as much as was needed.
    #[default]
    Enough,
    Short {
        renews_in: Option<Duration>,
    },
    Failed,
}

/// A caller's place in the exchanges.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ticket {
    /// The exchange that tells of its need.
    number: Option<u64>,
    /// The last exchange after which it tried.
    tried: u64,
    /// What to say if the lease that came of it does not do.
    refusal: Option<Refusal>,
    rounds: u8,
}

/// What the policy allows holds so long at least: otherwise nobody could reserve from it.
const HOLDS: Duration = Duration::from_millis(100);

/// Others may take what was leased for a caller; it asks again so many times.
const ROUNDS: u8 = 16;

/// Why there is no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) why: Why,
    pub(crate) renews_in: Option<Duration>,
}

impl Refusal {
    const NOT_ENOUGH: Self = Self { why: Why::Hard, renews_in: None };
}

impl Leasing {
    pub(crate) fn new(key: Option<Arc<str>>) -> Self {
        Self { key, holder: Holder::new(), state: Mutex::default(), waiting: Arc::default() }
    }

    /// For a call that needs this and does not fit into what is leased: ready with `None` when it may try again.
    pub(crate) fn poll(
        &self,
        (budget, shared): (&Budget, &Shared),
        (why, needs): (Why, u64),
        ticket: &mut Ticket,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Refusal>> {
        let at = Instant::now();
        if let Some(refusal) = ticket.refusal.take() {
            return Poll::Ready(Some(refusal));
        }
        let mut state = self.lock();
        if ticket.number.is_none() {
            let is_fresh =
                |answered: Instant| at.saturating_duration_since(answered) < shared.leases.ask_again;
            if why == Why::Soft && (ticket.rounds > 0 || state.answered.is_some_and(is_fresh)) {
                return Poll::Ready(Some(Refusal { why, renews_in: None }));
            }
            if ticket.rounds >= ROUNDS {
                return Poll::Ready(Some(Refusal::NOT_ENOUGH));
            }
            if let Some(left) = state.quiet_until.and_then(|until| until.checked_duration_since(at))
                && !left.is_zero()
            {
                return Poll::Ready(Some(state.end.refusal(shared).unwrap_or(Refusal::NOT_ENOUGH)));
            }
            state.wanted = state.wanted.saturating_add(needs);
            (ticket.number, ticket.tried) = (Some(state.number + 1), state.ended);
            ticket.rounds += 1;
        }
        let number = ticket.number.unwrap_or(0);
        // Another's exchange may have brought enough for this one too.
        let next = number.min(ticket.tried + 1);
        match self.drive(state, budget, shared, next, cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready((ended, end)) => {
                ticket.tried = ended;
                if ended >= number {
                    ticket.number = None;
                    ticket.refusal = end.refusal(shared);
                }
                Poll::Ready(None)
            }
        }
    }

    /// Tells the store what was spent.
    pub(crate) fn poll_telling(
        &self,
        budget: &Budget,
        shared: &Shared,
        sparing: Sparing,
        number: &mut Option<u64>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), BoxError>> {
        let mut state = self.lock();
        let number = *number.get_or_insert_with(|| {
            // Who gives all back is not content with less.
            state.sparing = state.sparing.max(Some(sparing));
            state.number + 1
        });
        match self.drive(state, budget, shared, number, cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready((_, End::Failed)) => {
                let error = self.lock().error.take();
                Poll::Ready(Err(error.unwrap_or_else(|| "the store cannot be asked".into())))
            }
            Poll::Ready(_) => Poll::Ready(Ok(())),
        }
    }

    /// Whether the store was ever asked.
    pub(crate) fn has_asked(&self) -> bool {
        self.lock().number > 0
    }

    /// Something has changed: the next call that does not fit asks at once.
    pub(crate) fn ask_at_once(&self) {
        self.lock().quiet_until = None;
    }

    /// Whoever drove an exchange goes: another has to.
    pub(crate) fn leave(&self) {
        self.waiting.wake_all();
    }

    /// Until the exchange of this number has ended: the last that has, and how.
    fn drive<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        budget: &Budget,
        shared: &Shared,
        number: u64,
        cx: &mut Context<'_>,
    ) -> Poll<(u64, End)> {
        loop {
            if state.ended >= number {
                return Poll::Ready((state.ended, state.end));
            }
            // Before it is polled: what wakes it meanwhile wakes this one.
            self.waiting.add(cx.waker());
            let run = match mem::replace(&mut state.running, Running::Polled) {
                Running::Polled => return Poll::Pending,
                Running::Yes(run) => Some(run),
                Running::No => self.begin(&mut state, budget, shared),
            };
            let Some(mut run) = run else {
                // Not an account that leases.
                state.running = Running::No;
                return Poll::Ready((number, End::Failed));
            };
            drop(state);
            let polling = Polling(self);
            let polled = run
                .exchanging
                .as_mut()
                .poll(&mut Context::from_waker(&Waker::from(Arc::clone(&self.waiting))));
            mem::forget(polling);
            state = self.lock();
            match polled {
                Poll::Pending => {
                    state.running = Running::Yes(run);
                    return Poll::Pending;
                }
                Poll::Ready(result) => {
                    state.running = Running::No;
                    let event = self.end(&mut state, budget, shared, &run, result);
                    drop(state);
                    // What the store held is dropped, and what happened is told, when nothing is locked.
                    drop(run);
                    event.tell(budget);
                    self.waiting.wake_all();
                    state = self.lock();
                }
            }
        }
    }

    fn begin(&self, state: &mut State, budget: &Budget, shared: &Shared) -> Option<Box<Run>> {
        let (rules, began) = (budget.rules(), Instant::now());
        let (needs, sparing) = (mem::take(&mut state.wanted), state.sparing.take());
        let mut account = budget.lock();
        let figures = account.figures(sparing == Some(Sparing::All) && needs == 0)?;
        let gives_back = match sparing {
            Some(Sparing::All) => true,
            Some(Sparing::Idle) => !figures.is_busy,
            None => false,
        };
        let figures = if gives_back && needs == 0 { account.figures(true)? } else { figures };
        drop(account);
        state.number += 1;
        // Never less than it has: if the answer is lost, it goes on with that.
        let wants = if gives_back { needs } else { needs.saturating_add(shared.each).max(figures.idle) };
        let exchange = Exchange {
            budget: Arc::clone(&rules.name),
            key: self.key.clone(),
            unit: rules.unit,
            window: rules.window.clone(),
            limit: rules.limit,
            set_limit: figures.set_limit,
            holder: self.holder,
            number: state.number,
            spent: figures.spent,
            reserved: figures.reserved,
            needs,
            wants,
        };
        let (store, most) = (Arc::clone(&shared.leases.store), shared.leases.timeout);
        let exchanging = Box::pin(async move {
            match timeout(most, store.exchange(exchange)).await {
                Ok(result) => result,
                Err(_) => Err(format!("the store has not answered for {most:?}").into()),
            }
        });
        Some(Box::new(Run { exchanging, began, figures, needs }))
    }

    /// Takes in how an exchange has ended.
    fn end(
        &self,
        state: &mut State,
        budget: &Budget,
        shared: &Shared,
        run: &Run,
        result: Result<Grant, BoxError>,
    ) -> Told {
        let (rules, at) = (budget.rules(), Instant::now());
        state.ended = state.number;
        match result {
            Ok(grant) => {
                // From when it was asked: the store began to count later.
                let until = run.began.checked_add(grant.lasts.min(LONGEST)).unwrap_or(at);
                budget.lock().take_lease(rules, &run.figures, &grant, until);
                (state.answered, state.outage) = (Some(at), None);
                let needed = run.figures.reserved.saturating_add(run.needs);
                (state.end, state.quiet_until) = if grant.leased < needed {
                    (End::Short { renews_in: grant.renews_in }, at.checked_add(shared.leases.ask_again))
                } else {
                    (End::Enough, None)
                };
                if shared.outage().since.take().is_some() { Told::Recovered } else { Told::Nothing }
            }
            Err(error) => {
                let mut outage = shared.outage();
                let is_first = outage.since.is_none();
                if is_first {
                    outage.number += 1;
                }
                let since = *outage.since.get_or_insert(at);
                let of_account = *state.outage.get_or_insert((outage.number, since));
                drop(outage);
                state.end = End::Failed;
                let again = at.checked_add(shared.leases.ask_again);
                state.quiet_until = again;
                let holds = at.checked_add(shared.leases.ask_again.max(HOLDS)).unwrap_or(at);
                self.go_without(state, budget, shared, of_account, holds);
                let text = error.to_string();
                state.error = Some(error);
                Told::Failed { is_first, text }
            }
        }
    }

    /// What the policy allows while the store fails.
    fn go_without(
        &self,
        state: &mut State,
        budget: &Budget,
        shared: &Shared,
        (outage, since): (u64, Instant),
        again: Instant,
    ) {
        let mut account = budget.lock();
        match shared.leases.on_failure {
            StoreFailure::Deny => {}
            StoreFailure::Allow(grace) => {
                let until = since.checked_add(grace).map_or(again, |end| end.min(again));
                if until > Instant::now() {
                    account.go_without(u64::MAX / 2, until);
                }
            }
            StoreFailure::LocalCap(cap) => {
                if state.alone.0 != outage {
                    state.alone = (outage, account.committed().saturating_add(cap));
                }
                account.go_without(state.alone.1, again);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl End {
    fn refusal(self, shared: &Shared) -> Option<Refusal> {
        match self {
            Self::Enough => None,
            Self::Short { renews_in } => Some(Refusal { why: Why::Hard, renews_in }),
            Self::Failed => Some(Refusal { why: Why::NoStore, renews_in: Some(shared.leases.ask_again) }),
        }
    }
}

/// What an end is worth telling.
enum Told {
    Nothing,
    Failed { is_first: bool, text: String },
    Recovered,
}

impl Told {
    fn tell(self, budget: &Budget) {
        match self {
            Self::Nothing => {}
            Self::Failed { is_first, text } => events::store_failed(budget.rules(), is_first, &text),
            Self::Recovered => events::store_recovered(budget.rules()),
        }
    }
}

/// A store that panics has failed; the panic goes on in whoever polled it.
struct Polling<'a>(&'a Leasing);

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        (state.running, state.ended, state.end) = (Running::No, state.number, End::Failed);
        drop(state);
        self.0.waiting.wake_all();
    }
}

/// All that wait for an exchange: whoever is polled first drives it.
#[derive(Default)]
struct Waiting(Mutex<Vec<Waker>>);

impl Waiting {
    fn add(&self, waker: &Waker) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.iter().any(|other| other.will_wake(waker)) {
            waiting.push(waker.clone());
        }
    }

    fn wake_all(&self) {
        let waiting = mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_all();
    }
}

impl fmt::Debug for Leasing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leasing").field("holder", &self.holder).finish_non_exhaustive()
    }
}
