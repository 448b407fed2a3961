//! How the events of an answer are framed: one framer for each way in which model endpoints stream.

use stream_layer::{ArrayFramer, EventStreamFramer, LineFramer, SseFramer};

use crate::Provider;

/// A way to send events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Server-sent events.
    Sse,
    /// Lines of JSON.
    Lines,
    /// The elements of one JSON array.
    Array,
    /// AWS's binary messages.
    Binary,
}

impl Framing {
    /// Whether a dialect streams in this way. Server-sent events may come from every gateway.
    pub(crate) fn is_of(self, provider: Provider) -> bool {
        match self {
            Self::Sse => true,
            Self::Lines => provider == Provider::Ollama,
            Self::Array => provider == Provider::Gemini,
            // Anthropic's events come in chunks of it from `InvokeModelWithResponseStream`.
            Self::Binary => matches!(provider, Provider::Bedrock | Provider::Anthropic),
        }
    }

    /// Whether a stream may begin with this byte. Some servers announce a stream, and then answer with a JSON object or a
    /// page.
    pub(crate) const fn begins_with(self, byte: u8) -> bool {
        match self {
            Self::Sse => !matches!(byte, b'{' | b'[' | b'<'),
            Self::Lines => !matches!(byte, b'[' | b'<'),
            Self::Array => byte == b'[',
            // A message would have to be longer than half a gigabyte.
            Self::Binary => !matches!(byte, b'{' | b'[' | b'<'),
        }
    }
}

/// Cuts bytes into events.
#[derive(Debug)]
pub(crate) enum Framer {
    Sse(SseFramer, Tail),
    Lines(LineFramer),
    Array(ArrayFramer),
    Binary(EventStreamFramer),
}

impl Framer {
    pub(crate) fn new(framing: Framing) -> Self {
        match framing {
            Framing::Sse => Self::Sse(SseFramer::default(), Tail::default()),
            Framing::Lines => Self::Lines(LineFramer::default()),
            Framing::Array => Self::Array(ArrayFramer::default()),
            Framing::Binary => Self::Binary(EventStreamFramer::default()),
        }
    }

    pub(crate) const fn framing(&self) -> Framing {
        match self {
            Self::Sse(..) => Framing::Sse,
            Self::Lines(_) => Framing::Lines,
            Self::Array(_) => Framing::Array,
            Self::Binary(_) => Framing::Binary,
        }
    }
}

/// What comes after the last event, where it looks like JSON: Google, out of capacity, ends a stream of events with a bare
/// error object, which is no event.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    text: Vec<u8>,
    is_other: bool,
}

impl Tail {
    /// More of it is not kept: no error is longer.
    const MAX: usize = 64 << 10;

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let bytes = if self.text.is_empty() { bytes.trim_ascii_start() } else { bytes };
        let (false, Some(first)) = (self.is_other, bytes.first()) else { return };
        self.is_other = self.text.is_empty() && !matches!(first, b'{' | b'[')
            || self.text.len().saturating_add(bytes.len()) > Self::MAX;
        if self.is_other {
            self.text = Vec::new();
        } else {
            self.text.extend_from_slice(bytes);
        }
    }

    /// An event came to its end after these bytes: what comes now is a tail, unless that event was one.
    pub(crate) fn event(&mut self, bytes: &[u8], has_data: bool) {
        if !has_data {
            self.add(bytes);
        }
        if has_data || self.text.is_empty() {
            self.text.clear();
            self.is_other = false;
        }
    }

    /// Its text, where it is JSON by its beginning.
    pub(crate) fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.text).ok().filter(|text| !text.is_empty())
    }
}
