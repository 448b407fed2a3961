//! The future of a call.

mod attempts;
mod judge;
mod stage;
mod stand_in;

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use failsoft_core::{BoxError, Classify, Deferred, Replay};
use pin_project_lite::pin_project;
use tokio::time::Sleep;
use tower_service::Service;

use self::{
    attempts::youngest,
    judge::failure,
    stage::{Outcome, Progress, Stage, begin},
};
use crate::{
    cascade::{Cascade, FellShort, Lane},
    last_good::{Keep, Kept},
    layer::Shared,
    order::{Affinity, NoAffinity},
};

pin_project! {
    /// The future of a [`Fallback`](crate::Fallback)'s call: asks one route after the other, or beside it. Dropped
    /// anywhere, it drops the attempts that are running.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, R, Req, C, P, K, O = NoAffinity>
    where
        S: Service<Req>,
        R: Service<Req>,
        P: Replay<Req>,
        K: Keep<Req, S::Response>,
    {
        #[pin]
        first: Stage<S, S::Future, K::Keeping>,
        // The one for the next attempt.
        request: Option<Req>,
        kept: Option<P::Kept>,
        shared: Arc<Shared<R, C, P, K, O>>,
        // Made when the first route, asked at once, has not answered at once: most calls never write to it.
        course: Option<Course<S, R, Req, K>>,
        // Made when an attempt is first seen to wait.
        #[pin]
        sleep: Option<Sleep>,
    }
}

/// How a call goes that is more than one answer at once.
struct Course<S, R, Req, K>
where
    S: Service<Req>,
    R: Service<Req>,
    K: Keep<Req, S::Response>,
{
    cascade: Cascade<S::Response>,
    /// While the first route is asked.
    lane: Option<Lane>,
    key: Option<K::Key>,
    /// Those on further routes, in the order in which they were started.
    others: Others<R, Req, K::Keeping>,
    /// When all have failed: looks for an earlier answer.
    replaying: Option<(Pin<Box<K::Replaying>>, FellShort)>,
}

/// All of a call that has a course.
struct Parts<'a, S, R, Req, C, P, K, O>
where
    S: Service<Req>,
    R: Service<Req>,
    P: Replay<Req>,
    K: Keep<Req, S::Response>,
{
    first: Pin<&'a mut Stage<S, S::Future, K::Keeping>>,
    request: &'a mut Option<Req>,
    kept: &'a mut Option<P::Kept>,
    shared: &'a Arc<Shared<R, C, P, K, O>>,
    cascade: &'a mut Cascade<S::Response>,
    lane: &'a mut Option<Lane>,
    key: &'a mut Option<K::Key>,
    others: &'a mut Others<R, Req, K::Keeping>,
    replaying: &'a mut Option<(Pin<Box<K::Replaying>>, FellShort)>,
    sleep: Pin<&'a mut Option<Sleep>>,
}

type Others<R, Req, KF> = Vec<BoxOther<R, <R as Service<Req>>::Future, Req, KF>>;

type BoxOther<R, RF, Req, KF> = Pin<Box<Other<R, RF, Req, KF>>>;

pin_project! {
    /// An attempt on a further route.
    struct Other<R, RF, Req, KF> {
        lane: Lane,
        #[pin]
        stage: Stage<R, RF, KF>,
        request: Option<Req>,
    }
}

/// One of the attempts that run.
#[derive(Clone, Copy)]
enum Which {
    First,
    Other(usize),
}

/// What came of a poll of an attempt.
enum Came<T> {
    /// It waits.
    Waits,
    /// It has come further, or is gone: all are looked at once more.
    Further,
    /// The call is over.
    Over(T),
}

impl<S, R, Req, C, P, K, O> ResponseFuture<S, R, Req, C, P, K, O>
where
    S: Service<Req>,
    R: Service<Req>,
    P: Replay<Req>,
    K: Keep<Req, S::Response>,
{
    #[inline(always)]
    pub(crate) fn new(first: S, request: Req, shared: Arc<Shared<R, C, P, K, O>>) -> Self {
        let (request, kept) =
            if shared.plan.repeats() { shared.replay.keep(request) } else { (request, None) };
        let (request, first) = (Some(request), Stage::Ready { service: first });
        Self { first, request, kept, shared, course: None, sleep: None }
    }

    fn parts(self: Pin<&mut Self>) -> Option<Parts<'_, S, R, Req, C, P, K, O>> {
        let this = self.project();
        let Course { cascade, lane, key, others, replaying } = this.course.as_mut()?;
        let (first, request, kept, shared, sleep) =
            (this.first, this.request, this.kept, &*this.shared, this.sleep);
        Some(Parts { first, request, kept, shared, cascade, lane, key, others, replaying, sleep })
    }
}

