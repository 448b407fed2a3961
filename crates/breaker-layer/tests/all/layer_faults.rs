//! Faults of breakers and of tower layers, as a caller of the layer would meet them; each impossible here.
#![cfg(not(failsoft_loom))]

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use breaker_layer::engine::{Over, Probes, State};
use breaker_layer::{BreakerBuilder, BreakerLayer};
use bytes::Bytes;
use failsoft_core::{BoxError, Condition, ErrorsOnly, Fault, Health as _};
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::time::{Instant, sleep};
use tokio_test::{assert_pending, assert_ready_err, task};
use tower::{Layer, Service, ServiceExt};

const SECOND: Duration = Duration::from_secs(1);

/// Opens at the first failure, for 1 s; one probe decides.
fn touchy() -> BreakerBuilder<ErrorsOnly> {
    BreakerLayer::builder()
        .name("it")
        .classify(ErrorsOnly)
        .over(Over::Calls(10))
        .failures(1)
        .open_time(SECOND)
        .jitter(0.0)
        .probes(Probes::Failures { probes: 1, to_open: 1 })
}

#[tokio::test(start_paused = true)]
async fn an_error_keeps_its_source_and_a_refusal_its_name() {
    // P11: source() and the name were lost
    let layer = touchy().build().unwrap();
    let fails = tower::service_fn(|()| async {
        let root = std::io::Error::other(std::fmt::Error);
        Err::<(), _>(std::io::Error::other(root))
    });
    let mut service = layer.layer(fails);
    let error = service.ready().await.unwrap().call(()).await.unwrap_err();
    let root = error.downcast_ref::<std::io::Error>().unwrap().get_ref().unwrap();
    assert!(root.downcast_ref::<std::io::Error>().unwrap().get_ref().unwrap().is::<std::fmt::Error>());
    let refusal = service.ready().await.unwrap().call(()).await.unwrap_err();
    assert_eq!(Fault::find(&*refusal).unwrap().target(), Some("it"));
    assert!(refusal.to_string().contains("it"), "{refusal}");
}

#[tokio::test(start_paused = true)]
async fn a_probe_whose_task_is_aborted_gives_its_place_back() {
    // C18: a probe that ended without a word held its place for ever
    let layer = touchy().build().unwrap();
    layer.circuit().half_open().unwrap();
    let hung = layer.layer(tower::service_fn(|()| std::future::pending::<Result<(), BoxError>>()));
    let probe = tokio::spawn(hung.oneshot(()));
    tokio::task::yield_now().await;
    assert_eq!(layer.circuit().snapshot().probes, 1);
    probe.abort();
    assert!(probe.await.unwrap_err().is_cancelled());
    assert_eq!(layer.circuit().snapshot().probes, 0);
}

#[test]
fn it_needs_no_runtime_no_timer_and_no_task() {
    // C25, C31: a timer's thread kept a process alive, and an interrupted one sent it into recursion
    let layer = touchy().open_time(Duration::ZERO).build().unwrap();
    let mut service =
        layer.layer(tower::service_fn(|ok: bool| std::future::ready(if ok { Ok(()) } else { Err("no") })));
    let mut call = |ok| {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(service.poll_ready(&mut cx).is_ready());
        task::spawn(service.call(ok)).poll()
    };
    for _ in 0..1_000 {
        assert!(call(false).map(|result| result.is_err()).is_ready());
        assert_eq!(layer.circuit().state(), State::Open);
        assert!(call(true).map(|result| result.is_ok()).is_ready());
        assert_eq!(layer.circuit().state(), State::Closed);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_queues_by_default() {
    // P24: the defaults of a builder queued 9 990 calls for ever
    let layer = touchy().build().unwrap();
    layer.circuit().open().unwrap();
    let service = layer.layer(tower::service_fn(|()| std::future::pending::<Result<(), BoxError>>()));
    for _ in 0..10_000 {
        let mut service = service.clone();
        service.ready().await.unwrap();
        assert_ready_err!(task::spawn(service.call(())).poll());
    }
}

#[tokio::test(start_paused = true)]
async fn calls_run_side_by_side() {
    // P31: a lock that was held across the call made one of a hundred
    let service = touchy().build().unwrap().layer(tower::service_fn(|()| async {
        sleep(SECOND).await;
        Ok::<_, BoxError>(())
    }));
    let start = Instant::now();
    let calls: Vec<_> = (0..100).map(|_| tokio::spawn(service.clone().oneshot(()))).collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(start.elapsed(), SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_target_that_fails_quickly_does_not_look_good_and_one_without_calls_has_no_rate() {
    // G127: no samples were divided by zero, and the target that failed in 1 ms looked the fastest
    let layer =
        BreakerLayer::builder().classify(ErrorsOnly).slow_after(SECOND).slow_rate(0.5).build().unwrap();
    let circuit = layer.circuit().clone();
    let counts = circuit.counts();
    assert_eq!((counts.failure_rate, counts.slow_rate, circuit.condition()), (None, None, Condition::Good));
    let mut service = layer.layer(tower::service_fn(|()| async { Err::<(), _>(BoxError::from("no")) }));
    for _ in 0..10 {
        service.ready().await.unwrap().call(()).await.unwrap_err();
    }
    assert_eq!(circuit.condition(), Condition::Poor);
}

/// A body that goes on for ever, and holds something.
#[derive(Debug)]
struct Endless {
    _held: Arc<()>,
}

impl Body for Endless {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"more")))))
    }
}

#[tokio::test(start_paused = true)]
async fn who_drops_the_answer_drops_what_is_inside() {
    // G128: the client was gone, and the upstream went on
    let upstream = Arc::new(());
    let held = upstream.clone();
    let layer = BreakerLayer::builder().build().unwrap();
    let mut service = layer.layer(tower::service_fn(move |_: Request<()>| {
        let held = held.clone();
        async move {
            sleep(SECOND).await;
            Ok::<_, Infallible>(Response::new(Endless { _held: held }))
        }
    }));
    let idle = Arc::strong_count(&upstream);
    // the future
    let mut call = task::spawn(service.ready().await.unwrap().call(Request::new(())));
    assert_pending!(call.poll());
    assert_eq!(Arc::strong_count(&upstream), idle + 1);
    drop(call);
    assert_eq!(Arc::strong_count(&upstream), idle);
    // the body
    let mut body = service.ready().await.unwrap().call(Request::new(())).await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    assert_eq!(Arc::strong_count(&upstream), idle + 1);
    drop(body);
    assert_eq!(Arc::strong_count(&upstream), idle);
}
