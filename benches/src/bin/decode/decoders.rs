//! The decoders of server-sent events, brought to one shape: pieces of a stream in, the data of each event out. And ours with
//! everything that goes into the insight.

use std::convert::Infallible;

use bytes::Bytes;
use failsoft_core::Insight;
use futures_util::{FutureExt, Stream, StreamExt};
use llm_layer::{LlmDecoder, LlmProtocol};
use stream_layer::{Decoder, Mode, Protocol, Reader, SseFramer, Until};

use crate::samples::Sample;

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
pub(crate) fn llm(sample: &Sample) -> Option<(LlmDecoder, Insight)> {
    let request = http::Request::post(sample.path).body(r#"{"messages": [], "stream": true}"#).ok()?;
    let head = http::Response::builder().header("content-type", sample.framing.media_type()).body(()).ok()?;
    let (mut parts, ()) = head.into_parts();
    let reader = LlmProtocol::new(sample.provider).request(&request);
    let Mode::Hold { decoder, .. } = reader.head(&mut parts, Until::default()) else { return None };
    Some((decoder, Insight::of(&parts.extensions)?.clone()))
}
