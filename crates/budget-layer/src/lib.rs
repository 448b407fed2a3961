//! A [`tower_layer::Layer`] that bounds what a session spends: tokens, money, calls or time are reserved before a call and settled
//! after it.
//!
//! Take it around an agent's model client. Before a call its estimated cost is reserved, in one atomic step, so calls at once
//! cannot spend together what is there once; at the end of the body, at an error or at a drop the reservation becomes what was
//! really used, exactly once. A call that does not fit is denied and not sent.
//!
//! ```
//! use budget_layer::BudgetLayer;
//! use failsoft_core::{BoxError, Call, Class, Denier, ErrorsOnly, Fault, Usage};
//! use tower::{Service, ServiceBuilder, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let layer = BudgetLayer::builder()
//!     .tokens(1_000)
//!     .estimate(|prompt: &String| prompt.len() as u64 / 4 + 300)
//!     .classify(ErrorsOnly) // plain values: errors tell all
//!     .build()?;
//! let budget = layer.budget().clone();
//! let mut model = ServiceBuilder::new().layer(layer).service_fn(|prompt: String| async move {
//!     // What an llm-layer does: it tells what the answer used.
//!     let mut slot = Call::slot().expect("a budget stands around");
//!     slot.set(&Usage { input: Some(prompt.len() as u64 / 4), output: Some(250), ..Usage::default() });
//!     Ok::<_, BoxError>("an answer")
//! });
//!
//! for _ in 0..3 {
//!     model.ready().await?.call("what is the weather?".to_owned()).await?;
//! }
//! assert_eq!((budget.spent(), budget.remaining()), (765, 235));
//!
//! let denied = model.ready().await?.call("and tomorrow?".to_owned()).await.unwrap_err();
//! let fault = Fault::find(&*denied).expect("a denial is a fault");
//! assert_eq!(fault.class(), Class::Denied(Denier::Budget));
//! assert_eq!(
//!     fault.message(),
//!     Some("303 tokens are needed and 235 of 1000 are left: make no further calls; conclude from what you already have")
//! );
//! # Ok(())
//! # }
//! ```
//!
//! # The parts
//!
//! | to | look at |
//! |---|---|
//! | put a budget around a service | [`BudgetLayer`], [`BudgetBuilder`] |
//! | charge a call to several, over any unit and window | [`BudgetBuilder::also`], [`Allowance`], [`Unit`], [`Window`], [`Price`] |
//! | say why a call was denied, and what to do | [`Denial`] |
//! | watch and steer one budget | [`Budget`], [`Line`], [`Snapshot`] |
//! | give each session its own | [`BudgetBuilder::key_fn`], [`Ledger`] |
//! | go on after a restart | [`Ledger::save`], [`Ledger::load`], [`Budget::save`], [`State`] |
//! | spend from one budget in several processes | [`Store`], [`Leases`], the module [`store`] |
//! | see what was spent on what | [`Spend`], [`Outcome`]; by session, tool, model and route: [`Book`], the module [`book`] |
//! | count it elsewhere | [`metrics`], with the feature of that name |
//! | estimate a call | [`FromRequest`], [`Estimator`], [`Learned`], [`estimate_tokens`] |
//!
//! # What a call counts for
//!
//! Whoever reads the answers further in opens a [`Slot`](failsoft_core::Slot) for each attempt and sets what it used; the attempts
//! of retries, fallbacks and hedges add up, whatever is dropped when.
//!
//! | what the attempts said | what the call counts for |
//! |---|---|
//! | all | that; an explicit 0 is 0 |
//! | the input or the output only | that, and the estimate of the other |
//! | some attempts nothing | what the others said, and the estimate for each silent one |
//! | nothing, or nobody reads | the estimate, flagged as unknown usage |
//! | nothing, and the call was turned down: never sent, a 4xx, a 5xx but 504 and 524 | 0 |
//! | dropped or cut off | as above: the input, and the output that was seen |
//! | something, after the call was settled | that too, less what was estimated in its place |
//!
//! # Features
//!
//! `http` (default) estimates `http::Request` and follows the bodies of `http::Response`; `reqwest-013` does the same for reqwest 0.13.
//! `calendar` adds windows of days and months in named time zones, `serde` makes states and spending serialisable, `metrics` counts
//! through the crate of that name, `tokenizer` counts prompts exactly, by OpenAI's vocabularies.

#![cfg_attr(docsrs, feature(doc_cfg))]
// The README is tested with the crate.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

mod account;
mod allowance;
pub mod book;
mod budget;
mod builder;
mod cell;
mod charge;
mod cost;
mod denial;
mod estimate;
mod events;
mod future;
mod key;
mod layer;
mod leasing;
mod ledger;
mod line;
#[cfg(all(test, failsoft_loom))]
mod loom;
pub mod metrics;
mod parts;
mod plain;
mod service;
mod spend;
mod state;
pub mod store;
mod unit;
mod window;

#[cfg(feature = "tokenizer")]
pub use self::estimate::Vocabulary;
pub use self::{
    allowance::Allowance,
    book::{Amounts, Book, Filter, GroupBy, Labels, Row},
    budget::{Budget, Line, Snapshot},
    builder::BudgetBuilder,
    charge::Charge,
    denial::{Denial, Reason},
    estimate::{Average, Estimate, EstimateFn, Estimator, Fixed, FromRequest, LearnBy, Learned, Priced},
    future::ResponseFuture,
    key::{AllPass, And, KeyFn, Keyed, Labelled, OneForAll, PassFn, PassSoft},
    layer::BudgetLayer,
    ledger::Ledger,
    service::Budgeted,
    spend::{Outcome, Spend, Tally},
    state::{LoadError, Saved, State},
    store::{Exchange, Grant, Holder, Leases, MemoryStore, Store, StoreFailure},
    unit::{Price, Unit},
    window::Window,
};
pub use failsoft_core::estimate_tokens;
