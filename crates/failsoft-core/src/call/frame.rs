//! What is current on a thread, and the scopes that are not calls yet.

use std::{
    cell::{Cell, RefCell},
    fmt,
    marker::PhantomData,
    mem::ManuallyDrop,
};

use super::Call;

/// A scope that a layer opens around every call, and that becomes a [`Call`] only when something is recorded in it.
///
/// Until then it costs a few nanoseconds a poll and no allocation.
#[derive(Debug, Default)]
pub struct Deferred {
    call: Option<Call>,
    kind: Kind,
}

/// What a scope is. A whole word, though it needs less: a future that holds it is moved in words.
#[derive(Clone, Copy, Debug, Default)]
struct Kind(u64);

/// A cap on retries in a byte: 0 where the scope is no retry's, else one more than there may be, and the largest for none.
type Cap = u8;

impl Deferred {
    /// A scope in which nothing has been recorded.
    #[must_use]
    pub const fn new() -> Self {
        Self { call: None, kind: Kind(0) }
    }

    /// The scope of a fallback: the routes taken in it are remembered, see [`Call::visit`].
    #[must_use]
    pub const fn routing() -> Self {
        Self { call: None, kind: Kind(Kind::ROUTING) }
    }

    /// The scope of a retry: it and all retries inside it together take at most so many, see [`Call::take_retry`], so that
    /// layers inside each other add up and do not multiply. A cap above 253 is none. What refuses calls inside it is
    /// remembered, see [`Call::take_blockers`].
    #[must_use]
    #[inline]
    pub const fn retrying(max_retries: u32) -> Self {
        let cap = if max_retries < Cap::MAX as u32 - 1 { max_retries as Cap + 1 } else { Cap::MAX };
        Self { call: None, kind: Kind(cap as u64) }
    }

    /// Makes this the current scope while `f` runs.
    #[inline]
    pub fn enter<R>(&mut self, f: impl FnOnce() -> R) -> R {
        if let Some(call) = &self.call {
            return call.enter(f);
        }
        let entered = ManuallyDrop::new(EnteredDeferred::new(self.kind));
        let _keeping = Keeping { scope: self, entered };
        f()
    }

