//! Hedging with a breaker inside, around streams, and inside of a retry.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::http::{Request, Response};
use breaker_layer::{BreakerLayer, engine::State};
use bytes::Bytes;
use failsoft_core::{Backoff, BoxError, Call, Class, ErrorsOnly, Next, Usage};
use futures_util::{StreamExt as _, stream};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use llm_layer::{LlmLayer, Provider};
use retry_layer::{HedgeLayer, RetryLayer};
use tokio::time::{Instant, sleep};
use tower::{ServiceBuilder, ServiceExt};

const SECOND: Duration = Duration::from_secs(1);

fn hedge() -> HedgeLayer {
    HedgeLayer::builder().delay(SECOND).repeat_unanswered(true).without_budget().build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_breaker_inside_takes_a_loser_for_cancelled_which_is_neutral() {
    let count = Arc::new(AtomicUsize::new(0));
    let breaker = BreakerLayer::builder().classify(ErrorsOnly).consecutive_failures(3).build().unwrap();
    let circuit = breaker.circuit().clone();
    let hedge = HedgeLayer::builder().classify(ErrorsOnly).delay(SECOND).without_budget().build().unwrap();
    let stack = ServiceBuilder::new().layer(hedge).layer(breaker).service_fn(move |_: String| {
        let is_hedge = count.fetch_add(1, Ordering::SeqCst) % 2 == 1;
        async move {
            if !is_hedge {
                sleep(60 * SECOND).await;
            }
            if is_hedge { Ok(()) } else { Err(io::Error::from(io::ErrorKind::ConnectionReset)) }
        }
    });
    for _ in 0..20 {
        stack.clone().oneshot("ask".to_owned()).await.unwrap();
    }
    assert_eq!(circuit.state(), State::Closed);
    let snapshot = circuit.snapshot();
    assert_eq!((snapshot.counts.total, snapshot.counts.failed), (20, 0), "{snapshot:?}");
}

type Body = StreamBody<stream::BoxStream<'static, Result<Frame<Bytes>, BoxError>>>;

/// A stream whose first content comes after `content`, and whose end after `end` more.
fn streamed(content: Duration, end: Duration) -> Response<Body> {
    const CONTENT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n";
    const END: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\
        \"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";
    let pieces = stream::iter([(Duration::ZERO, ": keepalive\n\n"), (content, CONTENT), (end, END)]);
    let frames = pieces.then(|(after, text)| async move {
        sleep(after).await;
        Ok(Frame::data(Bytes::from_static(text.as_bytes())))
    });
    Response::builder()
        .header("content-type", "text/event-stream")
        .body(StreamBody::new(frames.boxed()))
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn around_streams_it_is_the_time_to_first_content_that_is_hedged() {
    // The first answers its head at once and says nothing; what has begun to flow may take as long as it likes.
    let answers = [(60 * SECOND, SECOND), (SECOND / 2, 20 * SECOND)];
    let count = Arc::new(AtomicUsize::new(0));
    let requests = Arc::clone(&count);
    let stack = ServiceBuilder::new()
        .layer(hedge())
        .layer(LlmLayer::new(Provider::OpenAiCompatible))
        .service_fn(move |_: Request<String>| {
            let (content, end) = answers[count.fetch_add(1, Ordering::SeqCst).min(1)];
            async move { Ok::<_, BoxError>(streamed(content, end)) }
        });
    let (call, began) = (Call::begin(), Instant::now());
    let ask =
        || Request::post("http://a/v1/chat").body(r#"{"messages":[],"stream":true}"#.to_owned()).unwrap();
    let response = call.scope(stack.clone().oneshot(ask())).await.unwrap();
    assert_eq!(began.elapsed(), SECOND + SECOND / 2);
    assert!(response.into_body().collect().await.unwrap().to_bytes().ends_with(b"[DONE]\n\n"));
    assert_eq!(began.elapsed(), 21 * SECOND + SECOND / 2);
    assert_eq!(requests.load(Ordering::SeqCst), 2);
    // The loser said nothing of what it used; the other is counted.
    assert_eq!(call.usage(), Usage { input: Some(5), output: Some(2), ..Usage::default() });

    // A first that is quick is not sent again, however long it then takes.
    let began = Instant::now();
    let response = stack.oneshot(ask()).await.unwrap();
    response.into_body().collect().await.unwrap();
    assert_eq!((began.elapsed(), requests.load(Ordering::SeqCst)), (20 * SECOND + SECOND / 2, 3));
}

#[tokio::test(start_paused = true)]
async fn inside_of_a_retry_each_attempt_is_hedged_and_all_of_them_stay_within_the_calls_cap() {
    let count = Arc::new(AtomicUsize::new(0));
    let requests = Arc::clone(&count);
    let retry = RetryLayer::builder()
        .classify(ErrorsOnly)
        .max_retries(3)
        .attempt_timeout(5 * SECOND)
        .backoff(Backoff::fixed(SECOND))
        .build()
        .unwrap();
    let hedge = HedgeLayer::builder().classify(ErrorsOnly).delay(SECOND).build().unwrap();
    let stack = ServiceBuilder::new().layer(retry).layer(hedge).service_fn(move |_: String| {
        count.fetch_add(1, Ordering::SeqCst);
        std::future::pending::<Result<(), io::Error>>()
    });
    let call = Call::options().max_attempts(4).begin();
    call.scope(stack.oneshot("ask".to_owned())).await.unwrap_err();
    assert_eq!(requests.load(Ordering::SeqCst), 4);
    let trail = call.trail();
    let steps: Vec<_> = trail.attempts().iter().map(|step| (step.verdict.class(), step.next)).collect();
    // Of two that were cut off together the retry tells of one, and the hedge of the other.
    let timeout = Class::Timeout(failsoft_core::Limit::Total);
    assert_eq!(
        steps,
        [
            (Class::Cancelled, Next::Hedge),
            (timeout, Next::Retry),
            (Class::Cancelled, Next::Hedge),
            (timeout, Next::AttemptsSpent)
        ]
    );
}
