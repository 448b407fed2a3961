//! Streams of Gemini, Bedrock and Ollama, through the public decoder: whole, byte by byte, at each newline.

use crate::common::{
    aws::{event, exception, message, unmodelled},
    native::{ARRAY, Ask, BINARY, LINES, SSE, converse, gemini},
};
use bytes::Bytes;
use failsoft_core::{Class, Finding, Finish, Hint, Verdict};
use llm_layer::Provider;
use stream_layer::Decoder as _;

const HALF: &str = r#"{"candidates":[{"content":{"parts":[{"text":"Halb-"}],"role":"model"}}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":1}}"#;
const OPEN: &str = r#"{"candidates":[{"content":{"parts":[{"text":"öffnen"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":3,"thoughtsTokenCount":20,"totalTokenCount":32}}"#;
const SHED: &str = r#"{"error":{"code":503,"message":"This model is currently experiencing high demand.","status":"UNAVAILABLE"}}"#;

#[test]
fn both_forms_of_a_gemini_stream_are_put_together_and_cumulative_usage_counts_once() {
    // G91, G60
    for (ask, body) in gemini(&[HALF, OPEN]) {
        let told = ask.read(&body);
        assert_eq!((told.said(), told.content), (("success", Hint::Never), true));
        let facts = told.facts;
        assert_eq!((facts.text.as_deref(), facts.finish), (Some("Halb-öffnen"), Some(Finish::Stop)));
        assert_eq!((facts.usage.output, facts.usage.reasoning, facts.usage.total()), (Some(3), Some(20), 32));
    }
}

#[test]
fn a_gemini_stream_that_ends_in_the_middle_of_a_chunk_is_truncated() {
    // An old version of the API gives a finish reason with every chunk.
    let early = r#"{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}"#;
    for (ask, body) in
        [(SSE, format!("data: {early}\n\ndata: {{\"candid")), (ARRAY, format!("[{early},\n{{\"candid"))]
    {
        let told = ask.read(body.as_bytes());
        assert_eq!(told.said(), ("soft.truncated", Hint::Same), "{body}");
    }
    let whole = SSE.read(format!("data: {early}\n\n: a comment").as_bytes());
    assert_eq!(whole.class(), Class::Success);
}