    /// Makes this the current scope until the end of what is returned; `None` where it has become a call, which is
    /// [entered](Self::enter). For a layer that counts nanoseconds: what works in the scope is no closure whose result moves, and
    /// a scope that is new need not lie in memory.
    #[inline(always)]
    pub fn try_begin(&self) -> Option<EnteredDeferred> {
        if self.call.is_some() { None } else { Some(EnteredDeferred::new(self.kind)) }
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

/// What of the thread's scopes the path of every call asks for: whether there is a call, and the deferred scopes inside it
/// that nothing was recorded in. Apart from the frame, because every call through a retry or a fallback enters some: this has
/// nothing to drop, so it costs a thread no more than a variable, and is one word, because it is written and read back at once.
///
/// From the lowest bit: a byte with the number of scopes, and a flag for the call; a byte with the position, counted from 1, of
/// the outermost scope that a fallback opened; then their caps, the outermost first.
#[derive(Clone, Copy)]
struct Pending(u64);

/// So many scopes are pending at most: one more makes all around it real.
const CAPS: u64 = 6;
const COUNT: u64 = 0x7f;
const IN_CALL: u64 = 0x80;
const ROUTED_AT: u32 = 8;
const CAPS_AT: u32 = 16;

thread_local! {
    static FRAME: RefCell<Frame> = const { RefCell::new(Frame { call: None }) };
    static PENDING: Cell<Pending> = const { Cell::new(Pending::NONE) };
}

/// `None` only while the thread ends, when what is dropped late finds nothing current instead of panicking.
#[inline]
pub(super) fn with_frame<R>(f: impl FnOnce(&mut Frame) -> R) -> Option<R> {
    FRAME.try_with(|frame| frame.try_borrow_mut().ok().map(|mut frame| f(&mut frame))).ok().flatten()
}

/// Whether a call is current, without a look at it.
#[inline]
pub(super) fn is_in_call() -> bool {
    PENDING.get().is_in_call()
}

/// Whether there is any scope around, pending or real.
#[inline]
pub(super) fn is_around() -> bool {
    PENDING.get().0 != 0
}

impl Kind {
    const ROUTING: u64 = 1 << Cap::BITS;

    #[inline]
    const fn cap(self) -> u64 {
        self.0 & Cap::MAX as u64
    }

    #[inline]
    const fn is_routing(self) -> bool {
        self.0 & Self::ROUTING != 0
    }
}

impl Pending {
    const NONE: Self = Self(0);

    #[inline]
    const fn inside(call: Option<&Call>) -> Self {
        if call.is_some() { Self(IN_CALL) } else { Self::NONE }
    }

    /// Makes all of them real.
    #[cold]
    fn emptied() -> Self {
        with_frame(Frame::materialise);
        PENDING.get()
    }

    /// One scope more, the innermost; it is not full.
    #[inline]
    const fn with(self, kind: Kind) -> Self {
        let count = self.count();
        let mut word = (self.0 + 1) | (kind.cap() << (CAPS_AT as u64 + count * Cap::BITS as u64));
        if kind.is_routing() && !self.is_routed() {
            word |= (count + 1) << ROUTED_AT;
        }
        Self(word)
    }

    #[inline]
    const fn count(self) -> u64 {
        self.0 & COUNT
    }

    #[inline]
    const fn is_full(self) -> bool {
        self.count() >= CAPS
    }

    #[inline]
    const fn is_in_call(self) -> bool {
        self.0 & IN_CALL != 0
    }

    /// The position of the outermost scope of a fallback; 0 where there is none.
    #[inline]
    const fn routed(self) -> u64 {
        (self.0 >> ROUTED_AT) & 0xff
    }

    #[inline]
    const fn is_routed(self) -> bool {
        self.routed() != 0
    }

    /// Whether one of them is a retry's.
    const fn is_retrying(self) -> bool {
        self.0 >> CAPS_AT != 0
    }
}

impl Frame {
    #[inline]
    pub(super) fn is_routed(&self) -> bool {
        PENDING.get().is_routed() || self.call.as_ref().is_some_and(|call| call.0.routed)
    }

    /// The current call if nothing inside it is pending: the innermost scope's own.
    pub(super) fn innermost(&self) -> Option<&Call> {
        self.call.as_ref().filter(|_| PENDING.get().count() == 0)
    }

    /// Whether a retry's scope is around.
    pub(super) fn is_retrying(&self) -> bool {
        PENDING.get().is_retrying() || self.call.as_ref().is_some_and(Call::is_retrying)
    }

    /// Turns the deferred scopes into calls, each the child of the one around it, and gives the innermost.
    pub(super) fn materialise(&mut self) -> Option<Call> {
        let pending = PENDING.get();
        if pending.count() > 0 {
            let mut caps = pending.0 >> CAPS_AT;
            for position in 1..=pending.count() {
                let retrying = Retrying::of(caps as Cap);
                caps >>= Cap::BITS;
                self.call = Some(Call::deferred(self.call.take(), retrying, position == pending.routed()));
            }
            PENDING.set(Pending::inside(self.call.as_ref()));
        }
        self.call.clone()
    }
}

/// What a scope is to retries.
#[derive(Clone, Copy, Default)]
pub(super) struct Retrying {
    /// Whether it is the scope of a retry.
    pub(super) is_own: bool,
    /// The most that it and all inside it may take.
    pub(super) max: Option<u32>,
}

impl Retrying {
    fn of(cap: Cap) -> Self {
        let max = cap.checked_sub(1).filter(|_| cap < Cap::MAX).map(u32::from);
        Self { is_own: cap > 0, max }
    }
}

/// Restores what was current before, also when the closure panics.
pub(super) struct Entered(Option<(Frame, Pending)>);

impl Entered {
    #[inline]
    pub(super) fn new(call: Option<Call>) -> Self {
        let inside = Pending::inside(call.as_ref());
        let outer = with_frame(|frame| std::mem::replace(frame, Frame { call }));
        Self(outer.map(|frame| (frame, PENDING.replace(inside))))
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

/// A call that is current and is moved there and back, also when the closure panics: to count it up and down would take two atomic
/// steps.
pub(super) struct Moved<'a> {
    /// Where it comes from, and goes to again.
    home: &'a mut Option<Call>,
    address: usize,
    /// What was current before.
    outer: Option<Call>,
    /// `None` where nothing can be current.
    pending: Option<Pending>,
}

impl<'a> Moved<'a> {
    #[inline]
    pub(super) fn new(home: &'a mut Option<Call>) -> Self {
        let mut call = home.take();
        let (inside, address) = (Pending::inside(call.as_ref()), call.as_ref().map_or(0, Call::address));
        if with_frame(|frame| std::mem::swap(&mut frame.call, &mut call)).is_some() {
            return Self { home, address, outer: call, pending: Some(PENDING.replace(inside)) };
        }
        *home = call;
        Self { home, address, outer: None, pending: None }
    }
}

impl Drop for Moved<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(pending) = self.pending {
            PENDING.set(pending);
            let mut call = self.outer.take();
            with_frame(|frame| std::mem::swap(&mut frame.call, &mut call));
            *self.home = match call {
                Some(call) if call.address() == self.address => Some(call),
                other => Self::find(other, self.address),
            };
        }
    }
}

impl Moved<'_> {
    /// Deferred scopes inside it have become calls, and did not end.
    #[cold]
    fn find(mut call: Option<Call>, address: usize) -> Option<Call> {
        while let Some(inner) = call.take_if(|call| call.address() != address) {
            call.clone_from(&inner.0.parent);
        }
        call
    }
}

