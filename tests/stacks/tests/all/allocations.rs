//! On a ready inner service whose answer is good, the layers add no allocation and no yield.
//! The allocator of the binary counts, for each thread alone.

use std::{
    future::{Ready, ready},
    pin::pin,
    task::{Context, Poll, Waker},
};

use allocation_counter::measure;
use breaker_layer::BreakerLayer;
use failsoft_core::{BoxError, ErrorsOnly};
use fallback_layer::{FallbackLayer, Route};
use retry_layer::{HedgeLayer, ReflectLayer, RetryLayer, reflect::reask_fn};
use tower::{Layer, Service, ServiceBuilder};

const CALLS: u64 = 1_000;

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

/// Calls until a call is not ready at its first poll, and counts what is allocated meanwhile.
fn free_of_cost<S>(name: &str, mut service: S)
where
    S: Service<u64, Response = u64, Error = BoxError>,
{
    let mut answered = 0;
    let mut call = |request| {
        let mut cx = Context::from_waker(Waker::noop());
        assert!(service.poll_ready(&mut cx).is_ready());
        let future = pin!(service.call(request));
        answered += u64::from(matches!(future.poll(&mut cx), Poll::Ready(Ok(answer)) if answer == request));
    };
    // What is made at first use, such as a thread's own state, is not the calls'.
    (0..100).for_each(&mut call);
    let allocated = measure(|| (100..100 + CALLS).for_each(&mut call));
    assert_eq!(allocated.count_total, 0, "{name} allocates");
    assert_eq!(answered, 100 + CALLS, "{name} yields or fails");
}

#[test]
fn a_closed_breaker_costs_no_allocation_and_no_yield() {
    free_of_cost("breaker", BreakerLayer::builder().classify(ErrorsOnly).build().unwrap().layer(Echo));
}

#[test]
fn a_retry_with_nothing_to_retry_costs_no_allocation_and_no_yield() {
    free_of_cost("retry", RetryLayer::builder().classify(ErrorsOnly).build().unwrap().layer(Echo));
}

#[test]
fn a_retry_with_limits_that_no_call_comes_near_costs_no_allocation_and_no_yield() {
    let (attempt, all) = (std::time::Duration::from_secs(4), std::time::Duration::from_secs(9));
    let layer =
        RetryLayer::builder().classify(ErrorsOnly).attempt_timeout(attempt).deadline(all).build().unwrap();
    free_of_cost("retry with limits", layer.layer(Echo));
}

#[test]
fn a_hedge_whose_answer_is_there_at_once_costs_no_allocation_and_no_yield() {
    let builder = || HedgeLayer::builder().classify(ErrorsOnly);
    free_of_cost(
        "hedge by a fixed delay",
        builder().delay(std::time::Duration::ZERO).build().unwrap().layer(Echo),
    );
    free_of_cost("hedge by a quantile", builder().min_calls(20).build().unwrap().layer(Echo));
}

#[test]
fn a_reflect_with_nothing_to_ask_again_costs_no_allocation_and_no_yield() {
    let layer = ReflectLayer::builder(reask_fn(|request: u64, _| Some(request)));
    free_of_cost("reflect", layer.classify(ErrorsOnly).build().unwrap().layer(Echo));
}

#[test]
fn a_fallback_whose_first_route_is_good_costs_no_allocation_and_no_yield() {
    let layer =
        FallbackLayer::builder().classify(ErrorsOnly).route(Route::new("second", Echo)).build().unwrap();
    free_of_cost("fallback", layer.layer(Echo));
}

#[test]
fn the_three_around_each_other_cost_no_allocation_and_no_yield() {
    let route = || {
        ServiceBuilder::new()
            .layer(RetryLayer::builder().classify(ErrorsOnly).build().unwrap())
            .layer(BreakerLayer::builder().classify(ErrorsOnly).build().unwrap())
            .service(Echo)
    };
    let layer =
        FallbackLayer::builder().classify(ErrorsOnly).route(Route::new("second", route())).build().unwrap();
    free_of_cost("stack", layer.layer(route()));
}
