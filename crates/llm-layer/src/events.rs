//! Chat completions as server-sent events.
//!
//! An answer is whole at `[DONE]`, or where the body ends cleanly after every choice has given its finish reason: some
//! servers leave `[DONE]` out. Usage may come with the finish reason, after it in a chunk without choices, or with every
//! chunk.

use bytes::Bytes;
use failsoft_core::{Class, Facts, Fault, Finding, Hint, Severity, SoftKind, Verdict};
use serde::de::IgnoredAny;
use stream_layer::{Seen, SseEvent, SseFramer};

use crate::{
    attempt::Attempt,
    chat,
    choice::{self, Message},
    error::{ErrorBody, Top},
    lens,
    pieces::{Pieces, Room},
    usage::Counts,
};

/// At most so many choices are told apart.
const MAX_CHOICES: usize = 128;

/// Reads the events of one answer.
#[derive(Debug)]
pub(crate) struct Events {
    framer: SseFramer,
    answer: Answer,
}

/// What came of it so far.
#[derive(Debug)]
struct Answer {
    choices: Vec<Pieces>,
    room: Room,
    counts: Counts,
    output_bytes: u64,
    /// Something came that is no chunk of a chat completion.
    has_others: bool,
    /// Something is to be told.
    has_news: bool,
}

/// How a stream ended, when it ended well.
#[derive(Clone, Copy, PartialEq)]
enum Ended {
    /// By `[DONE]`.
    Done,
    /// With its body.
    Body,
}

impl Events {
    /// Of an answer, text and tool calls are kept up to so many bytes.
    pub(crate) fn new(room: usize) -> Self {
        let answer = Answer {
            choices: Vec::new(),
            room: Room::new(room),
            counts: Counts::default(),
            output_bytes: 0,
            has_others: false,
            has_news: false,
        };
        Self { framer: SseFramer::default(), answer }
    }

    pub(crate) fn feed(&mut self, bytes: &Bytes, attempt: &mut Attempt) -> Seen {
        let mut seen = Seen::default();
        let mut events = self.framer.feed(bytes);
        while let Some(event) = events.next_event() {
            match event {
                Ok(event) => self.answer.event(event, attempt, &mut seen),
                Err(too_long) => seen.fault = Some(attempt.name(too_long.into())),
            }
            if seen.is_over() {
                break;
            }
        }
        self.answer.tell(attempt);
        seen
    }

    /// The body is over, and `[DONE]` did not come.
    pub(crate) fn end(&mut self, attempt: &mut Attempt) -> Result<Option<Verdict>, Fault> {
        let mut seen = Seen::default();
        if let Some(event) = self.framer.finish() {
            // The blank line after it may have been forgotten, or the body was cut in the middle of it.
            if is_whole(event) {
                self.answer.event(event, attempt, &mut seen);
                self.answer.tell(attempt);
            }
        }
        match (seen.fault, seen.end) {
            (Some(fault), _) => Err(fault),
            (None, Some(verdict)) => Ok(Some(verdict)),
            (None, None) => self.answer.conclude(Ended::Body, attempt),
        }
    }

    /// The text so far, where all of it was kept.
    pub(crate) fn text(&self) -> Option<&str> {
        let first = self.answer.choices.iter().min_by_key(|choice| choice.index)?;
        Some(first.text()).filter(|text| !text.is_empty() && !self.answer.room.is_full())
    }
}

fn is_done(data: &str) -> bool {
    data.starts_with("[DONE]")
}

fn is_whole(event: SseEvent<'_>) -> bool {
    let text = event.text();
    event.is_terminated() || is_done(text.trim()) || serde_json::from_str::<IgnoredAny>(&text).is_ok()
}

