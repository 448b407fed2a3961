//! Last tiers: what stands in when every route has failed and no earlier answer is there. An answer that is computed without
//! the targets, or the promise of one.
//!
//! A last tier is a [`Route`](crate::Route) with the mark [`last_tier`](crate::Route::last_tier); any service may be one.
//!
//! ```
//! use failsoft_core::{BoxError, Degraded, StandIn};
//! use fallback_layer::{FallbackLayer, Route, tier::{self, Ticket}};
//! use http::{Request, Response};
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let main = service_fn(|_: Request<String>| async { Err::<Response<String>, BoxError>("down".into()) });
//! // What can be answered without a model:
//! let computed = tier::computed(|request: &Request<String>| {
//!     (request.body() == "2+2").then(|| Response::new("4".to_owned()))
//! });
//! // All else goes to a queue:
//! let queue = service_fn(|_: Request<String>| async { Ok::<_, BoxError>(Ticket::new("job-17").at("/jobs/17")) });
//!
//! let layer = FallbackLayer::builder()
//!     .route(Route::boxed("computed", computed).last_tier(StandIn::Computed))
//!     .route(Route::boxed("queue", tier::deferred(queue)).last_tier(StandIn::Deferred))
//!     .build()?;
//! let service = layer.layer(main);
//! let sum = service.clone().oneshot(Request::new("2+2".to_owned())).await?;
//! assert_eq!(sum.body(), "4");
//! let later = service.oneshot(Request::new("Why?".to_owned())).await?;
//! assert_eq!((later.status().as_u16(), &later.headers()["location"]), (202, &"/jobs/17".parse()?));
//! assert_eq!(Degraded::of(later.extensions()).map(|mark| mark.stand_in), Some(StandIn::Deferred));
//! # Ok::<_, BoxError>(())
//! # }).unwrap();
//! ```

use std::{
    fmt,
    future::{Ready, ready},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use failsoft_core::{BoxError, Fault, Verdict};
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::{LAYER, adapt::NotAsked};

/// Answers by a function of the request; where that gives `None`, the next tier is asked.
pub fn computed<Req, Res, F>(answer: F) -> Computed<F>
where
    F: Fn(&Req) -> Option<Res>,
{
    Computed { answer: Arc::new(answer) }
}

/// The service made by [`computed`].
pub struct Computed<F> {
    answer: Arc<F>,
}

impl<F, Req, Res> Service<Req> for Computed<F>
where
    F: Fn(&Req) -> Option<Res>,
{
    type Response = Res;
    type Error = BoxError;
    type Future = Ready<Result<Res, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let answer = (self.answer)(&request);
        ready(
            answer.ok_or_else(|| {
                NotAsked::new("nothing is computed for this request", "no answer".into()).into()
            }),
        )
    }
}

impl<F> Clone for Computed<F> {
    fn clone(&self) -> Self {
        Self { answer: Arc::clone(&self.answer) }
    }
}

impl<F> fmt::Debug for Computed<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Computed")
    }
}

/// What a queue says of a request that it has taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Ticket {
    /// The id by which the answer is asked for.
    pub id: Box<str>,
    /// Where it is asked for.
    pub location: Option<Box<str>>,
}

impl Ticket {
    /// A ticket with its id.
    #[must_use]
    pub fn new(id: impl Into<Box<str>>) -> Self {
        Self { id: id.into(), location: None }
    }

    /// Says where the answer is asked for: an address or a path.
    #[must_use]
    pub fn at(mut self, location: impl Into<Box<str>>) -> Self {
        self.location = Some(location.into());
        self
    }
}

impl From<String> for Ticket {
    fn from(id: String) -> Self {
        Self::new(id)
    }
}

/// A response that says: later.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be made of a ticket",
    note = "`http::Response<B>` can, where `B: From<String>`, and `reqwest::Response` with the feature `reqwest-013`; for others \
            take `tier::deferred_with`"
)]
pub trait Promise {
    /// Makes it.
    fn promise(ticket: Ticket) -> Self;
}

/// Status 202, the ticket as JSON (`{"status":"deferred","id":"…"}`), and `Location` where it is known.
#[cfg(feature = "http")]
impl<B: From<String>> Promise for http::Response<B> {
    fn promise(ticket: Ticket) -> Self {
        use http::{HeaderValue, StatusCode, header};

        let body = format!("{{\"status\":\"deferred\",\"id\":{}}}", crate::json::quoted(&ticket.id));
        let mut response = Self::new(body.into());
        *response.status_mut() = StatusCode::ACCEPTED;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        // A location that is none is left out: the id is in the body.
        if let Some(location) = ticket.location.and_then(|location| HeaderValue::from_str(&location).ok()) {
            headers.insert(header::LOCATION, location);
        }
        response
    }
}

#[cfg(feature = "reqwest-013")]
impl Promise for reqwest::Response {
    fn promise(ticket: Ticket) -> Self {
        http::Response::<String>::promise(ticket).into()
    }
}

/// Gives requests to a queue, and answers that the answer comes later, with a [`Promise`].
///
/// The queue is a service from the request to a [`Ticket`], or to the id alone. What the caller is told must hold: it answers
/// when the request is safe there. Where it fails, so does the tier, with a [`Fault`] of the class of the queue's error.
pub const fn deferred<Q, Res: Promise>(queue: Q) -> Deferred<Q, Res> {
    deferred_with(queue, Res::promise)
}

/// The same, answered with what `answer` makes of the ticket, for responses that are no [`Promise`].
pub const fn deferred_with<Q, Res>(queue: Q, answer: fn(Ticket) -> Res) -> Deferred<Q, Res> {
    Deferred { queue, answer }
}

/// The service made by [`deferred`].
pub struct Deferred<Q, Res> {
    queue: Q,
    answer: fn(Ticket) -> Res,
}

impl<Q, Res, Req> Service<Req> for Deferred<Q, Res>
where
    Q: Service<Req, Response: Into<Ticket>, Error: Into<BoxError>>,
{
    type Response = Res;
    type Error = BoxError;
    type Future = DeferredFuture<Q::Future, Res>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.queue.poll_ready(cx).map_err(refused)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        DeferredFuture { future: self.queue.call(request), answer: self.answer }
    }
}

fn refused(error: impl Into<BoxError>) -> BoxError {
    let error = error.into();
    let verdict = Fault::find(&*error).map_or_else(|| Verdict::of_error(&*error), |fault| fault.verdict());
    Fault::with_verdict(verdict, LAYER)
        .with_message("the request could not be queued")
        .with_source(error)
        .into()
}

pin_project! {
    /// The future of a [`Deferred`].
    #[must_use = "futures do nothing unless polled"]
    pub struct DeferredFuture<F, Res> {
        #[pin]
        future: F,
        answer: fn(Ticket) -> Res,
    }
}

impl<F, T, E, Res> Future for DeferredFuture<F, Res>
where
    F: Future<Output = Result<T, E>>,
    T: Into<Ticket>,
    E: Into<BoxError>,
{
    type Output = Result<Res, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        this.future.poll(cx).map(|queued| queued.map(|ticket| (this.answer)(ticket.into())).map_err(refused))
    }
}

impl<Q: Clone, Res> Clone for Deferred<Q, Res> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), answer: self.answer }
    }
}

impl<Q: fmt::Debug, Res> fmt::Debug for Deferred<Q, Res> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deferred").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl<F, Res> fmt::Debug for DeferredFuture<F, Res> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeferredFuture").finish_non_exhaustive()
    }
}
