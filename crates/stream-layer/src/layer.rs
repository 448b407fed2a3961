//! [`StreamLayer`] and its builder.

use std::{sync::Arc, time::Duration};

use failsoft_core::ConfigError;
use tower_layer::Layer;

use crate::{Beyond, Limits, Streamed, Until, events::Witness};

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
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) witness: Witness,
    pub(crate) limits: Limits,
    pub(crate) until: Until,
    pub(crate) cold_grace: f64,
}

impl Default for Settings {
    fn default() -> Self {
        let (witness, limits, until) = Default::default();
        Self { witness, limits, until, cold_grace: 2.0 }
    }
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
        StreamLayerBuilder { layer: Self::new(protocol), beyond: None, soft_set: [false; 2] }
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
    /// Which soft limits were chosen: only those can contradict a hard one.
    soft_set: [bool; 2],
}

impl<P> StreamLayerBuilder<P> {
    /// The name of the target, for the faults that this layer originates and for its metrics. None by default.
    pub fn target(mut self, name: impl Into<Arc<str>>) -> Self {
        self.layer.settings.witness = Witness::new(Some(name.into()));
        self
    }

    /// The longest time from the call to the first content: name resolution, connecting and the head included.
    /// `None` is no limit; 10 s by default. Models that reason may think for 45 s.
    pub fn first_content(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.layer.settings.limits.first_content = limit.into();
        self
    }

    /// A soft limit on the same time: a first content that comes later is told in
    /// [`Facts::slow`](failsoft_core::Facts::slow), in an event and in the metrics, and is no failure. `None` is no limit;
    /// 4 s by default. Must be below [`first_content`](Self::first_content); where the default is not, it never shows.
    pub fn soft_first_content(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.layer.settings.limits.soft_first_content = limit.into();
        self.soft_set[0] = true;
        self
    }

    /// How many times [`first_content`](Self::first_content) and its soft limit a call has that is marked
    /// [`Mark::Cold`](failsoft_core::Mark::Cold): one on a route that took over from another, which fallback-layer
    /// marks. What a prompt cache saved on the first route has to be computed anew on this one. From 1 to 100; 2 by
    /// default, 1 is no grace.
    pub const fn cold_grace(mut self, factor: f64) -> Self {
        self.layer.settings.cold_grace = factor;
        self
    }

    /// The longest silence of the upstream after the first content. Keepalives do not end a silence; text, reasoning
    /// and pieces of a tool call's arguments do, as the protocol's decoder tells. `None` is no limit; 30 s by
    /// default.
    pub fn idle(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.layer.settings.limits.idle = limit.into();
        self
    }

    /// A soft limit on the same silence: a longer one, once it has ended, is told in
    /// [`Facts::slow`](failsoft_core::Facts::slow), in an event and in the metrics, and is no failure. `None` is no limit;
    /// 0.5 s by default. Must be below [`idle`](Self::idle). It ends when the consumer asks and gets something, so one
    /// that asks late makes it look longer.
    pub fn soft_idle(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.layer.settings.limits.soft_idle = limit.into();
        self.soft_set[1] = true;
        self
    }

    /// The longest time from the call to the end of the body, whatever the consumer did meanwhile. `None`, the
    /// default, is no limit: a stream that flows is not ended.
    pub fn total(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.layer.settings.limits.total = limit.into();
        self
    }

    /// Holds until the first content, but hands the answer on without it at so many events, 64 by default, and at
    /// more than so many bytes, 256 KiB by default. Which events count the protocol says; [`AnyEvent`](crate::AnyEvent)'s
    /// keepalives count as bytes only. With 0 events nothing but the head and the first piece is waited for.
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
    /// When a limit of time is zero, a soft limit that was set is not below its hard one, `cold_grace` is out of its range,
    /// or [`beyond`](Self::beyond) is set on a layer that does not hold to the end.
    pub fn build(mut self) -> Result<StreamLayer<P>, ConfigError> {
        let refuse = |field, value: &dyn std::fmt::Display, expected: &'static str| {
            Err(ConfigError::new("StreamLayer", field, value, expected))
        };
        let Limits { first_content, soft_first_content, idle, soft_idle, total } = self.layer.settings.limits;
        for (field, limit) in [
            ("first_content", first_content),
            ("soft_first_content", soft_first_content),
            ("idle", idle),
            ("soft_idle", soft_idle),
            ("total", total),
        ] {
            if limit == Some(Duration::ZERO) {
                return refuse(field, &"0", "more than 0, or `None` for no limit");
            }
        }
        for (field, soft, hard, set) in [
            ("soft_first_content", soft_first_content, first_content, self.soft_set[0]),
            ("soft_idle", soft_idle, idle, self.soft_set[1]),
        ] {
            if let (Some(soft), Some(hard), true) = (soft, hard, set) {
                if soft >= hard {
                    return refuse(
                        field,
                        &format_args!("{soft:?}"),
                        "below the hard limit, which fails first",
                    );
                }
            }
        }
        let grace = self.layer.settings.cold_grace;
        if !(1.0..=100.0).contains(&grace) {
            return refuse("cold_grace", &grace, "from 1 to 100");
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

failsoft_core::unbuilt!([P] StreamLayerBuilder<P>);
