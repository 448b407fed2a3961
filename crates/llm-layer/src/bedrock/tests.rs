use failsoft_core::{Class, Finish};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::*;
use crate::Provider;

fn told(body: &str, offered: &Offered) -> Facts {
    Provider::Bedrock.judge(StatusCode::OK, &HeaderMap::new(), body.as_bytes(), offered)
}

fn message(content: &str, stop: &str) -> String {
    format!(
        r#"{{"output":{{"message":{{"role":"assistant","content":[{content}]}}}},"stopReason":"{stop}",
            "usage":{{"inputTokens":5,"outputTokens":8,"totalTokens":13}}}}"#
    )
}

fn said(body: &str, offered: &Offered) -> (&'static str, Hint) {
    let verdict = told(body, offered).verdict.unwrap();
    (verdict.class().as_str(), verdict.hint())
}

fn of(content: &str, stop: &str) -> (&'static str, Hint) {
    said(&message(content, stop), &Offered::unknown())
}

const OK: (&str, Hint) = ("success", Hint::Never);
const TEXT: &str = r#"{"text":"x"}"#;

#[test]
fn every_stop_reason_has_its_class() {
    for stop in ["end_turn", "stop_sequence"] {
        assert_eq!(of(TEXT, stop), OK, "{stop}");
    }
    for stop in ["guardrail_intervened", "content_filtered"] {
        assert_eq!(of(TEXT, stop), ("refused", Hint::Fallback), "{stop}");
        assert_eq!(told(&message(TEXT, stop), &Offered::unknown()).finish, Some(Finish::ContentFilter));
    }
    for (stop, class, hint) in [
        ("max_tokens", "soft.truncated", Hint::Modify),
        ("model_context_window_exceeded", "soft.truncated", Hint::Modify),
        ("malformed_model_output", "soft.malformed", Hint::Same),
        ("malformed_tool_use", "soft.tool_call", Hint::Same),
        ("tool_use", "soft.tool_call", Hint::Same),
        ("something_new", "soft.low_confidence", Hint::Same),
    ] {
        assert_eq!(of(TEXT, stop), (class, hint), "{stop}");
    }
}

