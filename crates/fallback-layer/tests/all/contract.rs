//! Readiness, cancellation, buffers, and what the types promise.

use std::{future::Future, sync::Arc, time::Duration};

use crate::support::{Does, Target};
use failsoft_core::{BoxError, Class, ErrorsOnly};
use fallback_layer::{BoxRoute, FallbackLayer, ResponseFuture, Route};
use tokio_test::{assert_pending, assert_ready_ok, task};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, buffer::Buffer, limit::ConcurrencyLimit};
use tower_test::{assert_request_eq, mock};

type Limited = ConcurrencyLimit<Target>;

fn limited(target: &Target) -> Limited {
    ConcurrencyLimit::new(target.clone(), 1)
}

#[tokio::test]
async fn it_is_always_ready_and_reserves_nothing() {
    let (inner, mut handle) = mock::pair::<&'static str, &'static str>();
    let (backup, _backup_handle) = mock::pair::<&'static str, &'static str>();
    let layer = FallbackLayer::builder().classify(ErrorsOnly).route(Route::new("b", backup)).build().unwrap();
    let mut service = mock::Spawn::new(layer.layer(inner));
    handle.allow(0);
    assert_ready_ok!(service.poll_ready());
    assert_ready_ok!(service.poll_ready());
    let mut answer = task::spawn(service.call("question"));
    assert_pending!(answer.poll());
    handle.allow(1);
    assert!(answer.is_woken());
    assert_pending!(answer.poll());
    assert_request_eq!(handle, "question").send_response("answer");
    assert_eq!(assert_ready_ok!(answer.poll()), "answer");
}

#[tokio::test]
async fn a_mocks_error_sends_the_same_request_to_the_next_route() {
    let (first, mut first_handle) = mock::pair::<&'static str, &'static str>();
    let (backup, mut backup_handle) = mock::pair::<&'static str, &'static str>();
    let layer = FallbackLayer::builder().classify(ErrorsOnly).route(Route::new("b", backup)).build().unwrap();
    let mut answer = task::spawn(layer.layer(first).oneshot("question"));
    assert_pending!(answer.poll());
    assert_request_eq!(first_handle, "question").send_error("no");
    assert_pending!(answer.poll());
    assert_request_eq!(backup_handle, "question").send_response("answer");
    assert_eq!(assert_ready_ok!(answer.poll()), "answer");
}

