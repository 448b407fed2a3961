//! Streamed Messages through the decoder, by a layer that was told the dialect and by one that recognises it.

use crate::common::{Told, decoder_of, read_of};
use bytes::Bytes;
use failsoft_core::{Class, Finish, Hint, SoftKind, Verdict};
use http::Request;
use llm_layer::Provider;
use stream_layer::Decoder as _;

const START: &str = r#"{"type":"message_start","message":{"type":"message","content":[],"stop_reason":null,
    "usage":{"input_tokens":25,"output_tokens":1}}}"#;
const STOP: &str = r#"{"type":"message_stop"}"#;
const TOOL: &str = r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t1","name":"get","input":{}}}"#;

fn ask(tools: &str) -> Request<String> {
    let body = format!(r#"{{"model":"m","max_tokens":99,"messages":[],"stream":true{tools}}}"#);
    Request::post("http://a/v1/messages").body(body).unwrap()
}

fn stream(events: &[&str]) -> String {
    let name = |event: &str| event.split('"').nth(3).unwrap().to_owned();
    events
        .iter()
        .map(|event| format!("event: {}\ndata: {}\n\n", name(event), event.replace('\n', "")))
        .collect()
}

/// A stream of these events; the same whether the dialect was told, recognised by the path, or by the events.
fn told(tools: &str, events: &[&str]) -> Told {
    let bytes = stream(events);
    let told = read_of(Provider::Anthropic, &ask(tools), [bytes.as_bytes()]);
    let recognised = read_of(Provider::Auto, &ask(tools), [bytes.as_bytes()]);
    assert_eq!(told.said(), recognised.said());
    if tools.is_empty() {
        assert_eq!(told.said(), read_of(Provider::Auto, &(), [bytes.as_bytes()]).said());
    }
    told
}

fn text(text: &str) -> String {
    format!(r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{text}"}}}}"#)
}

fn input(json: &str) -> String {
    let json = serde_json::to_string(json).unwrap();
    format!(
        r#"{{"type":"content_block_delta","index":1,"delta":{{"type":"input_json_delta","partial_json":{json}}}}}"#
    )
}

fn block_stop(index: u64) -> String {
    format!(r#"{{"type":"content_block_stop","index":{index}}}"#)
}

fn end(reason: &str) -> String {
    format!(
        r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}"}},"usage":{{"output_tokens":15}}}}"#
    )
}

const NOTHING: &str = r#","tools":[{"name":"get","input_schema":{"type":"object","properties":{}}}]"#;
const OPTIONAL: &str = r#","tools":[{"name":"get","input_schema":{"properties":{"city":{}}}}]"#;
const CITY: &str = r#","tools":[{"name":"get","input_schema":{"type":"object","properties":{"city":{}},"required":["city"]}}]"#;

#[test]
fn an_answer_is_whole_at_its_stop_event_and_cut_anywhere_before_it() {
    let (first, stop) = (text("a"), end("end_turn"));
    let whole = told("", &[START, &first, &block_stop(0), &stop, STOP]);
    assert_eq!((whole.class(), whole.facts.text.as_deref()), (Class::Success, Some("a")));
    assert_eq!(whole.facts.finish, Some(Finish::Stop));
    // Both counts are cumulative: the last wins.
    assert_eq!((whole.facts.usage.input, whole.facts.usage.output), (Some(25), Some(15)));
    for cut in [&[START][..], &[START, &first], &[START, &first, &block_stop(0)], &[START, &first, &stop]] {
        let told = told("", cut);
        assert_eq!((told.said(), told.end.is_err()), (("soft.truncated", Hint::Same), true), "{cut:?}");
        assert_eq!(told.facts.usage.input, Some(25), "what was used is known all the same");
    }
    assert_eq!(told("", &[]).said(), ("soft.empty", Hint::Same));
}

#[test]
fn every_stop_reason_is_a_verdict_of_a_stream_that_came_to_its_end() {
    let first = text("a");
    for (reason, said) in [
        ("stop_sequence", ("success", Hint::Never)),
        ("pause_turn", ("success", Hint::Continue)),
        ("max_tokens", ("soft.truncated", Hint::Modify)),
        ("model_context_window_exceeded", ("soft.truncated", Hint::Modify)),
        ("refusal", ("refused", Hint::Fallback)),
        ("tool_use", ("soft.tool_call", Hint::Same)),
        ("compaction", ("soft.low_confidence", Hint::Same)),
    ] {
        let told = told("", &[START, &first, &end(reason), STOP]);
        assert_eq!((told.said(), told.end.is_ok()), (said, true), "{reason}");
    }
    assert_eq!(told("", &[START, &end("end_turn"), STOP]).said(), ("soft.empty", Hint::Modify));
}

#[test]
fn fragments_of_arguments_are_put_together_and_strictly_parsed_once() {
    // V-D1, V-D3
    let (stop, over) = (block_stop(1), end("tool_use"));
    let good = told(
        CITY,
        &[START, TOOL, &input(""), &input(r#"{"city": "Os"#), &input(r#"lo"}"#), &stop, &over, STOP],
    );
    assert_eq!((good.class(), good.facts.finish), (Class::Success, Some(Finish::ToolCalls)));
    let call = &good.facts.tool_calls[0];
    assert_eq!(
        (call.id.as_deref(), &*call.name, &*call.arguments),
        (Some("t1"), "get", r#"{"city": "Oslo"}"#)
    );
    for arguments in [r#"{"city": "Os"#, "[]", "7"] {
        let told = told(CITY, &[START, TOOL, &input(arguments), &stop, &over, STOP]);
        assert_eq!((told.class(), told.end.is_ok()), (Class::Soft(SoftKind::ToolCall), true), "{arguments}");
        assert_eq!(&*told.facts.tool_calls[0].arguments, arguments, "never repaired");
        assert_eq!(told.facts.report.leading().and_then(|finding| finding.path()), Some("/content/1/input"));
    }
    let cut = told(CITY, &[START, TOOL, &input(r#"{"city"#), &end("max_tokens"), STOP]);
    assert_eq!(cut.said(), ("soft.truncated", Hint::Modify));
    let unknown = told(r#","tools":[]"#, &[START, TOOL, &input("{}"), &stop, &over, STOP]);
    assert_eq!(unknown.class(), Class::Soft(SoftKind::UnknownTool));
}

#[test]
fn no_fragment_is_the_empty_object_unless_the_tool_needs_arguments() {
    // V-D1
    let events = [START, TOOL, &input(""), &block_stop(1), &end("tool_use"), STOP];
    for tools in [OPTIONAL, NOTHING] {
        let told = told(tools, &events);
        assert_eq!((told.class(), &*told.facts.tool_calls[0].arguments), (Class::Success, "{}"), "{tools}");
    }
    let needy = told(CITY, &events);
    assert_eq!((needy.class(), &*needy.facts.tool_calls[0].arguments), (Class::Soft(SoftKind::ToolCall), ""));
    // A block that never came to its end is no call without arguments.
    let open = told(OPTIONAL, &[START, TOOL, &end("tool_use"), STOP]);
    assert_eq!(open.class(), Class::Soft(SoftKind::ToolCall));
}

#[test]
fn an_error_event_is_the_failure_that_its_type_names_wherever_it_comes() {
    // G25, V-C1
    let first = text("a");
    for (kind, class) in [
        ("overloaded_error", Class::Overloaded),
        ("rate_limit_error", Class::RateLimited),
        ("api_error", Class::Transient),
        ("authentication_error", Class::Auth),
        ("billing_error", Class::Quota),
        ("never_seen_error", Class::Transient),
    ] {
        let error = format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"x"}}}}"#);
        for events in [&[START, &error][..], &[START, &first, &error], &[&error]] {
            let told = told("", events);
            assert_eq!((told.class(), told.end.is_err()), (class, true), "{kind}");
        }
    }
}

#[test]
fn pings_and_signatures_are_no_content_and_thoughts_are() {
    let silent = [
        START,
        r#"{"type":"ping"}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"x"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
    ];
    let (mut decoder, _) = decoder_of(Provider::Anthropic, &ask(""));
    let seen = decoder.feed(&Bytes::from(stream(&silent)));
    assert!(!seen.content && seen.progress && !seen.is_over());
    let (mut decoder, _) = decoder_of(Provider::Anthropic, &ask(""));
    let seen = decoder.feed(&Bytes::from(stream(&silent[1..2])));
    assert!(!seen.content && !seen.progress && seen.events == 0, "a ping is not even counted");
    for content in [
        text("a"),
        TOOL.to_owned(),
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}"#
            .to_owned(),
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"redacted_thinking","data":"x"}}"#
            .to_owned(),
    ] {
        let (mut decoder, _) = decoder_of(Provider::Anthropic, &ask(""));
        assert!(decoder.feed(&Bytes::from(stream(&[START, &content]))).content, "{content}");
    }
}

#[test]
fn thoughts_alone_are_an_empty_answer() {
    let thought =
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}"#;
    assert_eq!(told("", &[START, thought, &end("end_turn"), STOP]).said(), ("soft.empty", Hint::Modify));
}

#[test]
fn what_a_tool_of_anthropics_own_is_asked_is_content_and_no_call() {
    let own = r#"{"type":"content_block_start","index":1,"content_block":{"type":"server_tool_use","id":"s","name":"web_search","input":{}}}"#;
    let told = told("", &[START, own, &input(r#"{"query":"x"}"#), &block_stop(1), &end("pause_turn"), STOP]);
    assert_eq!((told.said(), told.facts.tool_calls.len()), (("success", Hint::Continue), 0));
    assert!(told.content);
}

#[test]
fn a_stream_of_another_dialect_is_none_of_messages() {
    let chat = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n";
    let asked = read_of(Provider::Anthropic, &ask(""), [chat.as_bytes()]);
    assert_eq!(asked.said(), ("transient", Hint::Same), "`[DONE]` is no JSON");
    let other = "data: {\"kind\":\"x\"}\n\n";
    assert_eq!(
        read_of(Provider::Anthropic, &ask(""), [other.as_bytes()]).said(),
        ("soft.malformed", Hint::Same)
    );
    assert_eq!(read_of(Provider::Anthropic, &(), [other.as_bytes()]).end.unwrap(), None::<Verdict>);
}
