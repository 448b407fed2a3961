//! Soft limits, which are told and fail nothing, and the grace of a cold route.

use std::time::Duration;

use crate::common::*;
use failsoft_core::{Call, Class, Insight, Limit, Mark};
use http_body_util::BodyExt as _;
use stream_layer::{AnyContent, AnyContentDecoder, Limits, Mode, Protocol, Reader, StreamLayer, Until};
use tokio::time::Instant;
use tower::ServiceExt as _;
use tower_layer::Layer as _;

const SECOND: Duration = Duration::from_secs(1);

fn chat() -> StreamLayer<Chat> {
    StreamLayer::new(Chat::default())
}

#[tokio::test(start_paused = true)]
async fn a_first_content_after_the_soft_limit_is_told_and_no_failure() {
    for (seconds, late) in [(3.9, None), (4.1, Some(SECOND * 4)), (9.9, Some(SECOND * 4))] {
        let upstream = Upstream::new([send(PING), wait(seconds), send(CONTENT), send(DONE)]);
        let told = call(&chat(), &upstream).await;
        assert_eq!(told.verdicts, [Class::Success]);
        let facts = told.insight.unwrap().facts();
        assert_eq!((facts.slow.first_content, facts.slow.any()), (late, late.is_some()));
    }
}

#[tokio::test(start_paused = true)]
async fn silences_beyond_the_soft_limit_are_counted_and_are_no_failure() {
    let steps = [
        wait(2.0), // before the content it is no silence
        send(CONTENT),
        wait(0.4),
        send(CONTENT),
        wait(0.6),
        send(CONTENT),
        wait(2.0),
        send(PING),
        wait(1.0),
        send(CONTENT),
        wait(0.5),
        send(DONE),
    ];
    let told = call(&chat(), &Upstream::new(steps)).await;
    assert_eq!(told.verdicts, [Class::Success]);
    let slow = told.insight.unwrap().facts().slow;
    assert_eq!((slow.first_content, slow.stalls, slow.longest_stall), (None, 2, SECOND * 3));
}

#[tokio::test(start_paused = true)]
async fn soft_limits_can_be_chosen_and_turned_off() {
    let upstream = Upstream::new([wait(1.0), send(CONTENT), wait(1.0), send(CONTENT), send(DONE)]);
    let quick = StreamLayer::builder(Chat::default())
        .soft_first_content(SECOND / 2)
        .soft_idle(SECOND / 10)
        .build()
        .unwrap();
    let slow = call(&quick, &upstream).await.insight.unwrap().facts().slow;
    assert_eq!((slow.first_content, slow.stalls, slow.longest_stall), (Some(SECOND / 2), 1, SECOND));
    let alone = StreamLayer::builder(Chat::default()).first_content(None).idle(None).build().unwrap();
    let late = Upstream::new([
        wait(5.0),
        send(CONTENT),
        wait(1.0),
        send(PING),
        wait(1.0),
        send(CONTENT),
        send(DONE),
    ]);
    let slow = call(&alone, &late).await.insight.unwrap().facts().slow;
    assert_eq!((slow.first_content, slow.stalls, slow.longest_stall), (Some(SECOND * 4), 1, SECOND * 2));
    let off = StreamLayer::builder(Chat::default()).soft_first_content(None).soft_idle(None).build().unwrap();
    assert!(!call(&off, &upstream).await.insight.unwrap().facts().slow.any());
}

#[tokio::test(start_paused = true)]
async fn a_cold_route_has_twice_the_time_for_its_first_content_hard_and_soft() {
    let start = Instant::now();
    let upstream = Upstream::new([Do::Hang]);
    let cold = || Call::options().mark(Mark::Cold).begin();
    let told = cold().scope(call(&chat(), &upstream)).await;
    assert_eq!(told.fault().class(), Class::Timeout(Limit::FirstContent));
    assert_eq!(
        (start.elapsed(), told.fault().message()),
        (SECOND * 20, Some("no content after 20s, the limit is 20s"))
    );

    let upstream = Upstream::new([wait(7.0), send(CONTENT), send(DONE)]);
    let slow = cold().scope(call(&chat(), &upstream)).await.insight.unwrap().facts().slow;
    assert_eq!(slow.first_content, None);

    let start = Instant::now();
    let layer = StreamLayer::builder(Chat::default()).cold_grace(1.5).build().unwrap();
    cold().scope(call(&layer, &Upstream::new([Do::Hang]))).await.fault();
    assert_eq!(start.elapsed(), SECOND * 15);
    // Other limits are not for what a cache would have saved.
    let start = Instant::now();
    let told = cold().scope(call(&chat(), &Upstream::new([send(CONTENT), Do::Hang]))).await;
    assert_eq!((told.end(), start.elapsed()), (Some(Class::Timeout(Limit::Idle)), SECOND * 30));
}

