//! Chat completions as server-sent events.
//!
//! An answer is whole at `[DONE]`, or where the body ends cleanly after every choice has given its finish reason: some
//! servers leave `[DONE]` out. Usage may come with the finish reason, after it in a chunk without choices, or with every
//! chunk.

use failsoft_core::{Facts, Fault, Finding, Hint, SoftKind, Verdict};
use stream_layer::Seen;

use super::FORM;
use crate::{
    attempt::Attempt,
    chat,
    choice::Message,
    draft::{Again, Draft, Ended, cut_short},
    error::{ErrorBody, Top},
    events::{Event, error_in, keepalive, no_object},
    finish::finish_of,
    lens,
    mould::{Adds, Plain, UNREAD, Used},
    usage::{self, Counts},
    whole::fail,
};

/// What came of an answer so far.
#[derive(Debug)]
pub(crate) struct Stream {
    draft: Draft,
    counts: Counts,
}

/// The string that is all that a chunk adds, and the token counts in its choice.
#[derive(Clone, Copy)]
struct Only<'a> {
    adds: Adds,
    raw: &'a str,
    usage: Option<&'a str>,
}

impl Stream {
    pub(crate) fn new(room: usize) -> Self {
        Self { draft: Draft::new(&FORM, room), counts: Counts::default() }
    }

    pub(crate) fn draft(&mut self) -> &mut Draft {
        &mut self.draft
    }

    pub(crate) fn event(&mut self, event: Event<'_>, attempt: &mut Attempt, seen: &mut Seen) {
        let data = event.data;
        if event.is_done() {
            match self.conclude(Ended::Said, attempt) {
                Ok(verdict) => seen.end = verdict,
                Err(fault) => seen.fault = Some(fault),
            }
            return;
        }
        let names = ["choices", "usage", "error", "x_groq", "type", "id", "created", "obfuscation"];
        let fields = lens::fields(data, names);
        let groq = fields.and_then(|[_, _, _, groq, ..]| groq);
        let [of_groq] = groq.and_then(|groq| lens::fields(groq, ["usage"])).unwrap_or_default();
        if let Some([_, usage, ..]) = fields {
            seen.progress |= self.used(usage.or(of_groq));
        }
        if event.name == "error" {
            let error = Top::read(data).and_then(|top| top.failure()).unwrap_or_default();
            seen.fault = Some(attempt.reported(&error));
            return;
        }
        match fields {
            Some([Some(choices), usage, error, groq, _, unread @ ..]) if !error.is_some_and(lens::tells) => {
                let [error] = groq.and_then(|groq| lens::fields(groq, ["error"])).unwrap_or_default();
                let error = error.filter(|raw| lens::tells(raw));
                let only = self.chunk(choices, attempt, seen);
                match error {
                    None => self.learn(only, usage.or(of_groq), event, unread),
                    Some(error) if seen.fault.is_none() => {
                        seen.fault = Some(attempt.reported(&ErrorBody::of_value(error)));
                    }
                    Some(_) => {}
                }
            }
            Some([_, usage, _, _, kind, ..]) => self.no_chunk(data, kind, usage.is_some(), attempt, seen),
            None => no_object(event, attempt, seen),
        }
    }

    /// Takes what else is in an event that was like one before it.
    pub(crate) fn again(&mut self, again: &Again, seen: &mut Seen) {
        if again.has_counts {
            self.counts.set_counted(&self.draft.counted());
            seen.progress |= self.draft.used(self.counts.usage());
        }
    }

    /// Keeps what a chunk looks like that adds one string, and token counts from no more than one place.
    fn learn<'a>(
        &mut self,
        only: Option<Only<'a>>,
        usage: Option<&'a str>,
        event: Event<'a>,
        unread: [Option<&'a str>; UNREAD],
    ) {
        let Some(Only { adds, raw, usage: of_choice }) = only else { return };
        let usage = match (usage, of_choice) {
            (Some(_), Some(_)) => return,
            (usage, of_choice) => usage.or(of_choice),
        };
        let used = usage.map(|raw| usage::fields(raw).map(|fields| Used { raw, fields }));
        // What is no object is no token count, and the same the next time.
        let usage = used.flatten();
        self.draft.learn(&Plain { name: event.name, data: event.data, adds, raw, unread, usage });
    }

    /// Gives the string that is all that the chunk adds, where that is so.
    fn chunk<'a>(&mut self, choices: &'a str, attempt: &Attempt, seen: &mut Seen) -> Option<Only<'a>> {
        let (mut count, mut only) = (0, None);
        lens::each(choices, |raw| {
            count += 1;
            only = self.choice(raw, attempt, seen);
            seen.fault.is_none()
        })?;
        only.filter(|_| count == 1)
    }

    fn choice<'a>(&mut self, raw: &'a str, attempt: &Attempt, seen: &mut Seen) -> Option<Only<'a>> {
        let names = ["index", "delta", "message", "text", "finish_reason", "error", "usage"];
        let [index, delta, message, text, finish, error, usage] = lens::fields(raw, names)?;
        seen.progress |= self.used(usage);
        if let Some(error) = error.filter(|raw| lens::tells(raw)) {
            seen.fault = Some(attempt.reported(&ErrorBody::of_value(error)));
            return None;
        }
        let index = index.and_then(lens::count).unwrap_or(0);
        let message = Message::read(delta.or(message), text);
        let finish = finish_of(finish);
        let is_finished = finish.is_some();
        seen.progress |= is_finished;
        seen.content |= self.draft.add(index, |choice, room| {
            if is_finished {
                choice.finish = finish;
            }
            choice.add(message, room)
        });
        let only = if is_finished { None } else { message.adds_only(index) };
        only.map(|(adds, raw)| Only { adds, raw, usage })
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
        if is_ping {
            keepalive(seen);
        }
        if has_usage || is_ping {
            return;
        }
        self.draft.other();
        // What content is in another format is not known here.
        seen.content |= self.draft.is_other(attempt);
    }

    /// Whether this usage says something new.
    fn used(&mut self, usage: Option<&str>) -> bool {
        let Some(usage) = usage else { return false };
        self.counts.set(usage);
        self.draft.used(self.counts.usage())
    }

    /// What the whole answer means.
    pub(crate) fn conclude(&mut self, ended: Ended, attempt: &mut Attempt) -> Result<Option<Verdict>, Fault> {
        if self.draft.is_other(attempt) {
            return Ok((ended == Ended::Said).then_some(Verdict::SUCCESS));
        }
        let mut facts = Facts::default();
        if self.draft.is_blank() {
            if self.draft.has_others() { chat::no_choices(&mut facts) } else { chat::no_choice(&mut facts) }
        } else if ended == Ended::Body && self.draft.is_open() {
            return Err(cut_short(attempt, "the stream ended without a finish reason"));
        } else if let Some(index) = self.draft.cut_choice() {
            let message = "another choice gave its finish reason, and this one did not";
            let finding =
                Finding::new(SoftKind::Truncated, "no_finish_reason", message).at(FORM.choice(index));
            fail(&mut facts, Verdict::soft(SoftKind::Truncated).with_hint(Hint::Same), finding);
        }
        self.draft.conclude(facts, ended, attempt)
    }
}
