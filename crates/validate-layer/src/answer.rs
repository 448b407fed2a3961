//! [`Answer`]: one whole answer, as the checks see it.
//!
//! ```
//! use failsoft_core::Finish;
//! use validate_layer::Answer;
//!
//! let answer = Answer::new(r#"{"city": "Oslo"}"#).with_finish(Finish::Stop);
//! assert_eq!(answer.value().unwrap()["city"], "Oslo");
//! ```

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use failsoft_core::{Alternative, Facts, Finding, Finish, Severity, SoftKind, ToolCall, json};
use serde_json::Value;

use crate::{Asked, checks};

/// One whole answer: its text, its tool calls, and why it ended. Cheap to clone.
///
/// A layer makes it from the [`Insight`](failsoft_core::Insight) that a reader inside has left, else from the body. Its
/// JSON is parsed once, when the first check asks for it.
#[derive(Clone, Default)]
pub struct Answer {
    text: Option<Arc<str>>,
    tool_calls: Vec<ToolCall>,
    finish: Option<Finish>,
    status: Option<u16>,
    source: Source,
    asked: Option<Arc<Asked>>,
    alternatives: Vec<Self>,
    parsed: OnceLock<Arc<Parsed>>,
}

/// Who made the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Source {
    /// The caller.
    #[default]
    Made,
    /// A body, read as it came.
    #[cfg(feature = "http")]
    Body,
    /// A body that is still compressed.
    #[cfg(feature = "http")]
    Compressed,
    /// A reader that knows the format and found nothing wrong by it.
    Vouched,
}

struct Parsed {
    value: Option<Value>,
    finding: Option<Finding>,
}

