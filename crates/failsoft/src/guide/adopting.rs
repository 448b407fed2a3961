//! How to bring the layers into a service that runs: look first, then enforce.
//!
//! One step at a time, each of a day or a week, each with a way back that needs no deployment where there is one.
//!
//! | step | what is on | look for | the way back |
//! |---|---|---|---|
//! | 1. read | [`CallLayer`](crate::core::CallLayer) outermost, with `trail_header(true)`; [`LlmLayer`](crate::llm::LlmLayer) innermost, where a model is called | verdicts, usage, time to first content in each `Insight`. Streams are held until their first content from here on | take it away |
//! | 2. count | a breaker with [`Mode::ObserveOnly`](crate::breaker::engine::Mode) | the event and the count of when it *would* have opened; failure rate on a good day | `Mode::Disabled` |
//! | 3. judge | validate inside the breaker, with what you must have (`json_object`, `require`) as warnings: [`severity`](crate::validate::ValidateBuilder::severity) | findings on good answers: each is a false alarm | take the check away |
//! | 4. repeat | retry, `max_retries(1)`; the client's own retries off | `x-failsoft-trail`; calls that a second attempt saved; the budget's balance in an outage | `max_retries(0)` |
//! | 5. enforce | [`circuit.set_mode(Mode::Enforcing)`](crate::breaker::Circuit::set_mode); errors for warnings in validate | refused calls against failures before | `Mode::ObserveOnly`, at run time |
//! | 6. fall back | a second route, at first only for what the first one's circuit refuses: [`next(row, To::Nowhere)`](crate::fallback::Builder::next) for the other rows | what share the second route serves, at which cost | [`max_routes(1)`](crate::fallback::Builder::max_routes) |
//! | 7. bound | budget, with a limit nobody reaches and lines by [`alert_at`](crate::budget::BudgetBuilder::alert_at); then lower it with [`Budget::set_limit`](crate::budget::Budget::set_limit) | what a session really spends: begin with several times the dearest good one | raise the limit, at run time |
//!
//! Step 2 needs a number to begin with: take the preset for your kind of target. If on a good day it would have opened, it is too sharp, or
//! something that is nobody's fault is classed as a failure: look at the classes, before you move thresholds.
//!
//! ```
//! use failsoft::breaker::{engine::{Mode, State}, presets};
//! use failsoft::prelude::*;
//! use tower::{ServiceBuilder, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let layer = presets::hosted_model().name("eu").mode(Mode::ObserveOnly).build()?;
//! let circuit = layer.circuit().clone(); // keep it: it is the switch
//! let service = ServiceBuilder::new().layer(layer).service_fn(async |_: http::Request<String>| {
//!     Ok::<_, BoxError>(http::Response::builder().status(500).body(String::new())?)
//! });
//!
//! let ask = async |times: u32| {
//!     let mut refused = 0;
//!     for _ in 0..times {
//!         let outcome = service.clone().oneshot(http::Request::new(String::new())).await;
//!         refused += u32::from(outcome.is_err());
//!     }
//!     refused
//! };
//! assert_eq!(ask(20).await, 0); // it has told that it would have opened, and refused nobody
//! assert_eq!(circuit.state(), State::ObserveOnly);
//!
//! circuit.set_mode(Mode::Enforcing); // what was counted before is forgotten
//! assert_eq!(ask(20).await, 10); // ten calls make a rate
//! # Ok(())
//! # }
//! ```
//!
//! # What to have on a screen
//!
//! The feature `metrics` counts through the crate `metrics` with whatever exporter you have; each crate's module `metrics` lists its names. Four tell most:
//! outcomes by class, refused calls, retries by why there were no more, answers that stood in for others. Events come through `tracing`, without
//! prompts and without keys.
