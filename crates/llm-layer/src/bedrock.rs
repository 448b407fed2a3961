//! AWS Bedrock's Converse API: `Converse`, whole, and `ConverseStream`, in AWS's binary event stream.
//!
//! Its events are `messageStart`, for each block of content `contentBlockStart`, `contentBlockDelta` and
//! `contentBlockStop`, then `messageStop` with the reason, and `metadata` with the usage, which is the end. Exceptions come
//! as messages of their own kind. `InvokeModelWithResponseStream` sends a model's own events, each in base64 in a `chunk`. Which exception an error response is says the header `x-amzn-ErrorType`.

mod base64;

use failsoft_core::{Facts, Fault, Finding, Hint, SoftKind, Usage, Verdict};
use http::HeaderMap;
use stream_layer::Seen;

use crate::{
    Offered,
    attempt::Attempt,
    draft::{Draft, Ended},
    error::{ErrorBody, Top},
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
    finish: "/stopReason",
    message: "/output/message",
    content: "/output/message/content",
    calls: "/output/message/content",
    keeps_index: true,
    function: "/toolUse",
    arguments: "/input",
    empty: Hint::Same,
};

/// What came of an answer so far.
#[derive(Debug)]
pub(crate) struct Stream {
    draft: Draft,
    usage: Usage,
    has_stopped: bool,
}

impl Stream {
    /// Text and tool calls are kept up to so many bytes.
    pub(crate) fn new(room: usize) -> Self {
        Self { draft: Draft::new(&FORM, room), usage: Usage::default(), has_stopped: false }
    }

    pub(crate) fn draft(&mut self) -> &mut Draft {
        &mut self.draft
    }

    /// Takes one event. Gateways send them as server-sent events too: then its name may be the one key of an object.
    pub(crate) fn event(&mut self, event: Event<'_>, attempt: &mut Attempt, seen: &mut Seen) {
        if let Some(error) = exception_in(event) {
            seen.fault = Some(attempt.reported(&error));
            return;
        }
        let [start, delta, stop, metadata] = match (event.name, event.data) {
            ("messageStart", _) => {
                // It has begun, though nothing was said.
                self.draft.add(0, |_, _| (false, 0));
                return;
            }
            ("contentBlockStop", _) => return,
            ("contentBlockStart", data) => [Some(data), None, None, None],
            ("contentBlockDelta", data) => [None, Some(data), None, None],
            ("messageStop", data) => [None, None, Some(data), None],
            ("metadata", data) => [None, None, None, Some(data)],
            (_, data) => {
                let names = ["contentBlockStart", "contentBlockDelta", "messageStop", "metadata"];
                let Some(found) = lens::fields(data, names) else { return no_object(event, attempt, seen) };
                if found == [None; 4] {
                    self.other(event, attempt, seen);
                }
                found
            }
        };
        if let Some(raw) = start {
            self.block(raw, seen, |raw, index, parts| {
                let [start] = lens::fields(raw, ["start"]).unwrap_or_default();
                block_start(start.unwrap_or("{}"), index, parts);
                None::<()>
            });
        }
        if let Some(raw) = delta {
            let [inner, padding] = lens::fields(raw, ["delta", "p"]).unwrap_or_default();
            let only = self.block(raw, seen, |_, index, parts| block(inner.unwrap_or("{}"), index, parts));
            if let (Some((adds, raw)), [None, _, None, None]) = (only, [start, delta, stop, metadata]) {
                let (name, data, unread) = (event.name, event.data, [padding, None, None]);
                self.draft.learn(&Plain { name, data, adds, raw, unread, usage: None });
            }
        }
        if let Some(raw) = stop {
            let [reason] = lens::fields(raw, ["stopReason"]).unwrap_or_default();
            let finish = finish_of(reason);
            self.has_stopped |= finish.is_some();
            seen.progress = true;
            self.draft.add(0, |message, _| {
                message.finish = finish;
                (false, 0)
            });
        }
        if let Some(raw) = metadata {
            let [usage] = lens::fields(raw, ["usage"]).unwrap_or_default();
            self.usage.set(&usage.map(usage_of).unwrap_or_default());
            seen.progress |= self.draft.used(self.usage);
            if self.has_stopped {
                match self.conclude(Ended::Said, attempt) {
                    Ok(verdict) => seen.end = verdict,
                    Err(fault) => seen.fault = Some(fault),
                }
            }
        }
    }

