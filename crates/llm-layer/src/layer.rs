//! [`LlmLayer`] and its builder.
//!
//! ```
//! use std::time::Duration;
//! use llm_layer::{LlmLayer, Provider};
//!
//! # fn main() -> Result<(), failsoft_core::ConfigError> {
//! // For a person who watches the answer being written.
//! let chat = LlmLayer::builder()
//!     .provider(Provider::OpenAiCompatible)
//!     .name("model-a")
//!     .first_content(Duration::from_secs(4))
//!     .build()?;
//! // For an agent, which needs all of it or none.
//! let agent = LlmLayer::builder().name("model-a").hold_to_end(4 << 20).build()?;
//! # let _ = (chat, agent);
//! # Ok(())
//! # }
//! ```

use std::{sync::Arc, time::Duration};

use failsoft_core::ConfigError;
use stream_layer::{Beyond, StreamLayer, StreamLayerBuilder};
use tower_layer::Layer;

use crate::{Llm, LlmProtocol, Provider, protocol::Config};

/// The default of [`LlmLayerBuilder::max_body`]: 8 MiB. The longest answers of today's models, 128 000 tokens of about
/// four bytes, take a sixteenth of it; what is left is for log probabilities, sound and pictures.
pub const DEFAULT_MAX_BODY: usize = 8 << 20;

/// Reads what a model endpoint really answered, whole or streamed, and leaves it on the response as an
/// [`Insight`](failsoft_core::Insight).
///
/// A streamed answer is held until its first content, so that what goes wrong before it is the failure of a call; see
/// [`stream_layer`], on which this layer stands.
#[derive(Clone, Debug)]
pub struct LlmLayer {
    stream: StreamLayer<LlmProtocol>,
    /// Usage is asked for in requests of this dialect.
    asks_for_usage: Option<Provider>,
}

impl LlmLayer {
    /// A layer for a dialect, with the defaults of the [builder](Self::builder).
    #[must_use]
    pub fn new(provider: Provider) -> Self {
        Self { stream: StreamLayer::new(LlmProtocol::new(provider)), asks_for_usage: None }
    }

    /// Sets a layer up.
    pub fn builder() -> LlmLayerBuilder {
        LlmLayerBuilder {
            provider: Provider::default(),
            max_body: DEFAULT_MAX_BODY,
            name: None,
            include_usage: false,
            timing: Timing::default(),
        }
    }
}

impl<S> Layer<S> for LlmLayer {
    type Service = Llm<S>;

    fn layer(&self, inner: S) -> Llm<S> {
        Llm::new(self.stream.layer(inner), self.asks_for_usage)
    }
}

/// Sets an [`LlmLayer`] up.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it builds"]
pub struct LlmLayerBuilder {
    provider: Provider,
    max_body: usize,
    name: Option<Arc<str>>,
    include_usage: bool,
    timing: Timing,
}

/// What is said to the stream-layer inside, where something was said.
#[derive(Clone, Copy, Debug, Default)]
struct Timing {
    thinks_for: Option<Duration>,
    first_content: Option<Option<Duration>>,
    idle: Option<Option<Duration>>,
    soft_first_content: Option<Option<Duration>>,
    soft_idle: Option<Option<Duration>>,
    cold_grace: Option<f64>,
    total: Option<Option<Duration>>,
    hold: Option<Hold>,
    beyond: Option<Beyond>,
}

#[derive(Clone, Copy, Debug)]
enum Hold {
    Content { events: usize, bytes: usize },
    End { bytes: usize },
}

impl LlmLayerBuilder {
    /// The dialect that the target speaks. Default: [`Provider::Auto`], it is recognised.
    pub const fn provider(mut self, provider: Provider) -> Self {
        self.provider = provider;
        self
    }

    /// Holds and judges whole bodies of up to so many bytes; at least 1. A longer one passes as it is, judged by status
    /// and headers alone. Of a streamed answer, text and tool calls are kept up to so many bytes; of a longer one
    /// only the end is judged. Default: [`DEFAULT_MAX_BODY`].
    ///
    /// So many bytes are held for each call that is being read; while a body is judged, they are held once more, and
    /// its text and tool calls with them.
    pub const fn max_body(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self
    }

