//! A call whose first route is good costs no allocation and no extra yield.
//! The allocator of the binary counts, for each thread alone.

use std::{
    future::{Future, Ready, ready},
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use allocation_counter::measure;
use failsoft_core::{BoxError, Call, ErrorsOnly};
use fallback_layer::{Fallback, FallbackLayer, Route, last_good::NoLastGood};
use tower::{Layer, Service};

#[derive(Clone)]
struct Echo;

impl Service<u64> for Echo {
    type Response = u64;
    type Error = BoxError;
    type Future = Ready<Result<u64, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: u64) -> Self::Future {
        ready(Ok(request))
    }
}

/// Answers at the second poll.
#[derive(Clone)]
struct Later;

struct Second(bool);

impl Future for Second {
    type Output = Result<u64, BoxError>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        if std::mem::replace(&mut self.0, true) { Poll::Ready(Ok(2)) } else { Poll::Pending }
    }
}

impl Service<u64> for Later {
    type Response = u64;
    type Error = BoxError;
    type Future = Second;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: u64) -> Second {
        Second(false)
    }
}

type Service_<S> = Fallback<S, S, ErrorsOnly, failsoft_core::Auto, NoLastGood>;

fn fallback<S: Clone>(service: &S) -> Service_<S> {
    let layer = FallbackLayer::builder().classify(ErrorsOnly).route(Route::new("b", service.clone()));
    layer.build().unwrap().layer(service.clone())
}

#[test]
fn the_first_route_is_good_at_once_with_no_allocation_and_no_yield() {
    let mut service = fallback(&Echo);
    let mut cx = Context::from_waker(Waker::noop());
    let mut answers = 0;
    let allocated = measure(|| {
        for request in 0..1_000 {
            assert!(service.poll_ready(&mut cx).is_ready());
            let Poll::Ready(answer) = pin!(service.call(request)).poll(&mut cx) else { panic!("it yielded") };
            answers += u64::from(answer.is_ok());
        }
    });
    assert_eq!((answers, allocated.count_total), (1_000, 0));
}

#[tokio::test(start_paused = true)]
async fn the_first_route_is_good_later_with_no_allocation_and_no_further_yield() {
    let mut service = fallback(&Later);
    let mut cx = Context::from_waker(Waker::noop());
    // The timer wheel is set up once.
    assert!(pin!(tokio::time::sleep(std::time::Duration::from_secs(1))).poll(&mut cx).is_pending());
    let allocated = measure(|| {
        for request in 0..1_000 {
            let mut call = pin!(service.call(request));
            assert!(call.as_mut().poll(&mut cx).is_pending());
            assert!(call.poll(&mut cx).is_ready());
        }
    });
    assert_eq!(allocated.count_total, 0);
}

#[test]
fn inside_a_call_the_only_cost_is_the_trail_that_was_asked_for() {
    let mut service = fallback(&Echo);
    let mut cx = Context::from_waker(Waker::noop());
    let call = Call::begin();
    call.enter(|| assert!(pin!(service.call(1)).poll(&mut cx).is_ready()));
    let trail = call.trail();
    assert_eq!(trail.to_string(), "first success (answered)");
}

#[test]
fn a_boxed_route_costs_one_allocation_for_a_call() {
    let boxed = |service: Echo| fallback_layer::BoxRoute::<u64, u64>::new(service);
    let layer = FallbackLayer::builder().classify(ErrorsOnly).route(Route::new("b", boxed(Echo)));
    let mut service = layer.build().unwrap().layer(boxed(Echo));
    let mut cx = Context::from_waker(Waker::noop());
    let allocated = measure(|| {
        for request in 0..1_000 {
            assert!(pin!(service.call(request)).poll(&mut cx).is_ready());
        }
    });
    assert_eq!(allocated.count_total, 1_000);
}
