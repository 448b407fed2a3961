//! A streamed answer as events, whatever they are framed in and whatever dialect they speak.
//!
//! Bytes are cut into [`Event`]s here; an [`Answer`] makes sense of them, one reader for each dialect.

use std::borrow::Cow;

use bytes::Bytes;
use failsoft_core::{Class, Fault, Hint, Verdict};
use serde::de::IgnoredAny;
use stream_layer::{EventStreamMessage, EventStreamValue, Seen, SseEvent, SseFramer};

use crate::{
    Provider, anthropic,
    attempt::Attempt,
    bedrock, chat,
    draft::{Draft, Ended, Source},
    error::{ErrorBody, Top},
    framing::{Framer, Framing, Tail},
    gemini, lens, ollama, recognise, responses,
};

/// Reads the events of one answer.
#[derive(Debug)]
pub(crate) struct Events {
    framer: Framer,
    reader: Reader,
}

/// Makes sense of them.
#[derive(Debug)]
struct Reader {
    answer: Answer,
    /// Which dialect it is, an event has yet to show.
    is_undecided: bool,
    /// A model's own events came in Bedrock's chunks.
    has_chunks: bool,
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
    Gemini(gemini::Stream),
    Bedrock(bedrock::Stream),
    Ollama(ollama::Stream),
}

impl Answer {
    /// Text and tool calls are kept up to so many bytes.
    fn new(provider: Provider, room: usize) -> Self {
        match provider {
            Provider::Auto | Provider::OpenAiCompatible => Self::Chat(chat::Stream::new(room)),
            Provider::OpenAiResponses => Self::Responses(responses::Stream::new(room)),
            Provider::Anthropic => Self::Anthropic(anthropic::Stream::new(room)),
            Provider::Gemini => Self::Gemini(gemini::Stream::new(room)),
            Provider::Bedrock => Self::Bedrock(bedrock::Stream::new(room)),
            Provider::Ollama => Self::Ollama(ollama::Stream::new(room)),
        }
    }

    /// Takes one event. Where it is the protocol's own end, or reports a failure, it says so in `seen`.
    fn event(&mut self, event: Event<'_>, attempt: &mut Attempt, seen: &mut Seen) {
        match self {
            Self::Chat(stream) => stream.event(event, attempt, seen),
            Self::Responses(stream) => stream.event(event, attempt, seen),
            Self::Anthropic(stream) => stream.event(event, attempt, seen),
            Self::Gemini(stream) => stream.event(event, attempt, seen),
            Self::Bedrock(stream) => stream.event(event, attempt, seen),
            Self::Ollama(stream) => stream.event(event, attempt, seen),
        }
    }

    /// Takes the next event where it is like one before it: most of a stream is.
    #[inline]
    fn again<'a>(&mut self, events: &mut impl Source<'a>, seen: &mut Seen) -> bool {
        let Some(again) = self.draft().again(events) else { return false };
        seen.events += 1;
        seen.content |= again.has_content;
        match self {
            Self::Chat(stream) => stream.again(&again, seen),
            Self::Gemini(stream) => stream.again(&again, seen),
            Self::Responses(_) | Self::Anthropic(_) | Self::Bedrock(_) | Self::Ollama(_) => {}
        }
        true
    }

    /// What the whole answer means, where no event said that it is over.
    fn end(&mut self, ended: Ended, attempt: &mut Attempt) -> Result<Option<Verdict>, Fault> {
        match self {
            Self::Chat(stream) => stream.conclude(ended, attempt),
            Self::Responses(stream) => stream.conclude(ended, attempt),
            Self::Anthropic(stream) => stream.conclude(ended, attempt),
            Self::Gemini(stream) => stream.conclude(ended, attempt),
            Self::Bedrock(stream) => stream.conclude(ended, attempt),
            Self::Ollama(stream) => stream.conclude(ended, attempt),
        }
    }

    /// The body ended in the middle of an event. That matters where a finish reason need not be the last.
    const fn cut(&mut self) {
        if let Self::Gemini(stream) = self {
            stream.cut();
        }
    }

    fn draft(&mut self) -> &mut Draft {
        match self {
            Self::Chat(stream) => stream.draft(),
            Self::Responses(stream) => stream.draft(),
            Self::Anthropic(stream) => stream.draft(),
            Self::Gemini(stream) => stream.draft(),
            Self::Bedrock(stream) => stream.draft(),
            Self::Ollama(stream) => stream.draft(),
        }
    }
}