    /// Names the target in the errors that the layer originates. Default: no name.
    pub fn name(mut self, target: impl Into<Arc<str>>) -> Self {
        self.name = Some(target.into());
        self
    }

    /// Asks streamed chat completions for what they used: adds `stream_options.include_usage` to the request where it says
    /// nothing about that, and corrects its `content-length`. Where it says something, that stays; other requests, and
    /// dialects that tell their usage unasked, are left alone. The body must lie in memory, as for
    /// [`Offered::of`](crate::Offered::of), but not be a `&'static str`; a request that is signed, or carries a digest of its
    /// body, is left alone, so a layer that signs must be inside. Default: no, because some servers refuse a field that they
    /// do not know.
    pub const fn include_usage(mut self, yes: bool) -> Self {
        self.include_usage = yes;
        self
    }

    /// The longest time from the call to the first content: connecting, the head, and what the model thinks unseen.
    /// `None` is no limit. Default: 10 s for requests that ask for a stream, none for others. Once set, it holds for
    /// every request: the first content of a whole answer is the first byte of its body. For models that reason in
    /// silence there is [`thinks_for`](Self::thinks_for), which leaves whole answers alone.
    pub fn first_content(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.timing.first_content = Some(limit.into());
        self
    }

    /// The longest silence of the target after the first content. Text, reasoning and pieces of a tool call's arguments
    /// end a silence; keepalives do not. `None` is no limit. Default: 30 s, and none for what is known to be no chat and
    /// [passes unread](crate#what-is-judged-and-what-passes), such as notifications; once set, it holds for that too.
    pub fn idle(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.timing.idle = Some(limit.into());
        self
    }

    /// For a model that thinks in silence: so long instead of 10 s may its stream take to the first content, and instead of
    /// 30 s be silent after it; a first content after three quarters of it is told as slow. What has no such limit by
    /// default, whole answers first of all, still has none. [`first_content`](Self::first_content) and the like, where they
    /// are set too, take precedence. Default: not set. Reasoning models are silent for 45 s and well: 60 s suit them.
    pub const fn thinks_for(mut self, limit: Duration) -> Self {
        self.timing.thinks_for = Some(limit);
        self
    }

    /// A soft limit on the time to the first content: a later one is told in
    /// [`Facts::slow`](failsoft_core::Facts::slow), and is no failure. `None` is no limit; 4 s by default, for requests
    /// that ask for a stream. Must be below [`first_content`](Self::first_content).
    pub fn soft_first_content(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.timing.soft_first_content = Some(limit.into());
        self
    }

    /// A soft limit on the silence of the target after its first content, told in the same way. `None` is no limit; 0.5 s
    /// by default. Must be below [`idle`](Self::idle).
    pub fn soft_idle(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.timing.soft_idle = Some(limit.into());
        self
    }

    /// How many times the time for the first content a call has on a route that took over from another: its prompt cache is
    /// cold. From 1 to 100; 2 by default. Such calls are marked [`Mark::Cold`](failsoft_core::Mark::Cold), by
    /// fallback-layer.
    pub const fn cold_grace(mut self, factor: f64) -> Self {
        self.timing.cold_grace = Some(factor);
        self
    }

    /// The longest time from the call to the end of the body. `None` is no limit, and the default: an answer that
    /// flows is not ended.
    pub fn total(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.timing.total = Some(limit.into());
        self
    }

    /// Holds a stream until its first content, but hands it on without after so many events, 64 by default, or more
    /// than so many bytes, 256 KiB by default. Keepalives count as bytes only. Undoes
    /// [`hold_to_end`](Self::hold_to_end).
    pub const fn hold_limits(mut self, events: usize, bytes: usize) -> Self {
        self.timing.hold = Some(Hold::Content { events, bytes });
        self
    }

    /// Holds a stream to its end, up to so many bytes: then a failure anywhere in it is the failure of a call, and what is
    /// wrong with the answer is known before anyone sees it. For answers that nobody watches being written, such as an
    /// agent's.
    pub const fn hold_to_end(mut self, bytes: usize) -> Self {
        self.timing.hold = Some(Hold::End { bytes });
        self
    }

