//! [`LlmProtocol`]: what the layer adds to [`stream_layer`], for those who set a [`StreamLayer`](stream_layer::StreamLayer)
//! up themselves.
//!
//! ```
//! use llm_layer::{LlmProtocol, Provider};
//! use stream_layer::StreamLayer;
//!
//! let layer = StreamLayer::new(LlmProtocol::new(Provider::OpenAiCompatible));
//! # let _ = layer;
//! ```

use std::{fmt, sync::Arc};

use failsoft_core::{Call, Insight, Slot, Usage, class_of_status, is_encoded, verdict_of_head};
use http::{HeaderMap, StatusCode, header, response::Parts};
use stream_layer::{Beyond, Limits, Mode, Protocol, Reader, Until};

use crate::{
    DEFAULT_MAX_BODY, LlmDecoder, Offered, Provider, attempt::Attempt, framing::Framing, request::look, whole,
};

/// The wire formats of model endpoints, for a [`StreamLayer`](stream_layer::StreamLayer).
/// [`LlmLayer`](crate::LlmLayer) is the two put together.
#[derive(Clone, Debug)]
pub struct LlmProtocol {
    config: Arc<Config>,
}

/// What all calls of one layer share.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) provider: Provider,
    pub(crate) max_body: usize,
    pub(crate) name: Option<Arc<str>>,
    /// The limit on first content was chosen, and holds for whole answers too.
    pub(crate) limits_whole_answers: bool,
    /// The limit on silence was chosen, and holds for whatever passes unread too.
    pub(crate) limits_silence: bool,
}

impl LlmProtocol {
    /// The protocol of a dialect, with the defaults of [`LlmLayer`](crate::LlmLayer).
    #[must_use]
    pub fn new(provider: Provider) -> Self {
        Self::with(Config {
            provider,
            max_body: DEFAULT_MAX_BODY,
            name: None,
            limits_whole_answers: false,
            limits_silence: false,
        })
    }

    pub(crate) fn with(config: Config) -> Self {
        Self { config: Arc::new(config) }
    }
}

impl<Req: 'static> Protocol<Req> for LlmProtocol {
    type Reader = LlmReader;

    fn request(&self, request: &Req) -> LlmReader {
        let look = look(request);
        let provider = self.config.provider.of_call(&look);
        let offered = Offered::seen(provider, &look);
        let mut slot = Call::slot();
        if let Some(slot) = &mut slot {
            slot.on(self.config.name.clone());
        }
        LlmReader { config: Arc::clone(&self.config), provider, offered, slot }
    }
}

/// Looks at the head of one answer. Made by [`LlmProtocol`].
pub struct LlmReader {
    config: Arc<Config>,
    provider: Provider,
    offered: Offered,
    slot: Option<Slot>,
}

impl Reader for LlmReader {
    type Decoder = LlmDecoder;

    /// A whole answer has its first byte when the model has written its last: only a limit that was chosen holds.
    fn limits(&self, mut limits: Limits) -> Limits {
        if !self.offered.is_stream() && !self.config.limits_whole_answers {
            limits.first_content = None;
            limits.soft_first_content = None;
        }
        limits
    }

    /// A stream has the limits of one, also where the request, whose body may not be in memory, did not show that it asks
    /// for it. What is no model's answer may be silent for as long as it likes: notifications are, for days.
    fn limits_of_answer(&self, head: &Parts, mut limits: Limits) -> Limits {
        match shape_of(head, self.provider, &self.offered, self.config.max_body) {
            Shape::Events(_) => limits,
            Shape::Unread if self.offered.is_chat() == Some(false) && !self.config.limits_silence => {
                (limits.idle, limits.soft_idle) = (None, None);
                self.limits(limits)
            }
            _ => self.limits(limits),
        }
    }

    fn head(self, parts: &mut Parts, until: Until) -> Mode<LlmDecoder> {
        let Self { config, provider, offered, mut slot } = self;
        if let Some(slot) = slot.as_mut().filter(|_| is_turned_down(parts.status)) {
            // Nothing was produced. A body that says otherwise is believed.
            slot.set(&Usage { input: Some(0), output: Some(0), ..Usage::default() });
        }
        if let (Some(slot), Some(verdict)) = (&mut slot, verdict_of_head(parts.status, &parts.headers)) {
            slot.ended(verdict.class());
        }
        let provider = match kind_of(&parts.headers) {
            // Nobody else streams in this way.
            Kind::Binary if provider == Provider::Auto => Provider::Bedrock,
            _ => provider,
        };
        let shape = shape_of(parts, provider, &offered, config.max_body);
        if shape == Shape::Unread {
            return Mode::Pass;
        }
        parts.extensions.insert(IsRead);
        let insight = parts.extensions.get_or_insert_default::<Insight>().clone();
        if shape == Shape::Unasked {
            insight.learn(|facts| {
                let first_content = facts.first_content;
                *facts = whole::unasked_stream();
                facts.first_content = first_content;
            });
            return Mode::Pass;
        }
        let bytes = config.max_body;
        let (status, headers) = (parts.status, parts.headers.clone());
        let attempt = Attempt { config, provider, offered, status, headers, insight, slot };
        if let Shape::Events(framing) = shape {
            return Mode::Hold { decoder: LlmDecoder::events(framing, attempt), until };
        }
        let until = Until::End { bytes, beyond: Beyond::Commit };
        Mode::Hold { decoder: LlmDecoder::whole(attempt), until }
    }
}

