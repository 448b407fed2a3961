//! [`Call`]: what travels with one user call through all its attempts, whatever the request's type.
//!
//! A call is a scope that is current while the layers below it work: it carries a deadline, a cap on attempts,
//! marks, and the [`Trail`]. Scopes nest; the nearest deadline wins, and attempts count on all of them. Retry and
//! fallback open a [`Deferred`] scope, which costs nothing until somebody records something in it.
//!
//! ```
//! use std::time::Duration;
//! use failsoft_core::{Attempt, Call, Class, Next, Verdict};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let call = Call::options().timeout(Duration::from_secs(20)).max_attempts(4).begin();
//! call.scope(async {
//!     // here a stack of layers works; each sees the same deadline
//!     assert!(Call::current_deadline().is_some());
//!     Call::record(Attempt::new("retry-layer", Verdict::of(Class::Overloaded)).then(Next::Retry));
//! })
//! .await;
//! assert_eq!(call.trail().attempts().len(), 1);
//! # });
//! ```

mod blockers;
mod frame;
#[doc(hidden)]
pub mod pledge;
mod reserved;
mod routes;
mod spare;
mod taken;
mod telling;

use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::time::Instant;

pub use self::{
    blockers::{Blocker, Blockers},
    frame::{Deferred, EnteredDeferred},
    reserved::{OnClose, Reservation, Reserved},
    taken::TakenRetry,
    telling::Told,
};
use self::{
    frame::{Entered, Frame, Retrying, is_in_call, with_frame},
    reserved::NoReservation,
    routes::Routes,
    telling::Handed,
};
use crate::{Next, Trail, ledger::Ledger};

/// A scope of one user call: cheap to clone, all clones are the same scope.
#[derive(Clone)]
pub struct Call(Arc<Scope>);

struct Scope<R: ?Sized = dyn Reservation> {
    parent: Option<Call>,
    deadline: Option<Instant>,
    marks: u8,
    max_attempts: Option<u32>,
    /// Further attempts, the first one not counted.
    further: AtomicU32,
    /// Whether it is a retry layer's, and its cap on the retries of all layers below it.
    retrying: Retrying,
    retries: AtomicU32,
    /// Whether it is a fallback's.
    routing: bool,
    /// Whether this scope, or one around it, remembers routes.
    routed: bool,
    /// Whether it is that of one route, or of another attempt beside others; and whether the caller is in haste, see
    /// [`CallOptions::route`].
    route: bool,
    hurried: bool,
    /// Whether it was a [`Deferred`] scope before something was recorded.
    was_deferred: bool,
    /// Made when there is something to note.
    notes: Mutex<Option<Box<Notes>>>,
    ledger: Ledger,
    /// What a budget has reserved for the call: in the scope itself, so that a call through a budget makes one allocation. The last
    /// field, because only that may be unsized.
    reservation: R,
}

#[derive(Default)]
struct Notes {
    /// Kept by the root of a tree of scopes for all of them.
    trail: Trail,
    /// Kept by the root.
    opened: bool,
    /// Kept by the root.
    met_open: bool,
    /// Kept by the root: the circuit that opened, or was open, lets callers wait.
    waits: bool,
    /// Kept by the outermost scope that a fallback opened, for all fallbacks inside it.
    routes: Routes,
    /// Kept by each scope that a fallback opened: until when its first route has time; and by those of its other routes, where that
    /// has become less than their deadline.
    route_limit: Option<Instant>,
    /// Kept by each scope: the outcome that was handed on in it last, and is not decided about.
    handed: Option<Handed>,
    /// Kept by the scopes of retries.
    blockers: Blockers,
}

/// A mark on a call that layers obey.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mark {
    /// No other target is left: an open circuit lets it pass, a bounded number at once.
    LastResort,
    /// Only routes that cost nothing may serve it.
    FreeOnly,
    /// The last call of a session, which a closing reserve may serve.
    Final,
    /// No cache may answer it: what was answered before was wrong.
    NoCache,
    /// On a route that took over from another: what that route had in its caches has to be made anew, so it may take
    /// longer to begin.
    Cold,
    /// It judges the answer of another call: no judge is asked about its own answer in turn.
    Judging,
}

