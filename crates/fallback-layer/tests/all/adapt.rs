//! Routes with requests and answers of their own, and routes that are built for a request.

use std::{convert::Infallible, time::Duration};

use crate::support::{Does, Target, fault, traced};
use failsoft_core::{BoxError, Call, Class, ErrorsOnly, Fault, SoftKind};
use fallback_layer::{Builder, FallbackLayer, Return, Route, adapt};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

fn builder<R>() -> Builder<R, ErrorsOnly> {
    FallbackLayer::builder().classify(ErrorsOnly).name("a")
}

fn down() -> impl Service<String, Response = String, Error = BoxError, Future: Send> + Clone + Send + Sync {
    service_fn(|_: String| async { Err::<String, _>(Fault::new(Class::Overloaded, "test").into()) })
}

fn echo() -> impl Service<String, Response = String, Error = BoxError, Future: Send> + Clone + Send + Sync {
    service_fn(|text: String| async move { Ok::<_, BoxError>(text) })
}

#[tokio::test(start_paused = true)]
async fn each_route_has_its_own_request_and_its_own_answer() {
    // The second speaks another language than the caller: numbers.
    let length = service_fn(|length: usize| async move { Ok::<_, Infallible>(length * 10) });
    let layer = builder()
        .route(
            Route::new("b", length)
                .adapt_request(|text: String| Ok::<_, Infallible>(text.len()))
                .adapt_response(|tens: usize| Ok::<_, Infallible>(tens.to_string())),
        )
        .build()
        .unwrap();
    let first = ServiceBuilder::new()
        .layer(adapt::request(|text: String| Ok::<_, Infallible>(format!("first {text}"))))
        .layer(adapt::response(|text: String| Ok::<_, Infallible>(text.to_uppercase())));
    assert_eq!(layer.layer(first.clone().service(echo())).oneshot("ask".into()).await.unwrap(), "FIRST ASK");
    assert_eq!(layer.layer(first.service(down())).oneshot("ask".into()).await.unwrap(), "30");
}

#[tokio::test(start_paused = true)]
async fn adapters_may_wait_within_the_time_of_their_route() {
    let slow = |millis: u64| async move { tokio::time::sleep(Duration::from_millis(millis)).await };
    let layer = builder()
        .timeout(Duration::from_secs(4))
        .route(
            Route::new("b", echo())
                .adapt_request_async(move |text: String| async move {
                    slow(300).await;
                    Ok::<_, BoxError>(format!("summary of {text}"))
                })
                .adapt_response_async(move |text: String| async move {
                    slow(200).await;
                    Ok::<_, BoxError>(format!("<{text}>"))
                })
                .into_boxed(),
        )
        .route(
            Route::new("c", echo())
                .adapt_request_async(|_: String| std::future::pending::<Result<String, BoxError>>())
                .into_boxed(),
        );
    let layer = layer.build().unwrap();
    let start = tokio::time::Instant::now();
    assert_eq!(layer.layer(down()).oneshot("it".into()).await.unwrap(), "<summary of it>");
    assert_eq!(start.elapsed().as_millis(), 500);

    let hangs = Route::new("b", echo())
        .adapt_request_async(|_: String| std::future::pending::<Result<String, BoxError>>());
    let layer = builder().route(hangs).timeout(Duration::from_secs(4)).build().unwrap();
    let (answer, trail) = traced(layer.layer(down()).oneshot("it".into())).await;
    answer.unwrap_err();
    assert_eq!(trail, "a overloaded (next_route) > b timeout.total (no_route_left)");
}

#[tokio::test]
async fn a_request_that_cannot_be_adapted_skips_its_route_which_is_noted_and_counts_as_no_attempt() {
    let (b, c) = (Target::new("b", Does::Answer), Target::new("c", Does::Answer));
    let cannot = |target: &Target| {
        Route::new(target.name, target.clone())
            .adapt_request(|_: u8| Err::<u8, _>("its tools have no names here"))
            .into_boxed::<u8, _>()
    };
    let layer = builder()
        .route(cannot(&b))
        .route(Route::new("c", c.clone()).into_boxed())
        .max_routes(2)
        .build()
        .unwrap();
    // Two attempts in all: the one that was skipped was none.
    let call = Call::options().max_attempts(2).begin();
    let first = Target::new("a", Does::Fail(Class::Transient));
    assert_eq!(call.scope(layer.layer(first).oneshot(1)).await.unwrap(), "c");
    assert_eq!(
        call.trail().to_string(),
        "a transient (next_route) > b invalid (skipped) > c success (answered)"
    );
    assert_eq!((b.calls(), c.calls(), call.further_attempts()), (0, 1, 1));

    // When no other is left, the failure that was an attempt is the call's.
    let layer = builder().route(cannot(&b)).route(cannot(&c)).build().unwrap();
    let first = Target::new("a", Does::Fail(Class::Transient));
    let (answer, trail) = traced(layer.layer(first).oneshot(1)).await;
    let err = answer.unwrap_err();
    assert_eq!((fault(&err).class(), fault(&err).target()), (Class::Transient, Some("a")));
    assert_eq!(fault(&err).earlier().len(), 2, "every error is kept");
    assert_eq!(trail, "a transient (next_route) > b invalid (skipped) > c invalid (skipped)");
}

