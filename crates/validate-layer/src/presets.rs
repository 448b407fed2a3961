//! Builders that are set up for one kind of endpoint.
//!
//! One layer for each kind of endpoint is the natural use: what is right for one is an error for another. A preset is a
//! [`ValidateBuilder`], so everything can be changed afterwards.
//!
//! | preset | sets | because |
//! |---|---|---|
//! | [`chat`](ValidateLayer::chat) | [`error_texts`](ValidateBuilder::error_texts) | prose of any shape is an answer; a proxy's error message is none |
//! | `structured` (feature `schema`) | `schema`, [`json_object`](ValidateBuilder::json_object), [`refusals`](ValidateBuilder::refusals) | where data was asked for, "I can't help with that" is a refusal, which the next route may answer, and no slip in the format, which the same model is told of; and a call of a tool is no such object, unless [`tools`](ValidateBuilder::tools), `tool_schema` or `chat_requests` say what may be called |
//! | [`tool_calls`](ValidateLayer::tool_calls) | [`tools`](ValidateBuilder::tools) | an unknown tool, a call left in the text and half a JSON object of arguments fail before anyone acts on them |
//! | [`embeddings`](ValidateLayer::embeddings) | [`Embedding`], [`max_body`](ValidateBuilder::max_body) of 64 MiB | 1 000 vectors of 3 072 numbers of 13 characters are 40 MB |
//! | [`multimodal`](ValidateLayer::multimodal) | [`length_tolerance`](ValidateBuilder::length_tolerance) of 0.15, [`max_body`](ValidateBuilder::max_body) of 32 MiB | how much there is to say of a picture is known less well than of a text; pictures in an answer are base64. Its circuit counts a soft failure 0.7 in place of 0.6 |
//! | [`reasoning`](ValidateLayer::reasoning) | [`error_texts`](ValidateBuilder::error_texts), the hint [`Modify`](failsoft_core::Hint::Modify) after an empty answer | what is empty here was thought about until the tokens were used up, and would be again: 130 169 tokens went into one such answer, and nothing came out |
//!
//! ```
//! use failsoft_core::{Class, SoftKind};
//! use validate_layer::{Answer, ValidateLayer};
//!
//! let layer = ValidateLayer::embeddings(3)?.name("vectors").build()?;
//! let (verdict, report) = layer.validator().judge(&Answer::new(r#"{"data": [{"embedding": [0.0, 0.0, 0.0]}]}"#));
//! assert_eq!(verdict.class(), Class::Soft(SoftKind::Schema));
//! assert_eq!(report.to_string(), "embedding.zero at /data/0/embedding: the vector is all zeros");
//! # Ok::<(), failsoft_core::ConfigError>(())
//! ```

use failsoft_core::{ConfigError, Hint, SoftKind};

use crate::{ValidateBuilder, ValidateLayer, checks::Embedding};

const MIB: usize = 1024 * 1024;

impl ValidateLayer {
    /// For prose. See [`presets`](self).
    pub fn chat() -> ValidateBuilder {
        Self::builder().error_texts()
    }

    /// For an object that fits a schema. See [`presets`](self).
    #[cfg(feature = "schema")]
    pub fn structured(schema: &serde_json::Value) -> ValidateBuilder {
        Self::builder().json_object().schema(schema).refusals().no_tools()
    }

    /// For a model that may call these tools, or answer in text. See [`presets`](self).
    pub fn tool_calls(names: impl IntoIterator<Item = impl Into<Box<str>>>) -> ValidateBuilder {
        Self::builder().tools(names)
    }

    /// For vectors of this dimension. See [`presets`](self).
    ///
    /// # Errors
    ///
    /// When the dimension is 0.
    pub fn embeddings(dimension: usize) -> Result<ValidateBuilder, ConfigError> {
        let check = Embedding::any().dimension(dimension)?;
        Ok(Self::builder().check(check).max_body(64 * MIB))
    }

    /// For answers about pictures and sound, or with such in them. See [`presets`](self).
    pub fn multimodal() -> ValidateBuilder {
        Self::builder().length_tolerance(0.15).max_body(32 * MIB)
    }

    /// For models that think before they answer. See [`presets`](self).
    pub fn reasoning() -> ValidateBuilder {
        Self::builder().error_texts().hint(SoftKind::Empty, Hint::Modify)
    }
}