impl Mark {
    const fn bit(self) -> u8 {
        match self {
            Self::LastResort => 1,
            Self::FreeOnly => 2,
            Self::Final => 4,
            Self::NoCache => 8,
            Self::Cold => 16,
            Self::Judging => 32,
        }
    }
}

/// How a [`Call`] begins.
#[derive(Clone, Debug, Default)]
#[must_use = "nothing begins before `begin`"]
pub struct CallOptions {
    deadline: Option<Instant>,
    max_attempts: Option<u32>,
    marks: u8,
    isolated: bool,
    route: bool,
    hurried: bool,
}

impl CallOptions {
    /// The call ends at `deadline`; an earlier one of an outer call still wins.
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// The call ends `timeout` from now. A timeout too long to be represented is none.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.deadline = Instant::now().checked_add(timeout);
        self
    }

    /// At most so many attempts in all, over every layer and route; 0 and 1 both mean the first attempt only.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// Adds a mark, which scopes further in inherit.
    pub fn mark(mut self, mark: Mark) -> Self {
        self.marks |= mark.bit();
        self
    }

    /// Cuts the call off from the one around it, but for the deadline: its attempts and its trail are its own.
    /// For an agent that runs inside another's call.
    pub fn isolated(mut self) -> Self {
        self.isolated = true;
        self
    }

    /// It is the scope of one route of the fallback whose scope is current, and not of the first one, which has none: what that has
    /// in time, and what is told of it, is not this one's. `hurried`: it has so little time because the caller has.
    pub fn route(mut self, hurried: bool) -> Self {
        (self.route, self.hurried) = (true, hurried);
        self
    }

    /// It is one of several attempts that run beside each other, and not the first of them, which has the scope around: what is told of
    /// it is not told of that one.
    pub fn beside(self) -> Self {
        self.route(true)
    }

    /// Begins the call, as a child of the current one where there is one.
    #[must_use]
    pub fn begin(self) -> Call {
        let mut scope = Scope::new(NoReservation, Ledger::default());
        scope.begin(&self);
        Call(Arc::new(scope))
    }
}

impl Call {
    /// Begins a call with nothing but a trail: a child of the current one, or a root.
    #[must_use]
    pub fn begin() -> Self {
        Self::options().begin()
    }

    /// Begins a call with a deadline, a cap or marks.
    pub fn options() -> CallOptions {
        CallOptions::default()
    }

    /// The call that is current on this thread. `None` also inside a [`Deferred`] scope in which nothing was
    /// recorded yet and around which no call was begun.
    #[must_use]
    pub fn current() -> Option<Self> {
        if frame::is_pledged() {
            return with_frame(Frame::make_pledged).flatten();
        }
        Self::current_if_made()
    }

    /// The current call, without the budgets whose scopes are no calls yet: nothing was recorded in these.
    fn current_if_made() -> Option<Self> {
        with_frame(|frame| frame.call.clone()).flatten()
    }

    /// The current call; a [`Deferred`] scope around becomes one.
    pub(crate) fn current_or_made() -> Option<Self> {
        with_frame(Frame::materialise).flatten()
    }

    /// Whether a call is current: somebody wants a trail even of a single attempt. A layer's scope in which nothing was recorded yet is
    /// none.
    #[must_use]
    #[inline]
    pub fn is_current() -> bool {
        is_in_call() || (frame::is_pledged() && Self::current_if_made().is_some())
    }

    /// The nearest deadline of the current call.
    #[must_use]
    #[inline]
    pub fn current_deadline() -> Option<Instant> {
        if !is_in_call() {
            return None;
        }
        with_frame(|frame| frame.call.as_ref().and_then(Self::deadline)).flatten()
    }

    /// Whether the nearest deadline is the limit of a [route](CallOptions::route), and neither that of whoever began the call nor near
    /// because of it: who runs into it is too slow, and the caller is not to blame.
    #[must_use]
    pub fn is_deadline_of_route() -> bool {
        let Some(mut origin) = Self::current_if_made() else { return false };
        let deadline = origin.0.deadline;
        // Scopes further in have inherited it.
        while let Some(parent) = origin.0.parent.clone().filter(|parent| parent.0.deadline == deadline) {
            origin = parent;
        }
        deadline.is_some() && origin.0.route && !origin.0.hurried
    }

