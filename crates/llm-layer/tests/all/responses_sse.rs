//! Streamed Responses through the decoder, by a layer that was told the dialect and by one that recognises it.

use crate::common::{Told, decoder_of, read_of};
use bytes::Bytes;
use failsoft_core::{Class, Finish, Hint, SoftKind};
use http::Request;
use llm_layer::Provider;
use stream_layer::Decoder as _;

const CREATED: &str =
    r#"{"type":"response.created","response":{"object":"response","status":"in_progress","output":[]}}"#;
const CALL: &str = r#"{"type":"response.output_item.added","output_index":0,
    "item":{"type":"function_call","id":"fc","call_id":"c1","name":"get","arguments":""}}"#;

fn ask(more: &str) -> Request<String> {
    let body = format!(r#"{{"model":"m","input":"?","stream":true{more}}}"#);
    Request::post("http://a/v1/responses").body(body).unwrap()
}

fn stream(events: &[&str]) -> String {
    let name = |event: &str| event.split('"').nth(3).unwrap().to_owned();
    events
        .iter()
        .map(|event| format!("event: {}\ndata: {}\n\n", name(event), event.replace('\n', "")))
        .collect()
}

fn told(more: &str, events: &[&str]) -> Told {
    let bytes = stream(events);
    let told = read_of(Provider::OpenAiResponses, &ask(more), [bytes.as_bytes()]);
    assert_eq!(told.said(), read_of(Provider::Auto, &ask(more), [bytes.as_bytes()]).said());
    if more.is_empty() {
        assert_eq!(told.said(), read_of(Provider::Auto, &(), [bytes.as_bytes()]).said());
    }
    told
}

fn text(text: &str) -> String {
    format!(r#"{{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"{text}"}}"#)
}

fn arguments(text: &str) -> String {
    let text = serde_json::to_string(text).unwrap();
    format!(r#"{{"type":"response.function_call_arguments.delta","output_index":0,"delta":{text}}}"#)
}

fn over(status: &str, more: &str) -> String {
    format!(
        r#"{{"type":"response.{status}","response":{{"object":"response","status":"{status}"{more},
            "usage":{{"input_tokens":9,"output_tokens":4}}}}}}"#
    )
}

const SAID: &str = r#","output":[{"type":"message","content":[{"type":"output_text","text":"ab"}]}]"#;

#[test]
fn an_answer_is_whole_at_its_last_event_and_cut_anywhere_before_it() {
    let whole = told("", &[CREATED, &text("a"), &text("b"), &over("completed", SAID)]);
    assert_eq!((whole.class(), whole.facts.text.as_deref()), (Class::Success, Some("ab")));
    assert_eq!((whole.facts.usage.input, whole.facts.usage.output), (Some(9), Some(4)));
    for cut in [&[CREATED][..], &[CREATED, &text("a")]] {
        let told = told("", cut);
        assert_eq!((told.said(), told.end.is_err()), (("soft.truncated", Hint::Same), true));
    }
    // OpenAI's older mark is no end of a response.
    let done = format!("{}data: [DONE]\n\n", stream(&[CREATED, &text("a")]));
    assert_eq!(
        read_of(Provider::OpenAiResponses, &ask(""), [done.as_bytes()]).said(),
        ("soft.truncated", Hint::Same)
    );
    assert_eq!(told("", &[]).said(), ("soft.empty", Hint::Same));
}

