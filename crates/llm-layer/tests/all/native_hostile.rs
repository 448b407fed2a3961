//! No stream of Gemini, Bedrock or Ollama makes the layer panic or grow, and where its bytes are cut changes nothing.

use crate::common::{
    Told,
    aws::{event, exception, message},
    native::{ARRAY, Ask, BINARY, LINES, SSE, gemini},
};
use bytes::Bytes;
use failsoft_core::MAX_FINDINGS;
use http::{HeaderMap, StatusCode};
use llm_layer::{Offered, Provider};
use proptest::prelude::*;
use stream_layer::Decoder as _;

const ASKS: [Ask; 4] = [SSE, ARRAY, BINARY, LINES];

/// Asks of the same targets for tools and JSON.
fn asks() -> impl Strategy<Value = Ask> {
    let wanting = [
        SSE.with(r#"{"contents":[],"tools":[{"functionDeclarations":[{"name":"f"}]}],"generationConfig":{"maxOutputTokens":3,"responseMimeType":"application/json"}}"#),
        ARRAY.with(r#"{"contents":[],"tools":[{"functionDeclarations":[{"name":"f"}]}]}"#),
        BINARY.with(r#"{"messages":[],"toolConfig":{"tools":[{"toolSpec":{"name":"f"}}]},"inferenceConfig":{"maxTokens":3}}"#),
        LINES.with(r#"{"messages":[],"format":"json","options":{"num_predict":3},"tools":[{"function":{"name":"f"}}]}"#),
    ];
    proptest::sample::select([ASKS, wanting].concat())
}

fn whole(ask: Ask, body: &[u8]) -> Told {
    let told = ask.read_pieces([body]);
    assert!(told.facts.report.findings().len() <= MAX_FINDINGS);
    // A replacement character takes three bytes in place of one.
    assert!(told.facts.text.as_ref().map_or(0, |text| text.len()) <= 3 * body.len());
    told
}

/// What must not depend on where the bytes were cut.
fn essence(told: &Told) -> String {
    let facts = &told.facts;
    format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {}",
        told.verdict(),
        told.end.is_ok(),
        facts.text,
        facts.tool_calls,
        facts.finish,
        facts.usage,
        facts.output_bytes
    )
}

fn pieces<'a>(body: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
    cuts.extend([0, body.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|ends| &body[ends[0]..ends[1]]).collect()
}

/// A value, mostly of the wrong type.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        ".{0,12}".prop_map(|text| serde_json::to_string(&text).unwrap()),
        "(null|[0-9]{1,25}|\\[\\]|\\{\\}|\"x\"|true|-1e9|\\[\\{\\}\\]|\"STOP\"|\"tool_use\"|\"f\"|\"\\{\")",
    ]
}

/// A piece of an answer of any of the three, mostly well formed.
fn json() -> impl Strategy<Value = String> {
    (value(), value(), 0u8..15, 0u64..3).prop_map(|(value, other, kind, index)| match kind {
        0 | 1 => format!(r#"{{"candidates":[{{"index":{index},"content":{{"parts":[{{"text":{value}}},{{"text":{other},"thought":true}}]}}}}]}}"#),
        2 => format!(r#"{{"candidates":[{{"content":{{"parts":[{{"functionCall":{{"name":{value},"args":{other},"id":{value}}}}}]}}}}]}}"#),
        3 => format!(r#"{{"candidates":[{{"index":{value},"finishReason":{other}}}],"usageMetadata":{{"promptTokenCount":{index},"candidatesTokenCount":{value},"totalTokenCount":{other}}}}}"#),
        4 => format!(r#"{{"promptFeedback":{{"blockReason":{value}}},"candidates":{other}}}"#),
        5 => format!(r#"{{"error":{{"code":{value},"status":{other},"details":[{{"reason":{value},"retryDelay":{other},"violations":[{{"quotaId":{value}}}]}}]}}}}"#),
        6 => format!(r#"{{"message":{{"content":{value},"thinking":{other},"tool_calls":[{{"function":{{"name":{other},"arguments":{value}}}}}]}},"done":false}}"#),
        7 => format!(r#"{{"message":{value},"response":{other},"done":true,"done_reason":{value},"eval_count":{other}}}"#),
        8 => format!(r#"{{"error":{value}}}"#),
        9 => format!(r#"{{"contentBlockIndex":{index},"delta":{{"text":{value},"toolUse":{{"input":{other}}}}}}}"#),
        10 => format!(r#"{{"contentBlockIndex":{index},"start":{{"toolUse":{{"name":{value},"toolUseId":{other}}}}}}}"#),
        11 => format!(r#"{{"stopReason":{value},"usage":{{"inputTokens":{other},"outputTokens":{index}}}}}"#),
        12 => format!(r#"{{"contentBlockDelta":{{"delta":{{"reasoningContent":{{"text":{value}}},"citationsContent":{other}}}}}}}"#),
        13 => format!(
            r#"{{"candidates":[{{"content":{{"parts":[{{"functionCall":{{"partialArgs":[{{"jsonPath":"$.a","stringValue":{value}}},{{"jsonPath":{other},"numberValue":{value}}}],"willContinue":true}}}}]}}}}]}}"#
        ),
        _ => value,
    })
}

fn name() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec![
        "messageStart",
        "contentBlockStart",
        "contentBlockDelta",
        "contentBlockDelta",
        "contentBlockStop",
        "messageStop",
        "metadata",
        "chunk",
        "",
    ])
}

/// The same pieces, framed as the target frames them.
fn framed(ask: Ask, events: &[(&str, String)]) -> Vec<u8> {
    match ask.provider {
        Provider::Bedrock => events.iter().flat_map(|(name, json)| event(name, json)).collect(),
        Provider::Ollama => events.iter().flat_map(|(_, json)| format!("{json}\n").into_bytes()).collect(),
        _ => {
            let all: Vec<&str> = events.iter().map(|(_, json)| &**json).collect();
            let [sse, array] = gemini(&all);
            if ask.kind == SSE.kind { sse.1 } else { array.1 }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn any_bytes_have_an_end(ask in asks(), body in proptest::collection::vec(any::<u8>(), 0..400)) {
        whole(ask, &body);
        whole(ask, &message(&[(":event-type", "contentBlockDelta")], &String::from_utf8_lossy(&body)));
        for provider in [Provider::Gemini, Provider::Bedrock, Provider::Ollama] {
            for status in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
                let facts = provider.judge(status, &HeaderMap::new(), &body, &Offered::unknown());
                prop_assert!(facts.verdict.is_some());
            }
        }
    }

    #[test]
    fn any_events_say_the_same_however_they_are_cut(
        ask in asks(),
        events in proptest::collection::vec((name(), json()), 0..8),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..2),
        end in prop_oneof![3 => Just(None), 1 => any::<prop::sample::Index>().prop_map(Some)],
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut body = framed(ask, &events);
        for (at, byte) in changes.into_iter().filter(|_| !body.is_empty()).collect::<Vec<_>>() {
            let at = at.index(body.len());
            body[at] = byte;
        }
        if let Some(end) = end {
            body.truncate(end.index(body.len() + 1));
        }
        let cut = ask.read_pieces(pieces(&body, &cuts));
        prop_assert_eq!(essence(&whole(ask, &body)), essence(&cut));
        prop_assert_eq!(essence(&ask.read_pieces(body.chunks(1))), essence(&cut));
    }

    #[test]
    fn any_value_may_stand_in_any_field_of_a_whole_body(status in 200u16..600, json in json(), offered in any::<bool>()) {
        let offered = if offered { Offered::unknown().with_tool("f").with_json() } else { Offered::unknown() };
        let Ok(status) = StatusCode::from_u16(status) else { return Ok(()) };
        for provider in [Provider::Auto, Provider::Gemini, Provider::Bedrock, Provider::Ollama] {
            for body in [json.clone(), format!("[{json},{json}]"), format!("{json}\n{json}")] {
                let facts = provider.judge(status, &HeaderMap::new(), body.as_bytes(), &offered);
                prop_assert!(facts.verdict.is_some());
            }
        }
    }

    #[test]
    fn any_exception_is_a_failure(name in "[ -~]{0,30}", text in "[ -~&&[^\"\\\\]]{0,40}") {
        let told = whole(BINARY, &exception(&name, &text));
        prop_assert!(told.end.is_err() && !told.verdict().is_success());
    }
}

#[test]
fn answers_without_end_take_bounded_memory() {
    let long = "x".repeat(60_000);
    for (ask, one) in [
        (
            SSE,
            format!(
                r#"{{"candidates":[{{"index":7,"content":{{"parts":[{{"text":"{long}"}},{{"functionCall":{{"name":"f","args":{{"a":"{long}"}}}}}}]}}}}]}}"#
            ),
        ),
        (
            LINES,
            format!(
                r#"{{"message":{{"content":"{long}","tool_calls":[{{"function":{{"name":"f","arguments":{{"a":"{long}"}}}}}}]}},"done":false}}"#
            ),
        ),
        (BINARY, format!(r#"{{"contentBlockIndex":1,"delta":{{"toolUse":{{"input":"{long}"}}}}}}"#)),
    ] {
        let (mut decoder, insight) = ask.decoder();
        let piece = Bytes::from(framed(ask, &[("contentBlockDelta", one)]));
        for _ in 0..200 {
            assert!(!decoder.feed(&piece).is_over());
        }
        drop(decoder);
        assert!(insight.facts().output_bytes > 8 << 20, "{:?}", ask.provider);
        assert_eq!(insight.facts().text, None);
    }
}

#[test]
fn parts_candidates_and_details_without_end_are_no_trouble() {
    let part = r#"{"functionCall":{"name":"f","args":{}}},"#.repeat(5_000);
    let many = format!(
        r#"{{"candidates":[{{"content":{{"parts":[{}]}},"finishReason":"STOP"}}]}}"#,
        part.trim_end_matches(',')
    );
    let facts =
        Provider::Gemini.judge(StatusCode::OK, &HeaderMap::new(), many.as_bytes(), &Offered::unknown());
    assert_eq!(facts.verdict.map(|verdict| verdict.class().as_str()), Some("soft.tool_call"));
    assert!(facts.tool_calls.len() <= 1024);
    let deep = |open: &str, close: &str| format!("{}{}", open.repeat(20_000), close.repeat(20_000));
    for body in [
        format!(r#"{{"candidates":[{}]}}"#, vec![r#"{"finishReason":"STOP"}"#; 5_000].join(",")),
        format!(
            r#"{{"error":{{"code":429,"details":[{}]}}}}"#,
            vec![r#"{"reason":"x","violations":[{}]}"#; 5_000].join(",")
        ),
        deep("{\"candidates\":[", "]}"),
        deep("[", "]"),
        format!(
            r#"{{"candidates":[{{"content":{{"parts":[{{"functionCall":{{"name":"a","args":{}}}}}]}}}}]}}"#,
            deep("{\"a\":", "1}")
        ),
    ] {
        for provider in [Provider::Gemini, Provider::Bedrock, Provider::Ollama, Provider::Auto] {
            for status in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
                let facts = provider.judge(status, &HeaderMap::new(), body.as_bytes(), &Offered::unknown());
                assert!(facts.verdict.is_some());
            }
        }
        whole(SSE, format!("data: {body}\n\n").as_bytes());
        whole(ARRAY, format!("[{body}]").as_bytes());
    }
}
