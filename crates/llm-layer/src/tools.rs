//! Tool calls: read as they came, and judged.

use std::{borrow::Cow, sync::Arc};

use failsoft_core::{Finding, Severity, SoftKind, ToolCall, Verdict, json};

use crate::{Offered, chat::FORM, form::Form, lens, pieces};

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
    /// Reads the `tool_calls` of a chat completion, or the older `function_call`. `at` is where the choice lies.
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
                    calls.too_many(&FORM, at);
                    return false;
                }
                let at = format!("{at}{}/{}", FORM.calls, calls.calls.len());
                calls.add(raw, &at, offered);
                true
            });
            if is_list.is_none() {
                calls.wrong(&format!("{at}{}", FORM.calls), "tool.list", "`tool_calls` is no list");
            }
        }
        if let Some(raw) = function_call.filter(|_| calls.calls.is_empty()) {
            calls.function(raw, None, &format!("{at}{}/function_call", FORM.message), offered);
        }
        calls
    }

    /// Checks calls that were put together from the fragments of a stream.
    pub(crate) fn assembled(
        pieces: Vec<pieces::Call>,
        function: Option<pieces::Call>,
        too_many: bool,
        form: &'static Form,
        at: &str,
        offered: &Offered,
    ) -> Self {
        let mut calls = Self::default();
        for (position, call) in pieces.into_iter().enumerate() {
            let position = call.index.filter(|_| form.keeps_index).unwrap_or(position as u64);
            let at = format!("{at}{}/{position}", form.calls);
            let id = (!call.id.is_empty()).then_some(Cow::Owned(call.id));
            if call.is_custom {
                calls.custom(id, &call.name, &call.arguments, form, &at, offered);
            } else {
                calls.keep(id, &call.name, call.arguments.into());
                calls.check(form, &format!("{at}{}", form.function), offered);
            }
        }
        if let Some(call) = function {
            calls.keep(None, &call.name, call.arguments.into());
            calls.check(form, &format!("{at}{}/function_call", form.message), offered);
        }
        if too_many {
            calls.too_many(form, at);
        }
        calls
    }

    /// Adds a call whose arguments are an object, or the text of one, and checks it. `at` is where name and arguments
    /// lie.
    pub(crate) fn push(
        &mut self,
        id: Option<Cow<'_, str>>,
        name: &str,
        arguments: &str,
        form: &Form,
        at: &str,
        offered: &Offered,
    ) {
        if self.calls.len() == MAX_CALLS {
            self.too_many(form, at);
            return;
        }
        self.keep(id, name, arguments.into());
        self.check(form, at, offered);
    }

    fn too_many(&mut self, form: &Form, at: &str) {
        self.wrong(
            &format!("{at}{}", form.calls),
            "tool.too_many",
            format!("more than {MAX_CALLS} tool calls"),
        );
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
                let name = name.and_then(lens::string).unwrap_or_default();
                let text = input.and_then(lens::string).unwrap_or_default();
                self.custom(id, &name, &text, &FORM, at, offered);
            }
            (None, None) => {
                self.keep(id, "", "".into());
                self.wrong(at, "tool.function", "a tool call without a function");
            }
        }
    }

    /// Adds a call of a tool that takes free text.
    pub(crate) fn custom(
        &mut self,
        id: Option<Cow<'_, str>>,
        name: &str,
        text: &str,
        form: &Form,
        at: &str,
        offered: &Offered,
    ) {
        self.keep(id, name, text.into());
        if let Some(call) = self.calls.last_mut() {
            call.free_text = true;
        }
        self.check(form, at, offered);
    }

    fn function(&mut self, raw: &str, id: Option<Cow<'_, str>>, at: &str, offered: &Offered) {
        let [name, arguments] = lens::fields(raw, ["name", "arguments"]).unwrap_or_default();
        let name = name.and_then(lens::string).unwrap_or_default();
        let text = match arguments {
            Some(raw) if raw.starts_with('"') => serde_json::from_str(raw).ok(),
            // Some servers send the object itself.
            Some(raw) => Some(raw.to_owned()),
            None => Some(String::new()),
        };
        if text.is_none() {
            self.wrong(&format!("{at}/arguments"), "tool.arguments", "the arguments are not text");
        }
        self.keep(id, &name, text.unwrap_or_default().into());
        self.check(&FORM, at, offered);
    }

    /// Checks the call that was kept last.
    fn check(&mut self, form: &Form, at: &str, offered: &Offered) {
        let Some(call) = self.calls.last() else { return };
        if json::is_blank(&call.name) {
            self.wrong(at, "tool.name", "a tool call without a name");
            return;
        }
        // Nothing becomes an empty object, unless nothing is what the tool takes.
        let empty = json::is_blank(&call.arguments) && offered.takes_none(&call.name);
        let found = if !call.free_text && (empty || call.arguments.len() > lens::MAX_VALUE) {
            let bare = ToolCall::new(&*call.name, "{}");
            json::check_call(&bare, offered.known_tools())
                .or_else(|| if empty { None } else { lens::flaw_of_long(&call.arguments, '{') })
        } else {
            json::check_call(call, offered.known_tools())
        };
        let Some(finding) = found else { return };
        let at = at.to_owned()
            + if finding.kind() == Some(SoftKind::UnknownTool) { "/name" } else { form.arguments };
        if finding.severity() < Severity::Error {
            self.findings.push(finding.at(at));
        } else if finding.kind() == Some(SoftKind::UnknownTool) {
            self.fail(Verdict::soft(SoftKind::UnknownTool), finding.at(at));
        } else {
            self.fail(Verdict::soft(SoftKind::ToolCall), finding.at(at));
        }
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
        self.fail(Verdict::soft(SoftKind::ToolCall), finding);
    }

    fn fail(&mut self, verdict: Verdict, finding: Finding) {
        self.failure.get_or_insert(verdict);
        // The report keeps few; there is no need to collect many.
        if self.findings.len() <= failsoft_core::MAX_FINDINGS {
            self.findings.push(finding);
        }
    }
}
