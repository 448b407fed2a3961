//! Faults of streams that were reported elsewhere, by the ids of the list that they come from. What shows only in a real format
//! or around other layers is in the tests of llm-layer and of the stacks.

use std::time::Duration;

use crate::common::*;
use failsoft_core::{Class, Fault, Limit, SoftKind};
use http_body_util::BodyExt as _;
use stream_layer::{AnyEvent, SseFramer, StreamLayer};
use tokio::time::Instant;
use tower::ServiceExt as _;
use tower_layer::Layer as _;

const SECOND: Duration = Duration::from_secs(1);

fn chat() -> StreamLayer<Chat> {
    StreamLayer::new(Chat::default())
}

fn events(pieces: &[&[u8]]) -> Vec<String> {
    let (mut framer, mut all) = (SseFramer::default(), Vec::new());
    for piece in pieces {
        let mut events = framer.feed(piece);
        while let Some(event) = events.next_event() {
            all.push(event.unwrap().text().into_owned());
        }
    }
    all.extend(framer.finish().map(|event| event.text().into_owned()));
    all
}

#[tokio::test(start_paused = true)]
async fn g51_an_error_event_in_a_200_is_an_attempts_error_before_content_and_one_terminal_error_after_it() {
    let told = call(&chat(), &Upstream::new([send(ERROR), send(DONE)])).await;
    assert_eq!((told.fault().class(), &told.verdicts[..]), (Class::Transient, &[Class::Transient][..]));
    let told = call(&chat(), &Upstream::new([send(CONTENT), send(ERROR), send(DONE)])).await;
    assert_eq!((told.end(), &told.verdicts[..]), (Some(Class::Transient), &[Class::Transient][..]));
}

#[tokio::test(start_paused = true)]
async fn g54_a_failure_at_the_start_keeps_its_status_and_its_body() {
    let upstream = Upstream { status: 401, ..Upstream::new([send("{\"error\":\"key\"}")]) };
    let response = chat().layer(upstream.service()).oneshot(()).await.unwrap();
    assert_eq!(response.status(), 401);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "{\"error\":\"key\"}");
}

#[tokio::test(start_paused = true)]
async fn g55_the_end_of_a_failed_attempt_is_not_that_of_the_next() {
    let layer = chat();
    let told = call(&layer, &Upstream::new([send(ROLE), send(ERROR)])).await;
    assert_eq!(told.fault().class(), Class::Transient);
    let told = call(&layer, &Upstream::new([send(CONTENT), send(DONE)])).await;
    assert_eq!((told.text(), told.end()), (&*[CONTENT, DONE].concat(), None));
}

#[tokio::test(start_paused = true)]
async fn g56_a_stream_whose_first_item_is_an_error_fails_inside_its_attempt() {
    let told = call(&chat(), &Upstream::new([Do::Fail])).await;
    assert_eq!(
        told.answer.as_ref().err().map(|err| failsoft_core::Verdict::of_error(&**err).class()),
        Some(Class::Transient)
    );
}

#[test]
fn g60_a_character_cut_in_two_neither_aborts_nor_is_replaced() {
    assert_eq!(events(&[b"data: \xE4\xB8", b"\xAD\n\n"]), ["中"]);
}

#[test]
fn g61_cr_crlf_mixtures_a_mark_and_fields_without_a_space_are_read() {
    for stream in ["data:x\r\r", "data:x\r\n\r\n", "data: x\n\r\n", "\u{feff}data:x\n\n", ":c\rdata:x\r\n\n"]
    {
        assert_eq!(events(&[stream.as_bytes()]), ["x"], "{stream:?}");
        let bytes: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
        assert_eq!(events(&bytes), ["x"], "{stream:?} byte by byte");
    }
    assert_eq!(events(&[b"data: a\r", b"\ndata: b\r\n\r", b"\ndata: c\n\n"]), ["a\nb", "c"]);
}

#[tokio::test(start_paused = true)]
async fn g62_an_event_without_end_is_a_malformed_answer() {
    let endless = std::iter::repeat_n(send(&"x".repeat(1 << 16)), 200);
    let layer =
        StreamLayer::builder(AnyEvent::new().max_event(1 << 20)).hold_limits(64, 100 << 20).build().unwrap();
    let told = call(&layer, &Upstream::new([send("data: ")].into_iter().chain(endless))).await;
    assert_eq!(told.fault().class(), Class::Soft(SoftKind::Malformed));
}

#[tokio::test(start_paused = true)]
async fn g63_keepalives_are_no_progress() {
    for ping in [": ping\n\n", "event: ping\ndata: {}\n\n"] {
        let start = Instant::now();
        let pings = (0..1000).flat_map(|_| [wait(0.9), send(ping)]);
        let told = call(&chat(), &Upstream::new([send(CONTENT)].into_iter().chain(pings))).await;
        assert_eq!(told.end(), Some(Class::Timeout(Limit::Idle)));
        assert!(start.elapsed() <= SECOND * 31);
    }
}

