//! `tower::balance`: a balancer asks each endpoint whether it is ready.

use breaker_layer::engine::State;
use failsoft_core::BoxError;
use tower::{
    Layer as _, ServiceBuilder, ServiceExt as _,
    balance::p2c::Balance,
    discover::ServiceList,
    load::{CompleteOnResponse, PendingRequests},
};

use crate::{SECOND, Upstream, breaker_builder, request, retry};

/// retry(buffer(balance(breaker(endpoint), …))): the order for endpoints that are alike. Each has a circuit that waits while it is open.
#[tokio::test(start_paused = true)]
async fn an_endpoint_whose_circuit_is_open_is_left_until_it_is_back() {
    // The first fails twice, and is well again.
    let endpoints = [Upstream::new([(0, 503), (0, 503), (0, 200)]), Upstream::new([(0, 200)])];
    let mut circuits = Vec::new();
    let services: Vec<_> = endpoints
        .iter()
        .map(|endpoint| {
            let breaker = breaker_builder(2).pending_while_open().build().unwrap();
            circuits.push(breaker.circuit().clone());
            PendingRequests::new(breaker.layer(endpoint.service()), CompleteOnResponse::default())
        })
        .collect();
    let balance = Balance::new(ServiceList::new(services));
    let service = ServiceBuilder::new()
        .layer(retry(1).without_budget().build().unwrap())
        .buffer(8)
        .map_err(BoxError::from)
        .service(balance);
    let ask = async || {
        let response = service.clone().oneshot(request()).await.unwrap();
        assert_eq!(response.status(), 200, "a further attempt has another endpoint");
        http_body_util::BodyExt::collect(response.into_body()).await.unwrap();
    };
    let mut asked = 0;
    while circuits[0].state() == State::Closed && asked < 1_000 {
        ask().await;
        asked += 1;
    }
    assert_eq!((circuits[0].state(), endpoints[0].calls()), (State::Open, 2));
    for _ in 0..50 {
        ask().await;
    }
    assert_eq!(endpoints[0].calls(), 2, "nothing is sent there, and nothing is refused");
    tokio::time::sleep(31 * SECOND).await;
    asked = 0;
    while circuits[0].state() != State::Closed && asked < 1_000 {
        ask().await;
        asked += 1;
    }
    assert_eq!(circuits[0].state(), State::Closed);
}
