//! One of the choices of a chat completion, whole or put together from a stream, and what is wrong with it.

use failsoft_core::{Alternative, Class, Facts, Finding, Finish, Hint, Severity, SoftKind, Verdict, json};
use http::HeaderMap;

use crate::{
    Offered,
    chat::FORM,
    error::ErrorBody,
    finish::{Failed, failed, finish_of},
    form::Form,
    lens,
    mould::Adds,
    tools::Calls,
    whole::fail,
};

/// At most so many answers beside the first are handed on: no provider gives more to one request.
const MAX_ALTERNATIVES: usize = 127;

/// One of the answers, of which there is usually one.
pub(crate) struct Choice<'a> {
    pub(crate) form: &'static Form,
    /// Where it lies.
    pub(crate) at: String,
    pub(crate) finish: Option<Finish>,
    pub(crate) error: Option<&'a str>,
    pub(crate) content: Content,
    pub(crate) calls: Calls,
}

/// What a message holds beside tool calls.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) text: String,
    /// Sound, pictures.
    pub(crate) other: bool,
    pub(crate) refused: bool,
    pub(crate) reasoning: bool,
    /// Of text, reasoning and refusal.
    pub(crate) bytes: u64,
}

impl<'a> Choice<'a> {
    /// A choice of a chat completion.
    pub(crate) fn read(raw: &'a str, index: u64, offered: &Offered) -> Self {
        let at = FORM.choice(index);
        let [finish, message, text, error] =
            lens::fields(raw, ["finish_reason", "message", "text", "error"]).unwrap_or_default();
        let message = Message::read(message, text);
        let mut content = message.content.map(Content::read).unwrap_or_default();
        message.beside(&mut content);
        Self {
            finish: finish_of(finish),
            error: error.filter(|raw| lens::tells(raw)),
            content,
            calls: Calls::read(message.tool_calls, message.function_call, &at, offered),
            form: &FORM,
            at,
        }
    }

    /// Writes down what it is made of: the first one as the answer, the others beside it.
    pub(crate) fn tell(self, is_first: bool, facts: &mut Facts) {
        let arguments = self.calls.calls.iter().map(|call| call.name.len() + call.arguments.len());
        let bytes = arguments.fold(self.content.bytes, |sum, bytes| sum.saturating_add(bytes as u64));
        facts.output_bytes = facts.output_bytes.saturating_add(bytes);
        let text = (!self.content.text.is_empty()).then(|| self.content.text.into());
        if is_first {
            facts.text = text;
            facts.tool_calls = self.calls.calls;
            facts.finish = self.finish;
        } else if facts.alternatives.len() < MAX_ALTERNATIVES {
            facts.alternatives.push(Alternative::new(text, self.calls.calls, self.finish));
        }
    }

    /// Writes down what is wrong with it.
    pub(crate) fn judge(&mut self, headers: &HeaderMap, offered: &Offered, facts: &mut Facts) {
        if let Some(error) = self.error {
            facts.verdict.get_or_insert_with(|| ErrorBody::of_value(error).verdict(None, headers));
        } else if !self.stopped_badly(facts) && !self.has_wrong_calls(facts) && !self.is_empty(offered, facts)
        {
            self.has_wrong_text(offered, facts);
        }
    }

    /// A finish reason, or a refusal, that decides whatever else is there.
    pub(crate) fn stopped_badly(&self, facts: &mut Facts) -> bool {
        let failed = match &self.finish {
            Some(Finish::ContentFilter) => {
                self.refuse("content_filter", "a filter stopped it", self.form.finish, facts);
                return true;
            }
            Some(Finish::Refusal) => {
                self.refuse("refusal", "the model refused", self.form.finish, facts);
                return true;
            }
            Some(Finish::Paused) => {
                facts.verdict.get_or_insert(Verdict::SUCCESS.with_hint(Hint::Continue));
                return true;
            }
            Some(Finish::Length) => {
                let message = if self.content.is_blank() && self.calls.is_empty() {
                    "the limit of tokens was reached before any content"
                } else {
                    "cut at the limit of tokens"
                };
                let (verdict, kind) = (Verdict::soft(SoftKind::Truncated), SoftKind::Truncated);
                Some(Failed { verdict, kind, code: "length", message })
            }
            Some(Finish::Other(reason)) => failed(reason),
            _ => None,
        };
        if let Some(Failed { verdict, kind, code, message }) = failed {
            fail(facts, verdict, Finding::new(kind, code, message).at(self.path(self.form.finish)));
            return true;
        }
        if self.content.refused {
            self.refuse("refusal", "the model refused", self.form.message, facts);
        }
        self.content.refused
    }

    fn refuse(&self, code: &'static str, message: &'static str, below: &str, facts: &mut Facts) {
        let finding = Finding::of(Class::Refused, code, message).at(self.path(below));
        fail(facts, Verdict::of(Class::Refused), finding);
    }

    /// A place in it.
    fn path(&self, below: &str) -> String {
        format!("{}{below}", self.at)
    }

