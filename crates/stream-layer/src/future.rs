//! [`StreamedFuture`]: the answer, once its first content is there.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use failsoft_core::{BoxError, Fault, Hint, Hold, Rebody, SoftKind, Verdict};
use http::{HeaderMap, response::Parts};
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::time::Instant;

use crate::{
    Beyond, Decoder, LAYER, Limits, Mode, Reader, Seen, StreamedBody, Until,
    clock::{Alarm, Clock, Due},
    events::Witness,
    reading::{Kept, Reading, to_bytes},
};

pin_project! {
    /// The future of [`Streamed`](crate::Streamed). Dropping it drops the upstream. Must not be polled again once it is
    /// ready: then it stays pending.
    pub struct StreamedFuture<F, R, B, D> {
        #[pin]
        state: State<F, R, B, D>,
        alarm: Alarm,
    }
}

pin_project! {
    #[project = StateProj]
    #[project_replace = StateOwned]
    enum State<F, R, B, D> {
        Calling {
            #[pin]
            future: F,
            call: Option<Calling<R>>,
        },
        Holding { held: Holding<B, D> },
        Done,
    }
}

/// What is known before the head of the answer is there.
pub(crate) struct Calling<R> {
    pub(crate) reader: R,
    pub(crate) until: Until,
    pub(crate) clock: Clock,
    /// What the layer is set to, with the grace of a cold route.
    pub(crate) limits: Limits,
    pub(crate) witness: Witness,
}

/// An answer that is held.
struct Holding<B, D> {
    parts: Parts,
    body: B,
    reading: Reading<D>,
    until: Until,
    kept: Kept,
    events: usize,
    alarm: Alarm,
}

/// So many frames are read at a time: a body that always has one, be it empty, must neither keep its task from everything
/// else nor outlast the limits.
const FRAMES: usize = 128;

/// How a hold ends: with an answer whose body may be over, have failed late or bring a late verdict, or with an error.
enum Outcome {
    Commit { over: bool, trailers: Option<HeaderMap>, late: Option<Result<Verdict, Fault>> },
    Fail(BoxError),
}

impl<F, R, B, D> StreamedFuture<F, R, B, D> {
    pub(crate) fn new(future: F, call: Calling<R>) -> Self {
        Self { state: State::Calling { future, call: Some(call) }, alarm: Alarm::default() }
    }
}

impl<F, R, B, E, Res> Future for StreamedFuture<F, R, B, R::Decoder>
where
    F: Future<Output = Result<Res, E>>,
    E: Into<BoxError>,
    Res: Hold<Body = B> + Rebody<StreamedBody<B, R::Decoder>>,
    R: Reader,
    B: Body<Error: Into<BoxError>> + Unpin,
{
    type Output = Result<Res::Rebodied, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.state.as_mut().project() {
                StateProj::Calling { future, call } => {
                    let Poll::Ready(answer) = future.poll(cx) else {
                        let Some(calling) = call else { return Poll::Pending };
                        let Some(due) = calling.clock.pending(Instant::now) else { return Poll::Pending };
                        if this.alarm.poll(due.at, cx).is_pending() {
                            return Poll::Pending;
                        }
                        let err = calling.timeout(due);
                        this.state.set(State::Done);
                        return err.map_or(Poll::Pending, |fault| Poll::Ready(Err(fault.into())));
                    };
                    let calling = call.take();
                    this.state.set(State::Done);
                    let (parts, body) = match answer {
                        Ok(answer) => answer.open(),
                        Err(err) => return Poll::Ready(Err(err.into())),
                    };
                    let Some(calling) = calling else { return Poll::Pending };
                    let alarm = std::mem::take(this.alarm);
                    match calling.head(parts, body, alarm) {
                        Head::HandOn(parts, body) => return Poll::Ready(Ok(Res::rebody(parts, body))),
                        Head::Hold(held) => this.state.set(State::Holding { held }),
                    }
                }
                StateProj::Holding { held } => {
                    let outcome = match held.poll(cx) {
                        Poll::Ready(outcome) => outcome,
                        Poll::Pending => {
                            let Some(due) = held.reading.clock.pending(Instant::now) else {
                                return Poll::Pending;
                            };
                            if held.alarm.poll(due.at, cx).is_pending() {
                                return Poll::Pending;
                            }
                            match held.reading.call_timeout(due) {
                                Some(err) => Outcome::Fail(err),
                                None => Outcome::Commit { over: true, trailers: None, late: None },
                            }
                        }
                    };
                    let StateOwned::Holding { held } = this.state.project_replace(State::Done) else {
                        return Poll::Pending;
                    };
                    return Poll::Ready(held.finish(outcome).map(|(parts, body)| Res::rebody(parts, body)));
                }
                StateProj::Done => return Poll::Pending,
            }
        }
    }
}

/// Lives on the stack for a moment only.
#[allow(clippy::large_enum_variant)]
enum Head<B, D> {
    HandOn(Parts, StreamedBody<B, D>),
    Hold(Holding<B, D>),
}

