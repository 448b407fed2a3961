//! `tower::retry`: its policy around our layers, and our retry around its.

use std::future::Ready;

use breaker_layer::engine::State;
use failsoft_core::{BoxError, Fault, Hint, Verdict};
use fallback_layer::{FallbackLayer, Route};
use tower::{Layer as _, ServiceBuilder, ServiceExt as _, retry::Policy};

use crate::{Request, Upstream, breaker, request, retry};

/// Three attempts, unless what came says that another is of no use: a `Fault` in the error's chain, or the status.
#[derive(Clone)]
struct Thrice(u32);

impl<B> Policy<Request, http::Response<B>, BoxError> for Thrice {
    type Future = Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request,
        result: &mut Result<http::Response<B>, BoxError>,
    ) -> Option<Self::Future> {
        let again = match result {
            Ok(response) => response.status().is_server_error(),
            Err(error) => matches!(Verdict::of_error(&**error).hint(), Hint::Same | Hint::After),
        };
        self.0 += 1;
        (again && self.0 < 3).then(|| std::future::ready(()))
    }

    fn clone_request(&mut self, request: &Request) -> Option<Request> {
        Some(request.clone())
    }
}

#[tokio::test(start_paused = true)]
async fn a_breaker_inside_towers_retry_counts_each_attempt_and_its_refusal_ends_them() {
    let upstream = Upstream::new([(0, 500)]);
    let (breaker, circuit) = breaker(5);
    let service = ServiceBuilder::new().retry(Thrice(0)).layer(breaker).service(upstream.service());
    assert_eq!(service.clone().oneshot(request()).await.unwrap().status(), 500);
    assert_eq!((circuit.counts().failed, upstream.calls()), (3, 3));
    // Two more open it, and the third attempt is refused: `Denied` is never worth another.
    let error = service.oneshot(request()).await.err().unwrap();
    assert!(Fault::find(&*error).unwrap().class().is_denied());
    assert_eq!((circuit.state(), upstream.calls(), circuit.counts().refused), (State::Open, 5, 1));
}

#[tokio::test(start_paused = true)]
async fn a_breaker_around_towers_retry_sees_one_outcome() {
    let upstream = Upstream::new([(0, 500), (0, 500), (0, 200)]);
    let (breaker, circuit) = breaker(5);
    let inner = ServiceBuilder::new().retry(Thrice(0)).map_err(BoxError::from).service(upstream.service());
    let response = breaker.layer(inner).oneshot(request()).await.unwrap();
    assert_eq!(response.status(), 200);
    http_body_util::BodyExt::collect(response.into_body()).await.unwrap();
    assert_eq!((circuit.counts().total, circuit.counts().failed, upstream.calls()), (1, 0, 3));
}

#[tokio::test(start_paused = true)]
async fn ours_around_towers_multiplies_which_is_why_one_place_retries() {
    let upstream = Upstream::new([(0, 500)]);
    let inner = ServiceBuilder::new().retry(Thrice(0)).map_err(BoxError::from).service(upstream.service());
    let service = retry(1).max_retries(1).build().unwrap().layer(inner);
    assert_eq!(service.oneshot(request()).await.unwrap().status(), 500);
    assert_eq!(upstream.calls(), 6);
}

#[tokio::test(start_paused = true)]
async fn towers_retry_around_a_fallback_asks_all_routes_again() {
    let (first, second) = (Upstream::new([(0, 500)]), Upstream::new([(0, 500), (0, 200)]));
    let routes = FallbackLayer::builder().route(Route::boxed("second", second.service())).build().unwrap();
    let service = ServiceBuilder::new().retry(Thrice(0)).layer(routes).service(first.service());
    assert_eq!(service.oneshot(request()).await.unwrap().status(), 200);
    assert_eq!((first.calls(), second.calls()), (2, 2));
}
