//! The checks that come with the crate. Each can be used alone.
//!
//! ```
//! use validate_layer::{Check, checks};
//!
//! assert!(checks::Json::object().on_text(r#"{"city": "Oslo"}"#).is_empty());
//! assert_eq!(checks::Json::object().on_text("[1]").leading().unwrap().code(), "json.non-object");
//! assert_eq!(checks::NotEmpty.on_text(" \n").leading().unwrap().code(), "empty");
//! ```
//!
//! | check | kind of its findings | codes |
//! |---|---|---|
//! | [`FinishReason`] | truncated, tool call | `finish.length`, `finish.content_filter`, `finish.unknown`, `finish.no_tool_calls` |
//! | [`NotEmpty`] | empty | `empty`, `empty.reasoning_only` |
//! | [`ToolCalls`] | unknown tool, tool call, leaked tool call | `tool.unknown`, `tool.arguments`, `tool.duplicate_id`, `tool.leaked` |
//! | [`Json`] | malformed, empty, repetition | `json.…`, one for each [`FlawKind`](failsoft_core::json::FlawKind) |
//! | [`Require`] | missing field, or those of [`Json`] | `required` |
//! | [`Length`] | truncated | `length` |
//! | [`Embedding`] | schema, empty, or those of [`Json`] | `embedding.none`, `embedding.count`, `embedding.dimension`, `embedding.not_finite`, `embedding.zero` |
//! | [`Repetition`] | repetition | `repetition.loop`, `repetition.whitespace`, `repetition.variety` |
//! | [`Refusal`] | refused | `refusal.text` |
//! | [`ErrorText`] | malformed | `error.text` |
//! | `Schema` (feature `schema`) | schema, or those of [`Json`] | `schema.…`, one for each keyword |
//! | `ToolSchemas` (feature `schema`) | tool call | `tool.schema` |
//! | `Pattern` (feature `regex`) | schema, or another | `pattern.missing`, `pattern.forbidden` |
//!
//! An answer that calls tools is not the text that was asked for: [`Json`], [`Require`], [`Length`], [`Repetition`] and the others that look at text or its JSON
//! let it be.

mod embedding;
mod length;
mod markers;
#[cfg(feature = "regex")]
mod patterns;
mod repetition;
#[cfg(feature = "schema")]
pub(crate) mod schema;
mod tools;

pub(crate) use self::markers::ERROR_TEXT;
#[cfg(feature = "regex")]
pub use self::patterns::Pattern;
pub(crate) use self::repetition::VARIETY;
#[cfg(feature = "schema")]
pub use self::schema::{MAX_VIOLATIONS, Schema, SchemaOptions, ToolSchemas};
pub use self::{
    embedding::Embedding,
    length::{Length, count_words},
    markers::{ErrorText, Refusal},
    repetition::Repetition,
    tools::ToolCalls,
};

pub use failsoft_core::estimate_tokens;
use failsoft_core::{Class, ConfigError, Finding, Finish, Report, Severity, SoftKind, json};

use crate::{Answer, Check};

/// The target stopped because it was done.
///
/// Running into the limit of tokens is a cut answer, a filter's stop is [`Class::Refused`](failsoft_core::Class), and
/// a reason that nobody knows is never taken for a good end, unless a reader of the format has called the answer good.
/// An answer that says nothing of its end passes.
#[derive(Clone, Copy, Debug, Default)]
pub struct FinishReason;

const CONTENT_FILTER: &str = "finish.content_filter";

impl Check for FinishReason {
    fn check(&self, answer: &Answer, report: &mut Report) {
        let cut = |code, message: String| Finding::new(SoftKind::Truncated, code, message);
        let refused = |message| Finding::of(Class::Refused, CONTENT_FILTER, message);
        match answer.finish() {
            Some(Finish::Length) => report.push(cut("finish.length", "cut at the limit of tokens".into())),
            Some(Finish::ContentFilter) => report.push(refused("stopped by a filter")),
            Some(Finish::Refusal) => report.push(refused("refused by the model")),
            Some(Finish::ToolCalls) if answer.tool_calls().is_empty() => {
                let message = "it stopped to call tools, and calls none";
                report.push(Finding::new(SoftKind::ToolCall, "finish.no_tool_calls", message));
            }
            Some(Finish::Other(reason)) if !answer.is_vouched() => {
                report.push(cut("finish.unknown", format!("stopped for an unknown reason, `{reason:.64}`")));
            }
            _ => {}
        }
    }
}

/// There is something in it: text that one can see, or a tool call. Reasoning between tags alone is nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NotEmpty;

pub(crate) const REASONING_ONLY: &str = "empty.reasoning_only";

impl Check for NotEmpty {
    fn check(&self, answer: &Answer, report: &mut Report) {
        if !answer.tool_calls().is_empty() {
            return;
        }
        if answer.is_blank() {
            report.push(Finding::new(SoftKind::Empty, "empty", "nothing in it"));
        } else if answer.text().is_some_and(is_reasoning_only) {
            report.push(Finding::new(SoftKind::Empty, REASONING_ONLY, "nothing but reasoning"));
        }
    }
}

