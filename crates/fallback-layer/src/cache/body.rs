//! The body of an answer that is recorded while it passes, or given again.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes, BytesMut};
use failsoft_core::{BoxError, Held, Insight};
use http::response::Parts;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::Instant;

use super::{
    core::{Core, Lead, NotKept, Place},
    similar::Asked,
};
use crate::answer::{Answer, ends_as_a_stream, is_broken_json, is_good, is_type, is_whole};
use crate::restart::has_restarted;

pin_project! {
    /// The body of a response that passed a cache: as it comes, and recorded where it is to be kept; or one that is given
    /// again. What the caller sees is the same to the byte.
    pub struct CacheBody<B> {
        #[pin]
        body: Held<B>,
        // Last, so that it ends after everything that the body may still report while it drops.
        record: Option<Record>,
    }
}

/// An empty body, for layers outside that answer in place of the service.
impl<B> Default for CacheBody<B> {
    fn default() -> Self {
        Self::held(Held::default())
    }
}

impl<B> CacheBody<B> {
    /// A body that is not recorded.
    pub(super) const fn plain(body: B) -> Self {
        Self { body: Held::unread(body), record: None }
    }

    pub(super) const fn held(body: Held<B>) -> Self {
        Self { body, record: None }
    }

    pub(super) fn again(bytes: Bytes) -> Self {
        Self { body: Held::whole(bytes, None), record: None }
    }
}

impl<B: Body<Error: Into<BoxError>>> CacheBody<B> {
    pub(super) fn recorded(body: B, record: Record) -> Self {
        let mut record = Some(record);
        if body.is_end_stream() {
            end(&mut record, false);
        }
        Self { body: Held::unread(body), record }
    }
}

impl<B: Body<Error: Into<BoxError>>> Body for CacheBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut this = self.project();
        if let Some(asked) = this.record.as_mut().and_then(|record| record.asked.as_mut()) {
            // Whether or not it is there when the body ends: the body does not wait for it.
            let _ = asked.poll(cx);
        }
        let frame = ready!(this.body.as_mut().poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => match frame.data_ref() {
                Some(data) => {
                    if let Some(record) = this.record {
                        if !record.push(data) {
                            *this.record = None;
                        }
                    }
                    // Whoever knows the length may never poll again.
                    if this.body.is_end_stream() {
                        end(this.record, false);
                    }
                }
                None => end(this.record, true),
            },
            Some(Err(_)) => {
                if let Some(mut record) = this.record.take() {
                    // What breaks off after the protocol's own end was there is whole.
                    if record.is_over() {
                        record.end(false);
                    } else {
                        record.fail();
                    }
                }
            }
            None => end(this.record, false),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn end(record: &mut Option<Record>, trailers: bool) {
    if let Some(mut record) = record.take() {
        record.end(trailers);
    }
}

impl<B> fmt::Debug for CacheBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheBody")
            .field("body", &self.body)
            .field("recorded", &self.record.is_some())
            .finish_non_exhaustive()
    }
}

/// What came of an answer so far. Dropped before its end, it leads no longer.
pub(super) struct Record {
    core: Arc<Core>,
    place: Place,
    /// Without what a kept answer does not repeat.
    parts: Parts,
    /// When its head came.
    came: Instant,
    bytes: BytesMut,
    /// What it answers, to be found by what is similar.
    asked: Option<Asked>,
    /// Those who wait for it follow it.
    lead: Option<Lead>,
    /// It is theirs alone, and not kept.
    only_shared: bool,
}

impl Record {
    pub(super) fn new(
        core: Arc<Core>,
        place: Place,
        parts: &Parts,
        asked: Option<Asked>,
        lead: Option<Lead>,
    ) -> Self {
        let mut kept = http::Response::new(()).into_parts().0;
        kept.headers.clone_from(&parts.headers);
        kept.extensions.clone_from(&parts.extensions);
        let (came, bytes) = (Instant::now(), BytesMut::new());
        Self { core, place, parts: kept, came, bytes, asked, lead, only_shared: false }
    }

