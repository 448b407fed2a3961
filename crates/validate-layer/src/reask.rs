//! What to tell a model of a wrong answer, for loops of one's own.
//!
//! With retry-layer's `ReflectLayer` around nothing of this is needed: its `ChatReask` says the same in the words of each chat
//! protocol. Protocols ask for a result for every tool call, so [`per_call`] gives one for each: what is wrong with it, or that it
//! was not made because of another one.
//!
//! ```
//! use failsoft_core::ToolCall;
//! use validate_layer::{Answer, ValidateLayer, reask};
//!
//! let layer = ValidateLayer::builder().tools(["look", "pay"]).build()?;
//! let calls = [ToolCall::new("look", "{}").with_id("c1"), ToolCall::new("pay", r#"{"sum": "#).with_id("c2")];
//! let (_, report) = layer.validator().judge(&Answer::without_text().with_tool_calls(calls.clone()));
//!
//! let told = reask::per_call(&report, &calls);
//! assert_eq!((told[0].id(), told[0].is_wrong()), (Some("c1"), false));
//! assert_eq!((told[1].id(), told[1].is_wrong()), (Some("c2"), true));
//! assert!(told[1].text().starts_with("Not called. This call cannot be used.\n- tool.arguments: "));
//! # Ok::<(), failsoft_core::ConfigError>(())
//! ```

use failsoft_core::{Finding, Report, Severity, ToolCall};

/// A text is cut at so many bytes: whoever asks again pays for each of them.
pub const MAX_TOLD: usize = 4 * 1024;

/// The result that one tool call gets in place of being made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    index: usize,
    id: Option<Box<str>>,
    is_wrong: bool,
    text: String,
}

impl Told {
    /// Which of the answer's calls it is, from 0.
    #[must_use]
    pub const fn index(&self) -> usize {
        self.index
    }

    /// The call's id, where the provider gave it one.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Whether something is wrong with this call, and not only with another.
    #[must_use]
    pub const fn is_wrong(&self) -> bool {
        self.is_wrong
    }

    /// What to tell, at most [`MAX_TOLD`] bytes.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// A result for each of an answer's tool calls, in their order.
#[must_use]
pub fn per_call(report: &Report, calls: &[ToolCall]) -> Vec<Told> {
    let told = |(index, call): (usize, &ToolCall)| {
        let mut text = String::new();
        for (finding, path) in errors(report).filter_map(|finding| about(finding, index)) {
            line(&mut text, finding, path);
        }
        let is_wrong = !text.is_empty();
        let text = if is_wrong {
            format!("Not called. This call cannot be used.{text}")
        } else {
            "Not called: something else in the same answer was wrong. Call it again if it is still needed."
                .into()
        };
        Told { index, id: call.id.clone(), is_wrong, text: cut(text) }
    };
    calls.iter().enumerate().map(told).collect()
}

/// What is wrong with an answer besides its tool calls, as a message of the user; `None` where nothing is.
#[must_use]
pub fn of_text(report: &Report) -> Option<String> {
    let mut text = String::new();
    for finding in errors(report).filter(|finding| call_of(finding).is_none()) {
        line(&mut text, finding, finding.path().unwrap_or_default());
    }
    (!text.is_empty()).then(|| cut(format!("Your last answer cannot be used.{text}")))
}

fn errors(report: &Report) -> impl Iterator<Item = &Finding> {
    report.findings().iter().filter(|finding| finding.severity() == Severity::Error)
}

fn line(text: &mut String, finding: &Finding, path: &str) {
    let place = if path.is_empty() { String::new() } else { format!(" at {path}") };
    text.push_str(&format!("\n- {}{place}: {}", finding.code(), finding.message()));
}

/// A finding that is about this call, with its place inside of the arguments.
fn about(finding: &Finding, index: usize) -> Option<(&Finding, &str)> {
    let (of, path) = call_of(finding)?;
    let inside = path.split_once("arguments").map_or("", |(_, inside)| inside);
    (of == index).then_some((finding, inside))
}

/// Which call a finding is about, and the rest of its path.
fn call_of(finding: &Finding) -> Option<(usize, &str)> {
    let (_, rest) = finding.path()?.split_once("/tool_calls/")?;
    let (index, path) = rest.split_once('/').unwrap_or((rest, ""));
    Some((index.parse().ok()?, path))
}

fn cut(mut text: String) -> String {
    let end = (0..=MAX_TOLD.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.truncate(end);
    text
}

#[cfg(test)]
mod tests {
    use failsoft_core::SoftKind;

    use super::*;

    fn finding(code: &'static str, path: &'static str) -> Finding {
        Finding::new(SoftKind::ToolCall, code, "wrong").at(path)
    }

    #[test]
    fn each_call_is_told_its_own_also_where_a_reader_found_it() {
        let mut report = Report::new();
        report.push(finding("tool.schema", "/tool_calls/0/arguments/sum"));
        report.push(finding("tool.arguments", "/choices/0/message/tool_calls/2/function/arguments"));
        report.push(finding("note", "/tool_calls/1").with_severity(Severity::Warning));
        report.push(finding("style", "/text"));
        let calls = [ToolCall::new("a", "{}"), ToolCall::new("b", "{}"), ToolCall::new("c", "{}")];
        let told = per_call(&report, &calls);
        assert_eq!(told[0].text(), "Not called. This call cannot be used.\n- tool.schema at /sum: wrong");
        assert!(!told[1].is_wrong() && told[1].text().starts_with("Not called: something else"));
        assert_eq!(told[2].text(), "Not called. This call cannot be used.\n- tool.arguments: wrong");
        assert_eq!(told.iter().map(Told::index).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(of_text(&report).unwrap(), "Your last answer cannot be used.\n- style at /text: wrong");
        assert_eq!(of_text(&Report::new()), None);
    }

    #[test]
    fn what_is_told_is_capped_at_a_character() {
        let mut report = Report::new();
        for _ in 0..16 {
            report.push(Finding::new(SoftKind::ToolCall, "x", "é".repeat(400)).at("/tool_calls/0/arguments"));
        }
        let told = per_call(&report, &[ToolCall::new("a", "{}")]);
        assert!(told[0].text().len() <= MAX_TOLD && told[0].text().len() > MAX_TOLD - 8);
    }
}
