//! Bodies: the verdict comes at their end, latency is the time to first content.
#![cfg(not(failsoft_loom))]

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::error_handling::HandleErrorLayer;
use breaker_layer::engine::{Over, Probes, State};
use breaker_layer::{BreakerBuilder, BreakerLayer, Ticket};
use bytes::Bytes;
use failsoft_core::{BodyJudge, BoxError, Insight, SoftKind, Verdict, Watched};
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tower::{Layer, ServiceBuilder, ServiceExt};

const SECOND: Duration = Duration::from_secs(1);

/// What a body does, after so long each.
#[derive(Debug, Clone, Copy)]
enum Then {
    Data(Duration),
    /// A comment of an event stream.
    Ping(Duration),
    Fail(Duration),
    Panic(Duration),
    Hang,
}

/// A body that follows a script.
struct Scripted {
    script: VecDeque<Then>,
    next: Option<(Then, Pin<Box<Sleep>>)>,
}

fn scripted(script: &[Then]) -> Scripted {
    Scripted { script: script.iter().copied().collect(), next: None }
}

impl Body for Scripted {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.next.is_none() {
            let Some(then) = self.script.pop_front() else { return Poll::Ready(None) };
            let after = match then {
                Then::Data(after) | Then::Ping(after) | Then::Fail(after) | Then::Panic(after) => after,
                Then::Hang => Duration::from_secs(86_400),
            };
            self.next = Some((then, Box::pin(sleep(after))));
        }
        let Some((then, wait)) = &mut self.next else { unreachable!("just set") };
        std::task::ready!(wait.as_mut().poll(cx));
        let then = *then;
        self.next = None;
        Poll::Ready(match then {
            Then::Data(_) => Some(Ok(Frame::data(Bytes::from_static(b"data")))),
            Then::Ping(_) => Some(Ok(Frame::data(Bytes::from_static(b": ping\n\n")))),
            Then::Panic(_) => panic!("inside"),
            Then::Fail(_) => Some(Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into())),
            Then::Hang => None,
        })
    }
}

/// Opens at the first failure, or if half of the calls are slow, from 1; two probes decide.
fn touchy() -> BreakerBuilder {
    BreakerLayer::builder()
        .over(Over::Calls(10))
        .failure_rate(None)
        .failures(1)
        .soft_alone_may_not_open()
        .slow_after(4 * SECOND)
        .slow_rate(0.5)
        .min_calls(1)
        .open_time(SECOND)
        .jitter(0.0)
        .lease(10 * SECOND)
        .probes(Probes::Failures { probes: 2, to_open: 1 })
}

/// One call through the layer, answered at once with a scripted body.
async fn answer(layer: &BreakerLayer, script: &[Then]) -> Watched<Scripted, BodyJudge, Ticket> {
    let script = script.to_vec();
    let service = tower::service_fn(move |_: Request<()>| {
        let body = scripted(&script);
        let response = Response::builder().header("content-type", "text/event-stream").body(body);
        async { response }
    });
    layer.layer(service).oneshot(Request::new(())).await.unwrap().into_body()
}

