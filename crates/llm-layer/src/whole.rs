//! A whole body of a response whose status says success: an answer, or what came in its place.

use failsoft_core::{Class, Facts, Finding, Hint, SoftKind, Verdict, json};
use http::{HeaderMap, header::CONTENT_TYPE};
use serde::de::IgnoredAny;

use crate::{Offered, Provider, error::Top, provider::event_data};

/// Judges the body of a response whose status says success.
pub(crate) fn judge(provider: Provider, headers: &HeaderMap, body: &[u8], offered: &Offered) -> Facts {
    let mut facts = Facts::default();
    let body = unmarked(body);
    let text = &*String::from_utf8_lossy(body);
    let top = Top::read(text);
    let is_chat = offered.is_chat() != Some(false);
    // Failures cost too.
    facts.usage = top.map(|top| provider.usage(&top)).unwrap_or_default();
    let error = top.and_then(|top| if is_chat { top.error() } else { top.error_of_unknown_endpoint() });
    match (error, top.filter(|top| !top.is_listed(text))) {
        (Some(error), _) => error.tell(None, headers, &mut facts),
        // What the answers of other endpoints look like is not known here.
        _ if !is_chat && !is_broken_json(headers, body) => facts.verdict = Some(Verdict::SUCCESS),
        // Who reads it as JSON will not take it.
        (None, _) if std::str::from_utf8(body).is_err() => no_object(body, &mut facts),
        (None, Some(top)) => provider.answer(&top, headers, offered, &mut facts),
        (None, None) if provider.stream(text, headers, offered, &mut facts).is_some() => {}
        (None, None) if event_data(text).len() < text.len() => no_stream(text, headers, &mut facts),
        (None, None) => no_object(body, &mut facts),
    }
    facts
}

/// A body without the byte order mark that some servers put before it, and most readers do not mind.
pub(crate) fn unmarked(body: &[u8]) -> &[u8] {
    body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body)
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
        Ok(_) if std::str::from_utf8(body).is_err() => {
            (Class::Transient, SoftKind::Malformed, "not_utf8", "the body is no UTF-8, which JSON is")
        }
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

/// Writes a failure down; the first one is the verdict.
pub(crate) fn fail(facts: &mut Facts, verdict: Verdict, finding: Finding) {
    facts.verdict.get_or_insert(verdict);
    facts.report.push(finding);
}
