//! No route has answered: what stands in, and how the call fails.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use failsoft_core::{BoxError, Classify, Replay};
use tower_service::Service;

use super::{Came, ResponseFuture};
use crate::{
    cascade::{Cascade, FellShort},
    last_good::{Keep, Replayed},
    layer::Shared,
};

impl<S, R, Req, C, P, K, O> ResponseFuture<S, R, Req, C, P, K, O>
where
    S: Service<Req, Error: Into<BoxError>>,
    R: Service<Req, Response = S::Response, Error: Into<BoxError>> + Clone,
    C: Classify<S::Response>,
    P: Replay<Req>,
    K: Keep<Req, S::Response>,
{
    /// No route has answered: an earlier answer, a last tier, or the failure.
    #[cold]
    pub(super) fn fall_short(mut self: Pin<&mut Self>, why: FellShort) -> Came<Result<K::Out, BoxError>> {
        let Some(this) = self.as_mut().parts() else { return Came::Waits };
        let why = this.cascade.first_of(why);
        let (_, row) = this.cascade.failed_of(&why);
        if !this.shared.plan.table.stand_in(row) {
            return Came::Over(fail(this.cascade, this.shared, why));
        }
        let answer = match this.key.take().map(|key| this.shared.keep.replay(key)) {
            None => None,
            Some(Replayed::Now(answer)) => answer,
            Some(Replayed::Later(future)) => {
                *this.replaying = Some((Box::pin(future), why));
                return Came::Further;
            }
        };
        self.stand_in(why, answer)
    }

    #[cold]
    pub(super) fn poll_replaying(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Came<Result<K::Out, BoxError>>> {
        let Some(this) = self.as_mut().parts() else { return Poll::Ready(Came::Waits) };
        let Some((replaying, _)) = this.replaying.as_mut() else { return Poll::Ready(Came::Waits) };
        let answer = ready!(this.cascade.scope().enter(|| replaying.as_mut().poll(cx)));
        Poll::Ready(match this.replaying.take() {
            Some((_, why)) => self.stand_in(why, answer),
            None => Came::Waits,
        })
    }

    fn stand_in(
        mut self: Pin<&mut Self>,
        why: FellShort,
        answer: Option<K::Out>,
    ) -> Came<Result<K::Out, BoxError>> {
        let Some(this) = self.as_mut().parts() else { return Came::Waits };
        let plan = &this.shared.plan;
        if let Some(answer) = answer {
            let (verdict, _) = this.cascade.failed_of(&why);
            this.cascade.stood_in(plan, verdict);
            return Came::Over(Ok(answer));
        }
        let (kept, request, shared) = (this.kept, this.request, &**this.shared);
        let again = |last| {
            *request = shared.replay.again(kept, last);
            request.is_some()
        };
        match this.cascade.next_tier(plan, why, again) {
            Ok(lane) => {
                self.place(lane);
                Came::Further
            }
            Err(why) => Came::Over(fail(this.cascade, this.shared, why)),
        }
    }
}

/// Nothing has answered, and nothing stands in.
fn fail<Req, Res, R, C, P, K: Keep<Req, Res>, O>(
    cascade: &mut Cascade<Res>,
    shared: &Shared<R, C, P, K, O>,
    why: FellShort,
) -> Result<K::Out, BoxError> {
    match why {
        FellShort::Refused(fault) => Err(fault.into()),
        FellShort::Failed(why) => {
            cascade.end_with(&shared.plan, why).map(|response| shared.keep.pass(response))
        }
    }
}
