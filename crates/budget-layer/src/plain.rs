//! [`Plain`]: what most calls have reserved, without a scope in which anything could be recorded.
//!
//! Calls that all budgets of a layer share, of which every figure is known when they begin: then what is reserved follows from the
//! estimate, and is what is booked in the end, unless something inside makes a further attempt or says what it used. For these there is a
//! [pledged](failsoft_core::pledge) scope: when the first of them comes, it becomes a call with a [`Bill`].

use std::cell::Cell as Slot;

use failsoft_core::{
    Call, Reserved,
    lent::{Kept, Lend, Place},
    pledge::{EnteredPledge, Pledging},
};

use crate::{
    Outcome,
    cell::Cell,
    charge::{Bill, Held},
    cost::Ended,
    estimate::Estimate,
    events,
    metrics::Settled,
};

/// The cell of a call, most often the one that the thread's last call had too.
pub(crate) type Lent = failsoft_core::lent::Lent<Cell>;

thread_local! {
    static KEPT: Kept<Cell> = const { Kept::new() };
    static PLEDGED: Pledged = const { Pledged::NONE };
}

impl Lend for Cell {
    #[inline(always)]
    fn place(&self) -> Place {
        self.place
    }

    #[inline(always)]
    fn with_kept<T>(f: impl FnOnce(&Kept<Self>) -> T) -> Option<T> {
        KEPT.try_with(f).ok()
    }
}

/// What a call has reserved in each account of a cell.
#[derive(Debug)]
pub(crate) struct Plain {
    /// Elsewhere while its scope is current.
    cell: Lent,
    about: About,
    pledging: Pledging,
}

/// What follows from nothing else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    /// The tokens of one attempt: of the prompt, where they are known apart, and in all.
    pub(crate) input: Option<u64>,
    pub(crate) tokens: u64,
    pub(crate) is_final: bool,
    pub(crate) cut_in_full: bool,
}

impl About {
    pub(crate) fn estimate(&self) -> Estimate {
        match self.input {
            Some(input) => Estimate::parts(input, self.tokens.saturating_sub(input)),
            None => Estimate::whole(self.tokens),
        }
    }
}

impl Plain {
    /// It is reserved already.
    #[inline(always)]
    pub(crate) const fn new(cell: Lent, about: About, pledging: Pledging) -> Self {
        Self { cell, about, pledging }
    }

    /// A call that has it in its scope.
    #[cold]
    pub(crate) fn made(&mut self) -> Reserved<Bill> {
        let (cell, about) = (self.cell.take(), self.about);
        Reserved::made(|bill| Self::fill(bill, cell, about))
    }

    /// The same as a bill, which any call can have.
    #[cold]
    fn fill(bill: &mut Bill, cell: Lent, about: About) {
        if let Some(cell) = cell.into_counted() {
            bill.plain(cell, about);
        }
    }

    /// What is reserved is what it used, or nothing is.
    #[inline(always)]
    pub(crate) fn settle(&mut self, ended: Ended) {
        let (used, unknown) = if ended.turned_down { (0, false) } else { (self.about.tokens, true) };
        let is_undone = ended.turned_down && ended.outcome == Outcome::Denied;
        if is_undone || !self.cell.settle_plainly(self.about.tokens, used, ended.outcome, unknown) {
            return self.settle_in_full(ended);
        }
        if cfg!(feature = "metrics") || (unknown && events::tells_unknown_usage()) {
            self.tell(used, ended.outcome, unknown);
        }
        self.cell.give_back();
    }

    #[cold]
    fn settle_in_full(&mut self, ended: Ended) {
        let mut bill = Bill::default();
        Self::fill(&mut bill, self.cell.take(), self.about);
        bill.settle_unread(ended);
    }

    #[cold]
    fn tell(&self, tokens: u64, outcome: Outcome, unknown: bool) {
        for rules in self.cell.all_rules() {
            let reserved = rules.unit.plainly(self.about.tokens);
            let used = rules.unit.plainly_used(tokens);
            rules.meters.settled(&rules.name, Settled { outcome, reserved, used, unknown });
            if unknown {
                events::unknown_usage(&rules.name, used);
            }
        }
    }
}

/// What is reserved for the pledged scope that is current on a thread.
struct Pledged {
    /// Until it becomes a call.
    cell: Slot<Lent>,
    about: Slot<About>,
    made: Slot<Option<Reserved<Bill>>>,
}

impl Pledged {
    #[allow(clippy::declare_interior_mutable_const, reason = "what a thread begins with")]
    const NONE: Self = Self {
        cell: Slot::new(Lent::none()),
        about: Slot::new(About { input: None, tokens: 0, is_final: false, cut_in_full: false }),
        made: Slot::new(None),
    };
}

/// Scopes that are made calls here.
pub(crate) fn pledging() -> Option<Pledging> {
    Pledging::by(make)
}

/// Makes the thread's pledged scope a call.
fn make() -> Option<Call> {
    let make = |pledged: &Pledged| {
        let cell = pledged.cell.replace(Lent::none());
        let reserved = Reserved::made(|bill| Plain::fill(bill, cell, pledged.about.get()));
        let call = reserved.call();
        pledged.made.set(Some(reserved));
        call
    };
    PLEDGED.try_with(make).ok()
}

/// A pledged scope that is current; what it holds comes back when this drops, also when what runs in it panics.
pub(crate) struct Entered<'a> {
    home: &'a mut Held,
    scope: EnteredPledge,
}

impl<'a> Entered<'a> {
    /// `None` where the call has a scope that is a call already, or does from now on, because something is around.
    #[inline(always)]
    pub(crate) fn new(home: &'a mut Held) -> Option<Self> {
        let Held::Plain(plain) = &mut *home else { return None };
        let enter = |pledged: &Pledged| {
            let scope = plain.pledging.begin()?;
            pledged.about.set(plain.about);
            pledged.cell.set(plain.cell.take());
            Some(scope)
        };
        match PLEDGED.try_with(enter).ok().flatten() {
            Some(scope) => Some(Self { home, scope }),
            None => {
                home.make();
                None
            }
        }
    }

    /// Takes back what is reserved, where it still is.
    #[inline(always)]
    fn take_back(&mut self) -> bool {
        let take_back = |pledged: &Pledged| {
            let cell = pledged.cell.replace(Lent::none());
            match self.home {
                Held::Plain(plain) if cell.is_there() => plain.cell = cell,
                _ => return false,
            }
            true
        };
        PLEDGED.try_with(take_back).unwrap_or(false)
    }

    /// It has become a call.
    #[cold]
    fn take_call(&mut self) {
        if let Ok(Some(reserved)) = PLEDGED.try_with(|pledged| pledged.made.take()) {
            *self.home = Held::bill(reserved);
        }
    }
}

impl Drop for Entered<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let is_plain = self.take_back();
        self.scope.end(!is_plain);
        if !is_plain {
            self.take_call();
        }
    }
}
