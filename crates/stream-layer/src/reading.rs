//! What the future and the body share: a decoder, the clock it drives, and the insight it completes.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};
use failsoft_core::{BoxError, Class, End, Fault, Insight, Verdict, verdict_of_body_error};
use http::response::Parts;
use tokio::time::Instant;

use crate::{
    Decoder, LAYER, Seen,
    clock::{Clock, Due},
    events::Witness,
};

/// One answer that is being read.
pub(crate) struct Reading<D> {
    /// Gone once the protocol's end, a failure or the end of the body was seen; absent where a body just passes.
    decoder: Option<D>,
    insight: Option<Insight>,
    pub(crate) clock: Clock,
    pub(crate) witness: Witness,
    status_is_success: bool,
}

impl<D: Decoder> Reading<D> {
    /// Nobody reads: all data is progress.
    pub(crate) const fn passing(mut clock: Clock, witness: Witness) -> Self {
        clock.content();
        Self { decoder: None, insight: None, clock, witness, status_is_success: false }
    }

    /// A decoder reads, and completes the insight that lies on the response; there is one from now on.
    pub(crate) fn new(decoder: D, parts: &mut Parts, clock: Clock, witness: Witness) -> Self {
        let insight = match Insight::of(&parts.extensions) {
            Some(insight) => insight.clone(),
            None => {
                let insight = Insight::new();
                parts.extensions.insert(insight.clone());
                insight
            }
        };
        // from now on somebody counts
        insight.learn(|facts| facts.pieces = facts.pieces.or(Some(0)));
        let status_is_success = parts.status.is_success();
        Self { decoder: Some(decoder), insight: Some(insight), clock, witness, status_is_success }
    }

    pub(crate) const fn is_open(&self) -> bool {
        self.decoder.is_some()
    }

    /// Shows the decoder what came.
    pub(crate) fn feed(&mut self, bytes: &Bytes) -> Seen {
        let Some(decoder) = &mut self.decoder else {
            self.progress();
            return Seen::default();
        };
        let mut seen = decoder.feed(bytes);
        seen.fault = seen.fault.map(|fault| self.witness.name(fault));
        if seen.content {
            self.content();
        }
        if seen.content || seen.progress || seen.end.is_some() {
            if let Some(insight) = &self.insight {
                insight.learn(|facts| *facts.pieces.get_or_insert(0) += 1);
            }
            self.progress();
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
        let Some(insight) = &self.insight else { return };
        let after = Instant::now().saturating_duration_since(self.clock.start());
        let late = self.clock.late_first_content(after);
        insight.learn(|facts| {
            facts.first_content.get_or_insert(after);
            facts.slow.first_content = facts.slow.first_content.or(late);
        });
        self.witness.first_content(after, late);
    }

    /// The target gets on.
    fn progress(&mut self) {
        let Some(silence) = self.clock.progress(Instant::now) else { return };
        if let Some(insight) = &self.insight {
            insight.learn(|facts| {
                facts.slow.stalls = facts.slow.stalls.saturating_add(1);
                facts.slow.longest_stall = facts.slow.longest_stall.max(silence);
            });
        }
        self.witness.stalled(silence);
    }

    /// The body is over without an error. Nothing is said twice.
    pub(crate) fn clean_end(&mut self, trailers: Option<&http::HeaderMap>) -> Result<Option<Verdict>, Fault> {
        let Some(mut decoder) = self.decoder.take() else { return Ok(None) };
        decoder.end(End::Clean(trailers)).map_err(|fault| self.witness.name(fault))
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
                (self.witness.name(fault).with_source(err).into(), Some(verdict))
            }
        }
    }

    /// A failure that makes the whole call fail. What nobody could name in a stack of layers is named here.
    pub(crate) fn call_error(&self, (err, verdict): (BoxError, Option<Verdict>)) -> BoxError {
        match verdict {
            Some(verdict) if Verdict::of_error(&*err).class() == Class::Unknown => self
                .witness
                .name(Fault::with_verdict(verdict, LAYER))
                .with_message("the body broke off while it was held")
                .with_source(err)
                .into(),
            _ => err,
        }
    }

    /// What has passed, as an error; `None` after the protocol's own end.
    pub(crate) fn timeout(&self, due: Due) -> Option<Fault> {
        let fault = self.clock.fault(due, Instant::now(), self.witness.target.clone())?;
        self.witness.limit_passed(&fault);
        Some(fault)
    }

    /// The same where the answer is held. A response that has failed means what its status says, also where its body does
    /// not come: that is for its decoder to say.
    pub(crate) fn call_timeout(&mut self, due: Due) -> Option<BoxError> {
        let fault = self.timeout(due)?;
        if self.status_is_success {
            return Some(fault.into());
        }
        let broken = self.broken(fault.into());
        Some(self.call_error(broken))
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

/// What was read and not yet handed on. The first piece, which is mostly the only one, needs no allocation; small ones
/// after it are joined, so that whatever the pieces, no more than about twice their bytes is held.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    first: Option<Bytes>,
    more: VecDeque<Bytes>,
    /// Small pieces, which come after those.
    small: BytesMut,
    length: usize,
}

/// A shorter piece is copied: kept as it is, it costs more than its bytes, and keeps alive a larger buffer that it may be
/// a part of.
const SMALL: usize = 1024;

impl Kept {
    pub(crate) fn push(&mut self, bytes: Bytes) {
        self.length = self.length.saturating_add(bytes.len());
        if self.is_empty() {
            self.first = Some(bytes);
        } else if bytes.len() < SMALL {
            self.small.extend_from_slice(&bytes);
        } else {
            self.end_small();
            self.more.push_back(bytes);
        }
    }

    fn end_small(&mut self) {
        if !self.small.is_empty() {
            self.more.push_back(self.small.split().freeze());
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        let next = self.first.take().or_else(|| self.more.pop_front());
        let bytes = next.or_else(|| (!self.small.is_empty()).then(|| self.small.split().freeze()))?;
        self.length = self.length.saturating_sub(bytes.len());
        Some(bytes)
    }

    /// In bytes.
    pub(crate) const fn length(&self) -> usize {
        self.length
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none() && self.more.is_empty() && self.small.is_empty()
    }
}

/// The data of a frame, without a copy where it is `Bytes` already.
pub(crate) fn to_bytes(mut data: impl Buf) -> Bytes {
    data.copy_to_bytes(data.remaining())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiny_pieces_cost_no_more_than_their_bytes_and_come_in_their_order() {
        let mut kept = Kept::default();
        let large = "y".repeat(SMALL);
        let pieces = || ["a", "", large.as_str()].into_iter().chain(std::iter::repeat_n("b", 5_000));
        for piece in pieces().chain([large.as_str(), ""]).chain(pieces()) {
            kept.push(Bytes::copy_from_slice(piece.as_bytes()));
        }
        let whole: String = pieces().chain([large.as_str()]).chain(pieces()).collect();
        assert_eq!(kept.length(), whole.len());
        let (mut read, mut count) = (Vec::new(), 0);
        while let Some(bytes) = kept.pop() {
            read.extend_from_slice(&bytes);
            count += 1;
        }
        assert!(read == whole.as_bytes() && kept.is_empty() && kept.length() == 0);
        assert!(count <= 8, "{count} pieces");
    }
}
