//! [`LlmLayer`] and its builder.
//!
//! ```
//! use llm_layer::{LlmLayer, Provider};
//!
//! # fn main() -> Result<(), failsoft_core::ConfigError> {
//! let layer = LlmLayer::builder()
//!     .provider(Provider::OpenAiCompatible)
//!     .max_body(1 << 20)
//!     .name("model-a")
//!     .build()?;
//! # let _ = layer;
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;

use failsoft_core::ConfigError;
use tower_layer::Layer;

use crate::{Llm, Provider};

/// The default of [`LlmLayerBuilder::max_body`]: 8 MiB. The longest answers of today's models, 128 000 tokens of about
/// four bytes, take a sixteenth of it; what is left is for log probabilities, sound and pictures.
pub const DEFAULT_MAX_BODY: usize = 8 << 20;

/// Reads what a model endpoint really answered, and leaves it on the response as an
/// [`Insight`](failsoft_core::Insight).
#[derive(Clone, Debug)]
pub struct LlmLayer {
    pub(crate) config: Arc<Config>,
}

/// What one layer's services share.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) provider: Provider,
    pub(crate) max_body: usize,
    pub(crate) name: Option<Arc<str>>,
}

impl LlmLayer {
    /// A layer for a dialect, with the defaults of the [builder](Self::builder).
    #[must_use]
    pub fn new(provider: Provider) -> Self {
        Self { config: Arc::new(Config { provider, max_body: DEFAULT_MAX_BODY, name: None }) }
    }

    /// Sets a layer up.
    pub fn builder() -> LlmLayerBuilder {
        LlmLayerBuilder { provider: Provider::default(), max_body: DEFAULT_MAX_BODY, name: None }
    }
}

impl<S> Layer<S> for LlmLayer {
    type Service = Llm<S>;

    fn layer(&self, inner: S) -> Llm<S> {
        Llm::new(inner, Arc::clone(&self.config))
    }
}

/// Sets an [`LlmLayer`] up.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it builds"]
pub struct LlmLayerBuilder {
    provider: Provider,
    max_body: usize,
    name: Option<Arc<str>>,
}

impl LlmLayerBuilder {
    /// The dialect that the target speaks. Default: [`Provider::OpenAiCompatible`].
    pub const fn provider(mut self, provider: Provider) -> Self {
        self.provider = provider;
        self
    }

    /// Holds and judges bodies of up to so many bytes; at least 1. A longer one passes as it is, judged by status and
    /// headers alone. Default: [`DEFAULT_MAX_BODY`].
    ///
    /// So many bytes are held for each call that is being read, and its text and tool calls once more.
    pub const fn max_body(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self
    }

    /// Names the target in the errors that the layer originates. Default: no name.
    pub fn name(mut self, target: impl Into<Arc<str>>) -> Self {
        self.name = Some(target.into());
        self
    }

    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// When `max_body` is 0 or the name is blank.
    pub fn build(self) -> Result<LlmLayer, ConfigError> {
        let refuse = |field, value, expected| Err(ConfigError::new("LlmLayer", field, value, expected));
        if self.max_body == 0 {
            return refuse("max_body", 0, "at least 1 byte");
        }
        if self.name.as_deref().is_some_and(|name| name.trim().is_empty()) {
            return Err(ConfigError::new("LlmLayer", "name", "blank", "a name"));
        }
        let Self { provider, max_body, name } = self;
        Ok(LlmLayer { config: Arc::new(Config { provider, max_body, name }) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused_by_name() {
        let err = LlmLayer::builder().max_body(0).build().unwrap_err();
        assert_eq!((err.field(), err.value()), ("max_body", "0"));
        for blank in ["", " "] {
            assert_eq!(LlmLayer::builder().name(blank).build().unwrap_err().field(), "name");
        }
        assert!(LlmLayer::builder().max_body(usize::MAX).name("a").build().is_ok());
    }
}
