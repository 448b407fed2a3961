//! Why a model stopped: the reasons of all dialects, in one table, because gateways to other models let the reasons of
//! those through.

use failsoft_core::{Class, Finish, Hint, SoftKind, Verdict};

use crate::lens;

/// The finish reasons that are known, in either case. Some servers send an empty one where there is none.
pub(crate) fn finish_of(raw: Option<&str>) -> Option<Finish> {
    let reason = lens::some_string(raw)?;
    Some(named(&reason))
}

/// The same of a reason that is no JSON.
pub(crate) fn named(reason: &str) -> Finish {
    let is = |known: &&str| known.eq_ignore_ascii_case(reason);
    match KNOWN.iter().find(|(_, names)| names.iter().any(is)) {
        Some((finish, _)) => finish.clone(),
        None => Finish::Other(reason.chars().take(MAX_REASON).collect::<String>().into()),
    }
}

const KNOWN: &[(Finish, &[&str])] = &[
    // Text-generation servers say `eos_token` and `stop_sequence`, Together `eos`, Anthropic `end_turn`.
    (Finish::Stop, &["stop", "eos", "eos_token", "stop_sequence", "end_turn"]),
    (Finish::ToolCalls, &["tool_calls", "function_call", "tool_use"]),
    // Mistral's `model_length`, Anthropic's `model_context_window_exceeded`: the window was full.
    (
        Finish::Length,
        &["length", "model_length", "max_tokens", "max_output_tokens", "model_context_window_exceeded"],
    ),
    // Anthropic.
    (Finish::Refusal, &["refusal"]),
    (Finish::Paused, &["pause_turn"]),
    // Gemini's, and Zhipu's `sensitive`.
    (
        Finish::ContentFilter,
        &[
            "content_filter",
            "safety",
            "recitation",
            "blocklist",
            "prohibited_content",
            "spii",
            "language",
            "image_safety",
            "image_prohibited_content",
            "image_recitation",
            "model_armor",
            "sensitive",
            // Bedrock.
            "guardrail_intervened",
            "content_filtered",
        ],
    ),
];

/// An unknown finish reason is kept up to so many characters.
const MAX_REASON: usize = 256;

/// A finish reason that is a failure of its own kind.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) verdict: Verdict,
    pub(crate) kind: SoftKind,
    pub(crate) code: &'static str,
    pub(crate) message: &'static str,
}

/// The failure that a reason without a name of its own is, where it is known to be one.
pub(crate) fn failed(reason: &str) -> Option<Failed> {
    let (verdict, kind, code, message) = match &*reason.to_ascii_lowercase() {
        "error" => (
            Verdict::of(Class::Transient),
            SoftKind::Truncated,
            "finish_error",
            "broken off by an error of the provider",
        ),
        // DeepSeek.
        "insufficient_system_resource" => (
            Verdict::of(Class::Overloaded).with_hint(Hint::Same),
            SoftKind::Truncated,
            "finish_overloaded",
            "broken off for lack of the provider's resources",
        ),
        // Gemini; Bedrock's `malformed_tool_use`. The model wrote it, and mostly writes it better the next time.
        "malformed_function_call" | "malformed_tool_use" => (
            Verdict::soft(SoftKind::ToolCall).with_hint(Hint::Same),
            SoftKind::ToolCall,
            "finish_malformed_call",
            "broken off at a tool call that cannot be read",
        ),
        "malformed_response" | "malformed_model_output" => (
            Verdict::soft(SoftKind::Malformed).with_hint(Hint::Same),
            SoftKind::Malformed,
            "finish_malformed",
            "broken off at output that cannot be read",
        ),
        "unexpected_tool_call" => (
            Verdict::soft(SoftKind::UnknownTool),
            SoftKind::UnknownTool,
            "finish_unexpected_call",
            "broken off at a call of a tool that it may not call",
        ),
        "too_many_tool_calls" => (
            Verdict::soft(SoftKind::ToolCall),
            SoftKind::ToolCall,
            "finish_too_many_calls",
            "broken off after too many tool calls in a row",
        ),
        "no_image" | "image_other" => (
            Verdict::soft(SoftKind::Empty).with_hint(Hint::Same),
            SoftKind::Empty,
            "finish_no_image",
            "no picture was made",
        ),
        // What was sent back of an earlier answer lacks its seal.
        "missing_thought_signature" => (
            Verdict::of(Class::Invalid).with_hint(Hint::Modify),
            SoftKind::Malformed,
            "finish_missing_signature",
            "the request lacks the signature of an earlier thought",
        ),
        // Gemini, for what it has no name for.
        "other" | "finish_reason_unspecified" => (
            Verdict::of(Class::Transient),
            SoftKind::Truncated,
            "finish_other",
            "broken off for a reason that the provider does not name",
        ),
        _ => return None,
    };
    Some(Failed { verdict, kind, code, message })
}
