//! What is current on a thread, and the scopes that are not calls yet.

use std::cell::{Cell, RefCell};

use super::Call;

/// A scope that a layer opens around every call, and that becomes a [`Call`] only when something is recorded in it.
///
/// Until then it costs a few nanoseconds a poll and no allocation.
#[derive(Debug, Default)]
pub struct Deferred {
    call: Option<Call>,
    routing: bool,
    cap: Cap,
}

/// A cap on retries in a byte: 0 for none, else one more than there may be. A cap above 254 is none.
type Cap = u8;

/// So many scopes inside each other may have a cap of their own before they become calls; no stack is deeper.
const CAPS: u32 = u64::BITS / Cap::BITS;

impl Deferred {
    /// A scope in which nothing has been recorded.
    #[must_use]
    pub const fn new() -> Self {
        Self { call: None, routing: false, cap: 0 }
    }

    /// The scope of a fallback: the routes taken in it are remembered, see [`Call::visit`].
    #[must_use]
    pub const fn routing() -> Self {
        Self { call: None, routing: true, cap: 0 }
    }

    /// The scope of a retry: it and all retries inside it together take at most so many, see [`Call::take_retry`], so that
    /// layers inside each other add up and do not multiply. A cap above 254 is none.
    #[must_use]
    pub const fn retrying(max_retries: u32) -> Self {
        let cap = if max_retries < Cap::MAX as u32 { max_retries as Cap + 1 } else { 0 };
        Self { call: None, routing: false, cap }
    }

    /// Makes this the current scope while `f` runs.
    #[inline]
    pub fn enter<R>(&mut self, f: impl FnOnce() -> R) -> R {
        if let Some(call) = &self.call {
            return call.enter(f);
        }
        PENDING.set(PENDING.get().with(self.routing, self.cap));
        let _entered = EnteredDeferred(self);
        f()
    }

    /// The call that it has become, if something was recorded.
    #[must_use]
    pub const fn call(&self) -> Option<&Call> {
        self.call.as_ref()
    }
}

/// What is current on a thread, beside the scopes that are pending inside it.
pub(super) struct Frame {
    pub(super) call: Option<Call>,
}

/// The deferred scopes inside the current call that nothing was recorded in. Apart from it, because every call through a
/// retry or a fallback enters some: this has nothing to drop, so it costs a thread no more than a variable.
#[derive(Clone, Copy)]
struct Pending {
    count: u32,
    /// Which of them, counted from 1, is the outermost that a fallback opened; 0 for none.
    routed: u32,
    /// Their caps, the outermost in the lowest byte.
    caps: u64,
}

thread_local! {
    static FRAME: RefCell<Frame> = const { RefCell::new(Frame { call: None }) };
    static PENDING: Cell<Pending> = const { Cell::new(Pending::NONE) };
}

/// `None` only while the thread ends, when what is dropped late finds nothing current instead of panicking.
#[inline]
pub(super) fn with_frame<R>(f: impl FnOnce(&mut Frame) -> R) -> Option<R> {
    FRAME.try_with(|frame| frame.try_borrow_mut().ok().map(|mut frame| f(&mut frame))).ok().flatten()
}

impl Pending {
    const NONE: Self = Self { count: 0, routed: 0, caps: 0 };

    /// One scope more, the innermost.
    #[inline]
    const fn with(mut self, routing: bool, cap: Cap) -> Self {
        if self.count < CAPS {
            self.caps |= (cap as u64) << (self.count * Cap::BITS);
        }
        self.count += 1;
        if routing && self.routed == 0 {
            self.routed = self.count;
        }
        self
    }

    /// Without the innermost one; there is one.
    #[inline]
    const fn without(mut self) -> Self {
        self.count -= 1;
        if self.count < CAPS {
            self.caps &= !((Cap::MAX as u64) << (self.count * Cap::BITS));
        }
        if self.routed > self.count {
            self.routed = 0;
        }
        self
    }
}

impl Frame {
    #[inline]
    pub(super) fn is_routed(&self) -> bool {
        PENDING.get().routed > 0 || self.call.as_ref().is_some_and(|call| call.0.routed)
    }

    /// Turns the deferred scopes into calls, each the child of the one around it, and gives the innermost.
    pub(super) fn materialise(&mut self) -> Option<Call> {
        let Pending { count, routed, mut caps } = PENDING.replace(Pending::NONE);
        for position in 1..=count {
            let max_retries = (caps as Cap).checked_sub(1).map(u32::from);
            caps >>= Cap::BITS;
            self.call = Some(Call::child(self.call.take(), max_retries, position == routed));
        }
        self.call.clone()
    }
}

/// Restores what was current before, also when the closure panics.
pub(super) struct Entered(Option<(Frame, Pending)>);

impl Entered {
    #[inline]
    pub(super) fn new(call: Option<Call>) -> Self {
        let outer = with_frame(|frame| std::mem::replace(frame, Frame { call }));
        Self(outer.map(|frame| (frame, PENDING.replace(Pending::NONE))))
    }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        if let Some((outer, pending)) = self.0.take() {
            PENDING.set(pending);
            // Given out of the closure before it drops, so that the frame is not borrowed meanwhile.
            drop(with_frame(|frame| std::mem::replace(frame, outer)));
        }
    }
}

/// Takes the call that the scope has become while it was entered, also when the closure panics.
struct EnteredDeferred<'a>(&'a mut Deferred);

impl EnteredDeferred<'_> {
    #[cold]
    fn take_call(&mut self) {
        let this = &mut self.0.call;
        with_frame(|frame| {
            if let Some(call) = frame.call.take() {
                frame.call.clone_from(&call.0.parent);
                *this = Some(call);
            }
        });
    }
}

impl Drop for EnteredDeferred<'_> {
    #[inline]
    fn drop(&mut self) {
        let pending = PENDING.get();
        if pending.count > 0 {
            PENDING.set(pending.without());
        } else {
            self.take_call();
        }
    }
}
