//! What a budget around is told of each attempt.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use failsoft_core::{Attempted, Call, Closing, Reservation};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use llm_layer::{LlmLayer, Provider};
use tower::{Layer as _, ServiceExt as _, service_fn};

/// Remembers targets and classes.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Reservation for Told {
    fn reserve(&self) -> bool {
        true
    }

    fn release(&self) {}

    fn attempted(&self, attempted: &Attempted<'_>) {
        let class = attempted.class.map_or("-", |class| class.as_str());
        self.0.lock().unwrap().push(format!("{} {class}", attempted.target.map_or("-", |target| target)));
    }

    fn close(&self, _: Closing) {}
}

/// An answer that is read to its end, or dropped unread.
async fn told(status: u16, kind: &str, body: &'static str, is_read: bool) -> Vec<String> {
    let mut response = Some(
        Response::builder()
            .status(status)
            .header("content-type", kind)
            .body(Full::<Bytes>::from(body))
            .unwrap(),
    );
    let target = service_fn(move |_: Request<String>| {
        std::future::ready(Ok::<_, Infallible>(response.take().expect("one call")))
    });
    let layer = LlmLayer::builder().provider(Provider::OpenAiCompatible).name("a").build().unwrap();
    let told = Told::default();
    let reserved = Call::options().reserving(told.clone());
    let request = Request::new(r#"{"messages":[],"stream":true}"#.to_owned());
    let answer = reserved.call().scope(layer.layer(target).oneshot(request)).await;
    if let (Ok(answer), true) = (answer, is_read) {
        let _ = answer.into_body().collect().await;
    }
    drop(reserved);
    Arc::try_unwrap(told.0)
        .map_or_else(|told| told.lock().unwrap().clone(), |told| told.into_inner().unwrap())
}

const BEGUN: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
const GOOD: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n\
    data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
const ERROR: &str = "data: {\"error\":{\"type\":\"overloaded_error\",\"message\":\"no\"}}\n\n";

#[tokio::test]
async fn an_attempt_says_on_which_target_it_was_and_what_its_outcome_meant() {
    const EVENTS: &str = "text/event-stream";
    assert_eq!(told(200, EVENTS, GOOD, true).await, ["a success"]);
    assert_eq!(told(200, EVENTS, ERROR, true).await, ["a overloaded"]);
    assert_eq!(told(200, EVENTS, BEGUN, true).await, ["a soft.truncated"]);
    assert_eq!(told(200, EVENTS, BEGUN, false).await, ["a -"], "dropped before its end");
    let error = r#"{"error":{"code":"insufficient_quota","message":"no"}}"#;
    assert_eq!(told(429, "application/json", error, true).await, ["a quota"]);
    assert_eq!(told(503, "audio/mpeg", "", true).await, ["a overloaded"]);
    let whole = r#"{"choices":[{"message":{"content":"Paris"},"finish_reason":"stop"}]}"#;
    assert_eq!(told(200, "application/json", whole, true).await, ["a success"]);
}