impl<S, R, Req, C, P, K, O> Future for ResponseFuture<S, R, Req, C, P, K, O>
where
    S: Service<Req, Error: Into<BoxError>>,
    R: Service<Req, Response = S::Response, Error: Into<BoxError>> + Clone,
    C: Classify<S::Response>,
    P: Replay<Req>,
    K: Keep<Req, S::Response>,
    O: Affinity<Req>,
{
    type Output = Result<K::Out, BoxError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.as_mut().project();
        let shared = &**this.shared;
        let (Stage::Ready { .. }, None, Some(request)) =
            (&*this.first, this.course.as_ref(), this.request.as_ref())
        else {
            return self.poll_on(cx);
        };
        let key = shared.keep.key(request);
        let affinity = shared.affinity.key(request);
        let tokens = shared.affinity.tokens(request);
        if tokens.is_some() || !shared.plan.asks_first() {
            let cascade = Cascade::new(this.kept.is_some(), affinity, tokens);
            *this.course = Some(Course::new(cascade, None, key));
            return self.begin_on(cx);
        }
        // The way of most calls: nothing is noted, and nothing made, for a first route that answers at once.
        let mut scope = Deferred::routing();
        let progress = match scope.try_begin() {
            Some(entered) => {
                let progress = begin(this.first.as_mut(), this.request, cx);
                scope.keep(entered);
                progress
            }
            None => Progress::Waits { called: false },
        };
        let progress = match progress {
            Progress::Done(Outcome::Response(response)) => match failure(shared, &response) {
                Some(verdict) => Progress::Done(Outcome::Bad(response, verdict)),
                None => match shared.keep.keep(key.as_ref(), response) {
                    Kept::Now(answer) => return Poll::Ready(Ok(answer)),
                    Kept::Later(future) => Progress::Later(future),
                },
            },
            progress => progress,
        };
        let cascade = Cascade::begun(&shared.plan, this.kept.is_some(), affinity, scope);
        *this.course = Some(Course::new(cascade, Some(Lane::first()), key));
        self.begun_with(progress, cx)
    }
}

impl<S, R, Req, C, P, K, O> ResponseFuture<S, R, Req, C, P, K, O>
where
    S: Service<Req, Error: Into<BoxError>>,
    R: Service<Req, Response = S::Response, Error: Into<BoxError>> + Clone,
    C: Classify<S::Response>,
    P: Replay<Req>,
    K: Keep<Req, S::Response>,
{
    /// The call begins with the best of its routes.
    #[inline(never)]
    fn begin_on(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<K::Out, BoxError>> {
        let Some(this) = self.as_mut().parts() else { return Poll::Pending };
        match this.cascade.begin(&this.shared.plan) {
            Ok(lane) => self.as_mut().place(lane),
            Err(fault) => {
                if let Came::Over(result) = self.as_mut().fall_short(FellShort::Refused(fault)) {
                    return Poll::Ready(result);
                }
            }
        }
        self.poll_on(cx)
    }

    /// The first route was asked at once, and has not just answered.
    #[inline(never)]
    fn begun_with(
        mut self: Pin<&mut Self>,
        progress: Progress<S::Response, K::Out, K::Keeping>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<K::Out, BoxError>> {
        match self.as_mut().came(Which::First, progress) {
            Came::Over(result) => return Poll::Ready(result),
            Came::Further => return self.poll_on(cx),
            Came::Waits => {}
        }
        // One that waits need not be polled again at once.
        match ready!(self.as_mut().poll_time(cx)) {
            Some(result) => Poll::Ready(result),
            None => self.poll_on(cx),
        }
    }

    #[inline(never)]
    fn poll_on(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<K::Out, BoxError>> {
        loop {
            if let Some(result) = self.as_mut().poll_attempts(cx) {
                return Poll::Ready(result);
            }
            if self.course.as_ref().is_some_and(|course| course.replaying.is_some()) {
                match ready!(self.as_mut().poll_replaying(cx)) {
                    Came::Over(result) => return Poll::Ready(result),
                    Came::Waits | Came::Further => continue,
                }
            }
            if let Some(result) = ready!(self.as_mut().poll_time(cx)) {
                return Poll::Ready(result);
            }
        }
    }
}

impl<S, R, Req, K> Course<S, R, Req, K>
where
    S: Service<Req>,
    R: Service<Req>,
    K: Keep<Req, S::Response>,
{
    fn new(cascade: Cascade<S::Response>, lane: Option<Lane>, key: Option<K::Key>) -> Self {
        Self { cascade, lane, key, others: Vec::new(), replaying: None }
    }

    /// Attempts that ran beside each other are dropped together.
    #[cold]
    fn cut_off(&mut self) {
        let Self { cascade, lane, others, .. } = self;
        for other in &mut *others {
            let mut other = other.as_mut().project();
            other.lane.enter(cascade.scope(), || other.stage.set(Stage::Over));
        }
        let youngest = youngest(lane.as_ref(), others);
        let lanes = lane.iter().chain(others.iter().map(|other| &other.lane));
        lanes.filter(|lane| Some(lane.number()) != youngest).for_each(|lane| cascade.cut_off(lane));
    }
}

impl<S, R, Req, K> Drop for Course<S, R, Req, K>
where
    S: Service<Req>,
    R: Service<Req>,
    K: Keep<Req, S::Response>,
{
    #[inline]
    fn drop(&mut self) {
        if self.others.len() > usize::from(self.lane.is_none()) {
            self.cut_off();
        }
    }
}

impl<S, R, Req, C, P, K, O> fmt::Debug for ResponseFuture<S, R, Req, C, P, K, O>
where
    S: Service<Req>,
    R: Service<Req>,
    P: Replay<Req>,
    K: Keep<Req, S::Response>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lanes = self
            .course
            .iter()
            .flat_map(|course| course.lane.iter().chain(course.others.iter().map(|other| &other.lane)));
        let routes: Vec<_> = lanes.map(|lane| self.shared.plan.name(lane.route())).collect();
        f.debug_struct("ResponseFuture").field("asks", &routes).finish_non_exhaustive()
    }
}
