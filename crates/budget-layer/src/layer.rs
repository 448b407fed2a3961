//! The layer: the budgets, and the rules by which calls are charged to them.

use std::{convert::Infallible, fmt, sync::Arc};

use failsoft_core::{ByResponse, Call, CallOptions, CloneService, Fault, Mark, pledge::Pledging};
use tower_layer::Layer;

use crate::{
    AllPass, Book, Budget, BudgetBuilder, Budgeted, Charge, Denial, Estimator, FromRequest, Keyed, Labelled,
    Ledger, OneForAll, PassSoft, Reason, Unit,
    account::{Ask, Denied, queue::Turn},
    book::Booking,
    builder::Options,
    estimate::Estimate,
    events,
    line::Line,
    parts::Parts,
    plain::{self, About, Lent, Plain},
    window::{Clocks, Now},
};

/// Charges calls to budgets.
///
/// The budgets live in this value and are shared by all services that it and its clones make, also where a framework applies
/// the layer again for each route. For budgets of its own, build another layer.
#[derive(Clone)]
pub struct BudgetLayer<K = OneForAll, E = FromRequest, R = AllPass, C = ByResponse> {
    shared: Arc<Shared>,
    pub(crate) keyed: K,
    pub(crate) estimator: E,
    pub(crate) pass_soft: R,
    pub(crate) classify: C,
}

/// What is the same for all its clones.
struct Shared {
    /// At least one.
    ledgers: Box<[Ledger]>,
    options: Options,
    book: Option<Book>,
    clocks: Clocks,
    /// Whether all accounts of the first ledger's cell of calls without a key, and only those, are those of this layer.
    together: bool,
    /// For calls without a key of which every figure is known when they begin.
    plain: Option<Pledging>,
}

impl BudgetLayer {
    /// Starts from the defaults: one budget of 50 000 tokens for all calls.
    pub fn builder() -> BudgetBuilder {
        BudgetBuilder::new()
    }
}

impl<K, E, R, C> BudgetLayer<K, E, R, C> {
    /// There is at least one ledger.
    pub(crate) fn new(
        ledgers: Vec<Ledger>,
        options: Options,
        book: Option<Book>,
        keyed: K,
        estimator: E,
        pass_soft: R,
        classify: C,
    ) -> Self {
        let heeds_quota = ledgers.iter().any(|ledger| ledger.rules().heeds_quota);
        let leases = ledgers.iter().any(|ledger| ledger.rules().shared.is_some());
        let options = Options { heeds_quota, leases, ..options };
        let clocks = ledgers.iter().fold(Clocks::NONE, |clocks, ledger| clocks.and(ledger.rules().clocks()));
        let together = Budget::are_together(ledgers.iter().map(Ledger::unkeyed));
        let is_plain = together && book.is_none() && ledgers[0].unkeyed().cell.is_plain();
        let plain = if is_plain { plain::pledging() } else { None };
        let shared = Arc::new(Shared { ledgers: ledgers.into(), options, book, clocks, together, plain });
        Self { shared, keyed, estimator, pass_soft, classify }
    }

    /// The budgets that the builder itself describes, and what was spent.
    pub fn ledger(&self) -> &Ledger {
        &self.shared.ledgers[0]
    }

    /// All budgets that calls are charged to: those of [`ledger`](Self::ledger), and then those that were
    /// [added](BudgetBuilder::also), in that order.
    pub fn ledgers(&self) -> &[Ledger] {
        &self.shared.ledgers
    }
}

impl<E, R, C> BudgetLayer<OneForAll, E, R, C> {
    /// The one budget of all calls.
    pub fn budget(&self) -> &Budget {
        self.ledger().unkeyed()
    }
}

impl<F, E, R, C> BudgetLayer<Labelled<OneForAll, F>, E, R, C> {
    /// The one budget of all calls.
    pub fn budget(&self) -> &Budget {
        self.ledger().unkeyed()
    }
}

