//! What becomes of an answer that comes in pieces.
//!
//! A stream that breaks after its `200 OK` is a failure that nobody sees who looks at responses. So [`StreamLayer`](crate::stream::StreamLayer), and
//! [`LlmLayer`](crate::llm::LlmLayer) with it, hold an answer back until its **first content** is there: text, reasoning, a piece of a tool call; no
//! keepalive, no empty role. That moment is the **commit**.
//!
//! | | before the commit | after it |
//! |---|---|---|
//! | the response future | is pending | is done; the body runs |
//! | an error event, a cut, a stall | is the `Err` of one attempt | is one error at the end of the body |
//! | retry, fallback, hedge | act on it, without any stream code | do nothing: nothing is repeated or spliced |
//! | breaker | counts it | counts it: it follows the body to its end, and a drop after the protocol's own end changes nothing |
//! | budget | gives back what was not used | settles what was, at the end, at an error or at a drop |
//! | validate | waits | checks at the end; a wrong answer ends with an error in place of its good end |
//!
//! ```
//! use bytes::Bytes;
//! use failsoft::{core::BoxError, llm::{LlmLayer, Provider}, retry::RetryLayer};
//! use http_body_util::{BodyExt, Full};
//! use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
//! use tower::{ServiceBuilder, ServiceExt};
//!
//! static ASKED: AtomicU32 = AtomicU32::new(0);
//!
//! /// Answers 200 twice: first with an error where the answer should be, then well.
//! async fn model(_: http::Request<String>) -> Result<http::Response<Full<Bytes>>, BoxError> {
//!     let events = match ASKED.fetch_add(1, Relaxed) {
//!         0 => "data: {\"error\": {\"message\": \"overloaded\", \"type\": \"overloaded_error\"}}\n\n",
//!         _ => "data: {\"choices\": [{\"delta\": {\"content\": \"Bern\"}, \"finish_reason\": \"stop\"}]}\n\ndata: [DONE]\n\n",
//!     };
//!     Ok(http::Response::builder().header("content-type", "text/event-stream").body(Full::from(events))?)
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), BoxError> {
//! let service = ServiceBuilder::new()
//!     .layer(RetryLayer::builder().repeat_unanswered(true).build()?)
//!     .layer(LlmLayer::new(Provider::OpenAiCompatible))
//!     .service_fn(model);
//!
//! let request = http::Request::new(r#"{"stream": true, "messages": []}"#.to_owned());
//! let response = service.oneshot(request).await?;
//! assert!(response.into_body().collect().await?.to_bytes().ends_with(b"[DONE]\n\n"));
//! assert_eq!(ASKED.load(Relaxed), 2);
//! # Ok(())
//! # }
//! ```
//!
//! # Which mode for whom
//!
//! | who reads | take | price |
//! |---|---|---|
//! | a person who watches | the defaults | what fails after the first words, fails |
//! | a person, and the answer must come to an end | [`RestartLayer`](crate::fallback::restart::RestartLayer) around the fallback | the client must know the event that tells it to throw away what it has |
//! | a program, such as the next agent | [`hold_to_end`](crate::llm::LlmLayerBuilder::hold_to_end) | the time to the first piece is the time to the last; memory up to the cap |
//! | a program, and it must be valid | that, and [`StreamMode::Hold`](crate::validate::StreamMode::Hold) | the same, once more |
//!
//! # Timers
//!
//! | limit | counts | default |
//! |---|---|---|
//! | first content | from the call, connecting included; the double on a route that took over, whose prompt cache is cold | 10 s |
//! | idle | the upstream's silence between pieces of progress: a keepalive is none, a slow reader uses nothing up | 30 s |
//! | total | from the call to the end of the body | none: a stream that flows is not ended |
//!
//! A model that thinks before it answers is silent for 45 s and well: [`HostedModel::reasoning`](crate::presets::HostedModel::reasoning) has limits for
//! it. A client's own limit on the whole answer, such as `reqwest`'s `timeout`, ends streams that flow.
