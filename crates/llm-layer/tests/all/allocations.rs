//! Reading a long stream of small deltas costs at most one allocation in a hundred events.
//! The allocator of the binary counts, for each thread alone.

use crate::common::{
    aws::event,
    decoder_of,
    native::{ARRAY, BINARY, LINES, SSE},
};
use bytes::Bytes;
use failsoft_core::Insight;
use http::Request;
use llm_layer::{LlmDecoder, Provider};
use stream_layer::Decoder as _;

const EVENTS: usize = 4_000;

/// What reading the deltas allocates, one piece an event.
fn allocations(provider: Provider, delta: impl Fn(usize) -> String) -> u64 {
    let decoder = decoder_of(provider, &Request::new(r#"{"messages":[],"stream":true}"#));
    allocations_of(decoder, |at| delta(at).into_bytes())
}

fn allocations_of((mut decoder, insight): (LlmDecoder, Insight), delta: impl Fn(usize) -> Vec<u8>) -> u64 {
    let pieces: Vec<Bytes> = (0..EVENTS).map(|at| Bytes::from(delta(at))).collect();
    let mut content = 0;
    let allocated = allocation_counter::measure(|| {
        for piece in &pieces {
            let seen = decoder.feed(piece);
            assert!(!seen.is_over());
            content += usize::from(seen.content);
        }
    });
    drop(decoder);
    assert_eq!(content, EVENTS, "all of them were read");
    assert_eq!(insight.facts().text.map(|text| text.len()), Some(5 * EVENTS));
    allocated.count_total
}

#[test]
fn a_hundred_events_cost_at_most_one_allocation() {
    let chat = allocations(Provider::OpenAiCompatible, |at| {
        let padding = &"aB3dE5gH7jK9mN1p"[..1 + at % 16];
        format!(
            "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1750000000,\"model\":\"gpt-4o\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\" word\"}},\"logprobs\":null,\"finish_reason\":null}}],\"usage\":null,\"obfuscation\":\"{padding}\"}}\n\n"
        )
    });
    let usage = allocations(Provider::OpenAiCompatible, |at| {
        format!(
            "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1750000000,\"model\":\"llama\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\" word\"}},\"logprobs\":null,\"finish_reason\":null}}],\"usage\":{{\"prompt_tokens\":31,\"total_tokens\":{},\"completion_tokens\":{at},\"prompt_tokens_details\":{{\"cached_tokens\":16}},\"queue_time\":{}.5e-3}}}}\n\n",
            31 + at,
            at % 7
        )
    });
    let messages = allocations(Provider::Anthropic, |_| {
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\" word\"}}\n\n".to_owned()
    });
    let responses = allocations(Provider::OpenAiResponses, |at| {
        format!(
            "event: response.output_text.delta\ndata: {{\"type\":\"response.output_text.delta\",\"sequence_number\":{at},\"item_id\":\"msg_1\",\"output_index\":0,\"content_index\":0,\"delta\":\" word\",\"logprobs\":[]}}\n\n"
        )
    });
    let gemini = |at: usize| {
        format!(
            r#"{{"candidates": [{{"content": {{"parts": [{{"text": " word"}}],"role": "model"}},"index": 0}}],"usageMetadata": {{"promptTokenCount": 31,"candidatesTokenCount": {at},"totalTokenCount": {},"promptTokensDetails": [{{"modality": "TEXT","tokenCount": 31}}]}},"modelVersion": "gemini-2.5-flash"}}"#,
            31 + at
        )
    };
    let events = allocations_of(SSE.decoder(), |at| format!("data: {}\r\n\r\n", gemini(at)).into_bytes());
    let array = allocations_of(ARRAY.decoder(), |at| {
        format!("{}{}", if at == 0 { "[" } else { "\n,\r\n" }, gemini(at)).into_bytes()
    });
    let bedrock = allocations_of(BINARY.decoder(), |at| {
        let padding = &"abcdefghijklmnopqrstuvwxyz"[..at % 26];
        let payload = format!(r#"{{"contentBlockIndex":0,"delta":{{"text":" word"}},"p":"{padding}"}}"#);
        event("contentBlockDelta", &payload)
    });
    let ollama = allocations_of(LINES.decoder(), |at| {
        format!(
            "{{\"model\":\"llama3.2\",\"created_at\":\"2026-08-22T10:00:00.{at}Z\",\"message\":{{\"role\":\"assistant\",\"content\":\" word\"}},\"done\":false}}\n"
        )
        .into_bytes()
    });
    for (dialect, count) in [
        ("chat", chat),
        ("usage", usage),
        ("messages", messages),
        ("responses", responses),
        ("events of gemini", events),
        ("array of gemini", array),
        ("bedrock", bedrock),
        ("ollama", ollama),
    ] {
        assert!(count <= EVENTS as u64 / 100, "{dialect}: {count} allocations in {EVENTS} events");
    }
}
