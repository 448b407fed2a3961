//! The recording of one body, and its readers: a state machine without locks or wakers.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use crate::BoxError;

/// Besides its bytes, a recorded piece costs memory of its own: so many bytes of the cap allow for one.
const BYTES_A_PIECE: usize = 64;

/// And so many are always allowed.
const FEW_PIECES: usize = 16;

/// A body that several attempts read, one after the other or side by side. What the foremost reader reads is recorded, the
/// others read the recording.
///
/// While the request is *kept* all of it is recorded, until that takes more than the cap; then the recording is given up, and
/// no attempt can begin any more. From then on only what lies between the readers is held, again up to the cap. The newest
/// reader never waits for an older one: that may be the forgotten body of an attempt that is over.
pub(super) struct Tape<B> {
    /// Until its end.
    source: Option<Pin<Box<B>>>,
    failed: bool,
    kept: bool,
    cap: usize,
    bytes: usize,
    pieces: VecDeque<Piece>,
    /// The place of the first recorded piece in the body.
    first: u64,
    /// The newest last.
    readers: Vec<Reader>,
    made: u64,
}

struct Reader {
    id: u64,
    at: u64,
}

#[derive(Clone)]
enum Piece {
    Data(Bytes),
    Trailers(Box<HeaderMap>),
}

/// What a reader gets.
pub(super) enum Read {
    Frame(Frame<Bytes>),
    End,
    Error(BoxError),
    /// A newer reader lies too far behind.
    Wait,
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>>> Tape<B> {
    /// With its first reader.
    pub(super) fn new(source: B, cap: usize) -> (Self, u64) {
        let first = Reader { id: 1, at: 0 };
        let tape = Self {
            source: Some(Box::pin(source)),
            failed: false,
            kept: true,
            cap,
            bytes: 0,
            pieces: VecDeque::new(),
            first: 0,
            readers: vec![first],
            made: 1,
        };
        (tape, 1)
    }

    /// The next frame for a reader.
    pub(super) fn read(&mut self, id: u64, cx: &mut Context<'_>) -> Poll<Read> {
        let Some(at) = self.reader(id).map(|reader| reader.at) else { return Poll::Ready(Read::End) };
        let Some(ahead) = at.checked_sub(self.first) else {
            return Poll::Ready(Read::Error("a later attempt has left this one behind".into()));
        };
        if let Some(piece) = usize::try_from(ahead).ok().and_then(|ahead| self.pieces.get(ahead)).cloned() {
            self.advance(id);
            return Poll::Ready(Read::Frame(piece.into_frame()));
        }
        let read = ready!(self.poll_source(id, cx));
        if let Read::Frame(frame) = &read {
            if self.record(frame) {
                self.advance(id);
            }
        }
        Poll::Ready(read)
    }

    fn poll_source(&mut self, id: u64, cx: &mut Context<'_>) -> Poll<Read> {
        let newest = self.readers.last().is_some_and(|reader| reader.id == id);
        if !newest && !self.kept && self.is_over_cap() {
            return Poll::Ready(Read::Wait);
        }
        let Some(source) = &mut self.source else {
            let failed = || Read::Error("the body had failed in an earlier attempt".into());
            return Poll::Ready(if self.failed { failed() } else { Read::End });
        };
        Poll::Ready(match ready!(source.as_mut().poll_frame(cx)) {
            Some(Ok(frame)) => Read::Frame(frame),
            Some(Err(error)) => {
                (self.source, self.failed) = (None, true);
                Read::Error(error.into())
            }
            None => {
                self.source = None;
                Read::End
            }
        })
    }
}

impl<B> Tape<B> {
    /// A reader from the beginning on; `None` once the recording is given up, or the body has failed.
    pub(super) fn add_reader(&mut self) -> Option<u64> {
        if !self.kept || self.failed {
            return None;
        }
        self.made += 1;
        self.readers.push(Reader { id: self.made, at: 0 });
        Some(self.made)
    }

    pub(super) fn remove_reader(&mut self, id: u64) {
        self.readers.retain(|reader| reader.id != id);
        self.trim();
    }

    /// No further reader will come.
    pub(super) fn release(&mut self) {
        self.kept = false;
        self.trim();
    }

    pub(super) fn has_others(&self) -> bool {
        self.readers.len() > 1
    }

    fn advance(&mut self, id: u64) {
        if let Some(reader) = self.readers.iter_mut().find(|reader| reader.id == id) {
            reader.at += 1;
        }
        self.trim();
    }

    fn reader(&self, id: u64) -> Option<&Reader> {
        self.readers.iter().find(|reader| reader.id == id)
    }

    /// Keeps a piece for those who have not read it yet. An empty one is nothing to anybody, and has no place.
    fn record(&mut self, frame: &Frame<Bytes>) -> bool {
        let piece = match (frame.data_ref(), frame.trailers_ref()) {
            (Some(data), _) if data.is_empty() => return false,
            (Some(data), _) => Piece::Data(data.clone()),
            (None, Some(trailers)) => Piece::Trailers(Box::new(trailers.clone())),
            (None, None) => return false,
        };
        self.bytes = self.bytes.saturating_add(piece.bytes());
        self.pieces.push_back(piece);
        true
    }

    fn is_over_cap(&self) -> bool {
        self.bytes > self.cap || self.pieces.len() > FEW_PIECES + self.cap / BYTES_A_PIECE
    }

    fn trim(&mut self) {
        if self.kept {
            if !self.is_over_cap() {
                return;
            }
            self.kept = false;
        }
        let head = self.first + self.pieces.len() as u64;
        self.forget_before(self.readers.iter().map(|reader| reader.at).min().unwrap_or(head));
        if self.is_over_cap() {
            self.forget_before(self.readers.last().map_or(head, |newest| newest.at));
        }
    }

    fn forget_before(&mut self, place: u64) {
        while self.first < place {
            let Some(piece) = self.pieces.pop_front() else { break };
            self.bytes = self.bytes.saturating_sub(piece.bytes());
            self.first += 1;
        }
        if self.pieces.is_empty() {
            self.pieces = VecDeque::new();
        }
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>>> Tape<B> {
    /// What a reader has still to come.
    pub(super) fn size_hint(&self, id: u64) -> SizeHint {
        let mut hint =
            self.source.as_ref().map_or_else(|| SizeHint::with_exact(0), |source| source.size_hint());
        let at = self.reader(id).map_or(self.first, |reader| reader.at);
        let behind = usize::try_from(at.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let recorded: u64 = self.pieces.iter().skip(behind).map(Piece::data).sum();
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(recorded));
        }
        hint.set_lower(hint.lower().saturating_add(recorded).min(hint.upper().unwrap_or(u64::MAX)));
        hint
    }

    /// Whether a reader has seen it all, as far as that is known without reading on.
    pub(super) fn is_end_stream(&self, id: u64) -> bool {
        let head = self.first + self.pieces.len() as u64;
        let at_head = self.reader(id).is_none_or(|reader| reader.at >= head);
        at_head && !self.failed && self.source.as_ref().is_none_or(|source| source.is_end_stream())
    }
}

impl Piece {
    fn into_frame(self) -> Frame<Bytes> {
        match self {
            Self::Data(data) => Frame::data(data),
            Self::Trailers(trailers) => Frame::trailers(*trailers),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Data(data) => data.len(),
            Self::Trailers(trailers) => {
                trailers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
            }
        }
    }

    fn data(&self) -> u64 {
        match self {
            Self::Data(data) => data.len() as u64,
            Self::Trailers(_) => 0,
        }
    }
}
