//! A tower layer that calls again, when that can help.

pub mod budget;

pub use budget::{Deposit, RetryBudget, RetryBudgetBuilder};
