//! [`Route`]: a service that may answer, and what is known of it.
//!
//! ```
//! use fallback_layer::{FallbackLayer, Route};
//! # use tower::service_fn;
//!
//! # let eu = service_fn(|_: String| async { Ok::<_, std::io::Error>("eu".to_owned()) });
//! # let local = service_fn(|_: String| async { Ok::<_, std::fmt::Error>("local".to_owned()) });
//! // Two services of different types: both are boxed.
//! let layer = FallbackLayer::builder()
//!     .route(Route::boxed("eu", eu).credential("account-7"))
//!     .route(Route::boxed("local", local).free())
//!     .build();
//! # layer.unwrap();
//! ```

use std::{
    fmt,
    marker::PhantomData,
    sync::Arc,
    task::{Context, Poll},
};

use failsoft_core::{BoxError, CloneService, Condition, Health, IntoBoxError, StandIn};
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    adapt::{self, AdaptRequest, AdaptResponse},
    boxed::BoxRoute,
    by_request::ByRequest,
};

/// A service that may answer, with its name, its health and its marks.
#[derive(Clone)]
#[must_use = "a route does nothing before it is given to a layer"]
pub struct Route<S> {
    pub(crate) service: S,
    pub(crate) info: Info,
}

/// What is known of a route, besides its service.
#[derive(Clone)]
pub(crate) struct Info {
    /// Its identity among fallbacks inside each other.
    pub(crate) name: Arc<str>,
    pub(crate) health: Option<Arc<dyn Health>>,
    pub(crate) marks: Marks,
    /// Its share, where the order is by weight.
    pub(crate) weight: u32,
    pub(crate) cost_factor: f64,
    /// Whether it may turn out that it cannot be asked, so that another one has its place.
    pub(crate) may_be_skipped: bool,
    /// It is asked when all others have failed, and stands in so.
    pub(crate) tier: Option<StandIn>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    pub(crate) credential: Option<Arc<str>>,
    /// In tokens; 0 where it is not known.
    pub(crate) window: u32,
    pub(crate) free: bool,
    pub(crate) provider: Option<Arc<str>>,
    pub(crate) handles_refusals: bool,
}

impl<S> Route<S> {
    /// A route with its name, which must be unique in its layer. In fallbacks inside each other two routes with one
    /// name are one target, which is asked at most once a call.
    pub fn new(name: impl Into<Arc<str>>, service: S) -> Self {
        Self {
            service,
            info: Info {
                name: name.into(),
                health: None,
                marks: Marks::default(),
                weight: 1,
                cost_factor: 1.0,
                may_be_skipped: false,
                tier: None,
            },
        }
    }

    /// Who knows how fit the route is: a circuit, an active check. A route in poor health is tried after the
    /// others. Without it the route counts as good.
    pub fn health(mut self, health: impl Health + 'static) -> Self {
        self.info.health = Some(Arc::new(health));
        self
    }

    /// Names the account or key that the route uses. After a used-up quota or a refused credential only routes with
    /// another one follow; routes that name none count as another each.
    pub fn credential(mut self, name: impl Into<Arc<str>>) -> Self {
        self.info.marks.credential = Some(name.into());
        self
    }

    /// The model's context window in tokens. A prompt that was too long for one route goes on to routes with a
    /// larger window only; one that is not given counts as the smallest.
    pub const fn window(mut self, tokens: u32) -> Self {
        self.info.marks.window = tokens;
        self
    }

    /// Names the provider behind the route. Where an outcome goes on to [another provider](crate::To::OtherProvider)
    /// only, routes that name none count as another each.
    pub fn provider(mut self, name: impl Into<Arc<str>>) -> Self {
        self.info.marks.provider = Some(name.into());
        self
    }

    /// Marks a route that may answer what another one refused, see [`To::HandlesRefusals`](crate::To::HandlesRefusals).
    pub const fn handles_refusals(mut self) -> Self {
        self.info.marks.handles_refusals = true;
        self
    }

