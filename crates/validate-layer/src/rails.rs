//! [`Rails`]: rules on what may be asked, and on what has to come back.
//!
//! Take them around tools, whose calls a model has written, and around models, to which tools are offered. What breaks a rule
//! is not sent: the call fails with a [`Fault`](failsoft_core::Fault) of [`Denier::Rail`], which no breaker counts and no
//! retry repeats, and which an [`Observation`](failsoft_core::Observation) tells the model. What the rules need to know of a request, a function says:
//! [`asked_fn`](crate::ValidateBuilder::asked_fn).
//!
//! ```
//! use failsoft_core::{BoxError, Class, Denier, Fault, ToolCall};
//! use tower::{Layer as _, ServiceExt as _, service_fn};
//! use validate_layer::{Answer, Asked, Rails, ValidateLayer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let layer = ValidateLayer::values(|result: &String| Answer::new(result.as_str()))
//!     .asked_fn(|call: &ToolCall| Asked::new().with_call(call.clone()))
//!     .rails(Rails::new().forbid(["delete_database"]).mutations(["write_file"]))
//!     .build()?;
//! let tools = layer.layer(service_fn(async |_: ToolCall| Ok::<_, BoxError>(String::new())));
//!
//! let err = tools.clone().oneshot(ToolCall::new("delete_database", "{}")).await.unwrap_err();
//! assert_eq!(Fault::find(&*err).unwrap().class(), Class::Denied(Denier::Rail));
//!
//! // It says that it has written, and nothing came of it.
//! let err = tools.oneshot(ToolCall::new("write_file", "{}")).await.unwrap_err();
//! assert_eq!(Fault::find(&*err).unwrap().report().unwrap().leading().unwrap().code(), "rail.empty_mutation");
//! # Ok(())
//! # }
//! ```
//!
//! # The rails
//!
//! | [`Rail`] | trips when | severity | then |
//! |---|---|---|---|
//! | [`ForbiddenTool`](Rail::ForbiddenTool) | a request calls or offers, or an answer calls, a tool that is forbidden or not among the allowed; or it cannot be told which ones a chat request offers | critical | a request is denied, an answer is a soft failure |
//! | [`Arguments`](Rail::Arguments) | the arguments of a call in a request are no JSON object, or do not fit the schema of the tool | medium | denied |
//! | [`RequestSize`](Rail::RequestSize) | a request, or the arguments of a call in it, are longer than allowed | medium | denied |
//! | [`EmptyMutation`](Rail::EmptyMutation) | a tool that changes something answers with nothing: whether it did, nobody knows | high | a soft failure that is not repeated |
//!
//! A tripped rail is a security event: `tracing` gets a warning with the target `failsoft_security`, the name `failsoft_validate_rail_tripped`, and the
//! fields `upstream`, `rail` and `severity`. With the feature `metrics` it is counted under `failsoft_validate_rails_tripped_total`. Neither says what was in
//! the request.
//!
//! Whose tools cannot be told for certain is a chat request that is compressed, or that readers take differently: another encoding than UTF-8,
//! `NaN`, a key of a tool twice, nesting beyond 127 levels among its tools. It is denied where there is a rule on names, and only there.
//!
//! Nothing is what is blank, and as JSON `null`, `""`, `[]` and `{}`. A response with status 204 or 205 says by that that nothing is meant
//! to be there, and passes.

use std::fmt;

use failsoft_core::{Class, Denier, Finding, Report, Severity, SoftKind, ToolCall, json};

#[cfg(feature = "schema")]
use crate::checks::{Schema, ToolSchemas, schema::check_calls};
use crate::{Answer, Asked};

/// A rule that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rail {
    /// A tool that must not be called.
    ForbiddenTool,
    /// Arguments that the tool cannot take.
    Arguments,
    /// A request that is too long.
    RequestSize,
    /// A change that answered with nothing.
    EmptyMutation,
}

impl Rail {
    /// A short stable name, for logs and labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ForbiddenTool => "forbidden_tool",
            Self::Arguments => "arguments",
            Self::RequestSize => "request_size",
            Self::EmptyMutation => "empty_mutation",
        }
    }

    /// How bad it is that it tripped: `critical`, `high` or `medium`.
    #[must_use]
    pub const fn severity(self) -> &'static str {
        match self {
            Self::ForbiddenTool => "critical",
            Self::EmptyMutation => "high",
            Self::Arguments | Self::RequestSize => "medium",
        }
    }

    const fn code(self) -> &'static str {
        match self {
            Self::ForbiddenTool => "rail.forbidden_tool",
            Self::Arguments => "rail.arguments",
            Self::RequestSize => "rail.request_size",
            Self::EmptyMutation => EMPTY_MUTATION,
        }
    }

    /// The rail of a finding.
    pub(crate) fn of(finding: &Finding) -> Option<Self> {
        [Self::ForbiddenTool, Self::Arguments, Self::RequestSize, Self::EmptyMutation]
            .into_iter()
            .find(|rail| rail.code() == finding.code())
    }
}

impl fmt::Display for Rail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

pub(crate) const EMPTY_MUTATION: &str = "rail.empty_mutation";

/// Rules on requests and on the results of tools. Given to [`ValidateBuilder::rails`](crate::ValidateBuilder::rails).
#[derive(Clone, Debug, Default)]
#[must_use = "rails hold nothing until a builder has them"]
pub struct Rails {
    forbidden: Vec<Box<str>>,
    allowed: Option<Vec<Box<str>>>,
    mutations: Vec<Box<str>>,
    max_request: Option<usize>,
    max_arguments: Option<usize>,
    #[cfg(feature = "schema")]
    schemas: ToolSchemas,
}

