//! [`Report`]: what was found wrong with an answer, finding by finding, size-capped.
//!
//! ```
//! use failsoft_core::{Finding, Report, Severity, SoftKind};
//!
//! let report = Report::from(Finding::new(SoftKind::MissingField, "required", "no `city`").at("/city"));
//! assert_eq!(report.worst(), Some(Severity::Error));
//! assert_eq!(report.to_string(), "required at /city: no `city`");
//! ```
//!
//! A report may carry a *confidence*, from 0 to 1: what is left of 1 when each finding has taken its weight. So a single
//! number stays explainable, finding by finding:
//!
//! ```
//! use failsoft_core::{Finding, Report, Severity, SoftKind};
//!
//! let mut report = Report::new();
//! let suspicion = |code| Finding::new(SoftKind::LowConfidence, code, "").with_severity(Severity::Warning);
//! report.push(suspicion("tone").with_weight(0.5));
//! report.push(suspicion("length"));
//! report.weigh(|_| 0.2);
//! assert_eq!(report.confidence(), Some(0.4));
//! assert_eq!(report.explained().to_string(), "0.4: 1 - 0.5 (tone), 1 - 0.2 (length)");
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

impl Severity {
    /// A short stable name: `info`, `warning` or `error`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// One thing found in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    class: Class,
    code: &'static str,
    severity: Severity,
    path: Option<Box<str>>,
    message: Box<str>,
    weight: Option<Part>,
}

/// A part of one, in steps of a ten-thousandth: equal parts are equal, whatever was calculated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Part(u16);

impl Part {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped; NaN becomes 0")]
    fn of(part: f64) -> Self {
        Self((part.clamp(0.0, 1.0) * 10_000.0).round() as u16)
    }

    fn get(self) -> f64 {
        f64::from(self.0) / 10_000.0
    }
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
            weight: None,
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

    /// The same with the part that it takes of the confidence in the answer, from 0 (says nothing) to 1 (leaves none). What
    /// is outside is clamped, and NaN is 0.
    #[must_use]
    pub fn with_weight(mut self, weight: f64) -> Self {
        self.weight = Some(Part::of(weight));
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

    /// The part that it takes of the confidence in the answer, from 0 to 1. `None` where nobody has weighed it.
    #[must_use]
    pub fn weight(&self) -> Option<f64> {
        self.weight.map(Part::get)
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
    confidence: Option<Part>,
}

impl Report {
    /// An empty report.
    #[must_use]
    pub const fn new() -> Self {
        Self { findings: Vec::new(), dropped: 0, confidence: None }
    }

    /// Adds a finding; beyond [`MAX_FINDINGS`] it is only counted, unless it is worse than one that is kept: then it takes
    /// the place of the last of the least severe.
    pub fn push(&mut self, finding: Finding) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(finding);
            return;
        }
        self.dropped = self.dropped.saturating_add(1);
        let least = self.findings.iter().map(Finding::severity).min();
        if least.is_some_and(|least| least < finding.severity) {
            let place = self.findings.iter().rposition(|kept| Some(kept.severity) == least);
            place.map(|place| self.findings.remove(place));
            self.findings.push(finding);
        }
    }

    /// Adds all that another report holds. Of two confidences the lower one stays.
    pub fn merge(&mut self, other: Self) {
        self.extend(other.findings);
        self.dropped = self.dropped.saturating_add(other.dropped);
        self.confidence = match (self.confidence, other.confidence) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
    }

    /// Changes each finding.
    pub fn map(&mut self, change: impl FnMut(Finding) -> Finding) {
        self.findings = std::mem::take(&mut self.findings).into_iter().map(change).collect();
    }

    /// The same of an answer that lies inside another, at this JSON pointer.
    #[must_use]
    pub fn below(mut self, pointer: &str) -> Self {
        self.map(|finding| {
            let path = format!("{pointer}{}", finding.path().unwrap_or_default());
            finding.at(path)
        });
        self
    }

    /// Gives each finding that has none a weight, and the report the confidence that follows from all of them: the product
    /// of what each leaves, `1 - weight`. Of several findings with the same code only the heaviest counts: the same
    /// suspicion at ten places is one suspicion.
    pub fn weigh(&mut self, weight: impl Fn(&Finding) -> f64) {
        for finding in &mut self.findings {
            if finding.weight.is_none() {
                finding.weight = Some(Part::of(weight(finding)));
            }
        }
        let left = self.heaviest().fold(1.0, |left, (_, weight)| left * (1.0 - weight.get()));
        self.confidence = Some(Part::of(left));
    }

