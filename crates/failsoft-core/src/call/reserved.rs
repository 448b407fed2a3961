//! What a budget has reserved for a call, kept in the call's own scope.

use std::{any::Any, convert::Infallible, fmt, marker::PhantomData, ops::Deref, sync::Arc};

use super::{Call, CallOptions, Scope, frame::Moved, spare};
use crate::{Attempted, Closing, Usage, ledger::Ledger};

/// What a budget has reserved for a call. It lives in the scope of the call, see [`CallOptions::reserving`], and is asked for
/// more before each further attempt that a retry, a hedge or a fallback inside makes.
///
/// Nothing of the call is locked while these run, so they may ask for its usage.
pub trait Reservation: AsAny + Send + Sync + 'static {
    /// Reserves for one attempt more. `false` when there is not enough for it, and from the settling on; then nothing changes.
    fn reserve(&self) -> bool;

    /// Gives back what the last [`reserve`](Self::reserve) took: the attempt was not made. Nothing where nothing was taken, or
    /// the call has settled.
    fn release(&self);

    /// An attempt is over, of whose usage [`close`](Self::close) tells as a part of the sum, or after this as late. Default: nothing.
    fn attempted(&self, _: &Attempted<'_>) {}

    /// Takes in what the attempts used. [`Closing::Settled`] comes once, [`Closing::Late`] for each attempt that ends later; with
    /// several threads, a `Late` may overtake the `Settled`.
    fn close(&self, closing: Closing);

    /// The same as [`close`](Self::close) with [`Closing::Settled`], where nobody else has the call any more, and nothing will come late:
    /// then no lock is needed.
    fn close_alone(&mut self, usage: &Usage, unknown: u32) {
        self.close(Closing::Settled { usage: *usage, unknown });
    }

    /// After [`close_alone`](Self::close_alone): makes it like new, so that the thread's next call can have it, in the same place. What
    /// it held of the last call goes. `false`, the default, where it cannot be used again.
    fn renew(&mut self) -> bool {
        false
    }
}

/// Every type.
#[doc(hidden)]
pub trait AsAny {
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

impl<T: Any> AsAny for T {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
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
pub struct Reserved<R: Reservation> {
    /// Gone only while it is entered, which borrows this.
    call: Option<Call>,
    of: PhantomData<fn() -> R>,
}

impl<R: Reservation> Reserved<R> {
    const fn new(call: Call) -> Self {
        Self { call: Some(call), of: PhantomData }
    }

    /// The call that a [pledged](super::pledge) scope becomes, inside nothing, whose reservation was made before.
    #[doc(hidden)]
    pub fn made(fill: impl FnOnce(&mut R)) -> Self
    where
        R: Default,
    {
        let filled = |reservation: &mut R| {
            fill(reservation);
            Ok::<_, Infallible>(())
        };
        match prepare(filled, |scope| scope.open(&CallOptions::default())) {
            Ok(reserved) => reserved,
            Err(never) => match never {},
        }
    }

    /// Makes this the current call while `f` runs.
    #[inline]
    pub fn enter<T>(&mut self, f: impl FnOnce() -> T) -> T {
        let _moved = Moved::new(&mut self.call);
        f()
    }

    /// The call.
    #[must_use]
    #[inline]
    pub fn call(&self) -> Call {
        self.inner().clone()
    }

    #[allow(clippy::expect_used, reason = "only `enter` takes it, and brings it back")]
    fn inner(&self) -> &Call {
        self.call.as_ref().expect("it is gone only while `enter` borrows this")
    }
}

impl<R: Reservation> Deref for Reserved<R> {
    type Target = R;

    #[inline]
    #[allow(clippy::expect_used, reason = "nothing else makes one")]
    fn deref(&self) -> &R {
        self.inner().0.reservation.as_any().downcast_ref().expect("it was made with such a reservation")
    }
}

impl<R: Reservation> Drop for Reserved<R> {
    #[inline]
    fn drop(&mut self) {
        let Some(mut call) = self.call.take() else { return };
        let Some(scope) = Arc::get_mut(&mut call.0) else { return release(&call) };
        if let Some((usage, unknown)) = scope.ledger.release_alone() {
            scope.reservation.close_alone(usage, unknown);
        }
        if scope.renew() {
            spare::keep(call);
        }
    }
}

/// Others have the call.
#[cold]
fn release(call: &Call) {
    if let Some(closing) = call.0.ledger.release() {
        call.0.reservation.close(closing);
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
        let mut scope = Scope::new(reservation, Ledger::held());
        scope.begin(&self);
        Reserved::new(Call(Arc::new(scope)))
    }

    /// The same, but the reservation is made in its place in the call's scope: one that is moved there costs more than all else. The scope
    /// may be one that this thread has used before, see [`Reservation::renew`].
    ///
    /// # Errors
    ///
    /// Those of `reserve`. Then there is no call, and what there was of the reservation is dropped or renewed.
    #[inline(always)]
    pub fn try_reserving<R, E>(self, reserve: impl FnOnce(&mut R) -> Result<(), E>) -> Result<Reserved<R>, E>
    where
        R: Reservation + Default,
    {
        prepare(reserve, |scope| scope.begin(&self))
    }
}

/// A scope that may be one that this thread has used before, with a reservation in its place, for a call that then begins.
#[inline(always)]
fn prepare<R, E>(
    reserve: impl FnOnce(&mut R) -> Result<(), E>,
    begin: impl FnOnce(&mut Scope),
) -> Result<Reserved<R>, E>
where
    R: Reservation + Default,
{
    let mut call = spare::take().unwrap_or_else(new::<R>);
    loop {
        // Nobody else has it yet.
        let Some(scope) = Arc::get_mut(&mut call.0) else { return Ok(Reserved::new(call)) };
        let Some(reservation) = scope.reservation.as_any_mut().downcast_mut() else {
            // The thread has calls with another kind of reservation too.
            call = new::<R>();
            continue;
        };
        if let Err(error) = reserve(reservation) {
            if scope.renew() {
                spare::keep(call);
            }
            return Err(error);
        }
        begin(scope);
        return Ok(Reserved::new(call));
    }
}

#[cold]
fn new<R: Reservation + Default>() -> Call {
    Call(Arc::new(Scope::new(R::default(), Ledger::held())))
}

#[cfg(test)]
mod tests {
    use std::{mem::forget, panic, sync::Mutex};

