//! Fewer messages, for a smaller window.

use failsoft_core::{BoxError, Class, Fault, estimate_tokens};

use super::{Edit, edits::NO_OBJECT};
use crate::{
    LAYER,
    json::{Raw, Splices},
};

/// Only the last messages of a conversation, within the bounds that are set on it; none by itself.
///
/// The instructions at its beginning (`system`, `developer`) stay. What is left begins with something that the user says, and not with
/// the result of a tool whose call is gone, because providers refuse that. Where nothing is left then, or the bounds are too narrow for
/// the last turn alone, the route is skipped, of the class [`ContextLength`](Class::ContextLength).
#[must_use]
pub const fn prune() -> Prune {
    Prune { messages: usize::MAX, tokens: u64::MAX }
}

/// The edit made by [`prune`].
#[derive(Clone, Copy, Debug)]
pub struct Prune {
    messages: usize,
    tokens: u64,
}

impl Prune {
    /// At most so many messages, instructions not counted.
    #[must_use]
    pub const fn messages(mut self, messages: usize) -> Self {
        self.messages = messages;
        self
    }

    /// Messages of at most about so many tokens, instructions among them, by [`estimate_tokens`]. Tools, other fields and the answer are
    /// not among them: leave room for those in the route's [window](crate::Route::window).
    #[must_use]
    pub const fn tokens(mut self, tokens: u64) -> Self {
        self.tokens = tokens;
        self
    }
}

impl Edit for Prune {
    fn edit(&self, json: &str) -> Result<Option<String>, BoxError> {
        let body = Raw::parse(json).filter(|body| body.is_object()).ok_or(NO_OBJECT)?;
        let Some(list) = conversation(body) else { return Ok(None) };
        let messages = list.items();
        let lead = instructions(&messages);
        let cost = |message: &Raw<'_>| {
            if self.tokens == u64::MAX { 0 } else { estimate_tokens(message.as_str()) }
        };
        let costs: Vec<_> = messages.iter().map(cost).collect();
        let mut left: u64 = costs.iter().sum();
        let mut first = lead;
        loop {
            let count = messages.len() - first;
            let begins = first == lead || messages.get(first).is_some_and(|message| is_of_user(*message));
            if begins && count <= self.messages && left <= self.tokens {
                break;
            }
            let Some(cost) = costs.get(first) else { return Err(too_long()) };
            left -= cost;
            first += 1;
        }
        let mut splices = Splices::of(json);
        if first > lead {
            match (messages.get(lead), messages.get(first)) {
                (Some(from), Some(to)) => splices.remove(*from, *to),
                // Instructions alone are no question.
                _ => return Err(too_long()),
            }
        }
        Ok(splices.apply())
    }
}

fn too_long() -> BoxError {
    Fault::new(Class::ContextLength, LAYER)
        .with_message("no turn of the conversation fits into the bounds of the route")
        .into()
}

/// The list of what was said.
pub(super) fn conversation(body: Raw<'_>) -> Option<Raw<'_>> {
    ["messages", "input", "contents"]
        .into_iter()
        .find_map(|name| body.get(name))
        .filter(|list| list.is_list())
}

/// How many messages at the beginning are instructions.
pub(super) fn instructions(messages: &[Raw<'_>]) -> usize {
    messages
        .iter()
        .take_while(|message| {
            message
                .get("role")
                .and_then(Raw::text)
                .is_some_and(|role| role == "system" || role == "developer")
        })
        .count()
}

/// Whether the user says something in it, and it is not the result of a tool.
fn is_of_user(message: Raw<'_>) -> bool {
    let says =
        |field: &str, what: &str| message.get(field).and_then(Raw::text).is_none_or(|text| text == what);
    let is_gemini = message.get("parts").is_some();
    // Gemini's may leave the role out.
    let of_user =
        (is_gemini || message.get("role").is_some()) && says("role", "user") && says("type", "message");
    let parts = if is_gemini { message.get("parts") } else { message.get("content") };
    let is_result = |part: &Raw<'_>| {
        part.get("functionResponse").is_some()
            || part.get("type").and_then(Raw::text).is_some_and(|kind| kind.ends_with("tool_result"))
    };
    of_user && !parts.map(Raw::items).unwrap_or_default().iter().any(is_result)
}
