//! A small chat protocol, bodies that follow a script, and a breaker-like watcher.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use failsoft_core::{
    BoxError, ByResponse, Class, Classify, End, Fault, FaultDetails, GuardFn, Hint, Insight, SoftKind, Step,
    Verdict, Watch, verdict_of_body_error,
};
use http::{HeaderMap, response::Parts};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use stream_layer::{Decoder, Limits, Mode, Protocol, Reader, Seen, SseEvent, SseFramer, StreamLayer, Until};
use tokio::time::Sleep;
use tower::{Service, ServiceExt as _, service_fn};
use tower_layer::Layer;

/// Chat completions, as far as these tests need them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chat {
    /// Watches instead of holding.
    pub watch: bool,
}

impl<Req: ?Sized> Protocol<Req> for Chat {
    type Reader = Self;

    fn request(&self, _: &Req) -> Self {
        *self
    }
}

impl Reader for Chat {
    type Decoder = ChatDecoder;

    fn limits(&self, limits: Limits) -> Limits {
        limits
    }

    fn head(self, parts: &mut Parts, until: Until) -> Mode<ChatDecoder> {
        let decoder = ChatDecoder { framer: SseFramer::new(1 << 16), failed: !parts.status.is_success() };
        if decoder.failed {
            // An error response is judged as a whole and stays a response.
            return Mode::Hold { decoder, until: Until::End { bytes: 1 << 16, beyond: Default::default() } };
        }
        if self.watch { Mode::Watch(decoder) } else { Mode::Hold { decoder, until } }
    }
}

#[derive(Debug)]
pub struct ChatDecoder {
    framer: SseFramer,
    failed: bool,
}

fn read(event: SseEvent<'_>, seen: &mut Seen) {
    let text = event.text();
    if event.name() == b"error" {
        seen.fault = Some(Fault::new(Class::Overloaded, "chat").with_message("overloaded_error"));
    } else if text.starts_with("{\"error\"") {
        seen.fault = Some(Fault::new(Class::Transient, "chat"));
    } else if text.trim() == "[DONE]" {
        seen.end = Some(Verdict::SUCCESS);
    } else if text.trim() == "[LENGTH]" {
        seen.end = Some(Verdict::soft(SoftKind::Truncated));
    } else if text.contains("content") || text.contains("arguments") {
        seen.content = true;
    } else if text.contains("status") {
        seen.progress = true;
    }
}

impl Decoder for ChatDecoder {
    fn feed(&mut self, bytes: &Bytes) -> Seen {
        let mut seen = Seen::default();
        if self.failed {
            return seen;
        }
        let mut events = self.framer.feed(bytes);
        while let Some(event) = events.next_event() {
            match event {
                Ok(event) => {
                    seen.events += 1;
                    read(event, &mut seen);
                }
                Err(err) => seen.fault = Some(err.into()),
            }
            if seen.is_over() {
                break;
            }
        }
        seen
    }

    fn end(&mut self, end: End<'_>) -> Result<Option<Verdict>, Fault> {
        if matches!(end, End::Error(_)) {
            return Ok(None);
        }
        if self.failed {
            return Ok(Some(Verdict::of(Class::Quota)));
        }
        let mut seen = Seen::default();
        if let Some(event) = self.framer.finish() {
            read(event, &mut seen);
        }
        match (seen.fault, seen.end) {
            (Some(fault), _) => Err(fault),
            (None, end @ Some(_)) => Ok(end),
            (None, None) => {
                Err(Fault::with_verdict(Verdict::soft(SoftKind::Truncated).with_hint(Hint::Same), "chat"))
            }
        }
    }
}

pub const ROLE: &str = "data: {\"role\":\"assistant\"}\n\n";
pub const CONTENT: &str = "data: {\"content\":\"Grüezi\"}\n\n";
pub const ARGUMENTS: &str = "data: {\"arguments\":\"{\"}\n\n";
pub const PING: &str = ": ping\n\n";
pub const ERROR: &str = "data: {\"error\":{\"message\":\"x\",\"code\":502}}\n\n";
pub const ERROR_EVENT: &str = "event: error\ndata: {\"type\":\"error\"}\n\n";
pub const DONE: &str = "data: [DONE]\n\n";

/// One step of a body.
#[derive(Clone, Debug)]
pub enum Do {
    Send(Bytes),
    Wait(Duration),
    Fail,
    Trailers,
    Hang,
}

pub fn send(text: &str) -> Do {
    Do::Send(Bytes::copy_from_slice(text.as_bytes()))
}

pub fn wait(seconds: f64) -> Do {
    Do::Wait(Duration::from_secs_f64(seconds))
}

/// A body that follows a script, and counts how many of its kind are alive.
pub struct Script {
    steps: VecDeque<Do>,
    sleep: Option<Pin<Box<Sleep>>>,
    alive: Arc<AtomicUsize>,
}

