//! Whole chat completions, and everything that comes in their place.

use failsoft_core::{Class, Facts, Finding, Finish, Hint, Severity, SoftKind, Verdict, json};
use http::{HeaderMap, header::CONTENT_TYPE};
use serde::de::IgnoredAny;

use crate::{
    Offered,
    error::{ErrorBody, Top},
    lens,
    provider::event_data,
    tools::Calls,
    usage,
};

/// Judges the body of a response whose status says success.
pub(crate) fn judge(headers: &HeaderMap, body: &[u8], offered: &Offered) -> Facts {
    let mut facts = Facts::default();
    let text = std::str::from_utf8(body).unwrap_or("");
    let top = Top::read(text);
    let is_chat = offered.is_chat() != Some(false);
    // Failures cost too.
    facts.usage = top.and_then(|top| top.usage).map(usage::of).unwrap_or_default();
    let error = top.and_then(|top| if is_chat { top.error() } else { top.error_of_unknown_endpoint() });
    match (error, top.filter(|top| !top.is_listed(text))) {
        (Some(error), _) => error.tell(None, headers, &mut facts),
        // What the answers of other endpoints look like is not known here.
        _ if !is_chat && !is_broken_json(headers, body) => facts.verdict = Some(Verdict::SUCCESS),
        (None, Some(top)) => completion(&top, headers, offered, &mut facts),
        (None, None) if event_data(text).len() < text.len() => no_stream(text, headers, &mut facts),
        (None, None) => no_object(body, &mut facts),
    }
    facts
}

/// Whether a body was announced as JSON and is none, which is wrong at any endpoint.
fn is_broken_json(headers: &HeaderMap, body: &[u8]) -> bool {
    let kind = headers.get(CONTENT_TYPE).map_or(&[][..], |value| value.as_bytes());
    kind.starts_with(b"application/json")
        && !body.trim_ascii().is_empty()
        && serde_json::from_slice::<IgnoredAny>(body).is_err()
}

/// A stream of events came, which nobody asked for; or an error was sent as one.
fn no_stream(text: &str, headers: &HeaderMap, facts: &mut Facts) {
    match Top::read(event_data(text)).and_then(|top| top.error()) {
        Some(error) => error.tell(None, headers, facts),
        None => *facts = unasked_stream(),
    }
}

/// What a stream means where one whole answer was asked for.
pub(crate) fn unasked_stream() -> Facts {
    let mut facts = Facts::default();
    facts.inside_success = true;
    let finding = Finding::new(SoftKind::Malformed, "stream", "a stream instead of one JSON object");
    fail(&mut facts, Verdict::of(Class::Transient).with_hint(Hint::Same), finding);
    facts
}

/// Something came where a JSON object should be.
fn no_object(body: &[u8], facts: &mut Facts) {
    let (class, kind, code, message) = match serde_json::from_slice::<IgnoredAny>(body) {
        _ if std::str::from_utf8(body).is_ok_and(json::is_blank) => {
            (Class::Soft(SoftKind::Empty), SoftKind::Empty, "empty_body", "the body is empty")
        }
        Ok(_) => (Class::Transient, SoftKind::Malformed, "no_object", "the body is JSON, and no object"),
        Err(err) if err.is_eof() => {
            (Class::Transient, SoftKind::Truncated, "cut_body", "the body's JSON is cut")
        }
        Err(_) if body.trim_ascii_start().starts_with(b"<") => {
            (Class::Transient, SoftKind::Malformed, "html", "HTML instead of JSON")
        }
        Err(_) => (Class::Transient, SoftKind::Malformed, "not_json", "the body is no JSON"),
    };
    // The request was fine: whatever stands between us and the model was not.
    fail(facts, Verdict::of(class).with_hint(Hint::Same), Finding::new(kind, code, message));
}

fn completion(top: &Top<'_>, headers: &HeaderMap, offered: &Offered, facts: &mut Facts) {
    let Some(choices) = top.choices else {
        let object = top.object.and_then(lens::string).unwrap_or_default();
        // A list of vectors, a picture. Who has asked for a chat did not ask for those.
        let other = !object.is_empty() && !object.contains("completion");
        if offered.is_chat() != Some(true) && (other || top.data.is_some_and(lens::has_elements)) {
            facts.verdict = Some(Verdict::SUCCESS);
        } else if let Some(error) = top.instead_of_answer() {
            error.tell(None, headers, facts);
        } else {
            let finding = Finding::new(SoftKind::Malformed, "no_choices", "no `choices` in the body");
            fail(facts, Verdict::soft(SoftKind::Malformed).with_hint(Hint::Same), finding);
        }
        return;
    };
    let mut index = 0_usize;
    let is_list = lens::each(choices, |raw| {
        let mut choice = Choice::read(raw, index, offered);
        choice.judge(headers, offered, facts);
        if index == 0 {
            facts.text = (!choice.content.text.is_empty()).then(|| choice.content.text.into());
            facts.tool_calls = choice.calls.calls;
            facts.finish = choice.finish;
        }
        index = index.saturating_add(1);
        true
    });
    if is_list.is_none() {
        let finding = Finding::new(SoftKind::Malformed, "choices", "`choices` is no list").at("/choices");
        fail(facts, Verdict::soft(SoftKind::Malformed).with_hint(Hint::Same), finding);
    } else if index == 0 {
        let finding = Finding::new(SoftKind::Empty, "no_choice", "`choices` is empty").at("/choices");
        fail(facts, Verdict::soft(SoftKind::Empty).with_hint(Hint::Same), finding);
    }
    facts.verdict.get_or_insert(Verdict::SUCCESS);
}

