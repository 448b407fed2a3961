//! What is current on a thread, and the scopes that are not calls yet.

use std::{
    cell::{Cell, RefCell},
    fmt,
    marker::PhantomData,
    mem::{self, ManuallyDrop},
};

use super::{Call, pledge};

/// A scope that a layer opens around every call, and that becomes a [`Call`] only when something is recorded in it.
///
/// Until then it costs a few nanoseconds a poll and no allocation.
#[derive(Debug, Default)]
pub struct Deferred {
    call: Option<Call>,
    kind: Kind,
}

/// What a scope is: its byte among those that are [pending](Pending), and the flag that it sets there. A whole word, though it
/// needs less: a future that holds it is moved in words.
#[derive(Clone, Copy, Debug)]
struct Kind(u64);

impl Deferred {
    /// A scope in which nothing has been recorded.
    #[must_use]
    pub const fn new() -> Self {
        Self { call: None, kind: Kind::PLAIN }
    }

    /// The scope of a fallback: the routes taken in it are remembered, see [`Call::visit`].
    #[must_use]
    pub const fn routing() -> Self {
        Self { call: None, kind: Kind::ROUTING }
    }

    /// The scope of a retry: it and all retries inside it together take at most so many, see [`Call::take_retry`], so that
    /// layers inside each other add up and do not multiply. A cap above 250 is none. What refuses calls inside it is
    /// remembered, see [`Call::take_blockers`].
    #[must_use]
    #[inline]
    pub const fn retrying(max_retries: u32) -> Self {
        Self { call: None, kind: Kind::retrying(max_retries) }
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

    /// Another scope of this kind, in which nothing has been recorded.
    #[must_use]
    #[inline(always)]
    pub const fn renewed(&self) -> Self {
        Self { call: None, kind: self.kind }
    }

    /// Keeps what the scope has become: `entered` is what [`try_begin`](Self::try_begin) returned.
    #[inline(always)]
    pub fn keep(&mut self, entered: EnteredDeferred) {
        if let Some(call) = entered.end() {
            // It was none, or `entered` would not be there: nothing is to be dropped, and no code for it.
            mem::forget(self.call.replace(call));
        }
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
/// From the lowest bit: a byte for each scope, the innermost first, 0 where there is none; in the highest byte the flags.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending(u64);

/// The bytes of the scopes. So many are pending at most: one more makes all around it real.
const SCOPES: u64 = (1 << (7 * u8::BITS)) - 1;
/// That of the last one.
const LAST: u64 = SCOPES & !(SCOPES >> u8::BITS);
const IN_CALL: u64 = 1 << 63;
/// One of the scopes is a fallback's, or one of those around the call.
const ROUTED: u64 = 1 << 62;
/// The outermost scope is [pledged](super::pledge), and nothing is around it. It may have become the current call meanwhile.
const PLEDGED: u64 = 1 << 61;

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
    Pending::now().is_in_call()
}

/// Whether a fallback's scope is around.
#[inline]
pub(super) fn is_routed() -> bool {
    Pending::now().is_routed()
}

/// Whether a scope is around that was pledged.
#[inline]
pub(super) fn is_pledged() -> bool {
    Pending::now().0 & PLEDGED != 0
}

/// Whether there is any scope around, pending or real.
#[inline]
pub(super) fn is_around() -> bool {
    Pending::now().0 != 0
}

impl Kind {
    const PLAIN: Self = Self(1);
    const ROUTING: Self = Self(2 | ROUTED);
    const PLEDGED: Self = Self(3 | PLEDGED);
    /// Of a retry's scope that allows none; each byte above allows one more, and the last any number.
    const RETRYING: u64 = 4;
    const UNCAPPED: u64 = u8::MAX as u64;

    /// Its byte.
    const fn byte(self) -> u64 {
        self.0 & SCOPES
    }

    #[inline]
    const fn retrying(max_retries: u32) -> Self {
        let byte = Self::RETRYING + max_retries as u64;
        Self(if byte < Self::UNCAPPED { byte } else { Self::UNCAPPED })
    }
}

impl Default for Kind {
    fn default() -> Self {
        Self::PLAIN
    }
}

impl Pending {
    pub(super) const NONE: Self = Self(0);
    pub(super) const PLEDGED: Self = Self(Kind::PLEDGED.0);

    // Always in line: where it is not, a layer's way of most calls becomes a row of calls of this.
    #[inline(always)]
    fn now() -> Self {
        PENDING.with(Cell::get)
    }

    #[inline(always)]
    pub(super) fn set(self) {
        PENDING.with(|pending| pending.set(self));
    }

    #[inline]
    fn inside(call: Option<&Call>) -> Self {
        call.map_or(Self::NONE, |Call(scope)| Self(if scope.routed { IN_CALL | ROUTED } else { IN_CALL }))
    }

    /// Makes all of them real.
    #[cold]
    fn emptied() -> Self {
        with_frame(Frame::materialise);
        Self::now()
    }

    /// One scope more, the innermost; it is not full.
    #[inline]
    const fn with(self, kind: Kind) -> Self {
        Self(((self.0 << u8::BITS) & SCOPES) | (self.0 & !SCOPES) | kind.0)
    }

    /// One more where there are some.
    #[inline]
    fn beside(self, kind: Kind) -> (Self, Self) {
        let outer = if self.is_full() { Self::emptied() } else { self };
        (outer, outer.with(kind))
    }

    #[inline]
    const fn is_empty(self) -> bool {
        self.0 & SCOPES == 0
    }

    #[inline]
    const fn is_full(self) -> bool {
        self.0 & LAST != 0
    }

    #[inline]
    const fn is_in_call(self) -> bool {
        self.0 & IN_CALL != 0
    }

    #[inline]
    const fn is_routed(self) -> bool {
        self.0 & ROUTED != 0
    }

    /// The bytes of the scopes, the outermost first.
    fn scopes(self) -> impl Iterator<Item = u64> {
        (self.0 & SCOPES).to_be_bytes().into_iter().map(u64::from).filter(|&byte| byte != 0)
    }

    /// Whether one of them is a retry's.
    fn is_retrying(self) -> bool {
        self.scopes().any(|byte| byte >= Kind::RETRYING)
    }
}

impl Frame {
    /// The current call if nothing inside it is pending: the innermost scope's own.
    pub(super) fn innermost(&self) -> Option<&Call> {
        self.call.as_ref().filter(|_| Pending::now().is_empty())
    }

    /// Whether a retry's scope is around.
    pub(super) fn is_retrying(&self) -> bool {
        Pending::now().is_retrying() || self.call.as_ref().is_some_and(Call::is_retrying)
    }

    /// Turns the deferred scopes into calls, each the child of the one around it, and gives the innermost.
    pub(super) fn materialise(&mut self) -> Option<Call> {
        let pending = Pending::now();
        if !pending.is_empty() {
            for byte in pending.scopes() {
                if byte == Kind::PLEDGED.byte() {
                    self.make_pledged();
                } else {
                    let is_routing = byte == Kind::ROUTING.byte();
                    self.call = Some(Call::deferred(self.call.take(), Retrying::of(byte), is_routing));
                }
            }
            Pending::inside(self.call.as_ref()).set();
        }
        self.call.clone()
    }

    /// The same of a pledged scope alone, around which there is nothing; in those further in nothing is recorded, and they stay what they
    /// are.
    #[cold]
    pub(super) fn make_pledged(&mut self) -> Option<Call> {
        if self.call.is_none() {
            self.call = pledge::make();
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
    fn of(byte: u64) -> Self {
        let max = byte.checked_sub(Kind::RETRYING);
        Self { is_own: max.is_some(), max: max.filter(|_| byte < Kind::UNCAPPED).map(|max| max as u32) }
    }
}

/// Restores what was current before, also when the closure panics.
pub(super) struct Entered(Option<(Frame, Pending)>);

impl Entered {
    #[inline]
    pub(super) fn new(call: Option<Call>) -> Self {
        let inside = Pending::inside(call.as_ref());
        let outer = with_frame(|frame| mem::replace(frame, Frame { call }));
        Self(outer.map(|frame| (frame, PENDING.replace(inside))))
    }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        if let Some((outer, pending)) = self.0.take() {
            pending.set();
            // Given out of the closure before it drops, so that the frame is not borrowed meanwhile.
            drop(with_frame(|frame| mem::replace(frame, outer)));
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
        if with_frame(|frame| mem::swap(&mut frame.call, &mut call)).is_some() {
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
            pending.set();
            let mut call = self.outer.take();
            with_frame(|frame| mem::swap(&mut frame.call, &mut call));
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
    // It belongs to its thread.
    not_send: PhantomData<*const ()>,
}

impl EnteredDeferred {
    #[inline(always)]
    fn new(kind: Kind) -> Self {
        let outer = Pending::now();
        // Most have none around them.
        let (outer, inner) =
            if outer.is_empty() { (outer, Pending(outer.0 | kind.0)) } else { outer.beside(kind) };
        inner.set();
        Self { outer, not_send: PhantomData }
    }

    /// Ends it, and gives the call that the scope has become, if something was recorded in it.
    #[inline(always)]
    #[must_use]
    pub fn end(self) -> Option<Call> {
        ManuallyDrop::new(self).restore()
    }

    /// What the scope has become meanwhile, if that is a call.
    #[inline(always)]
    fn restore(&self) -> Option<Call> {
        if Pending::now().is_empty() {
            return Self::take_call();
        }
        // What was read before, and not what is there less one scope: that would wait for it to be read back.
        self.outer.set();
        None
    }

    // It never panics, and whoever calls it is spared the code for that; with it, what it holds would have to lie in memory.
    #[allow(improper_ctypes_definitions, reason = "only Rust calls it")]
    #[cold]
    extern "C" fn take_call() -> Option<Call> {
        with_frame(|frame| {
            // A scope that ends out of its turn takes no call that others have entered.
            let call = frame.call.take_if(|call| call.0.was_deferred);
            if let Some(call) = &call {
                frame.call.clone_from(&call.0.parent);
            }
            Pending::inside(frame.call.as_ref()).set();
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