#[test]
fn a_byte_order_mark_before_a_gemini_stream_is_no_part_of_it() {
    for (ask, body) in
        gemini(&[r#"{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}"#])
    {
        let told = ask.read(&[b"\xEF\xBB\xBF", &body[..]].concat());
        assert_eq!((told.class(), told.facts.text.as_deref()), (Class::Success, Some("a")), "{ask:?}");
    }
}

#[test]
fn a_gemini_stream_without_a_finish_reason_is_truncated() {
    // V-C4
    for (ask, body) in gemini(&[HALF, HALF]) {
        let told = ask.read(&body);
        assert!(told.end.is_err());
        assert_eq!(told.said(), ("soft.truncated", Hint::Same));
        assert_eq!(told.facts.usage.total(), 10);
    }
    // The array was not closed, and its last element not whole.
    let [_, (ask, body)] = gemini(&[HALF, OPEN]);
    assert_eq!(ask.read(&body[..body.len() - 40]).said(), ("soft.truncated", Hint::Same));
    // Not closed, but everything was said.
    assert_eq!(ask.read(&body[..body.len() - 3]).said(), ("success", Hint::Never));
}

#[test]
fn an_error_inside_a_gemini_stream_is_one_error_of_its_class() {
    // G51, V-C1
    for (ask, body) in gemini(&[HALF, SHED]) {
        let told = ask.read(&body);
        assert!(told.end.is_err());
        assert_eq!((told.said(), told.content), (("overloaded", Hint::After), true));
        assert_eq!(told.facts.text.as_deref(), Some("Halb-"));
    }
    for (ask, body) in gemini(&[SHED]) {
        let told = ask.read(&body);
        assert_eq!((told.class(), told.content), (Class::Overloaded, false));
    }
    let listed = format!("data: [{SHED}]\n\n");
    assert_eq!(SSE.read(listed.as_bytes()).class(), Class::Overloaded);
}

#[test]
fn a_bare_error_object_after_the_last_event_is_that_error_and_no_truncation() {
    // G51
    let pretty = SHED.replace("{", "{\n  ").replace(",", ",\n  ");
    for tail in [SHED.to_owned(), format!("{SHED}\n\n"), pretty.clone(), format!(": ping\n\n{pretty}\r\n")] {
        let told = SSE.read(format!("data: {HALF}\n\n{tail}").as_bytes());
        assert!(told.end.is_err());
        assert_eq!(told.class(), Class::Overloaded, "{tail}");
        assert_eq!(told.facts.text.as_deref(), Some("Halb-"));
    }
    for tail in ["{\"error\":", ": bye", "<html>", "[1]", "{\"ok\":true}"] {
        let told = SSE.read(format!("data: {HALF}\n\n{tail}").as_bytes());
        assert_eq!(told.said(), ("soft.truncated", Hint::Same), "{tail}");
    }
}

#[test]
fn a_page_or_an_object_where_a_gemini_stream_was_promised_is_what_it_is() {
    for ask in [SSE, ARRAY] {
        for (body, class) in [
            (SHED, "overloaded"),
            ("<html>502</html>", "transient"),
            ("", "soft.empty"),
            (r#"{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}"#, "success"),
        ] {
            assert_eq!(ask.read(body.as_bytes()).class().as_str(), class, "{body}");
        }
    }
    assert_eq!(ARRAY.read(b"[]").class().as_str(), "soft.empty");
    assert_eq!(ARRAY.read(b"[{}} x").class().as_str(), "transient");
    let error = format!("[{SHED}]");
    assert_eq!(ARRAY.read(error.as_bytes()).class(), Class::Overloaded);
}

#[test]
fn finish_reasons_of_a_gemini_stream_are_those_of_a_whole_answer() {
    for (reason, said) in [
        ("MAX_TOKENS", ("soft.truncated", Hint::Modify)),
        ("SAFETY", ("refused", Hint::Fallback)),
        ("RECITATION", ("refused", Hint::Modify)),
        ("MALFORMED_FUNCTION_CALL", ("soft.tool_call", Hint::Same)),
        ("UNEXPECTED_TOOL_CALL", ("soft.unknown_tool", Hint::Modify)),
        ("OTHER", ("transient", Hint::Same)),
        ("SOMETHING_NEW", ("soft.low_confidence", Hint::Same)),
    ] {
        for (ask, body) in gemini(&[HALF, &format!(r#"{{"candidates":[{{"finishReason":"{reason}"}}]}}"#)]) {
            assert_eq!(ask.read(&body).said(), said, "{reason}");
        }
    }
    for (ask, body) in
        gemini(&[r#"{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":9}}"#])
    {
        let told = ask.read(&body);
        assert_eq!(
            (told.said(), told.facts.finish),
            (("refused", Hint::Fallback), Some(Finish::ContentFilter))
        );
    }
}

#[test]
fn an_early_finish_reason_of_an_old_gemini_is_not_the_end() {
    let early = HALF.replace(r#""role":"model"}"#, r#""role":"model"},"finishReason":"STOP""#);
    for (ask, body) in gemini(&[&early, OPEN]) {
        assert_eq!(ask.read(&body).facts.text.as_deref(), Some("Halb-öffnen"));
    }
}

#[test]
fn thoughts_and_calls_of_a_gemini_stream_are_progress_and_calls_are_whole() {
    // G64
    let ask =
        r#"{"contents":[],"tools":[{"functionDeclarations":[{"name":"get_weather"},{"name":"list"}]}]}"#;
    let thought = r#"{"candidates":[{"content":{"parts":[{"text":"hm","thought":true}]}}]}"#;
    let call = r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"get_weather","args":{"city":"Oslo"}}}]}}]}"#;
    let more = r#"{"candidates":[{"content":{"parts":[{"functionCall":{"id":"2","name":"list","args":{}}}]},"finishReason":"STOP"}]}"#;
    for (form, body) in gemini(&[thought, call, more]) {
        let told = form.with(ask).read(&body);
        assert_eq!(told.said(), ("success", Hint::Never));
        let names: Vec<_> =
            told.facts.tool_calls.iter().map(|call| (&*call.name, &*call.arguments)).collect();
        assert_eq!(names, [("get_weather", r#"{"city":"Oslo"}"#), ("list", "{}")]);
    }
    for chunk in [thought, call] {
        let (mut decoder, _) = SSE.decoder();
        assert!(decoder.feed(&Bytes::from(format!("data: {chunk}\n\n"))).content, "{chunk}");
    }
    let unknown = call.replace("get_weather", "get_wether");
    for (form, body) in gemini(&[&unknown, more]) {
        let told = form.with(ask).read(&body);
        assert_eq!(told.said(), ("soft.unknown_tool", Hint::Modify));
        assert_eq!(
            told.facts.report.leading().and_then(Finding::path),
            Some("/candidates/0/content/parts/0/functionCall/name")
        );
    }
}

#[test]
fn arguments_that_vertex_streams_piece_by_piece_are_put_together_and_cut_ones_stay_cut() {
    // G64, V-D1
    let ask = r#"{"contents":[],"tools":[{"functionDeclarations":[{"name":"get_weather"}]}]}"#;
    let chunk = |call: &str, rest: &str| {
        format!(r#"{{"candidates":[{{"content":{{"parts":[{{"functionCall":{call}}}]}}{rest}}}]}}"#)
    };
    let begin = chunk(r#"{"name":"get_weather","id":"c1","willContinue":true}"#, "");
    let city = chunk(
        r#"{"partialArgs":[{"jsonPath":"$.city","stringValue":"New ","willContinue":true}],"willContinue":true}"#,
        "",
    );
    let more = chunk(
        r#"{"partialArgs":[{"jsonPath":"$.city","stringValue":"Delhi"},{"jsonPath":"$.days","numberValue":3}],"willContinue":true}"#,
        "",
    );
    let end = chunk("{}", "");
    let stop = r#"{"candidates":[{"finishReason":"STOP"}]}"#;
    for (form, body) in gemini(&[&begin, &city, &more, &end, stop]) {
        let told = form.with(ask).read(&body);
        assert_eq!(told.said(), ("success", Hint::Never));
        let [call] = &told.facts.tool_calls[..] else { panic!("one call") };
        assert_eq!((call.id.as_deref(), &*call.name), (Some("c1"), "get_weather"));
        assert_eq!(&*call.arguments, r#"{"city":"New Delhi","days":3}"#);
    }
    for chunks in [&[&*begin, &city, stop][..], &[&begin, &city, &begin, &city, &end, stop]] {
        for (form, body) in gemini(chunks) {
            let told = form.with(ask).read(&body);
            assert_eq!(told.said(), ("soft.tool_call", Hint::Modify));
            assert_eq!(&*told.facts.tool_calls[0].arguments, r#"{"city":"New ""#);
        }
    }
    let (mut decoder, _) = SSE.decoder();
    assert!(decoder.feed(&Bytes::from(format!("data: {city}\n\n"))).content);
}

#[test]
fn a_chunk_without_content_commits_nothing() {
    for chunk in [
        r#"{"usageMetadata":{"promptTokenCount":9},"modelVersion":"m"}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":""}],"role":"model"}}]}"#,
        r#"{"candidates":[{"content":{"role":"model"}}]}"#,
    ] {
        let (mut decoder, _) = SSE.decoder();
        assert!(!decoder.feed(&Bytes::from(format!("data: {chunk}\n\n"))).content, "{chunk}");
    }
}

const START: (&str, &str) = ("messageStart", r#"{"role":"assistant"}"#);
const DELTA: (&str, &str) = ("contentBlockDelta", r#"{"contentBlockIndex":0,"delta":{"text":"Grüezi"}}"#);
const BLOCK_STOP: (&str, &str) = ("contentBlockStop", r#"{"contentBlockIndex":0}"#);
const STOP: (&str, &str) = ("messageStop", r#"{"stopReason":"end_turn"}"#);
const METADATA: (&str, &str) = (
    "metadata",
    r#"{"usage":{"inputTokens":30,"outputTokens":9,"totalTokens":139,"cacheReadInputTokens":80,"cacheWriteInputTokens":20},"metrics":{"latencyMs":1}}"#,
);

#[test]
fn a_converse_stream_is_whole_at_its_metadata() {
    let mut body = converse(&[START, DELTA, BLOCK_STOP, STOP, METADATA]);
    let told = BINARY.read(&body);
    assert_eq!((told.said(), told.content), (("success", Hint::Never), true));
    assert!(matches!(told.end, Ok(Some(verdict)) if verdict.is_success()));
    let facts = told.facts;
    assert_eq!((facts.text.as_deref(), facts.finish), (Some("Grüezi"), Some(Finish::Stop)));
    assert_eq!(
        [facts.usage.input, facts.usage.cache_read, facts.usage.cache_write],
        [Some(30), Some(80), Some(20)]
    );
    assert_eq!(facts.usage.total(), 139);
    // What the socket does after that changes nothing.
    body.extend(b"garbage");
    assert_eq!(BINARY.read(&body).said(), ("success", Hint::Never));
    // Without its metadata it was an answer too.
    let told = BINARY.read(&converse(&[START, DELTA, BLOCK_STOP, STOP]));
    assert_eq!((told.said(), told.facts.usage.is_unknown()), (("success", Hint::Never), true));
}

#[test]
fn a_converse_stream_that_is_cut_anywhere_is_truncated() {
    let body = converse(&[START, DELTA, BLOCK_STOP]);
    for length in [body.len(), body.len() - 1, body.len() / 2, 5] {
        let told = BINARY.read(&body[..length]);
        assert!(told.end.is_err());
        let class = if length == 5 { "soft.empty" } else { "soft.truncated" };
        assert_eq!(told.class().as_str(), class, "{length}");
    }
}

#[test]
fn a_damaged_message_is_a_transient_failure() {
    let mut body = converse(&[START, DELTA, STOP, METADATA]);
    let at = body.len() / 2;
    body[at] ^= 1;
    let told = BINARY.read(&body);
    assert_eq!((told.end.is_err(), told.said()), (true, ("transient", Hint::Same)));
}

#[test]
fn exceptions_of_a_converse_stream_have_the_class_that_they_have_as_a_response() {
    // V-A3, V-C1
    for (name, text, class, hint) in [
        (
            "throttlingException",
            "Too many tokens, please wait before trying again.",
            "rate_limited",
            Hint::After,
        ),
        ("throttlingException", "Too many tokens per day, please wait", "quota", Hint::Fallback),
        ("internalServerException", "x", "transient", Hint::Same),
        ("modelStreamErrorException", "x", "transient", Hint::Same),
        ("serviceUnavailableException", "x", "overloaded", Hint::After),
        ("validationException", "Input is too long for requested model.", "context_length", Hint::Modify),
        ("validationException", "x", "invalid", Hint::Never),
        ("somethingNewException", "x", "transient", Hint::Same),
    ] {
        for before in [&[][..], &[START, DELTA]] {
            let mut body = converse(before);
            body.extend(exception(name, text));
            let told = BINARY.read(&body);
            assert!(told.end.is_err());
            assert_eq!((told.said(), told.content), ((class, hint), !before.is_empty()), "{name}");
        }
        // Gateways send the same as server-sent events.
        let sse = Ask { kind: "text/event-stream", ..BINARY };
        if !name.starts_with("something") {
            let told = sse.read(format!("event: {name}\ndata: {{\"message\":\"{text}\"}}\n\n").as_bytes());
            assert_eq!(told.said(), (class, hint), "{name}");
            let told = sse.read(format!("data: {{\"{name}\":{{\"message\":\"{text}\"}}}}\n\n").as_bytes());
            assert_eq!(told.said(), (class, hint), "{name}");
        }
    }
    let told = BINARY.read(&unmodelled("InternalFailure", "x"));
    assert_eq!((told.end.is_err(), told.said()), (true, ("transient", Hint::Same)));
}

#[test]
fn tool_calls_of_a_converse_stream_are_put_together_and_strictly_read() {
    // V-D1
    let ask = BINARY.with(
        r#"{"messages":[],"toolConfig":{"tools":[{"toolSpec":{"name":"get_weather","inputSchema":{"json":{"type":"object","properties":{"city":{}}}}}},
        {"toolSpec":{"name":"list","inputSchema":{"json":{"type":"object","properties":{}}}}}]}}"#,
    );
    let start = |index: u32, name: &str| {
        event(
            "contentBlockStart",
            &format!(
                r#"{{"contentBlockIndex":{index},"start":{{"toolUse":{{"toolUseId":"t{index}","name":"{name}"}}}}}}"#
            ),
        )
    };
    let input = |index: u32, text: &str| {
        let text = serde_json::to_string(text).unwrap();
        event(
            "contentBlockDelta",
            &format!(r#"{{"contentBlockIndex":{index},"delta":{{"toolUse":{{"input":{text}}}}}}}"#),
        )
    };
    let end = converse(&[("messageStop", r#"{"stopReason":"tool_use"}"#), METADATA]);
    let good = [
        converse(&[START, DELTA]),
        start(1, "get_weather"),
        start(2, "list"),
        input(1, ""),
        input(1, "{\"city\":"),
        input(1, "\"Oslo\"}"),
        end.clone(),
    ]
    .concat();
    let told = ask.read(&good);
    assert_eq!((told.said(), told.facts.finish), (("success", Hint::Never), Some(Finish::ToolCalls)));
    let calls: Vec<_> = told
        .facts
        .tool_calls
        .iter()
        .map(|call| (call.id.as_deref().unwrap(), &*call.name, &*call.arguments))
        .collect();
    // The one that takes nothing may be given nothing.
    assert_eq!(calls, [("t1", "get_weather", r#"{"city":"Oslo"}"#), ("t2", "list", "")]);

    let cut = [converse(&[START]), start(1, "get_weather"), input(1, "{\"city\":"), end.clone()].concat();
    let told = ask.read(&cut);
    assert_eq!(told.said(), ("soft.tool_call", Hint::Modify));
    assert_eq!(&*told.facts.tool_calls[0].arguments, "{\"city\":");
    assert_eq!(
        told.facts.report.leading().and_then(Finding::path),
        Some("/output/message/content/1/toolUse/input")
    );
    let unknown = [converse(&[START]), start(0, "get_wether"), input(0, "{}"), end.clone()].concat();
    assert_eq!(ask.read(&unknown).said(), ("soft.unknown_tool", Hint::Modify));
    let nameless = [converse(&[START]), input(0, "{}"), end].concat();
    assert_eq!(ask.read(&nameless).said(), ("soft.tool_call", Hint::Modify));
}

#[test]
fn stop_reasons_of_a_converse_stream_are_those_of_a_whole_answer() {
    for (stop, said) in [
        ("max_tokens", ("soft.truncated", Hint::Modify)),
        ("guardrail_intervened", ("refused", Hint::Fallback)),
        ("malformed_tool_use", ("soft.tool_call", Hint::Same)),
        ("something_new", ("soft.low_confidence", Hint::Same)),
    ] {
        let stop = format!(r#"{{"stopReason":"{stop}"}}"#);
        let told = BINARY.read(&converse(&[START, DELTA, ("messageStop", &stop), METADATA]));
        assert_eq!(told.said(), said, "{stop}");
    }
    let reasoning =
        ("contentBlockDelta", r#"{"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"hm"}}}"#);
    let told = BINARY.read(&converse(&[START, reasoning, STOP, METADATA]));
    assert_eq!((told.said(), told.content), (("soft.empty", Hint::Modify), true));
    let told = BINARY.read(&converse(&[START, STOP, METADATA]));
    assert_eq!((told.said(), told.content), (("soft.empty", Hint::Same), false));
}

#[test]
fn an_object_or_a_page_where_a_converse_stream_was_promised_is_what_it_is() {
    for (body, class) in [
        (r#"{"__type":"ThrottlingException","message":"x"}"#, "rate_limited"),
        ("<html>502</html>", "transient"),
        ("", "soft.empty"),
    ] {
        assert_eq!(BINARY.read(body.as_bytes()).class().as_str(), class, "{body}");
    }
    assert_eq!(BINARY.read(b"data: {}\n\ndata: {}\n\n").said(), ("transient", Hint::Same));
}

#[test]
fn events_that_nobody_knows_are_no_content_and_no_failure() {
    let body =
        [converse(&[START, DELTA, ("somethingNew", "{}")]), message(&[], ""), converse(&[STOP, METADATA])]
            .concat();
    assert_eq!(BINARY.read(&body).said(), ("success", Hint::Never));
}

const HALF_LINE: &str =
    "{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"Halb-\"},\"done\":false}\n";
const LAST_LINE: &str = "{\"model\":\"m\",\"message\":{\"content\":\"öffnen\"},\"done\":true,\"done_reason\":\"stop\",\"prompt_eval_count\":26,\"eval_count\":5}\n";

#[test]
fn lines_of_ollama_are_put_together_and_end_where_they_say_that_they_are_done() {
    let told = LINES.read(format!("{HALF_LINE}\n{LAST_LINE}{{\"garbage").as_bytes());
    assert_eq!((told.said(), told.content), (("success", Hint::Never), true));
    assert!(matches!(told.end, Ok(Some(_))));
    assert_eq!((told.facts.text.as_deref(), told.facts.usage.total()), (Some("Halb-öffnen"), 31));
    // The last line end is missing.
    assert_eq!(
        LINES.read(format!("{HALF_LINE}{}", LAST_LINE.trim_end()).as_bytes()).said(),
        ("success", Hint::Never)
    );
    let generate = Ask { path: "/api/generate", body: r#"{"prompt":"x"}"#, ..LINES };
    let told = generate
        .read(b"{\"response\":\"a\",\"done\":false}\n{\"response\":\"b\",\"done\":true,\"context\":[1]}\n");
    assert_eq!((told.said(), told.facts.text.as_deref()), (("success", Hint::Never), Some("ab")));
}

#[test]
fn lines_of_ollama_without_done_are_truncated_and_an_error_line_is_its_error() {
    // V-C4, G51
    let told = LINES.read(HALF_LINE.as_bytes());
    assert_eq!((told.end.is_err(), told.said()), (true, ("soft.truncated", Hint::Same)));
    let cut = format!("{HALF_LINE}{}", &LAST_LINE[..30]);
    assert_eq!(LINES.read(cut.as_bytes()).said(), ("soft.truncated", Hint::Same));
    let error = "{\"error\":\"an error was encountered while running the model: unexpected EOF\"}\n";
    let told = LINES.read(format!("{HALF_LINE}{error}").as_bytes());
    assert_eq!((told.end.is_err(), told.class(), told.content), (true, Class::Transient, true));
    let told = LINES.read(error.as_bytes());
    assert_eq!((told.class(), told.content), (Class::Transient, false));
    assert_eq!(LINES.read(b"<html>").class(), Class::Transient);
    assert_eq!(LINES.read(b"").class().as_str(), "soft.empty");
    assert_eq!(LINES.read(format!("{HALF_LINE}no json\n").as_bytes()).class(), Class::Transient);
}

#[test]
fn calls_and_thoughts_of_ollama_are_content() {
    let ask =
        LINES.with(r#"{"messages":[],"tools":[{"type":"function","function":{"name":"get_weather"}}]}"#);
    let thought = "{\"message\":{\"content\":\"\",\"thinking\":\"hm\"},\"done\":false}\n";
    let call = "{\"message\":{\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"get_weather\",\"arguments\":{\"city\":\"Oslo\"}}}]},\"done\":false}\n";
    let end = "{\"message\":{\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\"}\n";
    let told = ask.read(format!("{thought}{call}{call}{end}").as_bytes());
    assert_eq!(told.said(), ("success", Hint::Never));
    assert_eq!(told.facts.tool_calls.len(), 2);
    for line in [thought, call] {
        let (mut decoder, _) = ask.decoder();
        assert!(decoder.feed(&Bytes::from(line)).content, "{line}");
    }
    assert_eq!(ask.read(format!("{thought}{end}").as_bytes()).said(), ("soft.empty", Hint::Modify));
    let unknown = call.replace("get_weather", "rm");
    assert_eq!(ask.read(format!("{unknown}{end}").as_bytes()).said(), ("soft.unknown_tool", Hint::Modify));
    let length = end.replace("stop", "length");
    assert_eq!(ask.read(format!("{HALF_LINE}{length}").as_bytes()).said(), ("soft.truncated", Hint::Modify));
}

#[test]
fn a_model_that_was_only_loaded_is_no_empty_answer() {
    for reason in ["load", "unload"] {
        let line =
            format!("{{\"message\":{{\"content\":\"\"}},\"done\":true,\"done_reason\":\"{reason}\"}}\n");
        let told = LINES.read(line.as_bytes());
        assert_eq!(
            (told.said(), told.facts.finish.clone()),
            (("success", Hint::Never), Some(Finish::Other(reason.into())))
        );
        assert_eq!(told.verdict(), Verdict::SUCCESS);
    }
}

const CLAUDE: Ask = Ask {
    provider: Provider::Auto,
    path: "/model/eu.anthropic.claude/invoke-with-response-stream",
    body: r#"{"anthropic_version":"bedrock-2023-05-31","messages":[],"max_tokens":9}"#,
    kind: "application/vnd.amazon.eventstream",
};

fn chunks(events: &[&str]) -> Vec<u8> {
    events.iter().flat_map(|event| crate::common::aws::chunk(event)).collect()
}

#[test]
fn anthropics_events_in_chunks_of_bedrock_are_read_as_what_they_are() {
    let events = [
        r#"{"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":1}}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Grü"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"ezi"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":4}}"#,
        r#"{"type":"message_stop","amazon-bedrock-invocationMetrics":{"inputTokenCount":99,"outputTokenCount":99}}"#,
    ];
    // Where the path does not say whose model it is, its first event does.
    for ask in [
        CLAUDE,
        Ask { provider: Provider::Bedrock, path: "/proxy", ..CLAUDE },
        Ask { path: "/proxy", ..CLAUDE },
    ] {
        let told = ask.read(&chunks(&events));
        assert_eq!((told.end.unwrap(), told.content), (Some(Verdict::SUCCESS), true), "{}", ask.path);
        assert_eq!((told.facts.text.as_deref(), told.facts.finish), (Some("Grüezi"), Some(Finish::Stop)));
        assert_eq!((told.facts.usage.input, told.facts.usage.output), (Some(9), Some(4)));
        for cut in 1..events.len() {
            let told = ask.read(&chunks(&events[..cut]));
            assert_eq!(told.said(), ("soft.truncated", Hint::Same), "{cut}");
        }
        let truncated = events.map(|event| event.replace("end_turn", "max_tokens"));
        let told = ask.read(&chunks(&truncated.each_ref().map(String::as_str)));
        assert_eq!(told.said(), ("soft.truncated", Hint::Modify));
    }
}

#[test]
fn failures_in_chunks_of_bedrock_have_their_class() {
    let start = crate::common::aws::chunk(r#"{"type":"message_start","message":{}}"#);
    for (body, class) in [
        (exception("throttlingException", "slow down"), "rate_limited"),
        (crate::common::aws::chunk(r#"{"type":"error","error":{"type":"overloaded_error"}}"#), "overloaded"),
        (event("chunk", r#"{"bytes":"?"}"#), "transient"),
        (event("chunk", "{}"), "transient"),
        (crate::common::aws::chunk("no json"), "transient"),
    ] {
        for ask in [CLAUDE, Ask { provider: Provider::Bedrock, ..CLAUDE }] {
            assert_eq!(ask.read(&body).class().as_str(), class);
            assert_eq!(ask.read(&[&start[..], &body].concat()).class().as_str(), class);
        }
    }
}

#[test]
fn events_of_models_that_nobody_knows_pass_in_their_chunks_and_are_billed_as_bedrock_counts() {
    for (body, events) in [
        (
            r#"{"inputText":"?"}"#,
            [r#"{"outputText":"a"}"#, r#"{"outputText":"b","completionReason":"FINISH"}"#],
        ),
        (r#"{"prompt":"?"}"#, [r#"{"generation":"a"}"#, r#"{"generation":"","stop_reason":"stop"}"#]),
        (
            r#"{"messages":[]}"#,
            [r#"{"choices":[{"message":{"content":"a"}}]}"#, r#"{"choices":[{"stop_reason":"stop"}]}"#],
        ),
        (r#"{"messages":[]}"#, [r#"{"event_type":"text-generation","text":"a"}"#, r#"{"is_finished":true}"#]),
    ] {
        let ask = Ask { path: "/model/m/invoke-with-response-stream", body, ..CLAUDE };
        let last =
            r#"{"done":1,"amazon-bedrock-invocationMetrics":{"inputTokenCount":9,"outputTokenCount":3}}"#;
        let told = ask.read(&chunks(&[events[0], events[1], last]));
        assert_eq!((told.class(), told.content), (Class::Success, true), "{events:?} {:?}", told.end);
        assert_eq!((told.facts.usage.input, told.facts.usage.output), (Some(9), Some(3)), "{events:?}");
    }
    let nova = [
        r#"{"messageStart":{"role":"assistant"}}"#,
        r#"{"contentBlockDelta":{"delta":{"text":"a"},"contentBlockIndex":0}}"#,
        r#"{"messageStop":{"stopReason":"end_turn"}}"#,
        r#"{"metadata":{"usage":{"inputTokens":9,"outputTokens":3}}}"#,
    ];
    let ask = Ask { path: "/model/m/invoke-with-response-stream", body: r#"{"messages":[]}"#, ..CLAUDE };
    let told = ask.read(&chunks(&nova));
    assert_eq!((told.class(), told.facts.text.as_deref()), (Class::Success, Some("a")));
    assert_eq!(ask.read(&chunks(&nova[..2])).said(), ("soft.truncated", Hint::Same));
}
