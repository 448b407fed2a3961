//! Whole chat completions, and everything that comes in their place.

use failsoft_core::{Class, Facts, Finding, Hint, SoftKind, Verdict, json};
use http::{HeaderMap, header::CONTENT_TYPE};
use serde::de::IgnoredAny;

use crate::{Offered, choice::Choice, error::Top, lens, provider::event_data, usage};

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
            no_choices(facts);
        }
        return;
    };
    let mut index = 0_usize;
    let is_list = lens::each(choices, |raw| {
        let mut choice = Choice::read(raw, index, offered);
        choice.judge(headers, offered, facts);
        choice.tell(index == 0, facts);
        index = index.saturating_add(1);
        true
    });
    if is_list.is_none() {
        let finding = Finding::new(SoftKind::Malformed, "choices", "`choices` is no list").at("/choices");
        fail(facts, Verdict::soft(SoftKind::Malformed).with_hint(Hint::Same), finding);
    } else if index == 0 {
        no_choice(facts);
    }
    facts.verdict.get_or_insert(Verdict::SUCCESS);
}

/// JSON that is neither an answer nor an error.
pub(crate) fn no_choices(facts: &mut Facts) {
    let finding = Finding::new(SoftKind::Malformed, "no_choices", "no `choices` in the body");
    fail(facts, Verdict::soft(SoftKind::Malformed).with_hint(Hint::Same), finding);
}

/// An answer that is none.
pub(crate) fn no_choice(facts: &mut Facts) {
    let finding = Finding::new(SoftKind::Empty, "no_choice", "`choices` is empty").at("/choices");
    fail(facts, Verdict::soft(SoftKind::Empty).with_hint(Hint::Same), finding);
}

/// Writes a failure down; the first one is the verdict.
pub(crate) fn fail(facts: &mut Facts, verdict: Verdict, finding: Finding) {
    facts.verdict.get_or_insert(verdict);
    facts.report.push(finding);
}

#[cfg(test)]
mod tests;
