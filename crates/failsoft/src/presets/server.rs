use std::{sync::Arc, time::Duration};

use breaker_layer::{Breaker, BreakerBuilder, BreakerLayer, Circuit};
use failsoft_core::{CallLayer, CallService, CloneService, ConfigError, RespondLayer, Responding};
use tower_layer::Layer;

/// A route of your own server, in front of what it depends on: for `Router::layer` or `MethodRouter::layer` of axum.
///
/// | layer | starts from | because |
/// |---|---|---|
/// | respond | errors become JSON with a status and, where one is known, `Retry-After` | a server's services must not fail |
/// | call | a deadline of 30 s, which every retry and fallback inside obeys, and the trail on the response | few clients wait longer; a wait that ends after it is not begun |
/// | breaker | the defaults: 40 % of at least 10 calls in 60 s | a handler that fails is left alone for 30 s, and its callers are told when to come back |
///
/// The breaker counts what the handler answers: 5xx are failures, 4xx are the caller's and count for neither side.
///
/// ```
/// use std::time::Duration;
/// use axum::{Router, routing::post};
/// use failsoft::presets::Server;
///
/// # async fn chat() -> &'static str { "" }
/// let layer = Server::new("chat").timeout(Duration::from_secs(60)).build()?;
/// let app: Router = Router::new().route("/chat", post(chat).layer(layer));
/// # let _ = app;
/// # Ok::<(), failsoft::core::ConfigError>(())
/// ```
#[must_use = "nothing is built before `build`"]
pub struct Server {
    call: CallLayer,
    breaker: BreakerBuilder,
}

impl Server {
    /// Starts from the table above, for a route of this name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            call: CallLayer::new().timeout(Duration::from_secs(30)),
            breaker: BreakerLayer::builder().name(name),
        }
    }

    /// The deadline of each call; see [`CallLayer::timeout`].
    pub fn timeout(self, timeout: Duration) -> Self {
        self.call(|call| call.timeout(timeout))
    }

    /// Changes the call.
    pub fn call(mut self, change: impl FnOnce(CallLayer) -> CallLayer) -> Self {
        self.call = change(self.call);
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
    pub fn build(self) -> Result<ServerLayer, ConfigError> {
        Ok(ServerLayer { call: self.call, breaker: self.breaker.build()? })
    }
}

failsoft_core::unbuilt!([] Server);

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("call", &self.call).finish_non_exhaustive()
    }
}

/// The layers of a [`Server`]. Clones share the circuit, also where axum applies the layer to each route.
#[derive(Clone)]
pub struct ServerLayer {
    call: CallLayer,
    breaker: BreakerLayer,
}

impl ServerLayer {
    /// Its circuit, for a health endpoint.
    pub fn circuit(&self) -> &Circuit {
        self.breaker.circuit()
    }
}

impl<S: CloneService> Layer<S> for ServerLayer {
    type Service = Responding<CallService<Breaker<S>>>;

    fn layer(&self, inner: S) -> Self::Service {
        RespondLayer.layer(self.call.layer(self.breaker.layer(inner)))
    }
}

impl std::fmt::Debug for ServerLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerLayer").field("circuit", self.circuit()).finish_non_exhaustive()
    }
}
