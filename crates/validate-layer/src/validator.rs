//! [`Validator`]: all the checks of one layer, and what their findings mean. No `tower` in it.

use std::{fmt, sync::Arc};

use failsoft_core::{Blame, Class, Fault, Finding, Finish, Hint, Report, Severity, SoftKind, Verdict, json};

use crate::{
    Answer, Asked, Check, Rail, Rails, checks,
    confidence::Confidence,
    events,
    judge::{JUDGE_FAILED, SlowCheck},
    metrics::Meters,
    rails::EMPTY_MUTATION,
};

/// The checks of a [`ValidateLayer`](crate::ValidateLayer), and what their findings mean. Usable by itself, on an answer
/// that came another way.
///
/// ```
/// use failsoft_core::{Class, Hint, SoftKind};
/// use validate_layer::{Answer, ValidateLayer};
///
/// let layer = ValidateLayer::builder().require("/city").build()?;
/// let (verdict, report) = layer.validator().judge(&Answer::new(r#"{"city": null}"#));
/// assert_eq!(verdict.class(), Class::Soft(SoftKind::MissingField));
/// assert_eq!(report.to_string(), "required at /city: a required field is null");
/// # Ok::<(), failsoft_core::ConfigError>(())
/// ```
///
/// # Confidence
///
/// Besides what is wrong for certain there is what is only suspicious: findings of
/// [`Severity::Warning`]. Each takes a part of the confidence in the answer, its weight, and what is left of 1 when all have
/// taken theirs is the [confidence](Report::confidence) in the report; [`Report::explained`] spells it out. An answer below
/// 0.35 is [`SoftKind::LowConfidence`], with the code `confidence`.
///
/// | finding | weight | because |
/// |---|---|---|
/// | an error | 0.8 | it fails the answer whatever its weight; alone it has to leave less than 0.35 |
/// | a warning | 0.3 | with the limit of 0.35, three that are independent fail an answer (0.7³ = 0.343), two do not |
/// | `repetition.variety` | 0.5 | rarer than other warnings by far, see [`Repetition`](checks::Repetition), and yet no proof |
/// | `json.lossy` | 0.1 | integers above 2^53 are in many sound answers: ids of most databases are |
/// | `json.unwrapped` | 0.1 | a fence is habit, not doubt: most models put one around JSON |
/// | `body.too_large`, `body.compressed` | 0 | it was not looked at, which says nothing about it |
/// | what is only worth knowing | 0 | |
///
/// The limit of 0.35 is one odd thing in an otherwise good answer being let through, and several not; the weights are
/// chosen so, and nothing finer can be had from them: they are no probabilities. [`weight`](crate::ValidateBuilder::weight)
/// changes one, [`Finding::with_weight`] says it in a check of one's own, and
/// [`min_confidence`](crate::ValidateBuilder::min_confidence) moves the limit; 0 switches it off.
///
/// # What may be sent again
///
/// The hint of the verdict says what may help:
///
/// | the answer is | hint |
/// |---|---|
/// | cut at the limit of tokens, whatever else is wrong with it | `Modify` |
/// | empty, or far too short | `Same` |
/// | a raw body that breaks off, where JSON was asked for; an error message in an answer's place | `Same` |
/// | nothing but reasoning | `Modify` |
/// | anything else: malformed, a missing field, against a schema, a malformed, unknown or leaked tool call, a custom finding | `Modify` |
/// | a refusal, or stopped by a filter ([`Class::Refused`]) | `Fallback` |
/// | nothing, from a tool that was to change something; a judge that failed | `Never` |
/// | an HTML page where a raw body should be JSON ([`Class::Transient`]) | `Same` |
///
/// [`hint`](crate::ValidateBuilder::hint) changes it for one kind.
pub struct Validator {
    pub(crate) checks: Vec<Arc<dyn Check>>,
    pub(crate) hints: Vec<(SoftKind, Hint)>,
    pub(crate) name: Option<Arc<str>>,
    pub(crate) allow_empty: bool,
    pub(crate) allow_repetition: bool,
    pub(crate) max_body: usize,
    pub(crate) beyond: Beyond,
    pub(crate) compressed: Compressed,
    pub(crate) confidence: Confidence,
    pub(crate) meters: Meters,
    pub(crate) unwraps_fences: bool,
    pub(crate) streams: StreamMode,
    pub(crate) rails: Option<Rails>,
    pub(crate) slow: Vec<Arc<dyn SlowCheck>>,
}

