//! The body of an answer that is edited while it comes.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use failsoft_core::{BoxError, Held};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::{Edit, elements::Elements};
use crate::json::Raw;

pin_project! {
    /// The body of an answer that passed an editor of [answers](super::response): whole, or edited piece by piece as it comes.
    pub struct ChatBody<B> {
        #[pin]
        body: Held<B>,
        pieces: Option<Pieces>,
        // What comes after the part of a line that was there when the body ended.
        end: Option<Result<Frame<Bytes>, BoxError>>,
    }
}

/// An empty body, for layers outside that answer in place of the service.
impl<B> Default for ChatBody<B> {
    fn default() -> Self {
        Self::plain(Held::default())
    }
}

impl<B> ChatBody<B> {
    pub(super) const fn plain(body: Held<B>) -> Self {
        Self { body, pieces: None, end: None }
    }

    pub(super) const fn lines(body: B, lines: Lines) -> Self {
        Self { body: Held::unread(body), pieces: Some(Pieces::Lines(lines)), end: None }
    }

    pub(super) const fn elements(body: Held<B>, elements: Elements) -> Self {
        Self { body, pieces: Some(Pieces::Elements(elements)), end: None }
    }
}

impl<B: Body<Error: Into<BoxError>>> Body for ChatBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut this = self.project();
        loop {
            if let Some(end) = this.end.take() {
                return Poll::Ready(Some(end));
            }
            let frame = ready!(this.body.as_mut().poll_frame(cx));
            let Some(pieces) = this.pieces else { return Poll::Ready(frame) };
            let mut whole = BytesMut::new();
            let end = match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => pieces.feed(&bytes, &mut whole).err().map(Err),
                    Err(trailers) => Some(pieces.last(&mut whole).map(|()| trailers)),
                },
                // What breaks off is as it came, to the last byte.
                Some(Err(error)) => {
                    whole = pieces.rest();
                    Some(Err(error))
                }
                None => {
                    let end = pieces.last(&mut whole).err().map(Err);
                    *this.pieces = None;
                    if whole.is_empty() && end.is_none() {
                        return Poll::Ready(None);
                    }
                    end
                }
            };
            if matches!(end, Some(Err(_))) {
                // Nothing more comes, and the connection is closed.
                *this.pieces = None;
                this.body.set(Held::whole(Bytes::new(), None));
            }
            *this.end = end;
            if !whole.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(whole.freeze()))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.end.is_none() && self.pieces.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.pieces.is_some() { SizeHint::default() } else { self.body.size_hint() }
    }
}

impl<B> fmt::Debug for ChatBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatBody")
            .field("body", &self.body)
            .field("edited", &self.pieces.is_some())
            .finish_non_exhaustive()
    }
}

/// What a body is edited by.
enum Pieces {
    Lines(Lines),
    Elements(Elements),
}

impl Pieces {
    /// What is there of a piece that will not become whole.
    fn rest(&mut self) -> BytesMut {
        match self {
            Self::Lines(lines) => lines.rest(),
            Self::Elements(elements) => elements.rest(),
        }
    }

    /// Nothing more comes.
    fn last(&mut self, out: &mut BytesMut) -> Result<(), BoxError> {
        match self {
            Self::Lines(lines) => lines.last(out),
            Self::Elements(elements) => {
                *out = elements.rest();
                Ok(())
            }
        }
    }

    /// The pieces that are whole with these bytes, edited, up to one that cannot be.
    fn feed(&mut self, bytes: &[u8], out: &mut BytesMut) -> Result<(), BoxError> {
        match self {
            Self::Lines(lines) => lines.feed(bytes, out),
            Self::Elements(elements) => elements.feed(bytes, out),
        }
    }
}

/// A longer line passes as it comes.
const MAX_LINE: usize = 256 * 1024;

/// Edits the JSON of each line, once the line is whole.
pub(super) struct Lines {
    edit: Arc<dyn Edit>,
    /// What stands before the JSON of a line.
    prefix: &'static [u8],
    /// What came of a line that is not whole yet.
    part: BytesMut,
    /// The line is too long, and passes.
    passes: bool,
}

impl Lines {
    /// Of server-sent events. An event whose data is spread over several lines passes as it is.
    pub(super) fn of_events(edit: Arc<dyn Edit>) -> Self {
        Self { edit, prefix: b"data:", part: BytesMut::new(), passes: false }
    }

    /// Of lines that are JSON.
    pub(super) fn of_json(edit: Arc<dyn Edit>) -> Self {
        Self { edit, prefix: b"", part: BytesMut::new(), passes: false }
    }

    /// What is there of a line that will not become whole.
    fn rest(&mut self) -> BytesMut {
        self.part.split()
    }

    /// Nothing more comes: what is there is the last line, which many leave without an end.
    fn last(&mut self, out: &mut BytesMut) -> Result<(), BoxError> {
        let line = self.rest();
        match self.line(&line)? {
            Some(edited) => out.extend_from_slice(&edited),
            None => *out = line,
        }
        Ok(())
    }