/// Writes a failure down; the first one is the verdict.
fn fail(facts: &mut Facts, verdict: Verdict, finding: Finding) {
    facts.verdict.get_or_insert(verdict);
    facts.report.push(finding);
}

/// One of the answers, of which there is usually one.
struct Choice<'a> {
    at: String,
    finish: Option<Finish>,
    error: Option<&'a str>,
    content: Content,
    calls: Calls,
}

/// What a message holds beside tool calls.
#[derive(Default)]
struct Content {
    text: String,
    /// Sound, pictures.
    other: bool,
    refused: bool,
    reasoning: bool,
}

impl<'a> Choice<'a> {
    fn read(raw: &'a str, index: usize, offered: &Offered) -> Self {
        let at = format!("/choices/{index}");
        let [finish, message, text, error] =
            lens::fields(raw, ["finish_reason", "message", "text", "error"]).unwrap_or_default();
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
        let says_something = |raws: &[Option<&str>]| raws.iter().flatten().any(|raw| lens::truthy(raw));
        let mut content = content.or(text).map(Content::read).unwrap_or_default();
        content.other |= says_something(&[audio, images]);
        content.refused |= says_something(&[refusal]);
        content.reasoning |= says_something(&[thoughts, reasoning, details]);
        Self {
            finish: lens::some_string(finish).map(|reason| finish_of(&reason)),
            error: error.filter(|raw| lens::tells(raw)),
            content,
            calls: Calls::read(tool_calls, function_call, &format!("{at}/message"), offered),
            at,
        }
    }

    /// Writes down what is wrong with it.
    fn judge(&mut self, headers: &HeaderMap, offered: &Offered, facts: &mut Facts) {
        if let Some(error) = self.error {
            facts.verdict.get_or_insert_with(|| ErrorBody::of_value(error).verdict(None, headers));
        } else if !self.stopped_badly(facts) && !self.has_wrong_calls(facts) && !self.is_empty(offered, facts)
        {
            self.has_wrong_text(offered, facts);
        }
    }

    /// A finish reason, or a refusal, that decides whatever else is there.
    fn stopped_badly(&self, facts: &mut Facts) -> bool {
        let (verdict, code, message) = match &self.finish {
            Some(Finish::ContentFilter) => {
                facts.verdict.get_or_insert(Verdict::of(Class::Refused));
                return true;
            }
            Some(Finish::Length) => {
                let message = if self.content.is_blank() && self.calls.is_empty() {
                    "the limit of tokens was reached before any content"
                } else {
                    "cut at the limit of tokens"
                };
                (Verdict::soft(SoftKind::Truncated), "length", message)
            }
            Some(Finish::Other(reason)) if &**reason == "error" => {
                (Verdict::of(Class::Transient), "finish_error", "broken off by an error of the provider")
            }
            Some(Finish::Other(reason)) if &**reason == "insufficient_system_resource" => {
                let verdict = Verdict::of(Class::Overloaded).with_hint(Hint::Same);
                (verdict, "finish_overloaded", "broken off for lack of the provider's resources")
            }
            _ if self.content.refused => {
                facts.verdict.get_or_insert(Verdict::of(Class::Refused));
                return true;
            }
            _ => return false,
        };
        let finding = Finding::new(SoftKind::Truncated, code, message);
        fail(facts, verdict, finding.at(format!("{}/finish_reason", self.at)));
        true
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
            (SoftKind::Empty, Hint::Same, "empty", "no content and no tool call")
        };
        let finding = Finding::new(kind, code, message).at(format!("{}/message", self.at));
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
            fail(facts, verdict, finding.at(format!("{}/finish_reason", self.at)));
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
        let at = format!("{}/message/content", self.at);
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
        fail(facts, Verdict::soft(finding.kind()), finding.at(at));
    }
}

impl Content {
    /// A text, or a list of parts.
    fn read(raw: &str) -> Self {
        let mut content = Self::default();
        if let Some(text) = lens::string(raw) {
            content.text = text.into_owned();
            return content;
        }
        lens::each(raw, |part| {
            content.part(part);
            true
        });
        content
    }

    fn part(&mut self, raw: &str) {
        if let Some(text) = lens::string(raw) {
            self.text.push_str(&text);
            return;
        }
        let [kind, text, refusal] = lens::fields(raw, ["type", "text", "refusal"]).unwrap_or_default();
        match kind.and_then(lens::string).as_deref() {
            Some("text" | "output_text") | None => {
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

/// The finish reasons of OpenAI and of those who speak its dialect, in either case. Gateways to other models let the
/// reasons of those through.
fn finish_of(reason: &str) -> Finish {
    const KNOWN: [(Finish, &[&str]); 4] = [
        // Text-generation servers say `eos_token` and `stop_sequence`, Together `eos`, Anthropic `end_turn`.
        (Finish::Stop, &["stop", "eos", "eos_token", "stop_sequence", "end_turn"]),
        (Finish::ToolCalls, &["tool_calls", "function_call", "tool_use"]),
        // Mistral's `model_length`: the window was full. Anthropic and Gemini: `max_tokens`.
        (Finish::Length, &["length", "model_length", "max_tokens"]),
        // Anthropic `refusal`, Gemini the others, Zhipu `sensitive`.
        (
            Finish::ContentFilter,
            &["content_filter", "refusal", "safety", "prohibited_content", "blocklist", "spii", "sensitive"],
        ),
    ];
    let is = |known: &&str| known.eq_ignore_ascii_case(reason);
    match KNOWN.into_iter().find(|(_, names)| names.iter().any(is)) {
        Some((finish, _)) => finish,
        None => Finish::Other(reason.chars().take(MAX_REASON).collect::<String>().into()),
    }
}

/// An unknown finish reason is kept up to so many characters.
const MAX_REASON: usize = 256;

#[cfg(test)]
mod tests;
