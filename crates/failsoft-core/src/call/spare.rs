//! Scopes of calls that are over, for the next calls of their thread: to allocate and to free one costs more than most of what a
//! budget does with it.

use std::cell::RefCell;

use super::Call;

/// So many calls inside each other find one. More would serve only threads on which many calls end that began elsewhere.
const SPARES: usize = 4;

/// Those that are kept, the last one last; nobody else has them.
struct Spares {
    len: usize,
    calls: [Option<Call>; SPARES],
}

thread_local! {
    static KEPT: RefCell<Spares> = const { RefCell::new(Spares { len: 0, calls: [const { None }; SPARES] }) };
}

/// The scope that was kept last, whatever its reservation.
#[inline]
pub(super) fn take() -> Option<Call> {
    let take = |kept: &mut Spares| {
        kept.len = kept.len.checked_sub(1)?;
        kept.calls.get_mut(kept.len)?.take()
    };
    KEPT.try_with(|kept| kept.try_borrow_mut().ok().and_then(|mut kept| take(&mut kept))).ok().flatten()
}

/// Keeps a scope of no call that nobody else has; drops it where there is no room, or the thread is ending.
#[inline]
pub(super) fn keep(call: Call) {
    let mut call = Some(call);
    let _ending = KEPT.try_with(|kept| {
        if let Ok(mut kept) = kept.try_borrow_mut() {
            let len = kept.len;
            if let Some(place) = kept.calls.get_mut(len) {
                *place = call.take();
                kept.len += 1;
            }
        }
    });
}