impl Events {
    /// Of an answer, text and tool calls are kept up to so many bytes.
    pub(crate) fn new(framing: Framing, provider: Provider, room: usize) -> Self {
        let is_undecided = provider == Provider::Auto;
        let reader = Reader { answer: Answer::new(provider, room), is_undecided, has_chunks: false };
        Self { framer: Framer::new(framing), reader }
    }

    /// How it is framed.
    pub(crate) const fn framing(&self) -> Framing {
        self.framer.framing()
    }

    pub(crate) fn feed(&mut self, bytes: &Bytes, attempt: &mut Attempt) -> Seen {
        let mut seen = Seen::default();
        let reader = &mut self.reader;
        match &mut self.framer {
            Framer::Sse(framer, tail) => reader.sse(framer, tail, bytes, attempt, &mut seen),
            Framer::Lines(framer) => {
                let mut lines = framer.feed(bytes);
                while !seen.is_over() && !lines.rest().is_empty() {
                    if reader.answer.again(&mut lines, &mut seen) {
                        continue;
                    }
                    let Some(line) = lines.next_line() else { break };
                    match line {
                        Ok(line) => reader.json(line, attempt, &mut seen),
                        Err(too_long) => {
                            seen.events += 1;
                            seen.fault = Some(attempt.name(too_long.into()));
                        }
                    }
                }
            }
            Framer::Array(framer) => {
                let mut elements = framer.feed(bytes);
                while !seen.is_over() && !elements.rest().is_empty() {
                    if reader.answer.again(&mut elements, &mut seen) {
                        continue;
                    }
                    let Some(element) = elements.next_element() else { break };
                    match element {
                        Ok(element) => reader.json(element, attempt, &mut seen),
                        Err(err) => {
                            seen.events += 1;
                            seen.fault = Some(attempt.name(err.into()));
                        }
                    }
                }
                if framer.is_over() && !seen.is_over() {
                    seen.events += 1;
                    match reader.answer.end(Ended::Said, attempt) {
                        Ok(verdict) => seen.end = verdict,
                        Err(fault) => seen.fault = Some(fault),
                    }
                }
            }
            Framer::Binary(framer) => {
                let mut messages = framer.feed(bytes);
                while let (false, Some(message)) = (seen.is_over(), messages.next_message()) {
                    match message {
                        Ok(message) => reader.binary(message, attempt, &mut seen),
                        Err(err) => {
                            seen.events += 1;
                            seen.fault = Some(attempt.name(err.into()));
                        }
                    }
                }
            }
        }
        self.reader.answer.draft().tell(attempt);
        seen
    }

    /// The body is over before the protocol's own end came.
    pub(crate) fn end(&mut self, attempt: &mut Attempt) -> Result<Option<Verdict>, Fault> {
        let mut seen = Seen::default();
        let reader = &mut self.reader;
        match &mut self.framer {
            Framer::Sse(framer, tail) => {
                // The blank line after it may have been forgotten, or the body was cut in the middle of it.
                match framer.finish() {
                    Some(event) if is_whole(event) => reader.sse_event(event, attempt, &mut seen),
                    Some(event) if event.data().is_some() => reader.answer.cut(),
                    _ => {}
                }
                if let (false, Some(text)) = (seen.is_over(), tail.text()) {
                    seen.fault = error_in(text, attempt).map(|error| attempt.reported(&error));
                }
            }
            Framer::Lines(framer) => {
                if let Some(line) = framer.finish().filter(|line| is_json(line)) {
                    reader.json(line, attempt, &mut seen);
                }
            }
            Framer::Array(framer) if framer.is_cut() => reader.answer.cut(),
            Framer::Array(_) | Framer::Binary(_) => {}
        }
        self.reader.answer.draft().tell(attempt);
        match (seen.fault, seen.end) {
            (Some(fault), _) => Err(fault),
            (None, Some(verdict)) => Ok(Some(verdict)),
            (None, None) => self.reader.answer.end(Ended::Body, attempt),
        }
    }

