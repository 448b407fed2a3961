//! `tower::buffer`: its worker is another task, which readies the service inside and calls it.

use std::{
    io,
    task::{Context, Poll},
};

use budget_layer::BudgetLayer;
use failsoft_core::{
    BoxError, Call, CarryLayer, Class, Denier, ErrorsOnly, Fault, Mark, Next, UncarryLayer, Usage,
};
use fallback_layer::{FallbackLayer, Route};
use tokio::time::Instant;
use tower::{Layer as _, Service, ServiceBuilder, ServiceExt as _, buffer::Buffer, service_fn};

use crate::{SECOND, Upstream, breaker, breaker_builder, request, retry};

#[tokio::test(start_paused = true)]
async fn a_breaker_under_a_buffer_refuses_and_does_not_end_it() {
    let upstream = Upstream::new([(0, 500), (0, 500), (0, 200)]);
    let (breaker, circuit) = breaker(2);
    let service = ServiceBuilder::new().buffer(8).layer(breaker).service(upstream.service());
    for _ in 0..2 {
        assert_eq!(service.clone().oneshot(request()).await.unwrap().status(), 500);
    }
    for _ in 0..20 {
        let refused = service.clone().oneshot(request()).await.err().unwrap();
        // As it was made: a buffer wraps only what its worker died of.
        assert_eq!(refused.downcast_ref::<Fault>().unwrap().class(), Class::Denied(Denier::Circuit));
    }
    circuit.reset();
    assert_eq!(service.oneshot(request()).await.unwrap().status(), 200);
    assert_eq!(upstream.calls(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_breaker_over_a_buffer_counts_the_errors_from_inside_and_lets_slots_go_when_it_refuses() {
    let upstream = service_fn(async |_: String| {
        Err::<(), BoxError>(io::Error::from(io::ErrorKind::ConnectionReset).into())
    });
    let layer = breaker_builder(2).classify(ErrorsOnly).build().unwrap();
    let circuit = layer.circuit().clone();
    let mut service = layer.layer(Buffer::new(upstream, 1));
    for _ in 0..2 {
        let error = service.ready().await.unwrap().call(String::new()).await.unwrap_err();

        assert!(error.is::<io::Error>());
    }
    // The only slot is taken by readiness; refused, it is free for the next.
    circuit.reset();
    let mut other = service.clone();
    service.ready().await.unwrap();
    circuit.open().unwrap();
    let refused = service.call(String::new()).await.unwrap_err();
    assert!(Fault::find(&*refused).unwrap().class().is_denied());
    circuit.reset();
    tokio::time::timeout(SECOND, other.ready()).await.unwrap().unwrap();
}

/// The circuit learns of the outcome when the caller polls, which is in its retry's scope; so the worker need not know of the call.
#[tokio::test(start_paused = true)]
async fn a_wait_of_a_retry_ends_when_a_circuit_behind_a_buffer_opens() {
    for is_carried in [true, false] {
        let upstream = Upstream::new([(0, 503)]);
        let (breaker, circuit) = breaker(100);
        let retry = retry(60).build().unwrap();
        let stack = ServiceBuilder::new().layer(retry);
        let waiting = if is_carried {
            let buffered = stack.layer(CarryLayer).buffer(8).layer(UncarryLayer).layer(breaker);
            tokio::spawn(buffered.service(upstream.service()).oneshot(request()))
        } else {
            tokio::spawn(stack.buffer(8).layer(breaker).service(upstream.service()).oneshot(request()))
        };
        let began = Instant::now();
        tokio::time::sleep(SECOND).await;
        assert_eq!(upstream.calls(), 1);
        circuit.open().unwrap();
        // What the upstream said is the outcome, not the refusal that would have come.
        let error = waiting.await.unwrap().err().unwrap();
        let fault = Fault::find(&*error).unwrap();
        assert_eq!((fault.class(), fault.status()), (Class::Overloaded, Some(503)));
        assert_eq!((began.elapsed(), upstream.calls()), (SECOND, 1), "{is_carried}");
    }
}

/// Where the retry itself is behind the buffer, its caller polls it there too.
#[tokio::test(start_paused = true)]
async fn a_retry_behind_a_carried_buffer_is_bounded_by_its_caller_and_tells_it_all() {
    let upstream = Upstream::new([(0, 503)]);
    let service = ServiceBuilder::new()
        .layer(CarryLayer)
        .buffer(8)
        .layer(UncarryLayer)
        .layer(retry(2).build().unwrap())
        .service(upstream.service());
    let call = Call::options().timeout(5 * SECOND).begin();
    let response = call.scope(service.oneshot(request())).await.unwrap();
    // At 0, 2 and 4 s; a wait that ends after the deadline is not begun.
    assert_eq!((response.status().as_u16(), upstream.calls()), (503, 3));
    let next: Vec<_> = call.trail().attempts().iter().map(|attempt| attempt.next).collect();
    assert_eq!(next, [Next::Retry, Next::Retry, Next::DeadlineNear]);
}

/// What a model does for the books: it says what it used.
async fn model(_: String) -> Result<bool, BoxError> {
    if let Some(mut slot) = Call::slot() {
        slot.set(&Usage { input: Some(10), output: Some(30), ..Usage::default() });
    }
    Ok(Call::is_marked(Mark::Final))
}

#[tokio::test(start_paused = true)]
async fn a_budget_under_a_buffer_is_exact_and_a_carried_call_has_its_usage_and_its_marks() {
    for is_carried in [true, false] {
        let layer =
            BudgetLayer::builder().tokens(100).estimate_fixed(60).classify(ErrorsOnly).build().unwrap();
        let budget = layer.budget().clone();
        let call = Call::options().mark(Mark::Final).begin();
        let answer = if is_carried {
            let service = ServiceBuilder::new()
                .layer(CarryLayer)
                .buffer(8)
                .layer(UncarryLayer)
                .layer(layer)
                .service_fn(model);
            call.scope(service.oneshot(String::new())).await.unwrap()
        } else {
            let service = ServiceBuilder::new().buffer(8).layer(layer).service_fn(model);
            call.scope(service.oneshot(String::new())).await.unwrap()
        };
        assert_eq!((budget.spent(), budget.reserved()), (40, 0), "{is_carried}");
        // Without it, the worker is nobody's: neither the mark reaches the model, nor what it used the call.
        let usage = if is_carried { 40 } else { 0 };
        assert_eq!((answer, call.usage().total()), (is_carried, usage));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_on_its_way_through_a_buffer_gives_its_budget_back() {
    let layer = BudgetLayer::builder().tokens(100).estimate_fixed(60).build().unwrap();
    let budget = layer.budget().clone();
    let upstream = Upstream::new([(10, 200)]);
    let service = ServiceBuilder::new().buffer(8).layer(layer).service(upstream.service());
    let dropped = tokio::time::timeout(SECOND, service.clone().oneshot(request())).await;
    assert!(dropped.is_err());
    assert_eq!((budget.reserved(), upstream.calls()), (0, 1));
    // One that the worker has not reached yet was never charged.
    let before = budget.spend().calls();
    let mut never = tokio_test::task::spawn(service.oneshot(request()));
    assert!(never.poll().is_pending());
    drop(never);
    tokio::time::sleep(SECOND).await;
    assert_eq!((budget.reserved(), budget.spend().calls(), upstream.calls()), (0, before, 1));
}

/// Its readiness fails, which ends a buffer for good.
struct Dead;

impl Service<String> for Dead {
    type Response = &'static str;
    type Error = BoxError;
    type Future = std::future::Pending<Result<&'static str, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Err(io::Error::from(io::ErrorKind::ConnectionRefused).into()))
    }

    fn call(&mut self, _: String) -> Self::Future {
        std::future::pending()
    }
}

#[tokio::test(start_paused = true)]
async fn a_fallback_leaves_a_route_whose_buffer_is_dead() {
    let second = service_fn(async |_: String| Ok::<_, BoxError>("second"));
    let layer =
        FallbackLayer::builder().classify(ErrorsOnly).route(Route::new("second", second)).build().unwrap();
    let service = layer.layer(Buffer::new(Dead, 8));
    for _ in 0..3 {
        let call = Call::begin();
        assert_eq!(call.scope(service.clone().oneshot(String::new())).await.unwrap(), "second");
        // What the worker died of is known, also to those who come later.
        assert_eq!(call.trail().attempts()[0].verdict.class(), Class::Transient);
    }
}
