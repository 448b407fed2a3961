//! `application/vnd.amazon.eventstream`: the binary messages in which AWS streams, Bedrock's answers among them.
//!
//! A message is a prelude (its length and that of its headers, with a checksum), headers with typed values, a payload
//! and a checksum over all of it. Bytes may be cut anywhere. No length is believed before its checksum was right, so no
//! peer makes the framer reserve memory: it holds what came of one message, up to a cap.
//!
//! ```
//! use stream_layer::{EventStreamFramer, EventStreamValue};
//!
//! // One message with the header `:event-type: ping` and the payload `{}`, cut in two.
//! let message = b"\0\0\0%\0\0\0\x13\xe8\xbd>\xc3\x0b:event-type\x07\0\x04ping{}X\xe0\x22\xb9";
//! let mut framer = EventStreamFramer::default();
//! assert!(framer.feed(&message[..9]).next_message().is_none());
//! let mut messages = framer.feed(&message[9..]);
//! let ping = messages.next_message().expect("a message")?;
//! assert_eq!(ping.header(":event-type"), Some(EventStreamValue::String("ping")));
//! assert_eq!(ping.payload(), b"{}");
//! assert!(messages.next_message().is_none());
//! assert!(!framer.is_cut());
//! # Ok::<(), stream_layer::EventStreamError>(())
//! ```

use std::{error::Error, fmt};

use failsoft_core::{Class, Fault, Hint, Verdict};

use crate::{LAYER, MAX_EVENT, TooLong};

/// Two lengths and their checksum.
const PRELUDE: usize = 12;

/// The checksum at the end.
const CHECKSUM: usize = 4;

/// The format's own limit on the headers of a message: 128 KiB.
const MAX_HEADERS: usize = 128 << 10;

/// Cuts a stream of bytes into the messages of `application/vnd.amazon.eventstream`.
///
/// A message that comes in one piece is not copied. After an error it gives nothing more: where the next message would
/// begin is not known.
pub struct EventStreamFramer {
    max: usize,
    /// What came of a message that is not whole yet.
    message: Vec<u8>,
    /// `message` was handed out, and makes room before the next.
    given: bool,
    failed: bool,
}

impl EventStreamFramer {
    /// A framer that refuses a message of more than `max_message` bytes, prelude and checksums included.
    #[must_use]
    pub const fn new(max_message: usize) -> Self {
        Self { max: max_message, message: Vec::new(), given: false, failed: false }
    }

    /// Takes the next bytes of the stream. Read the messages until there is none: what is not read is lost.
    pub const fn feed<'a>(&'a mut self, bytes: &'a [u8]) -> EventStreamMessages<'a> {
        EventStreamMessages { framer: self, rest: bytes }
    }

    /// Whether a message has begun and is not whole: a stream that ends here was cut.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        !self.failed && !self.given && !self.message.is_empty()
    }

    fn make_room(&mut self) {
        if std::mem::take(&mut self.given) {
            self.message.clear();
        }
    }

    fn fail(&mut self, err: EventStreamError) -> EventStreamError {
        self.failed = true;
        self.message = Vec::new();
        err
    }
}

impl Default for EventStreamFramer {
    /// With a cap of [`MAX_EVENT`].
    fn default() -> Self {
        Self::new(MAX_EVENT)
    }
}

impl fmt::Debug for EventStreamFramer {
    /// Without the content.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStreamFramer")
            .field("max_message", &self.max)
            .field("buffered", &self.message.len())
            .finish_non_exhaustive()
    }
}

/// The messages in what was fed; read them with [`next_message`](Self::next_message).
#[must_use = "messages that are not read are lost"]
pub struct EventStreamMessages<'a> {
    framer: &'a mut EventStreamFramer,
    rest: &'a [u8],
}