    /// Whether the current call carries a mark.
    #[must_use]
    pub fn is_marked(mark: Mark) -> bool {
        is_in_call()
            && with_frame(|frame| frame.call.as_ref().is_some_and(|call| call.0.marks & mark.bit() != 0))
                .unwrap_or(false)
    }

    /// Asks the current call for one attempt more than the first. Granted where no call is current.
    ///
    /// # Errors
    ///
    /// [`Next::AttemptsSpent`] when a cap forbids it, [`Next::SpendDenied`] when a budget around has nothing left for it; then
    /// nothing is counted.
    pub fn take_attempt() -> Result<(), Next> {
        Self::current().map_or(Ok(()), |call| call.take(Further::Attempt))
    }

    /// Asks the current call for a retry: one more attempt on the same target. Dropped before it was [sent](TakenRetry::sent),
    /// it is given back.
    ///
    /// A [`Deferred`] scope around becomes real: what one layer takes the others must see.
    ///
    /// # Errors
    ///
    /// [`Next::AttemptsSpent`] when a cap on attempts forbids it, or that of a retry layer around, see [`Deferred::retrying`];
    /// [`Next::SpendDenied`] when a budget around has nothing left for it. Then nothing is counted.
    pub fn take_retry() -> Result<TakenRetry, Next> {
        let call = Self::current_or_made();
        call.as_ref().map_or(Ok(()), |call| call.take(Further::Retry))?;
        Ok(TakenRetry::of(call))
    }