    /// One that is not to be kept: what stood in must not outlive what it stood in for. Those who wait have it all the same, so that
    /// in an outage they do not all ask what is left.
    pub(super) fn only_shared(core: Arc<Core>, place: Place, parts: &Parts, lead: Lead) -> Self {
        let mut record = Self::new(core, place, parts, None, Some(lead));
        record.only_shared = true;
        record
    }

    /// `false` where it is too long to be kept.
    fn push(&mut self, data: &Bytes) -> bool {
        if self.bytes.len().saturating_add(data.remaining()) > self.core.body_cap {
            self.give_up(NotKept::TooLong);
            return false;
        }
        if let Some(lead) = &self.lead {
            lead.alive(Instant::now());
        }
        self.bytes.extend_from_slice(data);
        true
    }

    fn end(&mut self, trailers: bool) {
        if trailers {
            return self.give_up(NotKept::Trailers);
        }
        let bytes = std::mem::take(&mut self.bytes);
        let Parts { headers, extensions, .. } = &self.parts;
        if !is_whole(headers, bytes.len()) || is_broken_json(headers, extensions, &bytes) {
            self.core.meters.not_kept(NotKept::Cut);
            return self.fail();
        }
        // Behind a restart another answer begins; what is before it is a part of one.
        if is_type(headers, "text/event-stream") && has_restarted(&bytes) {
            self.core.meters.not_kept(NotKept::Cut);
            return self.fail();
        }
        if !is_good(&self.parts.extensions, self.core.judged) {
            let is_judged =
                Insight::of(&self.parts.extensions).is_some_and(|insight| insight.verdict().is_some());
            if is_judged {
                self.core.meters.not_kept(NotKept::Bad);
                return self.fail();
            }
            return self.give_up(NotKept::Unjudged);
        }
        if self.only_shared {
            if let Some(lead) = self.lead.take() {
                lead.done(Arc::new(Answer::marked(&self.parts, &bytes)));
            }
            return;
        }
        let head = (&self.parts, self.came);
        match (self.core.keep(&self.place, head, &bytes, self.asked.as_ref()), self.lead.take()) {
            (Some(answer), Some(lead)) => lead.done(answer),
            (_, Some(lead)) => lead.alone(),
            (_, None) => {}
        }
    }

    /// Whether it has come to the protocol's own end, which only streams of events show.
    fn is_over(&self) -> bool {
        is_type(&self.parts.headers, "text/event-stream") && ends_as_a_stream(&self.bytes)
    }

    /// The answer is no good one. Those who follow may have another.
    fn fail(&mut self) {
        self.bytes.clear();
        if let Some(lead) = self.lead.take() {
            lead.failed();
        }
    }

    /// There is nothing to share.
    fn give_up(&mut self, why: NotKept) {
        self.bytes.clear();
        self.core.meters.not_kept(why);
        if let Some(lead) = self.lead.take() {
            lead.alone();
        }
    }
}

impl Drop for Record {
    /// Clients of events stop at the protocol's own end, and read no further.
    fn drop(&mut self) {
        if self.is_over() {
            self.end(false);
        }
    }
}

/// Keeps an answer that was read to its end.
pub(super) fn keep_whole(
    core: &Core,
    place: &Place,
    (parts, came): (&Parts, Instant),
    whole: (&[u8], bool),
    asked: Option<&Asked>,
) {
    let (bytes, trailers) = whole;
    let not_kept = if trailers {
        NotKept::Trailers
    } else if !is_whole(&parts.headers, bytes.len())
        || is_broken_json(&parts.headers, &parts.extensions, bytes)
    {
        NotKept::Cut
    } else if !is_good(&parts.extensions, core.judged) {
        NotKept::Bad
    } else {
        core.keep(place, (parts, came), bytes, asked);
        return;
    };
    core.meters.not_kept(not_kept);
}
