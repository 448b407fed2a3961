use failsoft_core::{Class, Finish};
use http::StatusCode;

use super::*;
use crate::Provider;

fn judge(body: &str, offered: &Offered) -> Facts {
    Provider::Anthropic.judge(StatusCode::OK, &HeaderMap::new(), body.as_bytes(), offered)
}

fn told(content: &str, stop: &str, offered: &Offered) -> Facts {
    let body =
        format!(r#"{{"type":"message","role":"assistant","content":{content},"stop_reason":"{stop}"}}"#);
    judge(&body, offered)
}

fn said(content: &str, stop: &str, offered: &Offered) -> (&'static str, Hint) {
    let verdict = told(content, stop, offered).verdict.unwrap();
    (verdict.class().as_str(), verdict.hint())
}

const TEXT: &str = r#"[{"type":"text","text":"a"}]"#;
const OK: (&str, Hint) = ("success", Hint::Never);

fn call(input: &str) -> String {
    format!(
        r#"[{{"type":"text","text":"I look."}},{{"type":"tool_use","id":"t1","name":"get","input":{input}}}]"#
    )
}

#[test]
fn every_stop_reason_has_its_meaning() {
    let unknown = Offered::unknown();
    assert_eq!(said(TEXT, "end_turn", &unknown), OK);
    assert_eq!(said(TEXT, "stop_sequence", &unknown), OK);
    for cut in ["max_tokens", "model_context_window_exceeded"] {
        assert_eq!(said(TEXT, cut, &unknown), ("soft.truncated", Hint::Modify));
    }
    let refusal = told("[]", "refusal", &unknown);
    assert_eq!(refusal.verdict.unwrap().class(), Class::Refused);
    assert_eq!(refusal.finish, Some(Finish::Refusal));
    assert_eq!(said(TEXT, "compaction", &unknown), ("soft.low_confidence", Hint::Same));
}

#[test]
fn a_paused_turn_is_good_so_far_and_is_to_be_sent_back() {
    let facts = told(
        r#"[{"type":"server_tool_use","id":"s","name":"web_search","input":{}}]"#,
        "pause_turn",
        &Offered::unknown(),
    );
    let verdict = facts.verdict.unwrap();
    assert_eq!(
        (verdict.class(), verdict.hint(), facts.finish),
        (Class::Success, Hint::Continue, Some(Finish::Paused))
    );
    assert!(facts.tool_calls.is_empty(), "no call for the caller");
}

#[test]
fn arguments_are_an_object_and_anything_else_is_a_broken_call() {
    // V-D1
    let unknown = Offered::unknown();
    let facts = told(&call(r#"{"x": 1}"#), "tool_use", &unknown);
    assert_eq!(facts.verdict, Some(Verdict::SUCCESS));
    let call_of = &facts.tool_calls[0];
    assert_eq!(
        (call_of.id.as_deref(), &*call_of.name, &*call_of.arguments),
        (Some("t1"), "get", r#"{"x": 1}"#)
    );
    assert_eq!(facts.text.as_deref(), Some("I look."));
    for input in ["null", "7", "[]", r#""{\"x\":""#, r#""""#] {
        let facts = told(&call(input), "tool_use", &unknown);
        assert_eq!(facts.verdict.unwrap().class(), Class::Soft(SoftKind::ToolCall), "{input}");
        assert_eq!(facts.report.leading().and_then(Finding::path), Some("/content/1/input"), "{input}");
    }
    assert_eq!(said(&call("{}"), "max_tokens", &unknown).0, "soft.truncated");
    let offered =
        Offered::of_body(br#"{"messages":[],"max_tokens":9,"tools":[{"name":"other","input_schema":{}}]}"#);
    assert_eq!(said(&call("{}"), "tool_use", &offered), ("soft.unknown_tool", Hint::Modify));
    assert_eq!(said(TEXT, "tool_use", &unknown), ("soft.tool_call", Hint::Same));
}

#[test]
fn an_answer_that_says_nothing_needs_a_changed_request() {
    for content in
        ["[]", r#"[{"type":"text","text":" "}]"#, r#"[{"type":"thinking","thinking":"hm","signature":"s"}]"#]
    {
        assert_eq!(said(content, "end_turn", &Offered::unknown()), ("soft.empty", Hint::Modify), "{content}");
    }
}

#[test]
fn the_prompts_tokens_come_in_buckets_that_do_not_overlap() {
    // G94
    let facts = judge(
        r#"{"type":"message","content":[{"type":"text","text":"a"}],"stop_reason":"end_turn","usage":{
            "input_tokens":12,"cache_read_input_tokens":2048,"cache_creation":{"ephemeral_5m_input_tokens":200,
            "ephemeral_1h_input_tokens":56},"output_tokens":9,"output_tokens_details":{"thinking_tokens":4}}}"#,
        &Offered::unknown(),
    );
    let usage = facts.usage;
    let buckets = [usage.input, usage.cache_read, usage.cache_write, usage.output, usage.reasoning];
    assert_eq!(buckets, [Some(12), Some(2048), Some(256), Some(5), Some(4)]);
}

#[test]
fn a_later_count_of_the_prompt_takes_the_place_of_all_that_was_said_of_it() {
    // G91, G92, V-H1, V-H2
    let usage = |objects: &[&str]| {
        let mut counts = Counts::default();
        objects.iter().for_each(|raw| counts.set(raw));
        counts.usage()
    };
    let start = r#"{"input_tokens":25,"cache_read_input_tokens":7,"output_tokens":1}"#;
    let told = usage(&[start, r#"{"output_tokens":15}"#]);
    assert_eq!((told.input, told.cache_read, told.output), (Some(25), Some(7), Some(15)));
    let again = usage(&[start, r#"{"input_tokens":25,"output_tokens":15}"#]);
    assert_eq!((again.input, again.cache_read), (Some(25), Some(7)));
    let split = usage(&[r#"{"input_tokens":100}"#, r#"{"input_tokens":20,"cache_read_input_tokens":80}"#]);
    assert_eq!(split.total_input(), 100);
    let joined = usage(&[r#"{"input_tokens":20,"cache_read_input_tokens":80}"#, r#"{"input_tokens":100}"#]);
    assert_eq!(joined.total_input(), 100);
}

#[test]
fn other_endpoints_are_asked_only_whether_they_failed() {
    let count = r#"{"input_tokens":14}"#;
    assert_eq!(judge(count, &Offered::unknown()).verdict, Some(Verdict::SUCCESS));
    let asked = Offered::of_body(br#"{"messages":[],"max_tokens":1,"system":"x"}"#);
    assert_eq!(judge(count, &asked).verdict.unwrap().class(), Class::Soft(SoftKind::Malformed));
    let request =
        http::Request::post("http://a/v1/messages/count_tokens").body(r#"{"messages":[]}"#).unwrap();
    assert_eq!(judge(count, &Offered::of(&request)).verdict, Some(Verdict::SUCCESS));
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    assert_eq!(judge(error, &Offered::unknown()).verdict.unwrap().class(), Class::Overloaded);
}
