//! A streamed answer as events, whatever they are framed in and whatever dialect they speak.
//!
//! Bytes are cut into [`Event`]s here; an [`Answer`] makes sense of them, one reader for each dialect.

use bytes::Bytes;
use failsoft_core::{Class, Fault, Hint, Verdict};
use serde::de::IgnoredAny;
use stream_layer::{Seen, SseEvent, SseFramer};

use crate::{
    Provider, anthropic,
    attempt::Attempt,
    chat,
    draft::{Draft, Ended},
    error::{ErrorBody, Top},
    recognise, responses,
};

/// Reads the events of one answer.
#[derive(Debug)]
pub(crate) struct Events {
    framer: SseFramer,
    answer: Answer,
    /// Which dialect it is, an event has yet to show.
    is_undecided: bool,
}

/// One event: a name, empty where it has none, and data, which is never blank and has no blanks around it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event<'a> {
    pub(crate) name: &'a str,
    pub(crate) data: &'a str,
}

impl Event<'_> {
    /// Whether it is the mark that ends a stream in OpenAI's dialects.
    pub(crate) fn is_done(&self) -> bool {
        self.data.starts_with("[DONE]")
    }
}

/// What came so far, by dialect. A dialect joins with an arm in each of these functions.
#[derive(Debug)]
enum Answer {
    Chat(chat::Stream),
    Responses(responses::Stream),
    Anthropic(anthropic::Stream),
}

impl Answer {
    /// Text and tool calls are kept up to so many bytes.
    fn new(provider: Provider, room: usize) -> Self {
        match provider {
            Provider::Auto | Provider::OpenAiCompatible => Self::Chat(chat::Stream::new(room)),
            Provider::OpenAiResponses => Self::Responses(responses::Stream::new(room)),
            Provider::Anthropic => Self::Anthropic(anthropic::Stream::new(room)),
        }
    }

    /// Takes one event. Where it is the protocol's own end, or reports a failure, it says so in `seen`.
    fn event(&mut self, event: Event<'_>, attempt: &mut Attempt, seen: &mut Seen) {
        match self {
            Self::Chat(stream) => stream.event(event, attempt, seen),
            Self::Responses(stream) => stream.event(event, attempt, seen),
            Self::Anthropic(stream) => stream.event(event, attempt, seen),
        }
    }

    /// What the whole answer means, where no event said that it is over.
    fn end(&mut self, ended: Ended, attempt: &mut Attempt) -> Result<Option<Verdict>, Fault> {
        match self {
            Self::Chat(stream) => stream.conclude(ended, attempt),
            Self::Responses(stream) => stream.conclude(ended, attempt),
            Self::Anthropic(stream) => stream.conclude(ended, attempt),
        }
    }

    fn draft(&mut self) -> &mut Draft {
        match self {
            Self::Chat(stream) => stream.draft(),
            Self::Responses(stream) => stream.draft(),
            Self::Anthropic(stream) => stream.draft(),
        }
    }
}

impl Events {
    /// Of an answer, text and tool calls are kept up to so many bytes.
    pub(crate) fn new(provider: Provider, room: usize) -> Self {
        let is_undecided = provider == Provider::Auto;
        Self { framer: SseFramer::default(), answer: Answer::new(provider, room), is_undecided }
    }

    pub(crate) fn feed(&mut self, bytes: &Bytes, attempt: &mut Attempt) -> Seen {
        let mut seen = Seen::default();
        let mut events = self.framer.feed(bytes);
        loop {
            // Most events are like one before them.
            if let Some(has_content) = self.answer.draft().again(&mut events) {
                seen.events += 1;
                seen.content |= has_content;
                continue;
            }
            let Some(event) = events.next_event() else { break };
            match event {
                Ok(event) => sse(event, &mut self.answer, &mut self.is_undecided, attempt, &mut seen),
                Err(too_long) => seen.fault = Some(attempt.name(too_long.into())),
            }
            if seen.is_over() {
                break;
            }
        }
        self.answer.draft().tell(attempt);
        seen
    }

    /// The body is over before the protocol's own end came.
    pub(crate) fn end(&mut self, attempt: &mut Attempt) -> Result<Option<Verdict>, Fault> {
        let mut seen = Seen::default();
        if let Some(event) = self.framer.finish() {
            // The blank line after it may have been forgotten, or the body was cut in the middle of it.
            if is_whole(event) {
                sse(event, &mut self.answer, &mut self.is_undecided, attempt, &mut seen);
                self.answer.draft().tell(attempt);
            }
        }
        match (seen.fault, seen.end) {
            (Some(fault), _) => Err(fault),
            (None, Some(verdict)) => Ok(Some(verdict)),
            (None, None) => self.answer.end(Ended::Body, attempt),
        }
    }

    /// The text so far, where all of it was kept.
    pub(crate) fn text(&mut self) -> Option<&str> {
        self.answer.draft().text()
    }
}

fn sse(
    event: SseEvent<'_>,
    answer: &mut Answer,
    is_undecided: &mut bool,
    attempt: &mut Attempt,
    seen: &mut Seen,
) {
    let name = std::str::from_utf8(event.name()).unwrap_or("?");
    // A block of comments is a keepalive. It is not counted: a target that waits is not handed on for that.
    if event.data().is_none_or(|data| data.trim_ascii().is_empty()) {
        if name == "error" {
            seen.fault = Some(attempt.reported(&ErrorBody::default()));
        }
        return;
    }
    seen.events += 1;
    if let Some(has_content) = event.data().and_then(|data| answer.draft().again_in(event.name(), data)) {
        seen.content |= has_content;
        return;
    }
    let text = event.text();
    let event = Event { name, data: text.trim() };
    if *is_undecided {
        if let Some(provider) = recognise::of_event(event.data) {
            *is_undecided = false;
            *answer = Answer::new(provider, attempt.config.max_body);
        }
    }
    answer.event(event, attempt, seen);
}

fn is_whole(event: SseEvent<'_>) -> bool {
    let text = event.text();
    let data = text.trim();
    let is_done = Event { name: "", data }.is_done();
    event.is_terminated() || is_done || serde_json::from_str::<IgnoredAny>(data).is_ok()
}

/// The error that an object is which is no piece of an answer. In a stream a message alone is none: it may tell of progress.
pub(crate) fn error_in<'a>(data: &'a str, attempt: &Attempt) -> Option<ErrorBody<'a>> {
    let top = Top::read(data)?;
    if attempt.offered.is_chat() == Some(false) {
        return top.error_of_unknown_endpoint();
    }
    top.error().or_else(|| top.instead_of_answer().filter(ErrorBody::is_surely_one))
}

/// Data that is no object: a list with an error in it, a number that nobody needs, or no JSON at all.
pub(crate) fn no_object(event: Event<'_>, attempt: &Attempt, seen: &mut Seen) {
    if serde_json::from_str::<IgnoredAny>(event.data).is_ok() {
        seen.fault = error_in(event.data, attempt).map(|error| attempt.reported(&error));
        return;
    }
    // An event of another name, such as a heartbeat with the time of day, is none of the chat's.
    if matches!(event.name, "" | "message") {
        let verdict = Verdict::of(Class::Transient).with_hint(Hint::Same);
        seen.fault = Some(attempt.fault(verdict).with_message("an event of the stream is no JSON"));
    }
}
