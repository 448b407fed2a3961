//! The layer: the budgets, and the rules by which calls are charged to them.

use std::fmt;

use failsoft_core::{ByResponse, Call, Class, Denier, Fault, KeysFull, Mark, Observation};
use tower_layer::Layer;

use crate::{
    AllPass, Budget, BudgetBuilder, Budgeted, Charge, Estimate, Estimator, FromRequest, Keyed, Ledger,
    OneForAll, PassSoft,
    account::{Denied, Why},
    charge::Bill,
    events,
};

/// Charges calls to budgets.
///
/// The budgets live in this value and are shared by all services that it and its clones make, also where a framework applies
/// the layer again for each route. For budgets of its own, build another layer.
#[derive(Clone)]
pub struct BudgetLayer<K = OneForAll, E = FromRequest, R = AllPass, C = ByResponse> {
    pub(crate) ledger: Ledger,
    pub(crate) cut_in_full: bool,
    pub(crate) keyed: K,
    pub(crate) estimator: E,
    pub(crate) pass_soft: R,
    pub(crate) classify: C,
}

impl BudgetLayer {
    /// Starts from the defaults: one budget of 50 000 tokens for all calls.
    pub fn builder() -> BudgetBuilder {
        BudgetBuilder::new()
    }
}

impl<K, E, R, C> BudgetLayer<K, E, R, C> {
    /// All budgets, and what was spent.
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}

impl<E, R, C> BudgetLayer<OneForAll, E, R, C> {
    /// The one budget of all calls.
    pub fn budget(&self) -> &Budget {
        self.ledger.unkeyed()
    }
}

impl<K, E, R, C> BudgetLayer<K, E, R, C> {
    /// Reserves what a call may cost and opens its scope, or says no and changes nothing.
    pub(crate) fn admit<Req>(&self, request: &Req) -> Result<(Call, Charge), Fault>
    where
        K: Keyed<Req>,
        E: Estimator<Req>,
        R: PassSoft<Req>,
    {
        let name = self.ledger.name();
        let estimate = self.estimator.estimate(request);
        // Calls that cost nothing would be without number.
        let estimate = if estimate.total() == 0 { Estimate::whole(1) } else { estimate };
        let budget = match self.keyed.key(request) {
            None => self.ledger.unkeyed().clone(),
            Some(key) => self.ledger.open(key).map_err(|full| self.no_room(&full))?,
        };
        let is_final = Call::is_marked(Mark::Final);
        let reserved =
            budget.account().reserve(estimate.total(), is_final, || self.pass_soft.passes(request));
        match reserved {
            Ok(crossed) => {
                events::crossed(name, crossed, budget.limit());
                let ledger = self.ledger.clone();
                Ok(Charge::begin(Bill::new(ledger, budget, estimate, is_final, self.cut_in_full)))
            }
            Err(denied) => {
                budget.account().count_denied();
                events::denied(name, &denied, estimate.total());
                Err(self.fault(say(&denied, estimate.total())))
            }
        }
    }

    #[cold]
    fn no_room(&self, full: &KeysFull) -> Fault {
        events::keys_full(self.ledger.name(), self.ledger.len());
        self.fault(full.to_string())
    }

    fn fault(&self, message: String) -> Fault {
        Fault::new(Class::Denied(Denier::Budget), env!("CARGO_PKG_NAME"))
            .with_target(self.ledger.name().clone())
            .with_message(message)
    }
}

/// What is left, and what to do now.
#[cold]
fn say(denied: &Denied, needed: u64) -> String {
    let Denied { why, limit, left } = denied;
    match why {
        Why::Soft => format!(
            "{left} of {limit} tokens are left, which are kept for calls that are allowed past the soft line: \
             make only those, or conclude from what you already have"
        ),
        Why::Hard => {
            let bare = Fault::new(Class::Denied(Denier::Budget), env!("CARGO_PKG_NAME"));
            let observation = Observation::of(&bare);
            let instruction = observation.instruction();
            format!("{needed} tokens are needed and {left} of {limit} are left: {instruction}")
        }
    }
}

impl<S, K: Clone, E: Clone, R: Clone, C: Clone> Layer<S> for BudgetLayer<K, E, R, C> {
    type Service = Budgeted<S, K, E, R, C>;

    fn layer(&self, inner: S) -> Self::Service {
        Budgeted::new(inner, self.clone())
    }
}

impl<K, E, R, C> fmt::Debug for BudgetLayer<K, E, R, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BudgetLayer").field("ledger", &self.ledger).finish_non_exhaustive()
    }
}
