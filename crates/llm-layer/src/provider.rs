//! [`Provider`]: the dialects that the layer reads, as pure functions of bytes.
//!
//! ```
//! use failsoft_core::Class;
//! use http::{HeaderMap, StatusCode};
//! use llm_layer::{Offered, Provider};
//!
//! let body = br#"{"error": {"message": "Provider returned error", "code": 429}}"#;
//! let facts = Provider::OpenAiCompatible.judge(StatusCode::OK, &HeaderMap::new(), body, &Offered::unknown());
//!
//! // A 200, and yet:
//! assert_eq!(facts.verdict.map(|verdict| verdict.class()), Some(Class::RateLimited));
//! assert!(facts.inside_success);
//! ```

use failsoft_core::{Class, Facts, Hint, Usage, Verdict, class_of_status, with_headers};
use http::{HeaderMap, StatusCode};

use crate::{
    Offered, anthropic, bedrock, chat,
    error::{ErrorBody, Top},
    gemini, ollama, recognise,
    request::Look,
    responses, whole,
};

/// The dialect that a target speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Provider {
    /// Whichever it is: recognised for each call by the path, the headers and the shape of the request, else by the shape
    /// of the answer. An answer that neither shows passes for a good one, with a warning in its report.
    #[default]
    Auto,
    /// Chat completions as OpenAI defined them, and as Azure, Mistral, Groq, DeepSeek, OpenRouter, vLLM, Ollama's
    /// `/v1` and many others speak them. What those do differently is recognised by its shape.
    OpenAiCompatible,
    /// OpenAI's Responses.
    OpenAiResponses,
    /// Anthropic's Messages.
    Anthropic,
    /// Google's `generateContent`, and `streamGenerateContent` as server-sent events and as one JSON array, of the Gemini
    /// API and of Vertex AI.
    Gemini,
    /// AWS Bedrock's `Converse` and `ConverseStream`; of `InvokeModelWithResponseStream`, the events of models that speak a
    /// dialect that is known here.
    Bedrock,
    /// Ollama's own `/api/chat` and `/api/generate`. Its `/v1` is OpenAI-compatible.
    Ollama,
}

impl Provider {
    /// Every one.
    pub const ALL: &'static [Self] = &[
        Self::Auto,
        Self::OpenAiCompatible,
        Self::OpenAiResponses,
        Self::Anthropic,
        Self::Gemini,
        Self::Bedrock,
        Self::Ollama,
    ];

    /// What a whole body means, together with its status and headers: verdict, report, usage, finish reason, text and
    /// tool calls.
    ///
    /// No bytes make it panic. It is linear in the length of `body`, and takes no more memory than the text and the
    /// tool calls that it finds.
    #[must_use]
    pub fn judge(self, status: StatusCode, headers: &HeaderMap, body: &[u8], offered: &Offered) -> Facts {
        if !class_of_status(status).is_success() {
            return self.failure(status, headers, body);
        }
        let mut facts = whole::judge(self, headers, body, offered);
        facts.inside_success = facts.verdict.is_some_and(|verdict| !verdict.is_success());
        facts
    }

    /// The dialect of one call.
    pub(crate) fn of_call(self, look: &Look<'_>) -> Self {
        match self {
            Self::Auto => recognise::of_request(look).unwrap_or(Self::Auto),
            chosen => chosen,
        }
    }

    // A dialect joins with an arm in each of the following functions, and with one for its streams in `events`.

    /// Judges the object in the body of a success, which is no error.
    pub(crate) fn answer(self, top: &Top<'_>, headers: &HeaderMap, offered: &Offered, facts: &mut Facts) {
        match self {
            Self::Auto => match recognise::of_answer(top.text) {
                Some(dialect) => dialect.answer(top, headers, offered, facts),
                None => chat::unknown(top, headers, offered, facts),
            },
            Self::OpenAiCompatible => chat::answer(top, headers, offered, facts),
            Self::OpenAiResponses => responses::answer(top, headers, offered, facts),
            Self::Anthropic => anthropic::answer(top, headers, offered, facts),
            Self::Gemini => gemini::answer(top, headers, offered, facts),
            Self::Bedrock => bedrock::answer(top, headers, offered, facts),
            Self::Ollama => ollama::answer(top, headers, offered, facts),
        }
    }

    /// The tokens that a body says were used.
    pub(crate) fn usage(self, top: &Top<'_>) -> Usage {
        match self {
            Self::Auto => recognise::of_answer(top.text).unwrap_or(Self::OpenAiCompatible).usage(top),
            Self::OpenAiCompatible => chat::usage(top),
            Self::OpenAiResponses => responses::usage(top),
            Self::Anthropic => anthropic::usage(top),
            Self::Gemini => gemini::usage(top),
            Self::Bedrock => bedrock::usage(top),
            Self::Ollama => ollama::usage(top),
        }
    }

    /// Judges a stream of this dialect that was read as a whole: an array, or lines. `None` where the text is none.
    pub(crate) fn stream(
        self,
        text: &str,
        headers: &HeaderMap,
        offered: &Offered,
        facts: &mut Facts,
    ) -> Option<()> {
        match self {
            Self::Auto => gemini::array(text, headers, offered, facts)
                .or_else(|| ollama::lines(text, headers, offered, facts)),
            Self::Gemini => gemini::array(text, headers, offered, facts),
            Self::Ollama => ollama::lines(text, headers, offered, facts),
            _ => None,
        }
    }

    /// An error status: what its body says, else what the status says.
    fn failure(self, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Facts {
        let mut facts = Facts::default();
        let text = String::from_utf8_lossy(whole::unmarked(body));
        let top = Top::read(event_data(&text));
        let body = top.and_then(|top| top.failure()).or_else(|| ErrorBody::of_headers(headers));
        match body {
            Some(body) => body.tell(Some(status), headers, &mut facts),
            None => facts.verdict = Some(with_headers(of_status(status), headers)),
        }
        // Failures cost too.
        facts.usage = top.map(|top| self.usage(&top)).unwrap_or_default();
        facts
    }
}

/// A status by itself. Where 413 differs from the other wrong requests: a shorter one can help.
pub(crate) fn of_status(status: StatusCode) -> Verdict {
    let verdict = Verdict::of(class_of_status(status));
    if status == StatusCode::PAYLOAD_TOO_LARGE && verdict.class() == Class::Invalid {
        verdict.with_hint(Hint::Modify)
    } else {
        verdict
    }
}

/// An error that a server sent as an event, as it would have inside a stream.
pub(crate) fn event_data(text: &str) -> &str {
    let mut lines = text.lines().map(str::trim_start);
    match text.trim_start().bytes().next() {
        Some(b'd' | b'e') => lines.find_map(|line| line.strip_prefix("data:")).map_or(text, str::trim),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_has_every_one() {
        let place = |provider: Provider| match provider {
            Provider::Auto => 0,
            Provider::OpenAiCompatible => 1,
            Provider::OpenAiResponses => 2,
            Provider::Anthropic => 3,
            Provider::Gemini => 4,
            Provider::Bedrock => 5,
            Provider::Ollama => 6,
        };
        let places: Vec<usize> = Provider::ALL.iter().map(|provider| place(*provider)).collect();
        assert_eq!(places, [0, 1, 2, 3, 4, 5, 6]);
    }
}
