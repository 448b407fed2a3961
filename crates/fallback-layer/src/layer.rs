//! [`FallbackLayer`] and its [`Builder`].

use std::{
    collections::HashSet,
    fmt,
    hash::Hash,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use failsoft_core::{Auto, ByResponse, CloneService, ConfigError, Health};
use tower_layer::Layer;

use crate::{
    ByKey, Estimating, Fallback, NoAffinity, NoRoute, Order, Return, Route, Row, To, WhenAllPoor,
    last_good::NoLastGood,
    metrics::Meters,
    order::Standing,
    plan::{Plan, RouteSet},
    route::Info,
    table::Table,
};

/// Puts further routes behind a service: when it fails, they are asked in their order.
///
/// Cheap to clone; all services made by it share the store of last good answers.
///
/// The parameters are the type of the further routes, the classifier, the way a request is kept for another route,
/// and the store of last good answers. The builder's methods choose them; they need not be named.
pub struct FallbackLayer<R, C = ByResponse, P = Auto, K = NoLastGood, O = NoAffinity> {
    shared: Arc<Shared<R, C, P, K, O>>,
}

pub(crate) struct Shared<R, C, P, K, O> {
    pub(crate) plan: Plan,
    /// Without the first one.
    pub(crate) services: Box<[R]>,
    pub(crate) classify: C,
    pub(crate) replay: P,
    pub(crate) keep: K,
    pub(crate) affinity: O,
}

/// Sets up a [`FallbackLayer`].
///
/// | setting | default | range |
/// |---|---|---|
/// | [`route`](Self::route) | none | 1 to 63, or none with [`keep_last_good`](Self::keep_last_good) |
/// | [`name`](Self::name) of the first route | `first` | unique |
/// | [`max_routes`](Self::max_routes) a call | 3 | any; 0 and 1: the first route only |
/// | [`timeout`](Self::timeout) of the cascade | 60 s | above 0 |
/// | [`ready_within`](Self::ready_within) | 5 s | above 0 |
/// | [`next`](Self::next), [`stand_in`](Self::stand_in) | the [table](crate::table) | |
/// | [`when_all_poor`](Self::when_all_poor) | [`WhenAllPoor::LastResort`] | |
/// | [`returns`](Self::returns) | [`Return::Combined`] | |
/// | [`degraded_header`](Self::degraded_header) | `true` | |
/// | [`slow_start`](Self::slow_start) | off | above 0, below `timeout` |
/// | [`order`](Self::order) | [`Order::Fixed`] | |
/// | [`sticky`](Self::sticky) | requests stay with no route | |
/// | [`estimate`](Self::estimate) of a request's tokens | none | |
/// | [`promote_last_good`](Self::promote_last_good) | `false` | |
/// | [`classify`](Self::classify) | [`ByResponse`] | |
/// | [`replay`](Self::replay) | [`Auto`] | |
/// | [`keep_last_good`](Self::keep_last_good) | nothing is kept | |
#[must_use = "nothing is built before `build`"]
pub struct Builder<R, C = ByResponse, P = Auto, K = NoLastGood, O = NoAffinity> {
    first: Info,
    first_is_named: bool,
    routes: Vec<Route<R>>,
    keeps: bool,
    table: Table,
    max_routes: u32,
    timeout: Duration,
    ready_within: Duration,
    when_all_poor: WhenAllPoor,
    returns: Return,
    degraded_header: bool,
    slow_start: Option<Duration>,
    order: Order,
    promotes: bool,
    sticky: bool,
    classify: C,
    replay: P,
    keep: K,
    affinity: O,
}

impl<R> FallbackLayer<R> {
    /// Begins a layer. The service that it is put around is the first route.
    pub fn builder() -> Builder<R> {
        Builder {
            first: Route::first("first").info,
            first_is_named: false,
            routes: Vec::new(),
            keeps: false,
            table: Table::default(),
            max_routes: 3,
            timeout: Duration::from_secs(60),
            ready_within: Duration::from_secs(5),
            when_all_poor: WhenAllPoor::default(),
            returns: Return::default(),
            degraded_header: true,
            slow_start: None,
            order: Order::Fixed,
            promotes: false,
            sticky: false,
            classify: ByResponse,
            replay: Auto,
            keep: NoLastGood,
            affinity: NoAffinity,
        }
    }
}

impl<Res> FallbackLayer<NoRoute<Res>> {
    /// Begins a layer without further routes, for which a last good answer is the only fallback.
    pub fn only_last_good<K>(keep: K) -> Builder<NoRoute<Res>, ByResponse, Auto, K> {
        Self::builder().keep_last_good(keep)
    }
}

impl<R, C, P, K, O> Builder<R, C, P, K, O> {
    /// Adds a route, which is asked after those that were added before.
    pub fn route(mut self, route: Route<R>) -> Self {
        self.routes.push(route);
        self
    }

    /// Describes the first route, the service that the layer is put around: name, health, marks.
    pub fn first(mut self, first: Route<()>) -> Self {
        self.first = first.info;
        self.first_is_named = true;
        self
    }

    /// Names the first route.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.first.name = name.into();
        self.first_is_named = true;
        self
    }

    /// Who knows how fit the first route is.
    pub fn health(mut self, health: impl Health + 'static) -> Self {
        self.first.health = Some(Arc::new(health));
        self
    }

    /// At most so many routes a call, the first one counted; those that are skipped are not. 0 and 1 both switch
    /// falling back off: the first route is asked whatever its health.
    pub const fn max_routes(mut self, routes: u32) -> Self {
        self.max_routes = routes;
        self
    }

    /// How long the whole cascade may take until its response is there; a deadline of the
    /// [`Call`](failsoft_core::Call) that is nearer wins. 20 s suit tools and search. No route gets more than half
    /// of what is left, but the last one gets all of it. How long a body then takes is not limited.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long a route may take to become ready while another one is left: long enough for a connection, short
    /// beside what a route may take to answer. The last one has all the time that is left.
    pub const fn ready_within(mut self, within: Duration) -> Self {
        self.ready_within = within;
        self
    }

    /// Changes where one kind of outcome goes on to.
    pub fn next(mut self, row: Row, to: To) -> Self {
        self.table.set_next(row, to);
        self
    }

    /// Changes whether a last good answer stands in for one kind of outcome.
    pub fn stand_in(mut self, row: Row, allowed: bool) -> Self {
        self.table.set_stand_in(row, allowed);
        self
    }

    /// What to do when every route that is left is in poor health.
    pub const fn when_all_poor(mut self, what: WhenAllPoor) -> Self {
        self.when_all_poor = what;
        self
    }

    /// In which order routes are asked that are equally fit. Any but [`Order::Fixed`] takes a lock for a moment in
    /// each call, and reads the clock.
    pub const fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Whether the route that answered last is asked first, until it fails: so that while the first route is down,
    /// calls do not begin with it each. Then only a failure of the other brings the first one back.
    pub const fn promote_last_good(mut self, promotes: bool) -> Self {
        self.promotes = promotes;
        self
    }

    /// Requests with one key, such as a conversation or the prefix that a provider caches, stay with the route that
    /// answered them, until it fails or is in poor health. At most 10 000 keys are remembered; the least recently
    /// used is forgotten first. New keys, and requests for which the function gives `None`, follow the
    /// [order](Self::order).
    pub fn sticky<Req, H, F>(self, key: F) -> Builder<R, C, P, K, ByKey<F>>
    where
        H: Hash,
        F: Fn(&Req) -> Option<H>,
    {
        let with = self.with(|classify, replay, keep, _| (classify, replay, keep, ByKey::new(key)));
        Builder { sticky: true, ..with }
    }

    /// Starts the next route beside the current one when that has no response after so long, and takes the first good
    /// answer; the others are dropped. Off by default, because it asks two routes for one answer: set it to what 95 of
    /// 100 calls need, such as the model's usual time to first content twice over.
    ///
    /// With a layer inside that holds a stream until its first content (stream-layer, llm-layer), the response is that
    /// content. A route that took over from another has twice the time, because its prompt cache is cold. Only routes
    /// in good health are started so, within [`max_routes`](Self::max_routes), the call's cap on attempts and the
    /// [table](crate::table)'s row for timeouts. Each has its scope of the call, so that what a dropped one has used is
    /// counted.
    pub const fn slow_start(mut self, after: Duration) -> Self {
        self.slow_start = Some(after);
        self
    }

    /// About how many tokens a request needs of a [context window](crate::Route::window), its answer counted. Routes
    /// whose window is known and smaller are skipped, so that a prompt is not sent where it can only fail and hide what
    /// was wrong with the first. If no window is large enough, the largest one is asked all the same: it is an
    /// estimate. Set it after [`sticky`](Self::sticky).
    pub fn estimate<Req, F>(self, tokens: F) -> Builder<R, C, P, K, Estimating<O, F>>
    where
        F: Fn(&Req) -> Option<u32>,
    {
        self.with(|classify, replay, keep, affinity| {
            (classify, replay, keep, Estimating::new(affinity, tokens))
        })
    }

    /// Whether the answer of a further route or of a last tier says so in the header `x-failsoft-degraded`, where it is a
    /// response of HTTP; in its extensions and its [`Insight`](failsoft_core::Insight) it does in any case, see
    /// [`Degraded`](failsoft_core::Degraded). By default `true`.
    pub const fn degraded_header(mut self, on: bool) -> Self {
        self.degraded_header = on;
        self
    }

    /// What the caller gets when every route failed.
    pub const fn returns(mut self, what: Return) -> Self {
        self.returns = what;
        self
    }

    /// Who gives outcomes their verdict.
    pub fn classify<D>(self, classify: D) -> Builder<R, D, P, K, O> {
        self.with(|_, replay, keep, affinity| (classify, replay, keep, affinity))
    }

    /// How a request is kept so that another route can have it.
    pub fn replay<Q>(self, replay: Q) -> Builder<R, C, Q, K, O> {
        self.with(|classify, _, keep, affinity| (classify, replay, keep, affinity))
    }

    /// Keeps good answers, and gives the last one when every route has failed.
    pub fn keep_last_good<L>(self, keep: L) -> Builder<R, C, P, L, O> {
        Builder {
            keeps: true,
            ..self.with(|classify, replay, _, affinity| (classify, replay, keep, affinity))
        }
    }

    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// When there is no further route and no last good answer either, more than 63 routes, a blank name, two of one name, a cost
    /// factor that is negative or no number, a first route that is a last tier, a zero `timeout` or `ready_within`, or a `slow_start` that is zero or not below
    /// `timeout`.
    pub fn build(self) -> Result<FallbackLayer<R, C, P, K, O>, ConfigError> {
        self.check()?;
        let first = if self.first_is_named { Arc::clone(&self.first.name) } else { unique(&self.first.name) };
        let (services, infos): (Vec<_>, Vec<_>) =
            self.routes.into_iter().map(|route| (route.service, route.info)).unzip();
        let meters = Meters::new(Arc::clone(&self.first.name));
        let routes: Box<[_]> = std::iter::once(self.first).chain(infos).collect();
        let weights: Vec<_> = routes.iter().map(|info| info.weight).collect();
        let standing = Standing::new(self.order, self.promotes, self.sticky, &weights);
        let tiers = routes.iter().enumerate().filter(|(_, info)| info.tier.is_some());
        let plan = Plan {
            tiers: RouteSet::new(tiers.map(|(place, _)| place)),
            fixed: self.order == Order::Fixed,
            degraded_header: self.degraded_header,
            routes,
            first,
            table: self.table,
            max_routes: self.max_routes,
            timeout: self.timeout,
            ready_within: self.ready_within,
            when_all_poor: self.when_all_poor,
            returns: self.returns,
            slow_start: self.slow_start,
            standing: standing.map(Mutex::new),
            meters,
        };
        let (classify, replay, keep) = (self.classify, self.replay, self.keep);
        let shared =
            Shared { plan, services: services.into(), classify, replay, keep, affinity: self.affinity };
        Ok(FallbackLayer { shared: Arc::new(shared) })
    }

    fn check(&self) -> Result<(), ConfigError> {
        let error = |field, value: &dyn fmt::Display, expected: &str| {
            Err(ConfigError::new("FallbackLayer", field, value, expected))
        };
        if self.routes.is_empty() && !self.keeps {
            return error("route", &"none", "at least one, or `keep_last_good`");
        }
        if self.routes.len() >= RouteSet::CAPACITY {
            return error("route", &self.routes.len(), "at most 63");
        }
        if self.first.name.trim().is_empty() {
            return error("name", &"blank", "a name");
        }
        if self.routes.iter().any(|route| route.info.name.trim().is_empty()) {
            return error("route", &"blank", "a name");
        }
        if self.first.tier.is_some() {
            return error("first", &"a last tier", "a route");
        }
        let mut names = HashSet::from([&self.first.name]);
        if let Some(twice) = self.routes.iter().find(|route| !names.insert(&route.info.name)) {
            return error("route", &twice.info.name, "a name that no other route has");
        }
        let costs = std::iter::once(&self.first).chain(self.routes.iter().map(|route| &route.info));
        if let Some(info) =
            costs.into_iter().find(|info| !(info.cost_factor.is_finite() && info.cost_factor >= 0.0))
        {
            return error("cost_factor", &info.cost_factor, "a finite number, at least 0");
        }
        match self.slow_start {
            Some(after) if after.is_zero() => return error("slow_start", &"0 s", "more than zero"),
            Some(after) if after >= self.timeout => {
                let after = format!("{after:?}");
                return error("slow_start", &after, "less than `timeout`");
            }
            _ => {}
        }
        for (field, limit) in [("timeout", self.timeout), ("ready_within", self.ready_within)] {
            if limit.is_zero() {
                return error(field, &"0 s", "more than zero");
            }
        }
        Ok(())
    }

    fn with<D, Q, L, N>(self, change: impl FnOnce(C, P, K, O) -> (D, Q, L, N)) -> Builder<R, D, Q, L, N> {
        let (classify, replay, keep, affinity) = change(self.classify, self.replay, self.keep, self.affinity);
        Builder {
            first: self.first,
            first_is_named: self.first_is_named,
            routes: self.routes,
            keeps: self.keeps,
            table: self.table,
            max_routes: self.max_routes,
            timeout: self.timeout,
            ready_within: self.ready_within,
            when_all_poor: self.when_all_poor,
            returns: self.returns,
            degraded_header: self.degraded_header,
            slow_start: self.slow_start,
            order: self.order,
            promotes: self.promotes,
            sticky: self.sticky,
            classify,
            replay,
            keep,
            affinity,
        }
    }
}

