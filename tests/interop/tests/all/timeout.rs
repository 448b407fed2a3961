//! `tower::timeout`: right around the client, between the layers, and around them all.

use breaker_layer::engine::State;
use failsoft_core::{Call, Class, Fault, Limit, Verdict};
use fallback_layer::{FallbackLayer, Route};
use http_body_util::BodyExt as _;
use tokio::time::Instant;
use tower::{Layer as _, ServiceBuilder, ServiceExt as _, timeout::error::Elapsed};
use validate_layer::ValidateLayer;

use crate::{SECOND, Upstream, breaker, breaker_builder, request, retry};

#[tokio::test(start_paused = true)]
async fn inside_a_breaker_it_counts() {
    let upstream = Upstream::new([(10, 200)]);
    let (breaker, circuit) = breaker(3);
    let service = ServiceBuilder::new().layer(breaker).timeout(SECOND).service(upstream.service());
    for _ in 0..3 {
        let error = service.clone().oneshot(request()).await.err().unwrap();
        assert!(error.is::<Elapsed>(), "it passes as it is");
        assert_eq!(Verdict::of_error(&*error).class(), Class::Timeout(Limit::Total));
    }
    assert_eq!((circuit.state(), upstream.calls()), (State::Open, 3));
}

#[tokio::test(start_paused = true)]
async fn outside_a_breaker_it_counts_by_the_slow_rule_and_else_not() {
    for has_rule in [true, false] {
        let upstream = Upstream::new([(10, 200)]);
        let builder = breaker_builder(3);
        let builder =
            if has_rule { builder.slow_after(SECOND / 2).slow_rate(0.5).slow_min_calls(3) } else { builder };
        let breaker = builder.build().unwrap();
        let circuit = breaker.circuit().clone();
        let service = ServiceBuilder::new().timeout(SECOND).layer(breaker).service(upstream.service());
        for _ in 0..3 {
            let error = service.clone().oneshot(request()).await.err().unwrap();
            assert!(error.is::<Elapsed>());
        }
        let state = if has_rule { State::Open } else { State::Closed };
        assert_eq!((circuit.state(), upstream.calls()), (state, 3));
        if !has_rule {
            assert_eq!(
                circuit.counts().total,
                0,
                "a call that its caller dropped says nothing of the target"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn inside_a_retry_it_bounds_each_attempt_and_outside_all_of_them() {
    let upstream = Upstream::new([(10, 200), (0, 200)]);
    let service =
        ServiceBuilder::new().layer(retry(2).build().unwrap()).timeout(SECOND).service(upstream.service());
    let began = Instant::now();
    assert_eq!(service.oneshot(request()).await.unwrap().status(), 200);
    assert_eq!((began.elapsed(), upstream.calls()), (3 * SECOND, 2));

    let upstream = Upstream::new([(1, 503)]);
    let (breaker, circuit) = breaker(100);
    let service = ServiceBuilder::new()
        .timeout(4 * SECOND + SECOND / 2)
        .layer(retry(1).build().unwrap())
        .layer(breaker)
        .service(upstream.service());
    let began = Instant::now();
    assert!(service.oneshot(request()).await.err().unwrap().is::<Elapsed>());
    // Attempts from 0 to 1, 2 to 3 and from 4: the third is dropped with the call, and is nobody's outcome.
    assert_eq!((began.elapsed(), upstream.calls(), circuit.counts().total), (4 * SECOND + SECOND / 2, 3, 2));
}

#[tokio::test(start_paused = true)]
async fn a_fallback_goes_on_from_a_route_that_took_too_long() {
    let (slow, quick) = (Upstream::new([(10, 200)]), Upstream::new([(0, 200)]));
    let first = ServiceBuilder::new().timeout(SECOND).service(slow.service());
    let layer = FallbackLayer::builder().route(Route::boxed("quick", quick.service())).build().unwrap();
    let call = Call::begin();
    let response = call.scope(layer.layer(first).oneshot(request())).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(call.trail().attempts()[0].verdict.class(), Class::Timeout(Limit::Total));
    assert_eq!((slow.calls(), quick.calls()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn it_sees_what_stalls_behind_the_head_only_around_whoever_reads_the_body() {
    let stalled = || {
        tower::service_fn(async |_: crate::Request| {
            let body = http_body_util::Full::<bytes::Bytes>::from("{").with_trailers(std::future::pending::<
                Option<Result<http::HeaderMap, std::convert::Infallible>>,
            >());
            let mut response = http::Response::new(body.boxed());
            response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
            Ok::<_, std::convert::Infallible>(response)
        })
    };
    let validate = || ValidateLayer::builder().json_object().build().unwrap();

    let (outer, circuit) = breaker(1);
    let service = ServiceBuilder::new().layer(outer).timeout(SECOND).layer(validate()).service(stalled());
    assert!(service.oneshot(request()).await.err().unwrap().is::<Elapsed>());
    assert_eq!(circuit.state(), State::Open);

    let (outer, circuit) = breaker(1);
    let service = ServiceBuilder::new().layer(outer).layer(validate()).timeout(SECOND).service(stalled());
    let waits = tokio::time::timeout(60 * SECOND, service.oneshot(request())).await;
    assert!(waits.is_err(), "the head came in time");
    assert_eq!((circuit.state(), circuit.counts().total), (State::Closed, 0));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_of_the_call_is_nearer_than_a_timeout_and_is_the_callers() {
    let upstream = Upstream::new([(10, 200)]);
    let (breaker, circuit) = breaker(1);
    let service = ServiceBuilder::new()
        .timeout(5 * SECOND)
        .layer(retry(1).build().unwrap())
        .layer(breaker)
        .service(upstream.service());
    let began = Instant::now();
    let call = Call::options().timeout(2 * SECOND).begin();
    let error = call.scope(service.oneshot(request())).await.err().unwrap();
    assert_eq!(Fault::find(&*error).unwrap().class(), Class::Timeout(Limit::Total));
    assert_eq!((began.elapsed(), circuit.state()), (2 * SECOND, State::Closed));
}

/// tower-http's timeout answers in place of what is inside it, with an empty body of the type that would have come.
mod in_place {
    use std::{convert::Infallible, future::Pending};

    use bytes::Bytes;
    use failsoft_core::{BoxError, RespondLayer};
    use fallback_layer::cache::{Cache, CacheLayer};
    use http_body::Body;
    use llm_layer::LlmLayer;
    use stream_layer::{AnyContent, StreamLayer};
    use tower::Service;
    use tower_http::timeout::TimeoutLayer;

    use super::*;
    use crate::{Request, Response};

    fn hangs() -> impl Service<
        Request,
        Response = Response,
        Error = Infallible,
        Future = Pending<Result<Response, Infallible>>,
    > + Clone {
        tower::service_fn(|_: Request| std::future::pending::<Result<Response, Infallible>>())
    }

    async fn is_empty<S, B>(service: S)
    where
        S: Service<Request, Response = http::Response<B>, Error: Into<BoxError>>,
        B: Body<Data = Bytes, Error: Into<BoxError>> + Default,
    {
        let limit = TimeoutLayer::with_status_code(http::StatusCode::GATEWAY_TIMEOUT, SECOND);
        let response = limit.layer(service).oneshot(request()).await.map_err(Into::into).unwrap();
        assert_eq!(response.status(), 504);
        let body = response.into_body();
        assert!(body.is_end_stream());
        assert_eq!(body.size_hint().exact(), Some(0));
        assert!(body.collect().await.map_err(Into::into).unwrap().to_bytes().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn every_body_of_ours_can_be_empty() {
        let (breaker, circuit) = breaker(1);
        let validate = ValidateLayer::builder().build().unwrap();
        let llm = LlmLayer::builder().first_content(None).build().unwrap();
        let stream = StreamLayer::builder(AnyContent).first_content(None).build().unwrap();
        let cache = CacheLayer::new(Cache::builder().shared_by_all().build().unwrap());
        is_empty(breaker.layer(hangs())).await;
        is_empty(RespondLayer.layer(breaker.layer(hangs()))).await;
        is_empty(validate.layer(hangs())).await;
        is_empty(llm.layer(hangs())).await;
        is_empty(stream.layer(hangs())).await;
        is_empty(cache.layer(hangs())).await;
        let stack =
            ServiceBuilder::new().layer(retry(1).build().unwrap()).layer(breaker).layer(validate).layer(llm);
        is_empty(stack.service(hangs())).await;
        assert_eq!(circuit.counts().total, 0, "who was dropped says nothing of the target");
    }
}