    fn has_wrong_calls(&mut self, facts: &mut Facts) -> bool {
        facts.report.extend(self.calls.findings.drain(..));
        match self.calls.failure {
            Some(verdict) => {
                facts.verdict.get_or_insert(verdict);
                true
            }
            None => false,
        }
    }

    fn is_empty(&self, offered: &Offered, facts: &mut Facts) -> bool {
        if !self.content.is_blank() || self.content.other || !self.calls.is_empty() {
            return false;
        }
        let usage = facts.usage;
        let only_reasoned = self.content.reasoning
            || usage.reasoning.is_some_and(|tokens| tokens > 0) && usage.output == Some(0);
        let spent_all = offered.max_tokens().is_some_and(|max| max > 0 && usage.total_output() >= max);
        let (kind, hint, code, message) = if spent_all {
            // Some servers say `stop` also where they cut.
            (SoftKind::Truncated, Hint::Modify, "length", "all tokens were used, and there is no content")
        } else if only_reasoned {
            (SoftKind::Empty, Hint::Modify, "reasoning_only", "nothing but reasoning")
        } else if self.finish == Some(Finish::ToolCalls) {
            (SoftKind::ToolCall, Hint::Same, "no_tool_call", "it stopped to call tools, and calls none")
        } else {
            (SoftKind::Empty, self.form.empty, "empty", "no content and no tool call")
        };
        let finding = Finding::new(kind, code, message).at(self.path(self.form.message));
        fail(facts, Verdict::soft(kind).with_hint(hint), finding);
        true
    }

    /// What is wrong with an answer that has something to show.
    fn has_wrong_text(&self, offered: &Offered, facts: &mut Facts) {
        let text = self.content.text.as_str();
        if let Some(Finish::Other(reason)) = &self.finish {
            let reason: String = reason.chars().take(64).collect();
            let finding = Finding::new(
                SoftKind::LowConfidence,
                "unknown_finish",
                format!("it stopped for a reason that is not known: `{reason}`"),
            );
            let verdict = Verdict::soft(SoftKind::LowConfidence).with_hint(Hint::Same);
            fail(facts, verdict, finding.at(self.path(self.form.finish)));
            return;
        }
        if self.finish.is_none() {
            let finding = Finding::new(SoftKind::Truncated, "no_finish_reason", "no finish reason")
                .at(self.at.clone())
                .with_severity(Severity::Warning);
            facts.report.push(finding);
        }
        if !self.calls.is_empty() {
            return;
        }
        let at = self.path(self.form.content);
        if let Some(finding) = leak(text, offered) {
            fail(facts, Verdict::soft(SoftKind::LeakedToolCall).with_hint(Hint::Same), finding.at(at));
        } else if self.finish == Some(Finish::ToolCalls) {
            let finding =
                Finding::new(SoftKind::ToolCall, "no_tool_call", "it stopped to call tools, and calls none");
            fail(facts, Verdict::soft(SoftKind::ToolCall).with_hint(Hint::Same), finding.at(at));
        } else if offered.is_json() && !self.content.other {
            not_the_json_asked_for(text, at, facts);
        }
    }
}

/// A call of an offered tool that was left as text; its last brace may be missing.
fn leak(text: &str, offered: &Offered) -> Option<Finding> {
    let tools = offered.known_tools().filter(|tools| !tools.is_empty())?;
    let text = lens::head(text, lens::MAX_VALUE);
    let open = || text.trim_start().starts_with('{').then(|| format!("{text}}}"));
    let leak =
        json::leaked(text, tools).or_else(|| open().and_then(|closed| json::leaked(&closed, tools)))?;
    // Where JSON was asked for, an object of that shape may be just the answer.
    if leak.marker == "json" && offered.is_json() {
        return None;
    }
    let message = format!("a call of `{}` was left as text in the content", lens::head(&leak.tool, 64));
    Some(Finding::new(SoftKind::LeakedToolCall, "tool.leaked", message))
}

/// `response_format` promises JSON. A fence around it is for a validating layer to strip or to refuse.
fn not_the_json_asked_for(text: &str, at: String, facts: &mut Facts) {
    let (finding, fenced) = if text.len() > lens::MAX_VALUE {
        let Some(finding) = lens::flaw_of_long(text, '{') else { return };
        (finding, false)
    } else {
        let Err(flaw) = json::strict(text) else { return };
        (flaw.finding(), flaw.kind() == json::FlawKind::Wrapped)
    };
    if fenced || finding.severity() < Severity::Error {
        facts.report.push(finding.with_severity(Severity::Warning).at(at));
    } else {
        fail(facts, Verdict::of(finding.class()), finding.at(at));
    }
}