fn is_reasoning_only(text: &str) -> bool {
    let text = text.trim_start();
    [("<think>", "</think>"), ("<thinking>", "</thinking>")].into_iter().any(|(open, close)| {
        let inner = text.strip_prefix(open);
        inner.is_some_and(|inner| inner.rsplit_once(close).is_none_or(|(_, rest)| json::is_blank(rest)))
    })
}

/// The text is JSON and nothing else; see [`failsoft_core::json`].
#[derive(Clone, Copy, Debug)]
pub struct Json {
    object: bool,
}

impl Json {
    /// Any value.
    #[must_use]
    pub const fn any() -> Self {
        Self { object: false }
    }

    /// An object.
    #[must_use]
    pub const fn object() -> Self {
        Self { object: true }
    }
}

impl Check for Json {
    fn check(&self, answer: &Answer, report: &mut Report) {
        if !answer.is_textual() {
            return;
        }
        if self.object && answer.value().is_some_and(|value| !value.is_object()) {
            let code = json::FlawKind::NonObject.code();
            report.push(Finding::new(SoftKind::Malformed, code, "JSON, but no object"));
        } else {
            report.extend(answer.json_finding().cloned());
        }
    }
}

/// Required fields: there, and not null.
#[derive(Clone, Debug)]
pub struct Require {
    pointers: Vec<Box<str>>,
}

impl Require {
    /// Names the fields by their JSON pointers (RFC 6901), such as `/items/0/name`.
    ///
    /// # Errors
    ///
    /// When a pointer is empty, does not begin with `/`, or has a `~` that is neither `~0` nor `~1`.
    pub fn new(pointers: impl IntoIterator<Item = impl Into<Box<str>>>) -> Result<Self, ConfigError> {
        let pointers: Vec<Box<str>> = pointers.into_iter().map(Into::into).collect();
        match pointers.iter().find(|pointer| !is_pointer(pointer)) {
            None => Ok(Self { pointers }),
            Some(bad) => {
                let expected = "a JSON pointer to a field, such as `/items/0/name`";
                Err(ConfigError::new("ValidateLayer", "require", format_args!("{bad:?}"), expected))
            }
        }
    }
}

fn is_pointer(pointer: &str) -> bool {
    let escapes = pointer.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    pointer.starts_with('/') && escapes
}

impl Check for Require {
    fn check(&self, answer: &Answer, report: &mut Report) {
        if !answer.is_textual() || self.pointers.is_empty() {
            return;
        }
        let Some(value) = answer.value() else { return missing_json(answer, report) };
        for pointer in &self.pointers {
            let problem = match value.pointer(pointer) {
                None => "a required field is missing",
                Some(value) if value.is_null() => "a required field is null",
                Some(_) => continue,
            };
            let finding = Finding::new(SoftKind::MissingField, "required", problem);
            report.push(finding.at(String::from(&**pointer)));
        }
    }
}

/// Says why an answer has no value to look at, unless that was said before.
fn missing_json(answer: &Answer, report: &mut Report) {
    let reported = |finding: &Finding| {
        finding.severity() == Severity::Error
            && (finding.code().starts_with("json.") || finding.code() == BODY_COMPRESSED)
    };
    if !report.findings().iter().any(reported) {
        report.extend(answer.json_finding().cloned());
    }
}

/// The code of a body that nobody can look into.
pub(crate) const BODY_COMPRESSED: &str = "body.compressed";

/// The text inside of a code fence, where the whole text is one: three backticks, the name of a language or none, lines, and
/// three backticks. Whitespace around it is let be; words are not. Nothing is repaired.
///
/// Models put a fence around JSON from habit. A layer with [`unwrap_fences`](crate::ValidateBuilder::unwrap_fences) looks at what is inside; the
/// answer still reaches the caller byte for byte, who takes the fence off with this.
///
/// ```
/// use validate_layer::checks::unfenced;
///
/// assert_eq!(unfenced("```json\n{\"a\": 1}\n```\n"), Some("{\"a\": 1}"));
/// assert_eq!(unfenced("{\"a\": 1}"), None);
/// assert_eq!(unfenced("Here you are:\n```json\n{\"a\": 1}\n```"), None);
/// ```
#[must_use]
pub fn unfenced(text: &str) -> Option<&str> {
    let inside = text.trim().strip_prefix("```")?.strip_suffix("```")?;
    let (language, inside) = inside.split_once('\n')?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+' | '.');
    let inside = inside.strip_suffix("\r\n").or_else(|| inside.strip_suffix('\n'))?;
    (language.trim().chars().all(is_name) && !inside.contains("```")).then_some(inside)
}

/// The code of JSON that was looked at without the fence around it.
pub(crate) const UNWRAPPED: &str = "json.unwrapped";

pub(crate) fn unwrapped() -> Finding {
    Finding::new(SoftKind::Malformed, UNWRAPPED, "JSON inside a code fence").with_severity(Severity::Warning)
}

/// The code of arguments that do not fit the schema of their tool.
pub(crate) const TOOL_SCHEMA: &str = "tool.schema";

/// Whether a report already says that there is nothing to look at, and that this is a failure.
pub(crate) fn is_empty_answer(report: &Report, severity: impl Fn(&Finding) -> Severity) -> bool {
    let empty =
        |finding: &Finding| finding.kind() == Some(SoftKind::Empty) && severity(finding) == Severity::Error;
    report.findings().iter().any(empty)
}
