//! [`Observation`]: a failure or a denial as a structured result that an agent can act on.
//!
//! A tool that fails with a stack trace teaches a model nothing; an observation says in a few words what happened, how
//! long it lasts, and what to do instead.
//!
//! ```
//! use std::time::Duration;
//! use failsoft_core::{Class, Denier, Fault, Observation};
//!
//! let fault = Fault::new(Class::Denied(Denier::Circuit), "breaker-layer").with_retry_after(Duration::from_secs(30));
//! let observation = Observation::of(&fault).tool("get_weather");
//! assert_eq!(observation.code(), "CIRCUIT_BREAKER_OPEN");
//! assert_eq!(observation.seconds_left(), Some(30));
//! assert_eq!(
//!     observation.to_json(),
//!     r#"{"error":"CIRCUIT_BREAKER_OPEN","tool":"get_weather","message":"this target is failing and is not called now","#
//!         .to_owned()
//!         + r#""seconds_left":30,"instruction":"do not call it again for 30 seconds; use another tool or go on without it"}"#
//! );
//! ```

use std::{borrow::Cow, fmt};

use crate::{
    BoxError, Class, Denier, Fault, FaultDetails, Report, SoftKind, Verdict,
    text::{capped, push_json_str},
};

/// Message, tool and instruction are cut at so many bytes each.
const MAX_TEXT: usize = 400;

/// A failure or a denial, told to an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    code: &'static str,
    tool: Option<String>,
    message: Cow<'static, str>,
    seconds_left: Option<u64>,
    instruction: Cow<'static, str>,
}

impl Observation {
    /// What a fault tells an agent. While a circuit is probing the code is `CIRCUIT_BREAKER_PROBING`, not
    /// `CIRCUIT_BREAKER_OPEN`: it is worth asking again soon.
    #[must_use]
    pub fn of(fault: &FaultDetails) -> Self {
        let mut observation = Self::of_verdict(fault.verdict());
        if fault.is_probing() {
            observation = observation
                .with_code("CIRCUIT_BREAKER_PROBING")
                .with_message("this target was failing and is being tried again just now")
                .with_instruction("call it again in a few seconds, or go on without it");
        }
        if let Some(report) = fault.report().and_then(Report::leading) {
            observation.message = capped(report.to_string().into(), MAX_TEXT);
        }
        observation
    }

    /// What any error tells an agent: the fault in it, else its class. The error's own text stays inside: it may hold
    /// paths, hosts or keys.
    #[must_use]
    pub fn of_error(err: &BoxError) -> Self {
        Fault::find(&**err).map_or_else(|| Self::of_verdict(Verdict::of_error(&**err)), Self::of)
    }

    pub(crate) fn of_verdict(verdict: Verdict) -> Self {
        let seconds_left = verdict
            .retry_after()
            .map(|after| after.as_secs().saturating_add(u64::from(after.subsec_nanos() > 0)));
        let (code, message, instruction) = say(verdict.class());
        let instruction = match seconds_left.filter(|_| waits(verdict.class())) {
            Some(seconds) => format!("do not call it again for {seconds} seconds; {instruction}").into(),
            None => instruction.into(),
        };
        Self { code, tool: None, message: message.into(), seconds_left, instruction }
    }

    /// Names the tool.
    #[must_use]
    pub fn tool(mut self, tool: impl Into<String>) -> Self {
        self.tool = Some(capped(Cow::Owned(tool.into()), MAX_TEXT).into_owned());
        self
    }

    /// Another code.
    #[must_use]
    pub const fn with_code(mut self, code: &'static str) -> Self {
        self.code = code;
        self
    }

    /// Another message, cut at 400 bytes. No stack traces, prompts or keys.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.message = capped(message.into(), MAX_TEXT);
        self
    }

    /// Another instruction, cut at 400 bytes.
    #[must_use]
    pub fn with_instruction(mut self, instruction: impl Into<Cow<'static, str>>) -> Self {
        self.instruction = capped(instruction.into(), MAX_TEXT);
        self
    }

    /// A stable code, in capitals.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        self.code
    }

    /// What happened.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// How long it lasts, in seconds rounded up, where that is known.
    #[must_use]
    pub const fn seconds_left(&self) -> Option<u64> {
        self.seconds_left
    }

    /// What the agent can do now.
    #[must_use]
    pub fn instruction(&self) -> &str {
        &self.instruction
    }

    /// A JSON object with `error`, `tool`, `message`, `seconds_left` and `instruction`.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut json = format!("{{\"error\":\"{}\"", self.code);
        if let Some(tool) = &self.tool {
            json.push_str(",\"tool\":");
            push_json_str(&mut json, tool);
        }
        json.push_str(",\"message\":");
        push_json_str(&mut json, &self.message);
        if let Some(seconds) = self.seconds_left {
            json.push_str(&format!(",\"seconds_left\":{seconds}"));
        }
        json.push_str(",\"instruction\":");
        push_json_str(&mut json, &self.instruction);
        json.push('}');
        json
    }
}

