//! Our layers under and over tower's own and tower-http's.
#![allow(clippy::unwrap_used, reason = "a test's helpers fail by panicking")]

mod balance;
mod buffer;
mod client;
mod limits;
mod matrix;
mod plain;
mod reqwest_client;
mod retry;
mod server;
mod timeout;

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use breaker_layer::{BreakerBuilder, BreakerLayer, Circuit};
use bytes::Bytes;
use failsoft_core::{Backoff, Jitter};
use http_body_util::Full;
use retry_layer::{RetryBuilder, RetryLayer};
use tower::{Service, service_fn};

const SECOND: Duration = Duration::from_secs(1);

type Request = http::Request<String>;
type Response = http::Response<Full<Bytes>>;

/// A request that may be sent again.
fn request() -> Request {
    http::Request::get("http://models.example/v1").body(String::new()).unwrap()
}

fn response(status: u16) -> Response {
    http::Response::builder().status(status).body(Full::from("text")).unwrap()
}

/// Answers with each status after so many seconds, in turn, and then with the last one for ever.
#[derive(Clone)]
struct Upstream {
    answers: Arc<[(u64, u16)]>,
    calls: Arc<AtomicUsize>,
}

impl Upstream {
    fn new<const N: usize>(answers: [(u64, u16); N]) -> Self {
        Self { answers: answers.into(), calls: Arc::default() }
    }

    fn calls(&self) -> usize {
        self.calls.load(SeqCst)
    }

    fn service(
        &self,
    ) -> impl Service<Request, Response = Response, Error = Infallible, Future: Send> + Clone + Send + Sync + 'static
    {
        let Self { answers, calls } = self.clone();
        service_fn(move |_: Request| {
            let at = calls.fetch_add(1, SeqCst).min(answers.len() - 1);
            let (seconds, status) = answers[at];
            async move {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                Ok(response(status))
            }
        })
    }
}

/// A retry that waits so many seconds, to the millisecond.
fn retry(seconds: u64) -> RetryBuilder {
    RetryLayer::builder().backoff(Backoff::fixed(Duration::from_secs(seconds)).jitter(Jitter::None))
}

/// A breaker that opens at so many failures in a row, for 30 s, to the millisecond; and its circuit.
fn breaker(failures: u32) -> (BreakerLayer, Circuit) {
    let layer = breaker_builder(failures).build().unwrap();
    let circuit = layer.circuit().clone();
    (layer, circuit)
}

fn breaker_builder(failures: u32) -> BreakerBuilder {
    BreakerLayer::builder().consecutive_failures(failures).jitter(0.0)
}
