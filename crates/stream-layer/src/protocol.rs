//! The seam between the layer and a wire format: who reads a stream, and what was seen in it.
//!
//! A [`Protocol`] looks at the request and gives a [`Reader`]; the reader looks at the response's head and says in which
//! [`Mode`] the body is read; a [`Decoder`] is fed the body's bytes and says what it [`Seen`]. The layer does the rest:
//! it holds, commits, times, passes the bytes through, and writes the verdict into the
//! [`Insight`](failsoft_core::Insight).
//!
//! A protocol whose pieces are lines, of which `!` reports a failure and `.` is the end:
//!
//! ```
//! use failsoft_core::{Class, End, Fault, SoftKind, Verdict};
//! use stream_layer::{Decoder, LineFramer, Mode, Protocol, Reader, Seen, StreamLayer, Until};
//!
//! #[derive(Clone, Copy)]
//! struct Dots;
//!
//! impl<Req: ?Sized> Protocol<Req> for Dots {
//!     type Reader = Self;
//!     fn request(&self, _: &Req) -> Self { Dots }
//! }
//!
//! impl Reader for Dots {
//!     type Decoder = DotsDecoder;
//!     fn head(self, parts: &mut http::response::Parts, until: Until) -> Mode<DotsDecoder> {
//!         match parts.status.is_success() {
//!             true => Mode::Hold { decoder: DotsDecoder::default(), until },
//!             false => Mode::Pass,
//!         }
//!     }
//! }
//!
//! #[derive(Default)]
//! struct DotsDecoder(LineFramer);
//!
//! impl Decoder for DotsDecoder {
//!     fn feed(&mut self, bytes: &bytes::Bytes) -> Seen {
//!         let mut seen = Seen::default();
//!         let mut lines = self.0.feed(bytes);
//!         while let Some(line) = lines.next_line() {
//!             seen.events += 1;
//!             match line {
//!                 Ok(b".") => seen.end = Some(Verdict::SUCCESS),
//!                 Ok(b"!") => seen.fault = Some(Fault::new(Class::Overloaded, "dots")),
//!                 Ok(_) => seen.content = true,
//!                 Err(too_long) => seen.fault = Some(too_long.into()),
//!             }
//!             if seen.is_over() { break }
//!         }
//!         seen
//!     }
//!
//!     fn end(&mut self, end: End<'_>) -> Result<Option<Verdict>, Fault> {
//!         match end {
//!             End::Error(_) => Ok(None),
//!             _ => Err(Fault::new(Class::Soft(SoftKind::Truncated), "dots")),
//!         }
//!     }
//! }
//!
//! let layer = StreamLayer::new(Dots);
//! ```

use std::time::Duration;

use bytes::Bytes;
use failsoft_core::{End, Fault, Verdict};
use http::response::Parts;

/// A wire format, chosen when the layer is made. It looks at each request.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no protocol for requests of the type `{Req}`",
    note = "`AnyContent`, `AnyEvent` and `AnyLine` serve every request"
)]
pub trait Protocol<Req: ?Sized> {
    /// Reads the answer to one request. All state of one attempt is in it and its decoder.
    type Reader: Reader;

    /// Looks at a request that is about to be sent.
    fn request(&self, request: &Req) -> Self::Reader;
}

/// Reads the answer to one request.
pub trait Reader {
    /// Reads the body.
    type Decoder: Decoder;

    /// The limits of time for this request, made from those of the layer: more time for a model that thinks, no limit
    /// on first content for an answer that is not streamed. They hold from the call on.
    #[must_use]
    fn limits(&self, limits: Limits) -> Limits {
        limits
    }

    /// The limits for this answer, made from those of the layer once its head is there: it may be of another kind than
    /// the request let expect. They replace the limits of the request, and still count from the call.
    #[must_use]
    fn limits_of_answer(&self, _head: &Parts, limits: Limits) -> Limits {
        self.limits(limits)
    }

    /// Looks at the head of the answer, and may change it: here an [`Insight`](failsoft_core::Insight) of the
    /// protocol's own goes into the extensions. Where there is none and the body is read, the layer adds one.
    ///
    /// `until` is how long the layer is set to hold; the protocol may know better.
    fn head(self, parts: &mut Parts, until: Until) -> Mode<Self::Decoder>;
}

/// In which way a body is read.
#[derive(Debug)]
pub enum Mode<D> {
    /// Handed on at once and not read. The idle limit holds, any data being progress, and so does the total limit.
    Pass,
    /// Handed on at once, and read while it passes.
    Watch(D),
    /// Held at first, and read; so a failure in what is held is a failure of the call.
    Hold {
        /// Reads it.
        decoder: D,
        /// How long it is held.
        until: Until,
    },
}

