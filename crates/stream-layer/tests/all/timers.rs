//! The limits of time, on a paused clock.

use std::{convert::Infallible, time::Duration};

use crate::common::*;
use failsoft_core::{Blame, Call, Class, Fault, Limit, Verdict};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use stream_layer::{
    AnyContent, AnyContentDecoder, AnyEvent, Limits, Mode, Protocol, Reader, StreamLayer, Until,
};
use tokio::time::Instant;
use tower::ServiceExt as _;
use tower_layer::Layer as _;

const SECOND: Duration = Duration::from_secs(1);

fn chat() -> StreamLayer<Chat> {
    StreamLayer::new(Chat::default())
}

const fn timeout(limit: Limit) -> Class {
    Class::Timeout(limit)
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_sends_a_head_has_ten_seconds_from_the_call() {
    let start = Instant::now();
    let upstream = Upstream { before_head: Duration::from_secs(3600), ..Upstream::new([send(CONTENT)]) };
    let told = call(&chat(), &upstream).await;
    assert_eq!(start.elapsed(), SECOND * 10);
    assert_eq!(told.fault().class(), timeout(Limit::FirstContent));
    assert_eq!(told.fault().verdict().blame(), Blame::Target);
    assert_eq!(told.fault().message(), Some("no content after 10s, the limit is 10s"));
}

#[tokio::test(start_paused = true)]
async fn time_before_the_head_counts_and_keepalives_and_roles_are_no_content() {
    let start = Instant::now();
    let pings = (0..30).flat_map(|_| [wait(1.0), send(PING)]);
    let steps = [send(ROLE)].into_iter().chain(pings);
    let upstream = Upstream { before_head: SECOND * 6, ..Upstream::new(steps) };
    let told = call(&chat(), &upstream).await;
    assert_eq!((told.fault().class(), start.elapsed()), (timeout(Limit::FirstContent), SECOND * 10));
    assert_eq!(upstream.alive(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_late_first_content_is_told_in_the_insight() {
    let upstream =
        Upstream { before_head: SECOND * 4, ..Upstream::new([wait(4.0), send(CONTENT), send(DONE)]) };
    let told = call(&chat(), &upstream).await;
    assert_eq!(told.insight.unwrap().facts().first_content, Some(SECOND * 8));
}

#[tokio::test(start_paused = true)]
async fn keepalives_do_not_reset_the_idle_limit() {
    // The second drip has one just when the limit passes, when nobody can tell who was late.
    for (every, latest) in [(0.7, 30), (1.0, 31), (15.0, 31)] {
        let start = Instant::now();
        let pings = (0..300).flat_map(|_| [wait(every), send(PING)]);
        let upstream = Upstream::new([send(CONTENT)].into_iter().chain(pings));
        let told = call(&chat(), &upstream).await;
        assert_eq!(told.end(), Some(timeout(Limit::Idle)));
        assert_eq!(told.verdicts, [timeout(Limit::Idle)]);
        assert!(start.elapsed() >= SECOND * 30 && start.elapsed() <= SECOND * latest);
        assert_eq!(upstream.alive(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn tool_arguments_and_progress_without_content_do_reset_it() {
    for event in [ARGUMENTS, "data: {\"status\":\"in_progress\"}\n\n"] {
        // Six minutes of nothing else.
        let deltas = (0..18).flat_map(|_| [wait(20.0), send(event)]);
        let upstream = Upstream::new([send(CONTENT)].into_iter().chain(deltas).chain([send(DONE)]));
        let told = call(&chat(), &upstream).await;
        assert_eq!((told.end(), &told.verdicts[..]), (None, &[Class::Success][..]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stall_after_the_first_content_says_how_long_it_was() {
    let upstream = Upstream::new([send(CONTENT), wait(7.0), send(CONTENT), Do::Hang]);
    let layer = StreamLayer::builder(Chat::default()).target("model-a").idle(SECOND * 9).build().unwrap();
    let response = layer.layer(upstream.service()).oneshot(()).await.unwrap();
    let err = response.into_body().collect().await.unwrap_err();
    let fault = Fault::find(&*err).unwrap();
    assert_eq!((fault.class(), fault.target()), (timeout(Limit::Idle), Some("model-a")));
    assert_eq!(fault.message(), Some("no progress for 9s, the limit is 9s"));
    assert_eq!(upstream.alive(), 0, "dropped although the caller may still hold the body");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_flows_is_not_ended_unless_a_total_limit_says_so() {
    let tokens = || (0..36).flat_map(|_| [wait(10.0), send(CONTENT)]);
    let upstream = Upstream::new([send(CONTENT)].into_iter().chain(tokens()).chain([send(DONE)]));
    assert_eq!(call(&chat(), &upstream).await.verdicts, [Class::Success]);
    let start = Instant::now();
    let layer = StreamLayer::builder(Chat::default()).total(SECOND * 45).build().unwrap();
    let told = call(&layer, &upstream).await;
    assert_eq!((told.end(), start.elapsed()), (Some(timeout(Limit::Total)), SECOND * 45));
}

#[tokio::test(start_paused = true)]
async fn a_total_limit_passes_also_while_there_is_always_something_to_read() {
    let upstream = Upstream::new(std::iter::repeat_n(send(CONTENT), 100));
    let layer = StreamLayer::builder(Chat::default()).total(SECOND).build().unwrap();
    let mut body = layer.layer(upstream.service()).oneshot(()).await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    tokio::time::advance(SECOND).await;
    let err = body.frame().await.unwrap().unwrap_err();
    assert_eq!(Fault::find(&*err).map(|fault| fault.class()), Some(timeout(Limit::Total)));
    assert!(body.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_slow_consumer_does_not_use_up_the_upstreams_idle_time() {
    let upstream = Upstream::new([send(CONTENT), send(CONTENT), wait(1.0), send(CONTENT), send(DONE)]);
    let mut body = chat().layer(upstream.service()).oneshot(()).await.unwrap().into_body();
    let mut frames = 0;
    while let Some(frame) = body.frame().await {
        frame.unwrap();
        frames += 1;
        tokio::time::advance(SECOND * 100).await;
    }
    assert_eq!(frames, 4);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_nobody_polls_does_not_time_out_and_what_came_meanwhile_is_read_first() {
    let upstream = Upstream::new([send(CONTENT), wait(20.0), send(CONTENT), send(DONE)]);
    let mut body = chat().layer(upstream.service()).oneshot(()).await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    // Asked once, then left alone for longer than the limit.
    assert!(tokio_test::task::spawn(body.frame()).poll().is_pending());
    tokio::time::advance(SECOND * 200).await;
    assert_eq!(body.collect().await.unwrap().to_bytes(), [CONTENT, DONE].concat());
}

#[tokio::test(start_paused = true)]
async fn the_callers_deadline_ends_the_wait_and_is_the_callers_fault() {
    // G70: what is left of the whole call bounds each attempt.
    let start = Instant::now();
    let upstream = Upstream::new([send(PING), Do::Hang]);
    let call_ = Call::options().timeout(SECOND * 3).begin();
    let told = call_.scope(call(&chat(), &upstream)).await;
    assert_eq!((told.fault().class(), start.elapsed()), (timeout(Limit::FirstContent), SECOND * 3));
    assert_eq!(told.fault().verdict().blame(), Blame::Caller);
    assert_eq!(told.fault().message(), Some("no content after 3s, the caller's deadline is 3s"));

    let layer = StreamLayer::builder(Chat::default()).hold_to_end(1 << 20).build().unwrap();
    let upstream = Upstream::new([send(CONTENT), wait(5.0), send(DONE)]);
    let call_ = Call::options().timeout(SECOND * 3).begin();
    let told = call_.scope(call(&layer, &upstream)).await;
    assert_eq!(told.fault().class(), timeout(Limit::Total));
    assert_eq!(told.fault().verdict().blame(), Blame::Caller);
}

#[tokio::test(start_paused = true)]
async fn the_callers_deadline_does_not_end_a_stream_that_was_handed_on() {
    let upstream = Upstream::new([send(CONTENT), wait(20.0), send(CONTENT), send(DONE)]);
    let call_ = Call::options().timeout(SECOND * 3).begin();
    assert_eq!(call_.scope(call(&chat(), &upstream)).await.verdicts, [Class::Success]);
}

#[tokio::test(start_paused = true)]
async fn held_to_the_end_the_idle_and_the_total_limit_hold_too() {
    let start = Instant::now();
    let builder = || StreamLayer::builder(Chat::default()).hold_to_end(1 << 20);
    let stalled = Upstream::new([send(CONTENT), Do::Hang]);
    let told = call(&builder().build().unwrap(), &stalled).await;
    assert_eq!((told.fault().class(), start.elapsed()), (timeout(Limit::Idle), SECOND * 30));
    let told = call(&builder().total(SECOND * 5).build().unwrap(), &stalled).await;
    assert_eq!((told.fault().class(), start.elapsed()), (timeout(Limit::Total), SECOND * 35));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_just_passes_is_still_bound_by_the_idle_limit() {
    let drip = (0..10).flat_map(|_| [wait(20.0), send("x")]);
    let upstream = Upstream { status: 503, ..Upstream::new(drip.chain([Do::Hang])) };
    let told = call(&StreamLayer::new(AnyEvent::new()), &upstream).await;
    assert_eq!((told.text().len(), told.end()), (10, Some(timeout(Limit::Idle))));
}

#[tokio::test(start_paused = true)]
async fn without_limits_there_is_no_timer_at_all() {
    let layer = StreamLayer::builder(AnyContent).first_content(None).idle(None).build().unwrap();
    let upstream = Upstream::new([wait(1e6), send("x"), wait(1e6), send("y")]);
    assert_eq!(call(&layer, &upstream).await.text(), "xy");
}

/// An answer that is not streamed: no limit on its first content.
#[derive(Clone, Copy)]
struct Whole;

impl Protocol<()> for Whole {
    type Reader = Self;

    fn request(&self, (): &()) -> Self {
        *self
    }
}

impl Reader for Whole {
    type Decoder = AnyContentDecoder;

    fn limits(&self, mut limits: Limits) -> Limits {
        limits.first_content = None;
        limits.total = Some(SECOND * 60);
        limits
    }

    fn head(self, _: &mut http::response::Parts, _: Until) -> Mode<AnyContentDecoder> {
        Mode::Hold {
            decoder: AnyContentDecoder::default(),
            until: Until::End { bytes: 100, beyond: Default::default() },
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_protocol_may_set_other_limits_for_a_request() {
    let slow = Upstream { before_head: SECOND * 40, ..Upstream::new([send("x")]) };
    assert_eq!(call(&StreamLayer::new(Whole), &slow).await.text(), "x");
    let start = Instant::now();
    let slower = Upstream { before_head: SECOND * 100, ..Upstream::new([send("x")]) };
    let told = call(&StreamLayer::new(Whole), &slower).await;
    assert_eq!((told.fault().class(), start.elapsed()), (timeout(Limit::Total), SECOND * 60));
}

#[tokio::test(start_paused = true)]
async fn around_another_stream_layer_each_acts_on_its_own() {
    let inner = StreamLayer::builder(Chat::default()).idle(SECOND).build().unwrap();
    let outer = StreamLayer::builder(AnyContent).hold_to_end(1 << 20).build().unwrap();
    let upstream = Upstream::new([send(CONTENT), Do::Hang]);
    let err = outer.layer(inner.layer(upstream.service())).oneshot(()).await.unwrap_err();
    assert_eq!(Verdict::of_error(&*err).class(), timeout(Limit::Idle));
    let whole = Upstream::new([send(CONTENT), send(DONE)]);
    let response = outer.layer(inner.layer(whole.service())).oneshot(()).await.unwrap();
    assert_eq!(response.body().size_hint().lower(), (CONTENT.len() + DONE.len()) as u64);
}

/// Always has a frame, and never anything in it; the clock goes on meanwhile, as it does for real.
struct Nothing;

impl http_body::Body for Nothing {
    type Data = bytes::Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, Infallible>>> {
        std::task::Poll::Ready(Some(Ok(http_body::Frame::data(bytes::Bytes::new()))))
    }
}

#[tokio::test(start_paused = true)]
async fn frames_without_end_that_hold_nothing_neither_block_the_task_nor_outlast_the_limit() {
    let service = tower::service_fn(async |()| {
        let head = http::Response::builder().header("content-type", "text/event-stream");
        head.body(Nothing)
    });
    let call = StreamLayer::new(AnyEvent::new()).layer(service).oneshot(());
    let time = async {
        loop {
            tokio::time::advance(Duration::from_secs(1)).await;
        }
    };
    let err = tokio::select! { answer = call => answer.err().unwrap(), () = time => unreachable!() };
    assert_eq!(Verdict::of_error(&*err).class(), Class::Timeout(Limit::FirstContent));
}