    /// The route's share of calls where the order is [by weight](crate::Order::Weighted), by default 1. One of 0 is asked
    /// only where no other is left.
    pub const fn weight(mut self, weight: u32) -> Self {
        self.info.weight = weight;
        self
    }

    /// What a call costs there, as a multiple of what it costs on the first route; by default 1. For
    /// [metrics](crate::metrics::COST_FACTOR) only.
    pub const fn cost_factor(mut self, factor: f64) -> Self {
        self.info.cost_factor = factor;
        self
    }

    /// Makes it a last tier: no target, but what stands in when all routes have failed and there is no
    /// [last good answer](crate::last_good) either. It is asked in the order given, for failures for which a
    /// [stand-in](crate::Builder::stand_in) is allowed, also by calls for free routes only; it counts neither for
    /// [`max_routes`](crate::Builder::max_routes) nor as an attempt, and where the time is used up it has 2 s more. Its answers
    /// carry the mark [`Degraded`](failsoft_core::Degraded) with `what`. See [`tier`](crate::tier).
    pub const fn last_tier(mut self, what: StandIn) -> Self {
        self.info.tier = Some(what);
        self
    }

    /// Marks a route that costs nothing: it may follow a budget's denial, and serves calls that are marked
    /// [`FreeOnly`](failsoft_core::Mark::FreeOnly).
    pub const fn free(mut self) -> Self {
        self.info.marks.free = true;
        self
    }
}

/// Adapters, see [`adapt`].
impl<S> Route<S> {
    /// Changes each request before it goes to this route: another model name, a pruned context, other tool ids. When it
    /// fails, the route is skipped.
    pub fn adapt_request<In, Out, E, F>(self, adapt: F) -> Route<AdaptRequest<S, adapt::Sync<F>>>
    where
        F: Fn(In) -> Result<Out, E>,
    {
        self.with(&adapt::request(adapt)).may_be_skipped()
    }

    /// Changes each request before it goes to this route, by a function that waits; in the time that the route has.
    pub fn adapt_request_async<In, Fut, F>(self, adapt: F) -> Route<AdaptRequest<S, adapt::Async<F>>>
    where
        F: Fn(In) -> Fut,
    {
        self.with(&adapt::request_async(adapt)).may_be_skipped()
    }

    /// Changes each response of this route. When it fails, the route has failed.
    pub fn adapt_response<In, Out, E, F>(self, adapt: F) -> Route<AdaptResponse<S, adapt::Sync<F>>>
    where
        F: Fn(In) -> Result<Out, E>,
    {
        self.with(&adapt::response(adapt))
    }

    /// Changes each response of this route, by a function that waits; in the time that the route has.
    pub fn adapt_response_async<In, Fut, F>(self, adapt: F) -> Route<AdaptResponse<S, adapt::Async<F>>>
    where
        F: Fn(In) -> Fut,
    {
        self.with(&adapt::response_async(adapt))
    }

    /// Edits the body of each request that goes to this route, see [`adapt::chat`]. One that cannot be edited skips the route.
    #[cfg(feature = "http")]
    pub fn edit_request(
        self,
        edit: impl adapt::chat::Edit + 'static,
    ) -> Route<AdaptRequest<S, adapt::chat::Requests>> {
        self.with(&adapt::chat::request(edit)).may_be_skipped()
    }

    /// Edits the body of each answer of this route, see [`adapt::chat`].
    #[cfg(feature = "http")]
    pub fn edit_response(
        self,
        edit: impl adapt::chat::Edit + 'static,
    ) -> Route<AdaptResponse<S, adapt::chat::Responses>> {
        self.with(&adapt::chat::response(edit))
    }

