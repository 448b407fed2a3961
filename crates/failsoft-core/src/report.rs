//! [`Report`]: what was found wrong with an answer, finding by finding, size-capped.
//!
//! ```
//! use failsoft_core::{Finding, Report, Severity, SoftKind};
//!
//! let report = Report::from(Finding::new(SoftKind::MissingField, "required", "no `city`").at("/city"));
//! assert_eq!(report.worst(), Some(Severity::Error));
//! assert_eq!(report.to_string(), "required at /city: no `city`");
//! ```

use std::{borrow::Cow, fmt};

use crate::{Class, SoftKind, text::capped};

/// At most so many findings are kept in a [`Report`]; more are counted.
pub const MAX_FINDINGS: usize = 16;

/// A finding's message and path are cut at so many bytes each.
pub const MAX_TEXT: usize = 256;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Suspicious, and no failure by itself.
    Warning,
    /// The answer is wrong.
    Error,
}

/// One thing found in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    class: Class,
    code: &'static str,
    severity: Severity,
    path: Option<Box<str>>,
    message: Box<str>,
}

impl Finding {
    /// A finding with [`Severity::Error`]. `code` is short and stable; `message` is for people and models, never
    /// with secrets or whole prompts in it, and cut at [`MAX_TEXT`] bytes.
    #[must_use]
    pub fn new(kind: SoftKind, code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::of(Class::Soft(kind), code, message)
    }

    /// The same of any class: a refusal, or an error that stands in an answer's place.
    #[must_use]
    pub fn of(class: Class, code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            class,
            code,
            severity: Severity::Error,
            path: None,
            message: capped(message.into(), MAX_TEXT).into(),
        }
    }

    /// Where in the answer, as a JSON pointer.
    #[must_use]
    pub fn at(mut self, path: impl Into<Cow<'static, str>>) -> Self {
        self.path = Some(capped(path.into(), MAX_TEXT).into());
        self
    }

    /// The same with another severity.
    #[must_use]
    pub const fn with_severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    /// What an answer with it is.
    #[must_use]
    pub const fn class(&self) -> Class {
        self.class
    }

    /// In which way the answer is wrong; `None` where it is no answer, such as a refusal.
    #[must_use]
    pub const fn kind(&self) -> Option<SoftKind> {
        match self.class {
            Class::Soft(kind) => Some(kind),
            _ => None,
        }
    }

    /// A short stable name.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        self.code
    }

    /// How much it matters.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        self.severity
    }

    /// Where in the answer, as a JSON pointer.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// What is wrong, for people and models.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "{} at {path}: {}", self.code, self.message),
            None => write!(f, "{}: {}", self.code, self.message),
        }
    }
}

/// What was found in one answer, in the order it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    findings: Vec<Finding>,
    dropped: usize,
}

impl Report {
    /// An empty report.
    #[must_use]
    pub const fn new() -> Self {
        Self { findings: Vec::new(), dropped: 0 }
    }

    /// Adds a finding; beyond [`MAX_FINDINGS`] it is only counted.
    pub fn push(&mut self, finding: Finding) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(finding);
        } else {
            self.dropped = self.dropped.saturating_add(1);
        }
    }

    /// The findings, in the order they were found.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// How many findings did not fit.
    #[must_use]
    pub const fn dropped(&self) -> usize {
        self.dropped
    }

    /// Whether nothing was found.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.findings.is_empty()
    }

    /// The highest severity in it.
    #[must_use]
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(Finding::severity).max()
    }

    /// The first finding of the highest severity: the one that names the failure.
    #[must_use]
    pub fn leading(&self) -> Option<&Finding> {
        let worst = self.worst()?;
        self.findings.iter().find(|finding| finding.severity == worst)
    }
}

impl From<Finding> for Report {
    fn from(finding: Finding) -> Self {
        Self { findings: vec![finding], dropped: 0 }
    }
}

impl Extend<Finding> for Report {
    fn extend<I: IntoIterator<Item = Finding>>(&mut self, findings: I) {
        findings.into_iter().for_each(|finding| self.push(finding));
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, finding) in self.findings.iter().enumerate() {
            write!(f, "{}{finding}", if i == 0 { "" } else { "; " })?;
        }
        if self.dropped > 0 {
            write!(f, "; and {} more", self.dropped)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_a_finding_without_a_way_in_which_the_answer_is_wrong() {
        let refused = Finding::of(Class::Refused, "refusal", "the model refused");
        assert_eq!((refused.class(), refused.kind()), (Class::Refused, None));
        assert_eq!(Finding::new(SoftKind::Empty, "empty", "").class(), Class::Soft(SoftKind::Empty));
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        let finding = Finding::new(SoftKind::Schema, "x", "é".repeat(4000));
        assert!(finding.message().len() <= MAX_TEXT);
        assert!(finding.message().ends_with('…'));
    }

    #[test]
    fn findings_beyond_the_cap_are_counted() {
        let mut report = Report::new();
        report.extend((0..MAX_FINDINGS + 3).map(|_| Finding::new(SoftKind::Empty, "empty", "nothing")));
        assert_eq!((report.findings().len(), report.dropped()), (MAX_FINDINGS, 3));
        assert!(report.to_string().ends_with("and 3 more"));
    }

    #[test]
    fn the_leading_finding_is_the_first_of_the_worst() {
        let mut report = Report::new();
        report.push(Finding::new(SoftKind::Truncated, "a", "").with_severity(Severity::Warning));
        report.push(Finding::new(SoftKind::Empty, "b", ""));
        report.push(Finding::new(SoftKind::Schema, "c", ""));
        assert_eq!(report.leading().map(Finding::code), Some("b"));
    }
}