impl Answer {
    fn event(&mut self, event: SseEvent<'_>, attempt: &mut Attempt, seen: &mut Seen) {
        // A block of comments is a keepalive. It is not counted: a target that waits is not handed on for that.
        let Some(_) = event.data().filter(|data| !data.trim_ascii().is_empty()) else {
            if event.name() == b"error" {
                seen.fault = Some(attempt.reported(&ErrorBody::default()));
            }
            return;
        };
        seen.events += 1;
        let text = event.text();
        let data = text.trim();
        if is_done(data) {
            match self.conclude(Ended::Done, attempt) {
                Ok(verdict) => seen.end = verdict,
                Err(fault) => seen.fault = Some(fault),
            }
            return;
        }
        let names = ["choices", "usage", "error", "x_groq", "type"];
        let fields = lens::fields(data, names);
        if let Some([_, usage, _, groq, _]) = fields {
            let [of_groq] = groq.and_then(|groq| lens::fields(groq, ["usage"])).unwrap_or_default();
            seen.progress |= self.used(usage.or(of_groq));
        }
        if event.name() == b"error" {
            let error = Top::read(data).and_then(|top| top.failure()).unwrap_or_default();
            seen.fault = Some(attempt.reported(&error));
            return;
        }
        match fields {
            Some([Some(choices), _, error, groq, _]) if !error.is_some_and(lens::tells) => {
                let [error] = groq.and_then(|groq| lens::fields(groq, ["error"])).unwrap_or_default();
                self.chunk(choices, attempt, seen);
                if let (Some(error), None) = (error.filter(|raw| lens::tells(raw)), &seen.fault) {
                    seen.fault = Some(attempt.reported(&ErrorBody::of_value(error)));
                }
            }
            Some([_, usage, _, _, kind]) => self.no_chunk(data, kind, usage.is_some(), attempt, seen),
            None => no_object(data, event.name(), attempt, seen),
        }
    }

    fn chunk(&mut self, choices: &str, attempt: &Attempt, seen: &mut Seen) {
        lens::each(choices, |raw| {
            self.choice(raw, attempt, seen);
            seen.fault.is_none()
        });
    }

    fn choice(&mut self, raw: &str, attempt: &Attempt, seen: &mut Seen) {
        let names = ["index", "delta", "message", "text", "finish_reason", "error", "usage"];
        let Some([index, delta, message, text, finish, error, usage]) = lens::fields(raw, names) else {
            return;
        };
        seen.progress |= self.used(usage);
        if let Some(error) = error.filter(|raw| lens::tells(raw)) {
            seen.fault = Some(attempt.reported(&ErrorBody::of_value(error)));
            return;
        }
        let index = index.and_then(lens::count).unwrap_or(0);
        let at = self.choices.iter().position(|choice| choice.index == index);
        let at = match at {
            Some(at) => at,
            None if self.choices.len() < MAX_CHOICES && self.room.takes_entry() => {
                self.choices.push(Pieces::new(index));
                self.choices.len() - 1
            }
            None => return,
        };
        let Some(choice) = self.choices.get_mut(at) else { return };
        let (has_content, bytes) = choice.add(Message::read(delta.or(message), text), &mut self.room);
        self.output_bytes = self.output_bytes.saturating_add(bytes);
        self.has_news |= bytes > 0;
        seen.content |= has_content;
        if let Some(finish) = choice::finish_of(finish) {
            choice.finish = Some(finish);
            seen.progress = true;
        }
    }

    /// An object without choices: an error, the usage at the end, or a piece of another format.
    fn no_chunk(
        &mut self,
        data: &str,
        kind: Option<&str>,
        has_usage: bool,
        attempt: &Attempt,
        seen: &mut Seen,
    ) {
        if let Some(error) = error_in(data, attempt) {
            seen.fault = Some(attempt.reported(&error));
            return;
        }
        let is_ping = kind.and_then(lens::string).is_some_and(|kind| kind == "ping");
        if has_usage || is_ping {
            return;
        }
        self.has_others = true;
        // What content is in another format is not known here.
        seen.content |= self.is_other(attempt);
    }

    /// Whether the stream is known to be no chat completion.
    fn is_other(&self, attempt: &Attempt) -> bool {
        match attempt.offered.is_chat() {
            Some(is_chat) => !is_chat,
            None => self.has_others && self.choices.is_empty(),
        }
    }

    /// Whether this usage says something new.
    fn used(&mut self, usage: Option<&str>) -> bool {
        let Some(usage) = usage else { return false };
        let before = self.counts;
        self.counts.set(usage);
        let is_new = before != self.counts;
        self.has_news |= is_new;
        is_new
    }

