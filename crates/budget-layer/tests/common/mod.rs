//! A model whose answers the test steers, and a reader that tells its usage as an llm-layer does.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use bytes::Bytes;
use failsoft_core::{BoxError, Call, Class, Denier, Fault, Slot, Usage};
use http_body::{Body, Frame};
use tokio::sync::oneshot;
use tower::Service;

pub type Request = http::Request<String>;
pub type Response = http::Response<Answer>;
/// What comes out of the layer around a [`Model`].
pub type Charged =
    http::Response<failsoft_core::Watched<Answer, failsoft_core::BodyJudge, budget_layer::Charge>>;

pub fn request() -> Request {
    http::Request::new(String::new())
}

pub fn of_session(session: &str) -> Request {
    http::Request::builder().header("x-session", session).body(String::new()).unwrap()
}

pub fn session(request: &Request) -> String {
    String::from_utf8_lossy(request.headers()["x-session"].as_bytes()).into_owned()
}

pub fn usage(input: u64, output: u64) -> Usage {
    Usage { input: Some(input), output: Some(output), ..Usage::default() }
}

pub fn reset() -> BoxError {
    io::Error::from(io::ErrorKind::ConnectionReset).into()
}

pub fn refused() -> BoxError {
    io::Error::from(io::ErrorKind::ConnectionRefused).into()
}

#[track_caller]
pub fn is_denied(err: &BoxError) -> bool {
    let denied = Fault::find(&**err).is_some_and(|fault| fault.class() == Class::Denied(Denier::Budget));
    assert!(denied || !err.to_string().contains("budget-layer"), "{err}");
    denied
}

/// A service whose calls wait until the test answers them. It panics when it is called without being ready.
pub struct Model {
    calls: Arc<Mutex<VecDeque<Asked>>>,
    ready: bool,
}

/// A call that waits for its answer.
pub struct Asked {
    pub call: Option<Call>,
    pub answer: oneshot::Sender<Result<Response, BoxError>>,
}

impl Asked {
    /// A slot for an attempt, as a reader further in opens it.
    pub fn slot(&self) -> Slot {
        self.call.as_ref().expect("a budget stands around").enter(Call::slot).expect("a call is current")
    }

    pub fn send(self, answer: Result<Response, BoxError>) {
        // Whoever asked may be gone.
        let _ = self.answer.send(answer);
    }
}

impl Model {
    pub fn new() -> Self {
        Self { calls: Arc::default(), ready: false }
    }

    /// The oldest call that waits.
    pub fn next(&self) -> Asked {
        self.calls.lock().unwrap().pop_front().expect("a call waits")
    }

    pub fn waiting(&self) -> usize {
        self.calls.lock().unwrap().len()
    }
}

impl Clone for Model {
    fn clone(&self) -> Self {
        Self { calls: Arc::clone(&self.calls), ready: false }
    }
}

impl Service<Request> for Model {
    type Response = Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called without being ready");
        let (answer, answered) = oneshot::channel();
        self.calls.lock().unwrap().push_back(Asked { call: Call::current(), answer });
        Box::pin(async move { answered.await.unwrap_or_else(|_| Err(reset())) })
    }
}

/// A body of steps, with the slot of whoever reads it.
#[derive(Debug)]
pub struct Answer {
    steps: VecDeque<Step>,
    slot: Option<Slot>,
}

#[derive(Debug)]
pub enum Step {
    /// A piece of text, after which the reader knows this much.
    Told(Usage),
    /// A piece of text that tells nothing.
    Text,
    /// The body breaks off.
    Cut,
}

impl Answer {
    /// Nobody reads it.
    pub fn unread(steps: impl IntoIterator<Item = Step>) -> Response {
        http::Response::new(Self { steps: steps.into_iter().collect(), slot: None })
    }

    /// A reader tells what it learns.
    pub fn read(slot: Slot, steps: impl IntoIterator<Item = Step>) -> Response {
        http::Response::new(Self { steps: steps.into_iter().collect(), slot: Some(slot) })
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(match self.steps.pop_front() {
            None => {
                self.slot = None;
                None
            }
            Some(Step::Cut) => Some(Err(reset())),
            Some(step) => {
                if let (Step::Told(usage), Some(slot)) = (step, &mut self.slot) {
                    slot.set(&usage);
                }
                Some(Ok(Frame::data(Bytes::from_static(b"text"))))
            }
        })
    }
}
