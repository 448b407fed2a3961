//! Tool calls: read as they came, and judged.

use std::{borrow::Cow, sync::Arc};

use failsoft_core::{Finding, Hint, SoftKind, ToolCall, Verdict};

use crate::{Offered, lens};

/// At most so many tool calls of an answer are kept; an answer with more is no usable one.
pub(crate) const MAX_CALLS: usize = 1024;

/// The tool calls of one choice.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    pub(crate) calls: Vec<ToolCall>,
    /// What is wrong with them: the first thing, and in full in `findings`.
    pub(crate) failure: Option<Verdict>,
    pub(crate) findings: Vec<Finding>,
}

impl Calls {
    /// Reads `tool_calls`, or the older `function_call`.
    pub(crate) fn read(
        tool_calls: Option<&str>,
        function_call: Option<&str>,
        at: &str,
        offered: &Offered,
    ) -> Self {
        let mut calls = Self::default();
        if let Some(list) = tool_calls {
            let is_list = lens::each(list, |raw| {
                if calls.calls.len() == MAX_CALLS {
                    calls.wrong(at, "too_many_calls", format!("more than {MAX_CALLS} tool calls"));
                    return false;
                }
                let at = format!("{at}/tool_calls/{}", calls.calls.len());
                calls.add(raw, &at, offered);
                true
            });
            if is_list.is_none() {
                calls.wrong(at, "tool_calls", "`tool_calls` is no list");
            }
        }
        if let Some(raw) = function_call.filter(|_| calls.calls.is_empty()) {
            calls.function(raw, None, &format!("{at}/function_call"), offered);
        }
        calls
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.failure.is_none()
    }

    fn add(&mut self, raw: &str, at: &str, offered: &Offered) {
        let [id, function, custom] = lens::fields(raw, ["id", "function", "custom"]).unwrap_or_default();
        let id = lens::some_string(id);
        match (function, custom) {
            (Some(function), _) => self.function(function, id, &format!("{at}/function"), offered),
            // A custom tool takes free text.
            (None, Some(custom)) => {
                let [name, input] = lens::fields(custom, ["name", "input"]).unwrap_or_default();
                let name = self.name(name, at, offered);
                self.keep(id, &name, input.unwrap_or("\"\"").into());
            }
            (None, None) => {
                self.keep(id, "", "".into());
                self.wrong(at, "tool_call", "a tool call without a function");
            }
        }
    }

    fn function(&mut self, raw: &str, id: Option<Cow<'_, str>>, at: &str, offered: &Offered) {
        let [name, arguments] = lens::fields(raw, ["name", "arguments"]).unwrap_or_default();
        let name = self.name(name, at, offered);
        let text = match arguments {
            Some(raw) if raw.starts_with('"') => serde_json::from_str::<String>(raw).ok(),
            // Some servers send the object itself.
            Some(raw) => Some(raw.to_owned()),
            None => Some(String::new()),
        };
        let at = format!("{at}/arguments");
        match &text {
            None => self.wrong(&at, "arguments", "the arguments are not text"),
            Some(text) if text.trim().is_empty() && offered.takes_none(&name) => {}
            Some(text) => {
                if let Some(why) = wrong_arguments(text) {
                    self.wrong(&at, "arguments", why);
                }
            }
        }
        self.keep(id, &name, text.unwrap_or_default().into());
    }

    fn name<'a>(&mut self, raw: Option<&'a str>, at: &str, offered: &Offered) -> Cow<'a, str> {
        let name = raw.and_then(lens::string).unwrap_or_default();
        if name.trim().is_empty() {
            self.wrong(at, "tool_name", "a tool call without a name");
        } else if offered.has_tool(&name) == Some(false) {
            let finding = Finding::new(SoftKind::UnknownTool, "unknown_tool", unknown(&name, offered));
            self.fail(Verdict::soft(SoftKind::UnknownTool), finding.at(format!("{at}/name")));
        }
        name
    }

    fn keep(&mut self, id: Option<Cow<'_, str>>, name: &str, arguments: Arc<str>) {
        let call = ToolCall::new(name, arguments);
        self.calls.push(match id {
            Some(id) => call.with_id(&*id),
            None => call,
        });
    }

    fn wrong(&mut self, at: &str, code: &'static str, message: impl Into<Cow<'static, str>>) {
        let finding = Finding::new(SoftKind::ToolCall, code, message).at(at.to_owned());
        self.fail(Verdict::soft(SoftKind::ToolCall).with_hint(Hint::Modify), finding);
    }

    fn fail(&mut self, verdict: Verdict, finding: Finding) {
        self.failure.get_or_insert(verdict);
        // The report keeps few; there is no need to collect many.
        if self.findings.len() <= failsoft_core::MAX_FINDINGS {
            self.findings.push(finding);
        }
    }
}

/// Names the tools that there are, so that a re-ask can.
fn unknown(name: &str, offered: &Offered) -> String {
    let shown = |name: &str| name.chars().take(64).collect::<String>();
    let mut known = offered.tools().take(8).map(shown).collect::<Vec<_>>().join(", ");
    if known.is_empty() {
        known.push_str("none");
    }
    format!("no tool `{}` was offered; offered: {known}", shown(name))
}

/// Why a text is no arguments of a call, strictly read; nothing is ever repaired.
fn wrong_arguments(text: &str) -> Option<&'static str> {
    match serde_json::from_str::<serde::de::IgnoredAny>(text) {
        Ok(_) if text.trim_start().starts_with('{') => None,
        Ok(_) if text.trim_start().starts_with('"') => Some("the arguments are a string in a string"),
        Ok(_) => Some("the arguments are no object"),
        Err(err) if err.is_eof() => Some("the arguments are cut"),
        Err(_) => Some("the arguments are no JSON"),
    }
}
