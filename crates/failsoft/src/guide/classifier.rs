//! How the layers learn what an outcome means.
//!
//! Every layer asks one question of every outcome: which [`Class`](crate::core::Class) is it? For `http::Response`,
//! `reqwest::Response` and gRPC there is an answer by default ([`ByResponse`](crate::core::ByResponse)). You write one where responses are types of
//! your own, or where a status of your upstream means something else than it does elsewhere.
//!
//! | you have | write |
//! |---|---|
//! | plain values, and all failures are errors | [`.classify(ErrorsOnly)`](crate::core::ErrorsOnly) |
//! | plain values, of which some are failures | [`.classify(classify_fn(…))`](crate::core::classify_fn()) for one layer, or [`impl Respond`](crate::core::Respond) for the type, and then nothing on any layer |
//! | an error type of your own | `.errors(…)` on the former |
//! | an upstream with habits of its own, over HTTP | a [`Classify`](crate::core::Classify) that knows its statuses and asks `ByResponse` for the rest |
//! | a body format of your own | a [`Decoder`](crate::stream::Decoder) for a `StreamLayer`, which gives the verdict when the stream ends |
//! | one row that you want to be otherwise | no classifier: [`BreakerBuilder::on`](crate::breaker::BreakerBuilder::on), [`RetryBuilder::retry_on`](crate::retry::RetryBuilder::retry_on), [`fallback`'s `next`](crate::fallback::Row) |
//!
//! # Which class
//!
//! Ask in this order, and stop at the first yes:
//!
//! 1. Is it the answer that was asked for? `Success`.
//! 2. Would every target refuse this request? `Invalid`; if only because it is too long, `ContextLength`. No breaker counts it, nobody asks again.
//! 3. Did the target say "not now"? `RateLimited` if it is about you, `Overloaded` if it is about itself, `Quota` if money is what is missing. Give its
//!    advice with `with_retry_after`: it is obeyed.
//! 4. Is the answer there, and wrong? `Soft` of a kind: it weighs 0.6 of a failure.
//! 5. Did something between here and there break? `Transient`, or `Timeout`.
//! 6. Do you not know? `Unknown`: a failure that is not repeated, because nobody knows whether that is safe.
//!
//! A verdict is more than a class where you know more: [`with_hint`](crate::core::Verdict::with_hint) whether the same request may work,
//! [`with_blame`](crate::core::Verdict::with_blame) whose fault it was, [`with_unsent`](crate::core::Verdict::with_unsent) that nothing has left the house, so
//! that even what has side effects may be sent again.
//!
//! # Errors too
//!
//! ```
//! use failsoft::{breaker::BreakerLayer, core::{BoxError, Class, Verdict, classify_fn}};
//! use std::{error::Error, fmt, time::Duration};
//! use tower::{ServiceBuilder, ServiceExt};
//!
//! #[derive(Debug)]
//! enum Lost { NoSuchBook, Closed { opens_in: Duration } }
//! impl Error for Lost {}
//! # impl fmt::Display for Lost { fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str("lost") } }
//!
//! struct Shelf { books: u32 }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let classify = classify_fn(|shelf: &Shelf| if shelf.books > 0 { Verdict::SUCCESS } else { Verdict::of(Class::Unknown) })
//!     .errors(|error| match error.downcast_ref::<Lost>() {
//!         Some(Lost::NoSuchBook) => Verdict::of(Class::Invalid), // the caller's mistake
//!         Some(Lost::Closed { opens_in }) => Verdict::of(Class::Overloaded).with_retry_after(*opens_in),
//!         None => Verdict::of_error(error), // a timeout, a reset: as everywhere
//!     });
//! let layer = BreakerLayer::builder().classify(classify).build()?;
//! let circuit = layer.circuit().clone();
//! let library = ServiceBuilder::new().layer(layer).service_fn(async |title: &'static str| match title {
//!     "" => Err(Lost::NoSuchBook),
//!     "night" => Err(Lost::Closed { opens_in: Duration::from_secs(1) }),
//!     _ => Ok(Shelf { books: 1 }),
//! });
//! for title in ["rust", "", "night"] {
//!     let _ = library.clone().oneshot(title).await;
//! }
//! assert_eq!((circuit.counts().total, circuit.counts().failed), (2, 1)); // the caller's mistake is not counted
//! # Ok(())
//! # }
//! ```
//!
//! # An upstream with habits
//!
//! ```
//! use failsoft::core::{BodyJudge, BoxError, ByResponse, Class, Classify, Insight, Step, Verdict};
//!
//! /// This search answers 404 while its index is being built, and 200 with a header when it gave up half-way.
//! #[derive(Clone)]
//! struct OfSearch;
//!
//! impl<B: http_body::Body<Error: Into<BoxError>>> Classify<http::Response<B>> for OfSearch {
//!     type Judge = BodyJudge;
//!
//!     fn response(&self, response: &http::Response<B>) -> Step<BodyJudge> {
//!         match response.status().as_u16() {
//!             404 => Step::Now(Verdict::of(Class::Overloaded)),
//!             200 if response.headers().contains_key("x-partial") => Step::Now(Verdict::of(Class::Transient)),
//!             _ => ByResponse.response(response), // follows the body, too
//!         }
//!     }
//!
//!     fn status_code(&self, response: &http::Response<B>) -> Option<u16> {
//!         ByResponse.status_code(response)
//!     }
//!
//!     fn insight<'a>(&self, response: &'a http::Response<B>) -> Option<&'a Insight> {
//!         ByResponse.insight(response)
//!     }
//! }
//!
//! # fn main() -> Result<(), failsoft::core::ConfigError> {
//! let retry = failsoft::retry::RetryLayer::builder().classify(OfSearch).build()?;
//! let breaker = failsoft::breaker::BreakerLayer::builder().classify(OfSearch).build()?;
//! # let stack = tower::ServiceBuilder::new().layer(retry).layer(breaker).service_fn(async |_: http::Request<String>| {
//! #     Ok::<_, std::io::Error>(http::Response::new(String::new()))
//! # });
//! # drop(async move { tower::ServiceExt::oneshot(stack, http::Request::new(String::new())).await });
//! # Ok(())
//! # }
//! ```
//!
//! A classifier is asked by each layer that has it, so it is cheap and without side effects. It decides by what is typed: codes, statuses,
//! fields. Numbers and words in a text of an error are somebody's prose, and change.
