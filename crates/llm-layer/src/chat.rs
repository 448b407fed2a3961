//! Chat completions as OpenAI defined them, whole and everything that comes in their place; streamed in [`stream`].

mod stream;

use failsoft_core::{Facts, Finding, Hint, Report, Severity, SoftKind, Usage, Verdict};
use http::HeaderMap;

pub(crate) use self::stream::Stream;
use crate::{Offered, choice::Choice, error::Top, form::Form, lens, usage, whole::fail};

pub(crate) const FORM: Form = Form {
    choices: "/choices",
    has_index: true,
    finish: "/finish_reason",
    message: "/message",
    content: "/message/content",
    calls: "/message/tool_calls",
    keeps_index: false,
    function: "/function",
    arguments: "/arguments",
    empty: Hint::Same,
};

/// The tokens that a body says were used.
pub(crate) fn usage(top: &Top<'_>) -> Usage {
    top.usage.map(usage::of).unwrap_or_default()
}

/// Judges an object that is no error.
pub(crate) fn answer(top: &Top<'_>, headers: &HeaderMap, offered: &Offered, facts: &mut Facts) {
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
    let mut index = 0_u64;
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

/// Judges an object of which nobody knows what dialect it is: who speaks another one is not to blame for that.
pub(crate) fn unknown(top: &Top<'_>, headers: &HeaderMap, offered: &Offered, facts: &mut Facts) {
    answer(top, headers, offered, facts);
    let is_unknown = facts.report.leading().is_some_and(|finding| finding.code() == NO_CHOICES);
    if is_unknown && lens::truthy(top.text()) {
        let message = "an answer in a dialect that is not known was not judged";
        let finding = Finding::new(SoftKind::Malformed, "unknown_dialect", message);
        facts.report = Report::default();
        facts.report.push(finding.with_severity(Severity::Warning));
        facts.verdict = Some(Verdict::SUCCESS);
    }
}

const NO_CHOICES: &str = "no_choices";

/// JSON that is neither an answer nor an error.
pub(crate) fn no_choices(facts: &mut Facts) {
    let finding = Finding::new(SoftKind::Malformed, NO_CHOICES, "no `choices` in the body");
    fail(facts, Verdict::soft(SoftKind::Malformed).with_hint(Hint::Same), finding);
}

/// An answer that is none.
pub(crate) fn no_choice(facts: &mut Facts) {
    let finding = Finding::new(SoftKind::Empty, "no_choice", "`choices` is empty").at("/choices");
    fail(facts, Verdict::soft(SoftKind::Empty).with_hint(Hint::Same), finding);
}

#[cfg(test)]
mod tests;
