//! The cache as the last tier of a fallback.

use std::{
    fmt,
    marker::PhantomData,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use failsoft_core::{BoxError, Degraded, Held, Hold, ReadWhole, Rebody, StandIn, Whole};
use http::{HeaderMap, response::Parts};
use http_body::Body as _;
use tokio::time::{Instant, Sleep};

use super::{
    Cache, CacheBody, CacheKey, CacheRequest, Scope,
    body::{Record, keep_whole},
    core::{Again, Before, Core, NotKept, Place},
    meters::Look,
    similar::Asked,
};
use crate::{
    answer::is_stream,
    last_good::{Keep, Kept, Replayed},
};

impl<F, Req, Res> Keep<Req, Res> for Cache<F>
where
    F: Scope<Req>,
    Req: CacheRequest,
    Res: Hold<Body: Unpin> + Rebody<CacheBody<<Res as Hold>::Body>>,
{
    type Key = CacheKey;
    type Out = Res::Rebodied;
    type Keeping = KeepAnswer<Res>;
    type Replaying = ReplaySimilar<Res>;

    fn key(&self, request: &Req) -> Option<CacheKey> {
        self.key_of(request)
    }

    fn keep(&self, key: Option<&CacheKey>, response: Res) -> Kept<Res::Rebodied, KeepAnswer<Res>> {
        let core = &self.core;
        let (parts, body) = response.open();
        let Some(key) = key else { return Kept::Now(Res::rebody(parts, CacheBody::plain(body))) };
        if let Err(why) = core.may_keep(&parts, body.size_hint().lower(), true) {
            core.meters.not_kept(why);
            return Kept::Now(Res::rebody(parts, CacheBody::plain(body)));
        }
        if is_stream(&parts.headers) {
            let record = Record::new(Arc::clone(core), key.exact, &parts, core.ask(key), None);
            return Kept::Now(Res::rebody(parts, CacheBody::recorded(body, record)));
        }
        Kept::Later(KeepAnswer {
            came: Instant::now(),
            read: ReadWhole::new(body, core.body_cap),
            whole: None,
            rest: Some((parts, key.exact)),
            asked: core.ask(key),
            sleep: None,
            core: Arc::clone(core),
        })
    }

    fn pass(&self, response: Res) -> Res::Rebodied {
        let (parts, body) = response.open();
        Res::rebody(parts, CacheBody::plain(body))
    }

    fn replay(&self, key: CacheKey) -> Replayed<Res::Rebodied, ReplaySimilar<Res>> {
        let core = &self.core;
        if let Some(again) = core.look_up(&key, Before::Failure) {
            core.meters.look(Look::Hit);
            let mark = Degraded::by(StandIn::LastGood).with_age(again.age);
            return Replayed::Now(Some(replay::<Res>(again, mark)));
        }
        match core.ask(&key) {
            Some(asked) => Replayed::Later(ReplaySimilar {
                asked,
                key,
                sleep: None,
                core: Arc::clone(core),
                response: PhantomData,
            }),
            None => {
                core.meters.look(Look::Miss);
                Replayed::Now(None)
            }
        }
    }
}

fn replay<Res>(mut again: Again, mark: Degraded) -> Res::Rebodied
where
    Res: Hold + Rebody<CacheBody<<Res as Hold>::Body>>,
{
    mark.put(&mut again.parts.headers, &mut again.parts.extensions, true);
    Res::rebody(again.parts, CacheBody::again(again.bytes))
}

/// Looks for an answer to a similar request.
pub struct ReplaySimilar<Res> {
    asked: Asked,
    key: CacheKey,
    sleep: Option<Pin<Box<Sleep>>>,
    core: Arc<Core>,
    response: PhantomData<fn() -> Res>,
}

impl<Res> Future for ReplaySimilar<Res>
where
    Res: Hold + Rebody<CacheBody<<Res as Hold>::Body>>,
{
    type Output = Option<Res::Rebodied>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        ready!(poll_within(&mut this.asked, &mut this.sleep, &this.core, cx));
        let found = this.core.look_up_similar(&this.key, &this.asked, Before::Failure);
        this.core.meters.look(if found.is_some() { Look::Similar } else { Look::Miss });
        Poll::Ready(found.map(|(again, cosine)| {
            let mark = Degraded::by(StandIn::Similar).with_age(again.age).with_similarity(cosine);
            replay::<Res>(again, mark)
        }))
    }
}

/// Ready when the vector is there, has failed, or does not come in time.
fn poll_within(
    asked: &mut Asked,
    sleep: &mut Option<Pin<Box<Sleep>>>,
    core: &Core,
    cx: &mut Context<'_>,
) -> Poll<()> {
    if asked.poll(cx).is_ready() {
        return Poll::Ready(());
    }
    let within = core.similar.as_ref().map_or(Duration::ZERO, |similar| similar.within);
    sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(within))).as_mut().poll(cx)
}

/// Reads an answer to its end and keeps it.
pub struct KeepAnswer<Res: Hold> {
    /// When its head came.
    came: Instant,
    read: ReadWhole<Res::Body>,
    /// Read, and not yet handed on.
    whole: Option<(Bytes, Option<HeaderMap>)>,
    /// Taken when it is handed on.
    rest: Option<(Parts, Place)>,
    asked: Option<Asked>,
    sleep: Option<Pin<Box<Sleep>>>,
    core: Arc<Core>,
}

impl<Res> Future for KeepAnswer<Res>
where
    Res: Hold<Body: Unpin> + Rebody<CacheBody<<Res as Hold>::Body>>,
{
    type Output = Result<Res::Rebodied, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if this.whole.is_none() {
            if let Some(asked) = &mut this.asked {
                let _ = asked.poll(cx);
            }
            let whole = ready!(Pin::new(&mut this.read).poll(cx));
            let (bytes, trailers) = match whole {
                Whole::Complete { bytes, trailers } => (bytes, trailers),
                Whole::TooLarge(body) => {
                    this.core.meters.not_kept(NotKept::TooLong);
                    let Some((parts, _)) = this.rest.take() else { return Poll::Pending };
                    return Poll::Ready(Ok(Res::rebody(parts, CacheBody::held(body))));
                }
                Whole::Failed { error, .. } => return Poll::Ready(Err(error)),
                // A way to end that this version does not know is none to keep.
                _ => return Poll::Ready(Err("the body could not be read".into())),
            };
            this.whole = Some((bytes, trailers));
        }
        if let Some(asked) = &mut this.asked {
            ready!(poll_within(asked, &mut this.sleep, &this.core, cx));
        }
        let (Some((bytes, trailers)), Some((parts, place))) = (this.whole.take(), this.rest.take()) else {
            return Poll::Pending;
        };
        keep_whole(
            &this.core,
            &place,
            (&parts, this.came),
            (&bytes, trailers.is_some()),
            this.asked.as_ref(),
        );
        Poll::Ready(Ok(Res::rebody(parts, CacheBody::held(Held::whole(bytes, trailers)))))
    }
}

impl<Res> fmt::Debug for ReplaySimilar<Res> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplaySimilar").finish_non_exhaustive()
    }
}

impl<Res: Hold> fmt::Debug for KeepAnswer<Res> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeepAnswer").field("read", &self.read).finish_non_exhaustive()
    }
}
