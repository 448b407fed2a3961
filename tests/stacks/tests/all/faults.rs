//! What the top of a five-layer stack around a real client tells of a failure at its bottom.

use std::time::Duration;

use axum::{Router, http::StatusCode, response::IntoResponse, routing::post};
use breaker_layer::{BreakerLayer, engine::State};
use failsoft_core::{BoxError, Class, Denier, Fault, GuardFn, Insight, Limit, SoftKind, Verdict, Watch};
use fallback_layer::{FallbackLayer, Return, Route};
use llm_layer::{LlmLayer, Provider};
use retry_layer::RetryLayer;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, timeout::TimeoutLayer, util::BoxCloneSyncService};
use validate_layer::ValidateLayer;

const GOOD: &str = r#"{"choices": [{"message": {"content": "{\"city\": \"Bern\"}"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 9, "completion_tokens": 4}}"#;
const WRONG: &str = r#"{"choices": [{"message": {"content": "{\"city\": null}"}, "finish_reason": "stop"}]}"#;
const INSIDE: &str = r#"{"error": {"message": "The engine is overloaded", "type": "overloaded_error"}}"#;
const LIMITED: &str = r#"{"error": {"message": "Slow down", "code": "rate_limit_exceeded"}}"#;

async fn serve() -> String {
    let json = [("content-type", "application/json")];
    let limited = [("content-type", "application/json"), ("retry-after", "300")];
    let router = Router::new()
        .route("/good", post(move || async move { (json, GOOD) }))
        .route("/wrong", post(move || async move { (json, WRONG) }))
        .route("/inside", post(move || async move { (json, INSIDE) }))
        .route("/hang", post(std::future::pending::<()>))
        .route(
            "/limited",
            post(move || async move { (StatusCode::TOO_MANY_REQUESTS, limited, LIMITED).into_response() }),
        );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

type Stack = BoxCloneSyncService<reqwest::Request, reqwest::Response, BoxError>;

/// fallback(retry(breaker(validate(llm(timeout(client)))))), as the README has it, without a wait between attempts.
fn stack(breaker: BreakerLayer) -> Stack {
    // Nothing but what hangs ends for want of time, however busy the machine is.
    stack_within(Duration::from_secs(30), breaker)
}

fn stack_within(limit: Duration, breaker: BreakerLayer) -> Stack {
    let one = ServiceBuilder::new()
        .layer(
            RetryLayer::builder()
                .target("eu")
                .max_retries(1)
                .backoff(failsoft_core::Backoff::fixed(Duration::ZERO))
                .repeat_unanswered(true)
                .build()
                .unwrap(),
        )
        .layer(breaker)
        .layer(ValidateLayer::builder().name("eu").json_object().require("/city").build().unwrap())
        .layer(LlmLayer::new(Provider::OpenAiCompatible))
        .layer(TimeoutLayer::new(limit))
        .service(reqwest::Client::new());
    let layer = FallbackLayer::builder()
        .name("eu")
        .returns(Return::First)
        .route(Route::new("us", one.clone()))
        .build()
        .unwrap();
    BoxCloneSyncService::new(layer.layer(one))
}

fn breaker() -> BreakerLayer {
    BreakerLayer::builder().name("eu").build().unwrap()
}

async fn post_to(stack: &mut Stack, url: &str) -> Result<reqwest::Response, BoxError> {
    let request = reqwest::Client::new().post(url).body(r#"{"messages": []}"#).build().unwrap();
    stack.ready().await?.call(request).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_good_answer_passes_with_its_url_and_what_was_learnt_of_it() {
    let url = serve().await;
    let response = post_to(&mut stack(breaker()), &format!("{url}/good")).await.unwrap();
    assert_eq!(response.url().path(), "/good");
    let facts = Insight::of(response.extensions()).unwrap().facts();
    assert_eq!((facts.usage.input, facts.usage.output), (Some(9), Some(4)));
    assert!(facts.verdict.is_some_and(|verdict| verdict.is_success()));
    assert_eq!(response.text().await.unwrap(), GOOD);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn class_target_and_report_of_a_wrong_answer_are_found_at_the_top() {
    let url = serve().await;
    let err = post_to(&mut stack(breaker()), &format!("{url}/wrong")).await.unwrap_err();
    let fault = Fault::find(&*err).expect("a wrong answer is a fault");
    assert_eq!(fault.class(), Class::Soft(SoftKind::MissingField));
    assert_eq!(fault.target(), Some("eu"));
    assert_eq!(fault.report().unwrap().findings()[0].path(), Some("/city"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_inside_a_200_never_passes_for_an_answer() {
    let url = serve().await;
    let err = post_to(&mut stack(breaker()), &format!("{url}/inside")).await.unwrap_err();
    let fault = Fault::find(&*err).expect("it is a fault");
    assert_eq!((fault.class(), fault.status()), (Class::Overloaded, Some(200)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice_of_an_error_response_is_found_and_its_body_survives() {
    let url = serve().await;
    let response = post_to(&mut stack(breaker()), &format!("{url}/limited")).await.unwrap();
    assert_eq!(response.status(), 429);
    let verdict = Insight::of(response.extensions()).and_then(Insight::verdict).unwrap();
    assert_eq!(verdict.class(), Class::RateLimited);
    assert_eq!(verdict.retry_after(), Some(Duration::from_secs(300)));
    assert_eq!(response.text().await.unwrap(), LIMITED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_error_still_downcasts_at_the_top_and_has_a_class() {
    let url = serve().await;
    let mut hasty = stack_within(Duration::from_millis(300), breaker());
    let err = post_to(&mut hasty, &format!("{url}/hang")).await.unwrap_err();
    assert!(err.is::<tower::timeout::error::Elapsed>(), "{err:?}");
    assert_eq!(Verdict::of_error(&*err).class(), Class::Timeout(Limit::Total));

    // A port that is bound, so that nobody else gets it, and not listened at.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let dead = format!("http://{}/", socket.local_addr().unwrap());
    let err = post_to(&mut stack(breaker()), &dead).await.unwrap_err();
    assert!(err.is::<reqwest::Error>(), "{err:?}");
    assert_eq!(Verdict::of_error(&*err).class(), Class::Transient);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_circuit_is_told_with_its_name_and_the_time_left() {
    let url = serve().await;
    let breaker = breaker();
    breaker.circuit().open_for(Duration::from_secs(60)).unwrap();
    let err = post_to(&mut stack(breaker.clone()), &format!("{url}/good")).await.unwrap_err();
    let fault = Fault::find(&*err).expect("a refusal is a fault");
    assert_eq!(fault.class(), Class::Denied(Denier::Circuit));
    assert_eq!(fault.target(), Some("eu"));
    assert!(fault.retry_after().is_some_and(|after| after > Duration::from_secs(50)));
    assert_eq!(breaker.circuit().state(), State::Open);
}

/// Ends a body with a fault.
struct Broken;

impl failsoft_core::Judge for Broken {
    fn end(self, _: failsoft_core::End<'_>) -> Verdict {
        Verdict::SUCCESS
    }
}

#[tokio::test]
async fn a_fault_at_the_end_of_a_body_is_found_through_reqwests_own_error() {
    let fault =
        || -> BoxError { Fault::new(Class::Timeout(Limit::Idle), "stream-layer").with_target("eu").into() };
    let body = http_body_util::StreamBody::new(FailsOnce(Some(fault())));
    let response: reqwest::Response = http::Response::new(reqwest::Body::wrap(body)).into();
    let response = Broken.follow(response, GuardFn::new(|_| ()));
    let err = response.text().await.unwrap_err();
    let found = Fault::find(&err).expect("through the error of reqwest");
    assert_eq!((found.class(), found.target()), (Class::Timeout(Limit::Idle), Some("eu")));
    assert_eq!(Verdict::of_error(&err).class(), Class::Timeout(Limit::Idle));
}

struct FailsOnce(Option<BoxError>);

impl futures_util::Stream for FailsOnce {
    type Item = Result<http_body::Frame<bytes::Bytes>, BoxError>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        std::task::Poll::Ready(self.0.take().map(Err))
    }
}