/// A [`Deferred`] scope that is current, made by [`Deferred::try_begin`]; as long as it lives, and on the thread that made it. Such
/// scopes end in the reverse order of their beginnings.
#[must_use = "the scope ends when it drops"]
pub struct EnteredDeferred {
    outer: Pending,
    kind: Kind,
    // It belongs to its thread.
    not_send: PhantomData<*const ()>,
}

impl EnteredDeferred {
    #[inline(always)]
    fn new(kind: Kind) -> Self {
        let mut outer = PENDING.get();
        if outer.is_full() {
            outer = Pending::emptied();
        }
        PENDING.set(outer.with(kind));
        Self { outer, kind, not_send: PhantomData }
    }

    /// Ends it, and gives the scope, which can be entered again.
    #[inline(always)]
    #[must_use]
    pub fn end(self) -> Deferred {
        let this = ManuallyDrop::new(self);
        Deferred { call: this.restore(), kind: this.kind }
    }

    /// What the scope has become meanwhile, if that is a call.
    #[inline(always)]
    fn restore(&self) -> Option<Call> {
        if PENDING.get().count() == 0 {
            return Self::take_call();
        }
        // What was read before, and not what is there less one scope: that would wait for it to be read back.
        PENDING.set(self.outer);
        None
    }

    #[cold]
    fn take_call() -> Option<Call> {
        with_frame(|frame| {
            // A scope that ends out of its turn takes no call that others have entered.
            let call = frame.call.take_if(|call| call.0.was_deferred);
            if let Some(call) = &call {
                frame.call.clone_from(&call.0.parent);
            }
            PENDING.set(Pending::inside(frame.call.as_ref()));
            call
        })
        .flatten()
    }
}

impl Drop for EnteredDeferred {
    fn drop(&mut self) {
        drop(self.restore());
    }
}

/// Keeps the call that the scope has become, also when the closure panics.
struct Keeping<'a> {
    scope: &'a mut Deferred,
    entered: ManuallyDrop<EnteredDeferred>,
}

impl Drop for Keeping<'_> {
    #[inline]
    fn drop(&mut self) {
        self.scope.call = self.entered.restore();
    }
}

impl fmt::Debug for EnteredDeferred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnteredDeferred").finish_non_exhaustive()
    }
}
