use http::StatusCode;

use super::*;
use crate::Provider;

fn judge(body: &str, offered: &Offered) -> Facts {
    Provider::OpenAiResponses.judge(StatusCode::OK, &HeaderMap::new(), body.as_bytes(), offered)
}

fn told(status: &str, output: &str, offered: &Offered) -> Facts {
    judge(&format!(r#"{{"object":"response","status":{status},"output":{output}}}"#), offered)
}

fn said(status: &str, output: &str, offered: &Offered) -> (&'static str, Hint) {
    let verdict = told(status, output, offered).verdict.unwrap();
    (verdict.class().as_str(), verdict.hint())
}

const DONE: &str = r#""completed""#;
const TEXT: &str = r#"[{"type":"message","content":[{"type":"output_text","text":"a"}]}]"#;
const OK: (&str, Hint) = ("success", Hint::Never);

fn call(arguments: &str) -> String {
    format!(
        r#"[{{"type":"reasoning","summary":[]}},
            {{"type":"function_call","id":"fc","call_id":"c1","name":"get","arguments":{arguments}}}]"#
    )
}

#[test]
fn every_status_has_its_meaning() {
    let unknown = Offered::unknown();
    let cut = |reason: &str| format!(r#""incomplete","incomplete_details":{{"reason":"{reason}"}}"#);
    assert_eq!(said(DONE, TEXT, &unknown), OK);
    assert_eq!(said(&cut("max_output_tokens"), TEXT, &unknown), ("soft.truncated", Hint::Modify));
    assert_eq!(said(&cut("content_filter"), "[]", &unknown), ("refused", Hint::Fallback));
    assert_eq!(said(&cut("tired"), TEXT, &unknown), ("soft.low_confidence", Hint::Same));
    assert_eq!(said(r#""incomplete""#, TEXT, &unknown), ("soft.low_confidence", Hint::Same));
    assert_eq!(said(r#""failed""#, "[]", &unknown), ("transient", Hint::Same));
    let failed = r#""failed","error":{"code":"rate_limit_exceeded","message":"x"}"#;
    assert_eq!(said(failed, "[]", &unknown), ("rate_limited", Hint::After));
    let queued = told(r#""queued""#, "[]", &unknown);
    assert_eq!((queued.verdict, queued.finish), (Some(Verdict::SUCCESS), None));
    assert_eq!(queued.report.leading().map(Finding::code), Some("not_final"));
}

#[test]
fn calls_are_strictly_read_and_come_with_the_id_that_answers_them() {
    // V-D1
    let unknown = Offered::unknown();
    let facts = told(DONE, &call(r#""{\"x\":1}""#), &unknown);
    assert_eq!((facts.verdict, facts.finish), (Some(Verdict::SUCCESS), Some(Finish::ToolCalls)));
    assert_eq!(
        (facts.tool_calls[0].id.as_deref(), &*facts.tool_calls[0].arguments),
        (Some("c1"), r#"{"x":1}"#)
    );
    for arguments in [r#""{\"x\":""#, r#""""#, "null", r#""\"{}\"""#] {
        let facts = told(DONE, &call(arguments), &unknown);
        assert_eq!(facts.verdict.unwrap().class(), Class::Soft(SoftKind::ToolCall), "{arguments}");
        assert_eq!(facts.report.leading().and_then(Finding::path), Some("/output/1/arguments"));
    }
    let body = br#"{"input":"x","tools":[{"type":"function","name":"other","parameters":{}},{"type":"web_search"}]}"#;
    let offered = Offered::of_body(body);
    assert_eq!(said(DONE, &call(r#""{}""#), &offered), ("soft.unknown_tool", Hint::Modify));
    let custom = r#"[{"type":"custom_tool_call","call_id":"c","name":"sql","input":"select 1"}]"#;
    let facts = told(DONE, custom, &unknown);
    assert!(facts.verdict == Some(Verdict::SUCCESS) && facts.tool_calls[0].free_text);
}

#[test]
fn refusals_reasoning_alone_and_nothing_are_told_apart() {
    let unknown = Offered::unknown();
    let refusal = r#"[{"type":"message","content":[{"type":"refusal","refusal":"I can't"}]}]"#;
    let facts = told(DONE, refusal, &unknown);
    assert_eq!((facts.verdict.unwrap().class(), facts.finish), (Class::Refused, Some(Finish::Stop)));
    let thoughts = r#"[{"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}]}]"#;
    assert_eq!(said(DONE, thoughts, &unknown), ("soft.empty", Hint::Modify));
    assert_eq!(said(DONE, "[]", &unknown), ("soft.empty", Hint::Same));
    // What OpenAI's own tools made is an answer.
    assert_eq!(said(DONE, r#"[{"type":"image_generation_call","result":"…"}]"#, &unknown), OK);
}

#[test]
fn a_server_that_calls_every_end_completed_is_found_out_by_the_limit_of_tokens() {
    // V-B6
    let body = r#"{"object":"response","status":"completed","max_output_tokens":16,"output":[],
        "usage":{"input_tokens":5,"output_tokens":16}}"#;
    let verdict = judge(body, &Offered::unknown()).verdict.unwrap();
    assert_eq!((verdict.class().as_str(), verdict.hint()), ("soft.truncated", Hint::Modify));
    let offered = Offered::of_body(br#"{"input":"x","max_output_tokens":99}"#);
    assert_eq!(judge(body, &offered).verdict.unwrap().class(), Class::Soft(SoftKind::Empty));
}

#[test]
fn cached_and_reasoning_tokens_are_taken_out_of_the_totals() {
    // G94
    let facts = judge(
        r#"{"object":"response","status":"completed","output":[],"usage":{"input_tokens":100,
            "input_tokens_details":{"cached_tokens":60},"output_tokens":50,
            "output_tokens_details":{"reasoning_tokens":40},"total_tokens":150}}"#,
        &Offered::unknown(),
    );
    let usage = facts.usage;
    assert_eq!(
        [usage.input, usage.cache_read, usage.output, usage.reasoning],
        [Some(40), Some(60), Some(10), Some(40)]
    );
}

#[test]
fn other_endpoints_are_asked_only_whether_they_failed() {
    let deleted = r#"{"id":"resp_1","object":"response","deleted":true}"#;
    assert_eq!(judge(deleted, &Offered::unknown()).verdict, Some(Verdict::SUCCESS));
    let request = http::Request::post("http://a/v1/responses").body(r#"{"input":"x"}"#).unwrap();
    let verdict = judge(deleted, &Offered::of(&request)).verdict.unwrap();
    assert_eq!(verdict.class(), Class::Soft(SoftKind::Malformed));
    let request = http::Request::post("http://a/v1/responses/input_tokens").body(r#"{"input":"x"}"#).unwrap();
    assert_eq!(judge(r#"{"input_tokens":3}"#, &Offered::of(&request)).verdict, Some(Verdict::SUCCESS));
}
