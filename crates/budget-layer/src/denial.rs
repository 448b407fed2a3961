//! [`Denial`]: which budget said no, and why.
//!
//! ```
//! use budget_layer::{BudgetLayer, Denial, Reason};
//! use failsoft_core::{BoxError, ErrorsOnly};
//! use tower::{Layer, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let layer = BudgetLayer::builder().calls(1).estimate_fixed(1).classify(ErrorsOnly).build()?;
//! let tool = layer.layer(tower::service_fn(|_: &str| async { Ok::<_, BoxError>("found") }));
//! tool.clone().oneshot("search").await?;
//!
//! let denied = tool.oneshot("search").await.unwrap_err();
//! let denial = Denial::find(&*denied).expect("a budget said no");
//! assert_eq!((denial.reason(), denial.left(), denial.limit()), (Reason::UsedUp, 0, 1));
//! // What the model is told in place of a result.
//! let observation = denial.observation().tool("search");
//! assert!(observation.instruction().contains("conclude"));
//! # Ok(())
//! # }
//! ```

use std::{error::Error, fmt, sync::Arc, time::Duration};

use failsoft_core::{Class, Denier, Fault, Observation};

use crate::{
    Budget, Unit,
    account::{Denied, Why},
};

/// Which budget denied a call, and why. It is the source of the [`Fault`] that the call fails with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    budget: Arc<str>,
    unit: Unit,
    reason: Reason,
    needed: u64,
    left: u64,
    limit: u64,
    renews_in: Option<Duration>,
}

/// Why a call was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// There is not enough for it.
    UsedUp,
    /// The soft line is passed, and this is not one of the calls that may go on.
    Restricted,
    /// It is larger than any one call may be.
    TooLarge,
    /// Too much was spent in a short time: the budget is paused.
    Paused,
    /// Nobody knows what it costs.
    Unpriced,
    /// There is no room for another key.
    KeysFull,
    /// It does not fit into what is leased from the [store](crate::Store), and the store fails.
    StoreFailed,
}

impl Reason {
    /// A short stable name, for labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UsedUp => "used_up",
            Self::Restricted => "restricted",
            Self::TooLarge => "too_large",
            Self::Paused => "paused",
            Self::Unpriced => "unpriced",
            Self::KeysFull => "keys_full",
            Self::StoreFailed => "store_failed",
        }
    }
}

impl From<Why> for Reason {
    fn from(why: Why) -> Self {
        match why {
            Why::Soft => Self::Restricted,
            Why::Hard | Why::Server | Why::NotYetItsTurn => Self::UsedUp,
            Why::TooLarge => Self::TooLarge,
            Why::Paused => Self::Paused,
            Why::NoStore => Self::StoreFailed,
        }
    }
}

impl Denial {
    pub(crate) fn new(budget: &Budget, denied: &Denied, needed: u64) -> Self {
        let rules = budget.rules();
        Self {
            budget: Arc::clone(&rules.name),
            unit: rules.unit,
            reason: denied.why.into(),
            needed,
            left: denied.left,
            limit: denied.limit,
            renews_in: denied.renews_in,
        }
    }

    /// Without looking at what is left.
    pub(crate) fn outright(budget: &Budget, reason: Reason) -> Self {
        let rules = budget.rules();
        let (budget, unit) = (Arc::clone(&rules.name), rules.unit);
        Self { budget, unit, reason, needed: 0, left: 0, limit: rules.limit, renews_in: None }
    }

    /// The denial in an error's chain of sources, if a budget said no.
    #[must_use]
    pub fn find<'a>(err: &'a (dyn Error + 'static)) -> Option<&'a Self> {
        let mut next = Some(err);
        while let Some(err) = next {
            if let Some(denial) = err.downcast_ref() {
                return Some(denial);
            }
            next = err.source();
        }
        None
    }

    /// The name of the budget. Never a key.
    #[must_use]
    pub fn budget(&self) -> &str {
        &self.budget
    }

    /// What it counts.
    #[must_use]
    pub const fn unit(&self) -> Unit {
        self.unit
    }

    /// Why the call was denied.
    #[must_use]
    pub const fn reason(&self) -> Reason {
        self.reason
    }

    /// What the call would have reserved.
    #[must_use]
    pub const fn needed(&self) -> u64 {
        self.needed
    }

    /// What was left for it.
    #[must_use]
    pub const fn left(&self) -> u64 {
        self.left
    }

    /// The limit; of [`Reason::TooLarge`], that of a single call.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// In how long there may be enough. `None` where time does not bring it.
    #[must_use]
    pub const fn renews_in(&self) -> Option<Duration> {
        self.renews_in
    }

    /// What a model is told in place of a tool's result, or of its own next answer.
    #[must_use]
    pub fn observation(&self) -> Observation {
        let observation = Observation::of(&self.bare()).with_message(self.facts());
        match self.instruction() {
            Some(instruction) => observation.with_instruction(instruction),
            None => observation,
        }
    }

    /// The error: a 429, or for money a 402, and never worth retrying as it is; a 503 where a store fails.
    pub(crate) fn fault(self) -> Fault {
        let fault = self.bare().with_target(Arc::clone(&self.budget)).with_message(self.to_string());
        let fault = match self.reason {
            Reason::StoreFailed => fault.with_status(503),
            _ if self.unit == Unit::Money => fault.with_status(402),
            _ => fault,
        };
        fault.with_source(self)
    }

    fn bare(&self) -> Fault {
        let fault = Fault::new(Class::Denied(Denier::Budget), env!("CARGO_PKG_NAME"));
        match self.renews_in {
            Some(renews_in) => fault.with_retry_after(renews_in),
            None => fault,
        }
    }

    fn facts(&self) -> String {
        let Self { unit, needed, left, limit, .. } = self;
        match self.reason {
            Reason::UsedUp => format!("{needed} {unit} are needed and {left} of {limit} are left"),
            Reason::Restricted => {
                format!(
                    "{left} of {limit} {unit} are left, which are kept for calls that are allowed past the soft line"
                )
            }
            Reason::TooLarge => format!("{needed} {unit} are needed, and a call may take {limit}"),
            Reason::Paused => "too much was spent in a short time".to_owned(),
            Reason::Unpriced => "nobody knows what this call costs".to_owned(),
            Reason::KeysFull => "there is no room for another budget".to_owned(),
            Reason::StoreFailed => "nobody can say what is left: the store of the budget fails".to_owned(),
        }
    }

    /// What to do now, unless it is to conclude.
    fn instruction(&self) -> Option<String> {
        let seconds =
            self.renews_in.map(|after| after.as_secs().saturating_add(u64::from(after.subsec_nanos() > 0)));
        Some(match (self.reason, seconds) {
            (Reason::Restricted, _) => "make only those, or conclude from what you already have".to_owned(),
            (Reason::TooLarge, _) => "ask for less, or conclude from what you already have".to_owned(),
            (Reason::Unpriced, _) => "use another model or tool".to_owned(),
            (_, Some(seconds)) => {
                format!("make no further calls for {seconds} seconds; conclude from what you already have")
            }
            (_, None) => return None,
        })
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.facts(), self.observation().instruction())
    }
}

impl Error for Denial {}
