use std::{sync::Arc, time::Duration};

use breaker_layer::{Breaker, BreakerBuilder, BreakerLayer, Circuit};
use failsoft_core::{CloneService, ConfigError};
use retry_layer::{Retry, RetryBuilder, RetryLayer};
use tower_layer::Layer;

/// A tool that an agent calls over HTTP: a search, a booking, a ticket.
///
/// | layer | starts from | because |
/// |---|---|---|
/// | retry | [`retry_layer::presets::tool`]: 2 further attempts within 20 s in all, each within 10 s; nothing that may have been done is done again | a model waits for the result, and a booking made twice is worse than one not made |
/// | breaker | [`breaker_layer::presets::tool`]: half of at least 5 calls in 5 min have failed, or took longer than 8 s instead of 10 s | tools are called seldom, and one good probe tells; an attempt that the retry drops at its limit counts as slow |
///
/// Around it belongs an [`ObserveLayer`](failsoft_core::ObserveLayer) where the agent is to read failures as results.
///
/// ```
/// use failsoft::{core::BoxError, presets::Tool};
/// use tower::{ServiceBuilder, ServiceExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// let search = ServiceBuilder::new()
///     .layer(Tool::new("search").read_only().build()?) // asking twice does no harm
///     .service_fn(async |_: http::Request<String>| Ok::<_, BoxError>(http::Response::new(String::from("found"))));
/// assert_eq!(search.oneshot(http::Request::new("?".to_owned())).await?.body().get_ref(), "found");
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is built before `build`"]
pub struct Tool {
    retry: RetryBuilder,
    breaker: BreakerBuilder,
}

impl Tool {
    /// Starts from the table above, for a tool of this name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        let name = name.into();
        Self {
            retry: retry_layer::presets::tool()
                .target(Arc::clone(&name))
                .attempt_timeout(Duration::from_secs(10)),
            // Below the retry's limit on an attempt, and on what the deadline leaves of a second one.
            breaker: breaker_layer::presets::tool().name(name).slow_after(Duration::from_secs(8)),
        }
    }

    /// The tool only reads: what may have arrived may be asked again.
    pub fn read_only(self) -> Self {
        self.retry(|retry| retry.repeat_unanswered(true))
    }

    /// Changes the retry.
    pub fn retry(mut self, change: impl FnOnce(RetryBuilder) -> RetryBuilder) -> Self {
        self.retry = change(self.retry);
        self
    }

    /// Changes the breaker.
    pub fn breaker(mut self, change: impl FnOnce(BreakerBuilder) -> BreakerBuilder) -> Self {
        self.breaker = change(self.breaker);
        self
    }

    /// Checks everything and builds the layers.
    ///
    /// # Errors
    ///
    /// The first setting that one of the layers refuses, with its name and range.
    pub fn build(self) -> Result<ToolLayer, ConfigError> {
        Ok(ToolLayer { retry: self.retry.build()?, breaker: self.breaker.build()? })
    }
}

failsoft_core::unbuilt!([] Tool);

impl std::fmt::Debug for Tool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tool").finish_non_exhaustive()
    }
}

/// The layers of a [`Tool`]. Clones share circuit and retry budget.
#[derive(Clone)]
pub struct ToolLayer {
    retry: RetryLayer,
    breaker: BreakerLayer,
}

impl ToolLayer {
    /// Its circuit.
    pub fn circuit(&self) -> &Circuit {
        self.breaker.circuit()
    }
}

impl<S: CloneService> Layer<S> for ToolLayer {
    type Service = Retry<Breaker<S>>;

    fn layer(&self, inner: S) -> Self::Service {
        self.retry.layer(self.breaker.layer(inner))
    }
}

impl std::fmt::Debug for ToolLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolLayer").field("circuit", self.circuit()).finish_non_exhaustive()
    }
}