    /// Boxes the route's service, so that it is of one type with other routes.
    pub fn into_boxed<Req, Res>(self) -> Route<BoxRoute<Req, Res>>
    where
        S: Service<Req, Response = Res, Error: IntoBoxError, Future: Send + 'static>
            + CloneService
            + Send
            + Sync
            + 'static,
    {
        Route { service: BoxRoute::new(self.service), info: self.info }
    }

    fn with<L: Layer<S>>(self, layer: &L) -> Route<L::Service> {
        Route { service: layer.layer(self.service), info: self.info }
    }

    const fn may_be_skipped(mut self) -> Self {
        self.info.may_be_skipped = true;
        self
    }
}

impl Route<()> {
    /// Name, health and marks without a service: how the first route, which is the service under the layer, is
    /// [described](crate::Builder::first).
    pub fn first(name: impl Into<Arc<str>>) -> Self {
        Self::new(name, ())
    }
}

impl<Req, Res> Route<BoxRoute<Req, Res>> {
    /// A route with a boxed service, for routes of different types. Boxing costs one allocation for each call
    /// that the route is asked.
    pub fn boxed<S>(name: impl Into<Arc<str>>, service: S) -> Self
    where
        S: Service<Req, Response = Res, Error: IntoBoxError, Future: Send + 'static>
            + CloneService
            + Send
            + Sync
            + 'static,
    {
        Self::new(name, BoxRoute::new(service))
    }
}

impl<F> Route<ByRequest<F>> {
    /// A route whose service is built for each request, by a function: with the tenant's own key, for the region that
    /// the request names. A request for which it fails skips the route: it is noted in the trail, counts as no attempt,
    /// and the next route has its place.
    ///
    /// The service becomes ready within the call, in the time that the route has.
    ///
    /// ```
    /// use fallback_layer::{FallbackLayer, Route};
    /// use failsoft_core::{BoxError, ErrorsOnly};
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let down = service_fn(|_: &'static str| async { Err::<String, BoxError>("down".into()) });
    /// let layer = FallbackLayer::builder()
    ///     .classify(ErrorsOnly)
    ///     .route(Route::by_request("own", |tenant: &&'static str| match *tenant {
    ///         "t1" => Ok(service_fn(|_: &'static str| async { Ok::<_, BoxError>("answer".to_owned()) })),
    ///         _ => Err("this tenant has no key"),
    ///     }))
    ///     .build()?;
    /// assert_eq!(layer.layer(down).oneshot("t1").await?, "answer");
    /// assert!(layer.layer(down).oneshot("t2").await.is_err());
    /// # Ok::<_, BoxError>(())
    /// # }).unwrap();
    /// ```
    pub fn by_request<Req, S, E>(name: impl Into<Arc<str>>, build: F) -> Self
    where
        F: Fn(&Req) -> Result<S, E>,
    {
        Self::new(name, ByRequest::new(build)).may_be_skipped()
    }
}

impl Info {
    #[inline]
    pub(crate) fn condition(&self) -> Condition {
        self.health.as_ref().map_or(Condition::Good, |health| health.condition())
    }
}

impl<S> fmt::Debug for Route<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.info.fmt(f)
    }
}

impl fmt::Debug for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route")
            .field("name", &self.name)
            .field("condition", &self.condition())
            .field("marks", &self.marks)
            .finish_non_exhaustive()
    }
}

/// The type of the further routes where there are none: only last good answers stand in for the first route.
pub struct NoRoute<Res>(PhantomData<fn() -> Res>);

impl<Req, Res> Service<Req> for NoRoute<Res> {
    type Response = Res;
    type Error = BoxError;
    type Future = std::future::Pending<Result<Res, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Pending
    }

    fn call(&mut self, _: Req) -> Self::Future {
        std::future::pending()
    }
}

impl<Res> Clone for NoRoute<Res> {
    fn clone(&self) -> Self {
        Self(PhantomData)
    }
}

impl<Res> fmt::Debug for NoRoute<Res> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NoRoute")
    }
}