#[tokio::test(start_paused = true)]
async fn a_stream_counts_at_its_end_and_as_one_success() {
    let layer = touchy().build().unwrap();
    let body = answer(&layer, &[Then::Data(SECOND); 60]).await;
    assert_eq!(layer.circuit().counts().total, 0, "not yet");
    body.collect().await.unwrap();
    let counts = layer.circuit().counts();
    assert_eq!(
        (counts.total, counts.failed, counts.slow),
        (1, 0, 0),
        "60 s long, first content after one: not slow"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_half_way_is_a_failure() {
    let layer = touchy().build().unwrap();
    let body = answer(&layer, &[Then::Data(SECOND), Then::Fail(SECOND)]).await;
    let error = body.collect().await.unwrap_err();
    assert!(error.is::<std::io::Error>(), "the body's own error passes");
    assert_eq!(layer.circuit().state(), State::Open);
}

#[tokio::test(start_paused = true)]
async fn late_first_content_is_slow_however_quick_the_head_was() {
    // C36: slow calls were measured by another clock; here it stands still but for the test
    let layer = touchy().build().unwrap();
    let body = answer(&layer, &[Then::Data(5 * SECOND)]).await;
    body.collect().await.unwrap();
    assert_eq!(layer.circuit().state(), State::Open);
}

#[tokio::test(start_paused = true)]
async fn a_body_dropped_before_any_content_is_slow_only_after_the_slow_limit() {
    let layer = touchy().build().unwrap();
    for (after, state) in [(4, State::Closed), (5, State::Open)] {
        let body = answer(&layer, &[Then::Hang]).await;
        let _ = tokio::time::timeout(after * SECOND, body.collect()).await.unwrap_err();
        assert_eq!(layer.circuit().state(), state, "dropped after {after} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_dropped_after_content_says_nothing_however_long_it_took() {
    let layer = touchy().build().unwrap();
    let mut body = answer(&layer, &[Then::Data(SECOND), Then::Hang]).await;
    body.frame().await.unwrap().unwrap();
    tokio::time::advance(60 * SECOND).await;
    drop(body);
    assert_eq!((layer.circuit().state(), layer.circuit().counts().total), (State::Closed, 0));
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_streams_longer_than_the_lease_keeps_it_and_closes() {
    let layer = touchy().build().unwrap();
    layer.circuit().half_open().unwrap();
    let started = Instant::now();
    let bodies =
        (answer(&layer, &[Then::Data(SECOND); 30]).await, answer(&layer, &[Then::Data(SECOND); 30]).await);
    let (first, second) = tokio::join!(bodies.0.collect(), bodies.1.collect());
    assert!(first.is_ok() && second.is_ok() && started.elapsed() == 30 * SECOND);
    assert_eq!(layer.circuit().state(), State::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_probe_whose_body_hangs_holds_the_circuit_no_longer_than_the_lease() {
    let layer = touchy().build().unwrap();
    layer.circuit().half_open().unwrap();
    let start = Instant::now();
    let mut body = answer(&layer, &[Then::Data(SECOND), Then::Hang]).await;
    body.frame().await.unwrap().unwrap();
    sleep_until(start + 10 * SECOND).await;
    assert_eq!(layer.circuit().state(), State::HalfOpen, "content came after 1 s");
    sleep_until(start + 11 * SECOND).await;
    assert_eq!(layer.circuit().state(), State::Open);
    drop(body);
    assert_eq!(layer.circuit().time_left(), Some(SECOND));
}

#[tokio::test(start_paused = true)]
async fn keepalives_renew_no_lease_and_are_no_first_content() {
    let layer = touchy().build().unwrap();
    layer.circuit().half_open().unwrap();
    let start = Instant::now();
    let script = [&[Then::Data(SECOND)], [Then::Ping(SECOND); 30].as_slice()].concat();
    let reads = tokio::spawn(answer(&layer, &script).await.collect());
    sleep_until(start + 10 * SECOND).await;
    assert_eq!(layer.circuit().state(), State::HalfOpen, "content came after 1 s");
    sleep_until(start + 11 * SECOND).await;
    assert_eq!(layer.circuit().state(), State::Open, "and then nothing but keepalives");
    reads.await.unwrap().unwrap();

    layer.circuit().reset();
    let body = answer(&layer, &[Then::Ping(SECOND); 30]).await;
    let _ = tokio::time::timeout(5 * SECOND, body.collect()).await.unwrap_err();
    assert_eq!(layer.circuit().state(), State::Open, "dropped after 5 s without content: slow");
}

#[tokio::test(start_paused = true)]
async fn where_an_inner_reader_counts_pieces_only_those_renew_the_lease() {
    let layer = touchy().build().unwrap();
    layer.circuit().half_open().unwrap();
    let start = Instant::now();
    let insight = Insight::new();
    insight.learn(|facts| facts.pieces = Some(0));
    let left = insight.clone();
    let service = tower::service_fn(move |_: Request<()>| {
        let mut response = Response::new(scripted(&[Then::Data(SECOND); 60]));
        response.extensions_mut().insert(left.clone());
        async { Ok::<_, Infallible>(response) }
    });
    let response = layer.layer(service).oneshot(Request::new(())).await.unwrap();
    let reads = tokio::spawn(response.into_body().collect());
    sleep_until(start + 5 * SECOND + SECOND / 2).await;
    insight.learn(|facts| facts.pieces = Some(1));
    sleep_until(start + 15 * SECOND).await;
    assert_eq!(layer.circuit().state(), State::HalfOpen, "a piece came after 6 s");
    sleep_until(start + 16 * SECOND).await;
    assert_eq!(layer.circuit().state(), State::Open, "and then bytes that were none");
    reads.abort();
}

#[tokio::test(start_paused = true)]
async fn a_body_that_panics_is_a_failure_and_the_panic_goes_on() {
    // P21
    for script in [&[Then::Panic(SECOND)] as &[_], &[Then::Data(SECOND), Then::Panic(SECOND)]] {
        let layer = touchy().build().unwrap();
        let reads = tokio::spawn(answer(&layer, script).await.collect());
        assert!(reads.await.unwrap_err().is_panic());
        assert_eq!(
            (layer.circuit().state(), layer.circuit().snapshot().consecutive_openings),
            (State::Open, 1)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_inner_reader_learnt_counts_over_the_status() {
    let layer = touchy().failures(None).consecutive_failures(1).build().unwrap();
    let service = tower::service_fn(|_: Request<()>| async {
        let insight = Insight::new();
        insight.learn(|facts| facts.verdict = Some(Verdict::soft(SoftKind::Malformed)));
        let mut response = Response::new(Full::<Bytes>::from("{"));
        response.extensions_mut().insert(insight);
        Ok::<_, Infallible>(response)
    });
    let response = layer.layer(service).oneshot(Request::new(())).await.unwrap();
    assert_eq!(response.status(), 200);
    assert!((layer.circuit().counts().failed_weight - 0.6).abs() < 1e-9);
}

#[tokio::test(start_paused = true)]
async fn statuses_count_by_the_class_table() {
    let table = [(200, 1, 0), (404, 0, 0), (401, 0, 0), (400, 0, 0), (429, 0, 0), (500, 1, 1), (503, 1, 1)];
    for (status, total, failed) in table {
        let layer = touchy().failures(2).build().unwrap();
        let service = tower::service_fn(move |_: Request<()>| async move {
            Response::builder().status(status).body(Full::<Bytes>::from("x"))
        });
        let response = layer.layer(service).oneshot(Request::new(())).await.unwrap();
        response.into_body().collect().await.unwrap();
        let counts = layer.circuit().counts();
        assert_eq!((counts.total, counts.failed), (total, failed), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn advice_in_headers_is_obeyed_and_a_spent_quota_opens_at_once() {
    for (status, retry_after, seconds) in [(429, "42", 42), (402, "", 300), (503, "7", 7)] {
        let layer = touchy().build().unwrap();
        let service = tower::service_fn(move |_: Request<()>| async move {
            let builder = Response::builder().status(status).header("retry-after", retry_after);
            builder.body(Full::<Bytes>::from("x"))
        });
        layer.layer(service).oneshot(Request::new(())).await.unwrap();
        assert_eq!(layer.circuit().time_left(), Some(seconds * SECOND), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_layer_applied_again_by_axum_has_one_circuit() {
    // P20: each route or request got a fresh breaker: 20 of 20 failing calls went through
    let layer = touchy().failures(3).build().unwrap();
    let answer = || async { StatusCode::INTERNAL_SERVER_ERROR };
    let refused = HandleErrorLayer::new(|error: BoxError| async move {
        (StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    });
    let router = Router::new()
        .route("/a", axum::routing::get(answer))
        .route("/b", axum::routing::get(answer))
        .layer(ServiceBuilder::new().layer(refused).layer(layer.clone()));
    let mut statuses = Vec::new();
    for path in ["/a", "/b"].repeat(10) {
        let request = Request::get(path).body(axum::body::Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        statuses.push(response.status().as_u16());
        response.into_body().collect().await.unwrap();
    }
    assert_eq!(statuses.iter().filter(|status| **status == 500).count(), 3);
    assert_eq!(statuses.iter().filter(|status| **status == 503).count(), 17);
    assert_eq!(layer.circuit().state(), State::Open);
}
