//! An event that is like one before it is not read again: whatever comes, that changes nothing. Chat completions with text
//! and tool calls are in `sse_hostile`.

use crate::common::{Told, decoder_of, read_of};
use bytes::Bytes;
use failsoft_core::{Class, Usage};
use http::Request;
use llm_layer::Provider;
use proptest::prelude::*;
use stream_layer::Decoder as _;

const ASKED: &str =
    r#"{"messages":[],"stream":true,"tools":[{"name":"get_weather","function":{"name":"get_weather"}}]}"#;

/// The events as they are, or each with a field that no event before had: then nothing can be known from those.
fn stream(events: &[String], alike: bool) -> String {
    let event = |(at, data): (usize, &String)| {
        let kind = data.split('"').nth(3).unwrap_or_default();
        let rest = data.strip_prefix('{').unwrap();
        let data = if alike { data.clone() } else { format!("{{\"n{at}\":0,{rest}") };
        format!("event: {kind}\ndata: {data}\n\n")
    };
    events.iter().enumerate().map(event).collect()
}

/// Whole, and event by event.
fn told(provider: Provider, events: &[String], alike: bool) -> Told {
    let stream = stream(events, alike);
    let told = read_of(provider, &Request::new(ASKED), [stream.as_bytes()]);
    let pieces = read_of(provider, &Request::new(ASKED), stream.split_inclusive("\n\n").map(str::as_bytes));
    assert_eq!(essence(&told), essence(&pieces));
    told
}

/// What each event shows by itself: how many there are, and whether one is progress or content.
fn shown(provider: Provider, events: &[String], alike: bool) -> Vec<(usize, bool, bool)> {
    let (mut decoder, _) = decoder_of(provider, &Request::new(ASKED));
    let mut shown = Vec::new();
    for piece in stream(events, alike).split_inclusive("\n\n") {
        let seen = decoder.feed(&Bytes::copy_from_slice(piece.as_bytes()));
        shown.push((seen.events, seen.progress, seen.content));
        if seen.is_over() {
            break;
        }
    }
    shown
}

/// Known events and events that are each read by themselves say the same.
fn are_alike(provider: Provider, events: &[String]) -> Result<(), TestCaseError> {
    let [alike, single] = [true, false].map(|alike| told(provider, events, alike));
    prop_assert_eq!(essence(&alike), essence(&single));
    let [alike, single] = [true, false].map(|alike| shown(provider, events, alike));
    prop_assert_eq!(alike, single);
    Ok(())
}

fn essence(told: &Told) -> String {
    let facts = &told.facts;
    format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {} {}",
        told.verdict(),
        told.end.is_ok(),
        facts.text,
        facts.tool_calls,
        facts.finish,
        facts.usage,
        facts.output_bytes,
        told.content
    )
}

const TEXT: &str =
    "([ -!#-\\[\\]-~é😀]|\\\\[nrt\"\\\\]|\\\\u[0-9a-f]{4}|\\\\ud83d\\\\ude00|\\\\u12|\u{1}){0,6}";

/// Numbers as servers may write them, and what may stand in their place.
const NUMBERS: [&str; 24] = [
    "0",
    "1",
    "7",
    "42",
    "31",
    "31",
    "8",
    "1999",
    "9999999999999999999",
    "18446744073709551615",
    "18446744073709551616",
    "123456789012345678901",
    "-1",
    "-0",
    "1.0",
    "2.5",
    "1e2",
    "1E+400",
    "3e-2",
    "\"7\"",
    "null",
    "{}",
    "[1]",
    "true",
];

fn numbers() -> impl Strategy<Value = [&'static str; 4]> {
    proptest::array::uniform4(proptest::sample::select(&NUMBERS[..]))
}