/// Drops a call after so many polls, in each of the states that it goes through, and then asks again: whatever was
/// held must have been given back.
#[tokio::test(start_paused = true)]
async fn dropped_at_any_await_point_everything_is_given_back() {
    let slow = Duration::from_secs(1);
    for polls in 0..8 {
        for ready_first in [true, false] {
            let a = Target::new("a", Does::FailAfter(slow, Class::Transient));
            let b = Target::new("b", Does::AnswerAfter(slow));
            let (first, second) = (limited(&a), limited(&b));
            let layer = FallbackLayer::builder()
                .classify(ErrorsOnly)
                .route(Route::new("b", second.clone()))
                .build()
                .unwrap();
            let mut service = layer.layer(first.clone());
            if ready_first {
                std::future::poll_fn(|cx| Service::<u8>::poll_ready(&mut service, cx)).await.unwrap();
            }
            let mut future = task::spawn(service.call(1_u8));
            for _ in 0..polls {
                if future.poll().is_ready() {
                    break;
                }
                tokio::time::advance(Duration::from_millis(600)).await;
            }
            drop(future);
            for mut limit in [first, second] {
                let ready = std::future::poll_fn(|cx| Service::<u8>::poll_ready(&mut limit, cx));
                tokio::time::timeout(Duration::from_millis(1), ready)
                    .await
                    .unwrap_or_else(|_| panic!("a permit is held after {polls} polls"))
                    .unwrap();
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_route_gives_its_permit_back_before_the_next_one_runs() {
    // Both routes share the one permit.
    let failing = Target::new("a", Does::FailAfter(Duration::from_secs(1), Class::Transient));
    let shared = Arc::new(tokio::sync::Semaphore::new(1));
    let first = ConcurrencyLimit::with_semaphore(failing, shared.clone());
    let second = ConcurrencyLimit::with_semaphore(Target::new("b", Does::Answer), shared);
    let layer = FallbackLayer::builder().classify(ErrorsOnly).route(Route::new("b", second)).build().unwrap();
    assert_eq!(layer.layer(first).oneshot(1_u8).await.unwrap(), "b");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_busy_is_left_and_works_again_later() {
    let a = Target::new("a", Does::Hang);
    let first = limited(&a);
    let layer = FallbackLayer::builder()
        .classify(ErrorsOnly)
        .route(Route::new("b", limited(&Target::new("b", Does::Answer))))
        .build()
        .unwrap();
    let service = layer.layer(first);
    let mut hanging = task::spawn(service.clone().oneshot(1_u8));
    assert_pending!(hanging.poll());
    assert_eq!(service.clone().oneshot(1_u8).await.unwrap(), "b");
    drop(hanging);
    a.now(Does::Answer);
    assert_eq!(service.oneshot(1_u8).await.unwrap(), "a");
}

#[tokio::test]
async fn a_buffer_outside_and_buffers_inside_survive_failing_routes() {
    let a = Target::new("a", Does::Fail(Class::Transient));
    let b = Target::new("b", Does::Answer);
    let layer = FallbackLayer::builder()
        .classify(ErrorsOnly)
        .route(Route::new("b", Buffer::new(b.clone(), 4)))
        .build()
        .unwrap();
    let service = Buffer::new(layer.layer(Buffer::new(a.clone(), 4)), 4);
    for _ in 0..3 {
        assert_eq!(service.clone().oneshot(1_u8).await.unwrap(), "b");
    }
    // A denial of the call is no error of the service: the worker outside goes on.
    b.now(Does::Fail(Class::Invalid));
    service.clone().oneshot(1_u8).await.unwrap_err();
    a.now(Does::Answer);
    assert_eq!(service.oneshot(1_u8).await.unwrap(), "a");
}

#[tokio::test]
async fn an_inner_buffer_whose_worker_died_is_just_another_failed_route() {
    let dead = Buffer::new(Target::new("a", Does::FailReady), 4);
    let layer = FallbackLayer::builder()
        .classify(ErrorsOnly)
        .route(Route::new("b", Buffer::new(Target::new("b", Does::Answer), 4)))
        .build()
        .unwrap();
    let service = layer.layer(dead);
    for _ in 0..3 {
        assert_eq!(service.clone().oneshot(1_u8).await.unwrap(), "b");
    }
}

#[tokio::test]
async fn a_panic_of_a_route_stays_a_panic_and_the_service_works_on() {
    let panics = tower::service_fn(|panics: bool| async move {
        assert!(!panics, "on purpose");
        Ok::<_, BoxError>("a")
    });
    let layer = FallbackLayer::builder()
        .classify(ErrorsOnly)
        .route(Route::new("b", ConcurrencyLimit::new(Target::new("b", Does::Answer), 1)))
        .build()
        .unwrap();
    let service = layer.layer(panics);
    let task = tokio::spawn(service.clone().oneshot(true));
    assert!(task.await.unwrap_err().is_panic());
    assert_eq!(service.oneshot(false).await.unwrap(), "a");
}

#[tokio::test]
async fn a_boxed_route_carries_no_readiness_to_its_clones() {
    let mut boxed = BoxRoute::new(limited(&Target::new("b", Does::Answer)));
    std::future::poll_fn(|cx| Service::<u8>::poll_ready(&mut boxed, cx)).await.unwrap();
    let mut clone = task::spawn(boxed.clone());
    assert_pending!(clone.enter(|cx, mut clone| Service::<u8>::poll_ready(&mut *clone, cx)));
    assert_eq!(boxed.call(1).await.unwrap(), "b");
}

#[tokio::test]
async fn it_goes_into_a_service_builder_between_other_layers() {
    let layer = FallbackLayer::builder()
        .classify(ErrorsOnly)
        .route(Route::boxed("b", Target::new("b", Does::Answer)))
        .build()
        .unwrap();
    let service = ServiceBuilder::new()
        .concurrency_limit(4)
        .layer(layer)
        .timeout(Duration::from_secs(9))
        .check_service::<Target, u8, &'static str, BoxError>()
        .service(Target::new("a", Does::Fail(Class::Transient)));
    assert_eq!(service.oneshot(1).await.unwrap(), "b");
}

#[test]
fn it_is_send_sync_and_clone_where_its_parts_are() {
    fn service<S: Clone + Send + Sync + 'static>(_: &S) {}
    fn future<F: Future + Send + 'static>(_: &F) {}
    let layer = FallbackLayer::builder().route(Route::new("b", reqwest::Client::new())).build().unwrap();
    let fallback = layer.layer(reqwest::Client::new());
    service(&layer);
    service(&fallback);
    future(
        &fallback
            .clone()
            .call(reqwest::Request::new(reqwest::Method::GET, "http://127.0.0.1:1/".parse().unwrap())),
    );
    static_assertions::assert_impl_all!(BoxRoute<u8, u8>: Clone, Send, Sync);
    static_assertions::assert_impl_all!(
        ResponseFuture<Target, Target, u8, ErrorsOnly, failsoft_core::Auto, fallback_layer::last_good::NoLastGood>:
            Send
    );
}
