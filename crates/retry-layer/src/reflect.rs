//! [`Reflect`]: a wrong answer is answered by a changed request, which says what was wrong with it.
//!
//! Take it for answers that came and are wrong in a way that the target can mend when it is told: JSON with a field too few, a
//! tool that does not exist, prose where data was asked for. The same request again would likely bring the same.
//!
//! ```
//! use failsoft_core::{BoxError, Facts, Fault, Finding, Report, SoftKind, Verdict};
//! use retry_layer::{ReflectLayer, reflect::reask_fn};
//! use tower::{ServiceBuilder, ServiceExt};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! // A model behind a validate-layer; it does what it is told.
//! let model = tower::service_fn(|question: String| async move {
//!     if question.contains("/city") {
//!         return Ok::<_, BoxError>(r#"{"city": "Bern"}"#);
//!     }
//!     let finding = Finding::new(SoftKind::MissingField, "required", "a required field is missing").at("/city");
//!     let fault = Fault::with_verdict(Verdict::soft(SoftKind::MissingField), "validate-layer");
//!     Err(fault.with_report(Report::from(finding)).with_answer(&Facts::default()).into())
//! });
//!
//! let reflect = ReflectLayer::builder(reask_fn(|question: String, bad| {
//!         Some(format!("{question}\nYour answer was wrong: {}", bad.report()))
//!     }))
//!     .classify(failsoft_core::ErrorsOnly)
//!     .build()?;
//! let service = ServiceBuilder::new().layer(reflect).service(model);
//! assert_eq!(service.oneshot("Where is the bear park?".to_owned()).await?, r#"{"city": "Bern"}"#);
//! # Ok::<(), BoxError>(())
//! # }).unwrap();
//! ```
//!
//! # When it asks again
//!
//! | question | else |
//! |---|---|
//! | Is the answer soft (it came, and is wrong), with the hint [`Modify`](failsoft_core::Hint::Modify)? [`reask_on`](ReflectBuilder::reask_on) and [`reask_if`](ReflectBuilder::reask_if) change that | the outcome |
//! | Is one of [`max_reasks`](ReflectBuilder::max_reasks) left? 1 by default, and never more than 2: what is not cured then costs more than it brings | the outcome |
//! | Is the deadline of the current [`Call`](failsoft_core::Call) still ahead, and is one of its attempts left? | the outcome |
//! | Can the request be sent again ([`Replay`](failsoft_core::Replay)), and does the [`Reask`] know a change that may help? | the outcome |
//! | Does the [budget](crate::RetryBudget) have a token? | the outcome |
//! | Is the service ready again [in time](ReflectBuilder::ready_within)? | the outcome: an error as it was, for a response a [`Fault`](failsoft_core::Fault) with its class, status and advice |
//!
//! "The outcome" is a soft failure still, with its report, so that a fallback around takes the next route. Each changed request is
//! made of the *first* request and the last wrong answer alone: what was asked and answered in between is not sent again, and
//! does not add up. It is marked [`NoCache`](failsoft_core::Mark::NoCache) in its `Call`.
//!
//! What is known of the wrong answer comes from the [`Fault`](failsoft_core::Fault) of a validate-layer inside, or from the
//! [`Insight`](failsoft_core::Insight) on a response: see [`BadAnswer`]. With the feature `chat`, `chat::ChatReask` is ready-made
//! for the chat requests of OpenAI, Anthropic and Gemini.
//!
//! # Where to put it
//!
//! Inside of a fallback, around a retry: then a changed request is retried like any other, and what is worth the same request
//! again has been tried before. A streamed answer is known to be wrong only where it is held to its end.

mod bad;
mod builder;
#[cfg(feature = "chat")]
pub mod chat;
mod events;
mod flow;
mod future;
mod layer;
mod reask;
mod service;

pub use self::{
    bad::BadAnswer,
    builder::ReflectBuilder,
    future::ResponseFuture,
    layer::ReflectLayer,
    reask::{Reask, ReaskFn, reask_fn},
    service::Reflect,
};
