//! No stream makes the layer panic or grow, and where its bytes are cut changes nothing.

use std::sync::LazyLock;

use crate::common::{Told, decoder, read};
use bytes::Bytes;
use failsoft_core::MAX_FINDINGS;
use http::Request;
use proptest::prelude::*;
use stream_layer::Decoder as _;

/// Read once for all cases.
static STREAMS: LazyLock<Vec<Vec<u8>>> =
    LazyLock::new(|| crate::common::streams().into_iter().map(|sample| sample.body).collect());

const CHAT: &str = r#"{"messages":[],"stream":true,"max_tokens":3,"response_format":{"type":"json_object"},
    "tools":[{"function":{"name":"get_weather"}}]}"#;

fn whole(body: &[u8]) -> Told {
    let told = read(&Request::new(CHAT), [body]);
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

/// A piece of an answer, mostly well formed.
fn event() -> impl Strategy<Value = String> {
    let text = ".{0,12}".prop_map(|text| serde_json::to_string(&text).unwrap());
    let raw = "(null|[0-9]{1,25}|\\[\\]|\\{\\}|\"x\"|true|-1e9|\\[\\{\\}\\])".prop_map(String::from);
    (prop_oneof![text, raw], 0u8..12, 0u64..3).prop_map(|(value, kind, index)| match kind {
        0..=2 => format!(r#"{{"choices":[{{"index":{index},"delta":{{"content":{value}}}}}]}}"#),
        3 => format!(
            r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{{"index":{index},"id":{value},
            "function":{{"name":{value},"arguments":{value}}}}}]}}}}]}}"#
        )
        .replace('\n', " "),
        4 => format!(r#"{{"choices":[{{"delta":{{"tool_calls":{value},"function_call":{value}}}}}]}}"#),
        5 => format!(r#"{{"choices":[{{"index":{index},"finish_reason":{value}}}]}}"#),
        6 => format!(r#"{{"choices":[],"usage":{{"prompt_tokens":{value},"completion_tokens":{index}}}}}"#),
        7 => format!(r#"{{"choices":{value},"usage":{value},"x_groq":{value}}}"#),
        8 => format!(r#"{{"error":{value},"object":{value},"type":{value}}}"#),
        9 => format!(
            r#"{{"choices":[{{"delta":{{"reasoning":{value},"refusal":{value},"audio":{value}}}}}]}}"#
        ),
        10 => "[DONE]".to_owned(),
        _ => value,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn any_bytes_have_an_end(body in proptest::collection::vec(any::<u8>(), 0..400)) {
        whole(&body);
        let mut body = body;
        body.splice(0..0, *b"data: ");
        whole(&body);
    }

    #[test]
    fn a_changed_and_cut_sample_says_the_same_however_it_is_cut(
        which in any::<prop::sample::Index>(),
        end in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut body = which.get(&STREAMS).clone();
        for (at, byte) in changes {
            let at = at.index(body.len());
            body[at] = byte;
        }
        body.truncate(end.index(body.len() + 1));
        let cut = read(&Request::new(CHAT), pieces(&body, &cuts));
        prop_assert_eq!(essence(&whole(&body)), essence(&cut));
    }

    #[test]
    fn any_events_say_the_same_however_they_are_cut(
        events in proptest::collection::vec(event(), 0..8),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        let cut = read(&Request::new(CHAT), pieces(body.as_bytes(), &cuts));
        prop_assert_eq!(essence(&whole(body.as_bytes())), essence(&cut));
    }
}

/// The same with a field in each event that no event before had: nothing can be known from those.
fn never_alike(events: &[String]) -> String {
    let field = |(at, event): (usize, &String)| match event.strip_prefix('{') {
        Some("}") => format!("data: {{\"n{at}\":0}}\n\n"),
        Some(rest) => format!("data: {{\"n{at}\":0,{rest}\n\n"),
        None => format!("data: {event}\n\n"),
    };
    events.iter().enumerate().map(field).collect()
}

/// Deltas as they follow each other in a stream, with a few that differ.
fn alike() -> impl Strategy<Value = Vec<String>> {
    let text = "([ -~é😀]|\\\\[nrt\"\\\\u]|\\\\u[0-9a-f]{4}|\\\\ud83d\\\\ude00|\u{1}){0,6}";
    let pad = "[a-zA-Z0-9]{0,6}";
    let delta = (text, pad, 0u8..8, 0u64..3, 0u64..2).prop_map(|(text, pad, kind, index, created)| {
        let delta = match kind {
            0..=2 => format!(r#"{{"content":"{text}"}}"#),
            3 => format!(r#"{{"content":null,"reasoning_content":"{text}"}}"#),
            4 => format!(r#"{{"content":"","reasoning":"{text}","refusal":null}}"#),
            5 => format!(r#"{{"tool_calls":[{{"index":{index},"function":{{"arguments":"{text}"}}}}]}}"#),
            6 => format!(r#"{{"tool_calls":[{{"index":{index},"id":"{pad}","function":{{"name":"{pad}","arguments":"{text}"}}}}]}}"#),
            _ => format!(r#"{{"content":"{text}","tool_calls":[],"audio":{{}}}}"#),
        };
        format!(
            r#"{{"id":"c","created":{created},"choices":[{{"index":{},"delta":{delta},"finish_reason":null}}],"obfuscation":"{pad}"}}"#,
            index.min(1)
        )
    });
    let other = event().prop_filter("an end would end it", |event| event != "[DONE]");
    proptest::collection::vec(prop_oneof![9 => delta, 1 => other], 0..24)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn an_event_that_is_like_one_before_it_means_what_it_means_by_itself(
        events in alike(),
        finish in prop_oneof![Just(""), Just("data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")],
    ) {
        let stream: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        let (alike, single) = (whole((stream + finish).as_bytes()), whole((never_alike(&events) + finish).as_bytes()));
        prop_assert_eq!(essence(&alike), essence(&single));
        prop_assert_eq!(alike.content, single.content);
    }
}

#[test]
fn an_answer_without_end_takes_bounded_memory() {
    let (mut decoder, insight) = decoder(&Request::new(CHAT));
    let long = "x".repeat(60_000);
    for index in 0..1_000_u32 {
        let chunk = format!(
            r#"{{"choices":[{{"index":{index},"delta":{{"content":"{long}","tool_calls":[
            {{"index":{index},"id":"{index}","function":{{"name":"f","arguments":"{long}"}}}}]}}}}]}}"#
        );
        let seen = decoder.feed(&Bytes::from(format!("data: {}\n\n", chunk.replace('\n', ""))));
        assert!(!seen.is_over());
    }
    // Only its end can be judged.
    let end = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    let seen = decoder.feed(&Bytes::from(format!("data: {end}\n\ndata: [DONE]\n\n")));
    assert!(seen.end.is_some_and(|verdict| verdict.is_success()));
    let facts = insight.facts();
    assert_eq!((facts.text, facts.tool_calls.len()), (None, 0));
    assert_eq!(facts.report.leading().map(|finding| finding.code()), Some("too_long"));
    assert!(facts.output_bytes > 8 << 20);
}

#[test]
fn more_tool_calls_than_anyone_makes_are_an_error_and_not_kept() {
    let mut body = String::new();
    for index in 0..3_000 {
        let call = format!(r#"{{"index":{index},"function":{{"name":"get_weather","arguments":"{{}}"}}}}"#);
        body.push_str(&format!("data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{call}]}}}}]}}\n\n"));
    }
    body.push_str("data: {\"choices\":[{\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n");
    let told = whole(body.as_bytes());
    assert_eq!(told.class().as_str(), "soft.tool_call");
    assert_eq!(told.facts.tool_calls.len(), 1024);
}
