//! Scopes of calls that are over, for the next calls of their thread: to allocate and to free one costs more than most of what a
//! budget does with it.

use std::cell::RefCell;

use super::Call;

/// So many calls inside each other find one. More would serve only threads on which many calls end that began elsewhere.
const SPARES: usize = 4;

thread_local! {
    static KEPT: RefCell<[Option<Call>; SPARES]> = const { RefCell::new([const { None }; SPARES]) };
}

/// The scope that was kept last with such a reservation; nobody else has it.
#[inline]
pub(super) fn take<R: 'static>() -> Option<Call> {
    let take = |kept: &mut [Option<Call>; SPARES]| {
        let place = kept.iter_mut().rev().find(|place| place.is_some())?;
        place.take_if(|call| call.0.reservation.as_any().is::<R>())
    };
    KEPT.try_with(|kept| kept.try_borrow_mut().ok().and_then(|mut kept| take(&mut kept))).ok().flatten()
}

/// Keeps a scope of no call that nobody else has; drops it where there is no room, or the thread is ending.
#[inline]
pub(super) fn keep(call: Call) {
    let mut call = Some(call);
    let _ending = KEPT.try_with(|kept| {
        if let Ok(mut kept) = kept.try_borrow_mut() {
            if let Some(place) = kept.iter_mut().find(|place| place.is_none()) {
                *place = call.take();
            }
        }
    });
}
