//! Responses as server-sent events.
//!
//! An answer is whole at `response.completed` or `response.incomplete`. Both carry all of it once more, with the usage:
//! that is what is judged; what came in pieces counts where it is missing there.

use failsoft_core::{Fault, Finish, Verdict};
use stream_layer::Seen;

use super::{FORM, finish_with};
use crate::{
    Provider,
    attempt::Attempt,
    draft::{Draft, Ended, settle},
    error::{ErrorBody, Top},
    events::{Event, error_in, keepalive, no_object},
    lens,
    mould::{Adds, Plain},
    pieces::CallPart,
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

    pub(crate) const fn draft(&mut self) -> &mut Draft {
        &mut self.draft
    }

    pub(crate) fn event(&mut self, event: Event<'_>, attempt: &mut Attempt, seen: &mut Seen) {
        if event.is_done() {
            // Some servers end with OpenAI's older mark; whether the answer is over was said before it.
            return;
        }
        let names = [
            "type",
            "output_index",
            "delta",
            "item",
            "response",
            "arguments",
            "input",
            "sequence_number",
            "obfuscation",
            "item_id",
        ];
        let fields = lens::fields(event.data, names);
        let Some([kind, index, delta, item, response, arguments, input, unread @ ..]) = fields else {
            no_object(event, attempt, seen);
            return;
        };
        let kind = lens::some_string(kind).unwrap_or_else(|| event.name.into());
        let index = index.and_then(lens::count).unwrap_or(0);
        if let Some(response) = response {
            self.begun(response);
        }
        let text = || delta.and_then(lens::string).unwrap_or_default();
        let mut adds = None;
        match &*kind {
            "response.output_text.delta" => {
                seen.content |= self.draft.say(0, &text());
                adds = Some(Adds::Text { choice: 0 });
            }
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                seen.content |=
                    self.draft.call(0, index, CallPart { arguments: &text(), ..CallPart::default() });
                adds = Some(Adds::Arguments { choice: 0, at: index });
            }
            "response.refusal.delta" => seen.content |= self.draft.add(0, |choice, _| choice.refuse(&text())),
            "response.function_call_arguments.done" | "response.custom_tool_call_input.done" => {
                seen.progress = true;
                self.arguments(index, arguments.or(input));
            }
            "response.output_item.added" | "response.output_item.done" => {
                seen.progress = true;
                seen.content |= self.item(index, item.unwrap_or(""));
            }
            "response.completed" | "response.incomplete" => {
                match self.finish(response.unwrap_or(""), attempt) {
                    Ok(verdict) => seen.end = verdict,
                    Err(fault) => seen.fault = Some(fault),
                }
            }
            "response.failed" | "response.cancelled" => {
                let error = response.and_then(|raw| lens::fields(raw, ["error"])).and_then(|[error]| error);
                let error = error.map(ErrorBody::of_value).unwrap_or_default();
                seen.fault = Some(attempt.reported(&error));
            }
            "error" => {
                let error = Top::read(event.data).and_then(|top| top.failure()).unwrap_or_default();
                seen.fault = Some(attempt.reported(&error));
            }
            other => self.rest(other, &text(), event, attempt, seen),
        }
        let raw = delta.filter(|raw| raw.starts_with('"'));
        if let (Some(adds), Some(raw), None) = (adds, raw, response) {
            self.draft.learn(&Plain { name: event.name, data: event.data, adds, raw, unread, usage: None });
        }
    }

    /// Reasoning and sound in pieces; that the target gets on; or no event of a response.
    fn rest(&mut self, kind: &str, text: &str, event: Event<'_>, attempt: &Attempt, seen: &mut Seen) {
        if kind.starts_with("response.reasoning") && kind.ends_with(".delta") {
            seen.content |= self.draft.add(0, |choice, _| choice.think(text));
        } else if kind.starts_with("response.") && (kind.ends_with(".delta") || kind.contains("partial")) {
            seen.content |= self.draft.add(0, |choice, _| choice.show());
        } else if kind.starts_with("response.") {
            seen.progress = true;
        } else if let Some(error) = error_in(event.data, attempt) {
            seen.fault = Some(attempt.reported(&error));
        } else if matches!(kind, "ping" | "keepalive") {
            keepalive(seen);
        } else {
            self.draft.other();
            seen.content |= self.draft.is_other(attempt);
        }
    }

    /// The response as it stands.
    fn begun(&mut self, response: &str) {
        let [usage] = lens::fields(response, ["usage"]).unwrap_or_default();
        if let Some(usage) = usage {
            self.counts.set(usage);
            self.draft.used(self.counts.usage());
        }
        self.draft.add(0, |_, _| (false, 0));
    }

    /// An item, when it begins or when it is whole.
    fn item(&mut self, index: u64, raw: &str) -> bool {
        let names = ["type", "call_id", "id", "name", "arguments", "input"];
        let [kind, call_id, id, name, arguments, input] = lens::fields(raw, names).unwrap_or_default();
        let is_custom = match lens::some_string(kind).as_deref() {
            Some("function_call") => false,
            Some("custom_tool_call") => true,
            Some("message" | "reasoning") | None => return false,
            // What a tool of OpenAI's own does.
            Some(_) => return self.draft.add(0, |choice, _| choice.show()),
        };
        let id = lens::some_string(call_id).or_else(|| lens::some_string(id));
        let name = lens::some_string(name).unwrap_or_default();
        let part = CallPart { id: id.as_deref(), name: &name, arguments: "", is_custom };
        let is_new = self.draft.add(0, |choice, room| match choice.find_call(index) {
            Some(_) => (false, 0),
            None => choice.call_at(index, part, room),
        });
        self.arguments(index, arguments.or(input));
        is_new
    }

    /// The arguments as a whole, where they did not come in pieces.
    fn arguments(&mut self, index: u64, raw: Option<&str>) {
        let text = raw.and_then(lens::string).unwrap_or_default();
        self.draft.add(0, |choice, room| match choice.find_call(index) {
            Some(call) if call.arguments.is_empty() => {
                choice.call_at(index, CallPart { arguments: &text, ..CallPart::default() }, room)
            }
            _ => (false, 0),
        });
    }

    /// The response is over: what it means.
    fn finish(&mut self, response: &str, attempt: &mut Attempt) -> Result<Option<Verdict>, Fault> {
        let [status, details, output, error] =
            lens::fields(response, ["status", "incomplete_details", "output", "error"]).unwrap_or_default();
        let is_told = output.is_some_and(lens::has_elements) || error.is_some_and(lens::tells);
        if is_told && response.len() <= attempt.config.max_body {
            return self.whole(response, attempt);
        }
        let [reason] = details.and_then(|raw| lens::fields(raw, ["reason"])).unwrap_or_default();
        let finish = finish_with(lens::some_string(status).as_deref(), reason);
        self.draft.add(0, |choice, _| {
            choice.finish = match finish {
                Some(Finish::Stop) if choice.has_calls() => Some(Finish::ToolCalls),
                other => other,
            };
            (false, 0)
        });
        self.conclude(Ended::Said, attempt)
    }

    fn whole(&mut self, response: &str, attempt: &mut Attempt) -> Result<Option<Verdict>, Fault> {
        let provider = Provider::OpenAiResponses;
        let mut facts =
            provider.judge(attempt.status, &attempt.headers, response.as_bytes(), &attempt.offered);
        facts.usage = self.counts.usage();
        facts.output_bytes = facts.output_bytes.max(self.draft.output_bytes());
        settle(facts, Ended::Said, attempt)
    }

    /// What the whole answer means, where no event said that it is over.
    pub(crate) fn conclude(&mut self, ended: Ended, attempt: &mut Attempt) -> Result<Option<Verdict>, Fault> {
        self.draft.end(ended, "the stream ended without `response.completed`", attempt)
    }
}