/// Chunks of a chat completion with token counts in each.
fn counted() -> impl Strategy<Value = Vec<String>> {
    let event = (TEXT, numbers(), 0u8..24, 0u64..2).prop_map(|(text, numbers, kind, index)| {
        let [prompt, completion, cached, other] = numbers;
        let chunk = |usage: &str| {
            format!(r#"{{"id":"c","choices":[{{"index":{index},"delta":{{"content":"{text}"}},"finish_reason":null}}],"usage":{usage}}}"#)
        };
        match kind {
            0..=7 => chunk(&format!(r#"{{"prompt_tokens":{prompt},"total_tokens":{other},"completion_tokens":{completion}}}"#)),
            8..=11 => chunk(&format!(r#"{{"prompt_tokens":31,"completion_tokens":{completion},"prompt_tokens_details":{{"cached_tokens":{cached}}},"completion_tokens_details":{{"reasoning_tokens":{prompt},"other":{other}}},"queue_time":{other}}}"#)),
            12 | 13 => chunk(&format!(r#"{{"input_tokens":{prompt},"output_tokens":{completion},"prompt_tokens":{other},"prompt_cache_hit_tokens":{cached}}}"#)),
            14 => chunk(&format!(r#"{{"completion_tokens":{completion},"prompt_tokens":{prompt},"completion_tokens":{other}}}"#)),
            15 => chunk(&format!(r#"{{"note":"\"{{\\\"completion_tokens\\\":1}}","completion_tokens":{completion},"cost":[{other},{{"x":{cached}}}]}}"#)),
            16 => chunk(other),
            17 | 18 => format!(r#"{{"choices":[{{"index":{index},"delta":{{"content":"{text}"}},"usage":{{"prompt_tokens":{prompt},"completion_tokens":{completion}}}}}]}}"#),
            19 => format!(r#"{{"choices":[{{"index":{index},"delta":{{"content":"{text}"}},"usage":{{"completion_tokens":{prompt}}}}}],"usage":{{"completion_tokens":{completion}}}}}"#),
            20 | 21 => format!(r#"{{"choices":[{{"delta":{{"content":"{text}"}}}}],"x_groq":{{"id":"r","usage":{{"completion_tokens":{completion},"total_time":{other}}}}}}}"#),
            22 => format!(r#"{{"choices":[{{"delta":{{"content":"{text}"}}}}],"x_groq":{{"usage":{{"completion_tokens":{completion}}}}},"usage":{{"completion_tokens":{prompt}}}}}"#),
            _ => format!(r#"{{"usage":{{"completion_tokens":{completion}}},"choices":[{{"delta":{{"content":"{text}"}}}}]}}"#),
        }
    });
    proptest::collection::vec(event, 0..24)
}

fn messages() -> impl Strategy<Value = Vec<String>> {
    let event = (TEXT, 0u8..16, 0u64..3).prop_map(|(text, kind, index)| {
        let delta = |kind: &str, field: &str| {
            format!(r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"{kind}","{field}":"{text}"}}}}"#)
        };
        match kind {
            0..=4 => delta("text_delta", "text"),
            5..=7 => delta("thinking_delta", "thinking"),
            8..=10 => delta("input_json_delta", "partial_json"),
            11 => delta("text_delta", "partial_json"),
            12 => delta("signature_delta", "signature"),
            13 => format!(r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{text}"}},"usage":{{"output_tokens":{index}}}}}"#),
            14 => format!(r#"{{"type":"content_block_start","index":{index},"content_block":{{"type":"tool_use","id":"t{index}","name":"get_weather","input":{{}}}}}}"#),
            _ => format!(r#"{{"type":"content_block_stop","index":{index}}}"#),
        }
    });
    let begin = r#"{"type":"message_start","message":{"usage":{"input_tokens":3,"output_tokens":1}}}"#;
    proptest::collection::vec(event, 0..24).prop_map(move |mut events| {
        events.insert(0, begin.to_owned());
        events
    })
}

fn responses() -> impl Strategy<Value = Vec<String>> {
    let event = (TEXT, "[a-z]{0,4}", 0u8..12, 0u64..3, 0u64..20).prop_map(|(text, pad, kind, index, number)| {
        let delta = |kind: &str| {
            format!(r#"{{"type":"{kind}","sequence_number":{number},"item_id":"i{index}","output_index":{index},"delta":"{text}","obfuscation":"{pad}"}}"#)
        };
        match kind {
            0..=4 => delta("response.output_text.delta"),
            5..=7 => delta("response.function_call_arguments.delta"),
            8 => delta("response.reasoning_summary_text.delta"),
            9 => delta("response.refusal.delta"),
            10 => format!(r#"{{"type":"response.output_item.added","output_index":{index},"item":{{"type":"function_call","call_id":"c{index}","name":"get_weather","arguments":""}}}}"#),
            _ => format!(r#"{{"type":"response.output_text.delta","sequence_number":{number},"delta":"{text}","response":{{"usage":{{"input_tokens":3}}}}}}"#),
        }
    });
    proptest::collection::vec(event, 0..24)
}

#[test]
fn a_line_end_that_cuts_an_event_is_not_taken_for_one_between_two_lines_of_data() {
    let whole = "data: {\"choices\":[\ndata: {\"delta\":{\"content\":\"a\"}}]}\n\n";
    let cut = "data: {\"choices\":[\n{\"delta\":{\"content\":\"b\"}}]}\n\n";
    let stream = [whole, cut].concat();
    for pieces in [
        vec![stream.as_bytes()],
        stream.as_bytes().chunks(1).collect(),
        vec![whole.as_bytes(), cut.as_bytes()],
    ] {
        let told = read_of(Provider::OpenAiCompatible, &Request::new(ASKED), pieces);
        assert_eq!((told.class(), told.facts.text.as_deref()), (Class::Transient, Some("a")));
    }
    // One that has the same two lines is still like it.
    let told =
        read_of(Provider::OpenAiCompatible, &Request::new(ASKED), [[whole, whole].concat().as_bytes()]);
    assert_eq!(told.facts.text.as_deref(), Some("aa"));
}

/// The tokens of a stream whose dialect its events show, in one piece and event by event.
fn tokens(events: &[&str]) -> [Usage; 2] {
    let stream: String = events.iter().map(|data| format!("data: {data}\n\n")).collect();
    let of = |pieces: Vec<&[u8]>| {
        let told = read_of(Provider::Auto, &Request::new(r#"{"messages":[],"stream":true}"#), pieces);
        assert!(told.verdict().is_success(), "{told:?}");
        told.facts.usage
    };
    [of(vec![stream.as_bytes()]), of(stream.split_inclusive("\n\n").map(str::as_bytes).collect())]
}

#[test]
fn what_comes_before_the_dialect_is_known_means_the_same_however_it_is_cut() {
    let counts = r#"{"usage":{"prompt_tokens":3,"completion_tokens":1,"output_tokens":1}}"#;
    let chunk = r#"{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}"#;
    let both = Usage { input: Some(3), output: Some(1), ..Usage::default() };
    assert_eq!(tokens(&[counts, chunk, "[DONE]"]), [both; 2], "those of a chat completion");
    let begin = r#"{"type":"message_start","message":{}}"#;
    let delta = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}"#;
    let events = [
        counts,
        begin,
        delta,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
        r#"{"type":"message_stop"}"#,
    ];
    assert_eq!(tokens(&events), [Usage::default(); 2], "none of a message's");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn chunks_with_token_counts_that_are_alike_mean_what_each_means_by_itself(mut events in counted(), ends in any::<bool>()) {
        if ends {
            events.push(r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#.to_owned());
        }
        are_alike(Provider::OpenAiCompatible, &events)?;
    }

    #[test]
    fn messages_that_are_alike_mean_what_each_means_by_itself(mut events in messages(), ends in any::<bool>()) {
        if ends {
            events.push(r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}"#.to_owned());
            events.push(r#"{"type":"message_stop"}"#.to_owned());
        }
        are_alike(Provider::Anthropic, &events)?;
    }

    #[test]
    fn responses_that_are_alike_mean_what_each_means_by_itself(mut events in responses(), ends in any::<bool>()) {
        if ends {
            events.push(r#"{"type":"response.completed","response":{"status":"completed","output":[],"usage":{"input_tokens":3,"output_tokens":9}}}"#.to_owned());
        }
        are_alike(Provider::OpenAiResponses, &events)?;
    }
}
