//! A circuit that opens while other calls are on their way.

#![allow(clippy::unwrap_used, reason = "a test that fails ends here")]

use std::{convert::Infallible, time::Duration};

use breaker_layer::{BreakerLayer, engine::State};
use failsoft_core::{Backoff, Call, Class, Fault, Next, backoff::Jitter};
use http_body_util::Full;
use retry_layer::RetryLayer;
use tokio::time::{Instant, sleep};
use tower::{ServiceBuilder, ServiceExt as _};

type Request = axum::http::Request<&'static str>;

fn request(seconds: &'static str) -> Request {
    axum::http::Request::get("http://models.example/v1").body(seconds).unwrap()
}

/// Answers 503 after as many seconds as it is asked for.
async fn failing(request: Request) -> Result<axum::http::Response<Full<bytes::Bytes>>, Infallible> {
    sleep(Duration::from_secs(request.into_body().parse().unwrap())).await;
    Ok(axum::http::Response::builder().status(503).body(Full::from("no room")).unwrap())
}

#[tokio::test(start_paused = true)]
async fn who_fails_when_another_has_opened_the_circuit_does_not_wait_to_be_refused() {
    let backoff = Backoff::fixed(Duration::from_secs(7)).jitter(Jitter::None);
    let retry = RetryLayer::builder().backoff(backoff).build().unwrap();
    let breaker = BreakerLayer::builder().consecutive_failures(2).build().unwrap();
    let circuit = breaker.circuit().clone();
    let service = ServiceBuilder::new().layer(retry).layer(breaker).service_fn(failing);
    let began = Instant::now();
    let others = ["1", "2"].map(|seconds| tokio::spawn(service.clone().oneshot(request(seconds))));
    let call = Call::begin();
    let response = call.scope(service.oneshot(request("3"))).await.unwrap();
    assert_eq!(circuit.state(), State::Open);
    assert_eq!((began.elapsed().as_secs(), response.status().as_u16()), (3, 503));
    let told: Vec<_> = call.trail().attempts().iter().map(|step| (step.next, step.opened)).collect();
    // It was not this call that opened it.
    assert_eq!(told, [(Next::Final, false)]);
    // The second opened it, and has its answer; the first, which was waiting, learns of it when it asks again.
    let [first, second] = others;
    assert_eq!(second.await.unwrap().unwrap().status(), 503);
    let error = first.await.unwrap().unwrap_err();
    let fault = Fault::find(&*error).unwrap();
    assert_eq!((fault.class(), fault.status()), (Class::Overloaded, Some(503)));
}
