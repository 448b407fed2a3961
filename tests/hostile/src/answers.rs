//! Answers of every provider, whole and streamed.

use bytes::Bytes;
use failsoft_core::{End, Insight, MAX_FINDINGS};
use http::{HeaderMap, Request, Response, StatusCode};
use llm_layer::{LlmProtocol, Offered, Provider};
use stream_layer::{Decoder, Mode, Protocol, Reader, Until};

use crate::cuts::cut;

const CHAT: &str = r#"{"messages":[],"stream":true,"max_tokens":3,"response_format":{"type":"json_object"},
    "tools":[{"function":{"name":"get_weather"}}]}"#;

const TYPES: [&str; 4] =
    ["text/event-stream", "application/x-ndjson", "application/json", "application/vnd.amazon.eventstream"];

/// The first byte is the status of a whole answer; then cuts, then the body.
pub fn answers(input: &[u8]) {
    let Some((&status, input)) = input.split_first() else { return };
    let (body, pieces) = cut(input);
    let bytes: Vec<&[u8]> = body.chunks(1).collect();
    for provider in Provider::ALL {
        whole(*provider, status, body);
        for kind in TYPES {
            let whole = streamed(*provider, kind, &[body]);
            assert_eq!(whole, streamed(*provider, kind, &pieces), "{provider:?} {kind}");
            assert_eq!(whole, streamed(*provider, kind, &bytes), "{provider:?} {kind}, byte by byte");
        }
    }
}

fn whole(provider: Provider, status: u8, body: &[u8]) {
    let asked = Offered::of_body(CHAT.as_bytes());
    for (status, offered) in [(200, &asked), (200 + 2 * u16::from(status), &Offered::unknown())] {
        let Ok(status) = StatusCode::from_u16(status) else { continue };
        let facts = provider.judge(status, &HeaderMap::new(), body, offered);
        assert!(facts.verdict.is_some(), "{provider:?}");
        assert!(facts.report.findings().len() <= MAX_FINDINGS);
        // A replacement character takes three bytes in place of one.
        assert!(facts.text.map_or(0, |text| text.len()) <= 3 * body.len());
    }
}

/// What must not depend on where the bytes were cut.
fn streamed(provider: Provider, kind: &str, pieces: &[&[u8]]) -> String {
    let Ok(head) = Response::builder().header("content-type", kind).body(()) else { return String::new() };
    let (mut parts, ()) = head.into_parts();
    let reader = LlmProtocol::new(provider).request(&Request::new(CHAT));
    let (Mode::Hold { mut decoder, .. } | Mode::Watch(mut decoder)) =
        reader.head(&mut parts, Until::default())
    else {
        return String::new();
    };
    let mut end = None;
    for piece in pieces {
        let seen = decoder.feed(&Bytes::copy_from_slice(piece));
        if seen.is_over() {
            end = Some(seen.fault.map_or(Ok(seen.end), Err));
            break;
        }
    }
    let end = end.unwrap_or_else(|| decoder.end(End::Clean(None)));
    drop(decoder);
    let class = match &end {
        Ok(verdict) => verdict.map(|verdict| (verdict.class(), verdict.hint())),
        Err(fault) => Some((fault.class(), fault.verdict().hint())),
    };
    let Some(insight) = Insight::of(&parts.extensions) else { return format!("{class:?}") };
    let facts = insight.facts();
    assert!(facts.report.findings().len() <= MAX_FINDINGS);
    format!(
        "{class:?} {} {:?} {:?} {:?} {:?} {}",
        end.is_ok(),
        facts.text,
        facts.tool_calls,
        facts.finish,
        facts.usage,
        facts.output_bytes
    )
}
