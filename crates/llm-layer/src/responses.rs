//! OpenAI's Responses, whole; streamed in [`stream`].
//!
//! A response has a status and a list of items: messages made of parts, calls of functions and of custom tools, reasoning,
//! and what OpenAI's own tools did, which is no call for the caller.

mod stream;

use failsoft_core::{Class, Facts, Finding, Finish, Hint, Severity, SoftKind, Usage, Verdict};
use http::HeaderMap;

pub(crate) use self::stream::Stream;
use crate::{
    Offered,
    choice::{Choice, Content},
    error::Top,
    finish::{finish_of, named},
    form::Form,
    lens,
    tools::Calls,
    usage,
    whole::fail,
};

pub(crate) const FORM: Form = Form {
    choices: "",
    has_index: false,
    finish: "/incomplete_details/reason",
    message: "/output",
    content: "/output",
    calls: "/output",
    keeps_index: true,
    function: "",
    arguments: "/arguments",
    empty: Hint::Same,
};

/// The tokens that a body says were used.
pub(crate) fn usage(top: &Top<'_>) -> Usage {
    top.usage.map(usage::of).unwrap_or_default()
}

/// Judges an object that is no error.
pub(crate) fn answer(top: &Top<'_>, headers: &HeaderMap, offered: &Offered, facts: &mut Facts) {
    let names = ["object", "status", "incomplete_details", "output", "max_output_tokens"];
    let [object, status, details, output, max] = lens::fields(top.text, names).unwrap_or_default();
    let is_response = object.is_none_or(|object| object == "\"response\"");
    let status = lens::some_string(status);
    match output {
        Some(output) if is_response => match status.as_deref() {
            Some("queued" | "in_progress") => not_final(facts),
            Some("failed" | "cancelled") => broken_off(facts),
            _ => {
                let [reason] = details.and_then(|raw| lens::fields(raw, ["reason"])).unwrap_or_default();
                let finish = finish_with(status.as_deref(), reason);
                // What the target says that the limit was serves where the request could not be read.
                let limited = max.and_then(lens::count).filter(|_| offered.max_tokens().is_none());
                let limited = limited.map(|max| offered.clone().with_max_tokens(max));
                let offered = limited.as_ref().unwrap_or(offered);
                let mut choice = items(output, finish, offered);
                choice.judge(headers, offered, facts);
                choice.tell(true, facts);
            }
        },
        // A deleted response, a list of items, an embedding. Who has asked for a response did not ask for those.
        _ if offered.is_chat() != Some(true) => {}
        _ => match top.instead_of_answer() {
            Some(error) => error.tell(None, headers, facts),
            None => {
                let finding = Finding::new(SoftKind::Malformed, "no_output", "no `output` in the body");
                fail(facts, Verdict::soft(SoftKind::Malformed).with_hint(Hint::Same), finding);
            }
        },
    }
    facts.verdict.get_or_insert(Verdict::SUCCESS);
}

/// A response that is made in the background: it is asked for again later, by its id.
fn not_final(facts: &mut Facts) {
    let finding = Finding::new(SoftKind::Truncated, "not_final", "the response is still being made");
    facts.report.push(finding.at("/status").with_severity(Severity::Info));
}

fn broken_off(facts: &mut Facts) {
    let finding = Finding::new(SoftKind::Truncated, "status_failed", "broken off, and no word on why");
    fail(facts, Verdict::of(Class::Transient), finding.at("/status"));
}

/// Why a response stopped.
fn finish_with(status: Option<&str>, reason: Option<&str>) -> Option<Finish> {
    match status? {
        "completed" => Some(Finish::Stop),
        "incomplete" => Some(finish_of(reason).unwrap_or_else(|| named("incomplete"))),
        other => Some(named(other)),
    }
}

fn items(output: &str, finish: Option<Finish>, offered: &Offered) -> Choice<'static> {
    let (mut content, mut calls) = (Content::default(), Calls::default());
    let mut index = 0_u64;
    lens::each(output, |raw| {
        item(raw, index, &mut content, &mut calls, offered);
        index = index.saturating_add(1);
        true
    });
    let finish = match finish {
        Some(Finish::Stop) if !calls.calls.is_empty() => Some(Finish::ToolCalls),
        other => other,
    };
    Choice { form: &FORM, at: String::new(), finish, error: None, content, calls }
}

fn item(raw: &str, index: u64, content: &mut Content, calls: &mut Calls, offered: &Offered) {
    let names = ["type", "content", "summary", "call_id", "id", "name", "arguments", "input"];
    let [kind, parts, summary, call_id, id, name, arguments, input] =
        lens::fields(raw, names).unwrap_or_default();
    let id = || lens::some_string(call_id).or_else(|| lens::some_string(id));
    let name = || name.and_then(lens::string).unwrap_or_default();
    let at = format!("{}/{index}", FORM.calls);
    match lens::some_string(kind).as_deref() {
        Some("message") => content.take(&Content::read(parts.unwrap_or("[]"))),
        Some("reasoning") => {
            content.reasoning = true;
            let thoughts = parts.or(summary).map(Content::read).unwrap_or_default();
            content.bytes = content.bytes.saturating_add(thoughts.text.len() as u64);
        }
        Some("function_call") => {
            let text = arguments.map(|raw| lens::string(raw).unwrap_or_else(|| raw.into()));
            calls.push(id(), &name(), &text.unwrap_or_default(), &FORM, &at, offered);
        }
        Some("custom_tool_call") => {
            let text = input.and_then(lens::string).unwrap_or_default();
            calls.custom(id(), &name(), &text, &FORM, &at, offered);
        }
        _ => content.other = true,
    }
}

#[cfg(test)]
mod tests;
