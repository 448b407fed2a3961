//! The decoders of what is not sent as server-sent events: lines of JSON, the elements of a JSON array, AWS's messages.

use aws_smithy_eventstream::frame::{DecodedFrame, MessageFrameDecoder};
use bytes::{Bytes, BytesMut};
use http_streams_core::{JsonArrayCodec, JsonNewLineCodec, StreamError};
use llm_layer::Provider;
use serde::Deserialize;
use stream_layer::{ArrayFramer, EventStreamFramer, LineFramer, MAX_EVENT};
use tokio_util::codec::{Decoder, LinesCodec};

use crate::{samples::Framing, text::Text};

/// Who decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Native {
    StreamLayer,
    TokioUtil,
    HttpStreams,
    AwsSmithy,
}

impl Native {
    /// Those who decode it.
    pub(crate) const fn of(framing: Framing) -> &'static [Self] {
        match framing {
            Framing::Sse => &[],
            Framing::Lines => &[Self::StreamLayer, Self::TokioUtil, Self::HttpStreams],
            Framing::Array => &[Self::StreamLayer, Self::HttpStreams],
            Framing::Binary => &[Self::StreamLayer, Self::AwsSmithy],
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::StreamLayer => "stream-layer",
            Self::TokioUtil => "tokio-util 0.7.20",
            Self::HttpStreams => "http-streams-core 0.3.0",
            Self::AwsSmithy => "aws-smithy-eventstream 0.61.6",
        }
    }

    /// Whether it gives events as they are: http-streams-core gives what serde_json makes of them.
    pub(crate) fn gives_events(self) -> bool {
        self != Self::HttpStreams
    }

    /// Gives the text in a stream.
    pub(crate) fn text(self, provider: Provider, framing: Framing, pieces: &[Bytes]) -> String {
        let mut text = Text::new(provider);
        match (self, framing) {
            (Self::HttpStreams, Framing::Lines) => {
                let codec = JsonNewLineCodec::<Line>::new_with_max_length(MAX_EVENT);
                run(codec, pieces, |line: Result<Line, StreamError>| {
                    let content = line.ok().and_then(|line| line.message.content);
                    text.text.push_str(&content.unwrap_or_default());
                });
            }
            (Self::HttpStreams, _) => {
                let codec = JsonArrayCodec::<Chunk>::new_with_max_length(MAX_EVENT);
                run(codec, pieces, |chunk: Result<Chunk, StreamError>| {
                    let candidates = chunk.into_iter().flat_map(|chunk| chunk.candidates);
                    let parts = candidates
                        .filter_map(|candidate| candidate.content)
                        .flat_map(|content| content.parts);
                    parts.for_each(|part| text.text.push_str(&part.text.unwrap_or_default()));
                });
            }
            _ => self.decode(framing, pieces, |data| text.add(data)),
        }
        text.text
    }

    /// Gives the data of each event, as text; stops at an error.
    pub(crate) fn decode(self, framing: Framing, pieces: &[Bytes], mut each: impl FnMut(&str)) {
        let mut each = |data: &[u8]| each(std::str::from_utf8(data).unwrap_or_default());
        match (self, framing) {
            (Self::StreamLayer, Framing::Lines) => {
                let mut framer = LineFramer::default();
                for piece in pieces {
                    let mut lines = framer.feed(piece);
                    while let Some(Ok(line)) = lines.next_line() {
                        each(line);
                    }
                }
            }
            (Self::StreamLayer, Framing::Array) => {
                let mut framer = ArrayFramer::default();
                for piece in pieces {
                    let mut elements = framer.feed(piece);
                    while let Some(Ok(element)) = elements.next_element() {
                        each(element);
                    }
                }
            }
            (Self::StreamLayer, _) => {
                let mut framer = EventStreamFramer::default();
                for piece in pieces {
                    let mut messages = framer.feed(piece);
                    while let Some(Ok(message)) = messages.next_message() {
                        each(message.payload());
                    }
                }
            }
            (Self::AwsSmithy, _) => {
                let (mut decoder, mut buffer) = (MessageFrameDecoder::new(), BytesMut::new());
                for piece in pieces {
                    buffer.extend_from_slice(piece);
                    while let Ok(DecodedFrame::Complete(message)) = decoder.decode_frame(&mut buffer) {
                        each(message.payload());
                    }
                }
            }
            _ => run(LinesCodec::new(), pieces, |line: String| each(line.as_bytes())),
        }
    }
}

fn run<D: Decoder>(mut decoder: D, pieces: &[Bytes], mut each: impl FnMut(D::Item)) {
    let mut buffer = BytesMut::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        while let Ok(Some(item)) = decoder.decode(&mut buffer) {
            each(item);
        }
    }
    while let Ok(Some(item)) = decoder.decode_eof(&mut buffer) {
        each(item);
    }
}

/// A line of Ollama's. What a codec gives borrows nothing.
#[derive(Deserialize)]
struct Line {
    message: Message,
}

#[derive(Deserialize)]
struct Message {
    content: Option<String>,
}

/// A chunk of Gemini's.
#[derive(Deserialize)]
struct Chunk {
    candidates: Vec<Candidate>,
}

#[derive(Deserialize)]
struct Candidate {
    content: Option<Content>,
}

#[derive(Deserialize)]
struct Content {
    parts: Vec<Part>,
}

#[derive(Deserialize)]
struct Part {
    text: Option<String>,
}
