//! Newline-delimited JSON and its kin: a framer for lines, and the protocol where any line is content.
//!
//! ```
//! use stream_layer::LineFramer;
//!
//! let mut framer = LineFramer::default();
//! let mut lines = Vec::new();
//! for chunk in ["{\"a\":", "1}\r\n\n{\"a\":2}"] {
//!     let mut fed = framer.feed(chunk.as_bytes());
//!     while let Some(line) = fed.next_line() {
//!         lines.push(line?.to_vec());
//!     }
//! }
//! lines.extend(framer.finish().map(<[u8]>::to_vec)); // the last line end is missing
//! assert_eq!(lines, [b"{\"a\":1}", b"{\"a\":2}"]);
//! # Ok::<(), stream_layer::TooLong>(())
//! ```

use std::fmt;

use bytes::Bytes;
use failsoft_core::{End, Fault, Verdict};
use http::response::Parts;
use memchr::memchr;

use crate::{
    Decoder, MAX_EVENT, Mode, Protocol, Reader, Seen, TooLong, Until,
    any_event::{empty, is_readable},
    sse::after,
};

/// Cuts a stream of bytes into lines that end with LF or CRLF. Blank lines are skipped. Its memory is bounded by the
/// length of one line, and a line that comes in one piece is not copied.
pub struct LineFramer {
    max: usize,
    line: Vec<u8>,
    /// A first line was read: no byte order mark can follow.
    begun: bool,
    /// `line` was handed out, and makes room before the next.
    given: bool,
    failed: bool,
}

impl LineFramer {
    /// A framer that refuses a line of more than `max_line` bytes.
    #[must_use]
    pub const fn new(max_line: usize) -> Self {
        Self { max: max_line, line: Vec::new(), begun: false, given: false, failed: false }
    }

    /// Takes the next bytes of the stream. Read the lines until there is none: what is not read is lost.
    pub const fn feed<'a>(&'a mut self, bytes: &'a [u8]) -> Lines<'a> {
        Lines { framer: self, rest: bytes }
    }

    /// The stream is over: gives a last line without its line end.
    pub fn finish(&mut self) -> Option<&[u8]> {
        self.make_room();
        self.given = true;
        let begun = std::mem::replace(&mut self.begun, true);
        let line = strip(&self.line, begun);
        (!self.failed && !line.is_empty()).then_some(line)
    }

    fn make_room(&mut self) {
        if std::mem::take(&mut self.given) {
            self.line.clear();
        }
    }
}

/// The line without its CR, its blanks at both ends, and the byte order mark before the first.
fn strip(line: &[u8], begun: bool) -> &[u8] {
    let line = if begun { line } else { line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line) };
    line.trim_ascii()
}

impl Default for LineFramer {
    /// With a cap of [`MAX_EVENT`].
    fn default() -> Self {
        Self::new(MAX_EVENT)
    }
}

impl fmt::Debug for LineFramer {
    /// Without the content.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineFramer")
            .field("max_line", &self.max)
            .field("buffered", &self.line.len())
            .finish_non_exhaustive()
    }
}

/// The lines in what was fed; read them with [`next_line`](Self::next_line).
#[must_use = "lines that are not read are lost"]
pub struct Lines<'a> {
    framer: &'a mut LineFramer,
    rest: &'a [u8],
}