    /// Tells what is new as it comes, so that a caller who hangs up is billed for what was seen.
    fn tell(&mut self, attempt: &mut Attempt) {
        if !std::mem::take(&mut self.has_news) {
            return;
        }
        let (usage, bytes) = (self.counts.usage(), self.output_bytes);
        attempt.used(&usage);
        attempt.insight.learn(|facts| {
            facts.usage = usage;
            facts.output_bytes = bytes;
        });
    }

    /// What the whole answer means.
    ///
    /// What the target itself reports as a failure is a fault, and so is an answer that broke off. What is found wrong
    /// with an answer that came to its end is a verdict: the answer passes as it is.
    fn conclude(&mut self, ended: Ended, attempt: &mut Attempt) -> Result<Option<Verdict>, Fault> {
        if self.is_other(attempt) {
            return Ok((ended == Ended::Done).then_some(Verdict::SUCCESS));
        }
        let mut facts = Facts::default();
        facts.usage = self.counts.usage();
        if self.choices.is_empty() {
            if self.has_others { chat::no_choices(&mut facts) } else { chat::no_choice(&mut facts) }
        } else if ended == Ended::Body && self.choices.iter().any(|choice| choice.finish.is_none()) {
            return Err(cut_short(attempt));
        }
        self.judge(attempt, &mut facts);
        let verdict = facts.verdict.unwrap_or(Verdict::SUCCESS);
        let report = facts.report.clone();
        attempt.tell(facts);
        match verdict.class() {
            Class::Success | Class::Refused => Ok(Some(verdict)),
            Class::Soft(SoftKind::Empty | SoftKind::Malformed) if ended == Ended::Body => {
                let message = "the stream ended without an answer";
                Err(attempt.fault(verdict).with_message(message).with_report(report))
            }
            Class::Soft(_) => Ok(Some(verdict)),
            _ => {
                let message = "the target reported a failure as its finish reason";
                Err(attempt.fault(verdict).with_message(message).with_report(report))
            }
        }
    }

    fn judge(&mut self, attempt: &Attempt, facts: &mut Facts) {
        let (offered, headers) = (&attempt.offered, &attempt.headers);
        let mut choices = std::mem::take(&mut self.choices);
        choices.sort_by_key(|choice| choice.index);
        for (at, pieces) in choices.into_iter().enumerate() {
            let mut choice = pieces.into_choice(offered);
            if self.room.is_full() {
                // Not all of it was kept: only its end can be judged.
                choice.stopped_badly(facts);
                if at == 0 {
                    facts.finish = choice.finish;
                }
            } else {
                choice.judge(headers, offered, facts);
                choice.tell(at == 0, facts);
            }
        }
        if self.room.is_full() {
            let message = "an answer too long to be kept: text and tool calls were not looked at";
            let finding = Finding::new(SoftKind::Malformed, "too_long", message);
            facts.report.push(finding.with_severity(Severity::Warning));
        }
        facts.output_bytes = self.output_bytes;
    }
}

/// The error that an object without choices is. In a stream a message alone is none: it may tell of progress.
fn error_in<'a>(data: &'a str, attempt: &Attempt) -> Option<ErrorBody<'a>> {
    let top = Top::read(data)?;
    if attempt.offered.is_chat() == Some(false) {
        return top.error_of_unknown_endpoint();
    }
    top.error().or_else(|| top.instead_of_answer().filter(ErrorBody::is_surely_one))
}

/// Data that is no object: a list with an error in it, a number that nobody needs, or no JSON at all.
fn no_object(data: &str, name: &[u8], attempt: &Attempt, seen: &mut Seen) {
    if serde_json::from_str::<IgnoredAny>(data).is_ok() {
        seen.fault = error_in(data, attempt).map(|error| attempt.reported(&error));
        return;
    }
    // An event of another name, such as a heartbeat with the time of day, is none of the chat's.
    if matches!(name, b"" | b"message") {
        let verdict = Verdict::of(Class::Transient).with_hint(Hint::Same);
        seen.fault = Some(attempt.fault(verdict).with_message("an event of the stream is no JSON"));
    }
}

/// The stream ended too early: the request was fine, so the same one may work.
fn cut_short(attempt: &Attempt) -> Fault {
    let verdict = Verdict::soft(SoftKind::Truncated).with_hint(Hint::Same);
    attempt.fault(verdict).with_message("the stream ended without a finish reason")
}
