//! The body of an answer that restarts.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes};
use failsoft_core::{Attempt, BoxError, Call, Deferred, Hold, Next, Replay, Verdict, verdict_of_body_error};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::{EVENT, events::Events, restarts};
use crate::{
    LAYER,
    answer::ends_with_the_last_event,
    events,
    table::{Row, Table, To},
};

/// The body of an answer that may restart, see the [module](super).
pub struct RestartBody<S, Req, P>
where
    S: Service<Req>,
    S::Response: Hold,
    P: Replay<Req>,
{
    /// `None` between two streams, and at the end.
    body: Option<<S::Response as Hold>::Body>,
    /// `None` where it cannot restart. The lock is never taken: it makes of what is only `Send` something that is `Sync`,
    /// as reqwest's bodies must be.
    restarts: Option<Box<Mutex<Restarts<S, Req, P>>>>,
}

/// An empty body, for layers outside that answer in place of the service.
impl<S, Req, P> Default for RestartBody<S, Req, P>
where
    S: Service<Req>,
    S::Response: Hold,
    P: Replay<Req>,
{
    fn default() -> Self {
        Self { body: None, restarts: None }
    }
}

/// What another stream is asked with.
pub(super) struct Source<S, Req, P: Replay<Req>> {
    pub(super) service: Option<S>,
    pub(super) kept: Option<P::Kept>,
    pub(super) replay: Arc<P>,
    pub(super) left: u32,
    pub(super) scope: Deferred,
}

struct Restarts<S: Service<Req>, Req, P: Replay<Req>> {
    source: Source<S, Req, P>,
    events: Events,
    asking: Option<BoxAsking<S, S::Future, Req>>,
    /// The stream has come to its protocol's own end.
    is_over: bool,
    /// Why the stream before has failed, until another one is there.
    error: Option<BoxError>,
    verdict: Verdict,
    /// What is handed on before anything else.
    first: Option<Bytes>,
    /// What is handed on after that.
    trailers: Option<Frame<Bytes>>,
}

type BoxAsking<S, SF, Req> = Pin<Box<Asking<S, SF, Req>>>;

pin_project! {
    #[project = AskingProj]
    enum Asking<S, SF, Req> {
        Ready { service: S, request: Option<Req> },
        Call { #[pin] future: SF },
    }
}

impl<S, Req, P: Replay<Req>> Source<S, Req, P> {
    pub(super) const fn can_restart(&self) -> bool {
        self.left > 0 && self.service.is_some() && self.kept.is_some()
    }
}

impl<S, Req, P> RestartBody<S, Req, P>
where
    S: Service<Req>,
    S::Response: Hold,
    P: Replay<Req>,
{
    pub(super) fn new(body: <S::Response as Hold>::Body, source: Option<Source<S, Req, P>>) -> Self {
        let restarts = source.map(|source| {
            Box::new(Mutex::new(Restarts {
                source,
                events: Events::new(),
                asking: None,
                is_over: false,
                error: None,
                verdict: Verdict::SUCCESS,
                first: None,
                trailers: None,
            }))
        });
        Self { body: Some(body), restarts }
    }
}

impl<S, Req, P> Body for RestartBody<S, Req, P>
where
    S: Service<Req, Error: Into<BoxError>> + Clone,
    S::Response: Hold<Body: Unpin>,
    P: Replay<Req>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let Some(restarts) = &mut this.restarts else {
            let Some(body) = &mut this.body else { return Poll::Ready(None) };
            return Poll::Ready(ready!(poll_bytes(body, cx)));
        };
        let restarts = restarts.get_mut().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(bytes) = restarts.first.take() {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            if let Some(trailers) = restarts.trailers.take() {
                return Poll::Ready(Some(Ok(trailers)));
            }
            if restarts.asking.is_some() {
                this.body = ready!(restarts.poll_next_stream(cx));
                if this.body.is_none() {
                    restarts.hand_on_rest();
                }
                continue;
            }
            let Some(body) = &mut this.body else {
                return Poll::Ready(restarts.error.take().map(Err));
            };
            match ready!(restarts.source.scope.enter(|| poll_bytes(body, cx))) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => {
                        let whole = restarts.events.feed(&bytes);
                        if !whole.is_empty() {
                            restarts.is_over |= ends_with_the_last_event(&whole);
                            return Poll::Ready(Some(Ok(Frame::data(whole))));
                        }
                    }
                    Err(trailers) => {
                        restarts.hand_on_rest();
                        restarts.trailers = Some(trailers);
                    }
                },
                Some(Err(error)) => {
                    // What the stream holds is given back before another one begins.
                    restarts.source.scope.enter(|| this.body = None);
                    restarts.broke_off(error);
                }
                None => {
                    this.body = None;
                    restarts.hand_on_rest();
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.restarts.is_none() && self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.restarts, &self.body) {
            (None, Some(body)) => body.size_hint(),
            (None, None) => SizeHint::with_exact(0),
            (Some(_), _) => SizeHint::default(),
        }
    }
}