    /// How much trust is left in the answer, from 0 to 1. `None` where nobody has [weighed](Self::weigh) the findings.
    #[must_use]
    pub fn confidence(&self) -> Option<f64> {
        self.confidence.map(Part::get)
    }

    /// The confidence, and what each finding takes of it, as a text.
    #[must_use]
    pub const fn explained(&self) -> Explained<'_> {
        Explained(self)
    }

    /// The weights that count: the heaviest of each code, in the order they were found.
    fn heaviest(&self) -> impl Iterator<Item = (&'static str, Part)> {
        self.findings.iter().enumerate().filter_map(|(at, finding)| {
            let same = |other: &&Finding| other.code == finding.code;
            let first = self.findings.iter().position(|other| other.code == finding.code) == Some(at);
            let weight = self.findings.iter().filter(same).filter_map(|finding| finding.weight).max()?;
            (first && weight > Part(0)).then_some((finding.code, weight))
        })
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

/// A [`Report`]'s confidence, spelled out; made by [`Report::explained`].
#[derive(Clone, Copy, Debug)]
pub struct Explained<'a>(&'a Report);

impl fmt::Display for Explained<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.confidence {
            None => return f.write_str("not weighed"),
            Some(confidence) => write!(f, "{}", confidence.get())?,
        }
        for (i, (code, weight)) in self.0.heaviest().enumerate() {
            write!(f, "{} 1 - {} ({code})", if i == 0 { ":" } else { "," }, weight.get())?;
        }
        Ok(())
    }
}

impl From<Finding> for Report {
    fn from(finding: Finding) -> Self {
        Self { findings: vec![finding], dropped: 0, confidence: None }
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

    #[test]
    fn an_error_is_kept_where_sixteen_warnings_were_before_it() {
        let mut report = Report::new();
        let finding = |code| Finding::new(SoftKind::Schema, code, "");
        report.extend((0..MAX_FINDINGS).map(|_| finding("warning").with_severity(Severity::Warning)));
        report.push(finding("error"));
        assert_eq!(report.leading().map(Finding::code), Some("error"));
        assert_eq!((report.findings().len(), report.dropped()), (MAX_FINDINGS, 1));
        report.extend((0..MAX_FINDINGS * 2).map(|_| finding("later")));
        assert_eq!(report.leading().map(Finding::code), Some("error"), "what came first leads");
    }

    #[test]
    fn the_same_suspicion_at_many_places_is_one() {
        let suspicion = |code| Finding::new(SoftKind::Schema, code, "").with_severity(Severity::Warning);
        let mut report = Report::new();
        report.extend((0..9).map(|i| suspicion("number").at(format!("/{i}"))));
        report.push(suspicion("number").with_weight(0.4));
        report.push(suspicion("tone"));
        report.push(suspicion("nothing").with_weight(0.0));
        report.weigh(|_| 0.1);
        assert_eq!(report.confidence(), Some(0.54));
        assert_eq!(report.explained().to_string(), "0.54: 1 - 0.4 (number), 1 - 0.1 (tone)");
    }

    #[test]
    fn weights_outside_their_range_are_clamped() {
        let mut report = Report::new();
        assert_eq!((report.confidence(), report.explained().to_string()), (None, "not weighed".into()));
        report.weigh(|_| 1.0);
        assert_eq!(report.confidence(), Some(1.0), "nothing was found");
        for (weight, left) in [(f64::NAN, 1.0), (-3.0, 1.0), (f64::INFINITY, 0.0)] {
            let mut report = Report::from(Finding::new(SoftKind::Schema, "x", "").with_weight(weight));
            report.weigh(|_| 0.5);
            assert_eq!(report.confidence(), Some(left), "{weight}");
        }
    }

    #[test]
    fn of_two_reports_the_lower_confidence_stays() {
        let report = |weight| {
            let mut report = Report::from(Finding::new(SoftKind::Schema, "x", "").with_weight(weight));
            report.weigh(|_| 0.0);
            report
        };
        let mut both = report(0.2);
        both.merge(report(0.5));
        assert_eq!((both.confidence(), both.findings().len()), (Some(0.5), 2));
        both.merge(Report::new());
        assert_eq!(both.confidence(), Some(0.5));
    }
}