    /// The text so far, where all of it was kept.
    pub(crate) fn text(&mut self) -> Option<&str> {
        self.reader.answer.draft().text()
    }

    /// How many bytes of text, reasoning and tool calls came so far.
    pub(crate) fn output_bytes(&mut self) -> u64 {
        self.reader.answer.draft().output_bytes()
    }
}

impl Reader {
    fn event(&mut self, event: Event<'_>, attempt: &mut Attempt, seen: &mut Seen) {
        if self.is_undecided {
            // Some models in Bedrock send choices of their own kind, which say otherwise why they stopped.
            let of_bedrock = matches!(self.answer, Answer::Bedrock(_));
            let is_chunk = || lens::fields(event.data, ["object"]).is_some_and(|found| found != [None]);
            let found = recognise::of_event(event.data)
                .filter(|provider| *provider != Provider::OpenAiCompatible || !of_bedrock || is_chunk());
            if let Some(provider) = found {
                self.is_undecided = false;
                attempt.provider = provider;
                // What came before it was read as a chat completion's. Where it is one, it counts.
                if provider != Provider::OpenAiCompatible || !matches!(self.answer, Answer::Chat(_)) {
                    self.answer = Answer::new(provider, attempt.config.max_body);
                    self.answer.draft().tell_anew();
                }
            }
        }
        self.answer.event(event, attempt, seen);
    }

    fn sse(
        &mut self,
        framer: &mut SseFramer,
        tail: &mut Tail,
        bytes: &[u8],
        attempt: &mut Attempt,
        seen: &mut Seen,
    ) {
        let mut events = framer.feed(bytes);
        let mut rest = bytes;
        loop {
            // Most events are like one before them.
            if self.answer.again(&mut events, seen) {
                tail.event(&[], true);
                rest = events.rest();
                if rest.is_empty() {
                    return;
                }
                continue;
            }
            let Some(event) = events.next_event() else { break };
            let has_data = match event {
                Ok(event) => {
                    self.sse_event(event, attempt, seen);
                    event.data().is_some()
                }
                Err(too_long) => {
                    seen.events += 1;
                    seen.fault = Some(attempt.name(too_long.into()));
                    true
                }
            };
            if seen.is_over() {
                return;
            }
            let read = rest.len().saturating_sub(events.rest().len());
            tail.event(rest.get(..read).unwrap_or_default(), has_data);
            rest = events.rest();
        }
        tail.add(rest);
    }

    fn sse_event(&mut self, event: SseEvent<'_>, attempt: &mut Attempt, seen: &mut Seen) {
        // It may be one that came in two pieces.
        if self.answer.again(&mut (event.name(), event.data().unwrap_or_default()), seen) {
            return;
        }
        let name = std::str::from_utf8(event.name()).unwrap_or("?");
        // A block of comments is a keepalive, and not counted either.
        if event.data().is_none_or(|data| data.trim_ascii().is_empty()) {
            if name == "error" {
                seen.events += 1;
                seen.fault = Some(attempt.reported(&ErrorBody::default()));
            }
            return;
        }
        seen.events += 1;
        let text = event.text();
        self.event(Event { name, data: text.trim() }, attempt, seen);
    }

    /// An event that is nothing but JSON.
    fn json(&mut self, data: &[u8], attempt: &mut Attempt, seen: &mut Seen) {
        if self.answer.again(&mut (&[][..], data), seen) {
            return;
        }
        seen.events += 1;
        let text = text(data);
        self.event(Event { name: "", data: text.trim() }, attempt, seen);
    }

