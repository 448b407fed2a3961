//! Server-sent events: a framer that takes bytes cut anywhere.
//!
//! The framer works on bytes, so a character cut in two is whole again before anybody looks at it. It knows all three
//! line ends and their mixtures, a byte order mark, comments, data over several lines and fields without a space,
//! and it flushes a last event that the server did not terminate. Its memory is bounded by the size of one event.
//!
//! ```
//! use stream_layer::SseFramer;
//!
//! let mut framer = SseFramer::default();
//! let mut texts = Vec::new();
//! for chunk in ["event: a\r\nda", "ta: one\r\n\r", "\ndata:t", "wo\n\n"] {
//!     let mut events = framer.feed(chunk.as_bytes());
//!     while let Some(event) = events.next_event() {
//!         texts.push(event?.text().into_owned());
//!     }
//! }
//! assert_eq!(texts, ["one", "two"]);
//! # Ok::<(), stream_layer::TooLong>(())
//! ```

use std::{borrow::Cow, fmt};

use memchr::{memchr, memchr2};

use crate::{MAX_EVENT, TooLong};

/// Cuts a stream of bytes into server-sent events.
pub struct SseFramer {
    max: usize,
    /// The line that is not yet complete.
    line: Vec<u8>,
    data: Vec<u8>,
    name: Vec<u8>,
    /// Bytes of the event's complete lines.
    size: usize,
    state: State,
}

#[derive(Clone, Copy, Default)]
struct State {
    /// A first line was read: no byte order mark can follow.
    begun: bool,
    /// The last line ended with CR at the end of what was fed: an LF that follows belongs to it.
    after_cr: bool,
    /// The event has lines.
    lines: bool,
    /// One of them is data.
    data: bool,
    /// The event was handed out, and makes room before the next.
    given: bool,
    /// An event was too long.
    failed: bool,
}

impl SseFramer {
    /// A framer that refuses an event of more than `max_event` bytes, line ends not counted.
    #[must_use]
    pub const fn new(max_event: usize) -> Self {
        let state =
            State { begun: false, after_cr: false, lines: false, data: false, given: false, failed: false };
        Self { max: max_event, line: Vec::new(), data: Vec::new(), name: Vec::new(), size: 0, state }
    }

    /// Takes the next bytes of the stream. Read the events until there is none: what is not read is lost.
    pub const fn feed<'a>(&'a mut self, bytes: &'a [u8]) -> SseEvents<'a> {
        SseEvents { framer: self, rest: bytes }
    }

    /// The stream is over: gives what was left without the blank line that ends an event.
    ///
    /// The standard says to drop it; servers that forget the last line end would lose their `[DONE]`. Whoever takes
    /// it should check that it is whole.
    pub fn finish(&mut self) -> Option<SseEvent<'_>> {
        self.make_room();
        if self.state.failed {
            return None;
        }
        let line = std::mem::take(&mut self.line);
        self.take_line(&line);
        self.state.lines.then(|| self.give(false))
    }

    /// Whether nothing of an event is here, nor half of a line end.
    fn is_between_events(&self) -> bool {
        let State { begun, after_cr, lines, .. } = self.state;
        begun && !after_cr && !lines && self.line.is_empty()
    }

    fn make_room(&mut self) {
        if self.state.given {
            self.data.clear();
            self.name.clear();
            self.size = 0;
            self.state = State { lines: false, data: false, given: false, ..self.state };
        }
    }

    /// Whether the event and `more` bytes of its current line still fit.
    fn check(&mut self, more: usize) -> Result<(), TooLong> {
        if self.size.saturating_add(self.line.len()).saturating_add(more) <= self.max {
            return Ok(());
        }
        self.state.failed = true;
        Err(TooLong::new(self.max))
    }

    /// Takes a complete line; `true` when it ends an event.
    fn take_line(&mut self, mut line: &[u8]) -> bool {
        if !std::mem::replace(&mut self.state.begun, true) {
            line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        }
        if line.is_empty() {
            return self.state.lines;
        }
        self.size = self.size.saturating_add(line.len());
        self.state.lines = true;
        let (field, value) = match memchr(b':', line) {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &[][..]),
        };
        let value = strip_blank(value);
        match field {
            b"data" => {
                if std::mem::replace(&mut self.state.data, true) {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            }
            b"event" => {
                self.name.clear();
                self.name.extend_from_slice(value);
            }
            // Comments, ids, reconnection times, and what is not in the standard.
            _ => {}
        }
        false
    }

    fn give(&mut self, terminated: bool) -> SseEvent<'_> {
        self.state.given = true;
        SseEvent { name: &self.name, data: self.state.data.then_some(self.data.as_slice()), terminated }
    }
}