impl<R: Reader> Calling<R> {
    fn head<B: Body>(self, mut parts: Parts, body: B, alarm: Alarm) -> Head<B, R::Decoder> {
        let Self { reader, until, mut clock, limits, witness } = self;
        clock.set_limits(reader.limits_of_answer(&parts, limits));
        if parts.status.is_client_error() || parts.status.is_server_error() {
            clock.failed();
        }
        match reader.head(&mut parts, until) {
            Mode::Pass => {
                clock.hand_on();
                Head::HandOn(parts, StreamedBody::unread(body, Reading::passing(clock, witness), alarm))
            }
            Mode::Watch(decoder) => {
                clock.hand_on();
                let reading = Reading::new(decoder, &mut parts, clock, witness);
                Head::HandOn(parts, StreamedBody::unread(body, reading, alarm))
            }
            Mode::Hold { decoder, until } => {
                let reading = Reading::new(decoder, &mut parts, clock, witness);
                Head::Hold(Holding { parts, body, reading, until, kept: Kept::default(), events: 0, alarm })
            }
        }
    }

    fn timeout(&self, due: Due) -> Option<Fault> {
        let fault = self.clock.fault(due, Instant::now(), self.witness.target.clone())?;
        self.witness.limit_passed(&fault);
        Some(fault)
    }
}

impl<B, D> Holding<B, D>
where
    B: Body<Error: Into<BoxError>> + Unpin,
    D: Decoder,
{
    /// Reads until it is known whether the answer can be handed on.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        for _ in 0..FRAMES {
            let frame = match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(frame) => frame,
            };
            let trailers = match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        let bytes = to_bytes(data);
                        if bytes.is_empty() {
                            continue;
                        }
                        let seen = self.reading.feed(&bytes);
                        self.kept.push(bytes);
                        match self.decide(seen) {
                            Some(outcome) => return Poll::Ready(outcome),
                            None => continue,
                        }
                    }
                    Err(frame) => frame.into_trailers().ok(),
                },
                Some(Err(err)) => {
                    let broken = self.reading.broken(err.into());
                    return Poll::Ready(Outcome::Fail(self.reading.call_error(broken)));
                }
                None => None,
            };
            return Poll::Ready(match self.reading.clean_end(trailers.as_ref()) {
                Ok(verdict) => {
                    if verdict.is_none() {
                        self.reading.content();
                    }
                    self.know(verdict);
                    Outcome::Commit { over: true, trailers, late: None }
                }
                Err(fault) => Outcome::Fail(fault.into()),
            });
        }
        // Others of this task, and the limits of time, have their turn.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Whether these bytes decide. What comes before content is a failure of the call, what comes after it one of
    /// the body, however the bytes were cut: so content is asked first.
    fn decide(&mut self, seen: Seen) -> Option<Outcome> {
        // The event that ends it is none of those that it is handed on without.
        let before_its_end = seen.events.saturating_sub(usize::from(seen.is_over()));
        self.events = self.events.saturating_add(before_its_end);
        let commit = |late| Some(Outcome::Commit { over: false, trailers: None, late });
        let full = match self.until {
            Until::Content { events, .. } if self.reading.clock.has_content() || self.events >= events => {
                if !self.reading.clock.has_content() {
                    self.reading.witness.committed_without_content(self.events, self.kept.length());
                }
                return match (seen.fault, seen.end) {
                    (Some(fault), _) => commit(Some(Err(fault))),
                    // What went well can be known at once: nobody does anything about it.
                    (None, Some(verdict)) if verdict.is_success() => {
                        self.know(Some(verdict));
                        commit(None)
                    }
                    (None, end) => commit(end.map(Ok)),
                };
            }
            Until::Content { bytes, .. } | Until::End { bytes, .. } => self.kept.length() > bytes,
        };
        if let Some(fault) = seen.fault {
            return Some(Outcome::Fail(fault.into()));
        }
        if seen.end.is_some() {
            self.know(seen.end);
            return commit(None);
        }
        if !full {
            return None;
        }
        if let Until::End { beyond: Beyond::Fail, bytes } = self.until {
            return Some(Outcome::Fail(self.too_long(bytes).into()));
        }
        if !self.reading.clock.has_content() {
            self.reading.witness.committed_without_content(self.events, self.kept.length());
        }
        commit(None)
    }

    fn know(&mut self, verdict: Option<Verdict>) {
        if let Some(verdict) = verdict {
            if verdict.is_success() {
                self.reading.content();
            }
            self.reading.learn(verdict, true);
        }
    }

    fn too_long(&self, limit: usize) -> Fault {
        let verdict = Verdict::soft(SoftKind::Malformed).with_hint(Hint::Fallback);
        let message = format!("an answer of more than the {limit} bytes that are held to the end");
        Fault::with_verdict(verdict, LAYER)
            .with_target_if(self.reading.witness.target.clone())
            .with_message(message)
    }

    /// The answer with its body put together again.
    fn finish(self, outcome: Outcome) -> Result<(Parts, StreamedBody<B, D>), BoxError> {
        let Self { parts, body, mut reading, kept, alarm, .. } = self;
        let (over, trailers, late) = match outcome {
            Outcome::Commit { over, trailers, late } => (over, trailers, late),
            Outcome::Fail(err) => return Err(err),
        };
        reading.clock.hand_on();
        let body = StreamedBody::held(kept, (!over).then_some(body), reading, alarm).with_trailers(trailers);
        Ok((
            parts,
            match late {
                Some(Err(fault)) => body.failing(fault),
                Some(Ok(verdict)) => body.deciding(verdict),
                None => body,
            },
        ))
    }
}

impl<F, R, B, D> fmt::Debug for StreamedFuture<F, R, B, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Calling { .. } => "Calling",
            State::Holding { .. } => "Holding",
            State::Done => "Done",
        };
        f.debug_struct("StreamedFuture").field("state", &state).finish_non_exhaustive()
    }
}
