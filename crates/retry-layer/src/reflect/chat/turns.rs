//! The two turns that follow the first request's messages: the wrong answer, and what is wrong with it.

use failsoft_core::{Finding, SoftKind, ToolCall, json as strict};
use serde_json::{Value, json, value::RawValue};

use super::{
    super::BadAnswer,
    splice::{GenerationConfig, Limit, Top},
};

/// A finding of a call, or a call that is repeated in words, shows at most so many bytes of arguments.
const MAX_SHOWN: usize = 2_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    OpenAi,
    Responses,
    Anthropic,
    Gemini,
}

impl Dialect {
    pub(super) const fn messages<'a>(self, top: &Top<'a>) -> Option<&'a RawValue> {
        match self {
            Self::OpenAi | Self::Anthropic => top.messages,
            Self::Responses => top.input,
            Self::Gemini => top.contents,
        }
    }

    pub(super) fn limit<'a>(self, top: &Top<'a>) -> Option<Limit<'a>> {
        Limit::read(match self {
            Self::OpenAi => top.max_completion_tokens.or(top.max_tokens)?,
            Self::Responses => top.max_output_tokens?,
            Self::Anthropic => top.max_tokens?,
            Self::Gemini => {
                serde_json::from_str::<GenerationConfig<'_>>(top.generation_config?.get())
                    .ok()?
                    .max_output_tokens?
            }
        })
    }

    /// Whether a tool call of the model's may be sent back without what belongs to it and was not kept.
    fn takes_calls(self, top: &Top<'_>) -> bool {
        match self {
            Self::OpenAi => true,
            // With thinking on, a turn that calls tools must begin with its thinking, and that is signed.
            Self::Anthropic => top.thinking.is_none_or(|raw| raw.get().contains("\"disabled\"")),
            // A call must carry the signature of the thought that led to it, or come after its reasoning.
            Self::Gemini | Self::Responses => false,
        }
    }

    pub(super) fn turns(self, top: &Top<'_>, bad: &BadAnswer, instruction: &str) -> Vec<Value> {
        let text = bad.text().filter(|text| !strict::is_blank(text));
        if bad.tool_calls().is_empty() || !self.takes_calls(top) {
            let said = text.map(|text| self.said(text));
            let wrong = self.told(&in_words(bad, instruction));
            return said.into_iter().chain([wrong]).collect();
        }
        let calls = Judged::all(bad);
        // What is not about one of the calls.
        let rest: Vec<_> = bad.errors().filter(|finding| call_of(finding, bad).is_none()).collect();
        let rest = (!rest.is_empty()).then(|| complaint(&rest, instruction));
        match self {
            Self::Anthropic => anthropic(text, &calls, rest, instruction),
            _ => openai(text, &calls, rest, instruction),
        }
    }

    /// A text as the model's.
    fn said(self, text: &str) -> Value {
        match self {
            Self::OpenAi | Self::Responses => json!({"role": "assistant", "content": text}),
            Self::Anthropic => json!({"role": "assistant", "content": [{"type": "text", "text": text}]}),
            Self::Gemini => json!({"role": "model", "parts": [{"text": text}]}),
        }
    }

    /// A text as the user's.
    fn told(self, text: &str) -> Value {
        match self {
            Self::OpenAi | Self::Responses => json!({"role": "user", "content": text}),
            Self::Anthropic => json!({"role": "user", "content": [{"type": "text", "text": text}]}),
            Self::Gemini => json!({"role": "user", "parts": [{"text": text}]}),
        }
    }
}

/// A tool call, and what is wrong with it.
struct Judged<'a> {
    call: &'a ToolCall,
    id: String,
    wrong: Vec<&'a Finding>,
    /// Its arguments, where they are the JSON object that they have to be.
    arguments: Option<Value>,
}

impl<'a> Judged<'a> {
    fn all(bad: &'a BadAnswer) -> Vec<Self> {
        let judged = |(i, call): (usize, &'a ToolCall)| Self {
            call,
            // A call and its result are tied by the id: without one from the provider, by one of ours.
            id: call.id.as_deref().map_or_else(|| format!("call_{i}"), ToOwned::to_owned),
            wrong: bad.errors().filter(|finding| call_of(finding, bad) == Some(i)).collect(),
            arguments: serde_json::from_str(&call.arguments).ok().filter(Value::is_object),
        };
        bad.tool_calls().iter().enumerate().map(judged).collect()
    }

