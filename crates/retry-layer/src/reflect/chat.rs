//! [`ChatReask`]: tells a model what was wrong with its answer, in the words of its chat protocol.
//!
//! ```
//! use bytes::Bytes;
//! use failsoft_core::{Facts, Finding, Report, SoftKind, Verdict};
//! use retry_layer::reflect::{BadAnswer, Reask, chat::ChatReask};
//!
//! let body = r#"{"model": "m", "messages": [{"role": "user", "content": "Where? As JSON."}]}"#;
//! let request = http::Request::post("http://models.example/v1/chat/completions").body(Bytes::from(body)).unwrap();
//!
//! let mut facts = Facts::default();
//! facts.text = Some(r#"{"town": "Bern"}"#.into());
//! let finding = Finding::new(SoftKind::MissingField, "required", "a required field is missing").at("/city");
//! let bad = BadAnswer::new(Verdict::soft(SoftKind::MissingField), Report::from(finding), &facts);
//!
//! let request = ChatReask::openai().reask(request, &bad).unwrap();
//! let body = std::str::from_utf8(request.body()).unwrap();
//! assert!(body.starts_with(r#"{"model": "m", "messages": [{"role": "user", "content": "Where? As JSON."},"#));
//! assert!(body.contains(r#"{"content":"{\"town\": \"Bern\"}","role":"assistant"},{"content":"Your last answer"#));
//! assert!(body.contains("required at /city: a required field is missing"));
//! assert_eq!(request.headers()["cache-control"], "no-cache");
//! ```
//!
//! # What is sent
//!
//! The first request, byte for byte, with two things more at the end of its messages: the last wrong answer, as the assistant's,
//! and what is wrong with it. `content-length` is put right, `cache-control: no-cache` keeps gateways from giving the old answer
//! again, and an `idempotency-key` gets a suffix: this is another request.
//!
//! | the wrong answer | what follows it |
//! |---|---|
//! | a text | a message of the user with the findings |
//! | tool calls | for each call a result of its own: what is wrong with it, or that it was not made because of another one |
//! | tool calls whose arguments are no JSON object | the same; in the call stands `{}`, in its result what was really written, because many servers refuse such a call |
//! | tool calls, to Gemini, to OpenAI's responses, or to Anthropic with thinking switched on | a message of the user that repeats the calls: a call must come back with a signature or the thinking before it, which nobody has kept |
//! | nothing, or longer than [`MAX_ANSWER`](failsoft_core::MAX_ANSWER) | the findings alone |
//! | cut at the limit of tokens | nothing: where a [bound](ChatReask::max_tokens_up_to) is set, the limit is doubled up to it; else there is no request, for the same would be cut again |
//!
//! The request's body must lie in memory and not be compressed. A request that is signed further out than this layer (AWS's
//! Signature Version 4 and those like it, in a header or in a presigned URL; HTTP message signatures), or carries a digest of its
//! body (`content-md5`, `content-digest`, `x-…-content-sha256`), is not changed, and the wrong answer is returned: sign inside of
//! this layer. A signature by a header of a provider's own cannot be recognised.

mod bodies;
mod splice;
mod turns;

use std::{borrow::Cow, fmt};

use failsoft_core::{Class, Finish, SoftKind};

pub use self::bodies::{BodyInMemory, ChatRequest};
use self::{
    splice::{Edit, Top},
    turns::Dialect,
};
use super::{BadAnswer, Reask};

/// How often the limit of tokens is raised at a time.
const RAISE: u64 = 2;

const INSTRUCTION: &str = "Answer again, in full, with this put right, and write nothing else.";

/// Tells a model what was wrong with its answer. See the [module](self).
#[derive(Clone)]
pub struct ChatReask {
    dialect: Dialect,
    max_tokens: Option<u64>,
    instruction: Cow<'static, str>,
}

impl ChatReask {
    /// For OpenAI's chat completions, and the many servers that speak them.
    #[must_use]
    pub const fn openai() -> Self {
        Self::of(Dialect::OpenAi)
    }

    /// For OpenAI's responses.
    #[must_use]
    pub const fn openai_responses() -> Self {
        Self::of(Dialect::Responses)
    }

    /// For Anthropic's messages.
    #[must_use]
    pub const fn anthropic() -> Self {
        Self::of(Dialect::Anthropic)
    }

    /// For Gemini's `generateContent`.
    #[must_use]
    pub const fn gemini() -> Self {
        Self::of(Dialect::Gemini)
    }

    const fn of(dialect: Dialect) -> Self {
        Self { dialect, max_tokens: None, instruction: Cow::Borrowed(INSTRUCTION) }
    }

    /// An answer that was cut at its limit of tokens is asked for again with twice the limit, but never with more than this.
    /// Default: none, and such an answer is not asked for again. A request without a limit of its own never is.
    #[must_use]
    pub const fn max_tokens_up_to(mut self, bound: u64) -> Self {
        self.max_tokens = Some(bound);
        self
    }

    /// The words after the findings. Default: "Answer again, in full, with this put right, and write nothing else."
    #[must_use]
    pub fn instruction(mut self, text: impl Into<Cow<'static, str>>) -> Self {
        self.instruction = text.into();
        self
    }

    /// The changed body, if this is a body that can be changed and a change can help.
    #[must_use]
    pub fn change(&self, body: &str, bad: &BadAnswer) -> Option<String> {
        let top = Top::read(body)?;
        if is_cut(bad) {
            let limit = self.dialect.limit(&top)?;
            let raised = limit.value().saturating_mul(RAISE).min(self.max_tokens?);
            return (raised > limit.value()).then(|| limit.replaced(raised).apply(body))?;
        }
        let turns = self.dialect.turns(&top, bad, &self.instruction);
        Edit::append(self.dialect.messages(&top)?, &turns)?.apply(body)
    }
}

/// Whether it was the limit of tokens that made the answer wrong.
fn is_cut(bad: &BadAnswer) -> bool {
    match bad.finish() {
        Some(finish) => *finish == Finish::Length,
        None => bad.verdict().class() == Class::Soft(SoftKind::Truncated),
    }
}

impl<Req: ChatRequest> Reask<Req> for ChatReask {
    fn reask(&self, request: Req, bad: &BadAnswer) -> Option<Req> {
        let changed = self.change(&request.json()?, bad)?;
        Some(request.with_json(changed, bad.number()))
    }
}

impl fmt::Debug for ChatReask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatReask")
            .field("dialect", &self.dialect)
            .field("max_tokens", &self.max_tokens)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(not(failsoft_loom))]
mod tests;