impl fmt::Debug for LlmReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LlmReader").field("offered", &self.offered).finish_non_exhaustive()
    }
}

/// Whether the target refused, or failed, to answer. A gateway that lost patience says nothing of the work behind it.
fn is_turned_down(status: StatusCode) -> bool {
    (status.is_client_error() || status.is_server_error()) && !matches!(status.as_u16(), 408 | 504 | 524)
}

/// On a response whose body a layer of this kind reads: one further out that read it too would count its tokens again.
#[derive(Clone, Copy, Debug)]
struct IsRead;

/// How a body is read.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    Whole,
    Events(Framing),
    /// A stream where one whole answer was asked for: it may have no end, and is not read.
    Unasked,
    Unread,
}

fn shape_of(parts: &Parts, provider: Provider, offered: &Offered, max_body: usize) -> Shape {
    let status = parts.status;
    let is_decided = Insight::of(&parts.extensions).is_some_and(|insight| insight.verdict().is_some());
    let is_read = parts.extensions.get::<IsRead>().is_some();
    if is_decided || is_read || status.is_informational() {
        return Shape::Unread;
    }
    let kind = kind_of(&parts.headers);
    let is_success = class_of_status(status).is_success();
    // Of a request that nobody knows, the first line shows what it asked for.
    let is_unknown = provider == Provider::Auto && offered.is_chat().is_none();
    // Elsewhere an array is just an answer.
    let is_array = provider == Provider::Gemini && offered.is_stream() && kind == Kind::Json;
    let is_stream = is_success && (is_array || matches!(kind, Kind::Events | Kind::Lines | Kind::Binary));
    if is_stream && offered.wants_whole_chat() {
        return Shape::Unasked;
    }
    let is_too_long = || length(&parts.headers).is_some_and(|length| length > max_body as u64);
    if is_encoded(&parts.headers) || !is_stream && is_too_long() {
        return Shape::Unread;
    }
    if !is_success {
        return Shape::Whole;
    }
    // A chat gets an answer, or what comes in its place is a failure.
    if matches!(status.as_u16(), 204 | 205) {
        return if offered.is_chat() == Some(true) { Shape::Whole } else { Shape::Unread };
    }
    match kind {
        // Of events that nobody asked a model for, nothing is known: they may be silent for days.
        Kind::Events if offered.is_chat() == Some(false) && !offered.is_stream() => Shape::Unread,
        Kind::Events => Shape::Events(Framing::Sse),
        Kind::Lines if Framing::Lines.is_of(provider) || is_unknown => Shape::Events(Framing::Lines),
        Kind::Binary if Framing::Binary.is_of(provider) => Shape::Events(Framing::Binary),
        Kind::Json if is_array => Shape::Events(Framing::Array),
        // It is answered with JSON, whatever the response says that it is.
        _ if offered.wants_whole_chat() => Shape::Whole,
        Kind::Json | Kind::Html => Shape::Whole,
        // A stream whose content type was forgotten must not be held.
        Kind::Text if !offered.is_stream() => Shape::Whole,
        _ => Shape::Unread,
    }
}

fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

/// What a content type says of a body.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Json,
    Html,
    Events,
    /// Lines of JSON.
    Lines,
    /// AWS's event stream.
    Binary,
    /// Other text, or no word on it.
    Text,
    /// Sound, a picture, an archive.
    Other,
}

fn kind_of(headers: &HeaderMap) -> Kind {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Kind::Text };
    // What follows may be anything, also what is no text.
    let essence = value.as_bytes().split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
    let essence = String::from_utf8_lossy(essence).to_ascii_lowercase();
    match essence.as_str() {
        "application/json" | "text/json" => Kind::Json,
        "text/html" | "application/xhtml+xml" => Kind::Html,
        "text/event-stream" => Kind::Events,
        "application/x-ndjson" | "application/ndjson" | "application/jsonl" => Kind::Lines,
        "application/vnd.amazon.eventstream" => Kind::Binary,
        "" => Kind::Text,
        other if other.ends_with("+json") => Kind::Json,
        other if other.starts_with("text/") => Kind::Text,
        _ => Kind::Other,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    // A stream whose parameters were no ASCII was read as text, whole.
    #[test]
    fn what_follows_the_content_type_may_be_anything() {
        let kind = |value: &[u8]| {
            let value = HeaderValue::from_bytes(value).unwrap();
            kind_of(&HeaderMap::from_iter([(header::CONTENT_TYPE, value)]))
        };
        assert!(matches!(kind("text/event-stream; charset=“utf-8”".as_bytes()), Kind::Events));
        assert!(matches!(kind(b"Application/JSON ;\xff"), Kind::Json));
        assert!(matches!(kind(b"\xff/json"), Kind::Other));
    }
}
