//! The cache as a layer in front.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use failsoft_core::{
    Attempt, BoxError, Call, CloneService, Degraded, Hold, IntoBoxError, Next, Rebody, StandIn, Verdict,
};
use http::{HeaderName, HeaderValue, response::Parts};
use http_body::Body as _;
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep};
use tower_layer::Layer;
use tower_service::Service;

use super::{
    Cache, CacheBody, CacheKey, CacheRequest, CacheStatus, Scope,
    body::Record,
    core::{Again, Before, Core, Lead, NotKept, Place, is_failure},
    flight::{Followed, Follower, Joined},
    meters::Look,
    similar::Asked,
};
use crate::{LAYER, answer::Answer};

/// Answers from a [`Cache`] what it can, and asks once for all that ask the same at the same time.
#[derive(Debug)]
pub struct CacheLayer<F> {
    cache: Cache<F>,
    similar: bool,
}

impl<F> CacheLayer<F> {
    /// Puts a cache in front.
    pub const fn new(cache: Cache<F>) -> Self {
        Self { cache, similar: false }
    }

    /// Also answers from what was answered to [similar](super::Builder::similar) requests, with the mark
    /// [`Degraded`]. Default `false`: while the service answers, only the same request has the same answer.
    #[must_use]
    pub const fn similar(mut self, on: bool) -> Self {
        self.similar = on;
        self
    }
}

impl<S: CloneService, F> Layer<S> for CacheLayer<F> {
    type Service = Cached<S, F>;

    fn layer(&self, inner: S) -> Cached<S, F> {
        Cached { inner, cache: self.cache.clone(), similar: self.similar }
    }
}

/// The service of [`CacheLayer`].
///
/// Always ready: an answer from the cache needs none of the service inside, of which otherwise a clone is readied that no
/// other call has touched.
#[derive(Debug)]
pub struct Cached<S, F> {
    /// Never readied and never called: only its clones are.
    inner: S,
    cache: Cache<F>,
    similar: bool,
}

impl<S, F> Cached<S, F> {
    /// The service inside.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The service inside.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<F> Clone for CacheLayer<F> {
    fn clone(&self) -> Self {
        Self { cache: self.cache.clone(), similar: self.similar }
    }
}

impl<S: Clone, F> Clone for Cached<S, F> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), cache: self.cache.clone(), similar: self.similar }
    }
}

impl<S, F, Req> Service<Req> for Cached<S, F>
where
    S: Service<Req, Error: IntoBoxError> + CloneService,
    S::Response: Rebody<CacheBody<<S::Response as Hold>::Body>>,
    F: Scope<Req>,
    Req: CacheRequest,
{
    type Response = <S::Response as Rebody<CacheBody<<S::Response as Hold>::Body>>>::Rebodied;
    type Error = BoxError;
    type Future = CachedFuture<S, Req>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let core = &self.cache.core;
        let Some(key) = self.cache.key_of(&request) else {
            core.meters.look(Look::Bypass);
            return self.ask(request, None, None);
        };
        if let Some(again) = core.look_up(&key, Before::Asking) {
            return CachedFuture::again(core, again, Look::Hit);
        }
        if key.control.no_cache {
            return self.ask(request, Some(key), None);
        }
        match core.flights.join(key.exact) {
            Joined::Leads(lead) => {
                // It may have come between the look and now.
                let late = core.store.get(&key.exact, Instant::now()).filter(|(answer, age)| {
                    key.control.max_age.is_none() && Before::Asking.takes(answer, *age)
                });
                if let Some((answer, age)) = late {
                    lead.done(Arc::clone(&answer));
                    return CachedFuture::again(core, Again::of(&answer, age), Look::Hit);
                }
                lead.alive(Instant::now());
                self.ask(request, Some(key), Some(lead))
            }
            Joined::Follows(follower) => {
                let state = State::Follow { follower, service: Some(self.inner.clone()) };
                self.future(state, request, Some(key), None)
            }
        }
    }
}

impl<S: Clone, F> Cached<S, F> {
    /// Asks the service, or first for what is similar.
    fn ask<Req>(&self, request: Req, key: Option<CacheKey>, lead: Option<Lead>) -> CachedFuture<S, Req>
    where
        S: Service<Req>,
    {
        let mut future = self.future(State::Look { service: Some(self.inner.clone()) }, request, key, lead);
        future.asked = future.key.as_ref().and_then(|key| self.cache.core.ask(key));
        future
    }

    fn future<Req>(
        &self,
        state: State<S, S::Future>,
        request: Req,
        key: Option<CacheKey>,
        lead: Option<Lead>,
    ) -> CachedFuture<S, Req>
    where
        S: Service<Req>,
    {
        let (core, similar) = (Arc::clone(&self.cache.core), self.similar);
        CachedFuture { state, sleep: None, request: Some(request), key, asked: None, lead, similar, core }
    }
}

