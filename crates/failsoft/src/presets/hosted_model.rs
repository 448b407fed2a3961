use std::{sync::Arc, time::Duration};

use breaker_layer::{Breaker, BreakerBuilder, BreakerLayer, Circuit};
use failsoft_core::{CloneService, ConfigError};
use llm_layer::{Llm, LlmLayer, LlmLayerBuilder, Provider};
use retry_layer::{Retry, RetryBuilder, RetryLayer};
use tower_layer::Layer;
use validate_layer::{Validate, ValidateBuilder, ValidateLayer};

const MINUTE: Duration = Duration::from_secs(60);

/// A model behind somebody's API, over `reqwest` or any client of `http` types.
///
/// | layer | starts from | because |
/// |---|---|---|
/// | retry | 3 further attempts, 1 s doubled to 60 s with full jitter, budget of 20 % of calls and 10 a second; also after a request that nobody answered | a chat completion may be asked for twice, at the price of its tokens |
/// | breaker | [`breaker_layer::presets::hosted_model`]: 40 % of at least 10 calls in 60 s; or half of them with a first content after 60 s instead of 4 s, and with a lease of 2 min | a whole answer has its first content when all of it is written, and may well take longer than 4 s |
/// | validate | an answer is there, has ended well, and its tool calls can be used | what is right beyond that, only you know: [`validate`](Self::validate) |
/// | llm | the dialect is recognised; a stream's first content within 10 s, no silence over 30 s | what passes there is what is cut, empty or an error inside a 200 |
///
/// A whole answer has no limit of time here, for nobody knows how long it is: give the client one, as reqwest's `timeout`, or the call a
/// [`deadline`](RetryBuilder::deadline). Where every call streams, `.breaker(|breaker| breaker.slow_after(Duration::from_secs(4)))` sees sooner that the endpoint gets
/// slow, as it mostly does before it fails.
///
/// ```
/// use failsoft::{core::BoxError, llm::Provider, presets::HostedModel};
/// use tower::{ServiceBuilder, ServiceExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// let layer = HostedModel::new("eu")
///     .provider(Provider::OpenAiCompatible)
///     .retry(|retry| retry.max_retries(5))
///     .validate(|validate| validate.json_object().require("/city"))
///     .build()?;
/// let circuit = layer.circuit().clone(); // for a fallback's health
///
/// let answer = r#"{"choices": [{"message": {"content": "{\"city\": \"Bern\"}"}, "finish_reason": "stop"}]}"#;
/// let model = ServiceBuilder::new().layer(layer).service_fn(move |_: http::Request<String>| async move {
///     Ok::<_, BoxError>(http::Response::new(http_body_util::Full::<bytes::Bytes>::from(answer))) // your client
/// });
/// let request = http::Request::new(r#"{"messages": [{"role": "user", "content": "?"}]}"#.to_owned());
/// assert!(model.oneshot(request).await?.status().is_success());
/// # let _ = circuit;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is built before `build`"]
pub struct HostedModel {
    retry: RetryBuilder,
    breaker: BreakerBuilder,
    validate: ValidateBuilder,
    llm: LlmLayerBuilder,
}

impl HostedModel {
    /// Starts from the table above, for a target of this name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        let name = name.into();
        Self {
            retry: RetryLayer::builder().target(Arc::clone(&name)).repeat_unanswered(true),
            // The preset is for streams: a whole answer has its first content when all of it is written.
            breaker: breaker_layer::presets::hosted_model()
                .name(Arc::clone(&name))
                .slow_after(MINUTE)
                .lease(2 * MINUTE),
            validate: ValidateLayer::builder().name(Arc::clone(&name)),
            llm: LlmLayer::builder().name(name),
        }
    }

    /// A model that thinks in silence before it answers: a stream's first content within 60 s instead of 10 s, no silence over
    /// 60 s instead of 30 s, and [`breaker_layer::presets::reasoning_model`], to which a first content is late after 5 min instead
    /// of 60 s, and whose lease is 10 min. Such models are silent for 45 s and well, and take minutes over a whole answer.
    ///
    /// Replaces what was said of the breaker before.
    pub fn reasoning(name: impl Into<Arc<str>>) -> Self {
        let name = name.into();
        let breaker = breaker_layer::presets::reasoning_model().name(Arc::clone(&name));
        Self::new(name)
            .breaker(|_| breaker.slow_after(5 * MINUTE).lease(10 * MINUTE))
            .llm(|llm| llm.thinks_for(MINUTE))
    }

    /// The dialect, where it need not be recognised.
    pub fn provider(self, provider: Provider) -> Self {
        self.llm(|llm| llm.provider(provider))
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

    /// Changes what a right answer is.
    pub fn validate(mut self, change: impl FnOnce(ValidateBuilder) -> ValidateBuilder) -> Self {
        self.validate = change(self.validate);
        self
    }

    /// Changes how answers are read.
    pub fn llm(mut self, change: impl FnOnce(LlmLayerBuilder) -> LlmLayerBuilder) -> Self {
        self.llm = change(self.llm);
        self
    }

    /// Checks everything and builds the layers.
    ///
    /// # Errors
    ///
    /// The first setting that one of the layers refuses, with its name and range.
    pub fn build(self) -> Result<HostedModelLayer, ConfigError> {
        Ok(HostedModelLayer {
            retry: self.retry.build()?,
            breaker: self.breaker.build()?,
            validate: self.validate.build()?,
            llm: self.llm.build()?,
        })
    }
}

failsoft_core::unbuilt!([] HostedModel);

impl std::fmt::Debug for HostedModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostedModel").finish_non_exhaustive()
    }
}

/// The layers of a [`HostedModel`]. Clones share circuit and retry budget.
#[derive(Clone)]
pub struct HostedModelLayer {
    retry: RetryLayer,
    breaker: BreakerLayer,
    validate: ValidateLayer,
    llm: LlmLayer,
}

impl HostedModelLayer {
    /// Its circuit: to look at, to steer by hand, and for the health of a fallback's route.
    pub fn circuit(&self) -> &Circuit {
        self.breaker.circuit()
    }
}

impl<S: CloneService> Layer<S> for HostedModelLayer {
    type Service = Retry<Breaker<Validate<Llm<S>>>>;

    fn layer(&self, inner: S) -> Self::Service {
        self.retry.layer(self.breaker.layer(self.validate.layer(self.llm.layer(inner))))
    }
}

impl std::fmt::Debug for HostedModelLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostedModelLayer").field("circuit", self.circuit()).finish_non_exhaustive()
    }
}