#[test]
fn tool_calls_are_objects_and_may_be_parallel() {
    let content = r#"{"text":"Checking."},{"toolUse":{"toolUseId":"t1","name":"get_weather","input":{"city":"Oslo"}}},
        {"toolUse":{"toolUseId":"t2","name":"list","input":{}}}"#;
    let facts = told(&message(content, "tool_use"), &Offered::unknown());
    assert_eq!((facts.verdict, facts.finish), (Some(Verdict::SUCCESS), Some(Finish::ToolCalls)));
    let calls: Vec<_> =
        facts.tool_calls.iter().map(|call| (call.id.as_deref(), &*call.name, &*call.arguments)).collect();
    assert_eq!(calls, [(Some("t1"), "get_weather", r#"{"city":"Oslo"}"#), (Some("t2"), "list", "{}")]);
    let facts = told(&message(content, "tool_use"), &Offered::unknown().with_tool("list"));
    assert_eq!(facts.verdict.unwrap().class(), Class::Soft(SoftKind::UnknownTool));
    assert_eq!(
        facts.report.leading().and_then(Finding::path),
        Some("/output/message/content/1/toolUse/name")
    );
    // V-D1
    for tool in [
        r#"{"toolUse":{"name":"a"}}"#,
        r#"{"toolUse":{"name":"a","input":"{\"x\":"}}"#,
        r#"{"toolUse":{"input":{}}}"#,
    ] {
        assert_eq!(of(tool, "tool_use"), ("soft.tool_call", Hint::Modify), "{tool}");
        assert_eq!(of(tool, "max_tokens").0, "soft.truncated", "{tool}");
    }
}

#[test]
fn answers_without_content_are_told_apart() {
    assert_eq!(of("", "end_turn"), ("soft.empty", Hint::Same));
    assert_eq!(
        of(r#"{"reasoningContent":{"reasoningText":{"text":"hm","signature":"s"}}}"#, "end_turn"),
        ("soft.empty", Hint::Modify)
    );
    assert_eq!(
        of(r#"{"reasoningContent":{"redactedContent":"AA"}}"#, "end_turn"),
        ("soft.empty", Hint::Modify)
    );
    assert_eq!(of(r#"{"image":{"format":"png"}}"#, "end_turn"), OK);
    assert_eq!(of(r#"{"citationsContent":{"content":[{"text":"cited"}]}}"#, "end_turn"), OK);
}

#[test]
fn tokens_of_the_cache_stand_beside_the_input() {
    let body = message(TEXT, "end_turn").replace(
        r#""totalTokens":13"#,
        r#""totalTokens":113,"cacheReadInputTokens":80,"cacheWriteInputTokens":20"#,
    );
    let usage = told(&body, &Offered::unknown()).usage;
    assert_eq!([usage.input, usage.cache_read, usage.cache_write], [Some(5), Some(80), Some(20)]);
    assert_eq!(usage.total(), 113);
}

#[test]
fn what_comes_in_place_of_an_answer_is_what_it_is() {
    let chat = Offered::of_body(br#"{"messages":[]}"#);
    for (body, class) in [
        (
            r#"{"Output":{"__type":"com.amazon.coral.service#UnknownOperationException"},"Version":"1.0"}"#,
            "transient",
        ),
        (r#"{"__type":"ThrottlingException","message":"x"}"#, "rate_limited"),
        (r#"{"id":"x"}"#, "soft.malformed"),
        ("null", "transient"),
        ("<html>", "transient"),
        (r#"{"output":{"message":"#, "transient"),
        ("", "soft.empty"),
    ] {
        assert_eq!(said(body, &chat).0, class, "{body}");
    }
    // A model that was invoked in a format of its own.
    assert_eq!(said(r#"{"generation":"x","stop_reason":"stop"}"#, &Offered::unknown()), OK);
}

fn failed(status: u16, kind: &str, message: &str) -> Verdict {
    let status = StatusCode::from_u16(status).unwrap();
    let mut headers = HeaderMap::new();
    if !kind.is_empty() {
        headers.insert("x-amzn-errortype", HeaderValue::from_str(kind).unwrap());
    }
    let body = if message.is_empty() { String::new() } else { format!(r#"{{"message":"{message}"}}"#) };
    Provider::Bedrock.judge(status, &headers, body.as_bytes(), &Offered::unknown()).verdict.unwrap()
}

#[test]
fn every_exception_has_its_class_whatever_its_status_says() {
    for (status, kind, message, class, hint) in [
        (
            429,
            "ThrottlingException",
            "Too many tokens, please wait before trying again.",
            "rate_limited",
            Hint::After,
        ),
        (
            429,
            "ThrottlingException",
            "Too many tokens per day, please wait before trying again.",
            "quota",
            Hint::Fallback,
        ),
        (429, "ModelNotReadyException", "Model is not ready", "overloaded", Hint::After),
        (503, "ServiceUnavailableException", "x", "overloaded", Hint::After),
        (400, "ServiceQuotaExceededException", "x", "quota", Hint::Fallback),
        (408, "ModelTimeoutException", "x", "timeout.total", Hint::Same),
        (424, "ModelErrorException", "x", "transient", Hint::Same),
        (424, "ModelStreamErrorException", "x", "transient", Hint::Same),
        (500, "InternalServerException", "x", "transient", Hint::Same),
        (403, "AccessDeniedException", "x", "auth", Hint::Fallback),
        (403, "UnrecognizedClientException", "x", "auth", Hint::Fallback),
        (403, "ExpiredTokenException", "x", "auth", Hint::Fallback),
        (404, "ResourceNotFoundException", "x", "model_not_found", Hint::Fallback),
        (
            400,
            "ValidationException",
            "Input is too long for requested model.",
            "context_length",
            Hint::Modify,
        ),
        (
            400,
            "ValidationException",
            "The model returned the following errors: prompt is too long: 227255 tokens > 200000 maximum",
            "context_length",
            Hint::Modify,
        ),
        (
            400,
            "ValidationException",
            "The provided model identifier is invalid.",
            "model_not_found",
            Hint::Fallback,
        ),
        (400, "ValidationException", "1 validation error detected: 429", "invalid", Hint::Never),
    ] {
        let verdict = failed(status, kind, message);
        assert_eq!((verdict.class().as_str(), verdict.hint()), (class, hint), "{kind}: {message}");
        // The same in the header's long form.
        let long = format!("{kind}:http://internal.amazon.com/coral/com.amazon.bedrock/");
        assert_eq!(failed(status, &long, message), verdict);
        // In the body, as some gateways have it; there the status says what no text does.
        let body = format!(r#"{{"__type":"com.amazon.coral#{kind}","Message":"{message}"}}"#);
        let status = StatusCode::from_u16(status).unwrap();
        let facts = Provider::Bedrock.judge(status, &HeaderMap::new(), body.as_bytes(), &Offered::unknown());
        assert_eq!(facts.verdict, Some(verdict), "{body}");
    }
}

#[test]
fn a_body_that_is_lost_or_a_page_leaves_the_header() {
    assert_eq!(failed(400, "ServiceQuotaExceededException", "").class(), Class::Quota);
    let mut headers = HeaderMap::new();
    headers.insert("x-amzn-errortype", HeaderValue::from_static("ModelNotReadyException"));
    let status = StatusCode::TOO_MANY_REQUESTS;
    let facts = Provider::Bedrock.judge(status, &headers, b"<html>", &Offered::unknown());
    assert_eq!(facts.verdict.unwrap().class(), Class::Overloaded);
    assert_eq!(failed(429, "", "").class(), Class::RateLimited);
}