impl Default for SseFramer {
    /// With a cap of [`MAX_EVENT`].
    fn default() -> Self {
        Self::new(MAX_EVENT)
    }
}

impl fmt::Debug for SseFramer {
    /// Without the content.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SseFramer")
            .field("max_event", &self.max)
            .field("buffered", &(self.line.len() + self.data.len() + self.name.len()))
            .finish_non_exhaustive()
    }
}

/// The events in what was fed; read them with [`next_event`](Self::next_event).
#[must_use = "events that are not read are lost"]
pub struct SseEvents<'a> {
    framer: &'a mut SseFramer,
    rest: &'a [u8],
}

impl<'a> SseEvents<'a> {
    /// What was fed and is not read yet.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Takes the next event without looking for its end, where a reader knows it. `know` gets the event's name, and the
    /// bytes that come from the start of its data on; it says how many of those are the data, without a line end among
    /// them, and what to give. `None`, and the event is still the next, where it does not know it, where the event is
    /// anything else than at most one name before one line of data, or where not all of it was fed.
    ///
    /// ```
    /// use stream_layer::SseFramer;
    ///
    /// let mut framer = SseFramer::default();
    /// let mut events = framer.feed(b"data: 1\n\ndata: ping\n\ndata: 2\n\n");
    /// events.next_event();
    /// let know = |_: &[u8], data: &[u8]| data.starts_with(b"ping").then_some((4, "a ping"));
    /// assert_eq!(events.next_known(know), Some("a ping"));
    /// assert_eq!(events.next_known(know), None);
    /// assert_eq!(events.next_event().and_then(|event| event.ok()?.data()), Some(&b"2"[..]));
    /// ```
    #[inline]
    pub fn next_known<T>(
        &mut self,
        know: impl FnOnce(&'a [u8], &'a [u8]) -> Option<(usize, T)>,
    ) -> Option<T> {
        let framer = &mut *self.framer;
        framer.make_room();
        if framer.state.failed || !framer.is_between_events() {
            return None;
        }
        let (name, size, rest) = name_line(self.rest)?;
        let data = strip_blank(after(rest, b"data:")?);
        let (length, known) = know(name, data)?;
        let rest = data.get(length..)?;
        let rest = after(rest, b"\n\n").or_else(|| after(rest, b"\r\n\r\n"))?;
        // With the blank that may be there: an event of just about that size is read in the other way.
        if size.saturating_add(length).saturating_add(b"data: ".len()) > framer.max {
            return None;
        }
        self.rest = rest;
        Some(known)
    }