/// The fields of a message, or of a piece of one.
#[derive(Clone, Copy)]
pub(crate) struct Message<'a> {
    pub(crate) content: Option<&'a str>,
    pub(crate) tool_calls: Option<&'a str>,
    pub(crate) function_call: Option<&'a str>,
    refusal: Option<&'a str>,
    reasoning: [Option<&'a str>; 3],
    other: [Option<&'a str>; 2],
}

impl<'a> Message<'a> {
    /// `text` is what a completion has in place of a message.
    pub(crate) fn read(message: Option<&'a str>, text: Option<&'a str>) -> Self {
        let names = [
            "content",
            "refusal",
            "tool_calls",
            "function_call",
            "reasoning_content",
            "reasoning",
            "reasoning_details",
            "audio",
            "images",
        ];
        let [content, refusal, tool_calls, function_call, thoughts, reasoning, details, audio, images] =
            message.and_then(|raw| lens::fields(raw, names)).unwrap_or_default();
        Self {
            content: content.or(text),
            tool_calls,
            function_call,
            refusal,
            reasoning: [thoughts, reasoning, details],
            other: [audio, images],
        }
    }

    /// The one string that is all there is in it, of the choice with this index.
    pub(crate) fn adds_only(&self, choice: u64) -> Option<(Adds, &'a str)> {
        let says = |raw: &Option<&str>| raw.is_some_and(lens::truthy);
        let [thoughts, reasoning, details] = self.reasoning;
        if says(&self.refusal)
            || says(&details)
            || self.other.iter().any(says)
            || self.function_call.is_some()
        {
            return None;
        }
        let content = self.content.filter(|raw| *raw != "\"\"");
        let calls = self.tool_calls.filter(|list| lens::has_elements(list));
        let thoughts = [thoughts, reasoning].map(|raw| raw.filter(|raw| lens::truthy(raw)));
        let is_text = |raw: &&str| raw.starts_with('"');
        match (content, thoughts, calls) {
            // An empty text may be followed by one that is not.
            (_, [None, None], None) => self.content.filter(is_text).map(|raw| (Adds::Text { choice }, raw)),
            (None, [Some(raw), None] | [None, Some(raw)], None) => {
                Some(raw).filter(is_text).map(|raw| (Adds::Reasoning { choice }, raw))
            }
            (None, [None, None], Some(list)) => {
                let (at, raw) = fragment(list)?;
                Some((Adds::Arguments { choice, at }, raw))
            }
            _ => None,
        }
    }

    /// Adds what is neither content nor a call; whether there is any.
    pub(crate) fn beside(&self, content: &mut Content) -> bool {
        let says = |raw: &Option<&str>| raw.is_some_and(lens::truthy);
        let (refused, reasoning) = (says(&self.refusal), self.reasoning.iter().any(says));
        let other = self.other.iter().any(says);
        content.refused |= refused;
        content.reasoning |= reasoning;
        content.other |= other;
        let words = self.reasoning.iter().chain([&self.refusal]).flatten();
        // The same thoughts may come as text and in detail.
        let bytes = words.filter_map(|raw| lens::string(raw)).map(|text| text.len() as u64).max();
        content.bytes = content.bytes.saturating_add(bytes.unwrap_or(0));
        refused || reasoning || other
    }
}

/// The index of the one call in a list, and the piece of its arguments, where there is nothing else.
fn fragment(list: &str) -> Option<(u64, &str)> {
    let (mut count, mut only) = (0, None);
    lens::each(list, |raw| {
        count += 1;
        only = Some(raw);
        count < 2
    })?;
    let call = only.filter(|_| count == 1)?;
    let [index, id, function, custom] = lens::fields(call, ["index", "id", "function", "custom"])?;
    let [name, arguments, input] = lens::fields(function?, ["name", "arguments", "input"])?;
    if lens::some_string(id).is_some() || lens::some_string(name).is_some() || custom.or(input).is_some() {
        return None;
    }
    Some((index.and_then(lens::count)?, arguments.filter(|raw| raw.starts_with('"'))?))
}

impl Content {
    /// A text, or a list of parts.
    pub(crate) fn read(raw: &str) -> Self {
        let mut content = Self::default();
        if let Some(text) = lens::string(raw) {
            content.bytes = text.len() as u64;
            content.text = text.into_owned();
            return content;
        }
        lens::each(raw, |part| {
            content.part(part);
            true
        });
        content.bytes = content.text.len() as u64;
        content
    }

    /// Adds what more there is.
    pub(crate) fn take(&mut self, more: &Self) {
        self.text.push_str(&more.text);
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.other |= more.other;
        self.refused |= more.refused;
        self.reasoning |= more.reasoning;
    }

    fn part(&mut self, raw: &str) {
        if let Some(text) = lens::string(raw) {
            self.text.push_str(&text);
            return;
        }
        let [kind, text, refusal] = lens::fields(raw, ["type", "text", "refusal"]).unwrap_or_default();
        match kind.and_then(lens::string).as_deref() {
            Some("text" | "output_text" | "summary_text" | "reasoning_text") | None => {
                self.text.push_str(&text.and_then(lens::string).unwrap_or_default());
            }
            Some("refusal") => self.refused |= refusal.is_some_and(lens::truthy),
            Some("thinking" | "reasoning" | "redacted_thinking") => self.reasoning = true,
            Some(_) => self.other = true,
        }
    }

    fn is_blank(&self) -> bool {
        json::is_blank(&self.text)
    }
}
