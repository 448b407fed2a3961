//! What a layer was configured to do, and which route is next: pure, and the same for all types of services.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use failsoft_core::{Call, Class, Condition, Degraded, Limit, StandIn};
use tokio::time::Instant;

use crate::{
    metrics::Meters,
    order::Standing,
    route::Info,
    table::{Table, To},
};

/// What to do when every route that is left is in poor health.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenAllPoor {
    /// Asks the one that recovers first, and marks the attempt
    /// [`LastResort`](failsoft_core::Mark::LastResort), so that an open circuit lets a bounded number pass.
    #[default]
    LastResort,
    /// Asks none. When none was asked before either, the call fails as denied by a circuit (503), with the earliest
    /// recovery as advice.
    FailFast,
    /// Waits until the first of them recovers, and then asks that one; marked as a last resort if it is in poor
    /// health still. Where none says when it recovers, or that is not before the end of the cascade or the caller's
    /// deadline, as [`FailFast`](Self::FailFast).
    Wait,
}

/// What the caller gets when every route failed.
///
/// A failure that stayed the only one is always returned as it is. An error that was wrapped is found again through
/// [`source`](std::error::Error::source) and [`FaultDetails::earlier`](failsoft_core::FaultDetails::earlier).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Return {
    /// The failure of the first route that was really asked, not just refused by a circuit or not ready, decides.
    /// If it is a response, the caller gets that response, body and all. If it is an error, the caller gets a
    /// [`Fault`](failsoft_core::Fault) of its class and with its route as target, the earliest advice of all, the
    /// last error as source, the others as `earlier`, and the trail. So a later route's odd answer never hides what
    /// was wrong with the first.
    #[default]
    Combined,
    /// The first failure, as it is.
    First,
    /// The last failure, as it is.
    Last,
}

pub(crate) struct Plan {
    /// The first route, then the others.
    pub(crate) routes: Box<[Info]>,
    /// The first route's identity among fallbacks inside each other.
    pub(crate) first: Arc<str>,
    /// Those that are asked when all others have failed.
    pub(crate) tiers: RouteSet,
    /// Whether the order is the given one, so that any route but the first stands in for it.
    pub(crate) fixed: bool,
    /// Whether the client sees that an answer stands in.
    pub(crate) degraded_header: bool,
    pub(crate) table: Table,
    pub(crate) max_routes: u32,
    pub(crate) timeout: Duration,
    pub(crate) ready_within: Duration,
    pub(crate) when_all_poor: WhenAllPoor,
    pub(crate) returns: Return,
    /// After how long without content the next route is started beside the current one.
    pub(crate) slow_start: Option<Duration>,
    /// What is remembered of earlier calls, where the order needs it.
    pub(crate) standing: Option<Mutex<Standing>>,
    pub(crate) meters: Meters,
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FallbackLayer")
            .field("routes", &self.routes)
            .field("max_routes", &self.max_routes)
            .field("timeout", &self.timeout)
            .field("ready_within", &self.ready_within)
            .field("when_all_poor", &self.when_all_poor)
            .field("returns", &self.returns)
            .finish_non_exhaustive()
    }
}

/// A set of routes by their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouteSet(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) route: usize,
    /// It is in poor health, and so are all others that are left.
    pub(crate) last_resort: bool,
    /// It is to be asked when it has recovered, after so long.
    pub(crate) wait: Option<Duration>,
}

impl RouteSet {
    /// How many routes a set can hold.
    pub(crate) const CAPACITY: usize = 64;

    pub(crate) const FIRST: Self = Self(1);

    pub(crate) const NONE: Self = Self(0);

    /// The first `count`.
    #[inline]
    pub(crate) const fn first(count: usize) -> Self {
        Self(if count >= Self::CAPACITY { u64::MAX } else { (1 << count) - 1 })
    }

    pub(crate) fn new(routes: impl IntoIterator<Item = usize>) -> Self {
        Self(routes.into_iter().fold(0, |set, route| set | 1_u64.checked_shl(route as u32).unwrap_or(0)))
    }

    #[inline]
    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub(crate) const fn contains(self, route: usize) -> bool {
        (self.0 >> (route % Self::CAPACITY)) & 1 == 1
    }

    #[inline]
    pub(crate) fn remove(&mut self, route: usize) {
        self.0 &= !(1 << (route % Self::CAPACITY));
    }

    pub(crate) fn insert(&mut self, route: usize) {
        self.0 |= 1 << (route % Self::CAPACITY);
    }

    pub(crate) const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        (0..Self::CAPACITY).filter(move |&route| self.contains(route))
    }
}

impl Plan {
    /// Whether a call of which nothing is known, here and around, begins with the first route.
    #[inline]
    pub(crate) fn asks_first(&self) -> bool {
        let is_healthy = || !(self.falls_back() && self.is_poor(0));
        !Call::is_current() && !Call::is_routed() && self.standing.is_none() && is_healthy()
    }