#[test]
fn contradictions_are_refused_by_name() {
    let builder = || StreamLayer::builder(AnyContent);
    for (field, built) in [
        ("soft_first_content", builder().soft_first_content(SECOND * 10).build()),
        ("soft_first_content", builder().soft_first_content(Duration::ZERO).build()),
        ("soft_idle", builder().idle(SECOND).soft_idle(SECOND).build()),
        ("cold_grace", builder().cold_grace(0.9).build()),
        ("cold_grace", builder().cold_grace(f64::NAN).build()),
    ] {
        assert_eq!(built.unwrap_err().field(), field);
    }
    // A default is no contradiction: it just never shows.
    assert!(builder().first_content(SECOND).idle(SECOND / 10).build().is_ok());
    assert!(builder().first_content(None).soft_first_content(SECOND * 60).build().is_ok());
}

/// No stream by its request; the head says what it is.
#[derive(Clone, Copy)]
struct ByHead;

impl Protocol<()> for ByHead {
    type Reader = Self;
    fn request(&self, (): &()) -> Self {
        Self
    }
}

impl Reader for ByHead {
    type Decoder = AnyContentDecoder;

    fn limits(&self, mut limits: Limits) -> Limits {
        limits.first_content = None;
        limits
    }

    fn limits_of_answer(&self, head: &http::response::Parts, limits: Limits) -> Limits {
        if head.status == 206 { limits } else { self.limits(limits) }
    }

    fn head(self, _: &mut http::response::Parts, until: Until) -> Mode<AnyContentDecoder> {
        Mode::Hold { decoder: AnyContentDecoder::default(), until }
    }
}

#[tokio::test(start_paused = true)]
async fn the_head_may_tell_that_other_limits_hold_and_they_still_count_from_the_call() {
    let start = Instant::now();
    let layer = StreamLayer::new(ByHead);
    let upstream = Upstream { before_head: SECOND * 8, ..Upstream::new([wait(60.0), send("x")]) };
    assert_eq!(call(&layer, &upstream).await.text(), "x");
    assert_eq!(start.elapsed(), SECOND * 68);
    let start = Instant::now();
    let told = call(&layer, &Upstream { status: 206, ..upstream }).await;
    assert_eq!(told.fault().class(), Class::Timeout(Limit::FirstContent));
    assert_eq!(start.elapsed(), SECOND * 10);
}

#[tokio::test(start_paused = true)]
async fn a_held_answer_in_tiny_pieces_arrives_in_few() {
    let pieces = std::iter::repeat_n(send(":\n"), 10_000);
    let upstream = Upstream::new(pieces.chain([send("\n"), send(CONTENT), send(DONE)]));
    let response = chat().layer(upstream.service()).oneshot(()).await.unwrap();
    assert!(Insight::of(response.extensions()).is_some());
    let mut body = response.into_body();
    let (mut frames, mut length) = (0, 0);
    while let Some(frame) = body.frame().await {
        frames += 1;
        length += frame.unwrap().into_data().unwrap().len();
    }
    assert_eq!((length, frames), (20_001 + CONTENT.len() + DONE.len(), 3));
}

#[cfg(feature = "metrics")]
mod counted {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};
    use stream_layer::metrics::*;

    use super::*;

    #[test]
    fn limits_first_content_and_late_failures_are_counted_by_target() {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        metrics::with_local_recorder(&recorder, || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()
                .unwrap();
            runtime.block_on(async {
                let layer = StreamLayer::builder(Chat::default()).target("a").build().unwrap();
                for steps in [
                    vec![wait(5.0), send(CONTENT), wait(1.0), send(DONE)],
                    vec![Do::Hang],
                    vec![send(CONTENT), Do::Hang],
                    vec![send(CONTENT), send(ERROR)],
                    vec![send(CONTENT), Do::Fail],
                    // What comes after the end is no failure.
                    vec![send(CONTENT), send(DONE), Do::Fail],
                    std::iter::repeat_n(send(ROLE), 70).chain([send(CONTENT), send(DONE)]).collect(),
                ] {
                    call(&layer, &Upstream::new(steps)).await;
                }
            });
        });
        let mut seen: Vec<String> = snapshotter
            .snapshot()
            .into_vec()
            .into_iter()
            .map(|(key, _, _, value)| {
                let labels: Vec<_> = key.key().labels().map(|label| label.value().to_owned()).collect();
                let value = match value {
                    DebugValue::Counter(count) => count,
                    DebugValue::Histogram(values) => values.len() as u64,
                    DebugValue::Gauge(_) => 0,
                };
                format!("{} {} {value}", key.key().name(), labels.join(","))
            })
            .collect();
        seen.sort();
        let expected = [
            format!("{COMMITTED_WITHOUT_CONTENT} a 1"),
            format!("{FAILED_AFTER_COMMIT} a 3"),
            format!("{FIRST_CONTENT} a 6"),
            format!("{LIMITS_PASSED} a,first_content,hard 1"),
            format!("{LIMITS_PASSED} a,first_content,soft 1"),
            format!("{LIMITS_PASSED} a,idle,hard 1"),
            format!("{LIMITS_PASSED} a,idle,soft 1"),
        ];
        assert_eq!(seen, expected);
    }
}
