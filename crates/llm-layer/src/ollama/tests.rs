use failsoft_core::Class;
use http::{HeaderMap, StatusCode};

use super::*;
use crate::Provider;

fn told(body: &str, offered: &Offered) -> Facts {
    Provider::Ollama.judge(StatusCode::OK, &HeaderMap::new(), body.as_bytes(), offered)
}

fn said(body: &str, offered: &Offered) -> (&'static str, Hint) {
    let verdict = told(body, offered).verdict.unwrap();
    (verdict.class().as_str(), verdict.hint())
}

fn chat(message: &str, reason: &str) -> String {
    format!(
        r#"{{"model":"m","message":{{"role":"assistant",{message}}},"done_reason":"{reason}","done":true,
            "prompt_eval_count":5,"eval_count":8}}"#
    )
}

fn of(message: &str, reason: &str) -> (&'static str, Hint) {
    said(&chat(message, reason), &Offered::unknown())
}

const OK: (&str, Hint) = ("success", Hint::Never);
const TEXT: &str = r#""content":"x""#;

#[test]
fn every_reason_has_its_class() {
    assert_eq!(of(TEXT, "stop"), OK);
    assert_eq!(of(TEXT, "length"), ("soft.truncated", Hint::Modify));
    assert_eq!(of(TEXT, "limit"), ("soft.low_confidence", Hint::Same));
    // Older servers give none.
    assert_eq!(said(r#"{"message":{"content":"x"},"done":true}"#, &Offered::unknown()), OK);
    assert_eq!(said(r#"{"response":"x","done":true,"done_reason":"stop"}"#, &Offered::unknown()), OK);
    assert_eq!(said(r#"{"response":"x","done":false}"#, &Offered::unknown()), ("soft.truncated", Hint::Same));
    assert_eq!(said(r#"{"message":{"content":"x"}}"#, &Offered::unknown()), OK);
}

#[test]
fn answers_without_content_are_told_apart() {
    assert_eq!(of(r#""content":"""#, "stop"), ("soft.empty", Hint::Same));
    assert_eq!(of(r#""content":"","thinking":"hm""#, "stop"), ("soft.empty", Hint::Modify));
    assert_eq!(of(r#""content":"","thinking":"hm""#, "length"), ("soft.truncated", Hint::Modify));
    assert_eq!(
        said(&chat(r#""content":"""#, "stop"), &Offered::unknown().with_max_tokens(8)),
        ("soft.truncated", Hint::Modify)
    );
}

#[test]
fn a_model_that_was_only_loaded_or_unloaded_gave_the_answer_that_was_asked_for() {
    for reason in ["load", "unload"] {
        let facts = told(&chat(r#""content":"""#, reason), &Offered::unknown());
        assert_eq!(
            (facts.verdict, facts.finish),
            (Some(Verdict::SUCCESS), Some(Finish::Other(reason.into())))
        );
        assert!(facts.report.is_empty());
    }
}

#[test]
fn arguments_are_an_object_and_calls_come_with_stop() {
    let message = r#""content":"","tool_calls":[{"function":{"name":"get_weather","arguments":{"city":"Oslo"}}},
        {"id":"c2","function":{"index":1,"name":"list","arguments":{}}}]"#;
    let facts = told(&chat(message, "stop"), &Offered::unknown());
    assert_eq!(facts.verdict, Some(Verdict::SUCCESS));
    let calls: Vec<_> =
        facts.tool_calls.iter().map(|call| (call.id.as_deref(), &*call.name, &*call.arguments)).collect();
    assert_eq!(calls, [(None, "get_weather", r#"{"city":"Oslo"}"#), (Some("c2"), "list", "{}")]);
    let facts = told(&chat(message, "stop"), &Offered::unknown().with_tool("get_weather"));
    assert_eq!(facts.verdict.unwrap().class(), Class::Soft(SoftKind::UnknownTool));
    assert_eq!(facts.report.leading().and_then(Finding::path), Some("/message/tool_calls/1/function/name"));
    // V-D1
    for call in [
        r#"{"function":{"name":"a"}}"#,
        r#"{"function":{"arguments":{}}}"#,
        r#"{"function":{"name":"a","arguments":[1]}}"#,
        "{}",
    ] {
        let message = format!(r#""content":"","tool_calls":[{call}]"#);
        assert_eq!(of(&message, "stop"), ("soft.tool_call", Hint::Modify), "{call}");
    }
}

#[test]
fn counts_that_a_warm_cache_leaves_out_are_missing_and_not_zero() {
    let usage = told(r#"{"message":{"content":"x"},"done":true,"eval_count":5}"#, &Offered::unknown()).usage;
    assert_eq!((usage.input, usage.output), (None, Some(5)));
}

#[test]
fn what_comes_in_place_of_an_answer_is_what_it_is() {
    let asked = Offered::of_body(br#"{"messages":[]}"#);
    for (body, class) in [
        (r#"{"error":"an error was encountered while running the model"}"#, "transient"),
        (r#"{"id":"x"}"#, "soft.malformed"),
        ("null", "transient"),
        ("<html>", "transient"),
        (r#"{"message":{"con"#, "transient"),
        ("", "soft.empty"),
    ] {
        assert_eq!(said(body, &asked).0, class, "{body}");
    }
    for body in [r#"{"embeddings":[[0.1]]}"#, r#"{"models":[]}"#, r#"{"status":"success"}"#] {
        assert_eq!(said(body, &Offered::unknown()), OK, "{body}");
    }
}

#[test]
fn errors_are_strings_and_their_status_decides() {
    for (status, body, class) in [
        (404, r#"{"error":"model 'nope' not found"}"#, "model_not_found"),
        (404, r#"{"error":"model \"nope\" not found, try pulling it first"}"#, "model_not_found"),
        (
            400,
            r#"{"error":"the prompt too long; exceeded max context length by 3 tokens"}"#,
            "context_length",
        ),
        (400, r#"{"error":"registry.ollama.ai/library/x does not support tools"}"#, "invalid"),
        (401, r#"{"error":"unauthorized"}"#, "auth"),
        (429, r#"{"error":"you have reached your weekly usage limit"}"#, "quota"),
        (500, r#"{"error":"llama runner process has terminated: signal: killed"}"#, "transient"),
        (
            503,
            r#"{"error":"server busy, please try again. maximum pending requests exceeded"}"#,
            "overloaded",
        ),
    ] {
        let status = StatusCode::from_u16(status).unwrap();
        let facts = Provider::Ollama.judge(status, &HeaderMap::new(), body.as_bytes(), &Offered::unknown());
        assert_eq!(facts.verdict.unwrap().class().as_str(), class, "{body}");
    }
}

#[test]
fn a_stream_that_came_as_a_whole_is_put_together() {
    const FIRST: &str = r#"{"message":{"content":"Half-"},"done":false}"#;
    const LAST: &str = r#"{"message":{"content":"open"},"done":true,"done_reason":"stop","eval_count":3}"#;
    let facts = told(&format!("{FIRST}\n{LAST}\n"), &Offered::unknown());
    assert_eq!((facts.verdict, facts.text.as_deref()), (Some(Verdict::SUCCESS), Some("Half-open")));
    assert_eq!(facts.usage.output, Some(3));
    assert_eq!(said(&format!("{FIRST}\n{FIRST}\n"), &Offered::unknown()), ("soft.truncated", Hint::Same));
    let error = r#"{"error":"it broke"}"#;
    assert_eq!(said(&format!("{FIRST}\n{error}\n"), &Offered::unknown()).0, "transient");
    assert_eq!(said(&format!("{FIRST}\n{{\"mess"), &Offered::unknown()).0, "transient");
}
