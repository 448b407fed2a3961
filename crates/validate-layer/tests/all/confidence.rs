//! What is suspicious adds up, and is explained.

use failsoft_core::{Class, Facts, Finding, Finish, Hint, Report, Severity, SoftKind, ToolCall, Verdict};
use validate_layer::{Answer, Check, ValidateBuilder, ValidateLayer, Validator, checks::ToolCalls};

/// Complains of each word in the answer, by that word.
struct Words;

const CODES: [&str; 4] = ["one", "two", "three", "heavy"];

impl Check for Words {
    fn check(&self, answer: &Answer, report: &mut Report) {
        for word in answer.text().unwrap_or_default().split(' ') {
            let Some(code) = CODES.into_iter().find(|code| *code == word) else { continue };
            let finding = Finding::new(SoftKind::Schema, code, "").with_severity(Severity::Warning);
            report.push(if code == "heavy" { finding.with_weight(0.9) } else { finding });
        }
    }
}

fn judge(build: impl FnOnce(ValidateBuilder) -> ValidateBuilder, text: &str) -> (Verdict, Report) {
    let layer = build(ValidateLayer::builder().check(Words)).build().unwrap();
    layer.validator().judge(&Answer::new(text))
}

#[test]
fn three_suspicions_fail_an_answer_and_two_do_not() {
    assert_eq!(judge(|b| b, "fine").1.confidence(), Some(1.0));
    let (verdict, report) = judge(|b| b, "one two");
    assert_eq!((verdict, report.confidence()), (Verdict::SUCCESS, Some(0.49)));
    let (verdict, report) = judge(|b| b, "one two three");
    assert_eq!(verdict.class(), Class::Soft(SoftKind::LowConfidence));
    assert_eq!(verdict.hint(), Hint::Modify);
    assert_eq!(report.confidence(), Some(0.343));
    let leading = report.leading().unwrap();
    assert_eq!(
        leading.to_string(),
        "confidence: below 0.35: 0.343: 1 - 0.3 (one), 1 - 0.3 (two), 1 - 0.3 (three)"
    );
    // The same one three times is one.
    assert!(judge(|b| b, "one one one").0.is_success());
}

#[test]
fn a_check_can_say_how_sure_it_is() {
    let (verdict, report) = judge(|b| b, "heavy");
    assert_eq!(verdict.class(), Class::Soft(SoftKind::LowConfidence));
    assert_eq!(report.confidence(), Some(0.1));
}

#[test]
fn limit_weights_and_severities_can_be_set() {
    assert!(judge(|b| b.min_confidence(0.0), "one two three heavy").0.is_success());
    assert!(!judge(|b| b.min_confidence(0.8), "one").0.is_success());
    assert!(!judge(|b| b.weight("one", 0.1).weight("one", 0.7), "one").0.is_success(), "the last counts");
    let (verdict, report) = judge(|b| b.severity("one", Severity::Error), "one");
    assert_eq!(verdict.class(), Class::Soft(SoftKind::Schema));
    assert_eq!(report.confidence(), Some(0.2));
    let (verdict, report) = judge(|b| b.severity("one", Severity::Info), "one two");
    assert_eq!((verdict, report.confidence()), (Verdict::SUCCESS, Some(0.7)));
}

#[test]
fn an_error_is_what_it_is_whatever_else_is_suspicious() {
    let (verdict, report) = judge(|b| b.json(), "one two three");
    assert_eq!(verdict.class(), Class::Soft(SoftKind::Malformed));
    assert!(report.confidence().unwrap() < 0.1);
    assert!(!report.findings().iter().any(|finding| finding.code() == "confidence"));
}

#[test]
fn values_outside_their_range_are_refused() {
    let field = |builder: ValidateBuilder| builder.build().unwrap_err().to_string();
    for min in [-0.1, 1.1, f64::NAN] {
        assert!(field(ValidateLayer::builder().min_confidence(min)).contains("min_confidence"));
        assert!(field(ValidateLayer::builder().weight("a", min)).contains("weight"));
    }
    assert!(field(ValidateLayer::builder().weight(" ", 0.1)).contains("blank"));
    assert!(field(ValidateLayer::builder().severity("", Severity::Info)).contains("blank"));
}

fn several(validator: &Validator, texts: [&str; 3]) -> (Verdict, Report) {
    let mut facts = Facts::default();
    facts.verdict = Some(Verdict::SUCCESS);
    facts.text = Some(texts[0].into());
    for text in &texts[1..] {
        let other = failsoft_core::Alternative::new(Some((*text).into()), Vec::new(), Some(Finish::Stop));
        facts.alternatives.push(other);
    }
    validator.judge(&Answer::of_facts(&facts).unwrap())
}

#[test]
fn of_several_answers_each_is_looked_at() {
    let layer = ValidateLayer::builder().require("/city").build().unwrap();
    let (good, bad) = (r#"{"city": "Oslo"}"#, r#"{"town": "Oslo"}"#);
    assert!(several(layer.validator(), [good, good, good]).0.is_success());
    for (texts, path) in [
        ([bad, good, good], "/city"),
        ([good, bad, good], "/choices/1/city"),
        ([good, good, bad], "/choices/2/city"),
    ] {
        let (verdict, report) = several(layer.validator(), texts);
        assert_eq!(verdict.class(), Class::Soft(SoftKind::MissingField));
        assert_eq!(report.leading().unwrap().path(), Some(path));
    }
    // Each has a confidence of its own, and the lowest is the answer's.
    let layer = ValidateLayer::builder().check(Words).build().unwrap();
    let (verdict, report) = several(layer.validator(), ["one two", "three", "fine"]);
    assert_eq!((verdict, report.confidence()), (Verdict::SUCCESS, Some(0.49)));
}

#[test]
fn the_hint_is_that_of_the_answer_that_is_wrong() {
    let layer = ValidateLayer::builder().json().build().unwrap();
    let cut = Answer::new("{\"a\": ").with_finish(Finish::Length);
    let answer = Answer::new("{}").with_finish(Finish::Stop).with_alternative(cut);
    let (verdict, _) = layer.validator().judge(&answer);
    assert_eq!((verdict.class(), verdict.hint()), (Class::Soft(SoftKind::Truncated), Hint::Modify));
}

#[test]
fn two_calls_with_one_id_cannot_both_get_a_result() {
    let call = |id: &str| ToolCall::new("t", "{}").with_id(id);
    let check =
        |calls: [ToolCall; 3]| ToolCalls::any().on_answer(&Answer::without_text().with_tool_calls(calls));
    assert!(check([call("a"), call("b"), call("c")]).is_empty());
    assert!(check([call(""), call(""), ToolCall::new("t", "{}")]).is_empty(), "no id is no double one");
    let report = check([call("a"), call("b"), call("a")]);
    let finding = report.leading().unwrap();
    assert_eq!((finding.code(), finding.path()), ("tool.duplicate_id", Some("/tool_calls/2/id")));
    assert_eq!(finding.kind(), Some(SoftKind::ToolCall));
}

#[test]
fn an_answer_with_nothing_in_it_that_is_no_failure_by_itself_is_held_to_the_rest() {
    let forgiven = |b: ValidateBuilder| b.severity("empty", Severity::Warning);
    assert!(judge(forgiven, "").0.is_success());
    let (verdict, report) = judge(|b| forgiven(b).require("/city"), "");
    assert!(!verdict.is_success(), "it passed without the field that is required: {report}");
}
