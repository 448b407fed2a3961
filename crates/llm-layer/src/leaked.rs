//! Tool calls that were left as text in the content: the model called, and the server did not notice.
//!
//! It is a leak only when tools were offered and the name is one of theirs: a text *about* tool calls is none.

use failsoft_core::{Finding, SoftKind};

use crate::{Offered, lens};

/// A tool's name must follow its marker within so many bytes.
const REACH: usize = 256;

/// What opens a tool call in the templates of the open models.
const MARKERS: &[&str] = &[
    "<tool_call>",
    "<tool_calls>",
    "<|tool_call",
    "<function=",
    "<function_call>",
    "<invoke name=",
    "[TOOL_CALLS]",
    "<|python_tag|>",
    "<|tool_calls_section_begin|>",
    "<｜tool▁call",
    "functools[",
    "```tool_call",
    "```tool_code",
];

/// The tool call in a text, if one was left there.
pub(crate) fn find(text: &str, offered: &Offered) -> Option<Finding> {
    offered.tools().next()?;
    let marked = MARKERS.iter().find_map(|marker| {
        let at = text.find(marker)?;
        let after = head(text.get(at + marker.len()..)?, REACH);
        offered.tools().find(|tool| has_word(after, tool))
    });
    let tool = marked.or_else(|| if offered.is_json() { None } else { bare(text, offered) })?;
    let tool: String = tool.chars().take(64).collect();
    Some(Finding::new(
        SoftKind::LeakedToolCall,
        "leaked_tool_call",
        format!("a call of `{tool}` was left as text in the content"),
    ))
}

/// A call object as the whole content, also in a fence: `{"name": "x", "arguments": {…}}`, or a list of those. The last
/// brace may be missing.
fn bare<'a>(text: &str, offered: &'a Offered) -> Option<&'a str> {
    let mut text = text.trim();
    if let Some(inner) = text.strip_prefix("```") {
        text = inner.strip_prefix("json").unwrap_or(inner).trim_end_matches('`').trim();
    }
    if !text.starts_with(['{', '[']) {
        return None;
    }
    let mut first = text.trim_end_matches(',').to_owned();
    if lens::fields(&first, []).is_none() && text.starts_with('{') {
        first.push('}');
    }
    lens::each(text, |element| {
        element.clone_into(&mut first);
        false
    });
    let [name, function, arguments, parameters] =
        lens::fields(&first, ["name", "function", "arguments", "parameters"])?;
    let [inner_name, inner_arguments] =
        function.and_then(|raw| lens::fields(raw, ["name", "arguments"])).unwrap_or_default();
    arguments.or(parameters).or(inner_arguments)?;
    let name = lens::some_string(name.or(inner_name).or(function))?;
    offered.tools().find(|tool| *tool == name)
}

fn head(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Whether a word stands in a text by itself.
fn has_word(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    !word.is_empty()
        && text.match_indices(word).any(|(at, _)| {
            let before = text[..at].chars().next_back().is_some_and(part);
            let after = text[at + word.len()..].chars().next().is_some_and(part);
            !before && !after
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaks(text: &str) -> bool {
        find(text, &Offered::unknown().with_tool("get_weather")).is_some()
    }

    #[test]
    fn a_call_left_in_the_content_is_found_in_every_dialect() {
        // V-D7
        for text in [
            "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>",
            "I will look. <tool_call>{\"name\": \"get_weather\", \"arguments\": {",
            "<function=get_weather>{\"city\": \"Oslo\"}</function>",
            "[TOOL_CALLS][{\"name\":\"get_weather\",\"arguments\":{\"city\":\"Oslo\"}}]",
            "<invoke name=\"get_weather\"><parameter name=\"city\">Oslo</parameter></invoke>",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather",
            "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}",
            "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\"}",
            "[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}]",
            "{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"arguments\":\"{}\"}}",
            "```json\n{\"name\": \"get_weather\", \"arguments\": {}}\n```",
        ] {
            assert!(leaks(text), "{text}");
        }
    }

    #[test]
    fn a_text_about_tools_or_with_another_name_is_none() {
        for text in [
            "You can call get_weather for that.",
            "<tool_call> is a tag of the Hermes template.",
            "<tool_call>{\"name\": \"get_weathers\", \"arguments\": {}}",
            "{\"name\": \"Ada\", \"arguments\": {}}",
            "{\"name\": \"get_weather\"}",
            "[1, 2]",
            "",
        ] {
            assert!(!leaks(text), "{text}");
        }
        let call = "<function=get_weather>{}</function>";
        assert!(find(call, &Offered::unknown()).is_none());
    }
}
