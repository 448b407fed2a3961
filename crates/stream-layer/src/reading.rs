//! What the future and the body share: a decoder, the clock it drives, and the insight it completes.

use std::{collections::VecDeque, sync::Arc};

use bytes::{Buf, Bytes};
use failsoft_core::{BoxError, Class, End, Fault, Insight, Verdict, verdict_of_body_error};
use http::response::Parts;
use tokio::time::Instant;

use crate::{
    Decoder, LAYER, Seen,
    clock::{Clock, Due},
};

/// One answer that is being read.
pub(crate) struct Reading<D> {
    /// Gone once the protocol's end, a failure or the end of the body was seen; absent where a body just passes.
    decoder: Option<D>,
    insight: Option<Insight>,
    pub(crate) clock: Clock,
    pub(crate) target: Option<Arc<str>>,
    status_is_success: bool,
}

impl<D: Decoder> Reading<D> {
    /// Nobody reads: all data is progress.
    pub(crate) const fn passing(mut clock: Clock, target: Option<Arc<str>>) -> Self {
        clock.content();
        Self { decoder: None, insight: None, clock, target, status_is_success: false }
    }

    /// A decoder reads, and completes the insight that lies on the response; there is one from now on.
    pub(crate) fn new(decoder: D, parts: &mut Parts, clock: Clock, target: Option<Arc<str>>) -> Self {
        let insight = match Insight::of(&parts.extensions) {
            Some(insight) => insight.clone(),
            None => {
                let insight = Insight::new();
                parts.extensions.insert(insight.clone());
                insight
            }
        };
        let status_is_success = parts.status.is_success();
        Self { decoder: Some(decoder), insight: Some(insight), clock, target, status_is_success }
    }

    pub(crate) const fn is_open(&self) -> bool {
        self.decoder.is_some()
    }

    /// Shows the decoder what came.
    pub(crate) fn feed(&mut self, bytes: &Bytes) -> Seen {
        let Some(decoder) = &mut self.decoder else {
            self.clock.progress();
            return Seen::default();
        };
        let seen = decoder.feed(bytes);
        if seen.content {
            self.content();
        }
        if seen.content || seen.progress {
            self.clock.progress();
        } else {
            self.clock.noise(Instant::now);
        }
        if seen.is_over() {
            self.decoder = None;
        }
        if seen.end.is_some() && seen.fault.is_none() {
            self.clock.end();
        }
        seen
    }

    /// The first content is there.
    pub(crate) fn content(&mut self) {
        if self.clock.has_content() {
            return;
        }
        self.clock.content();
        if let Some(insight) = &self.insight {
            let after = Instant::now().saturating_duration_since(self.clock.start());
            insight.learn(|facts| *facts.first_content.get_or_insert(after));
        }
    }

    /// The body is over without an error. Nothing is said twice.
    pub(crate) fn clean_end(&mut self, trailers: Option<&http::HeaderMap>) -> Result<Option<Verdict>, Fault> {
        let Some(mut decoder) = self.decoder.take() else { return Ok(None) };
        decoder.end(End::Clean(trailers))
    }

    /// The body ended with an error: what the caller gets, and what it means.
    pub(crate) fn broken(&mut self, err: BoxError) -> (BoxError, Option<Verdict>) {
        let Some(mut decoder) = self.decoder.take() else { return (err, None) };
        match decoder.end(End::Error(&*err)) {
            Ok(verdict) => {
                let verdict = verdict.unwrap_or_else(|| verdict_of_body_error(&*err));
                (err, Some(verdict))
            }
            Err(fault) => {
                let verdict = fault.verdict();
                (fault.with_source(err).into(), Some(verdict))
            }
        }
    }

    /// A failure that makes the whole call fail. What nobody could name in a stack of layers is named here.
    pub(crate) fn call_error((err, verdict): (BoxError, Option<Verdict>)) -> BoxError {
        match verdict {
            Some(verdict) if Verdict::of_error(&*err).class() == Class::Unknown => {
                Fault::with_verdict(verdict, LAYER)
                    .with_message("the body broke off while it was held")
                    .with_source(err)
                    .into()
            }
            _ => err,
        }
    }

    /// What has passed, as an error; `None` after the protocol's own end.
    pub(crate) fn timeout(&self, due: Due) -> Option<Fault> {
        let fault = self.clock.fault(due, Instant::now(), self.target.clone())?;
        crate::events::limit_passed(&fault);
        Some(fault)
    }

    /// Writes the verdict down, unless somebody further out has decided already.
    pub(crate) fn learn(&self, verdict: Verdict, inside_answer: bool) {
        if let Some(insight) = &self.insight {
            insight.learn(|facts| {
                facts.verdict.get_or_insert(verdict);
                facts.inside_success |= inside_answer && self.status_is_success && !verdict.is_success();
            });
        }
    }
}

/// What was read and not yet handed on. The first piece, which is mostly the only one, needs no allocation.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    first: Option<Bytes>,
    more: VecDeque<Bytes>,
    length: usize,
}

impl Kept {
    pub(crate) fn push(&mut self, bytes: Bytes) {
        self.length = self.length.saturating_add(bytes.len());
        if self.first.is_none() && self.more.is_empty() {
            self.first = Some(bytes);
        } else {
            self.more.push_back(bytes);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        let bytes = self.first.take().or_else(|| self.more.pop_front())?;
        self.length = self.length.saturating_sub(bytes.len());
        Some(bytes)
    }

    /// In bytes.
    pub(crate) const fn length(&self) -> usize {
        self.length
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none() && self.more.is_empty()
    }
}

/// The data of a frame, without a copy where it is `Bytes` already.
pub(crate) fn to_bytes(mut data: impl Buf) -> Bytes {
    data.copy_to_bytes(data.remaining())
}
