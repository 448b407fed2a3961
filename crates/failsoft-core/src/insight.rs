//! [`Insight`]: what was learnt of one answer, on the response's extensions.
//!
//! The innermost reader of an answer (an llm-layer, a validate-layer) leaves it there; the default classifier of
//! every layer outside looks at it before it looks at status and headers.
//!
//! ```
//! use failsoft_core::{Class, Insight, Respond, Step, Verdict};
//!
//! let mut response = http::Response::new(http_body_util::Empty::<bytes::Bytes>::new());
//! let insight = Insight::new();
//! insight.learn(|facts| facts.verdict = Some(Verdict::of(Class::Overloaded)));
//! response.extensions_mut().insert(insight);
//!
//! // A 200, and yet:
//! let Step::Now(verdict) = response.step() else { unreachable!() };
//! assert_eq!(verdict.class(), Class::Overloaded);
//! ```

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::{Degraded, Report, Usage, Verdict};

/// A handle on what is learnt of one answer; clones are the same insight. It is completed while the body runs.
#[derive(Clone, Default)]
pub struct Insight(Arc<Mutex<Facts>>);

/// What is known of an answer so far.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Facts {
    /// What the answer means. `None` while it is still running.
    pub verdict: Option<Verdict>,
    /// What was found in it, also when it passed.
    pub report: Report,
    /// The tokens it cost, as the provider counts them.
    pub usage: Usage,
    /// Why the target stopped.
    pub finish: Option<Finish>,
    /// The text that the caller can see.
    pub text: Option<Arc<str>>,
    /// The tool calls in it.
    pub tool_calls: Vec<ToolCall>,
    /// The other answers, where several were asked for: `text`, `tool_calls` and `finish` are those of the first.
    pub alternatives: Vec<Alternative>,
    /// How many bytes of text, reasoning and tool calls came so far: what an estimate is made of where the provider
    /// says nothing about usage, or the caller hangs up before it does.
    pub output_bytes: u64,
    /// How often content came so far, or something else that the target had to work for. `None` while nobody counts: then
    /// any bytes are taken for content, also those that only keep a connection open.
    pub pieces: Option<u64>,
    /// From the call to the first content.
    pub first_content: Option<Duration>,
    /// Which soft limits of time it passed.
    pub slow: Slow,
    /// Whether the failure was found inside an answer whose status says success.
    pub inside_success: bool,
    /// That it stands in for the answer that was asked for, where it does.
    pub degraded: Option<Degraded>,
}

impl Facts {
    /// A copy, without the text and the tool calls where those have more than `max` bytes in all. The texts are shared, not
    /// copied.
    #[must_use]
    pub fn within(&self, max: usize) -> Self {
        let others = self.alternatives.iter();
        let texts = others.clone().map(|other| &other.text).chain([&self.text]).flatten();
        let text = texts.fold(0_usize, |sum, text| sum.saturating_add(text.len()));
        let calls = others
            .flat_map(|other| &other.tool_calls)
            .chain(&self.tool_calls)
            .map(|call| call.id.as_ref().map_or(0, |id| id.len()) + call.name.len() + call.arguments.len());
        if calls.fold(text, usize::saturating_add) <= max {
            return self.clone();
        }
        Self {
            text: None,
            tool_calls: Vec::new(),
            alternatives: Vec::new(),
            report: self.report.clone(),
            finish: self.finish.clone(),
            degraded: self.degraded.clone(),
            ..*self
        }
    }
}

/// One of several answers to one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Alternative {
    /// The text that the caller can see.
    pub text: Option<Arc<str>>,
    /// The tool calls in it.
    pub tool_calls: Vec<ToolCall>,
    /// Why the target stopped.
    pub finish: Option<Finish>,
}

impl Alternative {
    /// An answer of this text, these calls, and this end.
    #[must_use]
    pub const fn new(text: Option<Arc<str>>, tool_calls: Vec<ToolCall>, finish: Option<Finish>) -> Self {
        Self { text, tool_calls, finish }
    }
}

/// The soft limits of time that an answer passed: worth knowing when routes are chosen, and never a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Slow {
    /// The soft limit on the first content, where that came later; when it came, [`Facts::first_content`] says.
    pub first_content: Option<Duration>,
    /// How often the target was silent, after its first content, for longer than the soft limit on that.
    pub stalls: u32,
    /// The longest of those silences.
    pub longest_stall: Duration,
}

impl Slow {
    /// Whether a soft limit was passed.
    #[must_use]
    pub const fn any(&self) -> bool {
        self.first_content.is_some() || self.stalls > 0
    }
}

/// Why a model stopped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Finish {
    /// It was done.
    Stop,
    /// It wants tools called.
    ToolCalls,
    /// It ran into the limit of tokens.
    Length,
    /// A filter stopped it.
    ContentFilter,
    /// The model itself refused.
    Refusal,
    /// It paused a long turn of its own: the answer is good so far, and the caller sends it back to go on.
    Paused,
    /// Something this crate has no name for: never taken for a good end.
    Other(Box<str>),
}

/// A tool call as the model wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolCall {
    /// The call's id, where the provider gives one.
    pub id: Option<Box<str>>,
    /// The tool's name.
    pub name: Box<str>,
    /// The arguments as JSON text, as they came: never repaired.
    pub arguments: Arc<str>,
    /// Whether the tool takes free text, so that the arguments are any text and no JSON.
    pub free_text: bool,
}

impl ToolCall {
    /// A tool call with its name and its arguments as JSON text.
    #[must_use]
    pub fn new(name: impl Into<Box<str>>, arguments: impl Into<Arc<str>>) -> Self {
        Self { id: None, name: name.into(), arguments: arguments.into(), free_text: false }
    }

    /// Adds the id that the provider gave it.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<Box<str>>) -> Self {
        self.id = Some(id.into());
        self
    }
}

impl Insight {
    /// An insight in which nothing is known.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The insight that a reader left on a response.
    #[cfg(feature = "http")]
    #[must_use]
    pub fn of(extensions: &http::Extensions) -> Option<&Self> {
        extensions.get()
    }

    /// Adds to what is known.
    pub fn learn<R>(&self, f: impl FnOnce(&mut Facts) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads what is known, without copying it.
    pub fn read<R>(&self, f: impl FnOnce(&Facts) -> R) -> R {
        f(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A copy of what is known.
    #[must_use]
    pub fn facts(&self) -> Facts {
        self.read(Facts::clone)
    }

    /// What the answer means; `None` while it is still running.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        self.read(|facts| facts.verdict)
    }

    /// The tokens it cost so far.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.read(|facts| facts.usage)
    }
}

impl fmt::Debug for Insight {
    /// Without the text: answers do not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.read(|facts| {
            f.debug_struct("Insight")
                .field("verdict", &facts.verdict)
                .field("finish", &facts.finish)
                .field("usage", &facts.usage)
                .finish_non_exhaustive()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Class;

    #[test]
    fn clones_are_the_same_insight_and_debug_keeps_the_text_back() {
        let insight = Insight::new();
        let other = insight.clone();
        other.learn(|facts| {
            facts.text = Some("secret".into());
            facts.verdict = Some(Verdict::of(Class::Refused));
        });
        assert_eq!(insight.verdict().map(|v| v.class()), Some(Class::Refused));
        assert!(!format!("{insight:?}").contains("secret"));
    }
}