/// What becomes of streamed answers: `text/event-stream`, NDJSON, JSON lines, gRPC and the like.
///
/// A stream is judged by what a reader inside, such as llm-layer, has made of it in the [`Insight`](failsoft_core::Insight). One that nobody has read passes.
/// One that comes as `application/json`, as Gemini's can, is not told from a whole answer, and is always held: ask for server-sent events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamMode {
    /// It passes as it comes, and is judged at its end. A failure is an error in the body in place of the piece that would have
    /// ended it well, so nobody takes it for a whole answer; a circuit around counts it, and nothing is repeated.
    #[default]
    Pass,
    /// It is held until its end, up to [`max_body`](crate::ValidateBuilder::max_body), and then judged: a failure is one of the call, and a
    /// retry or a fallback around can act. The caller sees nothing before the end. What happens to a longer one says [`Beyond`].
    Hold,
    /// It passes unread. One that a reader inside has held to its end is judged all the same.
    Unread,
}

/// What happens to a body that came compressed, so that nothing can look into it: decompress inside of this layer. Where JSON is
/// asked for, it is a failure anyway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compressed {
    /// It passes unchecked, with a warning `body.compressed` in its `Insight`.
    #[default]
    Pass,
    /// It is a failure, [`SoftKind::Malformed`] with the code `body.compressed`.
    Fail,
}

/// What happens to an answer longer than the cap, which is never looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Beyond {
    /// It is a failure, [`SoftKind::Malformed`] with the code `body.too_large`: what cannot be checked is no answer.
    #[default]
    Fail,
    /// It passes unchecked, with a warning `body.too_large` in its `Insight`.
    Pass,
    /// A stream that was held passes from here on as it comes, and is judged at its end as in
    /// [`StreamMode::Pass`](crate::StreamMode::Pass). Anything else passes as with [`Pass`](Self::Pass).
    AtEnd,
}

impl Validator {
    /// Looks at an answer with every check, and at each of its [alternatives](Answer::alternatives) by itself.
    ///
    /// The verdict is that of the first one that is wrong, the confidence the lowest; the findings of alternatives have
    /// `/choices/1` and so on before their path.
    #[must_use]
    pub fn judge(&self, answer: &Answer) -> (Verdict, Report) {
        let (first, mut report) = self.judge_one(answer);
        let (others, found) = self.judge_alternatives(answer);
        report.merge(found);
        (if first.is_success() { others } else { first }, report)
    }

    /// The same of the alternatives only.
    pub(crate) fn judge_alternatives(&self, answer: &Answer) -> (Verdict, Report) {
        let (mut verdict, mut report) = (Verdict::SUCCESS, Report::new());
        for (i, other) in answer.alternatives().iter().enumerate() {
            let (its_verdict, found) = self.judge_one(other);
            if verdict.is_success() {
                verdict = its_verdict;
            }
            report.merge(found.below(&format!("/choices/{}", i + 1)));
        }
        (verdict, report)
    }

    pub(crate) fn judge_one(&self, answer: &Answer) -> (Verdict, Report) {
        let mut report = Report::new();
        let unfenced = if self.unwraps_fences { answer.unfenced() } else { None };
        let answer = unfenced.as_ref().unwrap_or(answer);
        if let Some(rails) = &self.rails {
            rails.after(answer, &mut report);
            report.findings().iter().filter_map(Rail::of).for_each(|rail| self.tripped(rail));
        }
        let nothing = answer.tool_calls().is_empty() && answer.is_blank();
        // Before the rest: a loop that runs into the limit of tokens, or leaves its JSON open, is a loop in the first place.
        if !nothing && !self.allow_repetition {
            checks::Repetition.check(answer, &mut report);
        }
        let checks = if self.allow_empty && nothing { &self.checks[..1] } else { &self.checks[..] };
        for check in checks {
            check.check(answer, &mut report);
            if checks::is_empty_answer(&report, |finding| self.confidence.severity(finding)) {
                // There is nothing that the others could look at.
                break;
            }
        }
        if unfenced.is_some() && !has_code(&report, checks::UNWRAPPED) {
            report.push(checks::unwrapped());
        }
        if answer.is_compressed() && !has_code(&report, checks::BODY_COMPRESSED) {
            let severity = match self.compressed {
                Compressed::Pass => Severity::Warning,
                Compressed::Fail => Severity::Error,
            };
            report.extend(answer.json_finding().cloned().map(|finding| finding.with_severity(severity)));
        }
        let verdict = self.conclude(answer, &mut report);
        (verdict, report)
    }

