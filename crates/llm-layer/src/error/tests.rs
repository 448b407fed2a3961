use super::*;
use crate::{Offered, Provider};

fn verdict(status: u16, body: &str) -> Verdict {
    let mut facts = Facts::default();
    let status = StatusCode::from_u16(status).unwrap();
    match Top::read(body).and_then(|top| top.failure()) {
        Some(body) => body.tell(Some(status), &HeaderMap::new(), &mut facts),
        None => facts.verdict = Some(of_status(status)),
    }
    facts.verdict.unwrap()
}

fn class(status: u16, body: &str) -> Class {
    verdict(status, body).class()
}

#[test]
fn insufficient_quota_is_quota_in_every_spelling_and_place() {
    // G14, V-A1
    for code in [
        "insufficient_quota",
        "credit_balance_exhausted",
        "organization_spend_limit_exceeded",
        "project_spend_limit_exceeded",
        "organization_usage_limit_exceeded",
    ] {
        for body in [
            format!(r#"{{"error":{{"type":"{code}"}}}}"#),
            format!(r#"{{"error":{{"type":"rate_limit_exceeded","code":"{code}"}}}}"#),
            format!(r#"{{"error":{{"code":"rate_limit_exceeded","type":"{code}"}}}}"#),
            format!(r#"{{"object":"error","type":"{code}","message":"x"}}"#),
        ] {
            let verdict = verdict(429, &body);
            assert_eq!((verdict.class(), verdict.hint()), (Class::Quota, Hint::Fallback), "{body}");
        }
    }
}

#[test]
fn the_words_of_a_throttle_are_never_a_context_length() {
    // V-A3
    let body = r#"{"message":"Too many tokens, please wait before trying again."}"#;
    assert_eq!(class(429, body), Class::RateLimited);
    let body = r#"{"error":{"message":"throttled: prompt is too long for your rate limit"}}"#;
    assert_eq!(class(400, body), Class::Invalid);
    let body = r#"{"error":{"message":"maximum context length"}}"#;
    assert_eq!(class(429, body), Class::RateLimited);
}

#[test]
fn numbers_and_words_that_a_400_repeats_do_not_decide() {
    // V-A4, V-A5
    let echoed =
        r#"{"error":{"message":"invalid token ids [11, 429, 1507]","type":"invalid_request_error"}}"#;
    assert_eq!(class(400, echoed), Class::Invalid);
    let named = r#"{"error":{"message":"Unknown parameter: 'x_rate_limit_insufficient quota'",
        "type":"invalid_request_error","code":"unknown_parameter"}}"#;
    assert_eq!(class(400, named), Class::Invalid);
    let unnamed = r#"{"error":{"message":"Unknown parameter: 'rate_limit_exceeded'"}}"#;
    assert_eq!(class(400, unnamed), Class::Invalid);
}

#[test]
fn what_a_validator_repeats_of_the_request_does_not_decide() {
    // Else one caller with these words in a wrong request would open the circuit for all.
    for repeated in [
        "Your credit balance is too low",
        "no credits left",
        "invalid api key",
        "prompt is too long",
        "no such model",
    ] {
        for message in [
            format!(
                "[{{'type': 'string_type', 'loc': ('body', 'messages', 0, 'content'), 'msg': 'Input should be a valid string', 'input': {{'x': '{repeated}'}}}}]"
            ),
            format!(
                "1 validation error for ChatCompletionRequest\nmessages.0.role\n  Field required [type=missing, input_value={{'content': '{repeated}'}}, input_type=dict]"
            ),
            format!(
                "[{{\"type\": \"missing\", \"msg\": \"Field required\", \"input\": {{\"content\": \"{repeated}\"}}}}]"
            ),
        ] {
            let message = serde_json::to_string(&message).unwrap();
            for body in [
                format!(r#"{{"object":"error","message":{message},"type":"BadRequestError","code":400}}"#),
                format!(r#"{{"error":{{"message":{message},"type":"Bad Request","code":400}}}}"#),
            ] {
                assert_eq!(class(400, &body), Class::Invalid, "{body}");
            }
        }
        // What a gateway repeats of the provider's own word does.
        let word =
            format!(r#"{{"error":{{"message":"AnthropicException - {{\"message\":\"{repeated}\"}}"}}}}"#);
        assert_ne!(class(400, &word), Class::Invalid, "{word}");
    }
}

#[test]
fn a_spend_limit_that_comes_as_a_400_is_quota() {
    // V-A7
    for text in ["You have reached your specified API usage limits.", "Your credit balance is too low to …"]
    {
        let body = format!(r#"{{"error":{{"type":"invalid_request_error","message":"{text}"}}}}"#);
        assert_eq!(class(400, &body), Class::Quota, "{text}");
    }
}

#[test]
fn an_array_of_one_and_json_inside_the_message_are_unwrapped_once() {
    // V-A9
    assert_eq!(class(429, r#"[{"error":{"status":"RESOURCE_EXHAUSTED"}}]"#), Class::RateLimited);
    let nested =
        r#"{"error":{"message":"{\"error\":{\"code\":\"context_length_exceeded\",\"message\":\"x\"}}"}}"#;
    assert_eq!(class(400, nested), Class::ContextLength);
    let nested = r#"{"error":"{\"error\":{\"message\":\"prompt is too long: 3 tokens > 2\"}}"}"#;
    assert_eq!(class(400, nested), Class::ContextLength);
    let raw = r#"{"error":{"message":"Provider returned error","code":400,
        "metadata":{"raw":"{\"error\":{\"code\":\"model_not_found\"}}"}}}"#;
    assert_eq!(class(400, raw), Class::ModelNotFound);
    let twice = r#"{"error":{"message":"{\"message\":\"{\\\"code\\\":\\\"invalid_api_key\\\"}\"}"}}"#;
    assert_eq!(class(400, twice), Class::Invalid);
}

#[test]
fn context_length_is_told_by_flat_and_nested_bodies_and_number_or_string_codes() {
    // V-A10
    for body in [
        r#"{"object":"error","message":"This model's maximum context length is 9 tokens","code":400}"#,
        r#"{"error":{"message":"This model's maximum context length is 9 tokens","code":"400"}}"#,
        r#"{"object":"error","message":"max_tokens must be at least 1, got -186","code":40303}"#,
        r#"{"detail":"prompt is too long"}"#,
        r#"{"detail":[{"loc":["body"],"msg":"prompt is too long","type":"value_error"}]}"#,
        r#"{"error":"input length and `max_tokens` exceed context limit: 1 + 2 > 2"}"#,
    ] {
        let verdict = verdict(400, body);
        assert_eq!((verdict.class(), verdict.hint()), (Class::ContextLength, Hint::Modify), "{body}");
    }
}

#[test]
fn a_limit_of_tokens_that_does_not_fit_beside_the_prompt_says_how_much_is_left() {
    // V-A11
    let finding = |text: &str| {
        let body = format!(r#"{{"error":{{"type":"invalid_request_error","message":"{text}"}}}}"#);
        let mut facts = Facts::default();
        let error = Top::read(&body).and_then(|top| top.failure()).unwrap();
        error.tell(Some(StatusCode::BAD_REQUEST), &HeaderMap::new(), &mut facts);
        assert_eq!(facts.verdict.unwrap().class(), Class::ContextLength, "{text}");
        let finding = facts.report.leading().unwrap().clone();
        (finding.code(), finding.message().to_owned())
    };
    let (code, message) = finding(
        "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease input length",
    );
    assert_eq!(code, "error.max_tokens");
    assert!(message.contains("leaves 21041 for the answer"), "{message}");
    // Here nothing is left, or nobody knows: another limit does not help.
    for text in [
        "input length and `max_tokens` exceed context limit: 200001 + 64000 > 200000",
        "input length and `max_tokens` exceed context limit: x + y > z",
        "prompt is too long: 3 tokens > 2 maximum",
    ] {
        assert_eq!(finding(text).0, "error", "{text}");
    }
}

#[test]
fn an_overloaded_target_may_be_asked_again_after_a_while_and_then_another_one() {
    // G17
    for body in
        [r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, "", "<html>"]
    {
        let verdict = verdict(529, body);
        assert_eq!((verdict.class(), verdict.hint()), (Class::Overloaded, Hint::After), "{body}");
    }
}

#[test]
fn a_wrong_request_and_a_refused_credential_are_never_sent_again_as_they_are() {
    // G22
    let body = r#"{"error":{"message":"x","type":"invalid_request_error"}}"#;
    assert_eq!((verdict(400, body).class(), verdict(400, body).hint()), (Class::Invalid, Hint::Never));
    let body = r#"{"error":{"message":"x","code":"invalid_api_key"}}"#;
    assert_eq!((verdict(401, body).class(), verdict(401, body).hint()), (Class::Auth, Hint::Fallback));
}

#[test]
fn a_models_failure_that_comes_as_a_400_is_soft() {
    // V-A13
    let verdict = verdict(400, r#"{"error":{"code":"tool_use_failed","type":"invalid_request_error"}}"#);
    assert_eq!((verdict.class(), verdict.hint()), (Class::Soft(SoftKind::ToolCall), Hint::Same));
}

#[test]
fn a_403_of_moderation_is_a_refusal_and_any_other_an_auth_failure() {
    // V-A14
    let flagged = r#"{"error":{"code":403,"message":"x","metadata":{"reasons":["violence"]}}}"#;
    assert_eq!(class(403, flagged), Class::Refused);
    assert_eq!(class(403, r#"{"error":{"code":403,"message":"x"}}"#), Class::Auth);
    assert_eq!(class(402, r#"{"error":{"code":402,"message":"x"}}"#), Class::Quota);
}

#[test]
fn whatever_the_bytes_are_the_status_decides_what_they_do_not() {
    // G18
    for body in
        ["", "<html>520</html>", "null", "[]", "[[]]", "{", "\"x\"", "{\"error\":{}}", "{\"error\":[1]}"]
    {
        assert_eq!(class(520, body), Class::Transient, "{body}");
        assert_eq!(class(529, body), Class::Overloaded, "{body}");
        assert_eq!(class(413, body), Class::Invalid, "{body}");
    }
    assert_eq!(verdict(413, "").hint(), Hint::Modify);
}

#[test]
fn a_429_is_narrowed_to_quota_or_overload_by_its_text_only_where_no_code_says_more() {
    // V-A2
    let text =
        r#"{"error":{"message":"You exceeded your current quota, please check your plan and billing"}}"#;
    assert_eq!(class(429, text), Class::Quota);
    let typed = r#"{"error":{"message":"You exceeded your current quota","status":"RESOURCE_EXHAUSTED"}}"#;
    assert_eq!(class(429, typed), Class::RateLimited);
    let overloaded =
        r#"{"object":"error","message":"Service tier capacity exceeded for this model.","code":"3505"}"#;
    assert_eq!(class(429, overloaded), Class::Overloaded);
}

#[test]
fn a_404_is_about_the_model_only_when_it_says_so() {
    assert_eq!(class(404, r#"{"error":"model 'nope' not found"}"#), Class::ModelNotFound);
    assert_eq!(class(404, r#"{"error":{"code":"DeploymentNotFound","message":"x"}}"#), Class::ModelNotFound);
    assert_eq!(class(404, "<html>not found</html>"), Class::Invalid);
    assert_eq!(class(404, r#"{"detail":"Not Found"}"#), Class::Invalid);
}

#[test]
fn rate_limit_headers_inside_a_body_are_advice() {
    let at = advice::wall_clock().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() + 30_000;
    let body = format!(
        r#"{{"error":{{"code":429,"message":"x","metadata":{{"headers":{{
            "X-RateLimit-Remaining":"0","X-RateLimit-Reset":"{at}"}}}}}}}}"#
    );
    let wait = verdict(429, &body).retry_after().unwrap();
    assert!(wait > Duration::from_secs(25) && wait <= Duration::from_secs(30), "{wait:?}");
    let text = r#"{"error":{"code":"429","message":"Please retry after 26 seconds."}}"#;
    assert_eq!(verdict(429, text).retry_after(), None);
}

/// An error of Google's with these details.
fn of_google(message: &str, details: &str) -> String {
    format!(
        r#"{{"error":{{"code":429,"message":"{message}","status":"RESOURCE_EXHAUSTED","details":[{details}]}}}}"#
    )
}

const SENTENCE: &str = "You exceeded your current quota, please check your plan and billing details.";
const PER_DAY: &str = r#"{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[
    {"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier","quotaValue":"250"}]}"#;
const PER_MINUTE: &str = r#"{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[
    {"quotaId":"GenerateContentInputTokensPerModelPerMinute-FreeTier","quotaValue":"250000"}]}"#;
const RETRY: &str = r#"{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.07s"}"#;

#[test]
fn googles_limit_by_the_day_is_quota_and_its_advice_to_wait_is_dropped() {
    for body in [
        of_google(SENTENCE, &format!("{PER_DAY},{RETRY}")),
        of_google(SENTENCE, &format!("{PER_MINUTE},{PER_DAY},{RETRY}")),
        of_google(
            &format!(r"{SENTENCE}\n* Quota exceeded for metric: x, limit: 0, model: gemini-2.5-pro"),
            RETRY,
        ),
        of_google(SENTENCE, r#"{"violations":[{"quotaId":"x","quotaValue":"0"}]}"#),
        // As its OpenAI-compatible endpoint wraps it, and as a gateway passes it on inside a message.
        format!("[{}]", of_google(SENTENCE, &format!("{PER_DAY},{RETRY}"))),
        format!(
            r#"{{"error":{{"message":{}}}}}"#,
            serde_json::to_string(&of_google(SENTENCE, PER_DAY)).unwrap()
        ),
    ] {
        let verdict = verdict(429, &body);
        assert_eq!((verdict.class(), verdict.hint()), (Class::Quota, Hint::Fallback), "{body}");
        assert_eq!(verdict.retry_after(), None, "{body}");
    }
}

#[test]
fn googles_limit_by_the_minute_is_a_rate_limit_with_the_delay_that_it_names() {
    for (details, wait) in [
        (format!("{PER_MINUTE},{RETRY}"), Some(34_070)),
        (r#"{"retryDelay":"900ms"}"#.to_owned(), Some(900)),
        (PER_MINUTE.to_owned(), None),
        (r#"{"retryDelay":"0s"}"#.to_owned(), None),
        (r#"{"retryDelay":"soon"}"#.to_owned(), None),
    ] {
        let verdict = verdict(429, &of_google(SENTENCE, &details));
        assert_eq!(verdict.class(), Class::RateLimited, "{details}");
        assert_eq!(verdict.retry_after(), wait.map(Duration::from_millis), "{details}");
    }
}

#[test]
fn the_reasons_of_googles_errors_decide_over_their_status() {
    let of = |status: u16, name: &str, reason: &str| {
        let body = format!(
            r#"{{"error":{{"code":{status},"message":"x","status":"{name}","details":[{{"reason":"{reason}"}}]}}}}"#
        );
        let verdict = verdict(status, &body);
        (verdict.class(), verdict.hint())
    };
    assert_eq!(of(400, "INVALID_ARGUMENT", "API_KEY_INVALID"), (Class::Auth, Hint::Fallback));
    assert_eq!(of(403, "PERMISSION_DENIED", "SERVICE_DISABLED"), (Class::Auth, Hint::Fallback));
    assert_eq!(of(403, "PERMISSION_DENIED", "BILLING_DISABLED"), (Class::Quota, Hint::Fallback));
    assert_eq!(of(429, "RESOURCE_EXHAUSTED", "RATE_LIMIT_EXCEEDED"), (Class::RateLimited, Hint::After));
    // One model is full: another is asked at once.
    assert_eq!(of(503, "UNAVAILABLE", "MODEL_CAPACITY_EXHAUSTED"), (Class::Overloaded, Hint::Fallback));
}

#[test]
fn a_limit_of_zero_counts_only_where_a_limit_was_met() {
    // V-A4
    assert_eq!(class(400, r#"{"error":{"message":"bad value, limit: 0","code":400}}"#), Class::Invalid);
    assert_eq!(class(503, r#"{"error":{"message":"limit: 0","status":"UNAVAILABLE"}}"#), Class::Overloaded);
    assert_eq!(class(429, r#"{"error":{"message":"limit: 0"}}"#), Class::Quota);
    assert_eq!(class(429, r#"{"error":{"message":"limit: 05"}}"#), Class::RateLimited);
}

#[test]
fn an_error_body_in_another_encoding_or_behind_a_mark_says_what_it_says() {
    // G18: the parser is total on any bytes, and what is typed in them counts.
    let body = |mark: &[u8], message: &[u8]| {
        [mark, br#"{"error":{"code":"insufficient_quota","message":""#, message, br#""}}"#].concat()
    };
    for body in [body(b"", b"cr\xE9dit"), body(b"\xEF\xBB\xBF", b""), body(b"\xEF\xBB\xBF", b"cr\xE9dit")] {
        for status in [200, 429].map(|status| StatusCode::from_u16(status).unwrap()) {
            for provider in Provider::ALL {
                let facts = provider.judge(status, &HeaderMap::new(), &body, &Offered::unknown());
                let class = facts.verdict.unwrap().class();
                assert_eq!(class, Class::Quota, "{provider:?} {status} {}", body.escape_ascii());
            }
        }
    }
}

#[test]
fn a_path_that_is_missing_is_no_missing_model_though_there_is_such_a_word_in_it() {
    for message in [
        "Unknown request URL: POST /v1/modelz. Please check the URL for typos",
        "Invalid URL (POST /v1/engines/x)",
        "Cannot POST /v1/deployments",
    ] {
        assert_eq!(
            class(404, &format!(r#"{{"error":{{"message":"{message}"}}}}"#)),
            Class::Invalid,
            "{message}"
        );
    }
    assert_eq!(class(404, r#"{"error":{"message":"models/x is not found"}}"#), Class::ModelNotFound);
}

#[test]
fn a_job_that_is_told_with_an_error_of_its_own_is_told_well() {
    let told = |body: &str| {
        let offered = Offered::of_body(br#"{"input":{}}"#);
        let facts = Provider::Auto.judge(StatusCode::OK, &HeaderMap::new(), body.as_bytes(), &offered);
        facts.verdict.unwrap().class()
    };
    assert_eq!(told(r#"{"id":"p1","status":"failed","error":"disk full"}"#), Class::Success);
    assert_eq!(told(r#"{"error":"disk full"}"#), Class::Transient);
}
