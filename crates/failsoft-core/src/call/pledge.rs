//! Scopes of budgets that are not calls yet. For Failsoft's own layers.
//!
//! A budget opens a scope around each call, and asks for nothing in it unless something inside makes a further attempt or says what
//! it used. Until then it need not be a call, as a [`Deferred`](crate::Deferred) one need not. But when it becomes one, what the budget has
//! reserved must be in it at once: so while such a scope is current, the budget keeps that where its function finds it.
//!
//! Like a deferred one, it then lies inside what is current at that moment: a future that is spawned takes the call around along by
//! [`Call::scope`].

use std::{marker::PhantomData, ptr, sync::OnceLock};

use super::{
    Call,
    frame::{Kind, Pending, enter_inside, with_frame},
};

/// Makes the pledged scope of this thread a call that has `inner` pledged scopes further in, inside `parent`: by
/// [`Reserved::made`](crate::Reserved::made), with what is reserved for it. Nothing of the thread's scopes can be asked for meanwhile.
pub type Make = fn(inner: usize, parent: Option<&Call>) -> Option<Call>;

static MAKE: OnceLock<Make> = OnceLock::new();

/// May open pledged scopes.
#[derive(Clone, Copy, Debug)]
pub struct Pledging(());

/// A pledged scope that is current, until it is [ended](Self::end), on the thread that began it.
#[derive(Debug)]
#[must_use = "the scope is current until it is ended"]
pub struct EnteredPledge {
    outer: Pending,
    // It belongs to its thread.
    not_send: PhantomData<*const ()>,
}

impl Pledging {
    /// Scopes that become calls by `make`. There is one such function in a process: `None` for any but the first.
    #[must_use]
    pub fn by(make: Make) -> Option<Self> {
        ptr::fn_addr_eq(*MAKE.get_or_init(|| make), make).then_some(Self(()))
    }

    /// Makes a scope current, in which nothing was recorded. What is reserved for it must be where the function finds it, before anything
    /// else is done.
    #[inline(always)]
    pub fn begin(self) -> EnteredPledge {
        EnteredPledge { outer: enter_inside(Kind::PLEDGED), not_send: PhantomData }
    }
}

impl EnteredPledge {
    /// Ends it. `made`: the call that it has become.
    #[inline(always)]
    pub fn end(&self, made: Option<&Call>) {
        match made {
            // A scope that ended out of its turn has made all around it real; else none of them is.
            None if Pending::now().is_empty() => {}
            None => self.outer.set(),
            Some(call) => leave(call),
        }
    }
}

/// What was around the call when it was made is real too, and is current again.
#[cold]
fn leave(call: &Call) {
    let parent = call.0.parent.clone();
    // Given out of the closure before it drops, so that the frame is not borrowed meanwhile.
    drop(with_frame(|frame| {
        Pending::inside(parent.as_ref()).set();
        std::mem::replace(&mut frame.call, parent)
    }));
}

/// Makes the scope a call.
pub(super) fn make(inner: usize, parent: Option<&Call>) -> Option<Call> {
    MAKE.get().and_then(|make| make(inner, parent))
}