impl Drop for Script {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Body for Script {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        loop {
            if let Some(sleep) = &mut self.sleep {
                std::task::ready!(sleep.as_mut().poll(cx));
                self.sleep = None;
            }
            return Poll::Ready(match self.steps.pop_front() {
                Some(Do::Send(bytes)) => Some(Ok(Frame::data(bytes))),
                Some(Do::Wait(time)) => {
                    self.sleep = Some(Box::pin(tokio::time::sleep(time)));
                    continue;
                }
                Some(Do::Fail) => Some(Err(std::io::ErrorKind::ConnectionReset.into())),
                Some(Do::Trailers) => Some(Ok(Frame::trailers(HeaderMap::new()))),
                Some(Do::Hang) => {
                    self.steps.push_front(Do::Hang);
                    return Poll::Pending;
                }
                None => None,
            });
        }
    }
}

/// An upstream that answers by a script.
#[derive(Clone, Debug, Default)]
pub struct Upstream {
    pub status: u16,
    pub before_head: Duration,
    pub steps: Vec<Do>,
    pub alive: Arc<AtomicUsize>,
}

impl Upstream {
    pub fn new(steps: impl IntoIterator<Item = Do>) -> Self {
        Self { status: 200, steps: steps.into_iter().collect(), ..Self::default() }
    }

    pub fn alive(&self) -> usize {
        self.alive.load(Ordering::SeqCst)
    }

    pub fn service(
        &self,
    ) -> impl Service<
        (),
        Response = http::Response<Script>,
        Error = Infallible,
        Future: Future<Output = Result<http::Response<Script>, Infallible>> + Send,
    > + Clone {
        let upstream = self.clone();
        service_fn(move |()| {
            let upstream = upstream.clone();
            async move {
                tokio::time::sleep(upstream.before_head).await;
                upstream.alive.fetch_add(1, Ordering::SeqCst);
                let body = Script { steps: upstream.steps.into(), sleep: None, alive: upstream.alive };
                let mut response = http::Response::new(body);
                *response.status_mut() = http::StatusCode::from_u16(upstream.status).unwrap();
                response.headers_mut().insert("content-type", "text/event-stream".parse().unwrap());
                Ok(response)
            }
        })
    }
}

/// How a call ended, and what a breaker outside was told.
#[derive(Debug)]
pub struct Told {
    /// The bytes that arrived, and the class of the error at the end; or the error of the call.
    pub answer: Result<(String, Option<Class>), BoxError>,
    pub insight: Option<Insight>,
    pub verdicts: Vec<Class>,
}

impl Told {
    pub fn fault(&self) -> &FaultDetails {
        let err = self.answer.as_ref().expect_err("the call failed");
        Fault::find(&**err).expect("a fault")
    }

    pub fn text(&self) -> &str {
        &self.answer.as_ref().expect("an answer").0
    }

    pub fn end(&self) -> Option<Class> {
        self.answer.as_ref().expect("an answer").1
    }
}

/// One call through the layer; the body is read until `enough` says so.
pub async fn call_until<P>(layer: &StreamLayer<P>, upstream: &Upstream, enough: impl Fn(&str) -> bool) -> Told
where
    P: Protocol<()> + Clone,
    P::Reader: Reader,
{
    let verdicts = Arc::new(Mutex::new(Vec::new()));
    let push = Arc::clone(&verdicts);
    let guard = GuardFn::new(move |verdict: Verdict| push.lock().unwrap().push(verdict.class()));
    let take = move || std::mem::take(&mut *verdicts.lock().unwrap());
    let mut guard = Some(guard);
    let settle = |guard: &mut Option<_>, verdict| {
        if let Some(mut guard) = guard.take() {
            failsoft_core::Guard::settle(&mut guard, verdict);
        }
    };
    let response = match layer.layer(upstream.service()).oneshot(()).await {
        Ok(response) => response,
        Err(err) => {
            settle(&mut guard, Verdict::of_error(&*err));
            return Told { answer: Err(err), insight: None, verdicts: take() };
        }
    };
    let insight = Insight::of(response.extensions()).cloned();
    let judge = match ByResponse.response(&response) {
        Step::AtEnd(judge) => Some(judge),
        Step::Now(verdict) => {
            settle(&mut guard, verdict);
            None
        }
    };
    let (mut text, mut error) = (Vec::new(), None);
    let mut read = |frame: Result<Frame<Bytes>, BoxError>| {
        match frame {
            Ok(frame) => text.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data)),
            Err(err) => error = Some(verdict_of_body_error(&*err).class()),
        }
        enough(&String::from_utf8_lossy(&text))
    };
    match (judge, guard) {
        (Some(judge), Some(guard)) => {
            let mut body = judge.follow(response, guard).into_body();
            while let Some(frame) = body.frame().await {
                if read(frame) {
                    break;
                }
            }
        }
        _ => {
            let mut body = response.into_body();
            while let Some(frame) = body.frame().await {
                if read(frame) {
                    break;
                }
            }
        }
    }
    // A failed body may end in the middle of a character.
    let text = String::from_utf8_lossy(&text).trim_end_matches('\u{fffd}').to_owned();
    Told { answer: Ok((text, error)), insight, verdicts: take() }
}

/// One call whose body is read to its end.
pub async fn call<P>(layer: &StreamLayer<P>, upstream: &Upstream) -> Told
where
    P: Protocol<()> + Clone,
{
    call_until(layer, upstream, |_| false).await
}
