//! Tool calls that were written as text.

use serde_json::Value;

/// A tool call that stands in the text of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leak {
    /// The offered tool that it names.
    pub tool: Box<str>,
    /// The marker it was found by; `json` for a bare call object, `python` for a list of calls in that language.
    pub marker: &'static str,
    /// Where it begins, in bytes from the start of the text.
    pub offset: usize,
}

/// How a dialect names the tool after its marker.
#[derive(Clone, Copy)]
enum Naming {
    /// The name itself, at once.
    Plain,
    /// `"name": "tool"` soon, or the name itself.
    Either,
}

/// The markers of the dialects that models leak: Hermes and Qwen, Llama, Mistral, Anthropic's old XML, DeepSeek, Kimi,
/// Harmony. Special tokens are never quoted by accident; tags may be, so those need a place of their own.
const MARKERS: [(&str, Naming, bool); 12] = [
    ("<tool_call>", Naming::Either, false),
    ("<function_call>", Naming::Either, false),
    ("<|tool_call|>", Naming::Either, true),
    ("<function=", Naming::Plain, false),
    ("<invoke name=", Naming::Plain, false),
    ("<tool_name>", Naming::Plain, false),
    ("[TOOL_CALLS]", Naming::Either, true),
    ("<|python_tag|>", Naming::Either, true),
    ("<｜tool▁sep｜>", Naming::Plain, true),
    ("<|tool_call_begin|>", Naming::Plain, true),
    ("<|tool_calls_section_begin|>", Naming::Either, true),
    (" to=functions.", Naming::Plain, true),
];

/// So many places per marker are looked at.
const TRIES: usize = 16;

/// The name stands within so many bytes after a marker.
const NEAR: usize = 256;

/// The first tool call written as text, where its name is one of `offered`: without offered tools nothing is a leak.
///
/// Known are the tags and special tokens of the common dialects, and a bare call object
/// (`{"name": …, "arguments": {…}}`, `[tool(key="value")]`) as the whole text, also in a code fence or in an array. A tag inside a code span
/// or a code block is taken for an explanation.
///
/// ```
/// use failsoft_core::json;
///
/// let text = r#"<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>"#;
/// assert_eq!(&*json::leaked(text, &["get_weather"]).unwrap().tool, "get_weather");
/// assert!(json::leaked(text, &["send_mail"]).is_none());
/// assert!(json::leaked::<&str>(text, &[]).is_none());
/// ```
#[must_use]
pub fn leaked<S: AsRef<str>>(text: &str, offered: &[S]) -> Option<Leak> {
    if offered.is_empty() {
        return None;
    }
    let mut tries = [TRIES; MARKERS.len()];
    // Each marker has a character that is rare in most texts, so many bytes after its start.
    let firsts = [('<', 0), ('[', 0), ('=', " to".len())].map(|(rare, after)| {
        let places = text.match_indices(rare).filter_map(|(at, _)| at.checked_sub(after));
        places.filter_map(|at| marked(text, at, offered, &mut tries)).next()
    });
    firsts.into_iter().flatten().min_by_key(|leak| leak.offset).or_else(|| bare(text, offered))
}

/// A leak at a place, by its marker.
fn marked<S: AsRef<str>>(text: &str, at: usize, offered: &[S], tries: &mut [usize]) -> Option<Leak> {
    let rest = text.get(at..)?;
    let (&(marker, naming, special), tries) =
        MARKERS.iter().zip(tries).find(|((marker, ..), _)| rest.starts_with(marker))?;
    *tries = tries.checked_sub(1)?;
    if !special && is_quoted(text, at) {
        return None;
    }
    let tool = named(near(&rest[marker.len()..]), naming, offered)?;
    Some(Leak { tool: tool.into(), marker, offset: at })
}

fn near(text: &str) -> &str {
    let end = (0..=NEAR.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    &text[..end]
}

fn named<'a, S: AsRef<str>>(after: &str, naming: Naming, offered: &'a [S]) -> Option<&'a str> {
    let plain = || {
        let name =
            after.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '=' | '['));
        let name = name.strip_prefix("functions.").unwrap_or(name);
        one_of(name, offered)
    };
    let member = || {
        let (_, value) = after.split_once("\"name\"")?;
        one_of(value.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?, offered)
    };
    match naming {
        Naming::Plain => plain(),
        Naming::Either => member().or_else(plain),
    }
}

/// The offered name with which a text begins, and not only with its first half.
fn one_of<'a, S: AsRef<str>>(text: &str, offered: &'a [S]) -> Option<&'a str> {
    offered.iter().map(AsRef::as_ref).find(|&name| {
        let rest = text.strip_prefix(name);
        !name.is_empty()
            && rest
                .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '-'))
    })
}

/// Whether a place is in a code span or a code block.
fn is_quoted(text: &str, at: usize) -> bool {
    let before = &text[..at];
    let line = &before[before.rfind('\n').map_or(0, |end| end + 1)..];
    let fences = before.lines().filter(|line| line.trim_start().starts_with("```")).count();
    fences % 2 == 1 || line.matches('`').count() % 2 == 1
}

/// The members by which call objects name the tool, and those that hold its arguments.
const NAMES: [&str; 5] = ["name", "function", "tool", "tool_name", "action"];
const ARGUMENTS: [&str; 6] = ["arguments", "parameters", "args", "input", "tool_input", "action_input"];

/// A call object, or a list of calls as Python writes them, as the whole text.
fn bare<S: AsRef<str>>(text: &str, offered: &[S]) -> Option<Leak> {
    let offset = super::start(text);
    let body = unfenced(text.trim());
    // Most answers name no tool, and are not parsed again.
    let names_one = || offered.iter().any(|name| body.contains(name.as_ref()));
    if !body.starts_with(['{', '[']) || !names_one() {
        return None;
    }
    if let Some(tool) = pythonic(body, offered) {
        return Some(Leak { tool: tool.into(), marker: "python", offset });
    }
    let value: Value = serde_json::from_str(body).ok()?;
    let call = match &value {
        Value::Array(items) => items.first()?,
        other => other,
    };
    let call = call.get("function").filter(|inner| inner.is_object()).unwrap_or(call);
    let arguments = ARGUMENTS.into_iter().find_map(|key| call.get(key))?;
    let name = NAMES.into_iter().find_map(|key| call.get(key)?.as_str())?;
    let tool = offered.iter().map(AsRef::as_ref).find(|&tool| tool == name)?;
    (arguments.is_object() || arguments.is_string()).then(|| Leak {
        tool: tool.into(),
        marker: "json",
        offset,
    })
}

/// `[tool(key="value")]`.
fn pythonic<'a, S: AsRef<str>>(body: &str, offered: &'a [S]) -> Option<&'a str> {
    let inner = body.strip_prefix('[')?.trim_start();
    let is_call = |name: &&str| inner.strip_prefix(name).is_some_and(|rest| rest.starts_with('('));
    offered.iter().map(AsRef::as_ref).find(is_call).filter(|_| body.ends_with(")]"))
}

fn unfenced(text: &str) -> &str {
    let inner = text.strip_prefix("```").and_then(|text| text.strip_suffix("```"));
    inner.and_then(|inner| inner.split_once('\n')).map_or(text, |(_, body)| body.trim())
}