impl<K, E, R, C> BudgetLayer<K, E, R, C> {
    /// Reserves what a call may cost in every budget and opens its scope, or says no and changes nothing; or the caller may wait.
    #[inline(always)]
    pub(crate) fn admit<Req>(&self, request: &Req) -> Admission
    where
        K: Keyed<Req>,
        E: Estimator<Req>,
        R: PassSoft<Req>,
    {
        let ask = Ask {
            is_final: Call::is_marked(Mark::Final),
            passes_soft: self.pass_soft.passes(request),
            is_first: true,
            turn: Turn::LAST,
        };
        let shared = &*self.shared;
        let mut estimate = self.estimator.estimate(request);
        estimate.complete(shared.options.unpriced.as_ref());
        let is_plain = |pledging: &Pledging| {
            pledging.is_inside_nothing() && !self.keyed.may_have_keys() && estimate.learns().is_none()
        };
        if let Some(pledging) = shared.plain.filter(is_plain) {
            let cell = &shared.ledgers[0].unkeyed().cell;
            if cell.reserve_plainly(estimate.total(), ask) {
                let about = About {
                    input: estimate.split().map(|(input, _)| input),
                    tokens: estimate.total(),
                    is_final: ask.is_final,
                    cut_in_full: shared.options.cut_in_full,
                };
                return Admission::Begun(Charge::plain(Plain::new(Lent::of(cell), about, pledging)));
            }
        }
        self.admit_in_full(request, ask, estimate)
    }

    /// The same, with a scope for whatever there is to it.
    // A charge that is given on through several functions is put together in the memory of each.
    #[inline(never)]
    fn admit_in_full<Req>(&self, request: &Req, ask: Ask, estimate: Estimate) -> Admission
    where
        K: Keyed<Req>,
    {
        let Shared { options, book, clocks, .. } = &*self.shared;
        let now = clocks.now();
        let mut has_crossed = false;
        let begun = Charge::begin(Call::options(), |bill| {
            if let Some(book) = book {
                bill.book(Some(self.booking(book, request)));
            }
            let (place, parts) = bill.set(ask.is_final, options.cut_in_full, *clocks, now);
            *place = estimate;
            if let Err(denial) = self.charge(parts, request, place) {
                // Of those that were opened before, nothing is charged.
                return Err(Box::new(Refused::Outright(denial)));
            }
            if parts.reserve_plainly(ask) {
                return Ok(());
            }
            if let Err((budget, denied)) = parts.reserve(ask, now) {
                let (estimate, parts) = (std::mem::take(place), std::mem::take(parts));
                let wanted = (estimate, parts, bill.book(None));
                return Err(Box::new(Refused::Now(Box::new(wanted), budget, denied)));
            }
            has_crossed = parts.has_crossed();
            Ok(())
        });
        match begun {
            Ok(charge) => {
                if has_crossed {
                    charge.tell();
                }
                Admission::Begun(charge.with(options))
            }
            Err(refused) => self.refused(ask, refused, now),
        }
    }

    /// What is to be written of a call.
    #[cold]
    fn booking<Req>(&self, book: &Book, request: &Req) -> Box<Booking>
    where
        K: Keyed<Req>,
    {
        let labels = self.keyed.labels(request).or_session(|| self.keyed.key(request));
        Box::new(Booking::new(book, labels))
    }

    #[cold]
    #[allow(clippy::boxed_local, reason = "it comes so, because it is large")]
    fn refused(&self, ask: Ask, refused: Box<Refused>, now: Now) -> Admission {
        let options = self.shared.options;
        match *refused {
            Refused::Outright(denial) => Admission::Denied(denial.fault()),
            Refused::Now(wanted, budget, denied) => {
                let (estimate, parts, booking) = *wanted;
                let wanted = Wanted {
                    estimate,
                    parts,
                    booking,
                    is_final: ask.is_final,
                    options,
                    clocks: self.shared.clocks,
                };
                if denied.is_for_lease() && budget.leasing().is_some() {
                    return Line::for_lease(wanted, ask, options.wait);
                }
                match options.wait {
                    Some(wait) if denied.passes(budget.rules()) => {
                        Line::begin(wanted, ask, wait, &budget, &denied)
                    }
                    _ => wanted.denied(&budget, &denied, now),
                }
            }
        }
    }

    /// Says what a call is charged to, and what one attempt may cost in each; nothing is reserved yet.
    #[inline]
    fn charge<Req>(&self, parts: &mut Parts, request: &Req, estimate: &Estimate) -> Result<(), Denial>
    where
        K: Keyed<Req>,
    {
        let Shared { ledgers, together, .. } = &*self.shared;
        if *together && !self.keyed.may_have_keys() {
            let cell = &ledgers[0].unkeyed().cell;
            return parts.push_all(cell, ledgers, |ledger, unit| {
                self.each(unit, estimate).ok_or_else(|| unpriced(ledger.unkeyed()))
            });
        }
        let mut refused = None;
        let mut ledgers = ledgers.iter();
        self.keyed.each(request, |key| {
            if let Some(ledger) = ledgers.next().filter(|_| refused.is_none()) {
                refused = self.charge_one(parts, ledger, key, estimate).err();
            }
        });
        refused.map_or(Ok(()), Err)
    }

