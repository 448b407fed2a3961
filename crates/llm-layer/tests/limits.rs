//! Which limits of time hold for which answer.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use http::{Request, Response};
use llm_layer::{LlmProtocol, Provider};
use stream_layer::{Limits, Protocol as _, Reader as _};

/// A request that nobody can look into.
struct Opaque;

fn limits_of<Req: 'static>(request: &Req, kind: &str) -> (Limits, Limits) {
    let reader = LlmProtocol::new(Provider::OpenAiCompatible).request(request);
    let (parts, ()) = Response::builder().header("content-type", kind).body(()).unwrap().into_parts();
    (reader.limits(Limits::default()), reader.limits_of_answer(&parts, Limits::default()))
}

#[test]
fn a_stream_has_the_limits_of_one_though_its_request_did_not_show_it() {
    let first_content = |limits: Limits| (limits.first_content, limits.soft_first_content);
    let (ten, four) = (Some(Duration::from_secs(10)), Some(Duration::from_secs(4)));
    let (before, after) = limits_of(&Opaque, "text/event-stream");
    assert_eq!((first_content(before), first_content(after)), ((None, None), (ten, four)));
    let (before, after) = limits_of(&Opaque, "application/json");
    assert_eq!((first_content(before), first_content(after)), ((None, None), (None, None)));
    let (before, after) = limits_of(&Request::new(r#"{"messages":[],"stream":true}"#), "text/event-stream");
    assert_eq!((first_content(before), first_content(after)), ((ten, four), (ten, four)));
}
