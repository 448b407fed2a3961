//! Advice that one call gets, where a breaker or a fallback can do better than wait.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use breaker_layer::BreakerLayer;
use failsoft_core::{Class, Denier, Fault};
use fallback_layer::{FallbackLayer, Route};
use retry_layer::RetryLayer;
use tokio::time::{Instant, sleep};
use tower::{Layer, Service, ServiceBuilder, ServiceExt};

type Request = http::Request<String>;

fn request() -> Request {
    http::Request::post("http://models.example/v1/chat").body(String::new()).unwrap()
}

/// Says once that everybody should come back in so many seconds, and counts its calls.
#[derive(Clone)]
struct Limited {
    seconds: &'static str,
    calls: Arc<AtomicUsize>,
}

fn limited(seconds: &'static str, calls: &Arc<AtomicUsize>) -> Limited {
    Limited { seconds, calls: Arc::clone(calls) }
}

impl Service<Request> for Limited {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request) -> Self::Future {
        let status = http::StatusCode::TOO_MANY_REQUESTS;
        ready(Ok(match self.calls.fetch_add(1, SeqCst) {
            0 => (status, [("retry-after", self.seconds)]).into_response(),
            _ => Response::new(Body::empty()),
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn a_circuit_that_acts_on_the_advice_refuses_the_others_at_once() {
    let calls = Arc::default();
    let service = ServiceBuilder::new()
        .layer(RetryLayer::new())
        .layer(BreakerLayer::builder().build().unwrap())
        .service(limited("60", &calls));
    let told = service.clone().oneshot(request()).await.unwrap();
    assert_eq!(told.status(), 429);
    let began = Instant::now();
    let error = service.oneshot(request()).await.unwrap_err();
    assert_eq!(Fault::find(&*error).unwrap().class(), Class::Denied(Denier::Circuit));
    assert_eq!((calls.load(SeqCst), began.elapsed()), (1, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn inside_a_fallback_a_long_hold_is_no_reason_to_wait_and_a_short_one_is() {
    for (seconds, waits) in [("60", false), ("3", true)] {
        let (calls, other) = (Arc::default(), Arc::new(AtomicUsize::new(1)));
        let first = RetryLayer::new().layer(limited(seconds, &calls));
        let second = RetryLayer::new().layer(limited("1", &other));
        let service =
            FallbackLayer::builder().route(Route::new("second", second)).build().unwrap().layer(first);
        let told = tokio::spawn(service.clone().oneshot(request()));
        sleep(Duration::from_millis(1)).await;
        let began = Instant::now();
        assert_eq!(service.oneshot(request()).await.unwrap().status(), 200);
        assert_eq!(began.elapsed() > Duration::from_secs(2), waits, "{seconds}");
        assert_eq!(other.load(SeqCst), if waits { 1 } else { 2 });
        told.await.unwrap().unwrap();
    }
}
