//! Readiness, cancellation, and what is held while a call waits.

use std::{
    future::{Future, poll_fn, ready},
    io,
    pin::pin,
    task::Poll,
    time::Duration,
};

use crate::common::{Do, Request, Upstream, exact, get, post};
use failsoft_core::{Auto, BoxError, ByResponse, Call, Class, ErrorsOnly, Fault, Next};
use retry_layer::{ResponseFuture, Retry, RetryBudget, RetryLayer};
use static_assertions::assert_impl_all;
use tokio::time::{Instant, advance, sleep, timeout};
use tower::{Layer, Service, ServiceExt, buffer::Buffer, limit::ConcurrencyLimit};

assert_impl_all!(RetryLayer: Clone, Send, Sync);
assert_impl_all!(RetryBudget: Clone, Send, Sync);
assert_impl_all!(Retry<Upstream>: Clone, Send, Sync);
assert_impl_all!(ResponseFuture<Upstream, Request, ByResponse, Auto>: Send);

/// Lets every task go on until all of them wait.
async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

// The upstream of all these tests panics when it is called without being ready.
#[tokio::test(start_paused = true)]
async fn readiness_may_be_asked_often_and_a_clone_carries_none() {
    let upstream = Upstream::new([Do::Status(500)], Do::Status(200));
    let mut service = exact().build().unwrap().layer(upstream.clone());
    for _ in 0..3 {
        poll_fn(|cx| Service::<Request>::poll_ready(&mut service, cx)).await.unwrap();
    }
    let clone = service.clone();
    service.call(get()).await.unwrap();
    clone.oneshot(get()).await.unwrap();
    assert_eq!(upstream.calls(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_gives_its_permit_back_before_the_wait_and_takes_one_again() {
    let upstream = Upstream::new([Do::Status(500), Do::Reset, Do::Status(200)], Do::Status(201));
    let limited = ConcurrencyLimit::new(upstream.clone(), 1);
    let service = exact().build().unwrap().layer(limited);
    let first = tokio::spawn(service.clone().oneshot(get()));
    settle().await;
    // P31: while the first waits, another may go.
    let began = Instant::now();
    let error = service.clone().oneshot(post()).await.unwrap_err();
    assert!(error.is::<io::Error>());
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(first.await.unwrap().unwrap().status(), 200);
    assert_eq!(service.oneshot(get()).await.unwrap().status(), 201);
}

#[tokio::test(start_paused = true)]
async fn a_buffer_may_stand_inside_and_outside() {
    let upstream = Upstream::new([Do::Status(500), Do::Reset], Do::Status(200));
    let inside = exact().build().unwrap().layer(Buffer::new(upstream.clone(), 4));
    assert_eq!(inside.oneshot(get()).await.unwrap().status(), 200);
    assert_eq!(upstream.calls(), 3);

    let upstream = Upstream::new([Do::Status(500), Do::Reset], Do::Status(200));
    let outside = Buffer::new(exact().build().unwrap().layer(upstream.clone()), 4);
    assert_eq!(outside.oneshot(get()).await.unwrap().status(), 200);
    assert_eq!(upstream.calls(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_not_ready_again_in_time_leaves_the_previous_outcome() {
    for fails in [false, true] {
        let upstream = Upstream::ready_for(1, fails, [Do::Reset], Do::Status(200));
        let (call, began) = (Call::begin(), Instant::now());
        let service = exact().build().unwrap().layer(upstream.clone());
        let error = call.scope(service.oneshot(get())).await.unwrap_err();
        assert!(error.is::<io::Error>());
        let waited = Duration::from_secs(if fails { 1 } else { 2 });
        assert!(began.elapsed().abs_diff(waited) < Duration::from_millis(5), "{:?}", began.elapsed());
        let trail = call.trail();
        let [attempt] = trail.attempts() else { panic!("{trail}") };
        let decided: Vec<_> = attempt.decisions().map(|decision| decision.next).collect();
        assert_eq!(decided, [Next::Retry, Next::NotReady]);

        let upstream = Upstream::ready_for(1, fails, [Do::Status(503)], Do::Status(200));
        let service = exact().build().unwrap().layer(upstream);
        let error = service.oneshot(get()).await.unwrap_err();
        let fault = Fault::find(&*error).unwrap();
        assert_eq!((fault.class(), fault.status()), (Class::Overloaded, Some(503)));
    }
}

#[tokio::test(start_paused = true)]
async fn the_bound_of_readiness_is_the_deadlines_where_that_is_nearer() {
    let upstream = Upstream::ready_for(1, false, [Do::Reset], Do::Status(200));
    let builder = exact().deadline(Duration::from_millis(1_300)).ready_within(Duration::from_secs(60));
    let began = Instant::now();
    builder.build().unwrap().layer(upstream).oneshot(get()).await.unwrap_err();
    assert!(began.elapsed().abs_diff(Duration::from_millis(1_300)) < Duration::from_millis(5));
}

#[tokio::test(start_paused = true)]
async fn readiness_is_asked_again_before_each_attempt() {
    let (mut mock, mut handle) =
        tower_test::mock::spawn_layer::<u8, u8, _>(exact().classify(ErrorsOnly).build().unwrap());
    let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
    handle.allow(1);
    tokio_test::assert_ready_ok!(mock.poll_ready());
    let mut call = tokio_test::task::spawn(mock.call(7));
    tokio_test::assert_pending!(call.poll());
    let (request, respond) = handle.next_request().await.unwrap();
    assert_eq!(request, 7);
    respond.send_error(refused());
    // The wait is over, and nobody is ready: nothing is sent.
    tokio_test::assert_pending!(call.poll());
    advance(Duration::from_millis(1_500)).await;
    tokio_test::assert_pending!(call.poll());
    tokio_test::assert_pending!(handle.poll_request());
    handle.allow(1);
    assert!(call.is_woken());
    tokio_test::assert_pending!(call.poll());
    let (request, respond) = handle.next_request().await.unwrap();
    assert_eq!(request, 7);
    respond.send_response(8);
    assert_eq!(tokio_test::assert_ready_ok!(call.poll()), 8);
}

// G125
#[tokio::test(start_paused = true)]
async fn an_error_of_readiness_passes() {
    let upstream = Upstream::ready_for(0, true, [], Do::Status(200));
    let error = exact().build().unwrap().layer(upstream).oneshot(get()).await.unwrap_err();
    assert_eq!(error.to_string(), "not ready");
}

// P33
#[tokio::test(start_paused = true)]
async fn the_failed_response_is_let_go_before_the_wait() {
    let upstream = Upstream::new([Do::Status(503)], Do::Status(200));
    let mut call = pin!(exact().build().unwrap().layer(upstream.clone()).oneshot(get()));
    assert!(timeout(Duration::from_millis(500), &mut call).await.is_err());
    assert_eq!((upstream.calls(), upstream.bodies(), upstream.running()), (1, 0, 0));
    assert_eq!(call.await.unwrap().status(), 200);
}

// G128
#[tokio::test(start_paused = true)]
async fn dropped_at_any_point_it_leaves_nothing_behind() {
    let slow = |what| Do::After(Duration::from_millis(400), Box::new(what));
    for polls in 1..12 {
        let upstream = Upstream::new([slow(Do::Status(503)), slow(Do::Reset)], slow(Do::Status(200)));
        let limited = ConcurrencyLimit::new(upstream.clone(), 1);
        let layer = exact().attempt_timeout(Duration::from_secs(9)).build().unwrap();
        let service = layer.layer(limited);
        {
            let mut call = pin!(service.clone().oneshot(get()));
            for _ in 0..polls {
                let poll = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await;
                if poll.is_ready() {
                    break;
                }
                advance(Duration::from_millis(400)).await;
            }
        }
        assert_eq!((upstream.running(), upstream.bodies()), (0, 0), "{polls}");
        // The permit is back.
        assert!(timeout(Duration::from_secs(60), service.oneshot(get())).await.is_ok(), "{polls}");
    }
}

// P21
#[tokio::test(start_paused = true)]
async fn a_panic_of_the_service_is_a_panic() {
    let service = tower::service_fn(|_: String| async {
        sleep(Duration::from_millis(1)).await;
        assert!(std::hint::black_box(false), "on purpose");
        Ok::<_, io::Error>(())
    });
    let service = exact().classify(ErrorsOnly).build().unwrap().layer(service);
    let joined = tokio::spawn(service.oneshot("ask".to_owned())).await;
    assert!(joined.unwrap_err().is_panic());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_succeeds_at_once_takes_one_poll() {
    let service = tower::service_fn(|_: u32| ready(Ok::<_, io::Error>(7)));
    let service = exact().classify(ErrorsOnly).build().unwrap().layer(service);
    let mut call = pin!(service.oneshot(1));
    let poll = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await;
    assert!(matches!(poll, Poll::Ready(Ok(7))));
}

#[tokio::test(start_paused = true)]
async fn inner_layers_see_the_call_in_each_attempt() {
    let call = Call::options().timeout(Duration::from_secs(60)).begin();
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let push = std::sync::Arc::clone(&seen);
    let service = tower::service_fn(move |_: String| {
        let seen = std::sync::Arc::clone(&push);
        async move {
            tokio::task::yield_now().await;
            seen.lock().unwrap().push(Call::current_deadline());
            Err::<(), _>(BoxError::from(io::Error::from(io::ErrorKind::ConnectionReset)))
        }
    });
    let service = exact().classify(ErrorsOnly).max_retries(2).build().unwrap().layer(service);
    call.scope(service.oneshot("ask".to_owned())).await.unwrap_err();
    assert_eq!(*seen.lock().unwrap(), [call.deadline(); 3]);
}
