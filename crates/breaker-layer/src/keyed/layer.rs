//! The layer: circuits by key, and how to classify.

use std::fmt;

use failsoft_core::{ByResponse, CloneService};
use tower_layer::Layer;

use super::{Circuits, KeyedBreaker};

/// Puts a circuit breaker with a circuit for each key around services; made by
/// [`BreakerBuilder::key_fn`](crate::BreakerBuilder::key_fn) and its like.
///
/// The circuits live in this value and are shared by all services that it and its clones make.
///
/// ```
/// use breaker_layer::{BreakerLayer, engine::State};
/// use failsoft_core::{BoxError, ErrorsOnly, Fault};
/// use tower::{Service, ServiceBuilder, ServiceExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// struct ToolCall { tool: &'static str }
///
/// let layer = BreakerLayer::builder()
///     .name("tools")
///     .classify(ErrorsOnly)
///     .key_fn(|call: &ToolCall| call.tool)
///     .override_key("search", |search| search.min_calls(5)) // it is called seldom
///     .build()?;
/// let circuits = layer.circuits().clone();
/// let mut tools = ServiceBuilder::new().layer(layer).service_fn(|call: ToolCall| async move {
///     if call.tool == "search" { Err(BoxError::from("it is down")) } else { Ok(()) }
/// });
///
/// for _ in 0..5 {
///     tools.ready().await?.call(ToolCall { tool: "search" }).await.unwrap_err();
/// }
/// let refused = tools.ready().await?.call(ToolCall { tool: "search" }).await.unwrap_err();
/// assert_eq!(Fault::find(&*refused).and_then(|fault| fault.target()), Some("tools/search"));
/// tools.ready().await?.call(ToolCall { tool: "weather" }).await?; // has a circuit of its own
/// assert_eq!(circuits.get("search").map(|circuit| circuit.state()), Some(State::Open));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct KeyedBreakerLayer<K, C = ByResponse> {
    pub(crate) circuits: Circuits,
    pub(crate) keyed: K,
    pub(crate) classify: C,
}

impl<K, C> KeyedBreakerLayer<K, C> {
    /// The circuits that all its services share.
    pub fn circuits(&self) -> &Circuits {
        &self.circuits
    }
}

impl<S: CloneService, K: Clone, C: Clone> Layer<S> for KeyedBreakerLayer<K, C> {
    type Service = KeyedBreaker<S, K, C>;

    fn layer(&self, inner: S) -> Self::Service {
        KeyedBreaker::new(inner, self.circuits.clone(), self.keyed.clone(), self.classify.clone())
    }
}

impl<K, C> fmt::Debug for KeyedBreakerLayer<K, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedBreakerLayer").field("circuits", &self.circuits).finish_non_exhaustive()
    }
}
