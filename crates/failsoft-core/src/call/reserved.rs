//! What a budget has reserved for a call, kept in the call's own scope.

use std::{fmt, ops::Deref, sync::Arc};

use super::{Call, CallOptions, Scope, frame::Entered};
use crate::{Closing, ledger::Ledger};

/// What a budget has reserved for a call. It lives in the scope of the call, see [`CallOptions::reserving`], and is asked for
/// more before each further attempt that a retry, a hedge or a fallback inside makes.
///
/// Nothing of the call is locked while these run, so they may ask for its usage.
pub trait Reservation: Send + Sync + 'static {
    /// Reserves for one attempt more. `false` when there is not enough for it, and from the settling on; then nothing changes.
    fn reserve(&self) -> bool;

    /// Gives back what the last [`reserve`](Self::reserve) took: the attempt was not made. Nothing where nothing was taken, or
    /// the call has settled.
    fn release(&self);

    /// Takes in what the attempts used. [`Closing::Settled`] comes once, [`Closing::Late`] for each attempt that ends later; with
    /// several threads, a `Late` may overtake the `Settled`.
    fn close(&self, closing: Closing);
}

/// Reserves nothing and tells a function what a call used: for whoever only wants to know.
///
/// ```
/// use failsoft_core::{Call, Closing, OnClose, Usage};
///
/// let reserved = Call::options().reserving(OnClose::new(|closing| match closing {
///     Closing::Settled { usage, .. } | Closing::Late { usage } => assert_eq!(usage.total(), 3),
/// }));
/// reserved.call().enter(|| Call::slot().unwrap().set(&Usage { output: Some(3), ..Usage::default() }));
/// ```
pub struct OnClose<F>(F);

impl<F: Fn(Closing) + Send + Sync + 'static> OnClose<F> {
    /// Tells `on_close`.
    pub const fn new(on_close: F) -> Self {
        Self(on_close)
    }
}

impl<F: Fn(Closing) + Send + Sync + 'static> Reservation for OnClose<F> {
    fn reserve(&self) -> bool {
        true
    }

    fn release(&self) {}

    fn close(&self, closing: Closing) {
        (self.0)(closing);
    }
}

impl<F> fmt::Debug for OnClose<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnClose")
    }
}

/// A scope of which no budget knows.
pub(super) struct NoReservation;

impl Reservation for NoReservation {
    fn reserve(&self) -> bool {
        true
    }

    fn release(&self) {}

    fn close(&self, _: Closing) {}
}

/// A call for which a budget has reserved something; made by [`CallOptions::reserving`]. Once it is dropped and no slot of the
/// call is open, the reservation is told what was used.
#[must_use = "the call settles as soon as this drops and no slot is open"]
pub struct Reserved<R: Reservation>(Arc<Scope<R>>);

impl<R: Reservation> Reserved<R> {
    /// Makes this the current call while `f` runs.
    #[inline]
    pub fn enter<T>(&self, f: impl FnOnce() -> T) -> T {
        let _frame = Entered::new(Some(self.call()));
        f()
    }

    /// The call.
    #[must_use]
    #[inline]
    pub fn call(&self) -> Call {
        Call(Arc::<Scope<R>>::clone(&self.0))
    }
}

impl<R: Reservation> Deref for Reserved<R> {
    type Target = R;

    #[inline]
    fn deref(&self) -> &R {
        &self.0.reservation
    }
}

impl<R: Reservation> Drop for Reserved<R> {
    fn drop(&mut self) {
        if let Some(closing) = self.0.ledger.release() {
            self.0.reservation.close(closing);
        }
    }
}

impl<R: Reservation> fmt::Debug for Reserved<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserved").finish_non_exhaustive()
    }
}

impl CallOptions {
    /// Begins the call as [`begin`](Self::begin) does, with what a budget has reserved for it.
    pub fn reserving<R: Reservation>(self, reservation: R) -> Reserved<R> {
        Reserved(Arc::new(self.scope(reservation, Ledger::held())))
    }

    /// The same, but the reservation is made in its place in the call's scope: one that is moved there costs more than all else.
    ///
    /// # Errors
    ///
    /// Those of `reserve`. Then there is no call, and what there was of the reservation is dropped.
    #[inline]
    pub fn try_reserving<R, E>(self, reserve: impl FnOnce(&mut R) -> Result<(), E>) -> Result<Reserved<R>, E>
    where
        R: Reservation + Default,
    {
        let mut scope = Arc::new(self.scope(R::default(), Ledger::held()));
        // Nobody else has it yet.
        if let Some(Scope { reservation, .. }) = Arc::get_mut(&mut scope) {
            reserve(reservation)?;
        }
        Ok(Reserved(scope))
    }
}
