//! Chat completions as server-sent events.
//!
//! An answer is whole at `[DONE]`, or where the body ends cleanly after every choice has given its finish reason: some
//! servers leave `[DONE]` out. Usage may come with the finish reason, after it in a chunk without choices, or with every
//! chunk.

use failsoft_core::{Facts, Fault, Verdict};
use stream_layer::Seen;

use super::FORM;
use crate::{
    attempt::Attempt,
    chat,
    choice::Message,
    draft::{Draft, Ended, cut_short},
    error::{ErrorBody, Top},
    events::{Event, error_in, no_object},
    finish::finish_of,
    lens,
    mould::{Adds, Plain},
    usage::Counts,
};

/// What came of an answer so far.
#[derive(Debug)]
pub(crate) struct Stream {
    draft: Draft,
    counts: Counts,
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
        if let Some([_, usage, _, groq, ..]) = fields {
            let [of_groq] = groq.and_then(|groq| lens::fields(groq, ["usage"])).unwrap_or_default();
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
                let only = self.chunk(choices, attempt, seen);
                if let (Some((adds, raw)), None, None) = (only, usage, groq) {
                    self.draft.learn(&Plain { name: event.name, data, adds, raw, unread });
                }
                if let (Some(error), None) = (error.filter(|raw| lens::tells(raw)), &seen.fault) {
                    seen.fault = Some(attempt.reported(&ErrorBody::of_value(error)));
                }
            }
            Some([_, usage, _, _, kind, ..]) => self.no_chunk(data, kind, usage.is_some(), attempt, seen),
            None => no_object(event, attempt, seen),
        }
    }

    /// Gives the string that is all that the chunk adds, where that is so.
    fn chunk<'a>(&mut self, choices: &'a str, attempt: &Attempt, seen: &mut Seen) -> Option<(Adds, &'a str)> {
        let (mut count, mut only) = (0, None);
        lens::each(choices, |raw| {
            count += 1;
            only = self.choice(raw, attempt, seen);
            seen.fault.is_none()
        })?;
        only.filter(|_| count == 1)
    }

    fn choice<'a>(&mut self, raw: &'a str, attempt: &Attempt, seen: &mut Seen) -> Option<(Adds, &'a str)> {
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
        if usage.is_some() || is_finished { None } else { message.adds_only(index) }
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
        }
        self.draft.conclude(facts, ended, attempt)
    }
}