    /// The lines that are whole with these bytes, edited, up to one that cannot be. Any end of a line ends one, so that it does not
    /// matter how they are cut.
    fn feed(&mut self, bytes: &[u8], out: &mut BytesMut) -> Result<(), BoxError> {
        for piece in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let ends = piece.ends_with(b"\n") || piece.ends_with(b"\r");
            if self.passes {
                out.extend_from_slice(piece);
                self.passes = !ends;
                continue;
            }
            self.part.extend_from_slice(piece);
            if self.part.len() > MAX_LINE {
                self.passes = !ends;
                out.extend_from_slice(&self.part.split());
            } else if ends {
                let line = self.part.split();
                match self.line(&line)? {
                    Some(edited) => out.extend_from_slice(&edited),
                    None => out.extend_from_slice(&line),
                }
            }
        }
        Ok(())
    }

    /// The changed line; `None` where it stays.
    fn line(&self, line: &[u8]) -> Result<Option<Vec<u8>>, BoxError> {
        let Some(json) = line.strip_prefix(self.prefix) else { return Ok(None) };
        let Some(changed) = change(json, &*self.edit)? else { return Ok(None) };
        let space = json.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        let end = json.len() - json.iter().rev().take_while(|byte| byte.is_ascii_whitespace()).count();
        // One line stays one, whatever the edit has made of it.
        let changed =
            changed.trim().bytes().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte });
        let (before, after) = (json.get(..space).unwrap_or_default(), json.get(end..).unwrap_or_default());
        Ok(Some(
            self.prefix.iter().chain(before).copied().chain(changed).chain(after.iter().copied()).collect(),
        ))
    }
}

/// What an edit makes of a text that should be a JSON object; nothing of one that is none.
pub(super) fn change(json: &[u8], edit: &dyn Edit) -> Result<Option<String>, BoxError> {
    match std::str::from_utf8(json) {
        Ok(text) if Raw::parse(text).is_some_and(Raw::is_object) => edit.edit(text),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::Index};

    use super::*;
    use crate::adapt::chat::{answered_model, edit_fn};

    fn edited(text: &[u8], cuts: &[usize]) -> Vec<u8> {
        let mut lines = Lines::of_events(Arc::new(answered_model("m")));
        let (mut out, mut last) = (BytesMut::new(), BytesMut::new());
        for cut in cuts.windows(2) {
            lines.feed(&text[cut[0]..cut[1]], &mut out).unwrap();
        }
        lines.last(&mut last).unwrap();
        out.extend_from_slice(&last);
        out.to_vec()
    }

    #[test]
    fn each_line_that_is_json_is_edited_and_all_else_stays() {
        let text = "event: a\r\ndata: {\"model\": \"x\", \"n\": 1.0}\r\n\r\ndata:{\"model\":\"y\"}\n\n: {\"model\":\"z\"}\n\ndata: [DONE]\n\ndata: {\"model\":\"cut";
        let wanted = text.replace("\"x\"", "\"m\"").replace("\"y\"", "\"m\"");
        assert_eq!(String::from_utf8(edited(text.as_bytes(), &[0, text.len()])).unwrap(), wanted);
        let long = format!(
            "data: {{\"model\":\"x\",\"t\":\"{}\"}}\n\ndata: {{\"model\":\"x\"}}\n\n",
            "t".repeat(MAX_LINE)
        );
        let out = edited(long.as_bytes(), &[0, 300_000.min(long.len() - 40), long.len()]);
        assert!(out == edited(long.as_bytes(), &[0, long.len()]));
        assert!(
            out.ends_with(b"tt\"}\n\ndata: {\"model\":\"m\"}\n\n")
                && out.starts_with(b"data: {\"model\":\"x\"")
        );
    }

    #[test]
    fn what_came_before_a_line_that_cannot_be_edited_comes_out_however_it_is_cut() {
        let edit = Arc::new(edit_fn(|json| if json.contains("bad") { Err("bad".into()) } else { Ok(None) }));
        let text = b"{\"a\":1}\n{\"b\":\"bad\"}\n{\"c\":1}\n";
        for cut in [0, 3, 8, 12, text.len()] {
            let (mut lines, mut out) = (Lines::of_json(edit.clone()), BytesMut::new());
            let (first, second) = text.split_at(cut);
            let fed = lines.feed(first, &mut out).and_then(|()| lines.feed(second, &mut out));
            assert_eq!((fed.unwrap_err().to_string().as_str(), &out[..]), ("bad", &text[..8]), "{cut}");
        }
    }

    proptest! {
        #[test]
        fn however_it_is_cut_the_same_comes_out_and_other_bytes_stay(
            events in vec(prop_oneof![
                Just(&b"data: {\"model\":\"x\"}\n\n"[..]),
                Just(&b"data:{\"model\":\"y\"}\r"[..]),
                Just(&b"data: {\"model\":\r\n"[..]),
                Just(&b": hi\n"[..]),
                Just(&b"\xff\0data:"[..]),
                Just(&b"data: [DONE]\r\n\r\n"[..]),
            ], 0..12),
            cuts in vec(any::<Index>(), 0..8),
        ) {
            let text = events.concat();
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let out = edited(&text, &cuts);
            prop_assert_eq!(&out, &edited(&text, &[0, text.len()]));
            let back = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace("\"x\"", "\"m\"").replace("\"y\"", "\"m\"");
            prop_assert_eq!(back(&out), back(&text));
        }
    }
}
