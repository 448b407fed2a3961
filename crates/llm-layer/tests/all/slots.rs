//! What an answer counts for in the call that is current: a budget outside settles by it.

use std::{
    collections::VecDeque,
    convert::Infallible,
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use failsoft_core::{Call, Usage};
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use llm_layer::{LlmLayer, Provider};
use tower::{Layer as _, ServiceExt as _, service_fn};

/// An event with 40 bytes of text.
const TEXT: &str = r#"{"choices":[{"delta":{"content":"0123456789012345678901234567890123456789"}}]}"#;
const STOP: &str = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
const USAGE: &str = r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}"#;
const DONE: &str = "[DONE]";

/// What Anthropic says at the beginning: the prompt, and a first token.
const BEGINS: &str = r#"{"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":1}}}"#;
const DELTA: &str = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"0123456789012345678901234567890123456789"}}"#;

/// One event after the other, and then an end, or an error.
struct Events(VecDeque<&'static str>, bool);

impl Body for Events {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let breaks = self.1;
        Poll::Ready(match self.0.pop_front() {
            Some(event) => Some(Ok(Frame::data(format!("data: {event}\n\n").into()))),
            None if breaks => Some(Err(io::ErrorKind::ConnectionReset.into())),
            None => None,
        })
    }
}

/// What becomes of the stream.
#[derive(Clone, Copy, PartialEq)]
enum Read {
    All,
    /// It breaks after the last event.
    Broken,
    /// Whoever called hangs up after so many events.
    Some(usize),
}

async fn used(provider: Provider, events: &[&'static str], read: Read) -> Usage {
    let events: VecDeque<_> = events.iter().copied().collect();
    let target = service_fn(move |_: Request<String>| {
        let body = Events(events.clone(), read == Read::Broken);
        let response = Response::builder().header("content-type", "text/event-stream").body(body).unwrap();
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let request = Request::post("/v1").body(r#"{"messages":[],"stream":true}"#.to_owned()).unwrap();
    let call = Call::begin();
    let response = call.scope(LlmLayer::new(provider).layer(target).oneshot(request)).await.unwrap();
    let mut body = response.into_body();
    match read {
        Read::All | Read::Broken => assert_eq!(body.collect().await.is_err(), read == Read::Broken),
        Read::Some(frames) => {
            for _ in 0..frames {
                body.frame().await.unwrap().unwrap();
            }
            drop(body);
        }
    }
    call.usage()
}

fn usage(input: Option<u64>, output: Option<u64>) -> Usage {
    Usage { input, output, ..Usage::default() }
}

const CHAT: Provider = Provider::OpenAiCompatible;

// G97, V-H4: usage comes with the last chunk, and whoever hangs up before it paid nothing.
#[tokio::test]
async fn of_a_stream_that_is_dropped_or_breaks_what_came_counts_by_its_bytes() {
    let stream = [TEXT, TEXT, TEXT, STOP, USAGE, DONE];
    assert_eq!(used(CHAT, &stream, Read::Some(1)).await, usage(None, Some(10)));
    assert_eq!(used(CHAT, &stream, Read::Some(2)).await, usage(None, Some(20)));
    assert_eq!(used(CHAT, &stream, Read::Some(4)).await, usage(None, Some(30)));
    assert_eq!(used(CHAT, &[TEXT, TEXT], Read::Broken).await, usage(None, Some(20)));
}

#[tokio::test]
async fn what_was_told_counts_where_it_is_more_or_where_the_stream_came_to_its_end() {
    assert_eq!(used(CHAT, &[TEXT, STOP, USAGE, DONE], Read::All).await, usage(Some(7), Some(3)));
    let many = r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":300}}"#;
    assert_eq!(used(CHAT, &[TEXT, many, TEXT], Read::Some(2)).await, usage(Some(7), Some(300)));
    // G97 of Anthropic: its first event tells of one token.
    assert_eq!(
        used(Provider::Anthropic, &[BEGINS, DELTA, DELTA], Read::Broken).await,
        usage(Some(9), Some(20))
    );
}

// V-H6: an estimate is whoever stands outside's to make, who knows the request.
#[tokio::test]
async fn of_a_stream_that_came_to_its_end_without_a_word_of_usage_nothing_is_said() {
    assert_eq!(used(CHAT, &[TEXT, STOP, DONE], Read::All).await, Usage::default());
    assert_eq!(used(CHAT, &[TEXT, STOP], Read::All).await, Usage::default());
}
