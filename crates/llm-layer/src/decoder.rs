//! [`LlmDecoder`]: reads one body, a whole one or events.

use std::fmt;

use bytes::{Bytes, BytesMut};
use failsoft_core::{End, Fault, Verdict};
use stream_layer::{Decoder, Seen};

use crate::{attempt::Attempt, events::Events, framing::Framing};

/// Reads the body of one answer, and completes its [`Insight`](failsoft_core::Insight). Made by
/// [`LlmReader`](crate::LlmReader).
pub struct LlmDecoder {
    way: Way,
    /// The answer came to its end, whatever is thought of it.
    is_complete: bool,
    attempt: Attempt,
}

enum Way {
    Whole(Whole),
    /// Events, of which nothing but blanks came so far.
    Events(Events),
    Begun(Events),
}

impl LlmDecoder {
    /// Reads a body as a whole.
    pub(crate) fn whole(attempt: Attempt) -> Self {
        Self { way: Way::Whole(Whole::new(true)), is_complete: false, attempt }
    }

    /// Reads events.
    pub(crate) fn events(framing: Framing, attempt: Attempt) -> Self {
        let events = Events::new(framing, attempt.provider, attempt.config.max_body);
        Self { way: Way::Events(events), is_complete: false, attempt }
    }

    /// Some servers announce events, and then answer with a JSON object or a page: that shows at the first byte after
    /// blanks and a byte order mark.
    fn begin(&mut self, bytes: &[u8]) {
        if !matches!(self.way, Way::Events(_)) {
            return;
        }
        let says = |byte: &&u8| !byte.is_ascii_whitespace() && !matches!(byte, 0xEF | 0xBB | 0xBF);
        let Some(first) = bytes.iter().find(says) else { return };
        let way = std::mem::replace(&mut self.way, Way::Whole(Whole::new(false)));
        match way {
            Way::Events(events) if events.framing().begins_with(*first) => self.way = Way::Begun(events),
            _ => {}
        }
    }
}

impl Decoder for LlmDecoder {
    fn feed(&mut self, bytes: &Bytes) -> Seen {
        self.begin(bytes);
        let seen = match &mut self.way {
            Way::Whole(whole) => whole.feed(bytes, self.attempt.config.max_body),
            Way::Events(events) | Way::Begun(events) => {
                let seen = events.feed(bytes, &mut self.attempt);
                self.is_complete |= seen.end.is_some();
                seen
            }
        };
        let class = seen.fault.as_ref().map(|fault| fault.class()).or_else(|| Some(seen.end?.class()));
        class.into_iter().for_each(|class| self.attempt.ended(class));
        seen
    }

    fn end(&mut self, end: End<'_>) -> Result<Option<Verdict>, Fault> {
        let is_cut = matches!(end, End::Error(_));
        let ended = match (end, &mut self.way) {
            (End::Error(error), _) => self.attempt.cut(error),
            (_, Way::Whole(whole)) => Ok(whole.judge(&mut self.attempt)),
            (_, Way::Events(events) | Way::Begun(events)) => events.end(&mut self.attempt),
        };
        self.is_complete |= ended.is_ok() && !is_cut;
        match &ended {
            Ok(verdict) => verdict.iter().for_each(|verdict| self.attempt.ended(verdict.class())),
            Err(fault) => self.attempt.ended(fault.class()),
        }
        ended
    }
}

impl Drop for LlmDecoder {
    /// Of an answer that did not come to its end, the text is known so far, and what it cost at least.
    fn drop(&mut self) {
        if let Way::Begun(events) = &mut self.way {
            if !self.is_complete {
                self.attempt.wrote(events.output_bytes());
            }
            if let Some(text) = events.text() {
                self.attempt.insight.learn(|facts| facts.text = Some(text.into()));
            }
        }
    }
}

impl fmt::Debug for LlmDecoder {
    /// Without the text: answers do not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = if matches!(self.way, Way::Whole(_)) { "whole" } else { "events" };
        f.debug_struct("LlmDecoder").field("way", &way).field("attempt", &self.attempt).finish()
    }
}

/// A shorter piece is copied: kept as it is, it costs more than its bytes.
const SMALL: usize = 1024;

/// A body that is judged when all of it is there.
#[derive(Debug)]
struct Whole {
    pieces: Vec<Bytes>,
    /// Small pieces, which come after those.
    small: BytesMut,
    length: usize,
    /// Its first bytes are content. Not where events were announced: content would hand it on.
    tells_content: bool,
    is_too_long: bool,
}

impl Whole {
    fn new(tells_content: bool) -> Self {
        let (pieces, small) = (Vec::new(), BytesMut::new());
        Self { pieces, small, length: 0, tells_content, is_too_long: false }
    }

    fn feed(&mut self, bytes: &Bytes, max: usize) -> Seen {
        let mut seen = Seen::default();
        // Blank lines keep a connection alive until the answer is there.
        let says = !bytes.trim_ascii().is_empty();
        seen.content = says && self.tells_content;
        seen.progress = says;
        self.length = self.length.saturating_add(bytes.len());
        self.is_too_long |= self.length > max;
        if self.is_too_long {
            self.pieces = Vec::new();
            self.small = BytesMut::new();
        } else if bytes.len() < SMALL && self.length > bytes.len() {
            self.small.extend_from_slice(bytes);
        } else {
            self.end_small();
            self.pieces.push(bytes.clone());
        }
        seen
    }

    fn end_small(&mut self) {
        if !self.small.is_empty() {
            self.pieces.push(self.small.split().freeze());
        }
    }

    /// `None` where it was too long to be kept.
    fn judge(&mut self, attempt: &mut Attempt) -> Option<Verdict> {
        if self.is_too_long {
            return None;
        }
        self.end_small();
        let pieces = std::mem::take(&mut self.pieces);
        let body = match &pieces[..] {
            [] => Bytes::new(),
            [one] => one.clone(),
            more => {
                let mut joined = BytesMut::with_capacity(self.length);
                more.iter().for_each(|piece| joined.extend_from_slice(piece));
                joined.freeze()
            }
        };
        let facts = attempt.provider.judge(attempt.status, &attempt.headers, &body, &attempt.offered);
        let verdict = facts.verdict;
        attempt.tell(facts);
        verdict
    }
}
