//! What each finding takes of the confidence in an answer, and below what an answer is not believed.

use failsoft_core::{ConfigError, Finding, Report, Severity, SoftKind};

use crate::checks::VARIETY;

/// The code of the finding that says that too little confidence is left.
pub(crate) const CODE: &str = "confidence";

/// Why each of these: see the table at [`Validator`](crate::Validator).
const MIN: f64 = 0.35;
const ERROR: f64 = 0.8;
const WARNING: f64 = 0.3;
const INFO: f64 = 0.0;
const BY_CODE: [(&str, f64); 5] = [
    (VARIETY, 0.5),
    ("body.compressed", 0.0),
    ("json.lossy", 0.1),
    ("json.unwrapped", 0.1),
    ("body.too_large", 0.0),
];

/// The limit and the weights of one layer.
#[derive(Clone, Debug)]
pub(crate) struct Confidence {
    pub(crate) min: f64,
    /// By code; the last of a code counts.
    pub(crate) weights: Vec<(Box<str>, f64)>,
    pub(crate) severities: Vec<(Box<str>, Severity)>,
}

impl Confidence {
    pub(crate) const fn new() -> Self {
        Self { min: MIN, weights: Vec::new(), severities: Vec::new() }
    }

    pub(crate) fn validate(&self, builder: &'static str) -> Result<(), ConfigError> {
        ConfigError::check_range(builder, "min_confidence", self.min, 0.0, 1.0)?;
        let codes = self.weights.iter().map(|(code, _)| code);
        let codes = codes.chain(self.severities.iter().map(|(code, _)| code));
        if codes.into_iter().any(|code| code.trim().is_empty()) {
            return Err(ConfigError::new(
                builder,
                "weight or severity",
                "a blank code",
                "the code of a finding",
            ));
        }
        self.weights
            .iter()
            .try_for_each(|(_, weight)| ConfigError::check_range(builder, "weight", *weight, 0.0, 1.0))
    }

    /// Gives the findings their severities and weights, and says so where too little is left.
    pub(crate) fn weigh(&self, report: &mut Report) {
        if !self.severities.is_empty() {
            report.map(|finding| {
                let severity = self.severity(&finding);
                finding.with_severity(severity)
            });
        }
        report.weigh(|finding| self.weight(finding));
        let failed = report.worst() == Some(Severity::Error);
        if !failed && report.confidence().is_some_and(|left| left < self.min) {
            let message = format!("below {}: {}", self.min, report.explained());
            report.push(Finding::new(SoftKind::LowConfidence, CODE, message).with_weight(0.0));
        }
    }

    /// How much it matters in this layer.
    pub(crate) fn severity(&self, finding: &Finding) -> Severity {
        last(&self.severities, finding.code()).unwrap_or_else(|| finding.severity())
    }

    fn weight(&self, finding: &Finding) -> f64 {
        let given = last(&self.weights, finding.code());
        // An error fails the answer: what its code weighs as a doubt is beside the point.
        let usual = || match finding.severity() {
            Severity::Error => ERROR,
            Severity::Info => INFO,
            Severity::Warning => BY_CODE
                .iter()
                .find(|(code, _)| *code == finding.code())
                .map_or(WARNING, |(_, weight)| *weight),
        };
        given.unwrap_or_else(usual)
    }
}

fn last<T: Copy>(of: &[(Box<str>, T)], code: &str) -> Option<T> {
    of.iter().rev().find(|(name, _)| &**name == code).map(|(_, value)| *value)
}
