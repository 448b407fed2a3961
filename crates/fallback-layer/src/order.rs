//! In which order routes are asked that are equally fit, and which one a caller stays with.
//!
//! Health comes first: a route in poor health is behind all others whatever the order says. Among the others:
//!
//! 1. the route that answered this [key](crate::Builder::sticky) last, until it fails;
//! 2. the route that answered [last](crate::Builder::promote_last_good), where that is wanted, until it fails;
//! 3. what the [`Order`] says.
//!
//! ```
//! use fallback_layer::{FallbackLayer, Order, Route};
//! # use tower::service_fn;
//!
//! # let us = service_fn(|_: String| async { Ok::<_, std::io::Error>(1_u8) });
//! // Two of three conversations begin in the first region, and each stays where its prefix is cached.
//! let layer = FallbackLayer::builder()
//!     .first(Route::first("eu").weight(2))
//!     .route(Route::new("us", us).weight(1))
//!     .order(Order::Weighted)
//!     .sticky(|prompt: &String| prompt.split_once(':').map(|(conversation, _)| conversation.to_owned()))
//!     .build();
//! # layer.unwrap();
//! ```

use std::{
    collections::hash_map::RandomState,
    fmt,
    hash::{BuildHasher as _, Hash},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use failsoft_core::{DEFAULT_KEYS, Evict, KeyMap};
use tokio::time::Instant;

use crate::plan::RouteSet;

/// In which order routes are asked that are equally fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Order {
    /// As they were given: the first one first.
    #[default]
    Fixed,
    /// By turns, in exact proportion to their [weights](crate::Route::weight) and spread evenly. A weight of 0 is
    /// asked only where no other is left.
    Weighted,
    /// The quickest first: the moving average of the time to a good response, in which each further one counts 0.3.
    /// Failures never count as quick; each one makes its route look four times slower, until answers (each takes
    /// half of that back) and time (as each 10 s do) have made it good. A route that was not asked
    /// for 60 s, or never, gets one call to find out.
    LeastLatency,
}

/// What a request tells of the route that it belongs to: what [`sticky`](crate::Builder::sticky) and
/// [`estimate`](crate::Builder::estimate) make of functions.
pub trait Affinity<Req> {
    /// Requests of one key stay together; `None` follows the order.
    fn key(&self, request: &Req) -> Option<u64>;

    /// About how many tokens of a context window the request needs. By default nobody knows.
    fn tokens(&self, _: &Req) -> Option<u32> {
        None
    }
}

/// Requests stay with no route: the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoAffinity;

/// Requests stay with a route by a key, see [`sticky`](crate::Builder::sticky).
#[derive(Clone)]
pub struct ByKey<F> {
    key: F,
    /// Keyed at random, so that nobody can choose keys that collide.
    hasher: RandomState,
}

/// Requests tell how many tokens they need, see [`estimate`](crate::Builder::estimate).
#[derive(Clone)]
pub struct Estimating<O, F> {
    affinity: O,
    estimate: F,
}

/// How much a further answer counts in the average.
const SMOOTHING: f64 = 0.3;

/// A route that was not asked for so long is asked once to find out; as often as active health checks run.
const EXPLORE_AFTER: Duration = Duration::from_secs(60);

/// Half of a penalty is gone after so long.
const HALF_LIFE: Duration = Duration::from_secs(10);

/// A failure makes a route look 2 to this power slower; no more than 2 to the greatest.
const PENALTY: u32 = 2;
const GREATEST_PENALTY: u32 = 8;

/// Shorter times are no reason to prefer a route.
const SHORTEST: f64 = 0.001;

/// What is known of routes from the calls before: pure, and told what happens.
pub(crate) struct Standing {
    order: Order,
    promotes: bool,
    routes: Box<[Seen]>,
    last_good: Option<usize>,
    stays: Option<KeyMap<u64, Stays>>,
}

struct Seen {
    weight: u32,
    /// What the route is owed, in the turns of all.
    owed: i64,
    /// In seconds.
    latency: Option<f64>,
    penalty: u32,
    penalised: Option<Instant>,
    asked: Option<Instant>,
}

struct Stays(AtomicUsize);

impl Evict for Stays {
    fn may_go(&self) -> bool {
        true
    }
}

impl Standing {
    /// `None` where the order is that of the routes, and nothing is to be remembered.
    pub(crate) fn new(order: Order, promotes: bool, sticky: bool, weights: &[u32]) -> Option<Self> {
        if order == Order::Fixed && !promotes && !sticky {
            return None;
        }
        let seen =
            |&weight: &u32| Seen { weight, owed: 0, latency: None, penalty: 0, penalised: None, asked: None };
        Some(Self {
            order,
            promotes,
            routes: weights.iter().map(seen).collect(),
            last_good: None,
            stays: sticky.then(|| KeyMap::refusing(DEFAULT_KEYS)),
        })
    }

    /// The next of these routes, all of which are equally fit; `None` of none.
    pub(crate) fn pick(&mut self, of: RouteSet, key: Option<u64>, now: Instant) -> Option<usize> {
        let stays = key.and_then(|key| Some(self.stays.as_ref()?.get(&key)?.0.load(Ordering::Relaxed)));
        let preferred = stays.filter(|&route| of.contains(route));
        let preferred = preferred.or_else(|| self.last_good.filter(|&route| of.contains(route)));
        let route = match preferred {
            Some(route) => route,
            None => match self.order {
                Order::Fixed => of.iter().next()?,
                Order::Weighted => self.by_turns(of)?,
                Order::LeastLatency => self.quickest(of, now)?,
            },
        };
        if let Some(seen) = self.routes.get_mut(route) {
            seen.asked = Some(now);
        }
        Some(route)
    }

