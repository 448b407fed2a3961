//! Anthropic's Messages, whole; streamed in [`stream`].
//!
//! Arguments are objects, and the tokens of the prompt come in buckets that do not overlap. What a tool of Anthropic's own
//! was asked and found stands beside the text, and is no call for the caller.

mod stream;

use failsoft_core::{Facts, Finding, Hint, SoftKind, Usage, Verdict};
use http::HeaderMap;

pub(crate) use self::stream::Stream;
use crate::{
    Offered,
    choice::{Choice, Content},
    error::Top,
    finish::finish_of,
    form::Form,
    lens,
    tools::Calls,
    whole::fail,
};

pub(crate) const FORM: Form = Form {
    choices: "",
    has_index: false,
    finish: "/stop_reason",
    message: "/content",
    content: "/content",
    calls: "/content",
    keeps_index: true,
    function: "",
    arguments: "/input",
    // It ends a turn with nothing where the conversation leaves it nothing to say, and does so again.
    empty: Hint::Modify,
};

/// The tokens that a body says were used.
pub(crate) fn usage(top: &Top<'_>) -> Usage {
    let mut counts = Counts::default();
    top.usage.into_iter().for_each(|raw| counts.set(raw));
    counts.usage()
}

/// Judges an object that is no error.
pub(crate) fn answer(top: &Top<'_>, headers: &HeaderMap, offered: &Offered, facts: &mut Facts) {
    let [kind, content, stop] =
        lens::fields(top.text, ["type", "content", "stop_reason"]).unwrap_or_default();
    let is_message = kind.is_none_or(|kind| kind == "\"message\"");
    match content {
        Some(content) if is_message => {
            let mut choice = message(content, stop, offered);
            choice.judge(headers, offered, facts);
            choice.tell(true, facts);
        }
        // A count of tokens, a batch, a list of models. Who has asked for a message did not ask for those.
        _ if offered.is_chat() != Some(true) => {}
        _ => match top.instead_of_answer() {
            Some(error) => error.tell(None, headers, facts),
            None => {
                let finding = Finding::new(SoftKind::Malformed, "no_content", "no `content` in the body");
                fail(facts, Verdict::soft(SoftKind::Malformed).with_hint(Hint::Same), finding);
            }
        },
    }
    facts.verdict.get_or_insert(Verdict::SUCCESS);
}

fn message(blocks: &str, stop: Option<&str>, offered: &Offered) -> Choice<'static> {
    let (mut content, mut calls) = (Content::default(), Calls::default());
    if let Some(text) = lens::string(blocks) {
        // Some servers send the text itself.
        content.bytes = text.len() as u64;
        content.text = text.into_owned();
    }
    let mut index = 0_u64;
    lens::each(blocks, |raw| {
        block(raw, index, &mut content, &mut calls, offered);
        index = index.saturating_add(1);
        true
    });
    Choice { form: &FORM, at: String::new(), finish: finish_of(stop), error: None, content, calls }
}

fn block(raw: &str, index: u64, content: &mut Content, calls: &mut Calls, offered: &Offered) {
    let names = ["type", "text", "thinking", "id", "name", "input"];
    let [kind, text, thinking, id, name, input] = lens::fields(raw, names).unwrap_or_default();
    match lens::some_string(kind).as_deref() {
        Some("text") => {
            let text = text.and_then(lens::string).unwrap_or_default();
            content.text.push_str(&text);
            content.bytes = content.bytes.saturating_add(text.len() as u64);
        }
        Some("thinking" | "redacted_thinking") => {
            let thoughts = thinking.and_then(lens::string).unwrap_or_default();
            content.reasoning = true;
            content.bytes = content.bytes.saturating_add(thoughts.len() as u64);
        }
        Some("tool_use") => {
            let name = name.and_then(lens::string).unwrap_or_default();
            // Some servers send the text of the object.
            let text = input.map(|raw| lens::string(raw).unwrap_or_else(|| raw.into())).unwrap_or_default();
            let at = format!("{}/{index}", FORM.calls);
            calls.push(lens::some_string(id), &name, &text, &FORM, &at, offered);
        }
        _ => content.other = true,
    }
}

/// Token counts as they were sent. In a stream they are cumulative: of each the last value counts.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    input: Option<u64>,
    cache_read: Option<u64>,
    cache_write: Option<u64>,
    output: Option<u64>,
    /// Of the output.
    thinking: Option<u64>,
}

impl Counts {
    /// Takes over what a `usage` object knows.
    fn set(&mut self, raw: &str) {
        let names = [
            "input_tokens",
            "cache_read_input_tokens",
            "cache_creation_input_tokens",
            "cache_creation",
            "output_tokens",
            "output_tokens_details",
        ];
        let Some([input, read, written, by_time, output, details]) = lens::fields(raw, names) else { return };
        let count = |raw: Option<&str>| raw.and_then(lens::count);
        let lasting = by_time
            .and_then(|raw| lens::fields(raw, ["ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"]));
        let lasting =
            lasting.and_then(|times| times.into_iter().filter_map(count).reduce(u64::saturating_add));
        let (input, read, written) = (count(input), count(read), count(written).or(lasting));
        // Servers that speak this dialect may say first what the whole prompt took, and later how it is split, or the
        // other way round: a later count of the prompt that differs takes the place of all that was said of it.
        if input.is_some() && self.input.is_some() && input != self.input {
            (self.cache_read, self.cache_write) = (None, None);
        }
        let [thinking] = details.and_then(|raw| lens::fields(raw, ["thinking_tokens"])).unwrap_or_default();
        for (mine, later) in [
            (&mut self.input, input),
            (&mut self.cache_read, read),
            (&mut self.cache_write, written),
            (&mut self.output, count(output)),
            (&mut self.thinking, count(thinking)),
        ] {
            *mine = later.or(*mine);
        }
    }

    fn usage(&self) -> Usage {
        let Self { input, cache_read, cache_write, output, thinking } = *self;
        let output = output.map(|all| all.saturating_sub(thinking.unwrap_or(0)));
        Usage { input, cache_read, cache_write, output, reasoning: thinking }
    }
}

#[cfg(test)]
mod tests;