impl fmt::Display for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.code, self.message, self.instruction)
    }
}

/// Whether waiting helps.
const fn waits(class: Class) -> bool {
    matches!(
        class,
        Class::Denied(Denier::Circuit) | Class::Overloaded | Class::RateLimited | Class::Transient
    )
}

const fn say(class: Class) -> (&'static str, &'static str, &'static str) {
    const ELSEWHERE: &str = "use another tool or go on without it";
    match class {
        Class::Denied(Denier::Circuit) => {
            ("CIRCUIT_BREAKER_OPEN", "this target is failing and is not called now", ELSEWHERE)
        }
        Class::Denied(Denier::Budget) => (
            "EXECUTION_ABORTED_TOKEN_LIMIT",
            "the budget of this session is used up",
            "make no further calls; conclude from what you already have",
        ),
        Class::Denied(Denier::Loop) => (
            "EXECUTION_ABORTED_LOOP",
            "the same steps were repeated without progress",
            "change the approach, or conclude from what you already have",
        ),
        Class::Denied(Denier::Quarantine) => {
            ("REQUEST_QUARANTINED", "this request failed too often and is set aside", ELSEWHERE)
        }
        Class::Denied(Denier::Rail) => (
            "REQUEST_BLOCKED",
            "this call breaks a rule and was not made",
            "do not make it again as it was; change it as the message says, or go on without it",
        ),
        Class::RateLimited => ("RATE_LIMITED", "too many calls in a short time", ELSEWHERE),
        Class::Timeout(_) => {
            ("TOOL_EXECUTION_TIMEOUT", "no answer came in time", "ask for less, or use another tool")
        }
        Class::Invalid | Class::ContextLength => {
            ("INVALID_REQUEST", "the request was not accepted", "change the arguments before you call again")
        }
        Class::Auth | Class::Quota | Class::ModelNotFound => {
            ("TOOL_UNAVAILABLE", "this target cannot be used with the present account", ELSEWHERE)
        }
        Class::Refused => ("CONTENT_REFUSED", "the content was refused", "rephrase, or go on without it"),
        Class::Soft(SoftKind::UnknownTool) => {
            ("UNKNOWN_TOOL", "there is no tool of that name", "use one of the tools that were offered")
        }
        Class::Soft(_) => {
            ("INVALID_ANSWER", "the answer was incomplete or wrong", "do not rely on it; try once more")
        }
        Class::Success | Class::Transient | Class::Overloaded | Class::Unknown | Class::Cancelled => {
            ("TOOL_EXECUTION_FAILURE", "the call failed", "try once more later, or go on without it")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Finding;

    #[test]
    fn a_budgets_denial_tells_the_model_to_conclude() {
        let observation = Observation::of(&Fault::new(Class::Denied(Denier::Budget), "budget-layer"));
        assert_eq!(observation.code(), "EXECUTION_ABORTED_TOKEN_LIMIT");
        assert!(observation.instruction().contains("conclude"));
    }

    #[test]
    fn a_probing_circuit_is_worth_asking_again_and_an_open_one_is_not() {
        let refused = || Fault::new(Class::Denied(Denier::Circuit), "breaker-layer");
        let open = Observation::of(&refused().with_retry_after(Duration::from_secs(30)));
        assert_eq!((open.code(), open.seconds_left()), ("CIRCUIT_BREAKER_OPEN", Some(30)));
        assert!(open.instruction().starts_with("do not call it again"));
        let probing = Observation::of(&refused().with_probing());
        assert_eq!((probing.code(), probing.seconds_left()), ("CIRCUIT_BREAKER_PROBING", None));
        assert!(probing.instruction().starts_with("call it again"));
    }

    #[test]
    fn a_soft_failure_says_what_was_found() {
        let finding = Finding::new(SoftKind::MissingField, "required", "no `city`").at("/city");
        let fault = Fault::new(Class::Soft(SoftKind::MissingField), "x").with_report(finding.into());
        assert_eq!(Observation::of(&fault).message(), "required at /city: no `city`");
    }

    #[test]
    fn a_foreign_errors_text_is_not_told() {
        let err: BoxError = "at /home/me/secret.rs:7".into();
        let observation = Observation::of_error(&err);
        assert_eq!(observation.code(), "TOOL_EXECUTION_FAILURE");
        assert!(!observation.to_json().contains("secret"));
    }

    #[test]
    fn everything_is_capped_and_escaped() {
        let fault = Fault::new(Class::Transient, "x").with_retry_after(Duration::from_millis(1));
        let observation = Observation::of(&fault).tool("\"é".repeat(4000)).with_message("\n".repeat(4000));
        assert!(observation.to_json().len() < 8 * MAX_TEXT);
        assert!(observation.message().len() <= MAX_TEXT);
        assert_eq!(observation.seconds_left(), Some(1));
    }
}