/// How long a body is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Until the first content, and no longer than one of these limits: then it is handed on without.
    Content {
        /// So many whole events: 64 by default.
        events: usize,
        /// More than so many bytes: 256 KiB by default.
        bytes: usize,
    },
    /// Until its end.
    End {
        /// More than so many bytes are not held.
        bytes: usize,
        /// What becomes of a body that is longer.
        beyond: Beyond,
    },
}

impl Default for Until {
    /// The first content, within 64 events and 256 KiB.
    fn default() -> Self {
        Self::Content { events: 64, bytes: 256 << 10 }
    }
}

/// What becomes of a body that is longer than what may be held to the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Beyond {
    /// It is handed on: what was held, then the rest as it comes. Failures from there on are errors of the body.
    #[default]
    Commit,
    /// The call fails: [`Soft(Malformed)`](failsoft_core::SoftKind::Malformed), for another route.
    Fail,
}

/// Limits of time; `None` is no limit. They start at the call. The soft ones are reported, and never a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// From the call to the first content: 10 s by default.
    pub first_content: Option<Duration>,
    /// The same as a soft limit: 4 s by default.
    pub soft_first_content: Option<Duration>,
    /// The longest silence of the upstream after that: 30 s by default.
    pub idle: Option<Duration>,
    /// The same as a soft limit: 0.5 s by default.
    pub soft_idle: Option<Duration>,
    /// From the call to the end: none by default.
    pub total: Option<Duration>,
}

impl Limits {
    pub(crate) const NONE: Self =
        Self { first_content: None, soft_first_content: None, idle: None, soft_idle: None, total: None };
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            first_content: Some(Duration::from_secs(10)),
            soft_first_content: Some(Duration::from_secs(4)),
            idle: Some(Duration::from_secs(30)),
            soft_idle: Some(Duration::from_millis(500)),
            total: None,
        }
    }
}

impl Limits {
    /// With so many times the time for the first content.
    pub(crate) fn with_grace(mut self, factor: f64) -> Self {
        for limit in [&mut self.first_content, &mut self.soft_first_content].into_iter().flatten() {
            *limit = Duration::try_from_secs_f64(limit.as_secs_f64() * factor).unwrap_or(Duration::MAX);
        }
        self
    }
}

/// Reads one body.
///
/// `Sync` because reqwest wants it of bodies, `Unpin` because a body that was polled moves out of the future.
pub trait Decoder: Send + Sync + Unpin + 'static {
    /// Looks at the next bytes, cut anywhere; a clone of them, to be judged as a whole later, is no copy. It stops at the protocol's own end and at a failure, and is not fed
    /// again after either.
    ///
    /// A decoder that keeps an [`Insight`](failsoft_core::Insight) writes there what it learns, but not the verdict:
    /// it returns that, and the layer writes it when the bytes that show it are handed on.
    fn feed(&mut self, bytes: &Bytes) -> Seen;

    /// The body is over before the protocol's own end was seen; or a limit of time passed while the body of a failed status
    /// was held, which is an error then.
    ///
    /// `Ok` lets the end pass as it is. A verdict with it is final: an answer that is known to be good, or a failing
    /// upstream's own error response, which stays a response. `None` claims nothing: a clean end is then a success to
    /// the layers outside, unless they know better, and an error what it says of itself. The error reaches the caller
    /// unwrapped.
    ///
    /// # Errors
    ///
    /// A fault is the call's error as long as the body is held, and an error at the end of the body after that. An
    /// upstream's error becomes its source.
    fn end(&mut self, end: End<'_>) -> Result<Option<Verdict>, Fault>;
}

/// What a [`Decoder`] saw in some bytes.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Seen {
    /// How many events came to their end; what [is the end](Self::is_over) is one of them. One that only keeps the connection open
    /// need not be counted: an answer is handed on without content at so many events.
    pub events: usize,
    /// The target gets on, although there is nothing yet that a caller waits for. Not a keepalive, not an empty role
    /// delta. It starts the idle clock afresh.
    pub progress: bool,
    /// Content: text, reasoning, a piece of a tool call's arguments. It commits, and is progress.
    pub content: bool,
    /// The protocol's own end: this verdict stands, whatever becomes of the rest of the body. A failing one lets the
    /// answer pass as it is; for an error use [`fault`](Self::fault).
    pub end: Option<Verdict>,
    /// The target reports a failure, or breaks its protocol. What comes after it is not read; `content` says whether
    /// content came before it in the same bytes.
    pub fault: Option<Fault>,
}

impl Seen {
    /// Whether the decoder stops here: at the protocol's own end or at a failure.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.end.is_some() || self.fault.is_some()
    }
}