    /// The next event; `None` when more bytes are needed.
    ///
    /// # Errors
    ///
    /// When an event is longer than the cap. Nothing comes after it.
    pub fn next_event(&mut self) -> Option<Result<SseEvent<'_>, TooLong>> {
        let framer = &mut *self.framer;
        framer.make_room();
        if framer.state.failed {
            return None;
        }
        if framer.is_between_events() {
            if let Some((event, rest)) = simple_event(self.rest, framer.max) {
                self.rest = rest;
                return Some(Ok(event));
            }
        }
        loop {
            if framer.state.after_cr && !self.rest.is_empty() {
                framer.state.after_cr = false;
                self.rest = self.rest.strip_prefix(b"\n").unwrap_or(self.rest);
            }
            let end = memchr2(b'\r', b'\n', self.rest);
            if let Err(err) = framer.check(end.unwrap_or(self.rest.len())) {
                framer.line = Vec::new();
                framer.data = Vec::new();
                return Some(Err(err));
            }
            let Some(end) = end else {
                framer.line.extend_from_slice(self.rest);
                self.rest = &[];
                return None;
            };
            let (line, rest) = (&self.rest[..end], &self.rest[end + 1..]);
            framer.state.after_cr = self.rest[end] == b'\r';
            self.rest = rest;
            let ends = if framer.line.is_empty() {
                framer.take_line(line)
            } else {
                let mut whole = std::mem::take(&mut framer.line);
                whole.extend_from_slice(line);
                let ends = framer.take_line(&whole);
                whole.clear();
                framer.line = whole;
                ends
            };
            if ends {
                return Some(Ok(framer.give(true)));
            }
        }
    }
}

/// Takes the usual event off the front of some bytes, and copies nothing: all of it is there, with at most one name before one
/// line of data. Any other is `None`, and is put together line by line.
fn simple_event(bytes: &[u8], max: usize) -> Option<(SseEvent<'_>, &[u8])> {
    let (name, size, rest) = name_line(bytes)?;
    let (line, rest) = line(after(rest, b"data:")?)?;
    let rest = after(rest, b"\n").or_else(|| after(rest, b"\r\n"))?;
    if size.saturating_add(b"data:".len() + line.len()) > max {
        return None;
    }
    Some((SseEvent { name, data: Some(strip_blank(line)), terminated: true }, rest))
}

/// The name that an event may begin with, the bytes of that line, and what comes after it.
#[inline]
fn name_line(bytes: &[u8]) -> Option<(&[u8], usize, &[u8])> {
    let Some(named) = after(bytes, b"event:") else { return Some((&[], 0, bytes)) };
    let (line, rest) = line(named)?;
    Some((strip_blank(line), b"event:".len() + line.len(), rest))
}

/// A line with an LF or a CRLF behind it, and what comes after that.
#[inline]
fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr2(b'\r', b'\n', bytes)?;
    let (line, rest) = bytes.split_at(end);
    let rest = after(rest, b"\n").or_else(|| after(rest, b"\r\n"))?;
    Some((line, rest))
}

/// What comes after a prefix; of a known length, it is compared without a call.
#[inline]
pub(crate) fn after<'a, const N: usize>(bytes: &'a [u8], prefix: &[u8; N]) -> Option<&'a [u8]> {
    let (first, rest) = bytes.split_first_chunk()?;
    (first == prefix).then_some(rest)
}

/// The value of a field: one blank after the colon does not belong to it.
#[inline]
fn strip_blank(value: &[u8]) -> &[u8] {
    after(value, b" ").unwrap_or(value)
}

impl fmt::Debug for SseEvents<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SseEvents").field("rest", &self.rest.len()).finish_non_exhaustive()
    }
}

/// One event. A block of nothing but comments, such as a keepalive, is one without data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SseEvent<'a> {
    name: &'a [u8],
    data: Option<&'a [u8]>,
    terminated: bool,
}

impl<'a> SseEvent<'a> {
    /// The value of its `event` field; empty where it has none, which the standard calls `message`.
    #[must_use]
    pub const fn name(&self) -> &'a [u8] {
        self.name
    }

    /// Its `data` lines joined by LF; `None` where it has none.
    #[must_use]
    pub const fn data(&self) -> Option<&'a [u8]> {
        self.data
    }

    /// Its data as text: empty where it has none, with replacement characters for what is not UTF-8.
    #[must_use]
    pub fn text(&self) -> Cow<'a, str> {
        let data = self.data().unwrap_or_default();
        // The lossy way looks at each byte by itself.
        std::str::from_utf8(data).map_or_else(|_| String::from_utf8_lossy(data), Cow::Borrowed)
    }

    /// Whether the blank line that ends an event was there; it is missing only at the end of a stream.
    #[must_use]
    pub const fn is_terminated(&self) -> bool {
        self.terminated
    }
}