fn poll_bytes<B: Body<Error: Into<BoxError>> + Unpin>(
    body: &mut B,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
    let frame = ready!(Pin::new(body).poll_frame(cx));
    Poll::Ready(frame.map(|frame| {
        let bytes = |frame: Frame<B::Data>| frame.map_data(|mut data| data.copy_to_bytes(data.remaining()));
        frame.map(bytes).map_err(Into::into)
    }))
}

impl<S, Req, P> Restarts<S, Req, P>
where
    S: Service<Req, Error: Into<BoxError>> + Clone,
    S::Response: Hold,
    P: Replay<Req>,
{
    /// The stream is over, or stays without a successor.
    fn hand_on_rest(&mut self) {
        let rest = self.events.rest();
        if !rest.is_empty() {
            self.first = Some(rest);
        }
    }

    /// The stream has failed: asks for another one, where that may help.
    fn broke_off(&mut self, error: BoxError) {
        self.verdict = verdict_of_body_error(&*error);
        self.error = Some(error);
        let helps = Table::default().next(Row::of(self.verdict.class())) != To::Nowhere;
        // Who has read the whole answer needs no other one.
        if !helps || self.is_over || self.events.is_torn || !self.source.can_restart() {
            return self.hand_on_rest();
        }
        let Source { service, kept, replay, left, scope } = &mut self.source;
        if scope.enter(Call::take_attempt).is_err() {
            return self.hand_on_rest();
        }
        *left -= 1;
        let request = replay.again(kept, *left == 0);
        match (service, request) {
            (Some(service), Some(request)) => {
                let attempt = Attempt::new(LAYER, self.verdict).on(answered(scope)).then(Next::NextRoute);
                // The fallback inside may have told that it answered.
                let _told = scope.enter(|| Call::decide(attempt));
                let asking = Asking::Ready { service: service.clone(), request: Some(request) };
                self.asking = Some(Box::pin(asking));
            }
            _ => {
                scope.enter(Call::give_attempt_back);
                self.hand_on_rest();
            }
        }
    }

    /// The body of the next stream, or `None` when there is none.
    fn poll_next_stream(&mut self, cx: &mut Context<'_>) -> Poll<Option<<S::Response as Hold>::Body>> {
        let Some(asking) = &mut self.asking else { return Poll::Ready(None) };
        let answer = ready!(self.source.scope.enter(|| asking.as_mut().poll(cx)));
        self.source.scope.enter(|| self.asking = None);
        let Ok(response) = answer else { return Poll::Ready(None) };
        let (parts, body) = response.open();
        if !restarts(&parts) {
            self.source.scope.enter(|| drop(body));
            return Poll::Ready(None);
        }
        let route = answered(&self.source.scope);
        events::restarted(route.as_deref(), self.verdict);
        self.error = None;
        // A part of an event is not handed on: the client would take it for a whole one.
        self.events = Events::of_another();
        self.first = Some(event(self.verdict, route.as_deref()));
        Poll::Ready(Some(body))
    }
}

impl<S, Req> Future for Asking<S, S::Future, Req>
where
    S: Service<Req, Error: Into<BoxError>>,
{
    type Output = Result<S::Response, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match self.as_mut().project() {
                AskingProj::Ready { service, request } => {
                    ready!(service.poll_ready(cx)).map_err(Into::into)?;
                    let Some(request) = request.take() else { return Poll::Pending };
                    let future = service.call(request);
                    self.set(Self::Call { future });
                }
                AskingProj::Call { future } => return future.poll(cx).map_err(Into::into),
            }
        }
    }
}

/// The route that has answered last, where the fallback inside has said so.
fn answered(scope: &Deferred) -> Option<Arc<str>> {
    let trail = scope.call()?.trail();
    let attempts = trail.attempts().iter().rev();
    attempts
        .filter(|attempt| attempt.layer == LAYER && attempt.next == Next::Answered)
        .find_map(|a| a.target.clone())
}

fn event(verdict: Verdict, route: Option<&str>) -> Bytes {
    let mut event = format!("event: {EVENT}\ndata: {{\"type\":\"{EVENT}\",\"class\":\"{}\"", verdict.class());
    if let Some(route) = route {
        event.push_str(",\"route\":\"");
        for character in route.chars() {
            match character {
                '"' | '\\' => event.extend(['\\', character]),
                // Would end the line, or be no JSON.
                character if character.is_control() => event.push(' '),
                character => event.push(character),
            }
        }
        event.push('"');
    }
    event.push_str("}\n\n");
    event.into()
}

impl<S, Req, P> fmt::Debug for RestartBody<S, Req, P>
where
    S: Service<Req>,
    S::Response: Hold,
    P: Replay<Req>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestartBody").field("restarts", &self.restarts.is_some()).finish_non_exhaustive()
    }
}
