//! [`StreamLayer`] and its builder.

use std::{sync::Arc, time::Duration};

use failsoft_core::ConfigError;
use tower_layer::Layer;

use crate::{Beyond, Limits, Streamed, Until};

/// Makes a streamed answer fail like a call.
///
/// ```
/// use std::time::Duration;
/// use stream_layer::{AnyEvent, StreamLayer};
///
/// let layer = StreamLayer::builder(AnyEvent::new().terminator("[DONE]"))
///     .target("model-a")
///     .first_content(Duration::from_secs(5))
///     .total(Duration::from_secs(300))
///     .build()?;
/// # Ok::<(), failsoft_core::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct StreamLayer<P> {
    protocol: P,
    settings: Settings,
}

/// What is copied for each call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) target: Option<Arc<str>>,
    pub(crate) limits: Limits,
    pub(crate) until: Until,
}

impl<P> StreamLayer<P> {
    /// The layer with the defaults: held until the first content within 64 events and 256 KiB; first content within
    /// 10 s, silence of 30 s at most, no limit in total.
    #[must_use]
    pub fn new(protocol: P) -> Self {
        Self { protocol, settings: Settings::default() }
    }

    /// A layer with other settings.
    pub fn builder(protocol: P) -> StreamLayerBuilder<P> {
        StreamLayerBuilder { layer: Self::new(protocol), beyond: None }
    }
}

impl<S, P: Clone> Layer<S> for StreamLayer<P> {
    type Service = Streamed<S, P>;

    fn layer(&self, inner: S) -> Streamed<S, P> {
        Streamed::new(inner, self.protocol.clone(), self.settings.clone())
    }
}

/// Builds a [`StreamLayer`].
#[derive(Clone, Debug)]
#[must_use = "nothing is built before `build`"]
pub struct StreamLayerBuilder<P> {
    layer: StreamLayer<P>,
    beyond: Option<Beyond>,
}

impl<P> StreamLayerBuilder<P> {
    /// The name of the target, for the faults that this layer originates. None by default.
    pub fn target(mut self, name: impl Into<Arc<str>>) -> Self {
        self.layer.settings.target = Some(name.into());
        self
    }

    /// The longest time from the call to the first content: name resolution, connecting and the head included.
    /// `None` is no limit; 10 s by default. Models that reason may think for 45 s.
    pub fn first_content(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.layer.settings.limits.first_content = limit.into();
        self
    }

    /// The longest silence of the upstream after the first content. Keepalives do not end a silence; text, reasoning
    /// and pieces of a tool call's arguments do, as the protocol's decoder tells. `None` is no limit; 30 s by
    /// default.
    pub fn idle(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.layer.settings.limits.idle = limit.into();
        self
    }

    /// The longest time from the call to the end of the body, whatever the consumer did meanwhile. `None`, the
    /// default, is no limit: a stream that flows is not ended.
    pub fn total(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.layer.settings.limits.total = limit.into();
        self
    }

    /// Holds until the first content, but hands the answer on without it at so many events, 64 by default, and at
    /// more than so many bytes, 256 KiB by default. With 0 events nothing but the head and the first piece is
    /// waited for.
    pub fn hold_limits(mut self, events: usize, bytes: usize) -> Self {
        self.layer.settings.until = Until::Content { events, bytes };
        self
    }

    /// Holds the whole answer, up to so many bytes: then a failure anywhere in it is a failure of the call. For
    /// answers that nobody watches being written, such as an agent's.
    pub fn hold_to_end(mut self, bytes: usize) -> Self {
        self.layer.settings.until = Until::End { bytes, beyond: Beyond::default() };
        self
    }

    /// What becomes of an answer that is longer than [`hold_to_end`](Self::hold_to_end) allows: it is handed on by
    /// default.
    pub fn beyond(mut self, policy: Beyond) -> Self {
        self.beyond = Some(policy);
        self
    }

    /// The layer.
    ///
    /// # Errors
    ///
    /// When a limit of time is zero, or [`beyond`](Self::beyond) is set on a layer that does not hold to the end.
    pub fn build(mut self) -> Result<StreamLayer<P>, ConfigError> {
        let Limits { first_content, idle, total } = self.layer.settings.limits;
        for (field, limit) in [("first_content", first_content), ("idle", idle), ("total", total)] {
            if limit == Some(Duration::ZERO) {
                return Err(ConfigError::new(
                    "StreamLayer",
                    field,
                    "0",
                    "more than 0, or `None` for no limit",
                ));
            }
        }
        match (self.beyond, &mut self.layer.settings.until) {
            (None, _) => {}
            (Some(policy), Until::End { beyond, .. }) => *beyond = policy,
            (Some(policy), Until::Content { .. }) => {
                let expected = "set only with `hold_to_end`";
                return Err(ConfigError::new("StreamLayer", "beyond", format_args!("{policy:?}"), expected));
            }
        }
        Ok(self.layer)
    }
}