    /// One of AWS's messages. What it is stands in its headers, what it says in its payload.
    fn binary(&mut self, message: EventStreamMessage<'_>, attempt: &mut Attempt, seen: &mut Seen) {
        let (mut kind, mut event) = (None, None);
        for (header, value) in message.headers() {
            match header {
                ":message-type" => kind.get_or_insert(value),
                ":event-type" => event.get_or_insert(value),
                _ => continue,
            };
        }
        let kind = kind.and_then(text_of);
        let event = event.and_then(text_of).unwrap_or_default();
        let is_event = !matches!(kind, Some("exception" | "error"));
        if is_event && self.answer.again(&mut (event.as_bytes(), message.payload()), seen) {
            return;
        }
        let name = |header| message.text(header).unwrap_or_default();
        seen.events += 1;
        let text = text(message.payload());
        match kind {
            Some("exception") => {
                let error = bedrock::exception(name(":exception-type"), text.trim());
                seen.fault = Some(attempt.reported(&error));
            }
            // An error that the service did not model.
            Some("error") => {
                let error = bedrock::unmodelled(name(":error-code"), name(":error-message"));
                seen.fault = Some(attempt.reported(&error));
            }
            // Without a payload it says nothing.
            _ if text.trim().is_empty() => {}
            _ if event == "chunk" => self.chunk(text.trim(), attempt, seen),
            _ => self.event(Event { name: event, data: text.trim() }, attempt, seen),
        }
    }
}

/// The value of a header that is text.
const fn text_of(value: EventStreamValue<'_>) -> Option<&str> {
    if let EventStreamValue::String(text) = value { Some(text) } else { None }
}

/// Data as text, with replacement characters for what is not UTF-8.
fn text(data: &[u8]) -> Cow<'_, str> {
    // The lossy way looks at each byte by itself.
    std::str::from_utf8(data).map_or_else(|_| String::from_utf8_lossy(data), Cow::Borrowed)
}

impl Reader {
    /// An event of a model's own in one of Bedrock's messages. Which dialect that is, the first one shows.
    fn chunk(&mut self, payload: &str, attempt: &mut Attempt, seen: &mut Seen) {
        let Some(event) = bedrock::chunk(payload) else {
            let verdict = Verdict::of(Class::Transient).with_hint(Hint::Same);
            seen.fault = Some(attempt.fault(verdict).with_message("a chunk of the stream holds no event"));
            return;
        };
        if !std::mem::replace(&mut self.has_chunks, true) && attempt.provider == Provider::Bedrock {
            // Nothing is known of it yet.
            attempt.provider = Provider::Auto;
            self.is_undecided = true;
        }
        if let Some(usage) = bedrock::metrics(&event) {
            self.answer.draft().metered(usage);
        }
        self.event(Event { name: "", data: event.trim() }, attempt, seen);
    }
}

fn is_json(data: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(data).is_ok()
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

/// The event only kept the connection open. It is not counted: a target that waits is not handed on for that.
pub(crate) const fn keepalive(seen: &mut Seen) {
    seen.events = seen.events.saturating_sub(1);
}

/// Data that is no object: a list with an error in it, a number that nobody needs, or no JSON at all.
pub(crate) fn no_object(event: Event<'_>, attempt: &Attempt, seen: &mut Seen) {
    if serde_json::from_str::<IgnoredAny>(event.data).is_ok() {
        seen.fault = error_in(event.data, attempt).map(|error| attempt.reported(&error));
        return;
    }
    // An event of another name, such as a heartbeat with the time of day, is none of the chat's.
    if !matches!(event.name, "" | "message") {
        return keepalive(seen);
    }
    let verdict = Verdict::of(Class::Transient).with_hint(Hint::Same);
    seen.fault = Some(attempt.fault(verdict).with_message("an event of the stream is no JSON"));
}
