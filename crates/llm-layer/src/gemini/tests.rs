use failsoft_core::Severity;
use http::{HeaderMap, StatusCode};

use super::*;
use crate::Provider;

fn told(body: &str, offered: &Offered) -> Facts {
    Provider::Gemini.judge(StatusCode::OK, &HeaderMap::new(), body.as_bytes(), offered)
}

fn candidate(parts: &str, finish: &str) -> String {
    format!(
        r#"{{"candidates":[{{"content":{{"role":"model","parts":[{parts}]}},"finishReason":"{finish}"}}],
            "usageMetadata":{{"promptTokenCount":5,"candidatesTokenCount":8,"totalTokenCount":13}}}}"#
    )
}

fn said(body: &str, offered: &Offered) -> (&'static str, Hint) {
    let verdict = told(body, offered).verdict.unwrap();
    (verdict.class().as_str(), verdict.hint())
}

fn of(parts: &str, finish: &str) -> (&'static str, Hint) {
    said(&candidate(parts, finish), &Offered::unknown())
}

const OK: (&str, Hint) = ("success", Hint::Never);
const TEXT: &str = r#"{"text":"x"}"#;

#[test]
fn every_finish_reason_has_its_class_and_none_but_stop_is_fine() {
    assert_eq!(of(TEXT, "STOP"), OK);
    assert_eq!(of(TEXT, "MAX_TOKENS"), ("soft.truncated", Hint::Modify));
    for reason in [
        "SAFETY",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "LANGUAGE",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
    ] {
        assert_eq!(of(TEXT, reason), ("refused", Hint::Fallback), "{reason}");
        assert_eq!(told(&candidate(TEXT, reason), &Offered::unknown()).finish, Some(Finish::ContentFilter));
    }
    assert_eq!(of(TEXT, "RECITATION"), ("refused", Hint::Modify));
    for (reason, class, hint) in [
        ("MALFORMED_FUNCTION_CALL", "soft.tool_call", Hint::Same),
        ("UNEXPECTED_TOOL_CALL", "soft.unknown_tool", Hint::Modify),
        ("TOO_MANY_TOOL_CALLS", "soft.tool_call", Hint::Modify),
        ("MALFORMED_RESPONSE", "soft.malformed", Hint::Same),
        ("NO_IMAGE", "soft.empty", Hint::Same),
        ("MISSING_THOUGHT_SIGNATURE", "invalid", Hint::Modify),
        ("OTHER", "transient", Hint::Same),
        ("FINISH_REASON_UNSPECIFIED", "transient", Hint::Same),
        ("SOMETHING_NEW", "soft.low_confidence", Hint::Same),
    ] {
        assert_eq!(of(TEXT, reason), (class, hint), "{reason}");
        let facts = told(&candidate(TEXT, reason), &Offered::unknown());
        assert_eq!(facts.finish, Some(Finish::Other(reason.into())), "{reason}");
        assert!(facts.inside_success);
    }
}

#[test]
fn a_malformed_function_call_is_no_empty_success_and_the_same_request_may_cure_it() {
    // V-D4
    let body =
        r#"{"candidates":[{"content":{},"finishReason":"MALFORMED_FUNCTION_CALL","finishMessage":"x"}]}"#;
    assert_eq!(said(body, &Offered::unknown()), ("soft.tool_call", Hint::Same));
}