impl Rails {
    /// No rule but one: the arguments of a call are a JSON object, or nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Tools that must not be called or offered. May be called several times. Those that a provider runs itself and that have no
    /// name, such as `code_interpreter` or `codeExecution`, go by their type or their key.
    pub fn forbid(mut self, names: impl IntoIterator<Item = impl Into<Box<str>>>) -> Self {
        self.forbidden.extend(names.into_iter().map(Into::into));
        self
    }

    /// The only tools that may be called or offered, those that a provider runs itself included. May be called several times;
    /// forbidden ones stay forbidden.
    pub fn allow_only(mut self, names: impl IntoIterator<Item = impl Into<Box<str>>>) -> Self {
        self.allowed.get_or_insert_default().extend(names.into_iter().map(Into::into));
        self
    }

    /// Tools that change something, so that an answer with nothing in it is a failure. May be called several times.
    pub fn mutations(mut self, names: impl IntoIterator<Item = impl Into<Box<str>>>) -> Self {
        self.mutations.extend(names.into_iter().map(Into::into));
        self
    }

    /// The longest request, in bytes; one whose length nobody knows passes. Default: any.
    pub const fn max_request(mut self, bytes: usize) -> Self {
        self.max_request = Some(bytes);
        self
    }

    /// The longest arguments of one call, in bytes. Default: any.
    pub const fn max_arguments(mut self, bytes: usize) -> Self {
        self.max_arguments = Some(bytes);
        self
    }

    /// The schema of a tool's parameters, which the arguments of its calls must fit.
    #[cfg(feature = "schema")]
    pub fn tool(mut self, name: impl Into<Box<str>>, parameters: Schema) -> Self {
        self.schemas = self.schemas.tool(name, parameters);
        self
    }

    /// What a request breaks.
    pub(crate) fn before(&self, asked: &Asked) -> Report {
        let mut report = Report::new();
        let denied =
            |rail: Rail, message: String| Finding::of(Class::Denied(Denier::Rail), rail.code(), message);
        for (i, call) in asked.calls().iter().enumerate() {
            if self.forbids(&call.name) {
                report.push(
                    denied(Rail::ForbiddenTool, not_allowed(&call.name)).at(format!("/tool_calls/{i}")),
                );
            }
        }
        for name in asked.offered().filter(|name| self.forbids(name)) {
            report.push(denied(Rail::ForbiddenTool, not_allowed(name)));
        }
        if asked.is_unreadable && (!self.forbidden.is_empty() || self.allowed.is_some()) {
            let message = "which tools it offers cannot be read for certain";
            report.push(denied(Rail::ForbiddenTool, message.to_owned()));
        }
        if let (Some(max), Some(bytes)) = (self.max_request, asked.bytes()) {
            if bytes > max {
                report.push(denied(Rail::RequestSize, format!("{bytes} bytes, where {max} are allowed")));
            }
        }
        for (i, call) in asked.calls().iter().enumerate() {
            let at = format!("/tool_calls/{i}/arguments");
            let bytes = call.arguments.len();
            if let Some(max) = self.max_arguments.filter(|max| bytes > *max) {
                let message = format!("arguments of {bytes} bytes, where {max} are allowed");
                report.push(denied(Rail::RequestSize, message).at(at));
            } else if !call.free_text && !json::is_blank(&call.arguments) {
                let flaw = json::arguments_of(call).err().filter(|flaw| flaw.severity() == Severity::Error);
                report.extend(flaw.map(|flaw| denied(Rail::Arguments, flaw.to_string()).at(at)));
            }
        }
        #[cfg(feature = "schema")]
        if report.is_empty() {
            let mut found = Report::new();
            check_calls(asked.calls(), &mut found, |call| self.schemas.of(call));
            report.extend(found.findings().iter().map(|finding| {
                let path = finding.path().unwrap_or_default().to_owned();
                denied(Rail::Arguments, finding.message().to_owned()).at(path)
            }));
        }
        report
    }

    /// What an answer breaks.
    pub(crate) fn after(&self, answer: &Answer, report: &mut Report) {
        for (i, call) in answer.tool_calls().iter().enumerate().filter(|(_, call)| self.forbids(&call.name)) {
            let finding =
                Finding::new(SoftKind::UnknownTool, Rail::ForbiddenTool.code(), not_allowed(&call.name));
            report.push(finding.at(format!("/tool_calls/{i}")));
        }
        let is_mutation = |call: &&ToolCall| self.mutations.contains(&call.name);
        let Some(call) = answer.asked().and_then(|asked| asked.calls().iter().find(is_mutation)) else {
            return;
        };
        if is_nothing(answer) {
            let message = format!("`{:.64}` was to change something, and answered with nothing", call.name);
            report.push(Finding::new(SoftKind::Empty, EMPTY_MUTATION, message));
        }
    }

    fn forbids(&self, name: &str) -> bool {
        let has = |names: &[Box<str>]| names.iter().any(|known| **known == *name);
        has(&self.forbidden) || self.allowed.as_deref().is_some_and(|allowed| !has(allowed))
    }
}

fn not_allowed(name: &str) -> String {
    format!("the tool `{name:.64}` is not allowed")
}

fn is_nothing(answer: &Answer) -> bool {
    if !answer.tool_calls().is_empty() || answer.is_opaque() {
        return false;
    }
    let text = answer.text().unwrap_or_default();
    json::is_blank(text) || matches!(text.trim(), "null" | "\"\"") || is_hollow(text.trim())
}

/// An object or a list with nothing in it.
fn is_hollow(text: &str) -> bool {
    let inside = |open, close| text.strip_prefix(open)?.strip_suffix(close);
    inside('{', '}').or_else(|| inside('[', ']')).is_some_and(|inside: &str| inside.trim().is_empty())
}
