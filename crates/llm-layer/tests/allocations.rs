//! Reading a long stream of small deltas costs at most one allocation in a hundred events. In a binary of its own, whose
//! allocator counts.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use bytes::Bytes;
use common::decoder_of;
use http::Request;
use llm_layer::Provider;
use stream_layer::Decoder as _;

const EVENTS: usize = 4_000;

/// What reading the deltas allocates, one piece an event.
fn allocations(provider: Provider, delta: impl Fn(usize) -> String) -> u64 {
    let pieces: Vec<Bytes> = (0..EVENTS).map(|at| Bytes::from(delta(at))).collect();
    let (mut decoder, insight) = decoder_of(provider, &Request::new(r#"{"messages":[],"stream":true}"#));
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
    for (dialect, count) in
        [("chat", chat), ("usage", usage), ("messages", messages), ("responses", responses)]
    {
        assert!(count <= EVENTS as u64 / 100, "{dialect}: {count} allocations in {EVENTS} events");
    }
}
