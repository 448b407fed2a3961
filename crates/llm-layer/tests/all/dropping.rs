//! A caller may drop the call, or the response, after any poll and on any thread: nothing of the upstream stays, and what was
//! learnt is what had come.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    thread,
};

use crate::common::native::{Ask, BINARY, LINES, converse, gemini};
use bytes::Bytes;
use failsoft_core::Insight;
use http::{Request, Response};
use http_body::{Body, Frame};
use llm_layer::{LlmLayer, Provider};
use tower::{Layer as _, ServiceExt as _, service_fn};

const CHAT: Ask = Ask {
    provider: Provider::OpenAiCompatible,
    path: "/v1/chat/completions",
    body: r#"{"messages":[],"stream":true}"#,
    kind: "text/event-stream",
};

/// Gives a piece at every other poll, never ends, and counts how many of its kind are alive.
struct Pieces {
    left: std::vec::IntoIter<Bytes>,
    is_slow: bool,
    alive: Arc<AtomicUsize>,
}

impl Drop for Pieces {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.is_slow = !self.is_slow;
        if self.is_slow {
            return Poll::Pending;
        }
        self.left.next().map_or(Poll::Pending, |bytes| Poll::Ready(Some(Ok(Frame::data(bytes)))))
    }
}

/// Streams whose events are like each other, in every framing; their text is the alphabet.
fn streams() -> Vec<(Ask, Vec<u8>)> {
    let letters = ('a'..='z').map(String::from);
    let chat = letters.clone().map(|a| {
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{a}\"}}}}],\"usage\":{{\"completion_tokens\":{}}}}}\n\n", a.as_bytes()[0])
    });
    let chunks: Vec<String> = letters
        .clone()
        .map(|a| format!(r#"{{"candidates":[{{"content":{{"parts":[{{"text":"{a}"}}]}}}}]}}"#))
        .collect();
    let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
    let lines = letters.clone().map(|a| format!("{{\"message\":{{\"content\":\"{a}\"}},\"done\":false}}\n"));
    let deltas: Vec<String> =
        letters.map(|a| format!(r#"{{"contentBlockIndex":0,"delta":{{"text":"{a}"}}}}"#)).collect();
    let deltas: Vec<_> = deltas.iter().map(|delta| ("contentBlockDelta", delta.as_str())).collect();
    let mut streams = vec![
        (CHAT, chat.collect::<String>().into_bytes()),
        (LINES, lines.collect::<String>().into_bytes()),
        (BINARY, converse(&deltas)),
    ];
    // Without an end, which would drop the upstream before anybody else can.
    let open = |stream: Vec<u8>| stream.strip_suffix(b"\n]\n").map(<[u8]>::to_vec).unwrap_or(stream);
    streams.extend(gemini(&chunks).map(|(ask, stream)| (ask, open(stream))));
    streams
}

/// Polls so many times, each time on another thread, and drops on yet another; gives how many upstream bodies were alive before
/// that and after it, and what was learnt.
fn polled(ask: Ask, pieces: Vec<Bytes>, polls: usize) -> (usize, usize, Option<Insight>) {
    let alive = Arc::new(AtomicUsize::new(0));
    let upstream = Arc::clone(&alive);
    let target = service_fn(move |_: Request<String>| {
        upstream.fetch_add(1, Ordering::SeqCst);
        let body = Pieces { left: pieces.clone().into_iter(), is_slow: false, alive: Arc::clone(&upstream) };
        let response = Response::builder().header("content-type", ask.kind).body(body).unwrap();
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let request = Request::post(ask.path).body(ask.body.to_owned()).unwrap();
    let mut call = Some(Box::pin(LlmLayer::new(ask.provider).layer(target).oneshot(request)));
    let (mut response, mut insight) = (None, None);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut poll = || {
        let _entered = runtime.enter();
        let mut cx = Context::from_waker(Waker::noop());
        if let Some(running) = &mut call {
            if let Poll::Ready(answer) = running.as_mut().poll(&mut cx) {
                let answer = answer.unwrap();
                insight = Insight::of(answer.extensions()).cloned();
                (call, response) = (None, Some(answer));
            }
        } else if let Some(response) = &mut response {
            let _ = Pin::new(Response::body_mut(response)).poll_frame(&mut cx);
        }
    };
    for _ in 0..polls {
        thread::scope(|scope| scope.spawn(&mut poll).join()).unwrap();
    }
    let before = alive.load(Ordering::SeqCst);
    thread::scope(|scope| scope.spawn(move || drop((call, response))).join()).unwrap();
    (before, alive.load(Ordering::SeqCst), insight)
}

#[test]
fn a_call_or_a_response_dropped_after_any_poll_leaves_no_upstream_body() {
    let alphabet = String::from_iter('a'..='z');
    for (ask, stream) in streams() {
        for size in [stream.len(), 150, 37] {
            let pieces: Vec<Bytes> = stream.chunks(size).map(Bytes::copy_from_slice).collect();
            let mut longest = 0;
            for polls in 0..=12 {
                let (before, after, insight) = polled(ask, pieces.clone(), polls);
                assert_eq!((before, after), (usize::from(polls > 0), 0), "{} {size} {polls}", ask.kind);
                let text = insight.and_then(|insight| insight.facts().text).unwrap_or_default();
                assert!(
                    alphabet.starts_with(&*text) && text.len() >= longest,
                    "{} {size} {polls}: {text}",
                    ask.kind
                );
                longest = text.len();
            }
            assert!(longest > 0, "{} {size}", ask.kind);
        }
    }
}