#[test]
fn what_came_in_pieces_counts_where_the_last_event_does_not_repeat_it() {
    let told = told("", &[CREATED, &text("a"), &text("b"), &over("completed", r#","output":[]"#)]);
    assert_eq!((told.class(), told.facts.text.as_deref()), (Class::Success, Some("ab")));
    assert_eq!((told.facts.finish, told.facts.output_bytes), (Some(Finish::Stop), 2));
    assert_eq!(self::told("", &[CREATED, &over("completed", "")]).said(), ("soft.empty", Hint::Same));
}

#[test]
fn every_end_has_its_meaning() {
    let first = text("a");
    for (more, said) in [
        (r#","incomplete_details":{"reason":"max_output_tokens"}"#, ("soft.truncated", Hint::Modify)),
        (r#","incomplete_details":{"reason":"content_filter"}"#, ("refused", Hint::Fallback)),
        (r#","incomplete_details":{"reason":"tired"}"#, ("soft.low_confidence", Hint::Same)),
    ] {
        for output in ["", SAID] {
            let told = told("", &[CREATED, &first, &over("incomplete", &format!("{more}{output}"))]);
            assert_eq!((told.said(), told.end.is_ok()), (said, true), "{more}");
        }
    }
    let refused = r#"{"type":"response.refusal.delta","output_index":0,"delta":"I can't"}"#;
    let told = told("", &[CREATED, refused, &over("completed", "")]);
    assert_eq!((told.said(), told.content), (("refused", Hint::Fallback), true));
}

#[test]
fn a_failed_response_and_an_error_event_are_the_failures_that_they_name() {
    // V-C1
    for (code, class) in [
        ("server_error", Class::Transient),
        ("rate_limit_exceeded", Class::RateLimited),
        ("insufficient_quota", Class::Quota),
        ("context_length_exceeded", Class::ContextLength),
    ] {
        let failed = over("failed", &format!(r#","error":{{"code":"{code}","message":"x"}}"#));
        let error = format!(r#"{{"type":"error","code":"{code}","message":"x","param":null}}"#);
        for last in [&failed, &error] {
            for events in [&[CREATED, last][..], &[CREATED, &text("a"), last]] {
                let told = told("", events);
                assert_eq!((told.class(), told.end.is_err()), (class, true), "{last}");
            }
        }
        assert_eq!(told("", &[CREATED, &failed]).facts.usage.input, Some(9), "failures cost too");
    }
    assert_eq!(told("", &[CREATED, &over("failed", "")]).class(), Class::Transient);
}

#[test]
fn fragments_of_arguments_are_put_together_and_strictly_parsed_once() {
    // V-D1, V-D3
    let done = over("completed", "");
    let tools = r#","tools":[{"type":"function","name":"get","parameters":{"properties":{"x":{}}}}]"#;
    let good = told(tools, &[CREATED, CALL, &arguments(r#"{"x""#), &arguments(":1}"), &done]);
    assert_eq!((good.class(), good.facts.finish), (Class::Success, Some(Finish::ToolCalls)));
    let call = &good.facts.tool_calls[0];
    assert_eq!((call.id.as_deref(), &*call.name, &*call.arguments), (Some("c1"), "get", r#"{"x":1}"#));
    for wrong in [r#"{"x""#, "[]", ""] {
        let told = told(tools, &[CREATED, CALL, &arguments(wrong), &done]);
        assert_eq!(told.class(), Class::Soft(SoftKind::ToolCall), "{wrong}");
        assert_eq!(
            told.facts.report.leading().and_then(|finding| finding.path()),
            Some("/output/0/arguments")
        );
    }
    // Some servers send them only when they are whole.
    let at_once = r#"{"type":"response.function_call_arguments.done","output_index":0,"arguments":"{}"}"#;
    assert_eq!(told(tools, &[CREATED, CALL, at_once, &done]).class(), Class::Success);
    let cut = over("incomplete", r#","incomplete_details":{"reason":"max_output_tokens"}"#);
    let told = told(tools, &[CREATED, CALL, &arguments(r#"{"x""#), &cut]);
    assert_eq!(told.said(), ("soft.truncated", Hint::Modify));
    let unknown = self::told(r#","tools":[]"#, &[CREATED, CALL, &arguments("{}"), &done]);
    assert_eq!(unknown.class(), Class::Soft(SoftKind::UnknownTool));
}

#[test]
fn lifecycle_events_are_progress_and_deltas_are_content() {
    // G64
    let seen = |event: &str| {
        let (mut decoder, _) = decoder_of(Provider::OpenAiResponses, &ask(""));
        let seen = decoder.feed(&Bytes::from(stream(&[event])));
        assert_eq!(seen.events, usize::from(!event.contains("keepalive")), "{event}");
        (seen.content, seen.progress)
    };
    assert_eq!(seen(r#"{"type":"response.in_progress","response":{}}"#), (false, true));
    assert_eq!(seen(r#"{"type":"response.web_search_call.searching","output_index":0}"#), (false, true));
    assert_eq!(seen(r#"{"type":"keepalive"}"#), (false, false));
    for delta in [
        text("a"),
        arguments("{"),
        CALL.to_owned(),
        r#"{"type":"response.reasoning_summary_text.delta","delta":"hm"}"#.to_owned(),
        r#"{"type":"response.reasoning_text.delta","delta":"hm"}"#.to_owned(),
        r#"{"type":"response.refusal.delta","delta":"I"}"#.to_owned(),
        r#"{"type":"response.audio.delta","delta":"AAAA"}"#.to_owned(),
    ] {
        assert!(seen(&delta).0, "{delta}");
    }
    assert_eq!(seen(&text("")), (false, false));
}

#[test]
fn several_dialects_through_one_layer_are_each_read_as_what_they_are() {
    let chat = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n";
    let request =
        Request::post("http://a/v1/chat/completions").body(r#"{"messages":[],"stream":true}"#).unwrap();
    assert_eq!(
        read_of(Provider::Auto, &request, [chat.as_bytes()]).class(),
        Class::Soft(SoftKind::Truncated)
    );
    assert_eq!(read_of(Provider::Auto, &(), [chat.as_bytes()]).class(), Class::Soft(SoftKind::Truncated));
    let response = stream(&[CREATED, &over("completed", SAID)]);
    assert_eq!(read_of(Provider::Auto, &ask(""), [response.as_bytes()]).class(), Class::Success);
}
