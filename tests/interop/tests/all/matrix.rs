//! Each of our layers right over and right under each of tower's and tower-http's: answers pass as they are, failures too, call after
//! call, and nothing is kept of them.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use failsoft_core::BoxError;
use http_body::Body;
use http_body_util::{BodyExt as _, Full};
use tower::{Layer as _, Service, ServiceExt as _, service_fn};

use crate::{Request, Response, request};

const ANSWER: &str =
    r#"{"choices":[{"message":{"role":"assistant","content":"Bern"},"finish_reason":"stop"}]}"#;

/// What lies innermost: an answer of a model, or a failure.
fn model(
    fails: bool,
) -> impl Service<Request, Response = Response, Error = Infallible, Future: Send> + Clone + Send + Sync + 'static
{
    service_fn(move |_: Request| {
        let (status, text) =
            if fails { (400, r#"{"error":{"message":"no such field"}}"#) } else { (200, ANSWER) };
        let response = http::Response::builder()
            .status(status)
            .header("content-type", "application/json")
            .body(Full::<Bytes>::from(text))
            .unwrap();
        async move {
            tokio::task::yield_now().await;
            Ok(response)
        }
    })
}

/// Three calls, so that what one of them keeps would hinder the next; each is readied twice.
async fn passes<S, B>(mut service: S, status: u16)
where
    S: Service<Request, Response = http::Response<B>, Error: Into<BoxError>>,
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    for _ in 0..3 {
        let call = async {
            service.ready().await.map_err(Into::into)?;
            let response =
                service.ready().await.map_err(Into::into)?.call(request()).await.map_err(Into::into)?;
            assert_eq!(response.status().as_u16(), status);
            let body = response.into_body().collect().await.map_err(Into::into)?.to_bytes();
            assert_eq!(body == ANSWER, status == 200, "{body:?}");
            Ok::<_, BoxError>(())
        };
        tokio::time::timeout(Duration::from_secs(60), call).await.unwrap().unwrap();
    }
}

/// Tower's and tower-http's, each as `$layer` in a block of its own.
macro_rules! each_of_theirs {
    ($layer:ident => $block:block) => {{
        use http::{HeaderValue, header::SERVER};
        use tower::{buffer::BufferLayer, limit::ConcurrencyLimitLayer, load_shed::LoadShedLayer, timeout::TimeoutLayer};
        use tower_http::{
            compression::CompressionLayer, decompression::DecompressionLayer, request_id::SetRequestIdLayer,
            set_header::SetResponseHeaderLayer, trace::TraceLayer,
        };

        each_of_theirs! { @each $layer $block
            BufferLayer::new(1);
            ConcurrencyLimitLayer::new(1);
            LoadShedLayer::new();
            TimeoutLayer::new(Duration::from_secs(30));
            CompressionLayer::new();
            DecompressionLayer::new();
            SetRequestIdLayer::x_request_id(crate::client::Numbered::default());
            SetResponseHeaderLayer::overriding(SERVER, HeaderValue::from_static("ours"));
            tower_http::timeout::TimeoutLayer::with_status_code(http::StatusCode::REQUEST_TIMEOUT, Duration::from_secs(30));
            TraceLayer::new_for_http();
        }
    }};
    (@each $layer:ident $block:block $($theirs:expr;)+) => {$({
        let $layer = $theirs;
        $block
    })+};
}

macro_rules! ours {
    ($($name:ident => |$inner:ident| $ours:expr;)+) => {$(
        mod $name {
            use super::*;

            #[tokio::test(start_paused = true)]
            async fn over() {
                for (fails, status) in [(false, 200), (true, 400)] {
                    each_of_theirs!(theirs => {
                        let $inner = theirs.layer(model(fails));
                        let ours = { let $inner = $inner.clone(); let _ = &$inner; $ours.build().unwrap() };
                        passes(ours.layer($inner), status).await;
                    });
                }
            }

            #[tokio::test(start_paused = true)]
            async fn under() {
                for (fails, status) in [(false, 200), (true, 400)] {
                    let $inner = model(fails);
                    let ours = { let $inner = $inner.clone(); let _ = &$inner; $ours.build().unwrap() };
                    let service = ours.layer($inner);
                    each_of_theirs!(theirs => {
                        passes(theirs.layer(service.clone()), status).await;
                    });
                }
            }
        }
    )+};
}

ours! {
    breaker => |_inner| breaker_layer::BreakerLayer::builder();
    retry => |_inner| retry_layer::RetryLayer::builder();
    fallback => |inner| fallback_layer::FallbackLayer::builder().route(fallback_layer::Route::new("second", inner));
    budget => |_inner| budget_layer::BudgetLayer::builder();
    stream => |_inner| stream_layer::StreamLayer::builder(stream_layer::AnyContent);
}

/// With what validate-layer and llm-layer make of an error of the provider.
mod readers {
    use super::*;

    macro_rules! readers {
        ($($name:ident => $ours:expr;)+) => {$(
            #[tokio::test(start_paused = true)]
            async fn $name() {
                each_of_theirs!(theirs => {
                    passes($ours.build().unwrap().layer(theirs.layer(model(false))), 200).await;
                });
                let service = $ours.build().unwrap().layer(model(false));
                each_of_theirs!(theirs => {
                    passes(theirs.layer(service.clone()), 200).await;
                });
            }
        )+};
    }

    readers! {
        validate => validate_layer::ValidateLayer::builder().json_object();
        llm => llm_layer::LlmLayer::builder();
    }
}
