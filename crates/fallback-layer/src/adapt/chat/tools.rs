//! The ids of tool calls, by which a result finds its call.

use std::{collections::HashMap, fmt};

use failsoft_core::BoxError;

use super::{Edit, edits::NO_OBJECT};
use crate::json::{Raw, Splices, quoted};

/// Other ids of tool calls, in the calls and in their results alike: providers differ on what an id may look like. The function must give
/// the same id for the same, as [`short_tool_id`] and [`plain_tool_id`] do; one that gives the same for two ids of one body is an error.
///
/// Arguments, contents and what a tool is given or gives are not looked into.
pub const fn tool_ids<F>(id: F) -> ToolIds<F>
where
    F: Fn(&str) -> String + Send + Sync,
{
    ToolIds(id)
}

/// The edit made by [`tool_ids`].
#[derive(Clone, Copy)]
pub struct ToolIds<F>(F);

/// An id of nine letters and digits, as Mistral asks for: the one it was where that is such a one, else a hash of it.
#[must_use]
pub fn short_tool_id(id: &str) -> String {
    const LENGTH: usize = 9;
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    if id.len() == LENGTH && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return id.to_owned();
    }
    // FNV-1a, the same in each process and version: a conversation may go on elsewhere.
    let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let mut hash = id.bytes().fold(0xcbf2_9ce4_8422_2325, fnv);
    // Of short ids only the lower bits differ.
    hash ^= hash >> 32;
    let digit = |_| {
        let digit = DIGITS.get((hash % 62) as usize).copied().unwrap_or(b'0');
        hash /= 62;
        char::from(digit)
    };
    (0..LENGTH).map(digit).collect()
}

/// An id of letters, digits, `_` and `-`, as Anthropic asks for: all else becomes `_`.
#[must_use]
pub fn plain_tool_id(id: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    if id.is_empty() { "_".to_owned() } else { id.chars().map(plain).collect() }
}

impl<F> Edit for ToolIds<F>
where
    F: Fn(&str) -> String + Send + Sync,
{
    fn edit(&self, json: &str) -> Result<Option<String>, BoxError> {
        let body = Raw::parse(json).filter(|body| body.is_object()).ok_or(NO_OBJECT)?;
        let mut ids = Vec::new();
        in_body(body, &mut ids);
        let mut splices = Splices::of(json);
        let mut made: HashMap<String, String> = HashMap::new();
        for raw in ids {
            let Some(id) = raw.text() else { continue };
            let other = (self.0)(&id);
            let of = made.entry(other.clone()).or_insert_with(|| id.clone().into_owned());
            if *of != *id {
                return Err("two ids of tool calls would become one".into());
            }
            if other != id {
                splices.replace(raw, quoted(&other));
            }
        }
        Ok(splices.apply())
    }
}

/// Where ids stand, in requests and answers.
fn in_body<'a>(body: Raw<'a>, ids: &mut Vec<Raw<'a>>) {
    // What was said, and by whom it is answered.
    for list in ["messages", "input", "contents"].into_iter().filter_map(|name| body.get(name)) {
        list.items().into_iter().for_each(|message| in_message(message, ids));
    }
    for choice in body.get("choices").map(Raw::items).unwrap_or_default() {
        ["message", "delta"]
            .into_iter()
            .filter_map(|name| choice.get(name))
            .for_each(|said| in_message(said, ids));
    }
    for candidate in body.get("candidates").map(Raw::items).unwrap_or_default() {
        candidate.get("content").into_iter().for_each(|said| in_message(said, ids));
    }
    // Anthropic's answers are a message themselves, and those of OpenAI's responses a list of items.
    in_message(body, ids);
    body.get("message").into_iter().for_each(|said| in_message(said, ids));
    body.get("content_block").into_iter().for_each(|part| in_part(part, ids));
    body.get("item").into_iter().for_each(|item| in_message(item, ids));
    for holder in [Some(body), body.get("response")].into_iter().flatten() {
        let output = holder.get("output").map(Raw::items).unwrap_or_default();
        output.into_iter().for_each(|item| in_message(item, ids));
    }
}

fn in_message<'a>(message: Raw<'a>, ids: &mut Vec<Raw<'a>>) {
    ids.extend(["tool_call_id", "call_id"].into_iter().filter_map(|name| message.get(name)));
    let calls = message.get("tool_calls").map(Raw::items).unwrap_or_default();
    ids.extend(calls.into_iter().filter_map(|call| call.get("id")));
    for parts in ["content", "parts"].into_iter().filter_map(|name| message.get(name)) {
        parts.items().into_iter().for_each(|part| in_part(part, ids));
    }
}

fn in_part<'a>(part: Raw<'a>, ids: &mut Vec<Raw<'a>>) {
    let kind = part.get("type").and_then(Raw::text).unwrap_or_default();
    if kind.ends_with("tool_use") {
        ids.extend(part.get("id"));
    }
    if kind.ends_with("tool_result") {
        ids.extend(part.get("tool_use_id"));
    }
    let calls = ["functionCall", "functionResponse"].into_iter().filter_map(|name| part.get(name));
    ids.extend(calls.filter_map(|call| call.get("id")));
}

impl<F> fmt::Debug for ToolIds<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ToolIds")
    }
}