#[test]
fn a_blocked_prompt_is_refused_though_there_is_no_candidate() {
    for reason in
        ["SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT", "IMAGE_SAFETY", "MODEL_ARMOR", "JAILBREAK"]
    {
        let body = format!(
            r#"{{"promptFeedback":{{"blockReason":"{reason}"}},"usageMetadata":{{"promptTokenCount":9,"totalTokenCount":9}}}}"#
        );
        let facts = told(&body, &Offered::unknown());
        assert_eq!(facts.verdict.unwrap().class(), Class::Refused, "{reason}");
        assert_eq!((facts.finish, facts.usage.total()), (Some(Finish::ContentFilter), 9));
    }
    let none = format!(r#"{{"promptFeedback":{{"safetyRatings":[]}},{}"#, &candidate(TEXT, "STOP")[1..]);
    assert_eq!(said(&none, &Offered::unknown()), OK);
}

#[test]
fn answers_without_content_are_told_apart() {
    // G72, G73, G74
    assert_eq!(of("", "STOP"), ("soft.empty", Hint::Same));
    assert_eq!(of(r#"{"text":"hm","thought":true}"#, "STOP"), ("soft.empty", Hint::Modify));
    assert_eq!(of(r#"{"text":"hm","thought":true}"#, "MAX_TOKENS"), ("soft.truncated", Hint::Modify));
    for body in
        [r#"{"candidates":[]}"#, r#"{"usageMetadata":{"promptTokenCount":3}}"#, r#"{"modelVersion":"x"}"#]
    {
        assert_eq!(said(body, &Offered::unknown()), ("soft.empty", Hint::Same), "{body}");
    }
    let unspoken = r#"{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":3,
        "thoughtsTokenCount":99,"totalTokenCount":102}}"#;
    assert_eq!(said(unspoken, &Offered::unknown()), ("soft.empty", Hint::Modify));
    // V-B6
    assert_eq!(
        said(&candidate("", "STOP"), &Offered::unknown().with_max_tokens(8)),
        ("soft.truncated", Hint::Modify)
    );
}

#[test]
fn a_thought_is_no_text_and_its_bytes_count() {
    let facts = told(
        &candidate(
            r#"{"text":"hmm","thought":true},{"text":"a"},{"text":"b","thoughtSignature":"s"}"#,
            "STOP",
        ),
        &Offered::unknown(),
    );
    assert_eq!((facts.text.as_deref(), facts.output_bytes), (Some("ab"), 5));
    assert_eq!(facts.verdict, Some(Verdict::SUCCESS));
}

#[test]
fn pictures_and_code_are_content() {
    for part in [
        r#"{"inlineData":{"mimeType":"image/png","data":"AA"}}"#,
        r#"{"executableCode":{"language":"PYTHON","code":"1"}}"#,
        r#"{"codeExecutionResult":{"outcome":"OUTCOME_OK"}}"#,
    ] {
        assert_eq!(of(part, "STOP"), OK, "{part}");
    }
}

#[test]
fn parallel_calls_with_object_arguments_are_read_and_checked() {
    let parts = r#"{"text":"I look."},{"functionCall":{"name":"get_weather","args":{"city": "Oslo"}}},
        {"functionCall":{"id":"c2","name":"list","args":{}}},{"functionCall":{"name":"now"}}"#;
    let facts = told(&candidate(parts, "STOP"), &Offered::unknown());
    assert_eq!(facts.verdict, Some(Verdict::SUCCESS));
    let calls: Vec<_> =
        facts.tool_calls.iter().map(|call| (call.id.as_deref(), &*call.name, &*call.arguments)).collect();
    assert_eq!(
        calls,
        [(None, "get_weather", r#"{"city": "Oslo"}"#), (Some("c2"), "list", "{}"), (None, "now", "{}")]
    );
    // V-D6
    let facts =
        told(&candidate(parts, "STOP"), &Offered::unknown().with_tool("get_weather").with_tool("now"));
    assert_eq!(facts.verdict.unwrap().class(), Class::Soft(SoftKind::UnknownTool));
    assert_eq!(
        facts.report.leading().and_then(Finding::path),
        Some("/candidates/0/content/parts/2/functionCall/name")
    );
    for args in ["[1]", "\"{}\"", "7"] {
        let part = format!(r#"{{"functionCall":{{"name":"a","args":{args}}}}}"#);
        assert_eq!(of(&part, "STOP"), ("soft.tool_call", Hint::Modify), "{args}");
    }
    assert_eq!(of(r#"{"functionCall":{"args":{}}}"#, "STOP"), ("soft.tool_call", Hint::Modify));
}

#[test]
fn a_call_cut_at_the_limit_of_tokens_is_cut() {
    // V-D1
    assert_eq!(
        of(r#"{"functionCall":{"name":"write_file","args":{}}}"#, "MAX_TOKENS"),
        ("soft.truncated", Hint::Modify)
    );
}

#[test]
fn of_several_candidates_the_first_wrong_one_decides() {
    let body = r#"{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"},
        {"index":1,"content":{"parts":[{"text":"b"}]},"finishReason":"MAX_TOKENS"}]}"#;
    let facts = told(body, &Offered::unknown());
    assert_eq!(facts.verdict.unwrap().class(), Class::Soft(SoftKind::Truncated));
    assert_eq!((facts.text.as_deref(), facts.finish), (Some("a"), Some(Finish::Stop)));
    assert_eq!(facts.report.leading().and_then(Finding::path), Some("/candidates/1/finishReason"));
}

#[test]
fn a_whole_answer_without_a_finish_reason_passes_with_a_warning() {
    let body = r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}]}"#;
    let facts = told(body, &Offered::unknown());
    assert_eq!((facts.verdict, facts.report.worst()), (Some(Verdict::SUCCESS), Some(Severity::Warning)));
}

#[test]
fn the_json_that_was_asked_for_is_strictly_read() {
    let json = Offered::unknown().with_json();
    assert_eq!(said(&candidate(r#"{"text":"{\"a\":[1"}"#, "STOP"), &json), ("soft.malformed", Hint::Modify));
    assert_eq!(said(&candidate(r#"{"text":"{}"}"#, "STOP"), &json), OK);
}

#[test]
fn errors_and_pages_in_a_success_are_what_they_are() {
    for (body, class) in [
        (r#"{"error":{"code":503,"message":"x","status":"UNAVAILABLE"}}"#, "overloaded"),
        (r#"[{"error":{"code":429,"status":"RESOURCE_EXHAUSTED"}}]"#, "rate_limited"),
        ("null", "transient"),
        ("<html>", "transient"),
        (r#"{"candidates":[{"content":"#, "transient"),
        ("", "soft.empty"),
        ("data: {\"candidates\":[]}\n\n", "transient"),
    ] {
        assert_eq!(said(body, &Offered::unknown()).0, class, "{body}");
    }
}

#[test]
fn other_methods_are_asked_only_whether_they_failed() {
    for body in [r#"{"totalTokens":7}"#, r#"{"embedding":{"values":[0.1]}}"#, r#"{"models":[]}"#] {
        assert_eq!(said(body, &Offered::unknown()), OK, "{body}");
    }
}

fn array(chunks: &[&str]) -> String {
    format!("[{}\n]", chunks.join("\n,\r\n"))
}

#[test]
fn a_stream_that_came_as_a_whole_array_is_put_together() {
    let first = r#"{"candidates":[{"content":{"parts":[{"text":"Half-"}]}}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":1}}"#;
    let last = r#"{"candidates":[{"content":{"parts":[{"text":"open"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":3}}"#;
    let facts = told(&array(&[first, last]), &Offered::unknown());
    assert_eq!((facts.verdict, facts.text.as_deref()), (Some(Verdict::SUCCESS), Some("Half-open")));
    assert_eq!(facts.usage.total(), 12);

    let facts = told(&array(&[first]), &Offered::unknown());
    let verdict = facts.verdict.unwrap();
    assert_eq!((verdict.class().as_str(), verdict.hint()), ("soft.truncated", Hint::Same));

    let error = r#"{"error":{"code":503,"status":"UNAVAILABLE","message":"x"}}"#;
    let facts = told(&array(&[first, error]), &Offered::unknown());
    assert_eq!(facts.verdict.unwrap().class(), Class::Overloaded);
    assert_eq!(facts.usage.total(), 10);

    // Cut in the middle, it is no JSON any more.
    assert_eq!(said(&array(&[first, last])[..200], &Offered::unknown()).0, "transient");
    assert_eq!(said("[]", &Offered::unknown()).0, "transient");
    assert_eq!(said("[7]", &Offered::unknown()).0, "transient");
}
