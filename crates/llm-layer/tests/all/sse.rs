//! Streamed answers through the decoder: every sample, and every fault that such streams have had.

use crate::common::{Told, decoder, read, streams};
use bytes::Bytes;
use failsoft_core::{Class, End, Finish, Hint, SoftKind, Usage, Verdict};
use http::Request;
use stream_layer::Decoder as _;

const CHAT: &str = r#"{"messages":[],"stream":true}"#;
const WITH_TOOL: &str = r#"{"messages":[],"stream":true,
    "tools":[{"function":{"name":"get_weather","parameters":{"properties":{"city":{}}}}}]}"#;
const ROLE: &str =
    r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#;
const DONE: &str = "[DONE]";

/// A stream of these events to this request.
fn told(request: &'static str, events: &[&str]) -> Told {
    let bytes: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    read(&Request::new(request), [bytes.as_bytes()])
}

fn delta(delta: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#)
}

fn text(text: &str) -> String {
    delta(&format!(r#"{{"content":"{text}"}}"#))
}

fn finish(reason: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"{reason}"}}]}}"#)
}

fn call(arguments: &str) -> String {
    let arguments = serde_json::to_string(arguments).unwrap();
    delta(&format!(
        r#"{{"tool_calls":[{{"index":0,"id":"c","function":{{"name":"get_weather","arguments":{arguments}}}}}]}}"#
    ))
}

fn cuts(body: &[u8]) -> [Vec<&[u8]>; 3] {
    let lines = body.split_inclusive(|byte| *byte == b'\n').collect();
    [vec![body], body.chunks(1).collect(), lines]
}

#[test]
fn every_sample_says_the_same_however_it_is_cut() {
    let samples = streams();
    assert_eq!(samples.len(), 9);
    for sample in &samples {
        for pieces in cuts(&sample.body) {
            let name = format!("{} in {} pieces", sample.file, pieces.len());
            let told = read(&Request::new(()), pieces);
            let (class, hints): (_, &[Hint]) = match &*sample.expected {
                "ok" => (Class::Success, &[Hint::Never]),
                "stream-truncated" => (Class::Soft(SoftKind::Truncated), &[Hint::Same]),
                "content-filter" => (Class::Refused, &[Hint::Fallback]),
                "stream-error" => (Class::Transient, &[Hint::Same, Hint::After, Hint::Fallback]),
                other => panic!("no class for `{other}`"),
            };
            assert_eq!(told.class(), class, "{name}");
            assert!(hints.contains(&told.verdict().hint()), "{name}");
            assert_eq!(told.end.is_err(), sample.expected.starts_with("stream-"), "{name}");
            assert!(told.content, "{name}");
            let usage = told.facts.usage;
            let Some(wanted) = &sample.usage else {
                assert!(usage.is_unknown(), "{name}: {usage:?}");
                continue;
            };
            let all = |bucket: Option<u64>| bucket.unwrap_or(0);
            let got = serde_json::json!({
                "input": usage.total_input(), "output": usage.total_output(), "cache_read": all(usage.cache_read),
                "cache_write": all(usage.cache_write), "reasoning": all(usage.reasoning), "total": usage.total(),
            });
            assert_eq!(&got, wanted, "{name}");
        }
    }
}