#[tokio::test]
async fn a_first_route_that_cannot_be_adapted_is_skipped_too_and_alone_it_is_a_typed_error() {
    let cannot = adapt::request(|_: u8| Err::<u8, _>(Fault::new(Class::ContextLength, "adapter")));
    let first = cannot.layer(Target::new("a", Does::Answer));
    let b = Target::new("b", Does::Answer);
    let layer = builder().route(Route::new("b", b.clone())).build().unwrap();
    let (answer, trail) = traced(layer.layer(first.clone()).oneshot(1)).await;
    assert_eq!(answer.unwrap(), "b");
    assert_eq!(trail, "a context_length (skipped) > b success (answered)");

    let alone = cannot.layer(b.clone());
    let layer = builder().route(Route::new("b", alone)).returns(Return::First).build().unwrap();
    let err = layer.layer(first).oneshot(1).await.unwrap_err();
    let told = fault(&err);
    assert_eq!(
        (told.class(), told.layer(), told.target()),
        (Class::ContextLength, "fallback-layer", Some("a"))
    );
    let source = std::error::Error::source(told).unwrap();
    assert_eq!(Fault::find(source).unwrap().layer(), "adapter", "what the adapter said is kept");
    assert_eq!(b.calls(), 1);
}

#[tokio::test]
async fn an_answer_that_cannot_be_adapted_is_a_failure_of_its_route() {
    let b = Target::new("b", Does::Answer);
    let c = Target::new("c", Does::Answer);
    let layer = builder()
        .route(
            Route::new("b", b.clone())
                .adapt_response(|_: &str| Err::<&str, _>("no tool call in it"))
                .into_boxed::<u8, _>(),
        )
        .route(Route::new("c", c.clone()).into_boxed())
        .build()
        .unwrap();
    let first = Target::new("a", Does::Fail(Class::Transient));
    let (answer, trail) = traced(layer.layer(first).oneshot(1)).await;
    assert_eq!(answer.unwrap(), "c");
    assert_eq!(trail, "a transient (next_route) > b soft.malformed (next_route) > c success (answered)");
    assert_eq!(Class::Soft(SoftKind::Malformed).as_str(), "soft.malformed");
    assert_eq!(b.calls(), 1);
}

#[tokio::test]
async fn the_last_route_gets_the_original_request_and_one_before_it_that_is_skipped_leaves_it() {
    // With at most two routes a call, the skipped one looked like the last.
    let layer = builder()
        .route(
            Route::new("b", echo())
                .adapt_request(|text: String| {
                    drop(text);
                    Err::<String, _>("no")
                })
                .into_boxed(),
        )
        .route(Route::new("c", echo()).into_boxed())
        .max_routes(2)
        .build()
        .unwrap();
    assert_eq!(layer.layer(down()).oneshot("ask".into()).await.unwrap(), "ask");
}

#[tokio::test]
async fn a_route_is_built_for_its_request_and_one_that_cannot_be_is_skipped_and_noted() {
    let key_of = |tenant: &u8| match tenant {
        1 => Ok(Target::new("b", Does::Answer)),
        2 => Ok(Target::new("b", Does::FailReadyOf(Class::Invalid))),
        _ => Err("no key"),
    };
    let c = Target::new("c", Does::Answer);
    let layer = builder()
        .route(Route::by_request("b", key_of).into_boxed())
        .route(Route::new("c", c.clone()).into_boxed())
        .build()
        .unwrap();
    let ask = async |tenant: u8| {
        let first = Target::new("a", Does::Fail(Class::Transient));
        let (answer, trail) = traced(layer.layer(first).oneshot(tenant)).await;
        (answer.unwrap(), trail)
    };
    assert_eq!(ask(1).await.0, "b");
    // Nothing was sent, so that another one has its place, whatever its readiness failed of.
    let unready = "a transient (next_route) > b invalid (next_route) > c success (answered)";
    assert_eq!(ask(2).await, ("c", unready.to_owned()));
    let skipped = "a transient (next_route) > b invalid (skipped) > c success (answered)";
    assert_eq!(ask(3).await, ("c", skipped.to_owned()));
}

#[tokio::test]
async fn the_body_of_a_request_is_never_copied() {
    use std::sync::{Arc, Mutex};

    use axum::{body::Bytes, http};
    let bytes = Bytes::from(vec![7_u8; 16 << 10]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let route = |status: u16| {
        let seen = Arc::clone(&seen);
        service_fn(move |request: http::Request<Bytes>| {
            seen.lock().unwrap().push(request.into_body().as_ptr() as usize);
            async move {
                Ok::<_, BoxError>(
                    http::Response::builder()
                        .status(status)
                        .body(http_body_util::Full::new(Bytes::new()))
                        .unwrap(),
                )
            }
        })
    };
    let layer = FallbackLayer::builder()
        .route(Route::new("b", route(503)))
        .route(Route::new("c", route(200)))
        .build()
        .unwrap();
    let request = http::Request::post("/").body(bytes.clone()).unwrap();
    assert_eq!(layer.layer(route(500)).oneshot(request).await.unwrap().status(), 200);
    assert_eq!(*seen.lock().unwrap(), [bytes.as_ptr() as usize; 3]);
}