impl EventStreamMessages<'_> {
    /// The next message, whose checksums are right and whose headers can be read; `None` when more bytes are needed.
    ///
    /// # Errors
    ///
    /// When the bytes are no message, or one longer than the cap. Nothing comes after it.
    pub fn next_message(&mut self) -> Option<Result<EventStreamMessage<'_>, EventStreamError>> {
        let framer = &mut *self.framer;
        framer.make_room();
        if framer.failed {
            return None;
        }
        if framer.message.is_empty() {
            // Mostly a message lies as a whole in what was fed.
            let length = match length_of(self.rest, framer.max) {
                Some(Err(err)) => return Some(Err(framer.fail(err))),
                Some(Ok(length)) => length,
                None => usize::MAX,
            };
            if let Some((message, rest)) = self.rest.split_at_checked(length) {
                self.rest = rest;
                return Some(match check(message) {
                    Ok(()) => Ok(EventStreamMessage::of_checked(message)),
                    Err(err) => Err(framer.fail(err)),
                });
            }
        }
        loop {
            let wanted = match length_of(&framer.message, framer.max) {
                Some(Err(err)) => return Some(Err(framer.fail(err))),
                Some(Ok(length)) => length,
                None => PRELUDE,
            };
            let missing = wanted.saturating_sub(framer.message.len());
            if missing == 0 {
                break;
            }
            if self.rest.is_empty() {
                return None;
            }
            let (more, rest) = self.rest.split_at(missing.min(self.rest.len()));
            framer.message.extend_from_slice(more);
            self.rest = rest;
        }
        if let Err(err) = check(&framer.message) {
            return Some(Err(framer.fail(err)));
        }
        framer.given = true;
        Some(Ok(EventStreamMessage::of_checked(&framer.message)))
    }
}

impl fmt::Debug for EventStreamMessages<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStreamMessages").field("rest", &self.rest.len()).finish_non_exhaustive()
    }
}

/// How long the message is that begins here; `None` before its prelude is whole.
fn length_of(bytes: &[u8], max: usize) -> Option<Result<usize, EventStreamError>> {
    let (lengths, checksum) = bytes.first_chunk::<PRELUDE>()?.split_at(8);
    if crc32fast::hash(lengths) != number(checksum) {
        return Some(Err(EventStreamError::Prelude));
    }
    let (length, headers) = lengths.split_at(4);
    let (length, headers) = (number(length) as usize, number(headers) as usize);
    Some(if headers > MAX_HEADERS || length < headers.saturating_add(PRELUDE + CHECKSUM) {
        Err(EventStreamError::Lengths)
    } else if length > max {
        Err(EventStreamError::TooLong(TooLong::new(max)))
    } else {
        Ok(length)
    })
}

/// Whether a message of the right length is what it says.
fn check(message: &[u8]) -> Result<(), EventStreamError> {
    let (content, checksum) = message.split_last_chunk::<CHECKSUM>().ok_or(EventStreamError::Lengths)?;
    if crc32fast::hash(content) != number(checksum) {
        return Err(EventStreamError::Checksum);
    }
    let (headers, _) = sections(message).ok_or(EventStreamError::Lengths)?;
    if are_readable(headers) { Ok(()) } else { Err(EventStreamError::Headers) }
}

/// The headers and the payload of a message.
fn sections(message: &[u8]) -> Option<(&[u8], &[u8])> {
    let (prelude, rest) = message.split_first_chunk::<PRELUDE>()?;
    let (rest, _) = rest.split_last_chunk::<CHECKSUM>()?;
    rest.split_at_checked(number(&prelude[4..]) as usize)
}

/// Four bytes, the highest first.
fn number(bytes: &[u8]) -> u32 {
    bytes.iter().take(4).fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// One message whose checksums are right.
#[derive(Clone, Copy)]
pub struct EventStreamMessage<'a> {
    headers: &'a [u8],
    payload: &'a [u8],
}

impl<'a> EventStreamMessage<'a> {
    fn of_checked(message: &'a [u8]) -> Self {
        let (headers, payload) = sections(message).unwrap_or_default();
        Self { headers, payload }
    }

    /// The headers, in the order in which they came.
    #[must_use]
    pub const fn headers(&self) -> EventStreamHeaders<'a> {
        EventStreamHeaders { rest: self.headers }
    }

    /// The value of the first header of this name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<EventStreamValue<'a>> {
        self.headers().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// The first header of this name, where it is a string: `:message-type`, `:event-type`, `:exception-type` are.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&'a str> {
        match self.header(name) {
            Some(EventStreamValue::String(text)) => Some(text),
            _ => None,
        }
    }

    /// What the message is about: mostly JSON.
    #[must_use]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

impl fmt::Debug for EventStreamMessage<'_> {
    /// Without the payload.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStreamMessage")
            .field("headers", &self.headers)
            .field("payload", &self.payload.len())
            .finish()
    }
}

/// The headers of a message: names and values.
#[derive(Clone, Debug)]
pub struct EventStreamHeaders<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for EventStreamHeaders<'a> {
    type Item = (&'a str, EventStreamValue<'a>);

    /// Ends before the first header that cannot be read; a message that has one is refused as a whole.
    fn next(&mut self) -> Option<Self::Item> {
        let (header, rest) = header_of(self.rest)?;
        self.rest = rest;
        Some(header)
    }
}

