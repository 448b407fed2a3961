//! [`StreamedBody`]: a body that is read while it passes, and whose failure is an error at its end.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use failsoft_core::{BoxError, Fault, Verdict, verdict_of_body_error};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::Instant;

use crate::{
    Decoder, Limits,
    clock::{Alarm, Clock, Due},
    events::Witness,
    reading::{Kept, Reading, to_bytes},
};

pin_project! {
    /// The body of a streamed answer: what was held, then the rest as it comes, byte for byte.
    ///
    /// A failure is an error at its end, in which [`Fault::find`] finds the fault, and a verdict in the
    /// [`Insight`](failsoft_core::Insight). After the protocol's own end an error of the upstream is a clean end, and so
    /// is a socket that stays open for more than a second, whatever still drips out of it.
    ///
    /// The idle limit measures the upstream's silence: it starts when the upstream was asked and had nothing. A
    /// consumer that takes its time does not use it up, and a body that nobody polls does not time out.
    pub struct StreamedBody<B, D> {
        kept: Kept,
        // Gone at its end, and at once when the answer has failed: that closes the connection.
        #[pin]
        body: Option<B>,
        trailers: Option<HeaderMap>,
        // What comes when the kept pieces are handed on.
        late: Option<Late>,
        reading: Reading<D>,
        alarm: Alarm,
    }
}

/// What a caller must not know before it has the bytes that show it.
enum Late {
    Failure(Fault),
    Verdict(Verdict),
}

/// An empty body, for layers outside that answer in place of the service, such as tower-http's timeout.
impl<B, D: Decoder> Default for StreamedBody<B, D> {
    fn default() -> Self {
        let clock = Clock::new(Instant::now(), Limits::NONE, None);
        let reading = Reading::passing(clock, Witness::default());
        let (kept, alarm) = Default::default();
        Self { kept, body: None, trailers: None, late: None, reading, alarm }
    }
}

impl<B: Body, D: Decoder> StreamedBody<B, D> {
    /// A body of which nothing was read.
    pub(crate) fn unread(body: B, reading: Reading<D>, alarm: Alarm) -> Self {
        let ended = body.is_end_stream();
        let mut this = Self::held(Kept::default(), Some(body), reading, alarm);
        settle_if_over(ended, &mut this.reading, &mut this.late);
        reveal(&this.reading, &mut this.late);
        this
    }

    /// A body of which a part was read, and perhaps its end.
    pub(crate) const fn held(kept: Kept, body: Option<B>, reading: Reading<D>, alarm: Alarm) -> Self {
        Self { kept, body, trailers: None, late: None, reading, alarm }
    }

    pub(crate) fn with_trailers(mut self, trailers: Option<HeaderMap>) -> Self {
        self.trailers = trailers;
        self
    }

    /// Fails after what was held; the upstream is dropped at once.
    pub(crate) fn failing(mut self, fault: Fault) -> Self {
        self.body = None;
        self.late = Some(Late::Failure(fault));
        self
    }

    /// Has a verdict that shows only after what was held.
    pub(crate) fn deciding(mut self, verdict: Verdict) -> Self {
        self.late = Some(Late::Verdict(verdict));
        self
    }
}

/// Where a body that knows its length is over, it may never be polled again.
fn settle_if_over<D: Decoder>(ended: bool, reading: &mut Reading<D>, late: &mut Option<Late>) {
    if !ended || late.is_some() {
        return;
    }
    match reading.clean_end(None) {
        Ok(None) => {}
        Ok(Some(verdict)) => *late = Some(Late::Verdict(verdict)),
        Err(fault) => *late = Some(Late::Failure(fault)),
    }
}

/// The bytes that show the verdict are handed on: it can be known.
fn reveal<D: Decoder>(reading: &Reading<D>, late: &mut Option<Late>) {
    match late {
        None => {}
        Some(Late::Failure(fault)) => {
            reading.witness.failed_after_commit(fault.class());
            reading.learn(fault.verdict(), true);
        }
        Some(Late::Verdict(verdict)) => {
            reading.learn(*verdict, true);
            *late = None;
        }
    }
}

type PolledFrame = Poll<Option<Result<Frame<Bytes>, BoxError>>>;

