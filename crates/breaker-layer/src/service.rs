//! The service: readiness, admission, and the call.

use std::fmt;
use std::task::{Context, Poll, ready};

use failsoft_core::{BoxError, ByResponse, Call, Classify, CloneService, IntoBoxError, Mark, Watch};
use tokio::time::Instant;
use tower_service::Service;

use crate::engine::{Permit, Refusal, State};
use crate::ticket::Starting;
use crate::waiters::Wait;
use crate::{Circuit, ResponseFuture, Ticket};

/// A service behind a circuit breaker; made by [`BreakerLayer`](crate::BreakerLayer).
///
/// While the circuit refuses, it is ready at once, without asking the inner service, and the call fails with
/// a [`Fault`](failsoft_core::Fault) of [`Class::Denied`](failsoft_core::Class::Denied). `poll_ready` never fails
/// for that: an error there would end the service for good. What it said then holds until the call, as `tower` wants it, however
/// late that comes: also where the circuit admits calls by then, and with the time that was left then.
pub struct Breaker<S, C = ByResponse> {
    inner: S,
    circuit: Circuit,
    classify: C,
    /// Some, if it waits while the circuit refuses.
    wait: Option<Wait>,
    /// The inner service was polled since its last call: it may hold something.
    polled: bool,
    asked: Asked,
}

/// What the circuit said when readiness was asked for.
#[derive(Debug)]
enum Asked {
    /// Nothing that lasts: it is asked again at the call.
    Nothing,
    /// No; that stays until the call.
    Refused(Refusal),
    /// Yes, and what was promised is held.
    Reserved(Ticket),
}

impl<S, C> Breaker<S, C> {
    pub(crate) fn new(inner: S, circuit: Circuit, classify: C, waits: bool) -> Self {
        let wait = waits.then(|| Wait::new(circuit.clone()));
        Self { inner, circuit, classify, wait, polled: false, asked: Asked::Nothing }
    }

    /// The circuit that it shares with the other services of its layer.
    pub fn circuit(&self) -> &Circuit {
        &self.circuit
    }

    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }

    /// Nothing was asked, nothing is waited for, and the circuit is closed: there is nothing to decide.
    #[inline]
    fn is_plainly_closed(&self) -> bool {
        self.wait.is_none()
            && matches!(self.asked, Asked::Nothing)
            && self.circuit.shared().engine().is_closed()
    }

    /// Whether a call would be refused now. One marked as a last resort is let through to the call, unless
    /// forced open.
    fn would_refuse(&self) -> Option<Refusal> {
        let refusal = self.circuit.shared().engine().would_refuse(Instant::now)?;
        let last_resort = refusal.state != State::ForcedOpen && Call::is_marked(Mark::LastResort);
        (!last_resort).then_some(refusal)
    }

    fn acquire(&self) -> Result<Permit, Refusal> {
        self.circuit.shared().acquire()
    }

    /// What is not simply closed: what was said at readiness holds, else the circuit is asked now.
    #[cold]
    fn admission(&mut self) -> Result<Permit, Refusal> {
        match std::mem::replace(&mut self.asked, Asked::Nothing) {
            Asked::Nothing => self.acquire(),
            // unless the circuit changed since
            Asked::Reserved(ticket) => ticket.take_current().map_or_else(|| self.acquire(), Ok),
            Asked::Refused(refusal) => {
                self.circuit.shared().engine().count_refused();
                Err(refusal)
            }
        }
    }
}

impl<S: Clone, C> Breaker<S, C> {
    #[cold]
    fn refuse(&mut self, refusal: &Refusal) -> BoxError {
        self.release();
        self.circuit.shared().refuse(refusal)
    }

    /// Lets go of what the inner service may hold: its clone holds nothing.
    fn release(&mut self) {
        if std::mem::take(&mut self.polled) {
            self.inner = self.inner.clone();
        }
    }

    /// What the circuit says where it is not plainly closed: whether the inner service is asked next. If not, the
    /// call will be refused, or this waits.
    #[cold]
    fn poll_admitted(&mut self, cx: &mut Context<'_>) -> bool {
        if self.wait.is_some() {
            return self.poll_admission(cx).is_ready();
        }
        if matches!(self.asked, Asked::Refused(_)) {
            return false;
        }
        let Some(refusal) = self.would_refuse() else { return true };
        self.release();
        self.asked = Asked::Refused(refusal);
        false
    }

    /// Pending until the circuit admits; then holds what it admitted.
    fn poll_admission(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if matches!(&self.asked, Asked::Reserved(ticket) if ticket.is_current()) {
            return Poll::Ready(());
        }
        self.asked = Asked::Nothing;
        loop {
            if self.would_refuse().is_none() {
                if let Ok(permit) = self.acquire() {
                    self.asked = Asked::Reserved(Ticket::reserve(self.circuit.shared(), permit));
                    self.wait.iter_mut().for_each(Wait::end);
                    return Poll::Ready(());
                }
            }
            self.release();
            let Some(wait) = &mut self.wait else { return Poll::Ready(()) };
            // listens first and looks again then: what changes in between is not missed
            wait.listen(cx);
            if self.circuit.shared().engine().would_refuse(Instant::now).is_some() {
                ready!(wait.poll_deadline(cx));
            }
        }
    }
}

impl<S, C, Req> Service<Req> for Breaker<S, C>
where
    S: Service<Req, Error: IntoBoxError> + CloneService,
    C: Classify<S::Response> + Clone,
{
    type Response = <C::Judge as Watch<S::Response>>::Out<Ticket>;
    type Error = BoxError;
    type Future = ResponseFuture<S::Future, C>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.is_plainly_closed() || self.poll_admitted(cx) {
            self.polled = true;
            return self.inner.poll_ready(cx).map_err(Into::into);
        }
        if self.wait.is_some() { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    // With the layers around it in line, none of their futures is moved from one to the next.
    #[inline(always)]
    fn call(&mut self, request: Req) -> ResponseFuture<S::Future, C> {
        let closed = match self.asked {
            Asked::Nothing => self.circuit.shared().engine().acquire_if_closed(),
            Asked::Refused(_) | Asked::Reserved(_) => None,
        };
        match closed.map_or_else(|| self.admission(), Ok) {
            Ok(permit) => {
                self.polled = false;
                let starting = Starting::new(self.circuit.shared(), permit);
                let future = self.inner.call(request);
                ResponseFuture::called(future, self.classify.clone(), starting.ticket())
            }
            Err(refusal) => {
                let error = self.refuse(&refusal);
                ResponseFuture::refused(error, self.classify.clone())
            }
        }
    }
}

impl<S: Clone, C: Clone> Clone for Breaker<S, C> {
    /// A clone carries neither readiness nor a refusal.
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), self.circuit.clone(), self.classify.clone(), self.wait.is_some())
    }
}

impl<S: fmt::Debug, C> fmt::Debug for Breaker<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Breaker")
            .field("inner", &self.inner)
            .field("circuit", &self.circuit)
            .field("asked", &self.asked)
            .finish_non_exhaustive()
    }
}