#[test]
fn text_calls_and_finish_reason_are_those_of_the_whole_answer() {
    let sample = |file: &str| streams().into_iter().find(|sample| sample.file == file).unwrap().body;
    let facts = read(&Request::new(()), [&*sample("openai-chat-stream-ok.sse")]).facts;
    assert_eq!((facts.text.as_deref(), facts.finish), (Some("Half-open"), Some(Finish::Stop)));
    assert_eq!((facts.output_bytes, facts.report.is_empty()), (9, true));

    let facts = read(&Request::new(()), [&*sample("openai-chat-stream-toolcall.sse")]).facts;
    let calls: Vec<_> =
        facts.tool_calls.iter().map(|call| (call.id.as_deref(), &*call.name, &*call.arguments)).collect();
    let (weather, time) = (r#"{"city":"Oslo"}"#, "{}");
    assert_eq!(calls, [(Some("call_s1"), "get_weather", weather), (Some("call_s2"), "get_time", time)]);
    assert_eq!((facts.text, facts.finish), (None, Some(Finish::ToolCalls)));

    // Of an answer that broke off, what came is known.
    let facts = read(&Request::new(()), [&*sample("openai-chat-stream-cut.sse")]).facts;
    assert_eq!((facts.text.as_deref(), facts.finish), (Some("The retry bud"), None));
}

#[test]
fn an_error_means_the_same_as_a_failed_response_in_a_success_and_in_a_stream() {
    // V-A2
    for (status, code, class) in [
        (429, "insufficient_quota", Class::Quota),
        (429, "rate_limit_exceeded", Class::RateLimited),
        (503, "overloaded_error", Class::Overloaded),
        (400, "context_length_exceeded", Class::ContextLength),
        (401, "invalid_api_key", Class::Auth),
        (404, "model_not_found", Class::ModelNotFound),
        (400, "content_filter", Class::Refused),
    ] {
        let error = format!(r#"{{"error":{{"code":"{code}","message":"x"}}}}"#);
        let judge = |status| {
            let status = http::StatusCode::from_u16(status).unwrap();
            let judged = llm_layer::Provider::OpenAiCompatible.judge(
                status,
                &http::HeaderMap::new(),
                error.as_bytes(),
                &llm_layer::Offered::unknown(),
            );
            judged.verdict.unwrap()
        };
        let streamed = told(CHAT, &[&error]).verdict();
        assert_eq!(streamed.class(), class, "{code}");
        for whole in [judge(status), judge(200)] {
            assert_eq!((whole.class(), whole.hint()), (class, streamed.hint()), "{code}");
        }
    }
}

#[test]
fn a_keepalive_a_role_and_a_chunk_without_choices_are_no_content() {
    // V-C6: choices are never indexed, also where there is none.
    for event in [ROLE, r#"{"choices":[]}"#, r#"{"choices":[],"prompt_filter_results":[{}]}"#, "null"] {
        let (mut decoder, _) = decoder(&Request::new(CHAT));
        let seen =
            decoder.feed(&Bytes::from(format!(": ping\n\ndata: {event}\n\nevent: ping\ndata: 12:01\n\n")));
        assert!(!seen.content && !seen.progress && !seen.is_over(), "{event}");
        assert_eq!(seen.events, 1, "keepalives are not counted");
    }
    let (mut reader, _) = decoder(&Request::new(CHAT));
    assert_eq!(reader.feed(&Bytes::from("data: {\"type\":\"ping\"}\n\n")).events, 0);
    for content in [
        r#"{"content":"a"}"#,
        r#"{"content":[{"type":"text","text":"a"}]}"#,
        r#"{"reasoning":"hm"}"#,
        r#"{"reasoning_content":"hm"}"#,
        r#"{"reasoning_details":[{"type":"reasoning.encrypted","data":"x"}]}"#,
        r#"{"refusal":"I"}"#,
        r#"{"tool_calls":[{"index":0,"function":{"name":"f","arguments":""}}]}"#,
        r#"{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}"#,
        r#"{"function_call":{"arguments":"{"}}"#,
    ] {
        // G64
        let (mut decoder, _) = decoder(&Request::new(CHAT));
        let seen = decoder.feed(&Bytes::from(format!("data: {}\n\n", delta(content))));
        assert!(seen.content, "{content}");
    }
    let (mut decoder, _) = decoder(&Request::new(CHAT));
    assert!(decoder.feed(&Bytes::from(format!("data: {}\n\n", finish("stop")))).progress);
}

#[test]
fn an_error_in_the_stream_is_a_fault_of_its_class_whatever_follows() {
    // G25, G51, V-C1
    let table = [
        (r#"data: {"error":{"message":"x","code":502}}"#, Class::Transient, None),
        (
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}",
            Class::Overloaded,
            Some("overloaded_error"),
        ),
        ("event: error\ndata: upstream gone", Class::Transient, None),
        ("event: error", Class::Transient, None),
        (r#"data: [{"error":{"code":429,"message":"slow down"}}]"#, Class::RateLimited, None),
        (r#"data: {"error":{"code":"insufficient_quota"}}"#, Class::Quota, Some("insufficient_quota")),
        (
            r#"data: {"object":"error","message":"x","type":"BadRequestError","code":400}"#,
            Class::Invalid,
            None,
        ),
        (
            r#"data: {"type":"error","code":"server_error","message":"x"}"#,
            Class::Transient,
            Some("server_error"),
        ),
        (r#"data: {"detail":"x"}"#, Class::Transient, None),
        (r#"data: {"choices":[{"index":0,"delta":{},"error":{"code":503}}]}"#, Class::Overloaded, None),
        (r#"data: {"choices":[],"x_groq":{"error":"over capacity"}}"#, Class::Transient, None),
        ("data: <html>502</html>", Class::Transient, None),
    ];
    for (event, class, code) in table {
        let (first, end) = (text("a"), finish("stop"));
        for before in [String::new(), format!("data: {ROLE}\n\n"), format!("data: {first}\n\n")] {
            let stream = format!("{before}{event}\n\ndata: {end}\n\ndata: [DONE]\n\n");
            let told = read(&Request::new(CHAT), [stream.as_bytes()]);
            let fault = told.end.as_ref().expect_err(event);
            assert_eq!((fault.class(), fault.layer()), (class, "llm-layer"), "{event}");
            assert!(code.is_none_or(|code| fault.message().unwrap().ends_with(code)), "{event}: {fault}");
            assert_eq!(told.content, before.contains("\"a\""), "{event}");
        }
    }
}

#[test]
fn an_error_does_not_repeat_what_the_server_says_in_prose() {
    let told = told(CHAT, &[r#"{"error":{"message":"bad key sk-123","code":"the key sk-123"}}"#]);
    assert!(
        !format!("{:?} {}", told.end.as_ref().unwrap_err(), told.end.as_ref().unwrap_err()).contains("sk-")
    );
}

#[test]
fn a_message_that_is_no_error_does_not_break_a_stream() {
    let events = [r#"{"type":"status","message":"searching"}"#, &text("a"), &finish("stop"), DONE];
    assert_eq!(told(CHAT, &events).class(), Class::Success);
}

#[test]
fn an_end_without_a_finish_reason_is_a_cut_and_one_without_the_terminator_is_not() {
    // V-C4
    let (first, stop) = (text("a"), finish("stop"));
    let cut = told(CHAT, &[ROLE, &first]);
    assert_eq!((cut.said(), cut.end.is_err()), (("soft.truncated", Hint::Same), true));
    assert_eq!(told(CHAT, &[ROLE]).said(), ("soft.truncated", Hint::Same));
    let ended = told(CHAT, &[&first, &stop]);
    assert_eq!(ended.end.unwrap(), Some(Verdict::SUCCESS));
    // Some servers give no reason, and say that they are done.
    let done = told(CHAT, &[&first, DONE]);
    assert_eq!(done.class(), Class::Success);
    assert_eq!(done.facts.report.leading().map(|finding| finding.code()), Some("no_finish_reason"));
    // An empty reason is none.
    assert_eq!(told(CHAT, &[&first, &finish("")]).said(), ("soft.truncated", Hint::Same));
}

#[test]
fn every_choice_must_come_to_its_end() {
    let other = r#"{"choices":[{"index":1,"delta":{"content":"b"},"finish_reason":null}]}"#;
    let events = [&*text("a"), other, &finish("stop")];
    assert_eq!(told(CHAT, &events).said(), ("soft.truncated", Hint::Same));
    let both = r#"{"choices":[{"index":1,"delta":{},"finish_reason":"length"}]}"#;
    let told = told(CHAT, &[&*text("a"), other, &finish("stop"), both, DONE]);
    assert_eq!(told.said(), ("soft.truncated", Hint::Modify));
    assert_eq!(told.facts.text.as_deref(), Some("a"));
}

#[test]
fn of_several_choices_one_that_was_cut_is_seen_behind_the_terminator_too() {
    let chunk = |index: u8, finish: &str| {
        format!(
            "data: {{\"choices\":[{{\"index\":{index},\"delta\":{{\"content\":\"a\"}},\"finish_reason\":{finish}}}]}}\n\n"
        )
    };
    let done = "data: [DONE]\n\n";
    for (first, second, wanted) in [
        ("\"stop\"", "null", "soft.truncated"),
        ("null", "\"stop\"", "soft.truncated"),
        ("\"stop\"", "\"stop\"", "success"),
        // A server that never gives one.
        ("null", "null", "success"),
    ] {
        let body = [&chunk(0, first), &chunk(1, second), done].concat();
        for pieces in cuts(body.as_bytes()) {
            let told = read(&Request::new(CHAT), pieces);
            assert_eq!((told.class().as_str(), told.end.is_ok()), (wanted, true), "{body}");
        }
    }
}

#[test]
fn the_last_event_may_lack_its_blank_line_but_not_its_end() {
    // V-C8
    let whole = format!("data: {}\n\ndata: {}\n\ndata: [DONE]", text("a"), finish("stop"));
    for missing in 0..8 {
        let told = read(&Request::new(CHAT), [&whole.as_bytes()[..whole.len() - missing]]);
        assert_eq!(told.class(), Class::Success, "{missing}");
    }
    let cut = format!("data: {}\n\ndata: {}", text("a"), &finish("stop")[..40]);
    assert_eq!(read(&Request::new(CHAT), [cut.as_bytes()]).said(), ("soft.truncated", Hint::Same));
    let error = format!("data: {}\n\ndata: {}", text("a"), r#"{"error":{"code":503}}"#);
    assert_eq!(read(&Request::new(CHAT), [error.as_bytes()]).class(), Class::Overloaded);
}

#[test]
fn all_line_ends_bytes_cut_anywhere_and_comments_are_read() {
    // G60, G61
    let plain = format!(": hi\n\ndata:{}\n\ndata:{}\n\ndata:[DONE]\n\n", text("天気"), finish("stop"));
    for line_end in ["\n", "\r\n", "\r"] {
        let stream = format!("\u{feff}{}", plain.replace('\n', line_end));
        for pieces in cuts(stream.as_bytes()) {
            let told = read(&Request::new(CHAT), pieces);
            assert_eq!((told.class(), told.facts.text.as_deref()), (Class::Success, Some("天気")));
        }
    }
}

#[test]
fn an_event_without_end_is_a_fault_and_takes_bounded_memory() {
    // G62
    let (mut decoder, _) = decoder(&Request::new(CHAT));
    let piece = Bytes::from(vec![b'a'; 1 << 20]);
    decoder.feed(&Bytes::from("data: "));
    let fault = (0..9).find_map(|_| decoder.feed(&piece).fault).expect("too long");
    assert_eq!(fault.class(), Class::Soft(SoftKind::Malformed));
}

#[test]
fn an_answer_that_says_nothing_is_a_soft_failure_known_at_its_end() {
    // G72, G73, G74, V-E2
    let stop = finish("stop");
    let thought = delta(r#"{"reasoning_content":"hm"}"#);
    assert_eq!(told(CHAT, &[ROLE, &stop, DONE]).said(), ("soft.empty", Hint::Same));
    assert_eq!(told(CHAT, &[ROLE, &thought, &stop, DONE]).said(), ("soft.empty", Hint::Modify));
    assert_eq!(told(CHAT, &[&thought, &finish("length"), DONE]).said(), ("soft.truncated", Hint::Modify));
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":0}}"#;
    let none = told(CHAT, &[usage, DONE]);
    assert_eq!((none.said(), none.facts.usage.input), (("soft.empty", Hint::Same), Some(7)));
    // A response with a failing verdict where the target said that it was done, an error where it did not.
    assert!(none.end.is_ok());
    assert!(told(CHAT, &[usage]).end.is_err());
    assert_eq!(read(&Request::new(CHAT), []).said(), ("soft.empty", Hint::Same));
}

#[test]
fn what_is_wrong_with_a_whole_answer_is_a_verdict_and_the_body_passes() {
    let first = text("a");
    for (end, said) in [
        (finish("length"), ("soft.truncated", Hint::Modify)),
        (finish("content_filter"), ("refused", Hint::Fallback)),
        (finish("chose_to"), ("soft.low_confidence", Hint::Same)),
        (finish("tool_calls"), ("soft.tool_call", Hint::Same)),
    ] {
        let told = told(CHAT, &[&first, &end, DONE]);
        assert_eq!((told.said(), told.end.is_ok()), (said, true), "{end}");
    }
    let refusal = told(CHAT, &[&delta(r#"{"refusal":"I can't"}"#), &finish("stop"), DONE]);
    assert_eq!((refusal.said(), refusal.facts.finish), (("refused", Hint::Fallback), Some(Finish::Stop)));
    // What the target calls a failure of its own is one.
    for (reason, class) in [("error", Class::Transient), ("insufficient_system_resource", Class::Overloaded)]
    {
        let told = told(CHAT, &[&first, &finish(reason), DONE]);
        assert_eq!((told.class(), told.end.is_err()), (class, true));
    }
}

#[test]
fn arguments_are_parsed_strictly_at_the_end_and_never_repaired() {
    // V-D1
    let stop = finish("tool_calls");
    for (arguments, class) in [
        (r#"{"city":"Oslo"}"#, "success"),
        (r#"{"city":"Os"#, "soft.tool_call"),
        ("", "soft.tool_call"),
        ("[]", "soft.tool_call"),
        (r#""{\"city\":\"Oslo\"}""#, "soft.tool_call"),
    ] {
        let told = told(WITH_TOOL, &[&call(arguments), &stop, DONE]);
        assert_eq!((told.class().as_str(), told.end.is_ok()), (class, true), "{arguments}");
        assert_eq!(&*told.facts.tool_calls[0].arguments, arguments);
    }
    // A cut call is no call, whatever is said of the rest.
    let cut = told(WITH_TOOL, &[&call(r#"{"city":"Os"#)]);
    assert_eq!((cut.said(), cut.facts.tool_calls.len()), (("soft.truncated", Hint::Same), 0));
    assert_eq!(
        told(WITH_TOOL, &[&call("{"), &finish("length"), DONE]).said(),
        ("soft.truncated", Hint::Modify)
    );
    let unknown = told(CHAT, &[&call("{}"), &stop, DONE]);
    assert_eq!(unknown.class().as_str(), "soft.unknown_tool");
    assert_eq!(
        unknown.facts.report.leading().and_then(|found| found.path()),
        Some("/choices/0/message/tool_calls/0/function/name")
    );
}

#[test]
fn the_last_usage_counts_wherever_it_comes() {
    // G91, G93, V-H1
    let usage = |at: &str, output: u64| {
        format!(r#"{{"choices":[{at}],"usage":{{"prompt_tokens":10,"completion_tokens":{output}}}}}"#)
    };
    let piece = r#"{"index":0,"delta":{"content":"a"}}"#;
    let end = r#"{"index":0,"delta":{},"finish_reason":"stop"}"#;
    let told = told(CHAT, &[&usage(piece, 1), &usage(piece, 2), &usage(end, 3), &usage("", 4), DONE]);
    assert_eq!(told.facts.usage, Usage { input: Some(10), output: Some(4), ..Usage::default() });
    // Moonshot's place for it.
    let inside = r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop","usage":{"prompt_tokens":3}}]}"#;
    assert_eq!(self::told(CHAT, &[inside, DONE]).facts.usage.input, Some(3));
}

#[test]
fn no_usage_is_unknown_and_zero_is_zero() {
    // G96
    let none = told(CHAT, &[&text("four"), &finish("stop"), DONE]);
    assert!(none.facts.usage.is_unknown());
    assert_eq!(none.facts.output_bytes, 4);
    let zero = told(CHAT, &[r#"{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}"#]);
    assert_eq!((zero.facts.usage.input, zero.facts.usage.output), (Some(0), Some(0)));
}

#[test]
fn what_came_is_known_when_the_caller_hangs_up() {
    // G97, V-H4
    let (mut decoder, insight) = decoder(&Request::new(CHAT));
    let mut events = format!("data: {}\n\n", delta(r#"{"reasoning":"hm, "}"#));
    events.push_str(&format!("data: {}\n\n", text("abcd")));
    decoder.feed(&Bytes::from(events));
    assert_eq!(insight.read(|facts| facts.output_bytes), 8);
    drop(decoder);
    assert_eq!(insight.facts().text.as_deref(), Some("abcd"));
    assert_eq!(insight.verdict(), None);
}

#[test]
fn json_or_a_page_where_events_were_promised_is_judged_as_a_whole() {
    for (body, class) in [
        (r#"{"error":{"code":"insufficient_quota"}}"#, "quota"),
        (" \n[{\"error\":{\"code\":503}}]", "overloaded"),
        (r#"{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}"#, "success"),
        ("<html>502</html>", "transient"),
        ("\u{feff}<html>502</html>", "transient"),
        ("\u{feff}{\"error\":{\"code\":\"insufficient_quota\"}}", "quota"),
    ] {
        for pieces in cuts(body.as_bytes()) {
            let told = read(&Request::new(CHAT), pieces);
            assert_eq!(
                (told.class().as_str(), told.end.is_ok(), told.content),
                (class, true, false),
                "{body}"
            );
        }
    }
}

#[test]
fn a_stream_of_another_format_passes_as_what_it_is() {
    let other = "event: response.created\ndata: {\"type\":\"response.created\"}\n\n\
                 event: response.completed\ndata: {\"type\":\"response.completed\"}\n\n";
    // Nothing is known of the request, or that it is none of a chat.
    assert_eq!(read(&Request::new(()), [other.as_bytes()]).end.unwrap(), None);
    let told = read(&Request::new(r#"{"input":"x","stream":true}"#), [other.as_bytes()]);
    assert!(told.content && told.end.unwrap().is_none());
    // A chat was asked for, and this is none.
    assert_eq!(read(&Request::new(CHAT), [other.as_bytes()]).said(), ("soft.malformed", Hint::Same));
    let failed = format!("{other}event: error\ndata: {{\"error\":{{\"type\":\"overloaded_error\"}}}}\n\n");
    assert_eq!(read(&Request::new(()), [failed.as_bytes()]).class(), Class::Overloaded);
}

#[test]
fn a_cut_connection_is_the_clients_error_where_that_says_enough() {
    let (mut known, _) = decoder(&Request::new(CHAT));
    let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    assert_eq!(known.end(End::Error(&reset)).unwrap(), None);
    let (mut unknown, _) = decoder(&Request::new(CHAT));
    assert_eq!(unknown.end(End::Error(&std::fmt::Error)).unwrap_err().class(), Class::Transient);
}
