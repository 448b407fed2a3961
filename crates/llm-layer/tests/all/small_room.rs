//! What of an answer does not fit into `max_body` is not kept, and is content all the same.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use failsoft_core::{Class, Facts, Insight, SoftKind, Verdict};
use futures_util::{StreamExt as _, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use llm_layer::{LlmLayer, Provider};
use tower::{Layer as _, ServiceExt as _, service_fn};

/// Reads events that come so far from each other; what was learnt, and how it ended.
async fn read(
    max_body: usize,
    provider: Provider,
    every: Duration,
    events: Vec<String>,
) -> (Facts, Option<Class>) {
    let target = service_fn(move |_: Request<String>| {
        let events = events.clone();
        async move {
            let events = stream::iter(events).then(move |event| async move {
                tokio::time::sleep(every).await;
                Ok::<_, Infallible>(Frame::data(Bytes::from(event)))
            });
            let head = Response::builder().header("content-type", "text/event-stream");
            Ok::<_, Infallible>(head.body(StreamBody::new(events.boxed())).unwrap())
        }
    });
    let layer = LlmLayer::builder().provider(provider).max_body(max_body).build().unwrap();
    let request = Request::new(r#"{"messages":[],"input":"x","stream":true}"#.to_owned());
    let response = match layer.layer(target).oneshot(request).await {
        Ok(response) => response,
        Err(err) => return (Facts::default(), Some(Verdict::of_error(&*err).class())),
    };
    let insight = Insight::of(response.extensions()).unwrap().clone();
    let end = response.into_body().collect().await.err();
    (insight.facts(), end.map(|err| Verdict::of_error(&*err).class()))
}

fn chat(index: usize, text: &str, finish: &str) -> String {
    format!(
        r#"data: {{"choices":[{{"index":{index},"delta":{{"content":"{text}"}},"finish_reason":{finish}}}]}}{}"#,
        "\n\n"
    )
}

fn messages(finish: &str) -> Vec<String> {
    [
        r#"{"type":"message_start","message":{"usage":{"input_tokens":3}}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Grüezi"}}"#,
        &format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"{finish}"}}}}"#),
        r#"{"type":"message_stop"}"#,
    ]
    .map(|event| format!("data: {event}\n\n"))
    .into()
}

#[tokio::test(start_paused = true)]
async fn with_next_to_no_room_a_good_stream_is_good_and_its_end_is_judged() {
    let second = Duration::from_secs(1);
    let done = || "data: [DONE]\n\n".to_owned();
    for max_body in [1, 127, 128, 200] {
        for (finish, class) in [("stop", Class::Success), ("length", Class::Soft(SoftKind::Truncated))] {
            let events = vec![chat(0, "Grüezi", "null"), chat(0, "", &format!("\"{finish}\"")), done()];
            let (facts, end) = read(max_body, Provider::OpenAiCompatible, second, events).await;
            assert_eq!(
                (facts.verdict.map(|verdict| verdict.class()), end),
                (Some(class), None),
                "{max_body}"
            );
            assert_eq!(facts.first_content, Some(second), "{max_body}");
            assert_eq!(facts.output_bytes, 7);
            let finish = if finish == "stop" { "end_turn" } else { "max_tokens" };
            let (facts, end) = read(max_body, Provider::Anthropic, second, messages(finish)).await;
            assert_eq!(
                (facts.verdict.map(|verdict| verdict.class()), end),
                (Some(class), None),
                "{max_body}"
            );
        }
        let cut = vec![chat(0, "Grüezi", "null")];
        let (_, end) = read(max_body, Provider::OpenAiCompatible, second, cut).await;
        assert_eq!(end, Some(Class::Soft(SoftKind::Truncated)), "{max_body}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_choice_for_which_there_is_no_room_is_progress() {
    let long = "x".repeat(500);
    let events = [chat(0, &long, "null"), chat(0, &long, "\"stop\"")].into_iter();
    let others = (0..5).flat_map(|at| [chat(1, &format!("more {at}"), "null"), chat(200 + at, "y", "null")]);
    let end = [chat(1, "", "\"stop\""), "data: [DONE]\n\n".to_owned()];
    let every = Duration::from_secs(9);
    let (facts, end) =
        read(600, Provider::OpenAiCompatible, every, events.chain(others).chain(end).collect()).await;
    assert_eq!((facts.verdict.map(|verdict| verdict.class()), end), (Some(Class::Success), None));
    assert_eq!(facts.output_bytes, 1000 + 5 * 7);
}
