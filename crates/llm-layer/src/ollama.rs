//! Ollama's native API: `/api/chat` and `/api/generate`, whole, and streamed as lines of JSON, which is its default.
//!
//! The line with `"done": true` is the end, and has the reason and the counts. An error after the first line is a line with
//! an `error`. A request without messages loads the model, or unloads it: its answer says so and nothing else.

use failsoft_core::{Facts, Fault, Finding, Finish, Hint, SoftKind, Usage, Verdict};
use http::HeaderMap;
use stream_layer::Seen;

use crate::{
    Offered,
    attempt::Attempt,
    draft::{Draft, Ended},
    error::Top,
    events::{Event, error_in, no_object},
    finish::finish_of,
    form::Form,
    lens,
    mould::{Adds, Plain},
    pieces::{CallPart, Parts},
    whole::fail,
};

const FORM: Form = Form {
    choices: "",
    has_index: false,
    finish: "/done_reason",
    message: "/message",
    content: "/message/content",
    calls: "/message/tool_calls",
    keeps_index: true,
    function: "/function",
    arguments: "/arguments",
    empty: Hint::Same,
};

/// What came of an answer so far.
#[derive(Debug)]
pub(crate) struct Stream {
    draft: Draft,
    usage: Usage,
    /// How many tool calls came.
    calls: u64,
    /// A model was loaded or unloaded, and nothing was asked of it.
    loaded: Option<Finish>,
    is_done: bool,
}

impl Stream {
    /// Text and tool calls are kept up to so many bytes.
    pub(crate) fn new(room: usize) -> Self {
        Self {
            draft: Draft::new(&FORM, room),
            usage: Usage::default(),
            calls: 0,
            loaded: None,
            is_done: false,
        }
    }

    pub(crate) fn draft(&mut self) -> &mut Draft {
        &mut self.draft
    }

    pub(crate) fn event(&mut self, event: Event<'_>, attempt: &mut Attempt, seen: &mut Seen) {
        let Some(line) = Line::read(event.data) else { return no_object(event, attempt, seen) };
        if line.error.is_some_and(lens::tells) || line.is_other() {
            match error_in(event.data, attempt) {
                Some(error) => seen.fault = Some(attempt.reported(&error)),
                None => {
                    // Such as the progress of a download. What content is in another format is not known here.
                    self.draft.other();
                    seen.content |= self.draft.is_other(attempt);
                }
            }
            return;
        }
        if let Some((adds, raw)) = self.line(&line, seen) {
            let (name, data, unread) = (event.name, event.data, [line.created, None, None]);
            self.draft.learn(&Plain { name, data, adds, raw, unread, usage: None });
        }
        if self.is_done {
            match self.conclude(Ended::Said, attempt) {
                Ok(verdict) => seen.end = verdict,
                Err(fault) => seen.fault = Some(fault),
            }
        }
    }

    /// Gives the string that is all that the line adds, where that is so.
    fn line<'a>(&mut self, line: &Line<'a>, seen: &mut Seen) -> Option<(Adds, &'a str)> {
        self.usage.set(&line.usage);
        seen.progress |= self.draft.used(self.usage);
        let (calls, mut only) = (&mut self.calls, None);
        seen.content |= self.draft.add(0, |message, room| {
            let mut parts = Parts::new(message, room);
            only = line.add(calls, &mut parts);
            let added = parts.added();
            if line.is_done {
                // Older servers give no reason: then it was done.
                message.finish = Some(finish_of(line.reason).unwrap_or(Finish::Stop));
            }
            added
        });
        self.is_done |= line.is_done;
        if line.is_done && line.says_loaded() {
            self.loaded = finish_of(line.reason);
        }
        only.filter(|_| !line.is_done && line.usage.is_unknown())
    }

    /// What the whole answer means.
    pub(crate) fn conclude(&mut self, ended: Ended, attempt: &mut Attempt) -> Result<Option<Verdict>, Fault> {
        if let Some(loaded) = self.loaded.take() {
            let mut facts = Facts::default();
            facts.finish = Some(loaded);
            facts.usage = self.usage;
            attempt.tell(facts);
            return Ok(Some(Verdict::SUCCESS));
        }
        self.draft.end(ended, "the stream ended before it said that it is done", attempt)
    }
}

/// One line of an answer, or the whole of it.
struct Line<'a> {
    message: Option<&'a str>,
    response: Option<&'a str>,
    thinking: Option<&'a str>,
    reason: Option<&'a str>,
    error: Option<&'a str>,
    created: Option<&'a str>,
    is_done: bool,
    says_done: bool,
    usage: Usage,
}

