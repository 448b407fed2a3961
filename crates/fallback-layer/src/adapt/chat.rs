//! Ready-made adapters for the JSON bodies of chat models: another model's name, fewer messages, examples, other tool ids; and the
//! way back for the answers, whole or streamed.
//!
//! ```
//! use bytes::Bytes;
//! use failsoft_core::BoxError;
//! use fallback_layer::{FallbackLayer, Route, adapt::chat};
//! use http::{Request, Response};
//! use http_body_util::{BodyExt as _, Full};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! # type Answer = Response<Full<Bytes>>;
//! let large = service_fn(|_: Request<String>| async { Err::<Answer, BoxError>("down".into()) });
//! let small = service_fn(|request: Request<String>| async move {
//!     assert_eq!(request.body(), r#"{"model":"small-1","messages":[{"role":"user","content":"Now?"}],"top_k": 1}"#);
//!     let answer = Response::builder().header("content-type", "application/json");
//!     Ok::<Answer, BoxError>(answer.body(r#"{"model":"small-1","choices":[]}"#.into())?)
//! });
//!
//! let layer = FallbackLayer::builder()
//!     .route(
//!         Route::new("small", small)
//!             .edit_request((chat::model("small-1"), chat::prune().messages(2)))
//!             .edit_response(chat::answered_model("large-1")),
//!     )
//!     .build()?;
//! // The first route's answers get the same type of body.
//! let service = ServiceBuilder::new().layer(layer).layer(chat::response(())).service(large);
//! let body = r#"{"model":"large-1","messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hi!"},{"role":"user","content":"Now?"}],"top_k": 1}"#;
//! let response = service.oneshot(Request::new(body.to_owned())).await?;
//! assert_eq!(response.into_body().collect().await?.to_bytes(), r#"{"model":"large-1","choices":[]}"#);
//! # Ok::<_, BoxError>(())
//! # }).unwrap();
//! ```
//!
//! | edit | of | what it does |
//! |---|---|---|
//! | [`model`] | requests | another `model`; one is added where there is none |
//! | [`prune`] | requests | only the last messages, with the instructions before them |
//! | [`examples`] | requests | turns of question and answer, before the conversation |
//! | [`tool_ids`] | requests, answers | other ids of tool calls, and of their results |
//! | [`answered_model`] | answers | another `model`, where the answer names one |
//! | [`edit_fn`] | both | a function of your own |
//!
//! Several are a tuple, and each sees what the one before it has made. They know the chat completions of OpenAI and the many that
//! speak them, OpenAI's responses, Anthropic's messages, and Gemini's contents (whose model is in the path).
//!
//! Nothing else changes: fields that are not known, their order, numbers and spaces stay byte for byte, because providers cache
//! prompts by their beginning. `content-length` is put right, and an `idempotency-key` gets a suffix, for it is another request.
//!
//! A request without a body passes as it is, and so does one in which there is nothing to change. One that would have to be changed and
//! cannot be is an error, so that the route is skipped: whose body is no JSON object, names a field twice, is encoded, or does not lie
//! in memory; and one that is signed, or carries a digest of its body (sign inside of this layer).
//!
//! Of the answers, those are changed that are a success, not encoded and without a digest: a whole JSON of at most 8 MiB, which is read to
//! its end first, so that one that breaks off fails its route; and each event of a stream, as it comes, also of one that is a JSON array, as
//! Gemini streams by default. All else passes byte for byte.

mod body;
mod edits;
mod elements;
mod prune;
mod requests;
mod responses;
mod shots;
mod tools;

use std::sync::Arc;

use failsoft_core::BoxError;

pub use self::{
    body::ChatBody,
    edits::{AnsweredModel, EditFn, Model, answered_model, edit_fn, model},
    prune::{Prune, prune},
    requests::{ChatRequest, Requests},
    responses::{EditResponse, Responses},
    shots::{Examples, examples},
    tools::{ToolIds, plain_tool_id, short_tool_id, tool_ids},
};
use super::{AdaptRequestLayer, AdaptResponseLayer};
pub use crate::in_memory::InMemory;

/// Changes a JSON text: of a request's body, of a whole answer, or of one event of a stream.
pub trait Edit: Send + Sync {
    /// The changed text, or `None` where nothing is to be changed. The text is one JSON object that names no field twice.
    ///
    /// # Errors
    ///
    /// When it must be changed and cannot be: a request's route is skipped, an answer has failed.
    fn edit(&self, json: &str) -> Result<Option<String>, BoxError>;
}

impl Edit for () {
    fn edit(&self, _: &str) -> Result<Option<String>, BoxError> {
        Ok(None)
    }
}

impl<E: Edit + ?Sized> Edit for Box<E> {
    fn edit(&self, json: &str) -> Result<Option<String>, BoxError> {
        (**self).edit(json)
    }
}

impl<E: Edit + ?Sized> Edit for Arc<E> {
    fn edit(&self, json: &str) -> Result<Option<String>, BoxError> {
        (**self).edit(json)
    }
}

macro_rules! tuples {
    ($(($($edit:ident),+);)+) => {$(
        impl<$($edit: Edit),+> Edit for ($($edit,)+) {
            fn edit(&self, json: &str) -> Result<Option<String>, BoxError> {
                #[allow(non_snake_case, reason = "named as their types")]
                let ($($edit,)+) = self;
                let mut changed: Option<String> = None;
                $(
                    if let Some(more) = $edit.edit(changed.as_deref().unwrap_or(json))? {
                        changed = Some(more);
                    }
                )+
                Ok(changed)
            }
        }
    )+};
}

tuples! {
    (A);
    (A, B);
    (A, B, C);
    (A, B, C, D);
    (A, B, C, D, E);
    (A, B, C, D, E, F);
}

/// A layer that edits the bodies of requests.
pub fn request(edit: impl Edit + 'static) -> AdaptRequestLayer<Requests> {
    AdaptRequestLayer { adapt: Arc::new(Requests::new(edit)) }
}

/// A layer that edits the bodies of answers.
pub fn response(edit: impl Edit + 'static) -> AdaptResponseLayer<Responses> {
    AdaptResponseLayer { adapt: Arc::new(Responses::new(edit)) }
}
