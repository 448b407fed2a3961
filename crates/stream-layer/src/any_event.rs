//! The protocol of server-sent events where any event with data is content.

use bytes::Bytes;
use failsoft_core::{Class, End, Fault, Hint, SoftKind, Verdict, is_encoded};
use http::response::Parts;

use crate::{Decoder, LAYER, MAX_EVENT, Mode, Protocol, Reader, Seen, SseEvent, SseFramer, Until};

/// Server-sent events of which any with data is content, but those that only keep the connection open.
///
/// Applies to successes whose content type is `text/event-stream`; everything else passes, and so does what is encoded
/// (`content-encoding`) or has no body (204). A stream that ends without any content is a [`SoftKind::Empty`] failure.
///
/// ```
/// use stream_layer::{AnyEvent, StreamLayer};
///
/// // A stream that must end with `data: [DONE]`, and that may say `event: error`.
/// let layer = StreamLayer::new(AnyEvent::new().terminator("[DONE]").error_event("error"));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct AnyEvent {
    max_event: usize,
    terminator: Option<&'static str>,
    error_event: Option<&'static str>,
    keepalive_events: &'static [&'static str],
}

/// Events that servers send so that the connection is not taken for dead; the data in them says nothing. Anthropic's is a
/// `ping`, the web frameworks' are the others.
const KEEPALIVES: &[&str] = &["ping", "heartbeat", "keepalive", "keep-alive"];

impl AnyEvent {
    /// Without a terminator and error events, and with a cap of [`MAX_EVENT`] for one event.
    #[must_use]
    pub const fn new() -> Self {
        Self { max_event: MAX_EVENT, terminator: None, error_event: None, keepalive_events: KEEPALIVES }
    }

    /// The names of events that only keep the connection open: whatever their data is, they are no content, do not commit
    /// and do not end a silence. `ping`, `heartbeat`, `keepalive` and `keep-alive` by default; with none, every event
    /// with data is content.
    #[must_use]
    pub const fn keepalive_events(mut self, names: &'static [&'static str]) -> Self {
        self.keepalive_events = names;
        self
    }

    /// The data that ends the stream, such as `[DONE]`. A stream that ends without it was cut: a
    /// [`SoftKind::Truncated`] failure.
    #[must_use]
    pub const fn terminator(mut self, data: &'static str) -> Self {
        self.terminator = Some(data);
        self
    }

    /// The name of events that report a failure of the server, such as `error`: a [`Class::Transient`] failure.
    #[must_use]
    pub const fn error_event(mut self, name: &'static str) -> Self {
        self.error_event = Some(name);
        self
    }

    /// The most bytes of one event.
    #[must_use]
    pub const fn max_event(mut self, bytes: usize) -> Self {
        self.max_event = bytes;
        self
    }
}

impl Default for AnyEvent {
    fn default() -> Self {
        Self::new()
    }
}

impl<Req: ?Sized> Protocol<Req> for AnyEvent {
    type Reader = Self;

    fn request(&self, _: &Req) -> Self {
        *self
    }
}

impl Reader for AnyEvent {
    type Decoder = AnyEventDecoder;

    fn head(self, parts: &mut Parts, until: Until) -> Mode<AnyEventDecoder> {
        let kind = parts.headers.get(http::header::CONTENT_TYPE).map_or(&[][..], http::HeaderValue::as_bytes);
        let prefix = b"text/event-stream";
        let is_sse = kind.get(..prefix.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(prefix));
        if !parts.status.is_success() || !is_sse || !is_readable(parts) {
            return Mode::Pass;
        }
        let decoder =
            AnyEventDecoder { framer: SseFramer::new(self.max_event), protocol: self, content: false };
        Mode::Hold { decoder, until }
    }
}

/// The decoder of [`AnyEvent`].
#[derive(Debug)]
pub struct AnyEventDecoder {
    framer: SseFramer,
    protocol: AnyEvent,
    content: bool,
}

/// What one event means.
enum Meaning {
    Noise,
    Content,
    End,
    Error,
}

impl AnyEvent {
    fn meaning(&self, event: SseEvent<'_>) -> Meaning {
        match event.data() {
            _ if self.error_event.is_some_and(|name| event.name() == name.as_bytes()) => Meaning::Error,
            None | Some([]) => Meaning::Noise,
            _ if self.keepalive_events.iter().any(|name| event.name() == name.as_bytes()) => Meaning::Noise,
            Some(data) if self.terminator.is_some_and(|end| data.trim_ascii() == end.as_bytes()) => {
                Meaning::End
            }
            Some(_) => Meaning::Content,
        }
    }
}

impl Decoder for AnyEventDecoder {
    fn feed(&mut self, bytes: &Bytes) -> Seen {
        let mut seen = Seen::default();
        let mut events = self.framer.feed(bytes);
        while let Some(event) = events.next_event() {
            let event = match event {
                Ok(event) => event,
                Err(err) => {
                    seen.events += 1;
                    seen.fault = Some(err.into());
                    break;
                }
            };
            let meaning = self.protocol.meaning(event);
            // What only keeps the connection open is not counted: an answer is not handed on for that.
            seen.events += usize::from(!matches!(meaning, Meaning::Noise));
            match meaning {
                Meaning::Noise => {}
                Meaning::Content => {
                    seen.content = true;
                    self.content = true;
                }
                Meaning::End if self.content => {
                    seen.end = Some(Verdict::SUCCESS);
                    break;
                }
                Meaning::End => {
                    seen.fault = Some(empty());
                    break;
                }
                Meaning::Error => {
                    seen.fault = Some(reported());
                    break;
                }
            }
        }
        seen
    }

    fn end(&mut self, end: End<'_>) -> Result<Option<Verdict>, Fault> {
        if matches!(end, End::Error(_)) {
            return Ok(None);
        }
        let mut ended = self.protocol.terminator.is_none();
        if let Some(event) = self.framer.finish() {
            match self.protocol.meaning(event) {
                Meaning::Noise => {}
                Meaning::Content => self.content = true,
                Meaning::End => ended = true,
                Meaning::Error => return Err(reported()),
            }
        }
        match (self.content, ended) {
            (false, _) => Err(empty()),
            (true, false) => Err(cut_short("the stream ended without its terminator")),
            (true, true) => Ok(self.protocol.terminator.map(|_| Verdict::SUCCESS)),
        }
    }
}

/// Whether the body's own bytes are there to be read: none come with a 204, and encoded ones say nothing.
pub(crate) fn is_readable(head: &Parts) -> bool {
    !matches!(head.status.as_u16(), 204 | 205) && !is_encoded(&head.headers)
}

fn reported() -> Fault {
    Fault::new(Class::Transient, LAYER).with_message("the upstream reported an error in its stream")
}

/// The stream ended without any content: the request was fine, so the same one may work.
pub(crate) fn empty() -> Fault {
    let verdict = Verdict::soft(SoftKind::Empty).with_hint(Hint::Same);
    Fault::with_verdict(verdict, LAYER).with_message("the stream ended without any content")
}

/// The stream ended too early: the request was fine, so the same one may work.
pub(crate) fn cut_short(message: &'static str) -> Fault {
    let verdict = Verdict::soft(SoftKind::Truncated).with_hint(Hint::Same);
    Fault::with_verdict(verdict, LAYER).with_message(message)
}
