//! The last tier: an earlier good answer to the same request stands in when every route has failed.
//!
//! | answers | keep with |
//! |---|---|
//! | values that are `Clone` | [`cloned`] |
//! | `http::Response`, `reqwest::Response` with whole bodies | `http` (feature `http`) |
//! | the same, streams too, with a key that is made for you; similar requests | a `Cache` (feature `cache`) |
//! | others, or a store of your own | implement [`Keep`] |
//!
//! Each takes a function that gives a request its [`Key`], or `None` for requests whose answers are not to be kept.
//! A key has a scope, the tenant or user that the answer was made for: answers never cross scopes. An answer that
//! stands in is noted in the trail as `cached`, and what stands in is what a route answered well before: never an
//! error, a cut answer, or one older than the time to live.
//!
//! It does not stand in for calls with the mark [`NoCache`](failsoft_core::Mark::NoCache).
//!
//! It stands in for outages, not for work: while a route answers, it is asked. What classes of failure it stands in
//! for is a column of the [table](crate::table).
//!
//! ```
//! use failsoft_core::{BoxError, Cloned, ErrorsOnly};
//! use fallback_layer::{FallbackLayer, Route, last_good::{self, Key}};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! #[derive(Clone)]
//! struct Question { tenant: String, text: String }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! # let main = service_fn(|_: Question| async { Ok::<_, BoxError>("yes".to_owned()) });
//! # let backup = service_fn(|_: Question| async { Ok::<_, BoxError>("yes".to_owned()) });
//! let layer = FallbackLayer::builder()
//!     .classify(ErrorsOnly)
//!     .replay(Cloned)
//!     .route(Route::new("backup", backup))
//!     .keep_last_good(last_good::cloned(|question: &Question| {
//!         Some(Key::new(question.tenant.as_str(), question.text.as_bytes()))
//!     }))
//!     .build()?;
//! let service = ServiceBuilder::new().layer(layer).service(main);
//! # let question = Question { tenant: "t".to_owned(), text: "?".to_owned() };
//! assert_eq!(service.oneshot(question).await?, "yes");
//! # Ok::<_, BoxError>(())
//! # }).unwrap();
//! ```

mod cloned;
#[cfg(feature = "http")]
mod http;

use std::{
    future::{Pending, Ready},
    sync::Arc,
};

use failsoft_core::BoxError;

pub use self::cloned::{ClonedAnswers, cloned};
#[cfg(feature = "http")]
pub use self::http::{HttpAnswers, KeepWhole, http};

/// At most so many answers are kept by default; beyond that the least recently used goes.
pub const ENTRIES: usize = 1_000;

/// How long an answer is kept by default, in seconds: an hour, as long as most outages of model providers last.
pub const TTL_SECS: u64 = 3_600;

/// Keeps good answers, and gives them again.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot keep answers of the type `{Res}` to requests of the type `{Req}`",
    note = "`last_good::cloned` keeps `Clone` values, `last_good::http` keeps `http::Response` and `reqwest::Response`"
)]
pub trait Keep<Req, Res> {
    /// What makes two requests the same, and for whom.
    type Key;
    /// What the caller gets: the response, or one whose body was held.
    type Out;
    /// Reads an answer to its end before it is handed on.
    type Keeping: Future<Output = Result<Self::Out, BoxError>>;
    /// Looks for an answer that may still be given.
    type Replaying: Future<Output = Option<Self::Out>>;

    /// The request's key; `None` when its answer is not to be kept.
    fn key(&self, request: &Req) -> Option<Self::Key>;

    /// Keeps an answer that counts as good so far, and hands it on.
    fn keep(&self, key: Option<&Self::Key>, response: Res) -> Kept<Self::Out, Self::Keeping>;

    /// Hands on a response that is not to be kept.
    fn pass(&self, response: Res) -> Self::Out;

    /// The answer that was kept for this key, as a new response, if there is one that may still be given.
    fn replay(&self, key: Self::Key) -> Replayed<Self::Out, Self::Replaying>;
}

/// When an answer that is being kept can be handed on.
#[derive(Debug)]
pub enum Kept<Out, F> {
    /// Now.
    Now(Out),
    /// When this future is done. Its error is the failure of the route, and the next one is taken.
    Later(F),
}

/// Whether there is an answer that may still be given.
#[derive(Debug)]
pub enum Replayed<Out, F> {
    /// It is known now.
    Now(Option<Out>),
    /// It is known when this future is done. All routes have failed by then, so that it must not take long.
    Later(F),
}

/// Tells requests apart, within a scope. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(Arc<(Box<str>, Box<[u8]>)>);

impl Key {
    /// A longer key is not kept. Give a strong digest of what is longer.
    pub const MAX_BYTES: usize = 64 * 1024;

    /// A key from the scope, such as a tenant's id, and all of the request that an answer depends on: the model,
    /// the whole canonical body with tools, limits, schema and seed, and whether it is to be streamed.
    #[must_use]
    pub fn new(scope: impl Into<Box<str>>, request: impl Into<Box<[u8]>>) -> Self {
        Self(Arc::new((scope.into(), request.into())))
    }

    pub(crate) fn fits(&self) -> bool {
        let (scope, request) = &*self.0;
        scope.len().saturating_add(request.len()) <= Self::MAX_BYTES
    }
}

impl std::fmt::Debug for Key {
    /// Without the request: prompts do not belong in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").field("scope", &self.0.0).finish_non_exhaustive()
    }
}

/// Keeps nothing: the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLastGood;

impl<Req, Res> Keep<Req, Res> for NoLastGood {
    type Key = ();
    type Out = Res;
    type Keeping = Ready<Result<Res, BoxError>>;
    type Replaying = Pending<Option<Res>>;

    fn key(&self, _: &Req) -> Option<()> {
        None
    }

    fn keep(&self, _: Option<&()>, response: Res) -> Kept<Res, Self::Keeping> {
        Kept::Now(response)
    }

    fn pass(&self, response: Res) -> Res {
        response
    }

    fn replay(&self, (): ()) -> Replayed<Res, Pending<Option<Res>>> {
        Replayed::Now(None)
    }
}