    use super::*;
    use crate::{Deferred, Mark};

    /// Counts how often it was renewed, and keeps what it was told.
    #[derive(Default)]
    struct Renewed {
        times: u32,
        told: Mutex<Vec<Closing>>,
    }

    impl Reservation for Renewed {
        fn reserve(&self) -> bool {
            true
        }

        fn release(&self) {}

        fn close(&self, closing: Closing) {
            self.told.lock().unwrap().push(closing);
        }

        fn renew(&mut self) -> bool {
            self.times += 1;
            true
        }
    }

    fn begin(options: CallOptions) -> Reserved<Renewed> {
        options.try_reserving(|_| Ok::<_, Infallible>(())).unwrap()
    }

    fn used(call: &Reserved<Renewed>, output: u64) {
        let usage = Usage { output: Some(output), ..Usage::default() };
        call.call().enter(|| Call::slot().unwrap().set(&usage));
    }

    #[test]
    fn the_next_call_of_a_thread_has_the_scope_of_the_last_one_and_nothing_of_what_was_in_it() {
        let outer = Call::options().mark(Mark::Final).max_attempts(2).begin();
        let mut first = outer.enter(|| begin(Call::options().mark(Mark::FreeOnly)));
        first.enter(|| Call::take_attempt().unwrap());
        used(&first, 3);
        let address = first.call().address();
        drop(first);
        let mut second = begin(Call::options());
        assert_eq!((second.call().address(), second.times), (address, 1));
        assert_eq!((second.call().usage(), second.call().further_attempts()), (Usage::default(), 0));
        second.enter(|| assert!(!Call::is_marked(Mark::Final) && !Call::is_marked(Mark::FreeOnly)));
        used(&second, 4);
        assert_eq!(outer.usage().output, Some(3), "it is no child of what was around the first");
        drop(second);
        let third = begin(Call::options());
        let told = third.told.lock().unwrap().clone();
        let settled = |output| Closing::Settled {
            usage: Usage { output: Some(output), ..Usage::default() },
            unknown: 0,
        };
        assert_eq!(told, [settled(3), settled(4)]);
    }

    #[test]
    fn a_scope_that_somebody_has_is_not_used_again_and_hears_what_comes_late() {
        let first = begin(Call::options());
        let call = first.call();
        let slot = call.enter(Call::slot);
        drop(first);
        let second = begin(Call::options());
        assert_ne!(second.call().address(), call.address());
        drop(slot);
        assert!(second.told.lock().unwrap().is_empty());
        drop((call, second));
    }

    #[test]
    fn of_many_calls_at_once_a_thread_keeps_a_few_scopes_and_another_thread_has_its_own() {
        let all: Vec<_> = (0..20).map(|_| begin(Call::options())).collect();
        drop(all);
        let again: Vec<_> = (0..20).map(|_| begin(Call::options())).collect();
        let renewed = again.iter().filter(|call| call.times > 0).count();
        assert!((1..20).contains(&renewed), "{renewed}");
        drop(again);
        std::thread::spawn(|| assert_eq!(begin(Call::options()).times, 0)).join().unwrap();
    }

    #[test]
    fn a_call_comes_back_from_where_it_was_entered_also_after_a_panic_and_where_a_scope_in_it_never_ended() {
        let mut call = begin(Call::options());
        let address = call.call().address();
        assert!(
            panic::catch_unwind(panic::AssertUnwindSafe(|| call.enter(|| panic!("in the call")))).is_err()
        );
        assert!(!Call::is_current());
        call.enter(|| {
            forget(Deferred::new().try_begin());
            Call::take_retry().unwrap().sent();
        });
        assert!(!Call::is_current());
        assert_eq!((call.call().address(), call.call().further_attempts()), (address, 1));
        // Begun outside, and ended inside: it takes nothing away.
        let astray = Deferred::new().try_begin();
        Call::take_retry().unwrap().sent();
        call.enter(|| {
            drop(astray);
            assert_eq!(Call::current().map(|call| call.address()), Some(address));
        });
        assert_eq!(call.call().address(), address);
    }
}
