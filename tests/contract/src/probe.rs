//! A service that panics when it is called unready or twice, and counts what is alive.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use failsoft_core::BoxError;
use http_body::{Body, Frame};
use http_body_util::Full;
use tower_service::Service;

/// The request of all checks.
pub type Request = http::Request<Full<Bytes>>;

/// A chat answer, so that layers that read one have something to read.
pub const ANSWER: &str = r#"{"id":"c1","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"{\"city\": \"Bern\", \"degrees\": 21}"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21}}"#;

/// A request as one would send it to a model.
#[must_use]
pub fn request() -> Request {
    let mut request = http::Request::new(Full::from(r#"{"model":"m","messages":[]}"#));
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = http::Uri::from_static("http://localhost/v1/chat/completions");
    request.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    request
}

/// What the probe answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The answer, in pieces.
    Answer,
    /// A 503 with a body.
    Unavailable,
    /// A refused connection.
    Refused,
    /// The head of the answer and half of its body.
    Cut,
}

impl Reply {
    /// Each of them.
    pub const ALL: [Self; 4] = [Self::Answer, Self::Unavailable, Self::Refused, Self::Cut];
}

/// A service that is pending at each point where it may be, panics when the contract is broken, and counts its
/// calls, its futures and its bodies.
#[derive(Debug)]
pub struct Probe {
    shared: Arc<Shared>,
    ready: Option<bool>,
}

#[derive(Debug)]
struct Shared {
    reply: Reply,
    calls: AtomicUsize,
    alive: AtomicUsize,
}

impl Probe {
    /// A probe that answers well.
    #[must_use]
    pub fn new() -> Self {
        Self::replying(Reply::Answer)
    }

    /// A probe with another reply.
    #[must_use]
    pub fn replying(reply: Reply) -> Self {
        let shared = Shared { reply, calls: AtomicUsize::new(0), alive: AtomicUsize::new(0) };
        Self { shared: Arc::new(shared), ready: None }
    }

    /// How often it was called.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.shared.calls.load(Ordering::SeqCst)
    }

    /// How many of its futures and bodies are alive.
    #[must_use]
    pub fn alive(&self) -> usize {
        self.shared.alive.load(Ordering::SeqCst)
    }
}

impl Default for Probe {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for Probe {
    /// A clone is not ready.
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), ready: None }
    }
}

impl Service<Request> for Probe {
    type Response = http::Response<ProbeBody>;
    type Error = BoxError;
    type Future = ProbeFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self.ready {
            Some(true) => Poll::Ready(Ok(())),
            Some(false) => {
                self.ready = Some(true);
                Poll::Ready(Ok(()))
            }
            None => {
                self.ready = Some(false);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    fn call(&mut self, _: Request) -> ProbeFuture {
        assert_eq!(self.ready.take(), Some(true), "called without being ready");
        self.shared.calls.fetch_add(1, Ordering::SeqCst);
        ProbeFuture { waited: false, alive: Some(Alive::new(&self.shared)) }
    }
}

/// The probe's future: pending once.
#[derive(Debug)]
pub struct ProbeFuture {
    waited: bool,
    alive: Option<Alive>,
}

impl Future for ProbeFuture {
    type Output = Result<http::Response<ProbeBody>, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if !std::mem::replace(&mut self.waited, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Some(alive) = self.alive.take() else { panic!("polled after it was ready") };
        let (status, fails, text) = match alive.0.reply {
            Reply::Refused => {
                return Poll::Ready(Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into()));
            }
            Reply::Unavailable => (503, false, r#"{"error":{"message":"busy","type":"server_error"}}"#),
            Reply::Answer => (200, false, ANSWER),
            Reply::Cut => (200, true, &ANSWER[..ANSWER.len() / 2]),
        };
        let chunks = text.as_bytes().chunks(64).map(Bytes::from_static).collect();
        let mut response = http::Response::new(ProbeBody { chunks, fails, waited: false, _alive: alive });
        *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
        response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
        Poll::Ready(Ok(response))
    }
}

/// The probe's body: pending before each piece.
#[derive(Debug)]
pub struct ProbeBody {
    chunks: VecDeque<Bytes>,
    fails: bool,
    waited: bool,
    _alive: Alive,
}

impl Body for ProbeBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if !std::mem::replace(&mut self.waited, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.waited = false;
        Poll::Ready(match self.chunks.pop_front() {
            Some(chunk) => Some(Ok(Frame::data(chunk))),
            None if std::mem::take(&mut self.fails) => {
                Some(Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()))
            }
            None => None,
        })
    }
}

#[derive(Debug)]
struct Alive(Arc<Shared>);

impl Alive {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.alive.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(shared))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.alive.fetch_sub(1, Ordering::SeqCst);
    }
}
