//! What one writes most, for `use failsoft::prelude::*`: the layers that are on, and what their errors and answers say.
//!
//! ```
//! use failsoft::prelude::*;
//!
//! fn explain(error: &BoxError) -> String {
//!     match Fault::find(&**error) {
//!         Some(fault) => format!("{} at {}", fault.class(), fault.target().unwrap_or("a target without a name")),
//!         None => error.to_string(),
//!     }
//! }
//! # let _ = explain;
//! ```

#[cfg(feature = "breaker")]
pub use breaker_layer::{BreakerLayer, Circuit};
#[cfg(feature = "budget")]
pub use budget_layer::BudgetLayer;
pub use failsoft_core::{
    Backoff, BoxError, Call, CallLayer, Class, ConfigError, Fault, Hint, Insight, ObserveLayer, RespondLayer,
    SoftKind, Trail, Verdict,
};
#[cfg(feature = "fallback")]
pub use fallback_layer::{FallbackLayer, Route};
#[cfg(feature = "llm")]
pub use llm_layer::{LlmLayer, Provider};
#[cfg(feature = "retry")]
pub use retry_layer::{HedgeLayer, RetryBudget, RetryLayer};
#[cfg(feature = "stream")]
pub use stream_layer::StreamLayer;
#[cfg(feature = "validate")]
pub use validate_layer::ValidateLayer;