pin_project! {
    /// The future of a [`Cached`] service's call. Dropped anywhere, another one of those that ask the same takes its place.
    #[must_use = "futures do nothing unless polled"]
    pub struct CachedFuture<S, Req>
    where
        S: Service<Req>,
    {
        #[pin]
        state: State<S, S::Future>,
        // Made when it follows and has to wait.
        #[pin]
        sleep: Option<Sleep>,
        request: Option<Req>,
        // None where nothing is to be kept.
        key: Option<CacheKey>,
        asked: Option<Asked>,
        lead: Option<Lead>,
        // Whether what is similar is good enough.
        similar: bool,
        core: Arc<Core>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, SF> {
        Again { again: Option<Again>, look: Look, cosine: Option<f32> },
        Follow { follower: Follower<Place, Answer>, service: Option<S> },
        // For what is similar.
        Look { service: Option<S> },
        Ready { service: S },
        Call { #[pin] future: SF },
        Done,
    }
}

impl<S: Service<Req>, Req> CachedFuture<S, Req> {
    fn again(core: &Arc<Core>, again: Again, look: Look) -> Self {
        let state = State::Again { again: Some(again), look, cosine: None };
        let core = Arc::clone(core);
        Self { state, sleep: None, request: None, key: None, asked: None, lead: None, similar: false, core }
    }
}

impl<S, Req> Future for CachedFuture<S, Req>
where
    S: Service<Req, Error: Into<BoxError>>,
    S::Response: Rebody<CacheBody<<S::Response as Hold>::Body>>,
{
    type Output = Result<<S::Response as Rebody<CacheBody<<S::Response as Hold>::Body>>>::Rebodied, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.state.as_mut().project() {
                StateProj::Again { again, look, cosine } => {
                    let Some(Again { mut parts, bytes, age }) = again.take() else { return Poll::Pending };
                    this.core.meters.look(*look);
                    put_status(&this.core.name, &mut parts, age, *look);
                    if let Some(cosine) = *cosine {
                        let mark = Degraded::by(StandIn::Similar).with_age(age).with_similarity(cosine);
                        mark.put(&mut parts.headers, &mut parts.extensions, true);
                    }
                    if Call::is_current() {
                        let target = Some(Arc::clone(&this.core.name));
                        let attempt = Attempt::new(LAYER, Verdict::SUCCESS.with_unsent()).on(target);
                        Call::record(attempt.then(Next::Cached));
                    }
                    this.state.set(State::Done);
                    return Poll::Ready(Ok(S::Response::rebody(parts, CacheBody::again(bytes))));
                }
                StateProj::Follow { follower, service } => {
                    let lead =
                        match ready!(poll_follow(follower, this.sleep.as_mut(), this.core.patience, cx)) {
                            Followed::Answer(answer) => {
                                let again = Some(Again::of(&answer, answer.freshness.age));
                                this.state.set(State::Again { again, look: Look::Shared, cosine: None });
                                continue;
                            }
                            Followed::Leads(lead) => {
                                lead.alive(Instant::now());
                                Some(lead)
                            }
                            // What could not be shared may be kept all the same, or found by what is similar.
                            Followed::Alone => None,
                        };
                    *this.lead = lead;
                    *this.asked = this.key.as_ref().and_then(|key| this.core.ask(key));
                    let service = service.take();
                    this.sleep.set(None);
                    this.state.set(State::Look { service });
                }
                StateProj::Look { service } => {
                    if *this.similar {
                        if let (Some(asked), Some(key)) = (this.asked.as_mut(), &this.key) {
                            ready!(poll_within(asked, this.sleep.as_mut(), this.core, cx));
                            if let Some((again, cosine)) =
                                this.core.look_up_similar(key, asked, Before::Asking)
                            {
                                // Who follows looks for itself: what is similar is not the same.
                                if let Some(lead) = this.lead.take() {
                                    lead.alone();
                                }
                                let (again, cosine) = (Some(again), Some(cosine));
                                this.state.set(State::Again { again, look: Look::Similar, cosine });
                                continue;
                            }
                        }
                    }
                    if this.key.is_some() {
                        this.core.meters.look(Look::Miss);
                    }
                    let Some(service) = service.take() else { return Poll::Pending };
                    this.state.set(State::Ready { service });
                }
                StateProj::Ready { service } => {
                    if let Err(error) = ready!(service.poll_ready(cx)) {
                        fail(this.lead);
                        this.state.set(State::Done);
                        return Poll::Ready(Err(error.into()));
                    }
                    let Some(request) = this.request.take() else { return Poll::Pending };
                    let future = service.call(request);
                    this.state.set(State::Call { future });
                }
                StateProj::Call { future } => {
                    if let Some(asked) = this.asked {
                        // Beside the call, which does not wait for it.
                        let _ = asked.poll(cx);
                    }
                    let outcome = ready!(future.poll(cx));
                    this.state.set(State::Done);
                    return Poll::Ready(match outcome {
                        Ok(response) => Ok(pass(
                            this.core,
                            response,
                            this.key.take(),
                            this.asked.take(),
                            this.lead.take(),
                        )),
                        Err(error) => {
                            fail(this.lead);
                            Err(error.into())
                        }
                    });
                }
                StateProj::Done => return Poll::Pending,
            }
        }
    }
}

