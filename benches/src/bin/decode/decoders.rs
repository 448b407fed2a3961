//! The decoders, brought to one shape: pieces of a stream in, the data of each event out.

use std::{borrow::Cow, convert::Infallible};

use bytes::Bytes;
use failsoft_core::Insight;
use futures_util::{FutureExt, Stream, StreamExt};
use llm_layer::{LlmDecoder, LlmProtocol, Provider};
use serde::Deserialize;
use stream_layer::{Decoder, Mode, Protocol, Reader, SseFramer, Until};

/// Who decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    StreamLayer,
    EventsourceStream,
    SseStream,
    Sseer,
}

pub(crate) const ALL: [Who; 4] = [Who::StreamLayer, Who::EventsourceStream, Who::SseStream, Who::Sseer];

impl Who {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::StreamLayer => "stream-layer",
            Self::EventsourceStream => "eventsource-stream 0.2.3",
            Self::SseStream => "sse-stream 0.3.0",
            Self::Sseer => "sseer 0.3.1",
        }
    }

    /// Gives the data of each event, as text; stops at an error. Events without data are none.
    pub(crate) fn decode(self, pieces: &[Bytes], mut each: impl FnMut(&str)) {
        match self {
            Self::StreamLayer => {
                let mut framer = SseFramer::default();
                for piece in pieces {
                    let mut events = framer.feed(piece);
                    while let Some(Ok(event)) = events.next_event() {
                        if event.data().is_some() {
                            each(&event.text());
                        }
                    }
                }
                if let Some(event) = framer.finish().filter(|event| event.data().is_some()) {
                    each(&event.text());
                }
            }
            Self::EventsourceStream => {
                run(eventsource_stream::EventStream::new(stream(pieces)), |event| each(&event.data));
            }
            Self::SseStream => run(sse_stream::SseByteStream::new(stream(pieces)), |event| {
                if let Some(data) = &event.data {
                    each(data);
                }
            }),
            Self::Sseer => run(sseer::EventStream::new(stream(pieces)), |event| each(&event.data)),
        }
    }
}

fn stream(pieces: &[Bytes]) -> impl Stream<Item = Result<Bytes, Infallible>> + Unpin {
    futures_util::stream::iter(pieces.iter().cloned().map(Ok))
}

fn run<T, E>(mut stream: impl Stream<Item = Result<T, E>> + Unpin, mut each: impl FnMut(T)) {
    // Pieces are always there.
    while let Some(Some(Ok(event))) = stream.next().now_or_never() {
        each(event);
    }
}

/// What users of a decoder do with the data of an event: the least of it that makes text of an answer.
pub(crate) struct Text {
    pub(crate) text: String,
    provider: Provider,
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: Vec<Choice<'a>>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: Delta<'a>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Option<Cow<'a, str>>,
}

/// An event of Anthropic's.
#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow)]
    delta: BlockDelta<'a>,
}

#[derive(Deserialize)]
struct BlockDelta<'a> {
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
}

/// An event of OpenAI's responses.
#[derive(Deserialize)]
struct Piece<'a> {
    #[serde(borrow)]
    delta: Cow<'a, str>,
}

impl Text {
    pub(crate) const fn new(provider: Provider) -> Self {
        Self { text: String::new(), provider }
    }

    pub(crate) fn add(&mut self, data: &str) {
        match self.provider {
            Provider::Anthropic => {
                let Ok(Block { delta }) = serde_json::from_str(data) else { return };
                self.text.push_str(&delta.text.unwrap_or_default());
            }
            Provider::OpenAiResponses => {
                let Ok(Piece { delta }) = serde_json::from_str(data) else { return };
                self.text.push_str(&delta);
            }
            _ => {
                let Ok(chunk) = serde_json::from_str::<Chunk<'_>>(data) else { return };
                for content in chunk.choices.into_iter().filter_map(|choice| choice.delta.content) {
                    self.text.push_str(&content);
                }
            }
        }
    }
}

/// Decodes with an insight: text, usage, finish reason, verdict. Gives the length of the text.
pub(crate) fn insight((mut decoder, insight): (LlmDecoder, Insight), pieces: &[Bytes]) -> usize {
    for piece in pieces {
        if decoder.feed(piece).is_over() {
            break;
        }
    }
    drop(decoder);
    insight.read(|facts| facts.text.as_ref().map_or(0, |text| text.len()))
}

/// What reads the answer to one request.
pub(crate) fn llm(provider: Provider) -> Option<(LlmDecoder, Insight)> {
    let request = http::Request::new(r#"{"messages": [], "stream": true}"#);
    let head = http::Response::builder().header("content-type", "text/event-stream").body(()).ok()?;
    let (mut parts, ()) = head.into_parts();
    let reader = LlmProtocol::new(provider).request(&request);
    let Mode::Hold { decoder, .. } = reader.head(&mut parts, Until::default()) else { return None };
    Some((decoder, Insight::of(&parts.extensions)?.clone()))
}
