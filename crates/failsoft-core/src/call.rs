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

use std::{
    cell::RefCell,
    fmt,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::time::Instant;

use crate::{Attempt, Trail, ledger::Ledger};

/// A scope of one user call: cheap to clone, all clones are the same scope.
#[derive(Clone)]
pub struct Call(Arc<Scope>);

struct Scope {
    parent: Option<Call>,
    deadline: Option<Instant>,
    marks: u8,
    max_attempts: Option<u32>,
    /// Further attempts, the first one not counted.
    further: AtomicU32,
    notes: Mutex<Notes>,
    ledger: Ledger,
}

/// Kept by the root of a tree of scopes for all of them.
#[derive(Default)]
struct Notes {
    trail: Trail,
    opened: bool,
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
}

impl Mark {
    const fn bit(self) -> u8 {
        match self {
            Self::LastResort => 1,
            Self::FreeOnly => 2,
            Self::Final => 4,
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

    /// Begins the call, as a child of the current one where there is one.
    #[must_use]
    pub fn begin(self) -> Call {
        let current = with_frame(Frame::materialise).flatten();
        let outer = current.as_ref().and_then(Call::deadline);
        let deadline = match (outer, self.deadline) {
            (Some(outer), Some(own)) => Some(outer.min(own)),
            (outer, own) => outer.or(own),
        };
        let parent = current.filter(|_| !self.isolated);
        let marks = self.marks | parent.as_ref().map_or(0, |parent| parent.0.marks);
        Call::new(parent, deadline, marks, self.max_attempts)
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
        with_frame(|frame| frame.call.clone()).flatten()
    }

    /// Whether a call is current: somebody wants a trail even of a single attempt.
    #[must_use]
    pub fn is_current() -> bool {
        with_frame(|frame| frame.call.is_some()).unwrap_or(false)
    }

    /// The nearest deadline of the current call.
    #[must_use]
    pub fn current_deadline() -> Option<Instant> {
        with_frame(|frame| frame.call.as_ref().and_then(Self::deadline)).flatten()
    }

    /// Whether the current call carries a mark.
    #[must_use]
    pub fn is_marked(mark: Mark) -> bool {
        with_frame(|frame| frame.call.as_ref().is_some_and(|call| call.0.marks & mark.bit() != 0))
            .unwrap_or(false)
    }

    /// Asks the current call for one attempt more than the first. `false` when a cap forbids it; then nothing is
    /// counted. `true` where no call is current.
    #[must_use]
    pub fn take_attempt() -> bool {
        Self::current().is_none_or(|call| call.take())
    }

    /// Records an attempt in the current call; inside a [`Deferred`] scope this makes it a real one. Does nothing
    /// where there is neither.
    pub fn record(attempt: Attempt) {
        let Some(call) = with_frame(Frame::materialise).flatten() else { return };
        call.with_notes(|notes| {
            let opened = std::mem::take(&mut notes.opened) || attempt.opened;
            notes.trail.push(Attempt { opened, ..attempt });
        });
    }

    /// Notes that an outcome of the current call opened a circuit; the next attempt that is recorded says so.
    pub fn record_opening() {
        if let Some(call) = with_frame(Frame::materialise).flatten() {
            call.with_notes(|notes| notes.opened = true);
        }
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
        self.with_notes(|notes| notes.trail.clone())
    }

    /// Makes this the current call while `f` runs.
    pub fn enter<R>(&self, f: impl FnOnce() -> R) -> R {
        let _frame = Entered::new(Some(self.clone()));
        f()
    }

    /// Makes this the current call whenever `future` is polled.
    pub fn scope<F: Future>(&self, future: F) -> Scoped<F> {
        Scoped { call: self.clone(), future }
    }

    fn new(parent: Option<Self>, deadline: Option<Instant>, marks: u8, max_attempts: Option<u32>) -> Self {
        let further = AtomicU32::new(0);
        Self(Arc::new(Scope {
            parent,
            deadline,
            marks,
            max_attempts,
            further,
            notes: Mutex::default(),
            ledger: Ledger::default(),
        }))
    }

    /// A scope of a layer: everything is inherited.
    fn child(parent: Option<Self>) -> Self {
        let (deadline, marks) =
            parent.as_ref().map_or((None, 0), |parent| (parent.0.deadline, parent.0.marks));
        Self::new(parent, deadline, marks, None)
    }

    /// Counts one further attempt on this scope and all around it, or on none.
    fn take(&self) -> bool {
        let mut taken = Some(self);
        while let Some(call) = taken {
            let limit = call.0.max_attempts.map_or(u32::MAX, |max| max.saturating_sub(1));
            let counted = call.0.further.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |further| {
                (further < limit).then(|| further + 1)
            });
            if counted.is_err() {
                self.give_back_until(call);
                return false;
            }
            taken = call.0.parent.as_ref();
        }
        true
    }

    fn give_back_until(&self, end: &Self) {
        let mut next = Some(self);
        while let Some(call) = next.filter(|call| !Arc::ptr_eq(&call.0, &end.0)) {
            call.0.further.fetch_sub(1, Ordering::Relaxed);
            next = call.0.parent.as_ref();
        }
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.0.ledger
    }

    /// Visits the ledgers of this scope and of all around it.
    pub(crate) fn each_scope(&self, mut visit: impl FnMut(&Ledger)) {
        let mut next = Some(self);
        while let Some(call) = next {
            visit(&call.0.ledger);
            next = call.0.parent.as_ref();
        }
    }

    fn with_notes<R>(&self, f: impl FnOnce(&mut Notes) -> R) -> R {
        let mut root = self;
        while let Some(parent) = &root.0.parent {
            root = parent;
        }
        f(&mut root.0.notes.lock().unwrap_or_else(PoisonError::into_inner))
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

/// A scope that a layer opens around every call, and that becomes a [`Call`] only when something is recorded in it.
///
/// Until then it costs a few nanoseconds a poll and no allocation.
#[derive(Debug, Default)]
pub struct Deferred(Option<Call>);

impl Deferred {
    /// A scope in which nothing has been recorded.
    #[must_use]
    pub const fn new() -> Self {
        Self(None)
    }

    /// Makes this the current scope while `f` runs.
    pub fn enter<R>(&mut self, f: impl FnOnce() -> R) -> R {
        if let Some(call) = &self.0 {
            return call.enter(f);
        }
        let _entered = with_frame(|frame| frame.pending += 1).map(|()| EnteredDeferred(self));
        f()
    }

    /// The call that it has become, if something was recorded.
    #[must_use]
    pub const fn call(&self) -> Option<&Call> {
        self.0.as_ref()
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

/// What is current on a thread: a call, and how many deferred scopes lie inside it that nothing was recorded in.
struct Frame {
    call: Option<Call>,
    pending: u32,
}

thread_local! {
    static FRAME: RefCell<Frame> = const { RefCell::new(Frame { call: None, pending: 0 }) };
}

/// `None` only while the thread ends, when what is dropped late finds nothing current instead of panicking.
fn with_frame<R>(f: impl FnOnce(&mut Frame) -> R) -> Option<R> {
    FRAME.try_with(|frame| frame.try_borrow_mut().ok().map(|mut frame| f(&mut frame))).ok().flatten()
}

impl Frame {
    /// Turns the deferred scopes into calls, each the child of the one around it, and gives the innermost.
    fn materialise(&mut self) -> Option<Call> {
        for _ in 0..std::mem::take(&mut self.pending) {
            self.call = Some(Call::child(self.call.take()));
        }
        self.call.clone()
    }
}

/// Restores the frame that was current before, also when the closure panics.
struct Entered(Option<Frame>);

impl Entered {
    fn new(call: Option<Call>) -> Self {
        Self(with_frame(|frame| std::mem::replace(frame, Frame { call, pending: 0 })))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(outer) = self.0.take() {
            // Given out of the closure before it drops, so that the frame is not borrowed meanwhile.
            drop(with_frame(|frame| std::mem::replace(frame, outer)));
        }
    }
}

/// Takes the call that the scope has become while it was entered, also when the closure panics.
struct EnteredDeferred<'a>(&'a mut Deferred);

impl Drop for EnteredDeferred<'_> {
    fn drop(&mut self) {
        let this = &mut self.0.0;
        with_frame(|frame| {
            if frame.pending > 0 {
                frame.pending -= 1;
            } else if let Some(call) = frame.call.take() {
                frame.call.clone_from(&call.0.parent);
                *this = Some(call);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Class, Next, Verdict};

    fn attempt(layer: &'static str) -> Attempt {
        Attempt::new(layer, Verdict::of(Class::Transient)).then(Next::Retry)
    }

    #[tokio::test(start_paused = true)]
    async fn the_nearest_deadline_wins_whichever_way_they_nest() {
        let (near, far) = (Duration::from_secs(1), Duration::from_secs(9));
        for (outer, inner) in [(near, far), (far, near)] {
            let call = Call::options().timeout(outer).begin();
            let seen = call.enter(|| Call::options().timeout(inner).begin().enter(Call::current_deadline));
            assert_eq!(seen, Some(Instant::now() + near));
        }
    }

    #[test]
    fn outside_a_call_nothing_is_current_and_nothing_is_recorded() {
        Call::record(attempt("x"));
        assert!(Call::current().is_none());
        assert!(Call::take_attempt());
        assert!(!Call::is_marked(Mark::LastResort));
    }

    #[test]
    fn a_cap_counts_attempts_of_all_scopes_below_and_a_refused_one_counts_nowhere() {
        let outer = Call::options().max_attempts(3).begin();
        let inner = outer.enter(|| Call::options().max_attempts(9).begin());
        inner.enter(|| {
            assert!(Call::take_attempt());
            assert!(Call::take_attempt());
            assert!(!Call::take_attempt());
        });
        assert_eq!((outer.further_attempts(), inner.further_attempts()), (2, 2));
    }

    #[test]
    fn an_isolated_call_keeps_the_deadline_and_nothing_else() {
        let outer =
            Call::options().timeout(Duration::from_secs(5)).max_attempts(1).mark(Mark::LastResort).begin();
        outer.enter(|| {
            let inner = Call::options().isolated().begin();
            assert_eq!(inner.deadline(), outer.deadline());
            inner.enter(|| {
                assert!(Call::take_attempt());
                assert!(!Call::is_marked(Mark::LastResort));
                Call::record(attempt("inner"));
            });
        });
        assert!(outer.trail().is_empty());
    }

    #[test]
    fn marks_are_inherited() {
        Call::options().mark(Mark::FreeOnly).begin().enter(|| {
            Call::begin().enter(|| assert!(Call::is_marked(Mark::FreeOnly)));
            let mut deferred = Deferred::new();
            deferred.enter(|| {
                Call::record(attempt("x"));
                assert!(Call::is_marked(Mark::FreeOnly));
            });
        });
    }

    #[test]
    fn a_deferred_scope_becomes_a_call_when_something_is_recorded() {
        let mut deferred = Deferred::new();
        deferred.enter(|| ());
        assert!(deferred.call().is_none());
        deferred.enter(|| Call::record(attempt("x")));
        assert_eq!(deferred.call().map(|call| call.trail().attempts().len()), Some(1));
        assert!(Call::current().is_none());
    }

    #[test]
    fn nested_deferred_scopes_share_one_trail_at_the_outermost() {
        let (mut outer, mut inner) = (Deferred::new(), Deferred::new());
        outer.enter(|| {
            inner.enter(|| Call::record(attempt("inner")));
            Call::record(attempt("outer"));
            // A scope of the next attempt, in which nothing happens.
            Deferred::new().enter(|| ());
        });
        let trail = outer.call().unwrap().trail();
        assert_eq!(trail.attempts().iter().map(|a| a.layer).collect::<Vec<_>>(), ["inner", "outer"]);
        assert_eq!(inner.call().unwrap().trail(), trail);
        assert!(Call::current().is_none());
    }

    #[test]
    fn a_call_begun_inside_a_deferred_scope_is_its_child() {
        let mut deferred = Deferred::new();
        deferred.enter(|| Call::begin().enter(|| Call::record(attempt("x"))));
        assert_eq!(deferred.call().unwrap().trail().attempts().len(), 1);
    }

    #[test]
    fn a_panic_restores_what_was_current() {
        let outer = Call::begin();
        outer.enter(|| {
            let mut deferred = Deferred::new();
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                deferred.enter(|| {
                    Call::record(attempt("x"));
                    Call::begin().enter(|| panic!("on purpose"));
                });
            }));
            assert!(caught.is_err());
            assert!(Arc::ptr_eq(&Call::current().unwrap().0, &outer.0));
            assert!(deferred.call().is_some());
        });
        assert!(Call::current().is_none());
    }

    #[test]
    fn an_opened_circuit_is_told_with_the_next_attempt_only() {
        let call = Call::begin();
        call.enter(|| {
            Call::record_opening();
            Call::record(attempt("a"));
            Call::record(attempt("b"));
        });
        assert_eq!(call.trail().attempts().iter().map(|a| a.opened).collect::<Vec<_>>(), [true, false]);
    }

    #[tokio::test]
    async fn a_scope_is_current_at_each_poll_and_not_between() {
        let call = Call::begin();
        let future = call.scope(async {
            assert!(Call::is_current());
            tokio::task::yield_now().await;
            assert!(Call::is_current());
        });
        let mut future = tokio_test::task::spawn(future);
        assert!(future.poll().is_pending());
        assert!(!Call::is_current());
        assert!(future.poll().is_ready());
    }
}
