//! Every OpenAI-compatible sample that is no stream, through the pure function: class, hint, advice, usage.

use std::time::Duration;

use crate::common::{Sample, samples};
use failsoft_core::{Class, Finish, Hint, SoftKind};

/// What the table calls a class.
fn classes(expected: &str) -> &'static [Class] {
    match expected {
        "ok" => &[Class::Success],
        "empty" => &[Class::Soft(SoftKind::Empty)],
        "truncated" => &[Class::Soft(SoftKind::Truncated)],
        "malformed-json" => &[Class::Soft(SoftKind::Malformed)],
        "malformed-tool-call" => &[Class::Soft(SoftKind::ToolCall)],
        "unknown-tool" => &[Class::Soft(SoftKind::UnknownTool)],
        "refusal" | "content-filter" => &[Class::Refused],
        "context-length" => &[Class::ContextLength],
        "bad-request" => &[Class::Invalid],
        "rate-limited" => &[Class::RateLimited],
        "quota" => &[Class::Quota],
        "overloaded" => &[Class::Overloaded],
        "auth" => &[Class::Auth],
        "model-not-found" => &[Class::ModelNotFound],
        // The class of the error inside.
        "error-in-200" => &[Class::Transient],
        other => panic!("no class for `{other}`"),
    }
}

fn hints(sample: &Sample) -> &'static [Hint] {
    match (&*sample.expected, &*sample.hint) {
        ("error-in-200", "same" | "after-delay" | "fallback") => &[Hint::Same, Hint::After, Hint::Fallback],
        (_, "none") => &[Hint::Never],
        (_, "same") => &[Hint::Same],
        (_, "after-delay") => &[Hint::After],
        (_, "modify") => &[Hint::Modify],
        (_, "fallback") => &[Hint::Fallback],
        (_, other) => panic!("no hint for `{other}`"),
    }
}

/// Texts that only a validating layer, told what was asked for, can find wrong.
fn is_for_a_validating_layer(sample: &Sample) -> bool {
    matches!(&*sample.expected, "schema-violation" | "repetition")
        || sample.precondition == "text refusal markers on (opt-in)"
}

#[test]
fn every_sample_has_its_class_hint_advice_and_usage() {
    let all = samples();
    assert!(all.len() > 40, "{}", all.len());
    for sample in &all {
        let facts = sample.judge();
        let verdict = facts.verdict.expect("every body has a verdict");
        let name = &sample.file;
        if is_for_a_validating_layer(sample) {
            // A runaway that met the limit of tokens is seen as cut.
            let cut = facts.finish == Some(Finish::Length);
            let class = if cut { Class::Soft(SoftKind::Truncated) } else { Class::Success };
            assert_eq!(verdict.class(), class, "{name}");
        } else {
            assert!(classes(&sample.expected).contains(&verdict.class()), "{name}: {verdict}");
            assert!(hints(sample).contains(&verdict.hint()), "{name}: {:?}", verdict.hint());
        }
        if let Some(wanted) = sample.retry_after_ms {
            assert_eq!(verdict.retry_after(), Some(Duration::from_millis(wanted)), "{name}");
        }
        assert_eq!(facts.inside_success, sample.status == 200 && !verdict.is_success(), "{name}");
        let usage = facts.usage;
        if let Some(wanted) = &sample.usage {
            let all = |bucket: Option<u64>| bucket.unwrap_or(0);
            let got = serde_json::json!({
                "input": usage.total_input(), "output": usage.total_output(), "cache_read": all(usage.cache_read),
                "cache_write": all(usage.cache_write), "reasoning": all(usage.reasoning), "total": usage.total(),
            });
            assert_eq!(&got, wanted, "{name}");
        } else {
            assert!(usage.is_unknown(), "{name}: {usage:?}");
        }
    }
}

#[test]
fn a_refusal_of_the_model_and_a_content_filter_are_told_apart() {
    for sample in samples().iter().filter(|sample| matches!(&*sample.expected, "refusal" | "content-filter"))
    {
        let filtered = sample.judge().finish == Some(Finish::ContentFilter);
        assert_eq!(filtered, sample.expected == "content-filter", "{}", sample.file);
    }
}

#[test]
fn text_tool_calls_and_finish_reason_are_read() {
    let facts = crate::common::sample("openai-chat-toolcall-ok.json").judge();
    assert_eq!(facts.finish, Some(Finish::ToolCalls));
    let calls: Vec<_> =
        facts.tool_calls.iter().map(|call| (call.id.as_deref(), &*call.name, &*call.arguments)).collect();
    assert_eq!(
        calls,
        [
            (Some("call_sample1"), "get_weather", r#"{"city":"Oslo","unit":"C"}"#),
            (Some("call_sample2"), "get_weather", r#"{"city":"Bergen","unit":"C"}"#),
        ]
    );
    assert_eq!(facts.text, None);

    let facts = crate::common::sample("openai-chat-text-ok.json").judge();
    assert_eq!(facts.text.as_deref(), Some("The breaker opened after five failures."));
    assert!(facts.report.is_empty());

    let facts = crate::common::sample("deepseek-insufficient-system-resource.json").judge();
    assert_eq!(facts.finish, Some(Finish::Other("insufficient_system_resource".into())));
}
