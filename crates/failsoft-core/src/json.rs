//! The strict verdict on a text that should be JSON: it is, or it has one named [`Flaw`].
//!
//! Nothing is repaired here, and nothing is picked out of a longer text: what a model meant by half a number or by
//! two objects is a guess, and a guess that is acted on is worse than a failure. [`strict`] takes any JSON value,
//! [`object`] an object, [`arguments`] the arguments of a tool call. [`leaked`] finds a tool call that was written as
//! text.
//!
//! ```
//! use failsoft_core::{SoftKind, json};
//!
//! assert_eq!(json::strict(r#"{"city": "Oslo"}"#).unwrap()["city"], "Oslo");
//!
//! let flaw = json::strict("```json\n{\"city\": \"Oslo\"}\n```").unwrap_err();
//! assert_eq!(flaw.kind(), json::FlawKind::Wrapped);
//! assert_eq!(flaw.finding().kind(), Some(SoftKind::Malformed));
//! ```
//!
//! Time is linear in the text but for a small constant number of further passes over a text that is not JSON; memory
//! is that of the value. Cap what you hand in: a value takes up to twenty times the bytes of its text.

use std::{borrow::Cow, error::Error, fmt};

use serde_json::{Map, Value};

use crate::{Finding, Severity, SoftKind, ToolCall};

mod diagnose;
mod leak;
mod scan;
#[cfg(test)]
mod tests;

pub use leak::{Leak, leaked};

/// The first nesting that is too deep. A reader with a recursion limit refuses it, so it is refused here too.
pub const MAX_DEPTH: usize = 128;

/// What is wrong with a text that should be JSON.
///
/// A text that is JSON and has a flaw nonetheless (a duplicate key, a number that loses digits, no object) still has
/// a value: [`into_value`](Self::into_value).
#[derive(Clone)]
pub struct Flaw {
    kind: FlawKind,
    message: Cow<'static, str>,
    offset: usize,
    value: Option<Box<Value>>,
}

/// The kinds of flaws.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FlawKind {
    /// Nothing but whitespace, or nothing but reasoning.
    Empty,
    /// Something other than what was asked for: HTML, prose, or another JSON value than an object.
    NonObject,
    /// It breaks off.
    Truncated,
    /// Against the grammar.
    Syntax,
    /// JSON, with a code fence or words around it.
    Wrapped,
    /// More than one value: none is *the* answer.
    Multiple,
    /// A key twice in one object: some readers take the first, some the last.
    DuplicateKey,
    /// Nested too deep: [`MAX_DEPTH`].
    Depth,
    /// A number that most readers would silently change: an integer that a double cannot hold, more than 17
    /// significant digits, an exponent out of range.
    Lossy,
    /// A runaway: the same whitespace or the same few characters again and again, then cut.
    Degenerate,
    /// Arguments of a tool call that are no object, or encoded twice.
    Arguments,
}

impl FlawKind {
    /// A short stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::NonObject => "non-object",
            Self::Truncated => "truncated",
            Self::Syntax => "syntax",
            Self::Wrapped => "wrapped",
            Self::Multiple => "multiple",
            Self::DuplicateKey => "duplicate-key",
            Self::Depth => "depth",
            Self::Lossy => "lossy",
            Self::Degenerate => "degenerate",
            Self::Arguments => "args",
        }
    }

    /// The code that a [`Finding`] of it has.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Empty => "json.empty",
            Self::NonObject => "json.non-object",
            Self::Truncated => "json.truncated",
            Self::Syntax => "json.syntax",
            Self::Wrapped => "json.wrapped",
            Self::Multiple => "json.multiple",
            Self::DuplicateKey => "json.duplicate-key",
            Self::Depth => "json.depth",
            Self::Lossy => "json.lossy",
            Self::Degenerate => "json.degenerate",
            Self::Arguments => "json.args",
        }
    }

    /// In which way an answer with it is wrong. A text that breaks off is malformed, whatever made it break off:
    /// whether a limit of tokens did is known from the finish reason, not from the text.
    #[must_use]
    pub const fn soft_kind(self) -> SoftKind {
        match self {
            Self::Empty => SoftKind::Empty,
            Self::Degenerate => SoftKind::Repetition,
            Self::Arguments => SoftKind::ToolCall,
            Self::NonObject
            | Self::Truncated
            | Self::Syntax
            | Self::Wrapped
            | Self::Multiple
            | Self::DuplicateKey
            | Self::Depth
            | Self::Lossy => SoftKind::Malformed,
        }
    }
}