    /// Adds what an event says of one block of the content.
    fn block<T>(
        &mut self,
        raw: &str,
        seen: &mut Seen,
        add: impl FnOnce(&str, u64, &mut Parts<'_>) -> Option<T>,
    ) -> Option<T> {
        let mut only = None;
        let [index] = lens::fields(raw, ["contentBlockIndex"]).unwrap_or_default();
        let index = index.and_then(lens::count).unwrap_or(0);
        seen.content |= self.draft.add(0, |message, room| {
            let mut parts = Parts::new(message, room);
            only = add(raw, index, &mut parts);
            parts.added()
        });
        only
    }

    fn other(&mut self, event: Event<'_>, attempt: &Attempt, seen: &mut Seen) {
        if let Some(error) = error_in(event.data, attempt) {
            seen.fault = Some(attempt.reported(&error));
            return;
        }
        let known = ["messageStart", "contentBlockStop"];
        if lens::fields(event.data, known).is_some_and(|found| found != [None; 2]) {
            return;
        }
        self.draft.other();
        // What content is in another format is not known here.
        seen.content |= self.draft.is_other(attempt);
    }

    /// What the whole answer means. It came to its end where it said why it stopped: the usage after that may be lost.
    pub(crate) fn conclude(&mut self, ended: Ended, attempt: &mut Attempt) -> Result<Option<Verdict>, Fault> {
        let ended = if self.has_stopped { Ended::Said } else { ended };
        self.draft.end(ended, "the stream ended without a stop reason", attempt)
    }
}

/// The start of a block: of a tool call, its id and name.
fn block_start(raw: &str, index: u64, parts: &mut Parts<'_>) {
    let [tool, image] = lens::fields(raw, ["toolUse", "image"]).unwrap_or_default();
    if let Some([id, name]) = tool.and_then(|raw| lens::fields(raw, ["toolUseId", "name"])) {
        let (id, name) = (lens::some_string(id), name.and_then(lens::string).unwrap_or_default());
        parts.call(index, CallPart { id: id.as_deref(), name: &name, ..CallPart::default() });
    }
    if image.is_some() {
        parts.show();
    }
}

/// A block of content, whole or a piece of one. Gives the string that is all of it, where that is so.
fn block<'a>(raw: &'a str, index: u64, parts: &mut Parts<'_>) -> Option<(Adds, &'a str)> {
    let names =
        ["text", "toolUse", "reasoningContent", "citationsContent", "image", "video", "audio", "document"];
    let [text, tool, reasoning, cited, shown @ ..] = lens::fields(raw, names)?;
    let is_bare = cited.is_none() && shown == [None; 4];
    let mut only = None;
    if let Some(text) = text.and_then(lens::string) {
        parts.say(&text);
    }
    if let Some([id, name, input]) = tool.and_then(|raw| lens::fields(raw, ["toolUseId", "name", "input"])) {
        let (id, name) = (lens::some_string(id), name.and_then(lens::string).unwrap_or_default());
        // An object as a whole, the text of one in a stream.
        let input = input.unwrap_or_default();
        let arguments = &*lens::string(input).unwrap_or_else(|| input.into());
        parts.call(index, CallPart { id: id.as_deref(), name: &name, arguments, is_custom: false });
        only = (id.is_none() && name.is_empty()).then_some((Adds::Arguments { choice: 0, at: index }, input));
    }
    if let Some(raw) = reasoning {
        // The signature alone is a seal on what was thought before.
        let [whole, text, redacted] =
            lens::fields(raw, ["reasoningText", "text", "redactedContent"]).unwrap_or_default();
        let [inner] = whole.and_then(|raw| lens::fields(raw, ["text"])).unwrap_or_default();
        let said = text.or(inner).or(redacted);
        parts.think(&said.and_then(lens::string).unwrap_or_default());
        only = said.map(|raw| (Adds::Reasoning { choice: 0 }, raw));
    }
    if let Some([list]) = cited.and_then(|raw| lens::fields(raw, ["content"])) {
        lens::each(list.unwrap_or("[]"), |raw| {
            let [text] = lens::fields(raw, ["text"]).unwrap_or_default();
            parts.say(&text.and_then(lens::string).unwrap_or_default());
            true
        });
    }
    if shown.into_iter().flatten().any(lens::truthy) {
        parts.show();
    }
    let only = match (text, tool, reasoning) {
        (Some(raw), None, None) => Some((Adds::Text { choice: 0 }, raw)),
        (None, Some(_), None) | (None, None, Some(_)) => only,
        _ => None,
    };
    only.filter(|(_, raw)| is_bare && raw.starts_with('"'))
}

/// The tokens that a body says were used.
pub(crate) fn usage(top: &Top<'_>) -> Usage {
    top.usage.map(usage_of).unwrap_or_default()
}