/// A name of its own, so that unnamed first routes of fallbacks inside each other are not taken for one target.
fn unique(name: &str) -> Arc<str> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{name}#{}", COUNT.fetch_add(1, Ordering::Relaxed)).into()
}

impl<S: CloneService, R, C, P, K, O> Layer<S> for FallbackLayer<R, C, P, K, O> {
    type Service = Fallback<S, R, C, P, K, O>;

    fn layer(&self, first: S) -> Self::Service {
        Fallback::new(first, Arc::clone(&self.shared))
    }
}

impl<R, C, P, K, O> Clone for FallbackLayer<R, C, P, K, O> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<R, C, P, K, O> fmt::Debug for FallbackLayer<R, C, P, K, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.plan.fmt(f)
    }
}

failsoft_core::unbuilt!([R, C, P, K, O] Builder<R, C, P, K, O>);

impl<R, C, P, K, O> fmt::Debug for Builder<R, C, P, K, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("first", &self.first)
            .field("routes", &self.routes)
            .field("max_routes", &self.max_routes)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn builder() -> Builder<()> {
        FallbackLayer::builder()
    }

    fn refused(builder: Builder<()>) -> String {
        builder.build().unwrap_err().to_string()
    }

    #[test]
    fn a_layer_without_any_further_route_is_refused_unless_it_keeps_last_good_answers() {
        assert!(refused(builder()).contains("`route` is none, expected at least one"));
        assert!(builder().keep_last_good(()).build().is_ok());
    }

    #[test]
    fn what_has_no_meaning_is_refused_by_name() {
        let one = || builder().route(Route::new("a", ()));
        assert!(one().build().is_ok());
        assert!(refused(one().route(Route::new("a", ()))).contains("`route` is a,"));
        assert!(refused(one().name("a")).contains("`route` is a,"));
        assert!(refused(one().name(" ")).contains("`name` is blank"));
        assert!(refused(one().route(Route::new("", ()))).contains("`route` is blank"));
        assert!(refused(one().timeout(Duration::ZERO)).contains("`timeout` is 0 s"));
        assert!(refused(one().ready_within(Duration::ZERO)).contains("`ready_within` is 0 s"));
        for cost in [-1.0, f64::NAN, f64::INFINITY] {
            let layer = builder().route(Route::new("a", ()).cost_factor(cost));
            assert!(refused(layer).contains("expected a finite number, at least 0"));
        }
        let many = (0..64).fold(builder(), |builder, i| builder.route(Route::new(i.to_string(), ())));
        assert!(refused(many).contains("`route` is 64, expected at most 63"));
        assert!(one().max_routes(0).timeout(Duration::MAX).build().is_ok());
    }
}
