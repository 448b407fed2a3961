//! Messages as server-sent events: `message_start`, the blocks with their deltas, `message_delta`, `message_stop`.
//!
//! An answer is whole at `message_stop`. Usage comes at the start and with `message_delta`; the last value counts.

use failsoft_core::{Fault, Verdict};
use stream_layer::Seen;

use super::{Counts, FORM};
use crate::{
    attempt::Attempt,
    draft::{Draft, Ended},
    error::Top,
    events::{Event, error_in, keepalive, no_object},
    finish::finish_of,
    lens,
    mould::{Adds, Plain, UNREAD},
    pieces::CallPart,
};

/// What came of an answer so far.
#[derive(Debug)]
pub(crate) struct Stream {
    draft: Draft,
    counts: Counts,
}

impl Stream {
    pub(crate) const fn new(room: usize) -> Self {
        let counts =
            Counts { input: None, cache_read: None, cache_write: None, output: None, thinking: None };
        Self { draft: Draft::new(&FORM, room), counts }
    }

    pub(crate) const fn draft(&mut self) -> &mut Draft {
        &mut self.draft
    }

    pub(crate) fn event(&mut self, event: Event<'_>, attempt: &mut Attempt, seen: &mut Seen) {
        let names = ["type", "index", "delta", "content_block", "message", "usage"];
        let Some([kind, index, delta, block, message, usage]) = lens::fields(event.data, names) else {
            no_object(event, attempt, seen);
            return;
        };
        let kind = lens::some_string(kind).unwrap_or_else(|| event.name.into());
        let index = index.and_then(lens::count).unwrap_or(0);
        self.used(usage);
        match &*kind {
            "content_block_delta" => {
                let (has_content, only) = self.delta(index, delta.unwrap_or(""));
                seen.content |= has_content;
                if let (Some((adds, raw)), None) = (only, usage) {
                    let (name, data) = (event.name, event.data);
                    self.draft.learn(&Plain { name, data, adds, raw, unread: [None; UNREAD], usage: None });
                }
            }
            "content_block_start" => {
                seen.progress = true;
                seen.content |= self.block(index, block.unwrap_or(""));
            }
            "content_block_stop" => {
                seen.progress = true;
                self.stop(index, attempt);
            }
            "message_start" => {
                seen.progress = true;
                self.start(message.unwrap_or(""));
            }
            "message_delta" => {
                seen.progress = true;
                let [stop] = delta.and_then(|raw| lens::fields(raw, ["stop_reason"])).unwrap_or_default();
                let finish = finish_of(stop);
                self.draft.add(0, |choice, _| {
                    choice.finish = finish.or_else(|| choice.finish.take());
                    (false, 0)
                });
            }
            "message_stop" => match self.conclude(Ended::Said, attempt) {
                Ok(verdict) => seen.end = verdict,
                Err(fault) => seen.fault = Some(fault),
            },
            "ping" => keepalive(seen),
            "error" => {
                let error = Top::read(event.data).and_then(|top| top.failure()).unwrap_or_default();
                seen.fault = Some(attempt.reported(&error));
            }
            _ => match error_in(event.data, attempt) {
                Some(error) => seen.fault = Some(attempt.reported(&error)),
                None => {
                    self.draft.other();
                    seen.content |= self.draft.is_other(attempt);
                }
            },
        }
    }

    fn used(&mut self, usage: Option<&str>) {
        if let Some(usage) = usage {
            self.counts.set(usage);
            self.draft.used(self.counts.usage());
        }
    }

    fn start(&mut self, message: &str) {
        let [usage, stop] = lens::fields(message, ["usage", "stop_reason"]).unwrap_or_default();
        self.used(usage);
        let finish = finish_of(stop);
        self.draft.add(0, |choice, _| {
            choice.finish = finish;
            (false, 0)
        });
    }

    fn block(&mut self, index: u64, raw: &str) -> bool {
        let names = ["type", "text", "thinking", "id", "name", "input"];
        let [kind, text, thinking, id, name, input] = lens::fields(raw, names).unwrap_or_default();
        let some = |raw: Option<&'_ str>| lens::some_string(raw).unwrap_or_default().into_owned();
        match lens::some_string(kind).as_deref() {
            Some("text") => self.draft.say(0, &some(text)),
            Some("thinking") => self.draft.add(0, |choice, _| choice.think(&some(thinking))),
            Some("redacted_thinking") => self.draft.add(0, |choice, _| {
                choice.think("");
                (true, 0)
            }),
            Some("tool_use") => {
                let (id, name) = (some(id), some(name));
                // An empty object keeps the place of what comes in fragments; some servers send all of it here.
                let arguments = input.filter(|raw| lens::truthy(raw)).unwrap_or("");
                let id = Some(&*id).filter(|id| !id.is_empty());
                self.draft.call(0, index, CallPart { id, name: &name, arguments, is_custom: false })
            }
            // A tool of Anthropic's own, or what it found.
            _ => self.draft.add(0, |choice, _| choice.show()),
        }
    }

    /// Whether it is content, and the string that is all it adds, where that is so.
    fn delta<'a>(&mut self, index: u64, raw: &'a str) -> (bool, Option<(Adds, &'a str)>) {
        let names = ["type", "text", "thinking", "partial_json"];
        let [kind, text, thinking, json] = lens::fields(raw, names).unwrap_or_default();
        let only = |adds, raw: Option<&'a str>| raw.filter(|raw| raw.starts_with('"')).map(|raw| (adds, raw));
        match lens::some_string(kind).as_deref() {
            Some("text_delta") => {
                let has_content = self.draft.say(0, &text.and_then(lens::string).unwrap_or_default());
                (has_content, only(Adds::Text { choice: 0 }, text))
            }
            Some("thinking_delta") => {
                let thoughts = thinking.and_then(lens::string).unwrap_or_default();
                let has_content = self.draft.add(0, |choice, _| choice.think(&thoughts));
                (has_content, only(Adds::Reasoning { choice: 0 }, thinking))
            }
            Some("input_json_delta") => {
                let text = json.and_then(lens::string).unwrap_or_default();
                let mut is_called = false;
                let has_content = self.draft.add(0, |choice, room| {
                    is_called = choice.find_call(index).is_some();
                    if is_called {
                        choice.call_at(index, CallPart { arguments: &text, ..CallPart::default() }, room)
                    } else {
                        // What a tool of Anthropic's own is asked.
                        (!text.is_empty(), text.len() as u64)
                    }
                });
                let adds = Adds::Arguments { choice: 0, at: index };
                (has_content, only(adds, json).filter(|_| is_called))
            }
            // Signatures, citations.
            _ => (false, None),
        }
    }

    /// A block is over. Of a tool that was called with no fragment, the arguments are the empty object that its block
    /// began with; unless it is known to need some.
    fn stop(&mut self, index: u64, attempt: &Attempt) {
        self.draft.add(0, |choice, room| {
            let bare = choice.find_call(index).filter(|call| {
                call.arguments.trim().is_empty() && !attempt.offered.needs_arguments(&call.name)
            });
            if bare.is_some() {
                choice.call_at(index, CallPart { arguments: "{}", ..CallPart::default() }, room);
            }
            (false, 0)
        });
    }

    /// What the whole answer means.
    pub(crate) fn conclude(&mut self, ended: Ended, attempt: &mut Attempt) -> Result<Option<Verdict>, Fault> {
        self.draft.end(ended, "the stream ended without `message_stop`", attempt)
    }
}