    /// Gives back the last attempt that [`take_attempt`](Self::take_attempt) granted here, because it was not made
    /// after all: refused before it reached anybody, or never begun.
    pub fn give_attempt_back() {
        let call = Self::current();
        let mut next = call.as_ref();
        while let Some(call) = next {
            // A scope that was made since then has counted nothing.
            let _ = call
                .0
                .further
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |further| further.checked_sub(1));
            call.0.reservation.release();
            next = call.0.parent.as_ref();
        }
    }

    /// Whether an outcome of the current call opened a circuit, or [met an open one](Self::record_open_circuit), and nobody has
    /// recorded that outcome's attempt since: whoever asks now has just got that outcome, and knows that the same target will
    /// not be asked.
    #[must_use]
    pub fn has_opened() -> bool {
        Self::has_noted(Notes::has_opened)
    }

    /// Whether that circuit refuses the next attempt. One that [lets callers wait](Self::record_waiting_circuit) does not: under a
    /// balancer another target has it.
    #[must_use]
    pub fn refuses_next() -> bool {
        Self::has_noted(|notes| notes.has_opened() && !notes.waits)
    }

    fn has_noted(what: impl FnOnce(&Notes) -> bool) -> bool {
        Self::current_if_made()
            .is_some_and(|call| call.root().lock().as_ref().is_some_and(|notes| what(notes)))
    }

    /// Whether a [`Deferred::routing`] scope is around: a fallback that begins now lies inside another's route.
    #[must_use]
    #[inline]
    pub fn is_routed() -> bool {
        frame::is_routed()
    }

    /// Takes a route by its name, for all fallbacks that lie inside the outermost [`Deferred::routing`] scope.
    /// `false` when one of them took it before: then it must not be asked again, and a circle of fallbacks ends.
    /// Always `true` outside such a scope.
    #[must_use]
    pub fn visit(route: &Arc<str>) -> bool {
        Self::with_routes(|routes| routes.visit(route))
    }

    /// Takes the first route of a fallback that lies inside another's route. That may have the same name, once:
    /// then both mean the one target, and this is the attempt on it. A route whose attempt is over is passed here
    /// too, and from then on nobody may take it.
    #[must_use]
    pub fn visit_first(route: &Arc<str>) -> bool {
        Self::with_routes(|routes| routes.visit_first(route))
    }

    /// Until when the route has time that this is the scope of, for fallbacks inside it; `None` when it has no limit, or is
    /// over. A fallback opens no scope with a deadline for its first route, because most of those answer at once: what is told of the
    /// fallback's own scope is that route's, and not that of [those beside it](CallOptions::route).
    pub fn set_route_limit(&self, until: Option<Instant>) {
        self.with_own_notes(|notes| notes.route_limit = until);
    }

    /// The nearest of the [limits](Self::set_route_limit) of the routes around.
    #[must_use]
    pub fn route_limit() -> Option<Instant> {
        let mut next = Self::current_if_made().filter(|call| call.0.routed);
        let mut nearest: Option<Instant> = None;
        let mut is_first = true;
        while let Some(call) = next {
            // The limit that a fallback told is its first route's.
            let limit =
                if is_first { call.lock().as_ref().and_then(|notes| notes.route_limit) } else { None };
            is_first = !call.0.route;
            nearest = match (nearest, limit) {
                (Some(nearest), Some(limit)) => Some(nearest.min(limit)),
                (nearest, limit) => nearest.or(limit),
            };
            next = call.0.parent.clone();
        }
        nearest
    }

    fn with_routes(f: impl FnOnce(&mut Routes) -> bool) -> bool {
        let call = with_frame(|frame| Self::is_routed().then(|| frame.materialise()).flatten()).flatten();
        let Some(mut outermost) = call.as_ref() else { return true };
        while let Some(parent) = outermost.0.parent.as_ref().filter(|parent| parent.0.routed) {
            outermost = parent;
        }
        outermost.with_own_notes(|notes| f(&mut notes.routes))
    }

    /// The nearest deadline: its own or that of a call around it.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.0.deadline
    }

    /// How many attempts beyond the first were taken below this scope.
    #[must_use]
    pub fn further_attempts(&self) -> u32 {
        self.0.further.load(Ordering::Relaxed)
    }

    /// What was recorded so far in the whole tree that this scope belongs to.
    #[must_use]
    pub fn trail(&self) -> Trail {
        self.root().lock().as_ref().map_or_else(Trail::default, |notes| notes.trail.clone())
    }

    /// Makes this the current call while `f` runs.
    #[inline]
    pub fn enter<R>(&self, f: impl FnOnce() -> R) -> R {
        let _frame = Entered::new(Some(self.clone()));
        f()
    }

    /// Makes this the current call whenever `future` is polled.
    pub fn scope<F: Future>(&self, future: F) -> Scoped<F> {
        Scoped { call: self.clone(), future }
    }

    /// The scope of a layer, in which something is recorded after all: everything is inherited.
    fn deferred(parent: Option<Self>, retrying: Retrying, routing: bool) -> Self {
        let mut scope = Scope::new(NoReservation, Ledger::default());
        scope.inherit(parent);
        (scope.retrying, scope.routing, scope.was_deferred) = (retrying, routing, true);
        scope.routed |= routing;
        Self(Arc::new(scope))
    }

    /// Counts one further attempt on this scope and all around it, and has their budgets reserve for it; or none of all that.
    fn take(&self, kind: Further) -> Result<(), Next> {
        let mut taken = Some(self);
        while let Some(call) = taken {
            if !call.0.count(kind) {
                self.each_until(Some(call), |scope| scope.uncount(kind));
                return Err(Next::AttemptsSpent);
            }
            taken = call.0.parent.as_ref();
        }
        let mut paid = Some(self);
        while let Some(call) = paid {
            if !call.0.reservation.reserve() {
                self.each_until(Some(call), |scope| scope.reservation.release());
                self.each_until(None, |scope| scope.uncount(kind));
                return Err(Next::SpendDenied);
            }
            paid = call.0.parent.as_ref();
        }
        Ok(())
    }

    fn give_back(&self, kind: Further) {
        self.each_until(None, |scope| {
            scope.uncount(kind);
            scope.reservation.release();
        });
    }

    /// Visits this scope and those around it, up to `end`.
    fn each_until(&self, end: Option<&Self>, visit: impl Fn(&Scope)) {
        let mut next = Some(self);
        while let Some(call) = next.filter(|call| end.is_none_or(|end| !Arc::ptr_eq(&call.0, &end.0))) {
            visit(&call.0);
            next = call.0.parent.as_ref();
        }
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.0.ledger
    }

    /// Visits the ledgers of this scope and of all around it, with what their budgets have reserved.
    pub(crate) fn each_ledger(&self, visit: impl Fn(&Ledger, &dyn Reservation)) {
        self.each_until(None, |scope| visit(&scope.ledger, &scope.reservation));
    }

    fn root(&self) -> &Self {
        let mut root = self;
        while let Some(parent) = &root.0.parent {
            root = parent;
        }
        root
    }

    fn with_notes<R>(&self, f: impl FnOnce(&mut Notes) -> R) -> R {
        self.root().with_own_notes(f)
    }

    fn with_own_notes<R>(&self, f: impl FnOnce(&mut Notes) -> R) -> R {
        f(self.lock().get_or_insert_default())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<Notes>>> {
        self.0.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which it is.
    fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

/// What is counted: any attempt beyond the first, or one on the same target as the one before.
#[derive(Clone, Copy, PartialEq)]
enum Further {
    Attempt,
    Retry,
}

impl<R> Scope<R> {
    /// Of no call.
    fn new(reservation: R, ledger: Ledger) -> Self {
        Self {
            parent: None,
            deadline: None,
            marks: 0,
            max_attempts: None,
            further: AtomicU32::new(0),
            retrying: Retrying::default(),
            retries: AtomicU32::new(0),
            routing: false,
            routed: false,
            route: false,
            hurried: false,
            was_deferred: false,
            notes: Mutex::default(),
            ledger,
            reservation,
        }
    }
}

impl<R: ?Sized> Scope<R> {
    fn inherit(&mut self, parent: Option<Call>) {
        if let Some(Call(parent)) = &parent {
            (self.deadline, self.marks, self.routed) = (parent.deadline, parent.marks, parent.routed);
        }
        self.parent = parent;
    }

    /// A call begins, in a scope of no call.
    #[inline]
    fn begin(&mut self, options: &CallOptions) {
        self.open(options);
        if frame::is_around() {
            self.begin_inside(options);
        }
    }

    /// A call begins with nothing around it.
    #[inline]
    const fn open(&mut self, options: &CallOptions) {
        (self.deadline, self.marks, self.max_attempts) =
            (options.deadline, options.marks, options.max_attempts);
        (self.route, self.hurried) = (options.route, options.hurried);
    }

    fn begin_inside(&mut self, options: &CallOptions) {
        let Some(current) = Call::current_or_made() else { return };
        let outer = current.deadline();
        if options.isolated {
            self.deadline = outer;
        } else {
            self.inherit(Some(current));
        }
        self.marks |= options.marks;
        self.deadline = match (outer, options.deadline) {
            (Some(outer), Some(own)) => Some(outer.min(own)),
            (outer, own) => outer.or(own),
        };
    }
}

impl Scope {
    /// The call is over and nobody has it: the scope is of no call again. `false` where its reservation is not to be used again.
    #[inline]
    fn renew(&mut self) -> bool {
        self.parent = None;
        self.routed = false;
        *self.further.get_mut() = 0;
        *self.retries.get_mut() = 0;
        *self.notes.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        self.ledger.hold_again();
        self.reservation.renew()
    }

    /// Counts one on this scope alone, within its caps.
    fn count(&self, kind: Further) -> bool {
        let within = |counter: &AtomicU32, limit: Option<u32>| {
            let limit = limit.unwrap_or(u32::MAX);
            let more = |count: u32| (count < limit).then(|| count + 1);
            counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
        };
        if !within(&self.further, self.max_attempts.map(|max| max.saturating_sub(1))) {
            return false;
        }
        if kind == Further::Retry && !within(&self.retries, self.retrying.max) {
            self.further.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Takes back what was counted.
    fn uncount(&self, kind: Further) {
        self.further.fetch_sub(1, Ordering::Relaxed);
        if kind == Further::Retry {
            self.retries.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("deadline", &self.0.deadline)
            .field("max_attempts", &self.0.max_attempts)
            .field("further_attempts", &self.further_attempts())
            .finish_non_exhaustive()
    }
}

pin_project! {
    /// The future of [`Call::scope`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct Scoped<F> {
        call: Call,
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        this.call.enter(|| this.future.poll(cx))
    }
}

#[cfg(test)]
mod tests;