/// `inputTokens` does not include what was read from or written to a cache.
fn usage_of(raw: &str) -> Usage {
    let names = ["inputTokens", "outputTokens", "cacheReadInputTokens", "cacheWriteInputTokens"];
    let [input, output, cache_read, cache_write] =
        lens::fields(raw, names).unwrap_or_default().map(|raw| raw.and_then(lens::count));
    Usage { input, output, cache_read, cache_write, reasoning: None }
}

/// Judges an object that is no error.
pub(crate) fn answer(top: &Top<'_>, headers: &HeaderMap, offered: &Offered, facts: &mut Facts) {
    let Some([output, stop]) = lens::fields(top.text(), ["output", "stopReason"]) else { return };
    let [message] = output.and_then(|raw| lens::fields(raw, ["message"])).unwrap_or_default();
    if message.is_none() && stop.is_none() {
        if let Some(error) = unrouted(top.text()).or_else(|| top.instead_of_answer()) {
            error.tell(None, headers, facts);
        } else if offered.is_chat() == Some(true) {
            no_message(facts);
        } else {
            // The answer of a model that was invoked in its own format.
            facts.verdict = Some(Verdict::SUCCESS);
        }
        return;
    }
    let mut draft = Draft::new(&FORM, usize::MAX);
    draft.add(0, |choice, room| {
        choice.finish = finish_of(stop);
        let mut parts = Parts::new(choice, room);
        let [list] = message.and_then(|raw| lens::fields(raw, ["content"])).unwrap_or_default();
        let mut index = 0;
        lens::each(list.unwrap_or("[]"), |raw| {
            block(raw, index, &mut parts);
            index += 1;
            true
        });
        parts.added()
    });
    draft.judge(headers, offered, facts);
    facts.verdict.get_or_insert(Verdict::SUCCESS);
}

/// JSON that is neither an answer nor an error.
fn no_message(facts: &mut Facts) {
    let finding = Finding::new(SoftKind::Malformed, "no_message", "no `output.message` in the body");
    fail(facts, Verdict::soft(SoftKind::Malformed).with_hint(Hint::Same), finding.at("/output"));
}

/// An operation that the endpoint does not know comes as a success: `{"Output": {"__type": …}}`.
fn unrouted(text: &str) -> Option<ErrorBody<'_>> {
    let [output] = lens::fields(text, ["Output"])?;
    let output = output?;
    let [kind] = lens::fields(output, ["__type"])?;
    kind.map(|_| ErrorBody::of_value(output))
}

/// The event of a model's own that a `chunk` holds; `None` where it holds none.
pub(crate) fn chunk(payload: &str) -> Option<String> {
    let [bytes] = lens::fields(payload, ["bytes"])?;
    let bytes = base64::decode(&bytes.and_then(lens::string)?)?;
    Some(match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(err) => String::from_utf8_lossy(err.as_bytes()).into_owned(),
    })
}

/// What Bedrock itself counted, in the last event of a model's own.
pub(crate) fn metrics(event: &str) -> Option<Usage> {
    let [metrics] = lens::fields(event, ["amazon-bedrock-invocationMetrics"])?;
    let names =
        ["inputTokenCount", "outputTokenCount", "cacheReadInputTokenCount", "cacheWriteInputTokenCount"];
    let [input, output, cache_read, cache_write] =
        lens::fields(metrics?, names)?.map(|raw| raw.and_then(lens::count));
    Some(Usage { input, output, cache_read, cache_write, reasoning: None })
}

/// An exception that came as a message of a stream.
pub(crate) fn exception<'a>(name: &'a str, payload: &'a str) -> ErrorBody<'a> {
    ErrorBody::of_value(payload).named(name)
}

/// An error for which the service has no exception.
pub(crate) fn unmodelled<'a>(code: &'a str, message: &'a str) -> ErrorBody<'a> {
    ErrorBody::of_text(message).named(code)
}

/// The exception that an event is, of those who send them as server-sent events.
fn exception_in(event: Event<'_>) -> Option<ErrorBody<'_>> {
    const NAMES: [&str; 6] = [
        "internalServerException",
        "modelStreamErrorException",
        "modelTimeoutException",
        "serviceUnavailableException",
        "throttlingException",
        "validationException",
    ];
    if NAMES.contains(&event.name) {
        return Some(exception(event.name, event.data));
    }
    let found = lens::fields(event.data, NAMES)?;
    NAMES.iter().zip(found).find_map(|(name, raw)| Some(exception(name, raw?)))
}

#[cfg(test)]
mod tests;