    /// The routes that a call may ask.
    #[inline]
    pub(crate) fn open(&self, free_only: bool) -> RouteSet {
        let all = if self.max_routes <= 1 {
            RouteSet::FIRST
        } else {
            RouteSet::first(self.routes.len()).without(self.tiers)
        };
        if !free_only {
            return all;
        }
        RouteSet::new(all.iter().filter(|&route| self.info(route).is_some_and(|info| info.marks.free)))
    }

    /// Those whose windows hold so many tokens, or are not known; if there are none, the largest.
    pub(crate) fn with_room(&self, open: RouteSet, tokens: u32) -> RouteSet {
        let window = |route: usize| self.info(route).map_or(0, |info| info.marks.window);
        let with = |least: u32| {
            RouteSet::new(open.iter().filter(|&route| window(route) == 0 || window(route) >= least))
        };
        let fits = with(tokens);
        if fits.is_empty() { with(open.iter().map(window).max().unwrap_or(0)) } else { fits }
    }

    /// Whether a call may ask more than one route, so that its request is worth keeping.
    #[inline]
    pub(crate) const fn repeats(&self) -> bool {
        self.falls_back() || !self.tiers.is_empty()
    }

    /// Whether a call that cannot ask the first route has something else.
    #[inline]
    pub(crate) const fn falls_back(&self) -> bool {
        self.max_routes > 1 && self.routes.len() > 1
    }

    pub(crate) const fn is_tier(&self, route: usize) -> bool {
        self.tiers.contains(route)
    }

    /// What is said of an answer that does not come from where it was asked for.
    pub(crate) fn mark(&self, route: usize, after_others: bool) -> Option<Degraded> {
        let info = self.info(route)?;
        let further = || (route != 0 && (self.fixed || after_others)).then_some(StandIn::Route);
        let stand_in = info.tier.or_else(further)?;
        Some(Degraded::by(stand_in).on(Some(Arc::clone(&info.name))))
    }

    #[inline]
    pub(crate) fn info(&self, route: usize) -> Option<&Info> {
        self.routes.get(route)
    }

    /// A route is asked in another's place.
    pub(crate) fn activated(&self, route: usize, after: Class) {
        if let Some(info) = self.info(route) {
            self.meters.activation(route, Some(&info.name), after, info.cost_factor);
        }
    }

    /// A route is asked beside one that is slow.
    pub(crate) fn slow_started(&self, route: usize) {
        self.activated(route, Class::Timeout(Limit::FirstContent));
        self.meters.slow_start(route, name(self, route));
    }

    pub(crate) fn name(&self, route: usize) -> Option<&Arc<str>> {
        self.info(route).map(|info| &info.name)
    }

    #[inline]
    pub(crate) fn is_poor(&self, route: usize) -> bool {
        self.info(route).is_some_and(|info| info.condition() == Condition::Poor)
    }

    /// Which of the open routes may follow one that failed.
    pub(crate) fn eligible(&self, open: RouteSet, failed: usize, to: To) -> RouteSet {
        let Some(failed) = self.info(failed) else { return RouteSet::NONE };
        let accepts =
            |&route: &usize| self.info(route).is_some_and(|next| to.accepts(&failed.marks, &next.marks));
        RouteSet::new(open.iter().filter(accepts))
    }

    /// The first that is not in poor health; if all are, what the plan says.
    pub(crate) fn choose(
        &self,
        open: RouteSet,
        key: Option<u64>,
        now: impl FnOnce() -> Instant,
    ) -> Option<Choice> {
        let take = |route| Choice { route, last_resort: false, wait: None };
        if self.max_routes <= 1 {
            return open.iter().next().map(take);
        }
        let fit = || open.iter().filter(|&route| !self.is_poor(route));
        let route = match &self.standing {
            None => fit().next(),
            Some(standing) => lock(standing).pick(RouteSet::new(fit()), key, now()),
        };
        if let Some(route) = route {
            return Some(take(route));
        }
        // The first of equals, so that the order stays.
        let soonest = open
            .iter()
            .map(|route| (route, self.recovers_in(route)))
            .min_by_key(|(_, recovers_in)| recovers_in.unwrap_or(Duration::MAX));
        let (route, recovers_in) = soonest?;
        match self.when_all_poor {
            WhenAllPoor::FailFast => None,
            WhenAllPoor::LastResort => Some(Choice { route, last_resort: true, wait: None }),
            WhenAllPoor::Wait => {
                recovers_in.map(|wait| Choice { route, last_resort: true, wait: Some(wait) })
            }
        }
    }

    /// A route has answered well.
    pub(crate) fn answered(&self, route: usize, key: Option<u64>, took: Duration, now: Instant) {
        if let Some(standing) = &self.standing {
            lock(standing).answered(route, key, took, now);
        }
    }

    /// A route has failed, for a reason that speaks against it.
    pub(crate) fn failed(&self, route: usize, key: Option<u64>, now: Instant) {
        if let Some(standing) = &self.standing {
            lock(standing).failed(route, key, now);
        }
    }