    /// Weighs what the checks have found, and says what it means.
    pub(crate) fn conclude(&self, answer: &Answer, report: &mut Report) -> Verdict {
        self.confidence.weigh(report);
        self.verdict(answer, report)
    }

    /// The target's name, where it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Why a request is not sent.
    pub(crate) fn denial(&self, asked: &Asked) -> Option<Fault> {
        let report = self.rails.as_ref()?.before(asked);
        let leading = report.leading()?;
        let class = leading.class();
        report.findings().iter().filter_map(Rail::of).for_each(|rail| self.tripped(rail));
        Some(self.fault(Verdict::of(class), report, None))
    }

    fn tripped(&self, rail: Rail) {
        events::tripped(self, rail);
    }

    fn verdict(&self, answer: &Answer, report: &Report) -> Verdict {
        let Some(leading) = report.leading().filter(|finding| finding.severity() == Severity::Error) else {
            return Verdict::SUCCESS;
        };
        let no_json = leading.code() == json::FlawKind::NonObject.code();
        if no_json && answer.is_body() && answer.text().is_some_and(json::is_html) {
            // A gateway's page: the target was not even asked.
            return Verdict::of(Class::Transient);
        }
        match leading.kind() {
            // A change may have been made, and must not be made twice.
            Some(kind) if leading.code() == EMPTY_MUTATION => Verdict::soft(kind).with_hint(Hint::Never),
            // It is not the target that failed.
            Some(kind) if leading.code() == JUDGE_FAILED => {
                Verdict::soft(kind).with_hint(Hint::Never).with_blame(Blame::Nobody)
            }
            Some(kind) => Verdict::soft(kind).with_hint(self.hint_of(answer, leading, kind)),
            None => Verdict::of(leading.class()),
        }
    }

    fn hint_of(&self, answer: &Answer, leading: &Finding, kind: SoftKind) -> Hint {
        if let Some((_, hint)) = self.hints.iter().rev().find(|(of, _)| *of == kind) {
            return *hint;
        }
        if answer.finish() == Some(&Finish::Length) || leading.code() == checks::REASONING_ONLY {
            return Hint::Modify;
        }
        match leading.code() {
            checks::ERROR_TEXT => return Hint::Same,
            checks::TOOL_SCHEMA => return Hint::Modify,
            _ => {}
        }
        let cut_body = answer.is_body() && leading.code() == json::FlawKind::Truncated.code();
        match kind {
            SoftKind::Empty | SoftKind::Truncated => Hint::Same,
            _ if cut_body => Hint::Same,
            _ => Hint::Modify,
        }
    }

    /// The fault that stands for an answer.
    pub(crate) fn fault(&self, verdict: Verdict, report: Report, status: Option<u16>) -> Fault {
        let mut fault =
            Fault::with_verdict(verdict, env!("CARGO_PKG_NAME")).with_target_if(self.name.clone());
        if let Some(leading) = report.leading() {
            fault = fault.with_message(leading.to_string());
        }
        if let Some(status) = status {
            fault = fault.with_status(status);
        }
        fault.with_report(report)
    }
}

fn has_code(report: &Report, code: &str) -> bool {
    report.findings().iter().any(|finding| finding.code() == code)
}

impl fmt::Debug for Validator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Validator")
            .field("name", &self.name)
            .field("checks", &self.checks.len())
            .field("max_body", &self.max_body)
            .field("beyond", &self.beyond)
            .field("streams", &self.streams)
            .field("rails", &self.rails)
            .field("judges", &self.slow.len())
            .finish_non_exhaustive()
    }
}