impl<'a> Lines<'a> {
    /// What was fed and is not read yet.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Takes the next line without looking for its end, where a reader knows it. `know` gets the bytes from the start of the
    /// line on; it says how many of those are the line, without a line end among them, and what to give. `None`, and the line
    /// is still the next, where it does not know it, where there are blanks around the line, or where not all of it was fed.
    ///
    /// ```
    /// use stream_layer::LineFramer;
    ///
    /// let mut framer = LineFramer::default();
    /// let mut lines = framer.feed(b"1\nping\n2\n");
    /// lines.next_line();
    /// let know = |line: &[u8]| line.starts_with(b"ping").then_some((4, "a ping"));
    /// assert_eq!(lines.next_known(know), Some("a ping"));
    /// assert_eq!(lines.next_known(know), None);
    /// assert_eq!(lines.next_line(), Some(Ok(&b"2"[..])));
    /// ```
    #[inline]
    pub fn next_known<T>(&mut self, know: impl FnOnce(&'a [u8]) -> Option<(usize, T)>) -> Option<T> {
        let framer = &mut *self.framer;
        framer.make_room();
        if framer.failed || !framer.begun || !framer.line.is_empty() {
            return None;
        }
        let (length, known) = know(self.rest)?;
        let rest = self.rest.get(length..)?;
        let rest = after(rest, b"\n").or_else(|| after(rest, b"\r\n"))?;
        // With the CR that may be there: a line of just about that size is read in the other way.
        if length == 0 || length >= framer.max {
            return None;
        }
        self.rest = rest;
        Some(known)
    }

    /// The next line without its end and the blanks around it; `None` when more bytes are needed.
    ///
    /// # Errors
    ///
    /// When a line is longer than the cap. Nothing comes after it.
    pub fn next_line(&mut self) -> Option<Result<&[u8], TooLong>> {
        let framer = &mut *self.framer;
        framer.make_room();
        while !framer.failed {
            let end = memchr(b'\n', self.rest);
            let more = end.unwrap_or(self.rest.len());
            if framer.line.len().saturating_add(more) > framer.max {
                framer.failed = true;
                framer.line = Vec::new();
                return Some(Err(TooLong::new(framer.max)));
            }
            let Some(end) = end else {
                framer.line.extend_from_slice(self.rest);
                self.rest = &[];
                return None;
            };
            let (line, rest) = (&self.rest[..end], &self.rest[end + 1..]);
            self.rest = rest;
            let begun = std::mem::replace(&mut framer.begun, true);
            if framer.line.is_empty() {
                let line = strip(line, begun);
                if !line.is_empty() {
                    return Some(Ok(line));
                }
                continue;
            }
            framer.line.extend_from_slice(line);
            if strip(&framer.line, begun).is_empty() {
                framer.line.clear();
                continue;
            }
            framer.given = true;
            return Some(Ok(strip(&framer.line, begun)));
        }
        None
    }
}

impl fmt::Debug for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").field("rest", &self.rest.len()).finish_non_exhaustive()
    }
}

/// Lines of which any that is not blank is content: NDJSON, JSON lines, logs.
///
/// Applies to every success; a failure passes, and so does what is encoded (`content-encoding`) or has no body (204). A
/// stream without any line is a [`SoftKind::Empty`](failsoft_core::SoftKind::Empty) failure.
///
/// ```
/// let layer = stream_layer::StreamLayer::new(stream_layer::AnyLine::new());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct AnyLine {
    max_line: usize,
}

impl AnyLine {
    /// With a cap of [`MAX_EVENT`] for one line.
    #[must_use]
    pub const fn new() -> Self {
        Self { max_line: MAX_EVENT }
    }

    /// The most bytes of one line.
    #[must_use]
    pub const fn max_line(mut self, bytes: usize) -> Self {
        self.max_line = bytes;
        self
    }
}

impl Default for AnyLine {
    fn default() -> Self {
        Self::new()
    }
}

impl<Req: ?Sized> Protocol<Req> for AnyLine {
    type Reader = Self;

    fn request(&self, _: &Req) -> Self {
        *self
    }
}

impl Reader for AnyLine {
    type Decoder = AnyLineDecoder;

    fn head(self, parts: &mut Parts, until: Until) -> Mode<AnyLineDecoder> {
        if !parts.status.is_success() || !is_readable(parts) {
            return Mode::Pass;
        }
        let decoder = AnyLineDecoder { framer: LineFramer::new(self.max_line), content: false };
        Mode::Hold { decoder, until }
    }
}

/// The decoder of [`AnyLine`].
#[derive(Debug)]
pub struct AnyLineDecoder {
    framer: LineFramer,
    content: bool,
}

impl Decoder for AnyLineDecoder {
    fn feed(&mut self, bytes: &Bytes) -> Seen {
        let mut seen = Seen::default();
        let mut lines = self.framer.feed(bytes);
        while let Some(line) = lines.next_line() {
            match line {
                Ok(_) => {
                    seen.events += 1;
                    seen.content = true;
                }
                Err(err) => {
                    seen.events += 1;
                    seen.fault = Some(err.into());
                }
            }
        }
        self.content |= seen.content;
        seen
    }

    fn end(&mut self, end: End<'_>) -> Result<Option<Verdict>, Fault> {
        if matches!(end, End::Error(_)) {
            return Ok(None);
        }
        let last = self.framer.finish().is_some();
        if self.content || last { Ok(None) } else { Err(empty()) }
    }
}
