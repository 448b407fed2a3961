//! An event that is like one before it is not read again: whatever comes, and however it is cut, that changes nothing.
//! Gemini in both of its forms, Bedrock and Ollama.

use crate::common::{
    Told,
    aws::event,
    native::{ARRAY, Ask, BINARY, LINES, SSE},
};
use bytes::Bytes;
use proptest::prelude::*;
use stream_layer::Decoder as _;

/// A name, which Bedrock's events have, and data.
type Events = Vec<(&'static str, String)>;

/// One piece for each event, as they are, or each with a field that no event before had: then nothing can be known from
/// those.
fn pieces(ask: Ask, events: &Events, alike: bool, ends: bool) -> Vec<Vec<u8>> {
    let piece = |(at, (name, data)): (usize, &(&'static str, String))| {
        let data = match data.strip_prefix('{') {
            Some(rest) if !alike => format!("{{\"n{at}\":0,{rest}"),
            _ => data.clone(),
        };
        match ask.kind {
            kind if kind == SSE.kind => format!("data: {data}\r\n\r\n").into_bytes(),
            kind if kind == ARRAY.kind => {
                format!("{}{data}", if at == 0 { "[" } else { ",\r\n" }).into_bytes()
            }
            kind if kind == BINARY.kind => event(name, &data),
            _ => format!("{data}\n").into_bytes(),
        }
    };
    let mut pieces: Vec<_> = events.iter().enumerate().map(piece).collect();
    if ask.kind == ARRAY.kind && ends {
        pieces.push(if events.is_empty() { b"[]".to_vec() } else { b"]".to_vec() });
    }
    pieces
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

/// What each piece shows by itself: how many events there are, and whether one is progress or content; then the tokens.
fn shown(ask: Ask, pieces: &[Vec<u8>]) -> Vec<String> {
    let (mut decoder, insight) = ask.decoder();
    let mut shown = Vec::new();
    for piece in pieces {
        let seen = decoder.feed(&Bytes::copy_from_slice(piece));
        shown.push(format!("{} {} {} {:?}", seen.events, seen.progress, seen.content, insight.usage()));
        if seen.is_over() {
            break;
        }
    }
    shown
}

fn are_alike(
    ask: Ask,
    events: &Events,
    ends: bool,
    cuts: &[prop::sample::Index],
) -> Result<(), TestCaseError> {
    let [alike, single] = [true, false].map(|alike| pieces(ask, events, alike, ends));
    let whole = |pieces: &[Vec<u8>]| essence(&ask.read_pieces([&pieces.concat()[..]]));
    let expected = whole(&single);
    prop_assert_eq!(whole(&alike), &expected[..]);
    prop_assert_eq!(shown(ask, &alike), shown(ask, &single));
    let body = alike.concat();
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
    cuts.extend([0, body.len()]);
    cuts.sort_unstable();
    let cut = ask.read_pieces(cuts.windows(2).map(|ends| &body[ends[0]..ends[1]]));
    prop_assert_eq!(essence(&cut), expected);
    Ok(())
}

const TEXT: &str =
    "([ -!#-\\[\\]-~é😀]|\\\\[nrt\"\\\\]|\\\\u[0-9a-f]{4}|\\\\ud83d\\\\ude00|\\\\u12|\u{1}){0,6}";

/// Numbers as servers may write them, and what may stand in their place.
const NUMBERS: [&str; 22] = [
    "0",
    "1",
    "7",
    "42",
    "31",
    "31",
    "1999",
    "9999999999999999999",
    "18446744073709551615",
    "18446744073709551616",
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

fn numbers() -> impl Strategy<Value = [&'static str; 3]> {
    proptest::array::uniform3(proptest::sample::select(&NUMBERS[..]))
}

fn gemini() -> impl Strategy<Value = Events> {
    let chunk = (TEXT, numbers(), 0u8..24, 0u64..2).prop_map(|(text, [prompt, output, other], kind, index)| {
        let parts = match kind {
            0..=9 => format!(r#"{{"text":"{text}"}}"#),
            10..=12 => format!(r#"{{"text":"{text}","thought":true}}"#),
            13 => format!(r#"{{"text":"{text}"}},{{"text":"b"}}"#),
            14 => format!(r#"{{"functionCall":{{"name":"f","args":{{"a":"{text}"}}}}}}"#),
            15 => format!(r#"{{"functionCall":{{"name":"f","willContinue":true,"partialArgs":[{{"jsonPath":"$.a","stringValue":"{text}","willContinue":true}}]}}}}"#),
            16 => r#"{"functionCall":{}}"#.to_owned(),
            17 => format!(r#"{{"text":"{text}","inlineData":{{"data":"x"}}}}"#),
            18 => format!(r#"{{"thought":{other},"text":"{text}"}}"#),
            _ => format!(r#"{{"text":{other}}}"#),
        };
        let role = if kind % 2 == 0 { r#","role":"model""# } else { "" };
        let rest = match kind % 8 {
            0..=3 => format!(r#","usageMetadata":{{"promptTokenCount":{prompt},"candidatesTokenCount":{output},"totalTokenCount":{other},"promptTokensDetails":[{{"modality":"TEXT","tokenCount":{prompt}}}]}}"#),
            4 => format!(r#","usageMetadata":{{"thoughtsTokenCount":{output},"cachedContentTokenCount":{prompt}}},"modelVersion":"m""#),
            5 => format!(r#","usageMetadata":{other}"#),
            6 => r#","modelVersion":"m","promptFeedback":{"blockReason":null}"#.to_owned(),
            _ => String::new(),
        };
        let finish = if kind == 9 && index == 1 { r#","finishReason":"MAX_TOKENS""# } else { "" };
        ("", format!(r#"{{"candidates":[{{"content":{{"parts":[{parts}]{role}}}{finish},"index":{index}}}]{rest}}}"#))
    });
    let end = r#"{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"candidatesTokenCount":5}}"#;
    (proptest::collection::vec(chunk, 0..24), any::<bool>()).prop_map(move |(mut events, ends)| {
        events.extend(ends.then(|| ("", end.to_owned())));
        events
    })
}

fn bedrock() -> impl Strategy<Value = Events> {
    let event = (TEXT, "[a-zA-Z]{0,6}", 0u8..20, 0u64..3).prop_map(|(text, pad, kind, index)| {
        let delta = |delta: &str| {
            ("contentBlockDelta", format!(r#"{{"contentBlockIndex":{index},"delta":{delta},"p":"{pad}"}}"#))
        };
        match kind {
            0..=6 => delta(&format!(r#"{{"text":"{text}"}}"#)),
            7..=10 => delta(&format!(r#"{{"toolUse":{{"input":"{text}"}}}}"#)),
            11 => delta(&format!(r#"{{"toolUse":{{"input":"{text}","name":"f"}}}}"#)),
            12 => delta(&format!(r#"{{"toolUse":{{"input":"{text}"}},"text":"x"}}"#)),
            13 => delta(&format!(r#"{{"reasoningContent":{{"text":"{text}"}}}}"#)),
            14 => delta(&format!(r#"{{"reasoningContent":{{"signature":"{pad}"}}}}"#)),
            15 => delta(&format!(r#"{{"text":"{text}","citationsContent":{{"content":[{{"text":"{text}"}}]}}}}"#)),
            16 => ("contentBlockStart", format!(r#"{{"contentBlockIndex":{index},"start":{{"toolUse":{{"name":"f","toolUseId":"t{index}"}}}}}}"#)),
            17 => ("contentBlockStop", format!(r#"{{"contentBlockIndex":{index}}}"#)),
            18 => ("", format!(r#"{{"contentBlockDelta":{{"contentBlockIndex":{index},"delta":{{"text":"{text}"}}}}}}"#)),
            _ => ("metadata", format!(r#"{{"usage":{{"inputTokens":3,"outputTokens":{index}}}}}"#)),
        }
    });
    (proptest::collection::vec(event, 0..24), any::<bool>()).prop_map(|(mut events, ends)| {
        if ends {
            events.push(("messageStop", r#"{"stopReason":"end_turn"}"#.to_owned()));
            events.push(("metadata", r#"{"usage":{"inputTokens":3,"outputTokens":9}}"#.to_owned()));
        }
        events
    })
}

fn ollama() -> impl Strategy<Value = Events> {
    let event = (TEXT, 0u64..1000, 0u8..20).prop_map(|(text, at, kind)| {
        let line = |message: &str| {
            format!(r#"{{"model":"m","created_at":"2026-08-22T10:00:00.{at}Z",{message},"done":false}}"#)
        };
        let line = match kind {
            0..=7 => line(&format!(r#""message":{{"role":"assistant","content":"{text}"}}"#)),
            8..=10 => {
                line(&format!(r#""message":{{"role":"assistant","content":"","thinking":"{text}"}}"#))
            }
            11 => line(&format!(r#""message":{{"content":"{text}","thinking":"{text}"}}"#)),
            12 => line(&format!(r#""message":{{"content":"{text}","thinking":null,"images":[]}}"#)),
            13 => line(&format!(
                r#""message":{{"content":"{text}","tool_calls":[{{"function":{{"name":"f","arguments":{{"a":{at}}}}}}}]}}"#
            )),
            14 | 15 => line(&format!(r#""response":"{text}""#)),
            16 => line(&format!(r#""response":"","thinking":"{text}""#)),
            17 => line(&format!(r#""message":{{"content":"{text}"}},"eval_count":{at}"#)),
            18 => line(&format!(r#""message":{{"content":"{text}","images":["x"]}}"#)),
            _ => line(r#""message":{"content":7}"#),
        };
        ("", line)
    });
    let end = r#"{"model":"m","message":{"content":""},"done":true,"done_reason":"stop","prompt_eval_count":3,"eval_count":9}"#;
    (proptest::collection::vec(event, 0..24), any::<bool>()).prop_map(move |(mut events, ends)| {
        events.extend(ends.then(|| ("", end.to_owned())));
        events
    })
}

fn cuts() -> impl Strategy<Value = Vec<prop::sample::Index>> {
    proptest::collection::vec(any::<prop::sample::Index>(), 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn chunks_of_gemini_that_are_alike_mean_what_each_means_by_itself(events in gemini(), ends in any::<bool>(), cuts in cuts()) {
        for ask in [SSE, ARRAY] {
            are_alike(ask, &events, ends, &cuts)?;
        }
    }

    #[test]
    fn messages_of_bedrock_that_are_alike_mean_what_each_means_by_itself(events in bedrock(), cuts in cuts()) {
        are_alike(BINARY, &events, true, &cuts)?;
    }

    #[test]
    fn lines_of_ollama_that_are_alike_mean_what_each_means_by_itself(events in ollama(), cuts in cuts()) {
        are_alike(LINES, &events, true, &cuts)?;
    }
}