impl fmt::Display for FlawKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Flaw {
    fn new(kind: FlawKind, offset: usize, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, message: message.into(), offset, value: None }
    }

    fn with_value(mut self, value: Value) -> Self {
        self.value = Some(Box::new(value));
        self
    }

    fn shifted(mut self, by: usize) -> Self {
        self.offset = self.offset.saturating_add(by);
        self
    }

    /// In which way it is wrong.
    #[must_use]
    pub const fn kind(&self) -> FlawKind {
        self.kind
    }

    /// What is wrong, for people and models.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Where, in bytes from the start of the text; of a text that breaks off, its length.
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// Whether the text is JSON all the same, so that there is a value.
    #[must_use]
    pub const fn is_json(&self) -> bool {
        self.value.is_some()
    }

    /// How much it matters. A lossy number is a warning where there is a value: the text itself is right, and a reader
    /// of 64-bit integers or decimals reads it right. Everything else is an error.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        match self.kind {
            FlawKind::Lossy if self.value.is_some() => Severity::Warning,
            _ => Severity::Error,
        }
    }

    /// The value of a text that is JSON and has a flaw nonetheless, as `serde_json` reads it.
    #[must_use]
    pub fn into_value(self) -> Option<Value> {
        self.value.map(|value| *value)
    }

    /// The flaw as a finding.
    #[must_use]
    pub fn finding(&self) -> Finding {
        let message = format!("{}, at byte {}", self.message, self.offset);
        Finding::new(self.kind.soft_kind(), self.kind.code(), message).with_severity(self.severity())
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, at byte {}", self.kind, self.message, self.offset)
    }
}

impl fmt::Debug for Flaw {
    /// Without the value: answers do not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flaw")
            .field("kind", &self.kind)
            .field("message", &self.message)
            .field("offset", &self.offset)
            .finish_non_exhaustive()
    }
}

impl Error for Flaw {}

/// The value of a text that is JSON and nothing else, without a flaw.
///
/// # Errors
///
/// The flaw that matters most. [`Flaw::severity`] tells a lossy number, which is only a warning.
pub fn strict(text: &str) -> Result<Value, Flaw> {
    match serde_json::from_str(text) {
        Ok(value) => sound(text, value),
        Err(err) => Err(diagnose::diagnose(text, &err)),
    }
}

/// Like [`strict`], for a text that should be an object.
///
/// # Errors
///
/// The flaw that matters most; another value than an object is [`FlawKind::NonObject`].
pub fn object(text: &str) -> Result<Map<String, Value>, Flaw> {
    let other = |value: Value| {
        let message = format!("{} where an object was asked for", kind_of(&value));
        Flaw::new(FlawKind::NonObject, start(text), message).with_value(value)
    };
    match strict(text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(value) => Err(other(value)),
        // Not being an object outranks what is wrong inside.
        Err(flaw) if flaw.value.as_ref().is_some_and(|value| !value.is_object()) => {
            Err(flaw.into_value().map_or_else(|| Flaw::new(FlawKind::NonObject, 0, "no object"), other))
        }
        Err(flaw) => Err(flaw),
    }
}

/// The arguments of a tool call: an object. Empty text is a flaw, and so are arguments that were encoded twice; nothing
/// ever becomes an empty object. Whether the tool takes no parameters, so that empty arguments are right, is the
/// caller's to know.
///
/// # Errors
///
/// The flaw that matters most. [`Flaw::severity`] tells a lossy number, which is only a warning: it is the long id of
/// some service, in a text that the tool receives as it came.
pub fn arguments(text: &str) -> Result<Map<String, Value>, Flaw> {
    let bad = |message| Flaw::new(FlawKind::Arguments, start(text), message);
    let (map, lossy) = match object(text) {
        Ok(map) => (map, None),
        Err(flaw) if flaw.severity() < Severity::Error => {
            let (offset, message) = (flaw.offset, flaw.message.clone());
            match flaw.into_value() {
                Some(Value::Object(map)) => (map, Some(Flaw::new(FlawKind::Lossy, offset, message))),
                _ => return Err(bad("arguments that are no object".into())),
            }
        }
        Err(flaw) if flaw.kind == FlawKind::NonObject => {
            let message = match flaw.value.as_deref() {
                Some(Value::String(inner)) if is_object(inner) => "arguments encoded twice".to_owned(),
                _ => flaw.message.clone().into_owned(),
            };
            return Err(match flaw.value {
                Some(value) => bad(message).with_value(*value),
                None => bad(message),
            });
        }
        Err(flaw) => return Err(flaw),
    };
    if let Some(key) = encoded_twice(&map) {
        return Err(bad(format!("a whole call with `{key}` encoded twice in place of its arguments"))
            .with_value(Value::Object(map)));
    }
    match lossy {
        Some(flaw) => Err(flaw.with_value(Value::Object(map))),
        None => Ok(map),
    }
}