#[tokio::test(start_paused = true)]
async fn g64_six_minutes_of_tool_arguments_are_progress() {
    let deltas = (0..18).flat_map(|_| [wait(20.0), send(ARGUMENTS)]);
    let upstream = Upstream::new([send(ARGUMENTS)].into_iter().chain(deltas).chain([send(DONE)]));
    let told = call(&chat(), &upstream).await;
    assert_eq!((told.end(), &told.verdicts[..]), (None, &[Class::Success][..]));
}

#[tokio::test(start_paused = true)]
async fn g65_an_active_stream_is_not_ended_by_a_total_nobody_asked_for() {
    let tokens = (0..60).flat_map(|_| [wait(10.0), send(CONTENT)]);
    let upstream = Upstream::new([send(CONTENT)].into_iter().chain(tokens).chain([send(DONE)]));
    let start = Instant::now();
    assert_eq!(call(&chat(), &upstream).await.end(), None);
    assert_eq!(start.elapsed(), SECOND * 600);
}

#[tokio::test(start_paused = true)]
async fn g66_a_silent_stall_after_the_first_token_ends_at_the_idle_limit() {
    let start = Instant::now();
    let told = call(&chat(), &Upstream::new([send(CONTENT), Do::Hang])).await;
    assert_eq!((told.end(), start.elapsed()), (Some(Class::Timeout(Limit::Idle)), SECOND * 30));
}

#[tokio::test(start_paused = true)]
async fn g67_the_first_content_counts_from_the_dispatch_and_not_from_the_head() {
    for upstream in [
        Upstream { before_head: Duration::from_secs(3600), ..Upstream::new([]) },
        Upstream { before_head: SECOND * 9, ..Upstream::new([Do::Hang]) },
    ] {
        let start = Instant::now();
        let told = call(&chat(), &upstream).await;
        assert_eq!(told.fault().class(), Class::Timeout(Limit::FirstContent));
        assert_eq!(start.elapsed(), SECOND * 10);
    }
}

#[tokio::test(start_paused = true)]
async fn g68_every_limit_names_itself_the_time_that_passed_and_what_was_allowed() {
    let total = StreamLayer::builder(Chat::default()).total(SECOND * 5).build().unwrap();
    let before = call(&chat(), &Upstream::new([Do::Hang])).await;
    assert_eq!(before.fault().message(), Some("no content after 10s, the limit is 10s"));
    let late = async |layer: &StreamLayer<Chat>| {
        let upstream = Upstream::new([send(CONTENT), Do::Hang]);
        let body = layer.layer(upstream.service()).oneshot(()).await.unwrap().into_body();
        let err = body.collect().await.unwrap_err();
        let fault = Fault::find(&*err).unwrap();
        (fault.class(), fault.message().unwrap().to_owned())
    };
    let idle = late(&chat()).await;
    assert_eq!(idle, (Class::Timeout(Limit::Idle), "no progress for 30s, the limit is 30s".to_owned()));
    let total = late(&total).await;
    assert_eq!(total, (Class::Timeout(Limit::Total), "not over after 5s, the limit is 5s".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn g69_a_late_first_token_is_told_at_the_soft_limit_and_cut_off_only_at_the_hard_one() {
    let layer = StreamLayer::builder(Chat::default())
        .first_content(SECOND * 20)
        .soft_first_content(SECOND * 10)
        .build()
        .unwrap();
    let told = call(&layer, &Upstream::new([wait(12.0), send(CONTENT), send(DONE)])).await;
    assert_eq!(told.verdicts, [Class::Success]);
    let facts = told.insight.unwrap().facts();
    assert_eq!((facts.first_content, facts.slow.first_content), (Some(SECOND * 12), Some(SECOND * 10)));
    let told = call(&layer, &Upstream::new([wait(21.0), send(CONTENT)])).await;
    assert_eq!(told.fault().class(), Class::Timeout(Limit::FirstContent));
}

#[tokio::test(start_paused = true)]
async fn v_c1_an_error_event_after_the_200_is_typed_and_counts_for_a_breaker() {
    let told = call(&chat(), &Upstream::new([send(CONTENT), send(ERROR_EVENT)])).await;
    assert_eq!((told.end(), &told.verdicts[..]), (Some(Class::Overloaded), &[Class::Overloaded][..]));
}

#[tokio::test(start_paused = true)]
async fn v_c4_a_clean_end_without_a_terminal_signal_is_a_truncated_stream() {
    let told = call(&chat(), &Upstream::new([send(CONTENT)])).await;
    assert_eq!(told.end(), Some(Class::Soft(SoftKind::Truncated)));
    let events = StreamLayer::new(AnyEvent::new().terminator("[DONE]"));
    let told = call(&events, &Upstream::new([send("data: x\n\n")])).await;
    assert_eq!(told.end(), Some(Class::Soft(SoftKind::Truncated)));
}

#[tokio::test(start_paused = true)]
async fn v_c8_a_terminator_without_its_blank_line_is_not_lost() {
    for done in ["data: [DONE]", "data: [DONE]\n"] {
        let told = call(&chat(), &Upstream::new([send(CONTENT), send(done)])).await;
        assert_eq!((told.end(), &told.verdicts[..]), (None, &[Class::Success][..]));
    }
    let (mut framer, bytes) = (SseFramer::default(), b"data: [DONE]");
    assert!(framer.feed(bytes).next_event().is_none());
    assert!(!framer.finish().unwrap().is_terminated());
}
