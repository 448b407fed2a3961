//! The layers on an axum router: their errors become responses, and one circuit serves all routes.

use std::time::Duration;

use axum::{Router, body::Body, http::Request, routing::get};
use breaker_layer::BreakerLayer;
use failsoft_core::{CallLayer, RespondLayer, TRAIL_HEADER, Trail};
use http_body_util::BodyExt as _;
use tower::{ServiceBuilder, ServiceExt};

fn router(breaker: BreakerLayer) -> Router {
    Router::new()
        .route("/good", get(|| async { "good" }))
        .route("/bad", get(|| async { (http::StatusCode::INTERNAL_SERVER_ERROR, "bad") }))
        .layer(
            ServiceBuilder::new()
                .layer(CallLayer::new().trail_header(true))
                .layer(RespondLayer)
                .layer(breaker),
        )
}

async fn ask(router: &Router, path: &str) -> axum::response::Response {
    router.clone().oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap()
}

#[tokio::test]
async fn a_refusal_is_a_503_that_says_when_to_come_back_and_not_to_retry() {
    let breaker = BreakerLayer::builder().name("handlers").build().unwrap();
    breaker.circuit().open_for(Duration::from_millis(29_500)).unwrap();
    let response = ask(&router(breaker), "/good").await;
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["retry-after"], "30");
    assert_eq!(response.headers()["x-should-retry"], "false");
    assert_eq!(response.headers()["content-type"], "application/json");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(body.starts_with(br#"{"error":{"type":"denied.circuit""#), "{body:?}");
}

#[tokio::test]
async fn all_routes_share_the_layers_circuit_and_answers_pass_as_they_are() {
    let router = router(BreakerLayer::builder().min_calls(5).build().unwrap());
    let good = ask(&router, "/good").await;
    assert!(good.extensions().get::<Trail>().is_some());
    assert!(!good.headers().contains_key(TRAIL_HEADER), "nothing happened on the way");
    assert_eq!(good.into_body().collect().await.unwrap().to_bytes(), "good");
    for _ in 0..4 {
        let bad = ask(&router, "/bad").await;
        assert_eq!(bad.status(), 500);
        assert_eq!(bad.into_body().collect().await.unwrap().to_bytes(), "bad");
    }
    assert_eq!(ask(&router, "/good").await.status(), 503);
}