/// Like [`arguments`], and not the whole call over again in place of its arguments.
///
/// # Errors
///
/// As those of [`arguments`].
pub fn arguments_of(call: &ToolCall) -> Result<Map<String, Value>, Flaw> {
    let map = arguments(&call.arguments)?;
    let named = map.get("name").and_then(Value::as_str) == Some(&*call.name);
    if named && map.len() == 2 && map.get("arguments").is_some_and(Value::is_object) {
        let flaw = Flaw::new(FlawKind::Arguments, 0, "a whole call in place of its arguments");
        return Err(flaw.with_value(Value::Object(map)));
    }
    Ok(map)
}

/// Checks one tool call: its name is one of `offered` (where that is known), and its arguments are an object, unless
/// they are free text.
///
/// The findings are of [`SoftKind::UnknownTool`] or [`SoftKind::ToolCall`], with the codes `tool.unknown` and
/// `tool.arguments`; a lossy number is a warning.
#[must_use]
pub fn check_call<S: AsRef<str>>(call: &ToolCall, offered: Option<&[S]>) -> Option<Finding> {
    if let Some(offered) = offered {
        if !offered.iter().any(|name| name.as_ref() == &*call.name) {
            return Some(unknown_tool(&call.name, offered));
        }
    }
    if call.free_text {
        return None;
    }
    let flaw = arguments_of(call).err()?;
    let message = format!("arguments of `{}`: {flaw}", clipped(&call.name));
    Some(Finding::new(SoftKind::ToolCall, "tool.arguments", message).with_severity(flaw.severity()))
}

/// Whether there is nothing to see in a text: whitespace, zero-width characters, a byte order mark.
#[must_use]
pub fn is_blank(text: &str) -> bool {
    text.chars()
        .all(|c| c.is_whitespace() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}' | '\0'))
}

/// Whether a text is an HTML page: what a gateway says in place of the target.
#[must_use]
pub fn is_html(text: &str) -> bool {
    let text = text.trim_start();
    let starts = |tag: &str| text.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag));
    ["<!doctype html", "<html", "<head", "<body"].into_iter().any(starts)
}

fn unknown_tool<S: AsRef<str>>(name: &str, offered: &[S]) -> Finding {
    let mut message = format!("no tool `{}`; offered are", clipped(name));
    if offered.is_empty() {
        message.push_str(" none");
    }
    for (i, name) in offered.iter().take(16).enumerate() {
        message.push_str(if i == 0 { " " } else { ", " });
        message.push_str(clipped(name.as_ref()));
    }
    Finding::new(SoftKind::UnknownTool, "tool.unknown", message)
}

/// The start of a text that a peer made up as long as it liked.
fn clipped(text: &str) -> &str {
    let end = text.char_indices().nth(64).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

/// A text that `serde_json` takes may still be one that readers disagree about.
fn sound(text: &str, value: Value) -> Result<Value, Flaw> {
    let scan = scan::of_json(text);
    if scan.keys != scan::keys(&value) {
        let (offset, key) = scan::duplicate(text).unwrap_or_default();
        let message = format!("the key `{}` twice in one object", clipped(&key));
        return Err(Flaw::new(FlawKind::DuplicateKey, offset, message).with_value(value));
    }
    match scan.lossy {
        Some(offset) => Err(Flaw::new(FlawKind::Lossy, offset, "a number that loses digits in most readers")
            .with_value(value)),
        None => Ok(value),
    }
}

fn is_object(text: &str) -> bool {
    matches!(serde_json::from_str(text), Ok(Value::Object(_)))
}

/// `{"name": "…", "arguments": "{…}"}`: the envelope in place of its content, and that once too often.
///
/// An `input` alone is none: many a tool takes one text of that name, which may be JSON.
fn encoded_twice(map: &Map<String, Value>) -> Option<&'static str> {
    let envelope = map.contains_key("name") || map.contains_key("function");
    ["arguments", "parameters", "input"].into_iter().find(|&key| {
        let inner = map.get(key).and_then(Value::as_str);
        let alone = map.len() == 1 && key != "input";
        (envelope || alone) && map.len() <= 4 && inner.is_some_and(is_object)
    })
}

const fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Where the text begins to say something.
fn start(text: &str) -> usize {
    text.len() - text.trim_start().len()
}