impl Answer {
    /// An answer of text.
    #[must_use]
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }

    /// An answer without text, such as one of tool calls only.
    #[must_use]
    pub fn without_text() -> Self {
        Self::default()
    }

    /// Adds tool calls.
    #[must_use]
    pub fn with_tool_calls(mut self, calls: impl IntoIterator<Item = ToolCall>) -> Self {
        self.tool_calls.extend(calls);
        self
    }

    /// Adds why the target stopped.
    #[must_use]
    pub fn with_finish(mut self, finish: Finish) -> Self {
        self.finish = Some(finish);
        self
    }

    /// Adds what is known of the request that it answers.
    #[must_use]
    pub fn with_asked(mut self, asked: Option<Arc<Asked>>) -> Self {
        let with_asked = |other: Self| other.with_asked(asked.clone());
        self.alternatives = self.alternatives.into_iter().map(with_asked).collect();
        self.asked = asked.or(self.asked);
        self
    }

    /// What is known of the request that it answers. `None` where the layer was not told how to look at requests.
    #[must_use]
    pub fn asked(&self) -> Option<&Asked> {
        self.asked.as_deref()
    }

    /// Adds another answer to the same request, where several were asked for. Each is checked by itself.
    #[must_use]
    pub fn with_alternative(mut self, other: Self) -> Self {
        self.alternatives.push(other);
        self
    }

    /// What a reader learnt, if it is enough to look at. `None` where it is not: then the body speaks for itself.
    #[must_use]
    pub fn of_facts(facts: &Facts) -> Option<Self> {
        let vouched = facts.verdict.is_some_and(|verdict| verdict.is_success());
        let content = facts.text.is_some() || !facts.tool_calls.is_empty() || !facts.alternatives.is_empty();
        let source = if vouched { Source::Vouched } else { Source::Made };
        let other = |other: &Alternative| Self {
            text: other.text.clone(),
            tool_calls: other.tool_calls.clone(),
            finish: other.finish.clone(),
            source,
            ..Self::default()
        };
        // A good answer without text or calls is of a kind that those two do not show: an image, a vector.
        (content || facts.finish.is_some() && !vouched).then(|| Self {
            text: facts.text.clone(),
            tool_calls: facts.tool_calls.clone(),
            finish: facts.finish.clone(),
            source,
            alternatives: facts.alternatives.iter().map(other).collect(),
            ..Self::default()
        })
    }

    /// Writes the answer down among what is known of it.
    pub(crate) fn tell(&self, facts: &mut Facts) {
        facts.text.clone_from(&self.text);
        facts.tool_calls.clone_from(&self.tool_calls);
        facts.finish.clone_from(&self.finish);
        let fact = |other: &Self| {
            Alternative::new(other.text.clone(), other.tool_calls.clone(), other.finish.clone())
        };
        facts.alternatives = self.alternatives.iter().map(fact).collect();
    }

    /// A whole body; what is no UTF-8, or compressed, is no text.
    #[cfg(feature = "http")]
    pub(crate) fn of_body(bytes: &[u8], compressed: bool) -> Self {
        let text = std::str::from_utf8(bytes).ok().filter(|_| !compressed || bytes.is_empty());
        let source = if compressed { Source::Compressed } else { Source::Body };
        Self { text: text.map(Into::into), source, ..Self::default() }
    }

    #[cfg(feature = "http")]
    pub(crate) const fn with_status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// The text that the caller can see. `None` where there is none, or where a body is no UTF-8.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// The tool calls, as the model wrote them.
    #[must_use]
    pub fn tool_calls(&self) -> &[ToolCall] {
        &self.tool_calls
    }

    /// Why the target stopped, where it said so.
    #[must_use]
    pub const fn finish(&self) -> Option<&Finish> {
        self.finish.as_ref()
    }

    /// The other answers to the same request, where several were asked for.
    #[must_use]
    pub fn alternatives(&self) -> &[Self] {
        &self.alternatives
    }

    /// The HTTP status that it came with, where there was one.
    #[must_use]
    pub const fn status(&self) -> Option<u16> {
        self.status
    }

    /// Whether the text holds nothing to see.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.text().is_none_or(json::is_blank) && !self.is_binary()
    }

    /// The value of a text that is JSON, strictly; see [`failsoft_core::json`]. A lossy number is let through.
    #[must_use]
    pub fn value(&self) -> Option<&Value> {
        self.parsed().value.as_ref()
    }

    /// What is wrong with the text as JSON. Where there is a [`value`](Self::value), a warning at most.
    #[must_use]
    pub fn json_finding(&self) -> Option<&Finding> {
        self.parsed().finding.as_ref()
    }

    /// Whether the checks of text apply: an answer that calls tools is not the text that was asked for.
    pub(crate) fn is_textual(&self) -> bool {
        self.tool_calls.is_empty()
    }

    /// The same, where its JSON is inside a code fence: its [`value`](Self::value) is the one inside, and the report says so.
    pub(crate) fn unfenced(&self) -> Option<Self> {
        let inside = checks::unfenced(self.text()?)?;
        let Parsed { value, finding } = Parsed::of(inside);
        let value = value?;
        // A number that loses digits outranks the fence.
        let finding = finding.unwrap_or_else(checks::unwrapped);
        let parsed = OnceLock::from(Arc::new(Parsed { value: Some(value), finding: Some(finding) }));
        Some(Self { parsed, ..self.clone() })
    }

    pub(crate) fn is_vouched(&self) -> bool {
        self.source == Source::Vouched
    }

    /// Whether it is a whole body that nobody has looked into.
    pub(crate) const fn is_body(&self) -> bool {
        #[cfg(feature = "http")]
        return matches!(self.source, Source::Body | Source::Compressed);
        #[cfg(not(feature = "http"))]
        false
    }

    /// Whether it is a body that came compressed, and that no check can look into.
    pub(crate) fn is_compressed(&self) -> bool {
        #[cfg(feature = "http")]
        return self.source == Source::Compressed && self.text.is_none();
        #[cfg(not(feature = "http"))]
        false
    }

    /// Whether it is a body that is no text.
    pub(crate) fn is_opaque(&self) -> bool {
        self.is_binary()
    }

    fn is_binary(&self) -> bool {
        self.is_body() && self.text.is_none()
    }

    fn no_text(&self) -> Finding {
        #[cfg(feature = "http")]
        if self.source == Source::Compressed {
            let message = "the body is compressed: decompress it inside of this layer";
            return Finding::new(SoftKind::Malformed, checks::BODY_COMPRESSED, message);
        }
        Finding::new(SoftKind::Malformed, "json.syntax", "no UTF-8")
    }

    fn parsed(&self) -> &Parsed {
        self.parsed.get_or_init(|| {
            Arc::new(match self.text() {
                None if self.is_binary() => Parsed { value: None, finding: Some(self.no_text()) },
                text => Parsed::of(text.unwrap_or_default()),
            })
        })
    }
}

impl Parsed {
    fn of(text: &str) -> Self {
        match json::strict(text) {
            Ok(value) => Self { value: Some(value), finding: None },
            Err(flaw) => {
                let finding = flaw.finding();
                let usable = finding.severity() < Severity::Error;
                Self { value: flaw.into_value().filter(|_| usable), finding: Some(finding) }
            }
        }
    }
}

impl From<Value> for Answer {
    /// A value instead of a text.
    fn from(value: Value) -> Self {
        let answer = Self::new(value.to_string());
        // Just made: nobody can have parsed it before.
        let _ = answer.parsed.set(Arc::new(Parsed { value: Some(value), finding: None }));
        answer
    }
}

impl fmt::Debug for Answer {
    /// Without the text and the arguments: answers do not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("bytes", &self.text().map(str::len))
            .field("tool_calls", &self.tool_calls.len())
            .field("finish", &self.finish)
            .finish_non_exhaustive()
    }
}
