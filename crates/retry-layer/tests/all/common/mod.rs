//! An upstream that does what a script says, and insists on the readiness contract.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::{
    collections::VecDeque,
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use failsoft_core::{Backoff, BoxError, Class, Denier, Fault, Jitter};
use http_body_util::Full;
use retry_layer::{RetryBuilder, RetryLayer};
use tokio::time::{Instant, sleep};
use tower::Service;

pub(crate) type Request = http::Request<String>;
pub(crate) type Response = http::Response<Counted>;

/// What the upstream does with one request.
#[derive(Clone, Debug)]
pub(crate) enum Do {
    Status(u16),
    /// A status with one header.
    With(u16, &'static str, String),
    /// The connection broke after the request was sent.
    Reset,
    /// There was no connection.
    Refused,
    /// One of our own layers refuses.
    Deny,
    Never,
    After(Duration, Box<Self>),
}

pub(crate) fn retry_after(seconds: &str) -> Do {
    Do::With(429, "retry-after", seconds.to_owned())
}

/// A body that counts how many of its kind are alive.
#[derive(Debug)]
pub(crate) struct Counted(Full<Bytes>, Alive);

#[derive(Debug)]
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }
}

/// Clones share the script and what was seen; readiness belongs to one clone only.
#[derive(Debug)]
pub(crate) struct Upstream {
    shared: Arc<Shared>,
    ready: bool,
}

#[derive(Debug)]
struct Shared {
    script: Mutex<VecDeque<Do>>,
    otherwise: Do,
    began: Instant,
    times: Mutex<Vec<Duration>>,
    bodies: Arc<AtomicUsize>,
    running: Arc<AtomicUsize>,
    /// For so many calls it becomes ready, then never again.
    ready_calls: AtomicUsize,
    fail_ready: bool,
}

impl Upstream {
    /// Does what `script` says, then `otherwise` for ever.
    pub(crate) fn new(script: impl IntoIterator<Item = Do>, otherwise: Do) -> Self {
        Self::ready_for(usize::MAX, false, script, otherwise)
    }

    /// Is ready for so many calls, then hangs, or fails, in `poll_ready`.
    pub(crate) fn ready_for(
        calls: usize,
        fail: bool,
        script: impl IntoIterator<Item = Do>,
        otherwise: Do,
    ) -> Self {
        let shared = Shared {
            script: Mutex::new(script.into_iter().collect()),
            otherwise,
            began: Instant::now(),
            times: Mutex::default(),
            bodies: Arc::default(),
            running: Arc::default(),
            ready_calls: AtomicUsize::new(calls),
            fail_ready: fail,
        };
        Self { shared: Arc::new(shared), ready: false }
    }

    /// When it was called, from its beginning on, in milliseconds.
    pub(crate) fn times(&self) -> Vec<u64> {
        self.shared
            .times
            .lock()
            .unwrap()
            .iter()
            .map(|time| u64::try_from(time.as_millis()).unwrap())
            .collect()
    }

    pub(crate) fn calls(&self) -> usize {
        self.shared.times.lock().unwrap().len()
    }

    /// Responses that somebody still holds.
    pub(crate) fn bodies(&self) -> usize {
        self.shared.bodies.load(SeqCst)
    }

    /// Calls whose future is alive.
    pub(crate) fn running(&self) -> usize {
        self.shared.running.load(SeqCst)
    }
}

impl Clone for Upstream {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), ready: false }
    }
}

impl<Req: Send + 'static> Service<Req> for Upstream {
    type Response = Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.ready {
            return Poll::Ready(Ok(()));
        }
        let left = self.shared.ready_calls.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
        match left {
            Ok(_) => {
                self.ready = true;
                Poll::Ready(Ok(()))
            }
            Err(_) if self.shared.fail_ready => Poll::Ready(Err("not ready".into())),
            Err(_) => Poll::Pending,
        }
    }

    fn call(&mut self, _: Req) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called without being ready");
        let shared = Arc::clone(&self.shared);
        shared.times.lock().unwrap().push(shared.began.elapsed());
        let next = shared.script.lock().unwrap().pop_front().unwrap_or_else(|| shared.otherwise.clone());
        let running = Alive::new(&shared.running);
        Box::pin(async move {
            let _running = running;
            act(next, &shared.bodies).await
        })
    }
}

async fn act(mut next: Do, bodies: &Arc<AtomicUsize>) -> Result<Response, BoxError> {
    while let Do::After(delay, then) = next {
        sleep(delay).await;
        next = *then;
    }
    let response = |status| http::Response::builder().status(status);
    let body = || Counted(Full::from("{}"), Alive::new(bodies));
    match next {
        Do::Status(status) => Ok(response(status).body(body())?),
        Do::With(status, name, value) => Ok(response(status).header(name, value).body(body())?),
        Do::Reset => Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
        Do::Refused => Err(io::Error::from(io::ErrorKind::ConnectionRefused).into()),
        Do::Deny => Err(Fault::new(Class::Denied(Denier::Circuit), "breaker-layer").into()),
        Do::Never => std::future::pending().await,
        Do::After(..) => unreachable!("unwrapped above"),
    }
}

pub(crate) fn get() -> Request {
    http::Request::get("http://models.example/v1/models").body(String::new()).unwrap()
}

pub(crate) fn post() -> Request {
    http::Request::post("http://models.example/v1/chat").body("{}".to_owned()).unwrap()
}

/// Waits of exactly 1, 2, 4 … seconds, and no spread on top of advice.
pub(crate) fn exact() -> RetryBuilder {
    RetryLayer::builder().backoff(Backoff::default().jitter(Jitter::None)).advice_jitter(0.0)
}

/// A body whose pieces come through a channel.
pub(crate) struct Pieces(tokio::sync::mpsc::UnboundedReceiver<&'static str>);

pub(crate) fn channel() -> (tokio::sync::mpsc::UnboundedSender<&'static str>, Pieces) {
    let (pieces, body) = tokio::sync::mpsc::unbounded_channel();
    (pieces, Pieces(body))
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, BoxError>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| Ok(http_body::Frame::data(Bytes::from(piece)))))
    }
}
