//! Tool calls: of a known tool, with arguments that can be used and an id of their own, and none left in the text.

use std::collections::HashSet;

use failsoft_core::{ConfigError, Finding, Report, SoftKind, json};

use crate::{Answer, Check};

/// The tool calls can be carried out: each names an offered tool, and its arguments are one JSON object, or any text
/// where the tool takes [free text](failsoft_core::ToolCall::free_text). Empty or cut arguments are never taken for `{}`.
/// No two share an id: each gets a result.
///
/// Where the offered tools are known, a call that was left as text in the content is found too.
///
/// ```
/// use failsoft_core::ToolCall;
/// use validate_layer::{Answer, Check, checks::ToolCalls};
///
/// let check = ToolCalls::offered(["get_weather"]);
/// let answer = |name: &str, arguments: &str| {
///     Answer::without_text().with_tool_calls([ToolCall::new(name, arguments)])
/// };
/// assert!(check.on_answer(&answer("get_weather", r#"{"city": "Oslo"}"#)).is_empty());
/// assert_eq!(check.on_answer(&answer("get_weather", r#"{"city": "#)).leading().unwrap().code(), "tool.arguments");
/// assert_eq!(check.on_answer(&answer("delete_all", "{}")).leading().unwrap().code(), "tool.unknown");
/// ```
#[derive(Clone, Debug, Default)]
pub struct ToolCalls {
    offered: Option<Vec<Box<str>>>,
    /// Those of the offered that take no parameters.
    bare: Vec<Box<str>>,
}

impl ToolCalls {
    /// Looks at the arguments only: which tools were offered is not known.
    #[must_use]
    pub const fn any() -> Self {
        Self { offered: None, bare: Vec::new() }
    }

    /// Looks at the names too.
    #[must_use]
    pub fn offered(names: impl IntoIterator<Item = impl Into<Box<str>>>) -> Self {
        Self::any().and(names)
    }

    /// Adds offered tools.
    #[must_use]
    pub fn and(mut self, names: impl IntoIterator<Item = impl Into<Box<str>>>) -> Self {
        self.offered.get_or_insert_default().extend(names.into_iter().map(Into::into));
        self
    }

    /// Adds offered tools that take no parameters: some providers send empty arguments for those.
    #[must_use]
    pub fn and_without_parameters(mut self, names: impl IntoIterator<Item = impl Into<Box<str>>>) -> Self {
        let names: Vec<Box<str>> = names.into_iter().map(Into::into).collect();
        self.bare.extend_from_slice(&names);
        self.and(names)
    }

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        if self.offered.iter().flatten().any(|name| name.trim().is_empty()) {
            return Err(ConfigError::new("ValidateLayer", "tools", "an empty name", "names of tools"));
        }
        Ok(())
    }
}

impl Check for ToolCalls {
    fn check(&self, answer: &Answer, report: &mut Report) {
        for (i, call) in answer.tool_calls().iter().enumerate() {
            let empty = call.arguments.trim().is_empty();
            let known = self.offered.as_ref().is_none_or(|names| names.contains(&call.name));
            // Whoever read the request knows whether the tool takes parameters.
            if empty && known && (self.bare.contains(&call.name) || answer.is_vouched()) {
                continue;
            }
            let finding = json::check_call(call, self.offered.as_deref());
            report.extend(finding.map(|finding| finding.at(format!("/tool_calls/{i}"))));
        }
        let mut seen = HashSet::new();
        for (i, call) in answer.tool_calls().iter().enumerate() {
            let id = call.id.as_deref().filter(|id| !id.is_empty());
            // Results are told apart by the ids of their calls: of two that share one, one never gets its own.
            if id.is_some_and(|id| !seen.insert(id)) {
                let message = "the id of an earlier call";
                let finding = Finding::new(SoftKind::ToolCall, "tool.duplicate_id", message);
                report.push(finding.at(format!("/tool_calls/{i}/id")));
            }
        }
        if let (Some(offered), Some(text)) = (&self.offered, answer.text()) {
            report.extend(json::leaked(text, offered).map(|leak| {
                let message = format!("a call of `{:.64}` in the text, at byte {}", leak.tool, leak.offset);
                Finding::new(SoftKind::LeakedToolCall, "tool.leaked", message)
            }));
        }
    }
}
