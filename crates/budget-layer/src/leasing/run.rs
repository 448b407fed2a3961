//! One exchange: what the store is told, and what becomes of its answer.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use failsoft_core::BoxError;
use tokio::time::Instant;

use super::{
    End, HOLDS, Leasing, Refusal, Renews, Sparing, State, places::Ended, places::Told as Wanted,
    places::Wants,
};
use crate::{
    Budget, Exchange, Grant, Leases, StoreFailure,
    account::{Account, Ask, Denied, Rules, Share, Why, lease::Figures},
    events,
    store::LONGEST,
    window::Now,
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

#[derive(Default)]
pub(super) enum Running {
    #[default]
    No,
    Yes(Box<Run>),
    /// Somebody polls it just now.
    Polled,
}

pub(super) struct Run {
    exchanging: Pin<Box<dyn Future<Output = Result<Grant, BoxError>> + Send>>,
    began: Instant,
    most: Duration,
    figures: Figures,
    wanted: Wanted,
}

impl Run {
    /// What came of it; of an error, what it says too.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Grant, Failure>> {
        let result = std::task::ready!(self.exchanging.as_mut().poll(cx));
        Poll::Ready(result.map_err(Failure::from))
    }

    /// It took all the time that a store has.
    pub(super) fn is_over(&self, at: Instant) -> bool {
        at.saturating_duration_since(self.began) >= self.most
    }
}

/// Why an exchange failed. What it says is asked for when nothing is locked.
pub(super) struct Failure {
    error: BoxError,
    text: String,
}

impl From<BoxError> for Failure {
    fn from(error: BoxError) -> Self {
        let text = error.to_string();
        Self { error, text }
    }
}

/// What an end is worth telling.
pub(super) enum Event {
    Nothing,
    Failed { is_first: bool, text: String },
    Recovered,
}

impl Event {
    pub(super) fn tell(self, budget: &Budget) {
        match self {
            Self::Nothing => {}
            Self::Failed { is_first, text } => events::store_failed(budget.rules(), is_first, &text),
            Self::Recovered => events::store_recovered(budget.rules()),
        }
    }
}