impl<B, D> Body for StreamedBody<B, D>
where
    B: Body<Error: Into<BoxError>>,
    D: Decoder,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame {
        let mut this = self.project();
        if let Some(bytes) = this.kept.pop() {
            if this.kept.is_empty() {
                let ended = this.body.as_ref().as_pin_ref().is_some_and(|body| body.is_end_stream());
                settle_if_over(ended, this.reading, this.late);
                reveal(this.reading, this.late);
            }
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        if let Some(Late::Failure(fault)) = this.late.take() {
            this.body.set(None);
            return Poll::Ready(Some(Err(fault.into())));
        }
        if let Some(trailers) = this.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        let Some(mut body) = this.body.as_mut().as_pin_mut() else { return Poll::Ready(None) };
        if let Some(due) = this.reading.clock.total().filter(|due| Instant::now() >= due.at) {
            return pass(this.reading, this.body, due);
        }
        match body.as_mut().poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => {
                    let bytes = to_bytes(data);
                    let ended = body.is_end_stream();
                    let seen = this.reading.feed(&bytes);
                    if let Some(fault) = seen.fault {
                        *this.late = Some(Late::Failure(fault));
                        this.body.set(None);
                    } else if let Some(verdict) = seen.end {
                        *this.late = Some(Late::Verdict(verdict));
                    }
                    settle_if_over(ended, this.reading, this.late);
                    reveal(this.reading, this.late);
                    Poll::Ready(Some(Ok(Frame::data(bytes))))
                }
                Err(frame) => {
                    let trailers = frame.into_trailers().ok();
                    let end = this.reading.clean_end(trailers.as_ref());
                    end_with(this.reading, this.body, end, trailers)
                }
            },
            Poll::Ready(None) => {
                let end = this.reading.clean_end(None);
                end_with(this.reading, this.body, end, None)
            }
            Poll::Ready(Some(Err(_))) if this.reading.clock.has_ended() => {
                this.body.set(None);
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(err))) => {
                this.body.set(None);
                let (err, verdict) = this.reading.broken(err.into());
                let meaning = verdict.unwrap_or_else(|| verdict_of_body_error(&*err));
                this.reading.witness.failed_after_commit(meaning.class());
                if let Some(verdict) = verdict {
                    this.reading.learn(verdict, false);
                }
                Poll::Ready(Some(Err(err)))
            }
            Poll::Pending => {
                let Some(due) = this.reading.clock.pending(Instant::now) else { return Poll::Pending };
                match this.alarm.poll(due.at, cx) {
                    Poll::Ready(()) => pass(this.reading, this.body, due),
                    Poll::Pending => Poll::Pending,
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.kept.is_empty()
            && self.late.is_none()
            && self.trailers.is_none()
            && !(self.reading.is_open() && self.body.is_some())
            && self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let kept = self.kept.length() as u64;
        let rest = self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(kept));
        if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(kept)) {
            hint.set_upper(upper);
        }
        hint
    }
}

/// The body is over, well or by what its decoder says.
fn end_with<B, D: Decoder>(
    reading: &Reading<D>,
    mut body: Pin<&mut Option<B>>,
    end: Result<Option<Verdict>, Fault>,
    trailers: Option<HeaderMap>,
) -> PolledFrame {
    body.set(None);
    match end {
        Ok(verdict) => {
            if let Some(verdict) = verdict {
                reading.learn(verdict, true);
            }
            Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
        }
        Err(fault) => {
            reading.witness.failed_after_commit(fault.class());
            reading.learn(fault.verdict(), true);
            Poll::Ready(Some(Err(fault.into())))
        }
    }
}

/// A limit has passed: an error, or after the protocol's own end a clean one. The upstream is dropped at once.
fn pass<B, D: Decoder>(reading: &Reading<D>, mut body: Pin<&mut Option<B>>, due: Due) -> PolledFrame {
    body.set(None);
    Poll::Ready(reading.timeout(due).map(|fault| {
        reading.witness.failed_after_commit(fault.class());
        reading.learn(fault.verdict(), false);
        Err(fault.into())
    }))
}

impl<B, D> fmt::Debug for StreamedBody<B, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamedBody")
            .field("kept", &self.kept.length())
            .field("ended", &self.body.is_none())
            .finish_non_exhaustive()
    }
}