    /// A route was let go because another one answered first: it would have taken at least so long.
    pub(crate) fn overtaken(&self, route: usize, took: Duration) {
        if let Some(standing) = &self.standing {
            lock(standing).overtaken(route, took);
        }
    }

    pub(crate) fn earliest_recovery(&self, open: RouteSet) -> Option<Duration> {
        open.iter().filter_map(|route| self.recovers_in(route)).min()
    }

    fn recovers_in(&self, route: usize) -> Option<Duration> {
        self.info(route)?.health.as_ref()?.recovers_in()
    }

    /// Takes a route for all fallbacks that lie inside each other.
    pub(crate) fn visit(&self, route: usize) -> bool {
        match route {
            0 => Call::visit_first(&self.first),
            route => self.name(route).is_none_or(Call::visit),
        }
    }

    /// Says that the attempt on a route is over: no fallback further in may take its name.
    pub(crate) fn close(&self, route: usize) {
        let name = if route == 0 { Some(&self.first) } else { self.name(route) };
        let _ = name.is_some_and(Call::visit_first);
    }
}

pub(crate) fn name(plan: &Plan, route: usize) -> Option<&str> {
    plan.name(route).map(|name| &**name)
}

fn lock(standing: &Mutex<Standing>) -> MutexGuard<'_, Standing> {
    standing.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use failsoft_core::Health;

    use super::*;
    use crate::Route;

    struct Is(Condition, Option<u64>);

    impl Health for Is {
        fn condition(&self) -> Condition {
            self.0
        }

        fn recovers_in(&self) -> Option<Duration> {
            self.1.map(Duration::from_secs)
        }
    }

    fn plan(routes: &[(Condition, Option<u64>)], when_all_poor: WhenAllPoor) -> Plan {
        let info = |(place, &(condition, recovers)): (usize, &(Condition, Option<u64>))| {
            Route::first(place.to_string()).health(Is(condition, recovers)).info
        };
        Plan {
            routes: routes.iter().enumerate().map(info).collect(),
            first: "0".into(),
            tiers: RouteSet::NONE,
            fixed: true,
            degraded_header: true,
            table: Table::default(),
            max_routes: 3,
            timeout: Duration::from_secs(60),
            ready_within: Duration::from_secs(5),
            when_all_poor,
            returns: Return::Combined,
            slow_start: None,
            standing: None,
            meters: Default::default(),
        }
    }

    fn choice(plan: &Plan) -> Option<(usize, bool)> {
        plan.choose(plan.open(false), None, Instant::now).map(|choice| (choice.route, choice.last_resort))
    }

    use Condition::{Degraded, Good, Poor};

    #[test]
    fn a_poor_route_goes_behind_the_others_and_a_degraded_one_keeps_its_place() {
        let policy = WhenAllPoor::LastResort;
        assert_eq!(choice(&plan(&[(Good, None), (Good, None)], policy)), Some((0, false)));
        assert_eq!(choice(&plan(&[(Degraded, None), (Good, None)], policy)), Some((0, false)));
        assert_eq!(choice(&plan(&[(Poor, None), (Poor, None), (Degraded, None)], policy)), Some((2, false)));
    }

    #[test]
    fn of_poor_routes_the_one_that_recovers_first_is_the_last_resort() {
        let policy = WhenAllPoor::LastResort;
        let routes = [(Poor, Some(9)), (Poor, None), (Poor, Some(4)), (Poor, Some(4))];
        assert_eq!(choice(&plan(&routes, policy)), Some((2, true)));
        assert_eq!(choice(&plan(&[(Poor, None), (Poor, None)], policy)), Some((0, true)));
    }

    #[test]
    fn failing_fast_asks_none_and_knows_the_earliest_recovery() {
        let plan = plan(&[(Poor, Some(9)), (Poor, Some(4)), (Poor, None)], WhenAllPoor::FailFast);
        assert_eq!(choice(&plan), None);
        assert_eq!(plan.earliest_recovery(plan.open(false)), Some(Duration::from_secs(4)));
    }

    #[test]
    fn waiting_waits_for_the_first_that_recovers_and_not_for_one_that_never_says_when() {
        let plan = plan(&[(Poor, None), (Poor, Some(9)), (Poor, Some(4))], WhenAllPoor::Wait);
        let choice = plan.choose(plan.open(false), None, Instant::now);
        let wait = Some(Duration::from_secs(4));
        assert_eq!(choice, Some(Choice { route: 2, last_resort: true, wait }));
        let never = self::plan(&[(Poor, None), (Poor, None)], WhenAllPoor::Wait);
        assert_eq!(self::choice(&never), None);
    }

    #[test]
    fn a_set_holds_its_whole_capacity_and_nothing_beyond() {
        let mut set = RouteSet::new([0, 63, 64, 1000]);
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63]);
        set.remove(0);
        assert!(!set.contains(0) && set.contains(63) && !set.is_empty());
    }
}