    /// Smooth weighted round robin: each is owed its weight a turn, and who is owed most pays for all.
    fn by_turns(&mut self, of: RouteSet) -> Option<usize> {
        let mut total = 0_i64;
        let mut most: Option<(usize, i64)> = None;
        for route in of.iter() {
            let Some(seen) = self.routes.get_mut(route) else { continue };
            if seen.weight == 0 {
                continue;
            }
            total = total.saturating_add(seen.weight.into());
            seen.owed = seen.owed.saturating_add(seen.weight.into());
            if most.is_none_or(|(_, owed)| seen.owed > owed) {
                most = Some((route, seen.owed));
            }
        }
        let Some((route, _)) = most else { return of.iter().next() };
        if let Some(seen) = self.routes.get_mut(route) {
            seen.owed = seen.owed.saturating_sub(total);
        }
        Some(route)
    }

    fn quickest(&self, of: RouteSet, now: Instant) -> Option<usize> {
        let seen = || of.iter().filter_map(|route| Some((route, self.routes.get(route)?)));
        let unknown = |seen: &Seen| {
            seen.asked.is_none_or(|asked| now.saturating_duration_since(asked) >= EXPLORE_AFTER)
        };
        if let Some((route, _)) = seen().find(|(_, seen)| unknown(seen)) {
            return Some(route);
        }
        let quickest = |(_, a): &(usize, &Seen), (_, b): &(usize, &Seen)| {
            let slowness = a.slowness(now).total_cmp(&b.slowness(now));
            slowness.then_with(|| a.penalty_at(now).cmp(&b.penalty_at(now)))
        };
        seen().min_by(quickest).map(|(route, _)| route)
    }

    /// A route has answered well.
    pub(crate) fn answered(&mut self, route: usize, key: Option<u64>, took: Duration, now: Instant) {
        if let Some(seen) = self.routes.get_mut(route) {
            let took = took.as_secs_f64();
            seen.latency = Some(seen.latency.map_or(took, |before| before + SMOOTHING * (took - before)));
            seen.penalise(seen.penalty_at(now).saturating_sub(1), now);
        }
        if self.promotes {
            self.last_good = Some(route);
        }
        if let (Some(key), Some(stays)) = (key, &self.stays) {
            // Every key may go, so that there is always room.
            if let Ok(stays) = stays.get_or_insert_with(key, || Stays(AtomicUsize::new(route))) {
                stays.0.store(route, Ordering::Relaxed);
            }
        }
    }

    /// A route was let go after so long: it is at least as slow as that.
    pub(crate) fn overtaken(&mut self, route: usize, took: Duration) {
        if let Some(seen) = self.routes.get_mut(route) {
            let took = took.as_secs_f64();
            let latency =
                |before: f64| if took > before { before + SMOOTHING * (took - before) } else { before };
            seen.latency = Some(seen.latency.map_or(took, latency));
        }
    }

    /// A route has failed, for a reason that speaks against it.
    pub(crate) fn failed(&mut self, route: usize, key: Option<u64>, now: Instant) {
        if let Some(seen) = self.routes.get_mut(route) {
            let penalty = seen.penalty_at(now).saturating_add(PENALTY).min(GREATEST_PENALTY);
            seen.penalise(penalty, now);
        }
        if self.last_good == Some(route) {
            self.last_good = None;
        }
        if let (Some(key), Some(stays)) = (key, &self.stays) {
            let is_here = |stays: &Stays| stays.0.load(Ordering::Relaxed) == route;
            if stays.get(&key).is_some_and(|stays| is_here(&stays)) {
                stays.remove(&key);
            }
        }
    }
}

impl Seen {
    fn penalise(&mut self, penalty: u32, now: Instant) {
        self.penalty = penalty;
        self.penalised = Some(now);
    }

    fn penalty_at(&self, now: Instant) -> u32 {
        let since = self.penalised.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        let halved = u32::try_from(since.as_secs() / HALF_LIFE.as_secs()).unwrap_or(u32::MAX);
        self.penalty.saturating_sub(halved)
    }

    /// One that never answered is behind all others.
    fn slowness(&self, now: Instant) -> f64 {
        let factor = f64::from(1_u32 << self.penalty_at(now).min(GREATEST_PENALTY));
        self.latency.map_or(f64::INFINITY, |latency| latency.max(SHORTEST) * factor)
    }
}

impl<Req> Affinity<Req> for NoAffinity {
    #[inline]
    fn key(&self, _: &Req) -> Option<u64> {
        None
    }
}

impl<F> ByKey<F> {
    pub(crate) fn new(key: F) -> Self {
        Self { key, hasher: RandomState::new() }
    }
}

impl<Req, H: Hash, F: Fn(&Req) -> Option<H>> Affinity<Req> for ByKey<F> {
    fn key(&self, request: &Req) -> Option<u64> {
        (self.key)(request).map(|key| self.hasher.hash_one(key))
    }
}

impl<O, F> Estimating<O, F> {
    pub(crate) const fn new(affinity: O, estimate: F) -> Self {
        Self { affinity, estimate }
    }
}

impl<Req, O: Affinity<Req>, F: Fn(&Req) -> Option<u32>> Affinity<Req> for Estimating<O, F> {
    fn key(&self, request: &Req) -> Option<u64> {
        self.affinity.key(request)
    }

    fn tokens(&self, request: &Req) -> Option<u32> {
        (self.estimate)(request)
    }
}

impl<O, F> fmt::Debug for Estimating<O, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Estimating").finish_non_exhaustive()
    }
}

impl<F> fmt::Debug for ByKey<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByKey").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
