//! Which limits of time hold for which answer.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use failsoft_core::{BoxError, Class, Fault, Limit, Verdict};
use futures_util::{StreamExt as _, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use llm_layer::{LlmLayer, LlmProtocol, Provider};
use stream_layer::{Limits, Protocol as _, Reader as _};
use tokio::time::Instant;
use tower::{Layer as _, ServiceExt as _, service_fn};

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

type Pieces = StreamBody<stream::BoxStream<'static, Result<Frame<Bytes>, BoxError>>>;

/// Each piece a minute after what was before it; then nothing, and no end.
fn minutes(
    head: http::response::Builder,
    first: Option<&'static str>,
    rest: &[&'static str],
) -> Response<Pieces> {
    let late = stream::iter(rest.to_vec()).then(|piece| async move {
        tokio::time::sleep(Duration::from_secs(60)).await;
        piece
    });
    let pieces = stream::iter(first).chain(late).map(|piece| Ok(Frame::data(Bytes::from(piece))));
    head.body(StreamBody::new(pieces.chain(stream::pending()).boxed())).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_failed_status_whose_body_does_not_come_is_still_that_failure() {
    for (first, body) in [
        (None, r#"{"messages":[]}"#),
        (Some("{\"err"), r#"{"messages":[]}"#),
        (None, r#"{"messages":[],"stream":true}"#),
    ] {
        let target = service_fn(async |_: Request<String>| {
            let head = Response::builder()
                .status(429)
                .header("retry-after", "7")
                .header("content-type", "application/json");
            Ok::<_, Infallible>(minutes(head, first, &[]))
        });
        let service = LlmLayer::new(Provider::OpenAiCompatible).layer(target);
        let start = Instant::now();
        let err = service.oneshot(Request::new(body.to_owned())).await.err().unwrap();
        let verdict = Verdict::of_error(&*err);
        assert_eq!(
            (verdict.class(), verdict.retry_after()),
            (Class::RateLimited, Some(Duration::from_secs(7)))
        );
        assert_eq!(Fault::find(&*err).unwrap().status(), Some(429));
        assert!(start.elapsed() <= Duration::from_secs(31), "{:?}", start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_answer_of_a_model_may_be_silent_unless_a_limit_is_chosen() {
    async fn read(layer: &LlmLayer, path: &str, body: &str, kind: &'static str) -> (Bytes, Option<Class>) {
        let target = service_fn(|_: Request<String>| async {
            let head = Response::builder().header("content-type", kind);
            Ok::<_, Infallible>(minutes(head, Some("data: a\n\n"), &["data: b\n\n"]))
        });
        let request = Request::post(path).body(body.to_owned()).unwrap();
        let mut body = layer.layer(target).oneshot(request).await.unwrap().into_body();
        let mut got = Vec::new();
        let hour = tokio::time::sleep(Duration::from_secs(3600));
        tokio::pin!(hour);
        loop {
            let frame = tokio::select! { frame = body.frame() => frame, () = &mut hour => None };
            match frame {
                Some(Ok(frame)) => got.extend(frame.into_data().unwrap()),
                Some(Err(err)) => return (got.into(), Some(Verdict::of_error(&*err).class())),
                None => return (got.into(), None),
            }
        }
    }
    let (layer, chosen) = (LlmLayer::new(Provider::Auto), LlmLayer::builder().idle(Duration::from_secs(30)));
    let chosen = chosen.build().unwrap();
    let idle = Some(Class::Timeout(Limit::Idle));
    for (path, kind) in [("/v1/notifications", "text/event-stream"), ("/v1/audio/speech", "audio/mpeg")] {
        let body = r#"{"input":"x"}"#;
        for layer in [&layer, &LlmLayer::builder().thinks_for(Duration::from_secs(30)).build().unwrap()] {
            let whole = ("data: a\n\ndata: b\n\n".into(), None);
            assert_eq!(read(layer, path, body, kind).await, whole, "{path}");
        }
        assert_eq!(read(&chosen, path, body, kind).await, ("data: a\n\n".into(), idle), "{path}");
    }
    let chat = r#"{"messages":[],"stream":true}"#;
    assert_eq!(read(&layer, "/v1/chat/completions", chat, "audio/mpeg").await, ("data: a\n\n".into(), idle));
}
