//! When an answer is handed on, and what its failures become before and after that.

use std::{task::Poll, time::Duration};

use crate::common::*;
use failsoft_core::{Class, Fault, Hint, SoftKind};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use proptest::prelude::*;
use stream_layer::{AnyContent, AnyEvent, AnyLine, Beyond, StreamLayer};
use tower::ServiceExt as _;
use tower_layer::Layer as _;

fn chat() -> StreamLayer<Chat> {
    StreamLayer::new(Chat::default())
}

fn held() -> StreamLayer<Chat> {
    StreamLayer::builder(Chat::default()).hold_to_end(1 << 16).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_good_stream_arrives_byte_for_byte_and_is_one_success() {
    let steps = [send(PING), send(ROLE), wait(2.0), send(CONTENT), wait(1.0), send(CONTENT), send(DONE)];
    let told = call(&chat(), &Upstream::new(steps)).await;
    assert_eq!(told.text(), [PING, ROLE, CONTENT, CONTENT, DONE].concat());
    assert_eq!((told.end(), &told.verdicts[..]), (None, &[Class::Success][..]));
    let facts = told.insight.unwrap().facts();
    assert_eq!(facts.first_content, Some(Duration::from_secs(2)));
    assert!(facts.verdict.unwrap().is_success());
}

#[tokio::test(start_paused = true)]
async fn pieces_are_counted_and_what_only_keeps_the_connection_open_is_none() {
    let pings = [send(CONTENT), send(PING), send(PING), send(CONTENT), Do::Hang];
    let mut body = chat().layer(Upstream::new(pings).service()).oneshot(()).await.unwrap();
    let insight = failsoft_core::Insight::of(body.extensions()).unwrap().clone();
    let mut pieces = Vec::new();
    for _ in 0..4 {
        body.body_mut().frame().await.unwrap().unwrap();
        pieces.push(insight.facts().pieces.unwrap());
    }
    assert_eq!(pieces, [1, 1, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn an_error_event_before_content_is_a_failed_call() {
    for (event, class) in [(ERROR, Class::Transient), (ERROR_EVENT, Class::Overloaded)] {
        let upstream = Upstream::new([send(ROLE), send(PING), send(event), send(DONE)]);
        let told = call(&chat(), &upstream).await;
        assert_eq!((told.fault().class(), &told.verdicts[..]), (class, &[class][..]));
        assert_eq!(upstream.alive(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_event_after_content_is_one_error_at_the_end_and_one_verdict() {
    let upstream = Upstream::new([send(CONTENT), send(ERROR_EVENT), send(DONE)]);
    let told = call(&chat(), &upstream).await;
    assert_eq!(told.text(), [CONTENT, ERROR_EVENT].concat());
    assert_eq!(told.end(), Some(Class::Overloaded));
    assert_eq!(told.verdicts, [Class::Overloaded]);
    assert!(told.insight.unwrap().facts().inside_success);
    assert_eq!(upstream.alive(), 0);
}

#[tokio::test(start_paused = true)]
async fn content_and_error_in_one_chunk_is_committed_and_then_failed() {
    let upstream = Upstream::new([send(&[CONTENT, ERROR].concat()), Do::Hang]);
    let told = call(&chat(), &upstream).await;
    assert_eq!(told.text(), [CONTENT, ERROR].concat());
    assert_eq!((told.end(), &told.verdicts[..]), (Some(Class::Transient), &[Class::Transient][..]));
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_not_known_before_the_caller_has_the_bytes_that_show_it() {
    let upstream = Upstream::new([send(&[CONTENT, ERROR].concat())]);
    let response = chat().layer(upstream.service()).oneshot(()).await.unwrap();
    let insight = failsoft_core::Insight::of(response.extensions()).unwrap().clone();
    // A retry outside would otherwise repeat a committed answer.
    assert_eq!(insight.verdict(), None);
    assert_eq!(upstream.alive(), 0, "the upstream is dropped at once");
    let mut body = response.into_body();
    assert!(!body.is_end_stream());
    body.frame().await.unwrap().unwrap();
    assert!(!body.is_end_stream(), "the error is still to come");
    assert_eq!(insight.verdict().map(|verdict| verdict.class()), Some(Class::Transient));
    let err = body.frame().await.unwrap().unwrap_err();
    assert_eq!(Fault::find(&*err).map(|fault| fault.layer()), Some("chat"));
    assert!(body.frame().await.is_none());
    assert!(body.is_end_stream());
}

#[tokio::test(start_paused = true)]
async fn a_failing_end_behind_content_is_not_known_before_either() {
    let one = send(&[CONTENT, "data: [LENGTH]\n\n"].concat());
    let response = chat().layer(Upstream::new([one, Do::Hang]).service()).oneshot(()).await.unwrap();
    let insight = failsoft_core::Insight::of(response.extensions()).unwrap().clone();
    assert_eq!(insight.verdict(), None);
    response.into_body().frame().await.unwrap().unwrap();
    assert_eq!(insight.verdict().map(|verdict| verdict.class()), Some(Class::Soft(SoftKind::Truncated)));
}

#[tokio::test(start_paused = true)]
async fn a_failed_upstream_is_dropped_when_its_failure_is_seen() {
    let upstream = Upstream::new([send(CONTENT), send(ERROR), Do::Hang]);
    let mut body = chat().layer(upstream.service()).oneshot(()).await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    assert_eq!(upstream.alive(), 1);
    body.frame().await.unwrap().unwrap();
    assert_eq!(upstream.alive(), 0);
    assert!(!body.is_end_stream());
    body.frame().await.unwrap().unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_clean_end_without_the_terminator_is_a_cut_stream() {
    let after = call(&chat(), &Upstream::new([send(CONTENT)])).await;
    assert_eq!(after.end(), Some(Class::Soft(SoftKind::Truncated)));
    assert_eq!(after.verdicts, [Class::Soft(SoftKind::Truncated)]);
    let before = call(&chat(), &Upstream::new([send(ROLE)])).await;
    assert_eq!(before.fault().class(), Class::Soft(SoftKind::Truncated));
}

#[tokio::test(start_paused = true)]
async fn a_terminator_without_its_blank_line_is_flushed_at_the_end() {
    let told = call(&chat(), &Upstream::new([send(CONTENT), send("data: [DONE]")])).await;
    assert_eq!((told.end(), &told.verdicts[..]), (None, &[Class::Success][..]));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_breaks_is_an_error_of_the_call_before_content_and_of_the_body_after_it() {
    let before = call(&chat(), &Upstream::new([send(ROLE), Do::Fail])).await;
    assert!(before.answer.as_ref().unwrap_err().is::<std::io::Error>(), "it passes unwrapped");
    assert_eq!(before.verdicts, [Class::Transient]);
    let after = call(&chat(), &Upstream::new([send(CONTENT), Do::Fail])).await;
    assert_eq!((after.end(), &after.verdicts[..]), (Some(Class::Transient), &[Class::Transient][..]));
    assert!(!after.insight.unwrap().facts().inside_success);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_drops_the_body_at_the_protocols_end_had_a_success() {
    let upstream = Upstream::new([send(CONTENT), send(DONE), Do::Hang]);
    let told = call_until(&chat(), &upstream, |text| text.ends_with(DONE)).await;
    assert_eq!(told.verdicts, [Class::Success]);
    assert_eq!(upstream.alive(), 0);
    // Dropped before that, it is cancelled.
    let told = call_until(&chat(), &upstream, |text| text.ends_with(CONTENT)).await;
    assert_eq!(told.verdicts, [Class::Cancelled]);
}

#[tokio::test(start_paused = true)]
async fn after_the_protocols_end_neither_an_error_nor_an_open_socket_changes_anything() {
    for last in [Do::Fail, Do::Hang] {
        for layer in [chat(), held()] {
            let upstream = Upstream::new([send(CONTENT), send(DONE), send("\n"), last.clone()]);
            let told = tokio::time::timeout(Duration::from_secs(2), call(&layer, &upstream)).await.unwrap();
            assert_eq!(told.text(), [CONTENT, DONE, "\n"].concat());
            assert_eq!((told.end(), &told.verdicts[..]), (None, &[Class::Success][..]));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn after_the_protocols_end_a_server_that_drips_on_does_not_keep_the_body_open() {
    for (every, dripped) in [(0.3, 3), (0.9, 1), (1.5, 0)] {
        let start = tokio::time::Instant::now();
        let drip = (0..100).flat_map(|_| [wait(every), send(PING)]);
        let upstream = Upstream::new([send(CONTENT), send(DONE)].into_iter().chain(drip));
        let told = call(&chat(), &upstream).await;
        assert_eq!(told.text(), [CONTENT, DONE, &PING.repeat(dripped)].concat());
        assert_eq!((told.end(), &told.verdicts[..]), (None, &[Class::Success][..]));
        assert_eq!((start.elapsed(), upstream.alive()), (Duration::from_secs(1), 0));
    }
    // Nor one that floods outlast the limit on the whole.
    let flood = std::iter::repeat_n(send(PING), 100);
    let upstream = Upstream::new([send(CONTENT), send(DONE)].into_iter().chain(flood));
    let layer = StreamLayer::builder(Chat::default()).total(Duration::from_secs(1)).build().unwrap();
    let mut body = layer.layer(upstream.service()).oneshot(()).await.unwrap().into_body();
    for _ in 0..3 {
        body.frame().await.unwrap().unwrap();
    }
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(body.frame().await.is_none(), "a clean end");
}

#[tokio::test(start_paused = true)]
async fn an_end_with_a_failing_verdict_passes_as_it_is() {
    let told = call(&chat(), &Upstream::new([send(CONTENT), send("data: [LENGTH]\n\n")])).await;
    assert_eq!((told.end(), &told.verdicts[..]), (None, &[Class::Soft(SoftKind::Truncated)][..]));
}

#[tokio::test(start_paused = true)]
async fn a_failing_upstreams_answer_stays_a_response_with_its_status_and_body() {
    for layer in [chat(), held()] {
        let upstream = Upstream { status: 401, ..Upstream::new([send("{\"error\":"), send("\"key\"}")]) };
        let response = layer.layer(upstream.service()).oneshot(()).await.unwrap();
        assert_eq!(response.status(), 401);
        let insight = failsoft_core::Insight::of(response.extensions()).unwrap().clone();
        assert_eq!(insight.verdict().map(|verdict| verdict.class()), Some(Class::Quota));
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "{\"error\":\"key\"}");
    }
    // A protocol that knows no more than the status lets it pass.
    let upstream = Upstream { status: 503, ..Upstream::new([send("busy")]) };
    let told = call(&StreamLayer::new(AnyEvent::new()), &upstream).await;
    assert_eq!((told.text(), &told.verdicts[..]), ("busy", &[Class::Overloaded][..]));
}

#[tokio::test(start_paused = true)]
async fn at_64_events_or_256_kib_it_is_handed_on_without_content() {
    let pings = |count| {
        let steps = std::iter::repeat_n(send(PING), count).chain([Do::Hang]);
        Upstream::new(steps)
    };
    let (layer, limit) = (chat(), Duration::from_secs(1));
    let early = tokio::time::timeout(limit, layer.layer(pings(63).service()).oneshot(())).await;
    assert!(early.is_err(), "held");
    let response = layer.layer(pings(64).service()).oneshot(()).await.unwrap();
    let insight = failsoft_core::Insight::of(response.extensions()).unwrap().clone();
    assert_eq!((insight.facts().first_content, insight.verdict()), (None, None));

    let comment = format!(":{}", "x".repeat(1 << 13));
    let long = |count| Upstream::new(std::iter::repeat_n(send(&comment), count).chain([Do::Hang]));
    let layer = StreamLayer::builder(AnyEvent::new()).build().unwrap();
    assert!(tokio::time::timeout(limit, layer.layer(long(31).service()).oneshot(())).await.is_err());
    assert!(layer.layer(long(32).service()).oneshot(()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_error_that_is_itself_the_last_event_that_may_be_held_is_a_failed_call() {
    for (events, pings) in [(1, 0), (64, 63)] {
        let layer = StreamLayer::builder(Chat::default()).hold_limits(events, 1 << 20).build().unwrap();
        let one = format!("{}{ERROR}", PING.repeat(pings));
        let pieces = std::iter::repeat_n(send(PING), pings).chain([send(ERROR)]);
        for steps in [vec![send(&one)], pieces.collect()] {
            assert_eq!(call(&layer, &Upstream::new(steps)).await.fault().class(), Class::Transient);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_fails_after_a_commit_without_content_is_an_error_of_the_body() {
    let layer = StreamLayer::builder(Chat::default()).hold_limits(2, 1 << 20).build().unwrap();
    let one = [PING, PING, ERROR].concat();
    for steps in [vec![send(&one)], vec![send(PING), send(PING), send(ERROR)]] {
        let told = call(&layer, &Upstream::new(steps)).await;
        assert_eq!((told.text(), told.end()), (&*one, Some(Class::Transient)));
    }
}

#[tokio::test(start_paused = true)]
async fn held_to_the_end_a_failure_anywhere_is_a_failed_call() {
    let steps = |last: &[Do]| Upstream::new([send(CONTENT), wait(3.0)].into_iter().chain(last.to_vec()));
    let good = call(&held(), &steps(&[send(CONTENT), send(DONE)])).await;
    assert_eq!(good.text(), [CONTENT, CONTENT, DONE].concat());
    assert_eq!(good.verdicts, [Class::Success]);
    assert_eq!(good.insight.unwrap().facts().first_content, Some(Duration::ZERO));
    for (last, class) in [
        (vec![send(ERROR)], Class::Transient),
        (vec![Do::Fail], Class::Transient),
        (vec![], Class::Soft(SoftKind::Truncated)),
        (vec![send(PING), Do::Hang], Class::Timeout(failsoft_core::Limit::Idle)),
    ] {
        let upstream = steps(&last);
        let told = call(&held(), &upstream).await;
        assert!(told.answer.is_err());
        assert_eq!(told.verdicts, [class]);
        assert_eq!(upstream.alive(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn held_to_the_end_a_failing_end_is_known_at_once_so_that_a_retry_can_act() {
    let upstream = Upstream::new([send(CONTENT), send("data: [LENGTH]\n\n")]);
    let response = held().layer(upstream.service()).oneshot(()).await.unwrap();
    let insight = failsoft_core::Insight::of(response.extensions()).unwrap();
    assert_eq!(insight.verdict().map(|verdict| verdict.class()), Some(Class::Soft(SoftKind::Truncated)));
}

#[tokio::test(start_paused = true)]
async fn beyond_the_cap_a_held_answer_is_handed_on_or_fails_as_its_policy_says() {
    let cap = CONTENT.len() + 1;
    let builder = || StreamLayer::builder(Chat::default()).hold_to_end(cap);
    let upstream = Upstream::new([send(CONTENT), send(CONTENT), wait(1.0), send(ERROR)]);
    let told = call(&builder().build().unwrap(), &upstream).await;
    assert_eq!(told.text(), [CONTENT, CONTENT, ERROR].concat());
    assert_eq!(told.end(), Some(Class::Transient));
    let told = call(&builder().beyond(Beyond::Fail).build().unwrap(), &upstream).await;
    assert_eq!(told.fault().class(), Class::Soft(SoftKind::Malformed));
    assert_eq!(told.fault().verdict().hint(), Hint::Fallback);
}

#[tokio::test(start_paused = true)]
async fn a_watched_body_is_handed_on_at_its_head_and_read_while_it_passes() {
    let layer = StreamLayer::new(Chat { watch: true });
    let told = call(&layer, &Upstream::new([send(ROLE), wait(1.0), send(CONTENT), send(ERROR)])).await;
    assert_eq!((told.end(), &told.verdicts[..]), (Some(Class::Transient), &[Class::Transient][..]));
    assert_eq!(told.insight.unwrap().facts().first_content, Some(Duration::from_secs(1)));
}

#[tokio::test(start_paused = true)]
async fn each_attempt_has_its_own_state() {
    let layer = chat();
    let failed = call(&layer, &Upstream::new([send("data: {\"con"), Do::Fail])).await;
    assert!(failed.answer.is_err());
    let good = call(&layer, &Upstream::new([send(CONTENT), send(DONE)])).await;
    assert_eq!(good.verdicts, [Class::Success]);
}

#[tokio::test(start_paused = true)]
async fn a_character_cut_in_two_arrives_whole() {
    let bytes = CONTENT.as_bytes();
    let at = CONTENT.find('ü').unwrap() + 1;
    let cut = [&bytes[..at], &bytes[at..], DONE.as_bytes()].map(|part| Do::Send(part.to_vec().into()));
    let told = call(&chat(), &Upstream::new(cut)).await;
    assert_eq!(told.text(), [CONTENT, DONE].concat());
}

#[tokio::test(start_paused = true)]
async fn an_endless_event_is_a_malformed_answer_and_not_an_endless_buffer() {
    let big = "x".repeat(40_000);
    let upstream = Upstream::new([send("data: "), send(&big), send(&big), Do::Hang]);
    let told = call(&held(), &upstream).await;
    assert_eq!(told.fault().class(), Class::Soft(SoftKind::Malformed));
}

#[tokio::test(start_paused = true)]
async fn dropping_the_future_or_the_body_drops_the_upstream_at_once() {
    let upstream = Upstream::new([send(ROLE), Do::Hang]);
    let mut call = tokio_test::task::spawn(chat().layer(upstream.service()).oneshot(()));
    assert!(call.poll().is_pending());
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(call.poll().is_pending());
    assert_eq!(upstream.alive(), 1);
    drop(call);
    assert_eq!(upstream.alive(), 0);

    let upstream = Upstream::new([send(CONTENT), Do::Hang]);
    let response = chat().layer(upstream.service()).oneshot(()).await.unwrap();
    assert_eq!(upstream.alive(), 1);
    drop(response);
    assert_eq!(upstream.alive(), 0);
}

#[tokio::test(start_paused = true)]
async fn trailers_pass() {
    for steps in [vec![send("x"), Do::Trailers], vec![Do::Trailers]] {
        let upstream = Upstream::new(steps);
        let response = StreamLayer::new(AnyContent).layer(upstream.service()).oneshot(()).await.unwrap();
        let insight = failsoft_core::Insight::of(response.extensions()).unwrap().clone();
        assert!(response.into_body().collect().await.unwrap().trailers().is_some());
        assert_eq!(insight.verdict(), None, "whoever knows more may still decide");
    }
}

#[tokio::test(start_paused = true)]
async fn a_grpc_answer_means_what_its_trailers_say() {
    for (trailers, class) in [
        (Some(Some("0")), Class::Success),
        (Some(Some("14")), Class::Overloaded),
        (Some(None), Class::Transient),
        (None, Class::Transient),
    ] {
        let service = tower::service_fn(move |()| async move {
            let trailers = trailers.map(|status| {
                let status = status.map(|status| ("grpc-status".parse().unwrap(), status.parse().unwrap()));
                Ok::<http::HeaderMap, std::convert::Infallible>(status.into_iter().collect())
            });
            let body = http_body_util::Full::<bytes::Bytes>::from("message");
            let body = Box::pin(body.with_trailers(std::future::ready(trailers)));
            http::Response::builder().header("content-type", "application/grpc").body(body)
        });
        let held = StreamLayer::builder(AnyContent).hold_to_end(100).build().unwrap();
        for layer in [StreamLayer::new(AnyContent), held] {
            let response = layer.layer(service).oneshot(()).await.unwrap();
            let insight = failsoft_core::Insight::of(response.extensions()).unwrap().clone();
            let body = response.into_body().collect().await.unwrap();
            assert_eq!(body.trailers().is_some(), trailers.is_some());
            assert_eq!(insight.verdict().map(|verdict| verdict.class()), Some(class));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_knows_its_length_is_judged_with_its_last_byte() {
    let service = tower::service_fn(|()| async {
        let body = http_body_util::Full::<bytes::Bytes>::from("{}\n");
        Ok::<_, std::convert::Infallible>(http::Response::new(body))
    });
    let response = StreamLayer::new(AnyLine::new()).layer(service).oneshot(()).await.unwrap();
    let insight = failsoft_core::Insight::of(response.extensions()).unwrap().clone();
    assert_eq!(response.body().size_hint().exact(), Some(3));
    let mut body = response.into_body();
    body.frame().await.unwrap().unwrap();
    assert!(body.is_end_stream());
    assert!(insight.facts().first_content.is_some());

    let service_of = |text: String| {
        tower::service_fn(move |()| {
            let body = http_body_util::Full::<bytes::Bytes>::from(text.clone());
            async move { Ok::<_, std::convert::Infallible>(http::Response::new(body)) }
        })
    };
    let whole = service_of([CONTENT, "data: [DONE]"].concat());
    let response = StreamLayer::new(Chat { watch: true }).layer(whole).oneshot(()).await.unwrap();
    let insight = failsoft_core::Insight::of(response.extensions()).unwrap().clone();
    response.into_body().frame().await.unwrap().unwrap();
    assert!(insight.verdict().unwrap().is_success());

    // What was promised and is missing still becomes an error.
    let response = StreamLayer::new(Chat { watch: true }).layer(service).oneshot(()).await.unwrap();
    let mut body = response.into_body();
    body.frame().await.unwrap().unwrap();
    assert!(!body.is_end_stream());
    let err = body.frame().await.unwrap().unwrap_err();
    assert_eq!(Fault::find(&*err).map(|fault| fault.class()), Some(Class::Soft(SoftKind::Truncated)));
}

#[tokio::test(start_paused = true)]
async fn ready_made_protocols_know_an_empty_stream_and_their_terminator() {
    let events = StreamLayer::new(AnyEvent::new().terminator("[DONE]").error_event("error"));
    let empty = Class::Soft(SoftKind::Empty);
    assert_eq!(call(&events, &Upstream::new([send(PING), send(DONE)])).await.fault().class(), empty);
    assert_eq!(call(&events, &Upstream::new([])).await.fault().class(), empty);
    assert_eq!(call(&events, &Upstream::new([send(ERROR_EVENT)])).await.fault().class(), Class::Transient);
    let told = call(&events, &Upstream::new([send(CONTENT), send("data: [DONE]")])).await;
    assert_eq!((told.end(), &told.verdicts[..]), (None, &[Class::Success][..]));
    let told = call(&events, &Upstream::new([send(CONTENT)])).await;
    assert_eq!(told.end(), Some(Class::Soft(SoftKind::Truncated)));
    let lines = StreamLayer::new(AnyLine::new());
    assert_eq!(call(&lines, &Upstream::new([send("\n \n")])).await.fault().class(), empty);
    let told = call(&lines, &Upstream::new([send("{\"a\":1}"), Do::Fail])).await;
    assert!(told.answer.is_err(), "half a line is no content yet");
    let any = call(&StreamLayer::new(AnyContent), &Upstream::new([])).await;
    assert_eq!((any.text(), &any.verdicts[..]), ("", &[Class::Success][..]));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_only_keeps_the_connection_open_is_no_content_whatever_its_data() {
    let layer = StreamLayer::new(AnyEvent::new());
    for name in ["ping", "heartbeat", "keepalive", "keep-alive"] {
        let ping = format!("event: {name}\ndata: {{\"type\": \"ping\"}}\n\n");
        // Before content it does not commit, after it does not end the silence.
        for pings in [1, 1000] {
            for ping in [&ping, PING] {
                let told =
                    call(&layer, &Upstream::new(std::iter::repeat_n(send(ping), pings).chain([Do::Fail])))
                        .await;
                assert!(told.answer.is_err(), "{pings} times {ping}");
            }
        }
        let drip = std::iter::repeat_n([wait(20.0), send(&ping)], 3).flatten();
        let told = call(&layer, &Upstream::new([send(CONTENT)].into_iter().chain(drip))).await;
        assert_eq!(told.end(), Some(Class::Timeout(failsoft_core::Limit::Idle)), "{name}");
        // Where the application means something by that name, it says so.
        let all = StreamLayer::new(AnyEvent::new().keepalive_events(&[]));
        let told = call(&all, &Upstream::new([send(&ping), Do::Fail])).await;
        assert_eq!(told.text(), ping);
    }
    let layer = StreamLayer::new(AnyEvent::new().keepalive_events(&["tick"]));
    let told = call(&layer, &Upstream::new([send("event: ping\ndata: 1\n\n"), Do::Fail])).await;
    assert!(told.answer.is_ok());
    assert!(call(&layer, &Upstream::new([send("event: tick\ndata: 1\n\n"), Do::Fail])).await.answer.is_err());
}

#[tokio::test(start_paused = true)]
async fn every_failure_bears_the_name_of_the_target() {
    let protocol = AnyEvent::new().terminator("[DONE]").error_event("error").max_event(64);
    let layer = StreamLayer::builder(protocol).target("model-a").build().unwrap();
    let long = "x".repeat(65);
    for steps in [vec![], vec![send(ERROR_EVENT)], vec![send(&long)]] {
        let told = call(&layer, &Upstream::new(steps.clone())).await;
        assert_eq!(told.fault().target(), Some("model-a"), "{steps:?}");
        let upstream = Upstream::new([send(CONTENT)].into_iter().chain(steps.clone()));
        let err = layer
            .layer(upstream.service())
            .oneshot(())
            .await
            .unwrap()
            .into_body()
            .collect()
            .await
            .unwrap_err();
        assert_eq!(Fault::find(&*err).unwrap().target(), Some("model-a"), "{steps:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_encoded_or_has_no_body_is_not_read_for_events() {
    async fn passes<P: stream_layer::Protocol<()> + Clone>(
        protocol: P,
        status: u16,
        coding: &'static str,
        body: &'static [u8],
    ) {
        let service = tower::service_fn(move |()| async move {
            http::Response::builder()
                .status(status)
                .header("content-type", "text/event-stream")
                .header("content-encoding", coding)
                .body(http_body_util::Full::<bytes::Bytes>::from(body))
        });
        let response = StreamLayer::new(protocol).layer(service).oneshot(()).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), body);
    }
    // A cap on one line means nothing to packed bytes.
    let (events, lines) = (AnyEvent::new().max_event(8), AnyLine::new().max_line(8));
    for (status, coding, body) in
        [(204, "identity", &b""[..]), (205, "identity", b""), (200, "gzip", b"\x1f\x8b\x08packed bytes")]
    {
        passes(events, status, coding, body).await;
        passes(lines, status, coding, body).await;
    }
}

#[test]
fn nonsense_is_refused_when_it_is_built() {
    let zero = StreamLayer::builder(AnyContent).idle(Duration::ZERO).build().unwrap_err();
    assert_eq!(zero.field(), "idle");
    let beyond = StreamLayer::builder(AnyContent).beyond(Beyond::Fail).build().unwrap_err();
    assert_eq!(beyond.field(), "beyond");
    assert!(
        StreamLayer::builder(AnyContent).idle(None).first_content(None).hold_limits(0, 0).build().is_ok()
    );
}

/// Everything that must not depend on how the bytes were cut.
#[derive(Debug, PartialEq)]
enum End {
    Call(Class),
    Body(Option<Class>, Vec<Class>),
}

fn run(layer: &StreamLayer<Chat>, steps: Vec<Do>, whole: &str) -> End {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let told = runtime.unwrap().block_on(call(layer, &Upstream::new(steps)));
    match &told.answer {
        Err(_) => End::Call(told.verdicts[0]),
        Ok((text, end)) => {
            assert!(whole.starts_with(text));
            assert!(end.is_some() || text == whole, "nothing is lost");
            End::Body(*end, told.verdicts)
        }
    }
}

proptest! {
    #[test]
    fn however_a_stream_is_cut_it_ends_alike(
        events in proptest::collection::vec(
            prop_oneof![
                3 => Just(PING), 2 => Just(ROLE), 2 => Just(CONTENT), 1 => Just(ARGUMENTS),
                1 => Just(ERROR), 1 => Just(ERROR_EVENT), 1 => Just(DONE), 1 => Just("data: [LENGTH]\r\n\r"),
            ],
            0..12,
        ),
        cuts in proptest::collection::vec(0_usize..400, 0..8),
        hold in 0_usize..6,
        fails: bool,
    ) {
        let whole = events.concat();
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(whole.len())).collect();
        cuts.extend([0, whole.len()]);
        cuts.sort_unstable();
        let last = if fails { vec![Do::Fail] } else { vec![] };
        let pieces = cuts.windows(2).map(|cut| Do::Send(whole.as_bytes()[cut[0]..cut[1]].to_vec().into()));
        let pieces: Vec<_> = pieces.chain(last.clone()).collect();
        let one: Vec<_> = [send(&whole)].into_iter().chain(last).collect();
        let limited = StreamLayer::builder(Chat::default()).hold_limits(hold, 1 << 20).build().unwrap();
        let watched = StreamLayer::new(Chat { watch: true });
        for layer in [limited, held(), watched] {
            prop_assert_eq!(run(&layer, pieces.clone(), &whole), run(&layer, one.clone(), &whole));
        }
    }
}

/// Polls a call, then its body, so many times, with time between, and drops what there is then; gives how many upstream bodies
/// were alive before that.
async fn drop_after<P>(layer: &StreamLayer<P>, upstream: &Upstream, polls: usize) -> usize
where
    P: stream_layer::Protocol<()> + Clone,
{
    let mut call = Some(Box::pin(layer.layer(upstream.service()).oneshot(())));
    let mut body = None;
    for _ in 0..polls {
        std::future::poll_fn(|cx| {
            if let Some(running) = &mut call {
                if let Poll::Ready(answer) = running.as_mut().poll(cx) {
                    (call, body) = (None, answer.ok().map(|answer| Box::pin(answer.into_body())));
                }
            } else if let Some(body) = &mut body {
                let _ = body.as_mut().poll_frame(cx);
            }
            Poll::Ready(())
        })
        .await;
        tokio::time::advance(Duration::from_millis(500)).await;
    }
    upstream.alive()
}

#[tokio::test(start_paused = true)]
async fn a_call_or_a_body_dropped_after_any_poll_leaves_no_upstream_body() {
    let steps = |last: &[Do]| {
        let first = [send(PING), wait(0.4), send(ROLE), wait(0.9), send(CONTENT), send(ARGUMENTS), wait(0.4)];
        [&first[..], &[send(CONTENT)], last].concat()
    };
    let ends =
        [vec![Do::Hang], vec![send(DONE), Do::Hang], vec![send(ERROR), Do::Hang], vec![Do::Fail], vec![]];
    let limited = StreamLayer::builder(Chat::default()).idle(Duration::from_secs(1)).build().unwrap();
    for layer in [chat(), held(), limited, StreamLayer::new(Chat { watch: true })] {
        for last in &ends {
            let mut most = 0;
            for polls in 0..=12 {
                let upstream = Upstream::new(steps(last));
                most = most.max(drop_after(&layer, &upstream, polls).await);
                assert_eq!(upstream.alive(), 0, "{polls} polls");
            }
            assert_eq!(most, 1);
        }
    }
}
