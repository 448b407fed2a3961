//! What users make of the data of an event.

use std::borrow::Cow;

use llm_layer::Provider;
use serde::Deserialize;

/// What users of a decoder do with the data of an event: the least of it that makes text of an answer.
pub(crate) struct Text {
    pub(crate) text: String,
    provider: Provider,
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: Vec<Choice<'a>>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: Delta<'a>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Option<Cow<'a, str>>,
}

/// An event of Anthropic's.
#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow)]
    delta: BlockDelta<'a>,
}

#[derive(Deserialize)]
struct BlockDelta<'a> {
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
}

/// An event of OpenAI's responses.
#[derive(Deserialize)]
struct Piece<'a> {
    #[serde(borrow)]
    delta: Cow<'a, str>,
}

/// A chunk of Gemini's.
#[derive(Deserialize)]
struct Candidates<'a> {
    #[serde(borrow)]
    candidates: Vec<Candidate<'a>>,
}

#[derive(Deserialize)]
struct Candidate<'a> {
    #[serde(borrow)]
    content: Option<Content<'a>>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow)]
    parts: Vec<BlockDelta<'a>>,
}

/// A line of Ollama's.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    message: Delta<'a>,
}

impl Text {
    pub(crate) const fn new(provider: Provider) -> Self {
        Self { text: String::new(), provider }
    }

    pub(crate) fn add(&mut self, data: &str) {
        match self.provider {
            // An event of Bedrock has its text in the same place.
            Provider::Anthropic | Provider::Bedrock => {
                let Ok(Block { delta }) = serde_json::from_str(data) else { return };
                self.text.push_str(&delta.text.unwrap_or_default());
            }
            Provider::OpenAiResponses => {
                let Ok(Piece { delta }) = serde_json::from_str(data) else { return };
                self.text.push_str(&delta);
            }
            Provider::Gemini => {
                let Ok(Candidates { candidates }) = serde_json::from_str(data) else { return };
                let contents = candidates.into_iter().filter_map(|candidate| candidate.content);
                for text in contents.flat_map(|content| content.parts).filter_map(|part| part.text) {
                    self.text.push_str(&text);
                }
            }
            Provider::Ollama => {
                let Ok(Line { message }) = serde_json::from_str(data) else { return };
                self.text.push_str(&message.content.unwrap_or_default());
            }
            _ => {
                let Ok(chunk) = serde_json::from_str::<Chunk<'_>>(data) else { return };
                for content in chunk.choices.into_iter().filter_map(|choice| choice.delta.content) {
                    self.text.push_str(&content);
                }
            }
        }
    }
}