impl<'a> Line<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let names = [
            "message",
            "response",
            "thinking",
            "done",
            "done_reason",
            "error",
            "prompt_eval_count",
            "eval_count",
            "created_at",
        ];
        let [message, response, thinking, done, reason, error, input, output, created] =
            lens::fields(text, names)?;
        let count = |raw: Option<&str>| raw.and_then(lens::count);
        Some(Self {
            message,
            response,
            thinking,
            reason,
            error,
            created,
            is_done: done == Some("true"),
            says_done: done.is_some(),
            usage: Usage { input: count(input), output: count(output), ..Usage::default() },
        })
    }

    /// Whether it says nothing that a line of an answer says.
    fn is_other(&self) -> bool {
        self.message.is_none() && self.response.is_none() && !self.says_done
    }

    fn says_loaded(&self) -> bool {
        matches!(self.reason.and_then(lens::string).as_deref(), Some("load" | "unload"))
    }

    /// Adds what it holds. `calls` counts the tool calls of all lines. Gives the string that is all of it, where that is so.
    fn add(&self, calls: &mut u64, parts: &mut Parts<'_>) -> Option<(Adds, &'a str)> {
        let [content, thinking, tools, images] = self
            .message
            .and_then(|raw| lens::fields(raw, ["content", "thinking", "tool_calls", "images"]))
            .unwrap_or_default();
        let thinking = thinking.or(self.thinking).filter(|raw| lens::some_string(Some(raw)).is_some());
        if let Some(text) = thinking.and_then(lens::string) {
            parts.think(&text);
        }
        let content = content.or(self.response).filter(|raw| raw.starts_with('"'));
        if let Some(text) = content.and_then(lens::string) {
            parts.say(&text);
        }
        let shows = images.is_some_and(lens::truthy);
        if shows {
            parts.show();
        }
        let before = *calls;
        lens::each(tools.unwrap_or("[]"), |raw| {
            let [id, function] = lens::fields(raw, ["id", "function"]).unwrap_or_default();
            let [name, arguments] =
                function.and_then(|raw| lens::fields(raw, ["name", "arguments"])).unwrap_or_default();
            let (id, name) = (lens::some_string(id), name.and_then(lens::string).unwrap_or_default());
            let arguments = arguments.unwrap_or_default();
            let arguments = &*lens::string(arguments).unwrap_or_else(|| arguments.into());
            parts.call(*calls, CallPart { id: id.as_deref(), name: &name, arguments, is_custom: false });
            *calls += 1;
            true
        });
        match (thinking, content) {
            _ if shows || *calls > before => None,
            (None, Some(raw)) => Some((Adds::Text { choice: 0 }, raw)),
            (Some(raw), None | Some("\"\"")) => Some((Adds::Reasoning { choice: 0 }, raw)),
            _ => None,
        }
    }
}

/// The tokens that a body says were used.
pub(crate) fn usage(top: &Top<'_>) -> Usage {
    Line::read(top.text()).map(|line| line.usage).unwrap_or_default()
}

/// Judges an object that is no error.
pub(crate) fn answer(top: &Top<'_>, headers: &HeaderMap, offered: &Offered, facts: &mut Facts) {
    let Some(line) = Line::read(top.text()) else { return };
    if line.is_other() {
        if let Some(error) = top.instead_of_answer() {
            error.tell(None, headers, facts);
        } else if offered.is_chat() == Some(true) {
            no_answer(facts);
        } else {
            // Vectors, a list of models.
            facts.verdict = Some(Verdict::SUCCESS);
        }
        return;
    }
    // Who makes this API up for a model of another kind may leave `done` out.
    let line = Line { is_done: line.is_done || !line.says_done, ..line };
    judge([line], headers, offered, facts);
}

/// Judges a stream that came as a whole. `None` where the text is not lines of an answer.
pub(crate) fn lines(text: &str, headers: &HeaderMap, offered: &Offered, facts: &mut Facts) -> Option<()> {
    let mut lines = Vec::new();
    let mut failed = None;
    for text in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let line = Line::read(text)?;
        if line.error.is_some_and(lens::tells) {
            failed = Top::read(text).and_then(|top| top.error());
            break;
        }
        if line.is_other() {
            return None;
        }
        lines.push(line);
    }
    if lines.is_empty() && failed.is_none() {
        return None;
    }
    let mut found = Facts::default();
    judge(lines, headers, offered, &mut found);
    if let Some(error) = failed {
        error.tell(None, headers, &mut found);
    }
    *facts = found;
    Some(())
}

fn judge<'a>(
    lines: impl IntoIterator<Item = Line<'a>>,
    headers: &HeaderMap,
    offered: &Offered,
    facts: &mut Facts,
) {
    let (mut stream, mut seen) = (Stream::new(usize::MAX), Seen::default());
    for line in lines {
        stream.line(&line, &mut seen);
    }
    facts.usage = stream.usage;
    if let Some(loaded) = stream.loaded {
        facts.finish = Some(loaded);
        facts.verdict = Some(Verdict::SUCCESS);
        return;
    }
    if !stream.is_done {
        let finding = Finding::new(SoftKind::Truncated, "not_done", "it does not say that it is done");
        fail(facts, Verdict::soft(SoftKind::Truncated).with_hint(Hint::Same), finding.at("/done"));
    }
    stream.draft.judge(headers, offered, facts);
    facts.verdict.get_or_insert(Verdict::SUCCESS);
}

/// JSON that is neither an answer nor an error.
fn no_answer(facts: &mut Facts) {
    let finding =
        Finding::new(SoftKind::Malformed, "no_message", "no `message` and no `response` in the body");
    fail(facts, Verdict::soft(SoftKind::Malformed).with_hint(Hint::Same), finding);
}

#[cfg(test)]
mod tests;
