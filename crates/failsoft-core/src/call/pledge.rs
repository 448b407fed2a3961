//! The scope of a budget that is no call yet. For Failsoft's own layers.
//!
//! A budget opens a scope around each call, and asks for nothing in it unless something inside makes a further attempt or says what
//! it used. Until then it need not be a call, as a [`Deferred`](crate::Deferred) one need not. But when it becomes one, what the budget has
//! reserved must be in it at once: so while such a scope is current, the budget keeps that where its function finds it.
//!
//! A call lies inside what is around it when it begins, wherever its future is polled. So only one that begins inside nothing is
//! pledged, and only while nothing else is around: then it is no child of anything, whenever it is made.

use std::{marker::PhantomData, mem, ptr, sync::OnceLock};

use super::{
    Call,
    frame::{Pending, is_around, with_frame},
};

/// Makes the pledged scope of this thread a call: by [`Reserved::made`](crate::Reserved::made), with what is reserved for it. Nothing of
/// the thread's scopes can be asked for meanwhile.
pub type Make = fn() -> Option<Call>;

static MAKE: OnceLock<Make> = OnceLock::new();

/// May open pledged scopes.
#[derive(Clone, Copy, Debug)]
pub struct Pledging(());

/// A pledged scope that is current, until it is [ended](Self::end), on the thread that began it.
#[derive(Debug)]
#[must_use = "the scope is current until it is ended"]
pub struct EnteredPledge {
    // It belongs to its thread.
    not_send: PhantomData<*const ()>,
}

impl Pledging {
    /// Scopes that become calls by `make`. There is one such function in a process: `None` for any but the first.
    #[must_use]
    pub fn by(make: Make) -> Option<Self> {
        ptr::fn_addr_eq(*MAKE.get_or_init(|| make), make).then_some(Self(()))
    }

    /// Whether a call that begins now begins inside nothing.
    #[inline(always)]
    #[must_use]
    pub fn is_inside_nothing(self) -> bool {
        !is_around()
    }

    /// Makes a scope current, in which nothing was recorded; `None` where something is around. What is reserved for it must be where the
    /// function finds it, before anything else is done.
    #[inline(always)]
    pub fn begin(self) -> Option<EnteredPledge> {
        if is_around() {
            return None;
        }
        Pending::PLEDGED.set();
        Some(EnteredPledge { not_send: PhantomData })
    }
}

impl EnteredPledge {
    /// Ends it. `was_made`: it has become a call.
    #[inline(always)]
    pub fn end(&self, was_made: bool) {
        Pending::NONE.set();
        if was_made {
            leave();
        }
    }
}

/// It is current no longer, nor is what is inside it and never ended.
#[cold]
fn leave() {
    // Given out of the closure before it drops, so that the frame is not borrowed meanwhile.
    drop(with_frame(|frame| mem::take(&mut frame.call)));
}

/// Makes the scope a call.
pub(super) fn make() -> Option<Call> {
    MAKE.get().and_then(|make| make())
}