    /// What the call's result says.
    fn result(&self, instruction: &str) -> String {
        if self.wrong.is_empty() && (self.arguments.is_some() || self.call.free_text) {
            return "Not called: something else in the same answer was wrong. Call it again if it is still needed.".to_owned();
        }
        let mut text = format!("Not called. {}", complaint(&self.wrong, instruction));
        if self.arguments.is_none() && !self.call.free_text {
            text.push_str("\nThe arguments were: ");
            text.push_str(shown(&self.call.arguments));
        }
        text
    }
}

fn openai(text: Option<&str>, calls: &[Judged<'_>], rest: Option<String>, instruction: &str) -> Vec<Value> {
    let called = |judged: &Judged<'_>| {
        let Judged { call, id, .. } = judged;
        if call.free_text {
            return json!({"id": id, "type": "custom", "custom": {"name": call.name, "input": &*call.arguments}});
        }
        let arguments = if judged.arguments.is_some() { &*call.arguments } else { "{}" };
        json!({"id": id, "type": "function", "function": {"name": call.name, "arguments": arguments}})
    };
    let all: Vec<_> = calls.iter().map(called).collect();
    let mut turns = vec![json!({"role": "assistant", "content": text, "tool_calls": all})];
    turns.extend(calls.iter().map(
        |judged| json!({"role": "tool", "tool_call_id": judged.id, "content": judged.result(instruction)}),
    ));
    turns.extend(rest.map(|rest| Dialect::OpenAi.told(&rest)));
    turns
}

fn anthropic(
    text: Option<&str>,
    calls: &[Judged<'_>],
    rest: Option<String>,
    instruction: &str,
) -> Vec<Value> {
    let said = text.map(|text| json!({"type": "text", "text": text}));
    let called = calls.iter().map(|judged| {
        let input = judged.arguments.clone().unwrap_or_else(|| json!({}));
        json!({"type": "tool_use", "id": judged.id, "name": judged.call.name, "input": input})
    });
    let answer: Vec<_> = said.into_iter().chain(called).collect();
    // All results in one turn, before any other text: the protocol asks for that.
    let results = calls.iter().map(|judged| {
        let content = judged.result(instruction);
        json!({"type": "tool_result", "tool_use_id": judged.id, "is_error": true, "content": content})
    });
    let results: Vec<_> = results.chain(rest.map(|rest| json!({"type": "text", "text": rest}))).collect();
    vec![json!({"role": "assistant", "content": answer}), json!({"role": "user", "content": results})]
}

/// What is wrong, and the calls that cannot be sent back, in one text.
fn in_words(bad: &BadAnswer, instruction: &str) -> String {
    let mut text = String::new();
    for call in bad.tool_calls() {
        text.push_str(&format!("You called `{}` with: {}\n", call.name, shown(&call.arguments)));
    }
    let all: Vec<_> = bad.errors().collect();
    text + &complaint(&all, instruction)
}

fn complaint(findings: &[&Finding], instruction: &str) -> String {
    let mut text = String::from("Your last answer cannot be used.");
    for finding in findings {
        text.push_str(&format!("\n- {finding}"));
    }
    text.push('\n');
    text.push_str(instruction);
    text
}

/// Which of the answer's calls a finding is about: its path says so. In the protocols where calls lie among other things, so
/// that their place there is not their number, it is the only call, or the only one of the name that the finding gives.
fn call_of(finding: &Finding, bad: &BadAnswer) -> Option<usize> {
    let calls = bad.tool_calls();
    if let Some((_, place)) = finding.path().and_then(|path| path.split_once("/tool_calls/")) {
        let place = place.split('/').next()?.parse().ok()?;
        return (place < calls.len()).then_some(place);
    }
    if !matches!(finding.kind(), Some(SoftKind::ToolCall | SoftKind::UnknownTool)) {
        return None;
    }
    let is_named =
        |call: &ToolCall| calls.len() == 1 || finding.message().contains(&format!("`{}`", call.name));
    let mut named = calls.iter().enumerate().filter(|(_, call)| is_named(call));
    let (place, _) = named.next()?;
    named.next().is_none().then_some(place)
}

fn shown(text: &str) -> &str {
    let end = (0..=MAX_SHOWN.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}
