use bytes::Bytes;
use failsoft_core::{Facts, Finding, Report, Severity, ToolCall, Verdict};
use serde_json::{Value, json};

use super::*;

fn bad(kind: SoftKind, facts: &Facts, findings: Vec<Finding>) -> BadAnswer {
    let mut report = Report::new();
    report.extend(findings);
    BadAnswer::new(Verdict::soft(kind), report, facts)
}

fn missing_city(text: &str) -> BadAnswer {
    let mut facts = Facts::default();
    facts.text = Some(text.into());
    let note = Finding::new(SoftKind::Schema, "note", "not worth telling").with_severity(Severity::Warning);
    let finding = Finding::new(SoftKind::MissingField, "required", "a required field is missing").at("/city");
    bad(SoftKind::MissingField, &facts, vec![note, finding])
}

/// Two calls: the first is fine, the second has half a JSON object for arguments.
fn half_a_call() -> BadAnswer {
    let mut facts = Facts::default();
    facts.tool_calls =
        vec![ToolCall::new("look", r#"{"at":"x"}"#).with_id("c1"), ToolCall::new("pay", r#"{"to": "#)];
    facts.finish = Some(Finish::ToolCalls);
    let finding = Finding::new(SoftKind::ToolCall, "tool.arguments", "arguments of `pay`: cut");
    bad(SoftKind::ToolCall, &facts, vec![finding.at("/choices/0/message/tool_calls/1/function/arguments")])
}

fn cut() -> BadAnswer {
    let mut facts = Facts::default();
    facts.text = Some("The ans".into());
    facts.finish = Some(Finish::Length);
    bad(SoftKind::Truncated, &facts, Vec::new())
}

fn changed(reask: &ChatReask, body: &str, bad: &BadAnswer) -> Value {
    serde_json::from_str(&reask.change(body, bad).unwrap()).unwrap()
}

const WRONG: &str = "Your last answer cannot be used.\n- required at /city: a required field is missing\n\
    Answer again, in full, with this put right, and write nothing else.";
const BODY: &str = r#"{"max_tokens": 100, "messages": [{"role": "user", "content": "?"}]}"#;

#[test]
fn a_text_is_sent_back_with_what_is_wrong_with_it() {
    let user = json!({"role": "user", "content": "?"});
    assert_eq!(
        changed(&ChatReask::openai(), BODY, &missing_city("{}"))["messages"],
        json!([user, {"role": "assistant", "content": "{}"}, {"role": "user", "content": WRONG}])
    );
    assert_eq!(
        changed(&ChatReask::anthropic(), BODY, &missing_city("{}"))["messages"],
        json!([
            user,
            {"role": "assistant", "content": [{"type": "text", "text": "{}"}]},
            {"role": "user", "content": [{"type": "text", "text": WRONG}]}
        ])
    );
    let gemini = r#"{"contents": [{"parts": [{"text": "?"}]}]}"#;
    assert_eq!(
        changed(&ChatReask::gemini(), gemini, &missing_city("{}"))["contents"],
        json!([
            {"parts": [{"text": "?"}]},
            {"role": "model", "parts": [{"text": "{}"}]},
            {"role": "user", "parts": [{"text": WRONG}]}
        ])
    );
}

#[test]
fn nothing_is_not_sent_back_as_an_answer() {
    for reask in [ChatReask::openai(), ChatReask::anthropic()] {
        let messages = &changed(&reask, BODY, &missing_city(" \n"))["messages"];
        assert_eq!((messages.as_array().unwrap().len(), &messages[1]["role"]), (2, &json!("user")));
    }
}

#[test]
fn every_tool_call_gets_a_result_of_its_own() {
    let messages = &changed(&ChatReask::openai().instruction("Again."), BODY, &half_a_call())["messages"];
    let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    assert_eq!(
        messages[1],
        json!({"role": "assistant", "content": null,
               "tool_calls": [call("c1", "look", "{\"at\":\"x\"}"), call("call_1", "pay", "{}")]})
    );
    assert_eq!((&messages[2]["role"], &messages[2]["tool_call_id"]), (&json!("tool"), &json!("c1")));
    assert!(messages[2]["content"].as_str().unwrap().starts_with("Not called: something else"));
    assert_eq!((&messages[3]["role"], &messages[3]["tool_call_id"]), (&json!("tool"), &json!("call_1")));
    assert_eq!(
        messages[3]["content"],
        "Not called. Your last answer cannot be used.\n\
         - tool.arguments at /choices/0/message/tool_calls/1/function/arguments: arguments of `pay`: cut\n\
         Again.\nThe arguments were: {\"to\": "
    );
    assert_eq!(messages.as_array().unwrap().len(), 4);
}

#[test]
fn anthropics_results_stand_in_one_turn() {
    let messages = &changed(&ChatReask::anthropic(), BODY, &half_a_call())["messages"];
    assert_eq!(messages.as_array().unwrap().len(), 3);
    assert_eq!(
        messages[1]["content"],
        json!([{"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "x"}},
               {"type": "tool_use", "id": "call_1", "name": "pay", "input": {}}])
    );
    let results = messages[2]["content"].as_array().unwrap();
    let ids: Vec<_> = results.iter().map(|result| result["tool_use_id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["c1", "call_1"]);
    assert!(results.iter().all(|result| result["type"] == "tool_result" && result["is_error"] == true));
}

#[test]
fn calls_that_need_what_was_not_kept_are_repeated_in_words() {
    let thinking = r#"{"thinking": {"type": "enabled", "budget_tokens": 9}, "messages": []}"#;
    let messages = &changed(&ChatReask::anthropic(), thinking, &half_a_call())["messages"];
    let text = messages[0]["content"][0]["text"].as_str().unwrap();
    assert_eq!(messages.as_array().unwrap().len(), 1);
    assert!(
        text.starts_with(
            "You called `look` with: {\"at\":\"x\"}\nYou called `pay` with: {\"to\": \nYour last"
        )
    );
    let off = r#"{"thinking": {"type": "disabled"}, "messages": []}"#;
    assert_eq!(changed(&ChatReask::anthropic(), off, &half_a_call())["messages"][0]["role"], "assistant");
    let contents = &changed(&ChatReask::gemini(), r#"{"contents": []}"#, &half_a_call())["contents"];
    assert_eq!((contents.as_array().unwrap().len(), &contents[0]["role"]), (1, &json!("user")));
}

#[test]
fn openais_responses_take_a_text_or_a_list() {
    let reask = ChatReask::openai_responses().max_tokens_up_to(90);
    let told = json!([
        {"role": "user", "content": "Where?\n"},
        {"role": "assistant", "content": "{}"},
        {"role": "user", "content": WRONG}
    ]);
    let text = r#"{"input": "Where?\n", "max_output_tokens": 50}"#;
    assert_eq!(changed(&reask, text, &missing_city("{}"))["input"], told);
    let list = r#"{"input": [{"role": "user", "content": "Where?\n"}]}"#;
    assert_eq!(changed(&reask, list, &missing_city("{}"))["input"], told);
    assert_eq!(reask.change(text, &cut()).unwrap(), text.replace("50", "90"));
    let input = &changed(&reask, text, &half_a_call())["input"];
    assert!(input[1]["content"].as_str().unwrap().starts_with("You called `look`"));
}

#[test]
fn where_calls_lie_among_other_things_a_finding_is_told_by_its_name() {
    let mut facts = Facts::default();
    facts.tool_calls = vec![ToolCall::new("look", "{}"), ToolCall::new("pay", "[]")];
    let finding = Finding::new(SoftKind::ToolCall, "tool.arguments", "arguments of `pay`: no object");
    let bad = bad(SoftKind::ToolCall, &facts, vec![finding.at("/content/2/input")]);
    let messages = &changed(&ChatReask::anthropic(), BODY, &bad)["messages"];
    let said = |i: usize| messages[2]["content"][i]["content"].as_str().unwrap();
    assert!(said(0).starts_with("Not called: something else") && said(1).contains("no object"));
    assert_eq!(messages[2]["content"].as_array().unwrap().len(), 2);
}

#[test]
fn a_tool_that_takes_free_text_keeps_it() {
    let mut facts = Facts::default();
    let mut call = ToolCall::new("sql", "select");
    call.free_text = true;
    facts.tool_calls = vec![call];
    let finding = Finding::new(SoftKind::UnknownTool, "tool.unknown", "no tool `sql`").at("/tool_calls/0");
    let bad = bad(SoftKind::UnknownTool, &facts, vec![finding]);
    let messages = &changed(&ChatReask::openai(), BODY, &bad)["messages"];
    assert_eq!(
        messages[1]["tool_calls"],
        json!([{"id": "call_0", "type": "custom", "custom": {"name": "sql", "input": "select"}}])
    );
    assert!(messages[2]["content"].as_str().unwrap().contains("no tool `sql`"));
}

#[test]
fn what_is_not_about_a_call_is_said_apart() {
    let mut facts = Facts::default();
    facts.tool_calls = vec![ToolCall::new("look", "{}").with_id("c1")];
    let finding = Finding::new(SoftKind::Schema, "style", "be brief");
    let bad = bad(SoftKind::Schema, &facts, vec![finding]);
    let messages = &changed(&ChatReask::openai(), BODY, &bad)["messages"];
    assert_eq!(messages[3]["role"], "user");
    assert!(messages[3]["content"].as_str().unwrap().contains("style: be brief"));
}

// V-D3
#[test]
fn a_cut_answer_is_never_asked_for_again_as_it_was_but_with_more_tokens_up_to_a_bound() {
    for reask in [ChatReask::openai(), ChatReask::anthropic(), ChatReask::gemini()] {
        assert_eq!(reask.change(BODY, &cut()), None, "no bound");
        let unlimited = r#"{"messages": [], "contents": []}"#;
        assert_eq!(reask.max_tokens_up_to(1_000).change(unlimited, &cut()), None, "no limit");
    }
    let reask = ChatReask::openai().max_tokens_up_to(150);
    assert_eq!(reask.change(BODY, &cut()).unwrap(), BODY.replace("100", "150"));
    assert_eq!(reask.change(&BODY.replace("100", "150"), &cut()), None, "at the bound");
    let reask = ChatReask::anthropic().max_tokens_up_to(1_000);
    assert_eq!(reask.change(BODY, &cut()).unwrap(), BODY.replace("100", "200"));
    // OpenAI's newer name goes before the older.
    let both = r#"{"max_completion_tokens": 7, "max_tokens": 5, "messages": []}"#;
    assert_eq!(
        ChatReask::openai().max_tokens_up_to(1_000).change(both, &cut()).unwrap(),
        both.replace('7', "14")
    );
    let gemini = r#"{"contents": [], "generationConfig": {"temperature": 0, "maxOutputTokens": 64}}"#;
    let raised = ChatReask::gemini().max_tokens_up_to(u64::MAX).change(gemini, &cut()).unwrap();
    assert_eq!(raised, gemini.replace("64", "128"));
}

#[test]
fn an_answer_that_is_only_short_is_told_so() {
    let mut facts = Facts::default();
    facts.text = Some("No.".into());
    facts.finish = Some(Finish::Stop);
    let finding = Finding::new(SoftKind::Truncated, "length.short", "3 of 200 characters");
    let bad = bad(SoftKind::Truncated, &facts, vec![finding]);
    assert_eq!(changed(&ChatReask::openai(), BODY, &bad)["messages"][1]["content"], "No.");
}

// V-F2
#[test]
fn an_answer_too_long_to_be_sent_again_is_left_out() {
    let bad = missing_city(&"x".repeat(failsoft_core::MAX_ANSWER + 1));
    let messages = &changed(&ChatReask::openai(), BODY, &bad)["messages"];
    assert_eq!((messages.as_array().unwrap().len(), &messages[1]["content"]), (2, &json!(WRONG)));
}

// G80
#[test]
fn the_headers_are_put_right() {
    let request = |body: &str| {
        http::Request::post("http://a/")
            .header("content-length", body.len())
            .header("idempotency-key", "k")
            .body(Bytes::from(body.to_owned()))
            .unwrap()
    };
    let changed = ChatReask::openai().reask(request(BODY), &missing_city("{}").with_number(2)).unwrap();
    let header = |name: &str| changed.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(header("content-length"), changed.body().len().to_string());
    assert_eq!(header("cache-control"), "no-cache");
    assert_eq!(header("idempotency-key"), "k-reask-2");
}

#[test]
fn a_body_that_is_compressed_or_no_chat_is_not_changed() {
    let mut request = http::Request::post("http://a/").body(BODY.to_owned()).unwrap();
    request.headers_mut().insert("content-encoding", "gzip".parse().unwrap());
    assert!(ChatReask::openai().reask(request, &missing_city("{}")).is_none());
    for body in ["", "{}", r#"{"input": "embed me"}"#, r#"{"messages": 1}"#, "\u{0}"] {
        assert_eq!(ChatReask::openai().change(body, &missing_city("{}")), None, "{body}");
    }
}

#[test]
fn a_request_that_is_signed_is_not_changed() {
    for (name, value, signed) in [
        (
            "authorization",
            "AWS4-HMAC-SHA256 Credential=a/20260101/eu/bedrock/aws4_request, Signature=0",
            true,
        ),
        ("authorization", "Bearer AWS4", false),
        ("content-md5", "1B2M2Y8AsgTpgAmY7PhCfg==", true),
        ("content-digest", "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:", true),
        ("x-amz-content-sha256", "UNSIGNED-PAYLOAD", true),
        ("signature", "sig1=:AA==:", true),
        ("digest", "SHA-256=47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=", true),
        ("authorization", "TC3-HMAC-SHA256 Credential=a/2026-01-01/hunyuan/tc3_request, Signature=0", true),
        ("authorization", "acs3-hmac-sha256 Credential=a,Signature=0", true),
        ("authorization", "Signature version=\"1\",keyId=\"a\",signature=\"0\"", true),
        ("authorization", "Bearer HMAC-SHA256", false),
        ("x-acs-content-sha256", "0", true),
        ("x-content-sha256-of-another", "0", false),
    ] {
        let request = http::Request::post("http://a/").header(name, value).body(BODY.to_owned()).unwrap();
        assert_eq!(
            ChatReask::openai().reask(request, &missing_city("{}")).is_none(),
            signed,
            "{name}: {value}"
        );
    }
}

#[test]
fn a_request_to_a_presigned_url_is_not_changed() {
    for (query, signed) in [
        ("", false),
        ("X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Expires=60&X-Amz-Signature=0", true),
        ("x-goog-signature=0&a=b", true),
        ("api-version=2026-01-01&note=X-Amz-Signature", false),
        ("sig=0", false),
    ] {
        let url = format!("http://a/v1?{query}");
        let request = http::Request::post(&url).body(BODY.to_owned()).unwrap();
        assert_eq!(ChatReask::openai().reask(request, &missing_city("{}")).is_none(), signed, "{query}");
        #[cfg(feature = "reqwest-013")]
        {
            let mut request = reqwest::Request::new(http::Method::POST, url.parse().unwrap());
            *request.body_mut() = Some(BODY.into());
            assert_eq!(ChatReask::openai().reask(request, &missing_city("{}")).is_none(), signed, "{query}");
        }
    }
}

#[test]
fn the_length_that_was_stated_is_that_of_the_changed_body() {
    for stated in [Some(BODY.len().to_string()), None] {
        let mut request = http::Request::post("http://a/");
        if let Some(length) = &stated {
            request = request.header("content-length", length);
        }
        let request = request.body(BODY.to_owned()).unwrap();
        let changed = ChatReask::openai().reask(request, &missing_city("{}")).unwrap();
        let length =
            changed.headers().get("content-length").map(|length| length.to_str().unwrap().to_owned());
        assert!(changed.body().len() > BODY.len());
        assert_eq!(length, stated.map(|_| changed.body().len().to_string()));
    }
}

#[test]
fn a_body_that_is_not_utf_8_is_not_changed() {
    let body = [BODY.as_bytes(), b"\xff"].concat();
    let request = http::Request::post("http://a/").body(body).unwrap();
    assert!(ChatReask::openai().reask(request, &missing_city("{}")).is_none());
}

#[cfg(feature = "http-body-util-01")]
#[test]
fn a_full_body_is_read_and_replaced() {
    use http_body_util::{BodyExt as _, Full};
    let request = http::Request::post("http://a/").body(Full::from(Bytes::from(BODY))).unwrap();
    let changed = ChatReask::openai().reask(request, &missing_city("{}")).unwrap();
    let body = tokio_test::block_on(changed.into_body().collect()).unwrap().to_bytes();
    assert!(body.starts_with(br#"{"max_tokens": 100, "messages": [{"role": "user", "content": "?"},{"#));
}
