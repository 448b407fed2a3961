use failsoft_core::{Finish, Severity};

use failsoft_core::Class;
use http::header::CONTENT_TYPE;

use super::*;
use crate::Provider;

fn judge(headers: &HeaderMap, body: &[u8], offered: &Offered) -> Facts {
    crate::whole::judge(Provider::OpenAiCompatible, headers, body, offered)
}

fn told(message: &str, finish: &str, offered: &Offered) -> Facts {
    let body = format!(
        r#"{{"choices":[{{"message":{message},"finish_reason":{finish}}}],
            "usage":{{"prompt_tokens":5,"completion_tokens":8}}}}"#
    );
    judge(&HeaderMap::new(), body.as_bytes(), offered)
}

fn verdict(message: &str, finish: &str, offered: &Offered) -> (&'static str, Hint) {
    let verdict = told(message, finish, offered).verdict.unwrap();
    (verdict.class().as_str(), verdict.hint())
}

const STOP: &str = r#""stop""#;
const OK: (&str, Hint) = ("success", Hint::Never);

fn call(name: &str, arguments: &str) -> String {
    format!(r#"{{"tool_calls":[{{"id":"1","function":{{"name":"{name}","arguments":{arguments}}}}}]}}"#)
}

#[test]
fn a_final_response_without_choices_is_soft_and_its_usage_is_read_first() {
    // G72
    let facts =
        judge(&HeaderMap::new(), br#"{"choices":[],"usage":{"prompt_tokens":7}}"#, &Offered::unknown());
    assert_eq!(facts.verdict.unwrap().class(), Class::Soft(SoftKind::Empty));
    assert_eq!(facts.usage.input, Some(7));
}

#[test]
fn nothing_but_reasoning_needs_a_changed_request_and_an_empty_answer_only_another_try() {
    // G73, G74
    let unknown = Offered::unknown();
    for message in [
        r#"{"content":"","reasoning_content":"hm"}"#,
        r#"{"content":null,"reasoning":"hm"}"#,
        r#"{"content":[{"type":"thinking","thinking":[]}]}"#,
        r#"{"reasoning_details":[{"type":"reasoning.text"}]}"#,
    ] {
        assert_eq!(verdict(message, STOP, &unknown), ("soft.empty", Hint::Modify), "{message}");
    }
    for message in [r#"{"content":""}"#, r#"{"content":" \n"}"#, r#"{"content":[]}"#, "{}", "null", "7"] {
        assert_eq!(verdict(message, STOP, &unknown), ("soft.empty", Hint::Same), "{message}");
    }
}

#[test]
fn a_budget_spent_on_reasoning_alone_is_cut_and_asks_for_a_change() {
    // V-E2, V-B6
    let unknown = Offered::unknown();
    let message = r#"{"content":"","reasoning_content":"hm"}"#;
    assert_eq!(verdict(message, r#""length""#, &unknown), ("soft.truncated", Hint::Modify));
    assert_eq!(
        verdict(message, STOP, &Offered::unknown().with_max_tokens(8)),
        ("soft.truncated", Hint::Modify)
    );
}

#[test]
fn arguments_that_are_cut_are_never_repaired_and_never_an_empty_object() {
    // V-D1, V-D3, V-D8
    let unknown = Offered::unknown();
    for arguments in [r#""{\"path\":\"a""#, r#""""#, "null", r#""[1]""#, r#""\"{}\"""#, r#""\ud83d""#, "7"] {
        let message = call("write_file", arguments);
        assert_eq!(
            verdict(&message, r#""tool_calls""#, &unknown),
            ("soft.tool_call", Hint::Modify),
            "{message}"
        );
        assert_eq!(verdict(&message, r#""length""#, &unknown).0, "soft.truncated", "{message}");
    }
    let facts = told(&call("write_file", r#""{\"path\":\"a""#), r#""tool_calls""#, &unknown);
    assert_eq!(&*facts.tool_calls[0].arguments, r#"{"path":"a"#);
    assert_eq!(
        facts.report.leading().and_then(Finding::path),
        Some("/choices/0/message/tool_calls/0/function/arguments")
    );
}

#[test]
fn a_tool_that_takes_nothing_may_be_given_nothing() {
    let offered = Offered::of_body(
        br#"{"messages":[],"tools":[{"function":{"name":"list","parameters":
        {"type":"object","properties":{}}}}]}"#,
    );
    assert_eq!(verdict(&call("list", r#""""#), STOP, &offered), OK);
    assert_eq!(verdict(&call("other", r#""""#), STOP, &offered), ("soft.unknown_tool", Hint::Modify));
}

#[test]
fn arguments_may_be_an_object_and_calls_may_come_with_stop() {
    let facts = told(&call("a", r#"{"x": 1}"#), STOP, &Offered::unknown());
    assert_eq!(facts.verdict, Some(Verdict::SUCCESS));
    assert_eq!(&*facts.tool_calls[0].arguments, r#"{"x": 1}"#);
}

#[test]
fn an_unknown_tool_names_those_that_there_are() {
    // V-D6
    let offered = Offered::unknown().with_tool("get_weather");
    let facts = told(&call("get_wether", r#""{}""#), STOP, &offered);
    assert_eq!(facts.verdict.unwrap().class(), Class::Soft(SoftKind::UnknownTool));
    assert!(facts.report.to_string().contains("get_weather"), "{}", facts.report);
    assert_eq!(verdict(&call("", r#""{}""#), STOP, &offered), ("soft.tool_call", Hint::Modify));
}

#[test]
fn a_custom_tool_takes_free_text() {
    let message = r#"{"tool_calls":[{"id":"1","type":"custom","custom":{"name":"sql","input":"select 1"}}]}"#;
    let offered = Offered::of_body(br#"{"messages":[],"tools":[{"type":"custom","custom":{"name":"sql"}}]}"#);
    let facts = told(message, STOP, &offered);
    assert_eq!(facts.verdict, Some(Verdict::SUCCESS));
    assert_eq!(&*facts.tool_calls[0].arguments, "select 1");
}

#[test]
fn a_call_left_in_the_content_is_a_leak_only_if_that_tool_was_offered() {
    // V-D7
    let leaked = r#"{"content":"<tool_call>{\"name\": \"get_weather\", \"arguments\": {}}</tool_call>"}"#;
    let offered = Offered::unknown().with_tool("get_weather");
    assert_eq!(verdict(leaked, STOP, &offered), ("soft.leaked_tool_call", Hint::Same));
    assert_eq!(verdict(leaked, STOP, &Offered::unknown()), OK);
    assert_eq!(verdict(leaked, STOP, &Offered::unknown().with_tool("send_mail")), OK);
    let without_brace = r#"{"content":"{\"name\": \"get_weather\", \"arguments\": {}"}"#;
    assert_eq!(verdict(without_brace, STOP, &offered), ("soft.leaked_tool_call", Hint::Same));
    let object = r#"{"content":"{\"name\": \"get_weather\", \"arguments\": {}}"}"#;
    assert_eq!(verdict(object, STOP, &offered.with_json()), OK);
}

#[test]
fn stopping_to_call_tools_without_a_call_is_a_broken_tool_call() {
    for message in [r#"{"content":"I will look."}"#, "{}"] {
        assert_eq!(verdict(message, r#""tool_calls""#, &Offered::unknown()), ("soft.tool_call", Hint::Same));
    }
}

#[test]
fn a_finish_reason_that_nobody_knows_is_kept_and_is_no_good_end() {
    let facts = told(r#"{"content":"x"}"#, r#""abort""#, &Offered::unknown());
    assert_eq!(facts.verdict.unwrap().class(), Class::Soft(SoftKind::LowConfidence));
    assert_eq!(facts.finish, Some(Finish::Other("abort".into())));
    let none = told(r#"{"content":"x"}"#, "null", &Offered::unknown());
    assert_eq!((none.verdict, none.finish), (Some(Verdict::SUCCESS), None));
    assert_eq!(none.report.worst(), Some(Severity::Warning));
}

#[test]
fn finish_reasons_that_gateways_let_through_are_known_in_either_case() {
    // V-D4 and the like: taken for an unknown one, a cut answer would be asked for again as it is.
    let unknown = Offered::unknown();
    for reason in ["eos", "EOS_TOKEN", "STOP", "end_turn", ""] {
        let finish = format!("{reason:?}");
        assert_eq!(verdict(r#"{"content":"x"}"#, &finish, &unknown), OK, "{reason}");
    }
    for reason in ["LENGTH", "max_tokens", "MAX_TOKENS"] {
        let finish = format!("{reason:?}");
        let cut = ("soft.truncated", Hint::Modify);
        assert_eq!(verdict(r#"{"content":"x"}"#, &finish, &unknown), cut, "{reason}");
    }
    for reason in ["SAFETY", "refusal", "sensitive"] {
        assert_eq!(verdict(r#"{"content":"x"}"#, &format!("{reason:?}"), &unknown).0, "refused", "{reason}");
    }
}

#[test]
fn an_error_object_with_nothing_in_it_is_no_error() {
    for error in ["{}", r#"{"message":"","type":"","param":null,"code":null}"#, r#"{"code":0,"message":""}"#]
    {
        for body in [
            format!(
                r#"{{"error":{error},"choices":[{{"message":{{"content":"x"}},"finish_reason":"stop"}}]}}"#
            ),
            format!(
                r#"{{"choices":[{{"error":{error},"message":{{"content":"x"}},"finish_reason":"stop"}}]}}"#
            ),
        ] {
            let facts = judge(&HeaderMap::new(), body.as_bytes(), &Offered::unknown());
            assert_eq!(facts.verdict, Some(Verdict::SUCCESS), "{body}");
        }
    }
}

#[test]
fn pictures_made_from_a_prompt_are_an_answer() {
    let picture = br#"{"created":1,"data":[{"url":"https://example.com/a.png"}]}"#;
    let prompt = Offered::of_body(br#"{"prompt":"a cat","size":"256x256"}"#);
    assert_eq!(judge(&HeaderMap::new(), picture, &prompt).verdict, Some(Verdict::SUCCESS));
    let none = br#"{"created":1,"data":[]}"#;
    assert_eq!(judge(&HeaderMap::new(), none, &prompt).verdict.unwrap().class().as_str(), "soft.malformed");
    let chat = Offered::of_body(br#"{"messages":[]}"#);
    assert_eq!(judge(&HeaderMap::new(), picture, &chat).verdict.unwrap().class().as_str(), "soft.malformed");
}

#[test]
fn the_json_that_was_asked_for_is_strictly_read_and_a_fence_only_noted() {
    let json = Offered::unknown().with_json();
    assert_eq!(verdict(r#"{"content":"{\"a\":[1"}"#, STOP, &json), ("soft.malformed", Hint::Modify));
    assert_eq!(verdict(r#"{"content":"{\"a\":[1"}"#, STOP, &Offered::unknown()), OK);
    assert_eq!(verdict(r#"{"content":"{}"}"#, STOP, &json), OK);
    let fenced = told(r#"{"content":"```json\n{}\n```"}"#, STOP, &json);
    assert_eq!((fenced.verdict, fenced.report.worst()), (Some(Verdict::SUCCESS), Some(Severity::Warning)));
}

#[test]
fn sound_and_pictures_are_content() {
    for message in
        [r#"{"content":null,"audio":{"id":"a"}}"#, r#"{"content":"","images":[{"type":"image_url"}]}"#]
    {
        assert_eq!(verdict(message, STOP, &Offered::unknown()), OK, "{message}");
    }
}

#[test]
fn of_several_choices_the_first_wrong_one_decides() {
    let body = br#"{"choices":[{"message":{"content":"a"},"finish_reason":"stop"},
        {"message":{"content":"b"},"finish_reason":"length"}]}"#;
    let facts = judge(&HeaderMap::new(), body, &Offered::unknown());
    assert_eq!(facts.verdict.unwrap().class(), Class::Soft(SoftKind::Truncated));
    assert_eq!((facts.text.as_deref(), facts.finish), (Some("a"), Some(Finish::Stop)));
}

#[test]
fn other_endpoints_are_asked_only_whether_they_failed() {
    let embedding = br#"{"object":"list","data":[],"usage":{"prompt_tokens":3}}"#;
    let facts = judge(&HeaderMap::new(), embedding, &Offered::unknown());
    assert_eq!((facts.verdict, facts.usage.input), (Some(Verdict::SUCCESS), Some(3)));
    let no_chat = Offered::of_body(br#"{"input":"x"}"#);
    for body in ["", "null", "<html>", r#"{"ok":true}"#] {
        assert_eq!(
            judge(&HeaderMap::new(), body.as_bytes(), &no_chat).verdict,
            Some(Verdict::SUCCESS),
            "{body}"
        );
    }
    let failed_job = br#"{"object":"fine_tuning.job","error":{"code":"x","message":"y"}}"#;
    assert_eq!(judge(&HeaderMap::new(), failed_job, &no_chat).verdict, Some(Verdict::SUCCESS));
    let json = HeaderMap::from_iter([(CONTENT_TYPE, http::HeaderValue::from_static("application/json"))]);
    assert_eq!(judge(&json, br#"{"data":[[0.1,"#, &no_chat).verdict.unwrap().class(), Class::Transient);
    let error = br#"{"error":{"message":"x","code":503}}"#;
    assert_eq!(judge(&HeaderMap::new(), error, &no_chat).verdict.unwrap().class(), Class::Overloaded);
}

#[test]
fn an_error_in_place_of_an_answer_needs_no_error_field() {
    // G51
    for (body, class) in [
        (r#"{"code":429,"message":"slow down"}"#, Class::RateLimited),
        (r#"{"object":"error","type":"overloaded_error","message":"x"}"#, Class::Overloaded),
        (r#"{"detail":"it broke"}"#, Class::Transient),
        (r#"[{"error":{"status":"UNAVAILABLE"}}]"#, Class::Overloaded),
        (r#"{"error":"it broke","choices":[{"message":{"content":"x"}}]}"#, Class::Transient),
        (
            r#"{"error":{"type":"invalid_request_error","message":"prompt is too long"}}"#,
            Class::ContextLength,
        ),
        (r#"{"id":"x"}"#, Class::Soft(SoftKind::Malformed)),
        (r#"{"error":{},"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}"#, Class::Success),
    ] {
        let facts = judge(&HeaderMap::new(), body.as_bytes(), &Offered::unknown());
        assert_eq!(facts.verdict.unwrap().class(), class, "{body}");
    }
}

#[test]
fn the_answers_beside_the_first_are_handed_on() {
    let body = br#"{"choices":[{"message":{"content":"a"},"finish_reason":"stop"},
        {"message":{"content":"b","tool_calls":[{"id":"1","function":{"name":"t","arguments":"{}"}}]},"finish_reason":"length"}]}"#;
    let facts = judge(&HeaderMap::new(), body, &Offered::unknown());
    assert_eq!(facts.text.as_deref(), Some("a"));
    let [other] = &facts.alternatives[..] else { panic!("one beside the first") };
    assert_eq!((other.text.as_deref(), other.tool_calls.len()), (Some("b"), 1));
    assert_eq!(other.finish, Some(Finish::Length));
    assert!(facts.within(0).alternatives.is_empty(), "they are no smaller than the first");
}