    /// What becomes of a stream that is longer than [`hold_to_end`](Self::hold_to_end) allows. Default:
    /// [`Beyond::Commit`], it is handed on.
    pub const fn beyond(mut self, policy: Beyond) -> Self {
        self.timing.beyond = Some(policy);
        self
    }

    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// When `max_body` or a limit of time is 0, a soft limit that was set is not below its hard one, `cold_grace` is out of
    /// its range, the name is blank, or [`beyond`](Self::beyond) is set on a layer that does not hold to the end.
    pub fn build(self) -> Result<LlmLayer, ConfigError> {
        const LAYER: &str = "LlmLayer";
        if self.max_body == 0 {
            return Err(ConfigError::new(LAYER, "max_body", 0, "at least 1 byte"));
        }
        if self.name.as_deref().is_some_and(|name| name.trim().is_empty()) {
            return Err(ConfigError::new(LAYER, "name", "blank", "a name"));
        }
        if self.timing.thinks_for == Some(Duration::ZERO) {
            return Err(ConfigError::new(LAYER, "thinks_for", 0, "more than 0"));
        }
        let Self { provider, max_body, name, include_usage, timing } = self;
        let limits_whole_answers = timing.first_content.is_some();
        let limits_silence = timing.idle.is_some();
        let config = Config { provider, max_body, name: name.clone(), limits_whole_answers, limits_silence };
        let mut stream = timing.apply(StreamLayer::builder(LlmProtocol::with(config)));
        if let Some(name) = name {
            stream = stream.target(name);
        }
        let built = stream.build();
        let stream =
            built.map_err(|err| ConfigError::new(LAYER, err.field(), err.value(), err.expected()))?;
        Ok(LlmLayer { stream, asks_for_usage: include_usage.then_some(provider) })
    }
}

impl Timing {
    fn apply<P>(self, mut stream: StreamLayerBuilder<P>) -> StreamLayerBuilder<P> {
        if let Some(limit) = self.thinks_for {
            stream = stream.first_content(limit).idle(limit);
            let soft = limit.saturating_sub(limit / 4);
            // A hard limit that is set may be the shorter one.
            if self.first_content.is_none() && soft < limit {
                stream = stream.soft_first_content(soft);
            }
        }
        if let Some(limit) = self.first_content {
            stream = stream.first_content(limit);
        }
        if let Some(limit) = self.soft_first_content {
            stream = stream.soft_first_content(limit);
        }
        if let Some(limit) = self.soft_idle {
            stream = stream.soft_idle(limit);
        }
        if let Some(factor) = self.cold_grace {
            stream = stream.cold_grace(factor);
        }
        if let Some(limit) = self.idle {
            stream = stream.idle(limit);
        }
        if let Some(limit) = self.total {
            stream = stream.total(limit);
        }
        match self.hold {
            Some(Hold::Content { events, bytes }) => stream = stream.hold_limits(events, bytes),
            Some(Hold::End { bytes }) => stream = stream.hold_to_end(bytes),
            None => {}
        }
        match self.beyond {
            Some(policy) => stream.beyond(policy),
            None => stream,
        }
    }
}

failsoft_core::unbuilt!([] LlmLayerBuilder);

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
        let err = LlmLayer::builder().idle(Duration::ZERO).build().unwrap_err();
        for (field, built) in [
            ("soft_first_content", LlmLayer::builder().soft_first_content(Duration::from_secs(10)).build()),
            ("soft_idle", LlmLayer::builder().soft_idle(Duration::ZERO).build()),
            ("cold_grace", LlmLayer::builder().cold_grace(0.5).build()),
            ("thinks_for", LlmLayer::builder().thinks_for(Duration::ZERO).build()),
        ] {
            assert_eq!(built.unwrap_err().field(), field);
        }
        assert_eq!((err.builder(), err.field()), ("LlmLayer", "idle"));
        assert_eq!(LlmLayer::builder().beyond(Beyond::Fail).build().unwrap_err().field(), "beyond");
        assert!(LlmLayer::builder().hold_to_end(1).beyond(Beyond::Fail).idle(None).build().is_ok());
        assert!(LlmLayer::builder().max_body(usize::MAX).name("a").build().is_ok());
        for limit in [Duration::MAX, Duration::from_nanos(1)] {
            assert!(LlmLayer::builder().thinks_for(limit).build().is_ok());
            assert!(
                LlmLayer::builder().thinks_for(limit).first_content(Duration::from_secs(1)).build().is_ok()
            );
        }
    }
}
