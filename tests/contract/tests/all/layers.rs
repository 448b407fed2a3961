//! Every layer passes the contract.

use axum::body::Body;
use failsoft_core::{Auto, Buffered, Replay, ReplayBody};

contract::contract! {
    nothing_but_a_boxed_error => |_inner| tower::util::MapErrLayer::new(failsoft_core::BoxError::from)
}

/// Sends the requests of each kind of inner service again as a user would: a router's are recorded.
#[derive(Clone, Copy, Debug)]
struct Each;

macro_rules! each {
    ($($request:ty => $strategy:ty, $make:expr;)+) => {$(
        impl Replay<$request> for Each {
            type Kept = <$strategy as Replay<$request>>::Kept;

            fn keep(&self, request: $request) -> ($request, Option<Self::Kept>) {
                $make.keep(request)
            }

            fn again(&self, kept: &mut Option<Self::Kept>, last: bool) -> Option<$request> {
                $make.again(kept, last)
            }

            fn is_idempotent(&self, request: &$request) -> bool {
                Replay::is_idempotent(&$make, request)
            }
        }
    )+};
}

type Recorded = Buffered<fn(ReplayBody<Body>) -> Body>;

each! {
    contract::Request => Auto, Auto;
    reqwest::Request => Auto, Auto;
    axum::extract::Request => Recorded, Recorded::new(4096, Body::new);
}

contract::contract! {
    retry_in_full => |_inner| retry_layer::RetryLayer::builder()
        .deadline(std::time::Duration::from_secs(60))
        .replay(Each)
        .repeat_unanswered(true)
        .build()
        .unwrap()
}

contract::contract! {
    // A request that is sent once.
    retry => |_inner| retry_layer::RetryLayer::builder()
        .deadline(std::time::Duration::from_secs(60))
        .attempt_timeout(std::time::Duration::from_secs(20))
        .replay(failsoft_core::Once)
        .build()
        .unwrap()
}

contract::contract! {
    hedge => |_inner| retry_layer::HedgeLayer::builder()
        .delay(std::time::Duration::from_secs(60))
        .replay(failsoft_core::Once)
        .build()
        .unwrap()
}

contract::contract! {
    reflect => |_inner| retry_layer::ReflectLayer::builder(retry_layer::reflect::reask_fn(|_, _| None))
        .replay(failsoft_core::Once)
        .build()
        .unwrap()
}

contract::contract! {
    validate => |_inner| validate_layer::ValidateLayer::builder()
        .json_object()
        .require("/choices/0/message/content")
        .build()
        .unwrap()
}

contract::contract! {
    // With everything that stands beside the plain path: requests are looked at, and a judge is asked.
    validate_in_full => |_inner| validate_layer::ValidateLayer::builder()
        .asked_fn(|_: &_| validate_layer::Asked::new())
        .rails(validate_layer::Rails::new())
        .judge(validate_layer::Judge::new(tower::service_fn(|_: validate_layer::Answer| {
            std::future::ready(Ok::<_, std::convert::Infallible>(failsoft_core::Report::new()))
        })))
        .streams(validate_layer::StreamMode::Hold)
        .build()
        .unwrap()
}

contract::contract! {
    llm => |_inner| llm_layer::LlmLayer::new(llm_layer::Provider::OpenAiCompatible)
}

contract::contract! {
    llm_held_to_the_end => |_inner| llm_layer::LlmLayer::builder().hold_to_end(1 << 20).build().unwrap()
}

contract::contract! {
    fallback => |inner| fallback_layer::FallbackLayer::builder()
        .replay(failsoft_core::Once)
        .route(fallback_layer::Route::new("second", inner))
        .build()
        .unwrap()
}

contract::contract! {
    fallback_that_starts_the_next_beside => |inner| fallback_layer::FallbackLayer::builder()
        .replay(Each)
        .slow_start(std::time::Duration::from_millis(1))
        .route(fallback_layer::Route::new("second", inner))
        .build()
        .unwrap()
}

contract::contract! {
    restart => |_inner| fallback_layer::restart::RestartLayer::new().replay(Each)
}

contract::contract! {
    // In the order that the README recommends.
    the_whole_stack => |_inner| tower::ServiceBuilder::new()
        .layer(retry_layer::RetryLayer::builder().replay(failsoft_core::Once).build().unwrap())
        .layer(breaker_layer::BreakerLayer::builder().build().unwrap())
        .layer(validate_layer::ValidateLayer::builder().json_object().build().unwrap())
        .layer(llm_layer::LlmLayer::new(llm_layer::Provider::OpenAiCompatible))
        .layer(stream_layer::StreamLayer::new(stream_layer::AnyContent))
        .into_inner()
}

contract::contract! {
    stream => |_inner| stream_layer::StreamLayer::new(stream_layer::AnyContent)
}

contract::contract! {
    stream_held_to_the_end => |_inner| stream_layer::StreamLayer::builder(stream_layer::AnyContent)
        .hold_to_end(1 << 20)
        .build()
        .unwrap()
}
