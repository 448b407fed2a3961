//! The arguments of tool calls, put together from fragments.

use bytes::Bytes;
use failsoft_core::Insight;
use http::{Request, Response};
use llm_layer::{LlmProtocol, Provider};
use serde_json::json;
use stream_layer::{Decoder, Mode, Protocol, Reader, Until};

/// The tool needs arguments.
const CHAT: &str = r#"{"messages":[],"stream":true,"tools":[{"type":"function","function":{"name":"get_weather",
    "parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}}]}"#;

/// Each line is a fragment: its first byte chooses the call, the rest is the text. What is put together is what was sent,
/// of each call and in its order.
pub fn arguments(input: &[u8]) {
    let mut calls: Vec<(u8, String)> = Vec::new();
    let mut stream = String::new();
    for line in input.split(|byte| *byte == b'\n').take(256) {
        let Some((&index, text)) = line.split_first() else { continue };
        let (index, text) = (index % 4, String::from_utf8_lossy(text));
        let mut call = json!({"index": index, "function": {"arguments": text}});
        match calls.iter_mut().find(|(known, _)| *known == index) {
            Some((_, sent)) => sent.push_str(&text),
            None => {
                calls.push((index, text.clone().into_owned()));
                call["id"] = json!(format!("call_{index}"));
                call["function"]["name"] = json!("get_weather");
            }
        }
        let chunk =
            json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": null}]});
        stream.push_str(&format!("data: {chunk}\n\n"));
    }
    stream.push_str(
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n",
    );

    let Ok(head) = Response::builder().header("content-type", "text/event-stream").body(()) else { return };
    let (mut parts, ()) = head.into_parts();
    let request = Request::new(CHAT);
    let reader = LlmProtocol::new(Provider::OpenAiCompatible).request(&request);
    let Mode::Hold { mut decoder, .. } = reader.head(&mut parts, Until::default()) else { return };
    let seen = decoder.feed(&Bytes::from(stream));
    let Some(insight) = Insight::of(&parts.extensions) else { panic!("an insight is left") };
    let facts = insight.facts();
    let told: Vec<&str> = facts.tool_calls.iter().map(|call| &*call.arguments).collect();
    let sent: Vec<&str> = calls.iter().map(|(_, text)| &**text).collect();
    assert_eq!(told, sent);
    // Strictly read, and never repaired.
    let are_objects = sent.iter().all(|text| serde_json::from_str::<serde_json::Map<_, _>>(text).is_ok());
    if !are_objects {
        assert!(seen.end.is_none_or(|verdict| !verdict.is_success()));
    }
}
