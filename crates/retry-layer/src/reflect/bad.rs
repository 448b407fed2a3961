use std::{error::Error, fmt};

use failsoft_core::{Facts, Fault, Finding, Finish, MAX_ANSWER, Report, Severity, ToolCall, Verdict};

/// A wrong answer, and what is wrong with it.
///
/// The texts are there if a reader inside knew them and they have at most [`MAX_ANSWER`] bytes in all.
#[derive(Clone)]
pub struct BadAnswer {
    verdict: Verdict,
    report: Report,
    facts: Facts,
    number: u32,
}

impl BadAnswer {
    /// A wrong answer of which this is known.
    #[must_use]
    pub fn new(verdict: Verdict, report: Report, facts: &Facts) -> Self {
        Self { verdict, report, facts: facts.within(MAX_ANSWER), number: 1 }
    }

    /// What a fault in an error's chain says of the answer.
    pub(super) fn of_error(verdict: Verdict, error: &(dyn Error + 'static)) -> Self {
        let fault = Fault::find(error);
        let facts = fault.and_then(|fault| fault.answer()).cloned().unwrap_or_default();
        let report = fault.and_then(|fault| fault.report()).unwrap_or(&facts.report).clone();
        Self::new(verdict, report, &facts)
    }

    pub(crate) const fn with_number(mut self, number: u32) -> Self {
        self.number = number;
        self
    }

    /// What the answer means.
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// What was found in it.
    #[must_use]
    pub const fn report(&self) -> &Report {
        &self.report
    }

    /// The findings that make it wrong.
    pub fn errors(&self) -> impl Iterator<Item = &Finding> {
        self.report.findings().iter().filter(|finding| finding.severity() == Severity::Error)
    }

    /// Its text, where it has one.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        self.facts.text.as_deref()
    }

    /// Its tool calls.
    #[must_use]
    pub fn tool_calls(&self) -> &[ToolCall] {
        &self.facts.tool_calls
    }

    /// Why it ended.
    #[must_use]
    pub const fn finish(&self) -> Option<&Finish> {
        self.facts.finish.as_ref()
    }

    /// Everything that is known of it.
    #[must_use]
    pub const fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Which changed request of its call this would be: 1 for the first.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }
}

impl fmt::Debug for BadAnswer {
    /// Without the text: answers do not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BadAnswer")
            .field("verdict", &self.verdict)
            .field("report", &self.report)
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}
