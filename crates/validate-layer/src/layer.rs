//! The layer.

use std::sync::Arc;

use tower_layer::Layer;

use crate::{Bodies, Unseen, Validate, ValidateBuilder, Validator, Values};

/// Checks the answers of services.
///
/// The checks live in this value; all services that it and its clones make share them.
#[derive(Clone, Debug)]
pub struct ValidateLayer<M = Bodies, Q = Unseen> {
    mode: M,
    inspect: Q,
    validator: Arc<Validator>,
}

impl ValidateLayer {
    /// Starts from the defaults: an answer is there, ended well, and its tool calls can be used. For
    /// `http::Response`, and `reqwest::Response` with the feature `reqwest-013`.
    pub fn builder() -> ValidateBuilder {
        ValidateBuilder::new(Bodies::new(), Unseen::new())
    }

    /// The same for plain values: the function makes an [`Answer`](crate::Answer) of a response. A value that passes
    /// is handed on as it is.
    pub fn values<F>(extract: F) -> ValidateBuilder<Values<F>> {
        Self::builder().values(extract)
    }
}

impl<M, Q> ValidateLayer<M, Q> {
    pub(crate) const fn new(mode: M, inspect: Q, validator: Arc<Validator>) -> Self {
        Self { mode, inspect, validator }
    }

    /// The checks, for use without a service.
    pub fn validator(&self) -> &Validator {
        &self.validator
    }
}

impl<S, M: Clone, Q: Clone> Layer<S> for ValidateLayer<M, Q> {
    type Service = Validate<S, M, Q>;

    fn layer(&self, inner: S) -> Self::Service {
        Validate::new(inner, self.mode.clone(), self.inspect.clone(), Arc::clone(&self.validator))
    }
}