impl Leasing {
    pub(super) fn begin(&self, state: &mut State, budget: &Budget, shared: &Shared) -> Option<Box<Run>> {
        let (rules, began) = (budget.rules(), Instant::now());
        let mut account = budget.lock();
        account.figures(false)?;
        let (wanted, sparing) = (self.core.places().tell(), state.sparing.take());
        let needs = wanted.needs;
        let gives_back = match sparing {
            Some(Sparing::All) => true,
            Some(Sparing::Idle) => !account.figures(false)?.is_busy,
            None => false,
        };
        let figures = account.figures(gives_back && needs == 0)?;
        let in_line = account.queue.needs();
        let keeps = account.keeps(rules, needs, wanted.largest);
        drop(account);
        state.number += 1;
        state.asks_ahead = !gives_back && (state.asks_ahead || needs > 0);
        // Never less than it has: if the answer is lost, it goes on with that. And as much more as those took from it that came meanwhile.
        let more = shared.each.max(keeps).max(figures.idle);
        let wants = if gives_back { needs } else { needs.max(in_line).saturating_add(more) };
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
            told: figures.told,
            reserved: figures.reserved,
            needs,
            wants,
        };
        let (store, most) = (Arc::clone(&shared.leases.store), shared.leases.timeout);
        let exchanging = Box::pin(async move {
            match timeout(most, store.exchange(exchange)).await {
                Some(result) => result,
                None => Err(format!("the store has not answered for {most:?}").into()),
            }
        });
        Some(Box::new(Run { exchanging, began, most, figures, wanted }))
    }

    /// Takes in how an exchange has ended.
    pub(super) fn end(
        &self,
        state: &mut State,
        budget: &Budget,
        shared: &Shared,
        run: &Run,
        result: Result<Grant, Failure>,
    ) -> Event {
        let at = Instant::now();
        let result = result.and_then(|grant| {
            let until = self.answered(state, budget, shared, run, &grant);
            // It is known how things stand, but nobody may reserve anything.
            let is_over = until <= at && run.wanted.needs > 0 && state.end == End::Enough;
            if is_over { Err(BoxError::from("the lease was over when it came").into()) } else { Ok(()) }
        });
        let (event, mut error) = match result {
            Ok(()) if shared.outage().since.take().is_some() => (Event::Recovered, None),
            Ok(()) => (Event::Nothing, None),
            Err(failure) => {
                let (event, error) = self.failed(state, budget, shared, failure);
                (event, Some(error))
            }
        };
        self.serve(state.end, budget, shared, run, &mut error);
        // Where that was all that there is, it is asked for ahead again as seldom as for calls that wait.
        let is_low = budget.lock().is_low(budget.rules());
        state.ahead_after = at.checked_add(shared.leases.ask_again.max(HOLDS)).filter(|_| is_low);
        event
    }

    /// Takes in what the store has said, which holds until then.
    fn answered(
        &self,
        state: &mut State,
        budget: &Budget,
        shared: &Shared,
        run: &Run,
        grant: &Grant,
    ) -> Instant {
        let at = Instant::now();
        // From when it was asked: the store began to count later.
        let until = run.began.checked_add(grant.lasts.min(LONGEST)).unwrap_or(at);
        budget.look(|account, rules, now| {
            account.take_lease(rules, &run.figures, grant, until);
            // It may be over when it comes.
            account.advance(rules, now);
        });
        (state.answered, state.outage) = (Some(at), None);
        let needed = run.figures.reserved.saturating_add(run.wanted.needs);
        (state.end, state.quiet_until) = if grant.leased < needed {
            let renews = grant.renews_in.map(Renews::after);
            (End::Short { renews }, at.checked_add(shared.leases.ask_again))
        } else {
            (End::Enough, None)
        };
        until
    }

    fn failed(
        &self,
        state: &mut State,
        budget: &Budget,
        shared: &Shared,
        Failure { error, text }: Failure,
    ) -> (Event, BoxError) {
        let at = Instant::now();
        let mut outage = shared.outage();
        let is_first = outage.since.is_none();
        if is_first {
            outage.number += 1;
        }
        let since = *outage.since.get_or_insert(at);
        let of_account = *state.outage.get_or_insert((outage.number, since));
        drop(outage);
        state.end = End::Failed;
        state.quiet_until = at.checked_add(shared.leases.ask_again);
        let holds = at.checked_add(shared.leases.ask_again.max(HOLDS)).unwrap_or(at);
        go_without(state, budget, shared, of_account, holds);
        (Event::Failed { is_first, text }, error)
    }

    /// Reserves for those that waited, in the order in which they came, as far as there is enough: whoever comes now cannot take it.
    fn serve(&self, end: End, budget: &Budget, shared: &Shared, run: &Run, error: &mut Option<BoxError>) {
        let (rules, now) = (budget.rules(), budget.rules().clocks().now());
        let mut account = budget.lock();
        account.advance(rules, now);
        self.core.places().end(end != End::Enough, |wants| match wants {
            Wants::More { needs, ask } => {
                let is_alone = needs == run.wanted.needs;
                give(&mut account, rules, (needs, ask), now)
                    .unwrap_or_else(|beyond| Ended::Tries(end.refusal(shared, !is_alone).or(beyond)))
            }
            Wants::ToTell if end == End::Failed => Ended::Told(Err(match error.take() {
                Some(error) => error,
                None => "the store cannot be asked".into(),
            })),
            Wants::ToTell => Ended::Told(Ok(())),
        });
    }
}

/// Reserves for a call that waited; otherwise whether it was in vain, although as much as it needs was leased.
fn give(
    account: &mut Account,
    rules: &Rules,
    (needs, ask): (u64, Ask),
    now: Now,
) -> Result<Ended, Option<Refusal>> {
    let mut share = Share::default();
    match account.check(rules, &share, needs, ask, now) {
        Ok(()) => {
            let crossed = account.reserve(rules, &mut share, needs);
            Ok(Ended::Given(share, crossed))
        }
        Err(Denied { why: Why::Hard, .. }) if !account.may_fit(rules, needs, ask.is_final) => {
            Err(Some(Refusal { of_many: true, ..Refusal::NOT_ENOUGH }))
        }
        Err(_) => Err(None),
    }
}

/// What the policy allows while the store fails.
fn go_without(
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
                state.alone = (outage, account.leased_to().saturating_add(cap));
            }
            account.go_without(state.alone.1, again);
        }
    }
}

/// `None` when it took too long.
#[cfg(not(failsoft_loom))]
async fn timeout<F: Future>(most: Duration, future: F) -> Option<F::Output> {
    tokio::time::timeout(most, future).await.ok()
}

/// A model has no clock.
#[cfg(failsoft_loom)]
async fn timeout<F: Future>(_: Duration, future: F) -> Option<F::Output> {
    Some(future.await)
}