type Header<'a> = (&'a str, EventStreamValue<'a>);

/// The first header in these bytes, and what comes after it.
fn header_of(bytes: &[u8]) -> Option<(Header<'_>, &[u8])> {
    let RawHeader { name, kind, value, rest } = raw_header_of(bytes)?;
    let value = match kind {
        0 => EventStreamValue::Bool(true),
        1 => EventStreamValue::Bool(false),
        2 => EventStreamValue::Byte(i8::from_be_bytes(*value.first_chunk()?)),
        3 => EventStreamValue::Short(i16::from_be_bytes(*value.first_chunk()?)),
        4 => EventStreamValue::Int(i32::from_be_bytes(*value.first_chunk()?)),
        5 => EventStreamValue::Long(i64::from_be_bytes(*value.first_chunk()?)),
        6 => EventStreamValue::Bytes(value),
        7 => EventStreamValue::String(std::str::from_utf8(value).ok()?),
        8 => EventStreamValue::Timestamp(i64::from_be_bytes(*value.first_chunk()?)),
        9 => EventStreamValue::Uuid(*value.first_chunk()?),
        _ => return None,
    };
    Some(((std::str::from_utf8(name).ok()?, value), rest))
}

/// A header of which nothing was made yet.
struct RawHeader<'a> {
    name: &'a [u8],
    kind: u8,
    value: &'a [u8],
    rest: &'a [u8],
}

/// The first header in these bytes, where its lengths are right and it is of a kind that is known.
fn raw_header_of(bytes: &[u8]) -> Option<RawHeader<'_>> {
    let (length, rest) = bytes.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(*length)).filter(|(name, _)| !name.is_empty())?;
    let (kind, rest) = rest.split_first()?;
    let (value, rest) = match kind {
        0 | 1 => rest.split_at_checked(0)?,
        2 => rest.split_at_checked(1)?,
        3 => rest.split_at_checked(2)?,
        4 => rest.split_at_checked(4)?,
        5 | 8 => rest.split_at_checked(8)?,
        6 | 7 => sized(rest)?,
        9 => rest.split_at_checked(16)?,
        _ => return None,
    };
    Some(RawHeader { name, kind: *kind, value, rest })
}

/// Whether all headers can be read: that is asked of each message, and made no values of.
fn are_readable(headers: &[u8]) -> bool {
    let is_text = |bytes: &[u8]| bytes.is_ascii() || std::str::from_utf8(bytes).is_ok();
    let mut rest = headers;
    while let Some(header) = raw_header_of(rest) {
        if !is_text(header.name) || header.kind == 7 && !is_text(header.value) {
            return false;
        }
        rest = header.rest;
    }
    rest.is_empty()
}

/// Bytes after their length in two bytes.
fn sized(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}

/// The value of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventStreamValue<'a> {
    /// True or false.
    Bool(bool),
    /// A number of one byte.
    Byte(i8),
    /// A number of two bytes.
    Short(i16),
    /// A number of four bytes.
    Int(i32),
    /// A number of eight bytes.
    Long(i64),
    /// Any bytes.
    Bytes(&'a [u8]),
    /// Text.
    String(&'a str),
    /// Milliseconds since 1970.
    Timestamp(i64),
    /// A UUID.
    Uuid([u8; 16]),
}

/// The bytes are no messages of `application/vnd.amazon.eventstream`. The framer gives nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventStreamError {
    /// A message is longer than its cap.
    TooLong(TooLong),
    /// The checksum of a prelude is wrong: damaged, or no such stream at all.
    Prelude,
    /// The lengths in a prelude contradict each other.
    Lengths,
    /// The checksum of a message is wrong.
    Checksum,
    /// The headers of a message cannot be read.
    Headers,
}

impl fmt::Display for EventStreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong(err) => return err.fmt(f),
            Self::Prelude => "the checksum of an event stream message's prelude is wrong",
            Self::Lengths => "the lengths of an event stream message contradict each other",
            Self::Checksum => "the checksum of an event stream message is wrong",
            Self::Headers => "the headers of an event stream message cannot be read",
        })
    }
}

impl Error for EventStreamError {}

impl From<EventStreamError> for Fault {
    /// Something on the way damaged the answer, or is no event stream: the request was fine, so the same one may work.
    fn from(err: EventStreamError) -> Self {
        match err {
            EventStreamError::TooLong(err) => err.into(),
            _ => Self::with_verdict(Verdict::of(Class::Transient).with_hint(Hint::Same), LAYER)
                .with_message("a damaged event stream")
                .with_source(err),
        }
    }
}