/// Follows, as long as the leader shows life.
fn poll_follow(
    follower: &mut Follower<Place, Answer>,
    mut sleep: Pin<&mut Option<Sleep>>,
    patience: Duration,
    cx: &mut Context<'_>,
) -> Poll<Followed<Place, Answer>> {
    if let Poll::Ready(followed) = follower.poll(cx) {
        return Poll::Ready(followed);
    }
    if sleep.is_none() {
        // None: longer than there is time.
        let Some(until) = follower.alive().unwrap_or_else(Instant::now).checked_add(patience) else {
            return Poll::Pending;
        };
        sleep.set(Some(tokio::time::sleep_until(until)));
    }
    loop {
        let Some(mut timer) = sleep.as_mut().as_pin_mut() else { return Poll::Pending };
        ready!(timer.as_mut().poll(cx));
        if let Some(lead) = follower.take_over(patience, Instant::now()) {
            return Poll::Ready(Followed::Leads(lead));
        }
        // It has shown life meanwhile, or another one has taken over.
        let now = Instant::now();
        let until = follower.alive().unwrap_or(now).checked_add(patience).unwrap_or(now);
        timer.as_mut().reset(until.max(now + Duration::from_millis(1)));
    }
}

/// Ready when the vector is there, has failed, or does not come in time.
fn poll_within(
    asked: &mut Asked,
    mut sleep: Pin<&mut Option<Sleep>>,
    core: &Core,
    cx: &mut Context<'_>,
) -> Poll<()> {
    if asked.poll(cx).is_ready() {
        return Poll::Ready(());
    }
    if sleep.is_none() {
        let within = core.similar.as_ref().map_or(Duration::ZERO, |similar| similar.within);
        sleep.set(Some(tokio::time::sleep(within)));
    }
    sleep.as_mut().as_pin_mut().map_or(Poll::Ready(()), |sleep| sleep.poll(cx))
}

fn fail(lead: &mut Option<Lead>) {
    if let Some(lead) = lead.take() {
        lead.failed();
    }
}

/// Hands a response on, and records its body where it may be kept.
fn pass<Res>(
    core: &Arc<Core>,
    response: Res,
    key: Option<CacheKey>,
    asked: Option<Asked>,
    lead: Option<Lead>,
) -> Res::Rebodied
where
    Res: Hold + Rebody<CacheBody<<Res as Hold>::Body>>,
{
    let (parts, body) = response.open();
    let Some(key) = key else { return Res::rebody(parts, CacheBody::plain(body)) };
    let body = match core.may_keep(&parts, body.size_hint().lower(), false) {
        Ok(()) => {
            if let Some(lead) = &lead {
                lead.alive(Instant::now());
            }
            let record = Record::new(Arc::clone(core), key.exact, &parts, asked, lead);
            CacheBody::recorded(body, record)
        }
        Err(why) => {
            core.meters.not_kept(why);
            match lead {
                Some(lead) if why == NotKept::Degraded => {
                    lead.alive(Instant::now());
                    let record = Record::only_shared(Arc::clone(core), key.exact, &parts, lead);
                    return Res::rebody(parts, CacheBody::recorded(body, record));
                }
                Some(lead) if is_failure(&parts) => lead.failed(),
                Some(lead) => lead.alone(),
                None => {}
            }
            CacheBody::plain(body)
        }
    };
    Res::rebody(parts, body)
}

fn put_status(name: &str, parts: &mut Parts, age: Duration, look: Look) {
    let what = if look == Look::Shared { "fwd=miss; collapsed" } else { "hit" };
    if let Ok(value) = HeaderValue::try_from(format!("{name}; {what}")) {
        parts.headers.insert(HeaderName::from_static("cache-status"), value);
    }
    parts.extensions.insert(CacheStatus { age, shared: look == Look::Shared });
}

impl<S: Service<Req>, Req> fmt::Debug for CachedFuture<S, Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedFuture").field("leads", &self.lead.is_some()).finish_non_exhaustive()
    }
}