    fn charge_one(
        &self,
        parts: &mut Parts,
        ledger: &Ledger,
        key: Option<Arc<str>>,
        estimate: &Estimate,
    ) -> Result<(), Denial> {
        let of_key = match key {
            None => None,
            Some(key) => Some(ledger.open(key).map_err(|_| no_room(ledger))?),
        };
        let budget = of_key.as_ref().unwrap_or_else(|| ledger.unkeyed());
        let each = self.each(ledger.unit(), estimate).ok_or_else(|| unpriced(budget))?;
        parts.push(budget, each);
        Ok(())
    }

    /// What one attempt may cost in a unit. `None` where nobody knows the price.
    #[inline]
    fn each(&self, unit: Unit, estimate: &Estimate) -> Option<u64> {
        Some(match unit {
            Unit::Tokens => estimate.total(),
            Unit::Money => estimate.price()?.of_estimate(estimate),
            Unit::Calls | Unit::Concurrent => 1,
            Unit::Time => estimate.time_millis().unwrap_or(self.shared.options.time),
        })
    }
}

/// What comes of asking the budgets for a call.
pub(crate) enum Admission {
    Begun(Charge),
    Denied(Fault),
    Waits(Box<Line>),
}

/// Why a call does not begin.
enum Refused {
    /// Whatever is left.
    Outright(Denial),
    /// There is not enough now.
    Now(Box<(Estimate, Parts, Option<Box<Booking>>)>, Budget, Denied),
}

/// What a call wants of its budgets.
pub(crate) struct Wanted {
    estimate: Estimate,
    pub(crate) parts: Parts,
    booking: Option<Box<Booking>>,
    is_final: bool,
    pub(crate) options: Options,
    pub(crate) clocks: Clocks,
}

impl Wanted {
    /// Begins the call for which everything is reserved.
    pub(crate) fn begin(self, options: CallOptions, now: Now) -> Admission {
        let Self { estimate, parts, booking, is_final, options: of_layer, clocks } = self;
        let begun = Charge::begin(options, |bill| {
            bill.book(booking);
            let places = bill.set(is_final, of_layer.cut_in_full, clocks, now);
            (*places.0, *places.1) = (estimate, parts);
            Ok::<_, Infallible>(())
        });
        match begun {
            Ok(charge) => {
                charge.tell();
                Admission::Begun(charge.with(&of_layer))
            }
            Err(never) => match never {},
        }
    }

    /// It is denied, or goes on to routes that cost nothing.
    #[cold]
    pub(crate) fn denied(mut self, budget: &Budget, denied: &Denied, now: Now) -> Admission {
        let needed = self.parts.needed(budget);
        if self.options.free_routes {
            events::free_only(budget.rules(), denied, needed);
            self.parts = Parts::default();
            return self.begin(Call::options().mark(Mark::FreeOnly), now);
        }
        budget.lock().count_denied();
        events::denied(budget.rules(), denied, needed);
        Admission::Denied(Denial::new(budget, denied, needed).fault())
    }
}

#[cold]
fn unpriced(budget: &Budget) -> Denial {
    budget.lock().count_denied();
    events::unpriced(budget.rules());
    Denial::outright(budget, Reason::Unpriced)
}

#[cold]
fn no_room(ledger: &Ledger) -> Denial {
    events::keys_full(ledger.rules(), ledger.len());
    Denial::outright(ledger.unkeyed(), Reason::KeysFull)
}

impl<S: CloneService, K: Clone, E: Clone, R: Clone, C: Clone> Layer<S> for BudgetLayer<K, E, R, C> {
    type Service = Budgeted<S, K, E, R, C>;

    fn layer(&self, inner: S) -> Self::Service {
        Budgeted::new(inner, self.clone())
    }
}

impl<K, E, R, C> fmt::Debug for BudgetLayer<K, E, R, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BudgetLayer").field("ledgers", &self.shared.ledgers).finish_non_exhaustive()
    }
}
