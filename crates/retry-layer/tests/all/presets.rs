//! The presets do what their table says.

use std::time::Duration;

use crate::common::{Do, Upstream, get, post, retry_after};
use failsoft_core::{Call, Class, Limit, Verdict};
use retry_layer::{RetryBuilder, presets};
use tokio::time::Instant;
use tower::{Layer, ServiceExt};

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

async fn calls(
    builder: RetryBuilder,
    upstream: &Upstream,
    request: crate::common::Request,
) -> Result<u16, Class> {
    let service = builder.seed(1).build().unwrap().layer(upstream.clone());
    let outcome = service.oneshot(request).await;
    outcome.map(|response| response.status().as_u16()).map_err(|error| Verdict::of_error(&*error).class())
}

#[tokio::test(start_paused = true)]
async fn each_has_its_number_of_attempts_and_its_longest_waits() {
    for (preset, attempts, longest) in [
        (presets::critical(), 6, [1, 2, 4, 8, 16].map(seconds).to_vec()),
        (presets::interactive(), 2, vec![Duration::from_millis(250)]),
        (presets::batch(), 6, [5, 10, 20, 40, 80].map(seconds).to_vec()),
        (presets::tool(), 3, vec![Duration::from_millis(500), seconds(1)]),
    ] {
        let upstream = Upstream::new([], Do::Status(503));
        assert_eq!(calls(preset, &upstream, post()).await, Ok(503));
        let times = upstream.times();
        assert_eq!(times.len(), attempts);
        for (pair, longest) in times.windows(2).zip(longest) {
            assert!(u128::from(pair[1] - pair[0]) <= longest.as_millis() + 2, "{times:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_chat_call_without_an_answer_is_repeated_and_a_tool_call_only_if_declared() {
    for (preset, attempts) in [
        (presets::critical(), 2),
        (presets::interactive(), 2),
        (presets::batch(), 2),
        (presets::tool(), 1),
        (presets::tool().repeat_unanswered(true), 2),
        (presets::tool().idempotency_key(true), 2),
    ] {
        let upstream = Upstream::new([Do::Reset], Do::Status(200));
        let _ = calls(preset, &upstream, post()).await;
        assert_eq!(upstream.calls(), attempts);
    }
}

#[tokio::test(start_paused = true)]
async fn advice_is_honoured_as_long_as_somebody_waits() {
    for (preset, advice, attempts) in [
        (presets::critical(), "120", 2),
        (presets::critical(), "121", 1),
        (presets::interactive(), "5", 2),
        (presets::interactive(), "6", 1),
        (presets::batch(), "600", 2),
        (presets::batch(), "601", 1),
        (presets::tool(), "5", 2),
        (presets::tool(), "6", 1),
    ] {
        let upstream = Upstream::new([retry_after(advice)], Do::Status(200));
        let _ = calls(preset, &upstream, post()).await;
        assert_eq!(upstream.calls(), attempts, "{advice}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_person_and_a_tool_have_a_deadline_and_the_others_that_of_their_caller() {
    for (preset, limit) in [
        (presets::interactive(), Some(60)),
        (presets::tool(), Some(20)),
        (presets::critical(), None),
        (presets::batch(), None),
    ] {
        let began = Instant::now();
        let call = Call::options().timeout(seconds(1_000)).begin();
        let outcome = call.scope(calls(preset, &Upstream::new([], Do::Never), get())).await;
        assert_eq!(outcome, Err(Class::Timeout(Limit::Total)));
        assert_eq!(began.elapsed().as_secs(), limit.unwrap_or(1_000));
    }
}

#[tokio::test(start_paused = true)]
async fn in_a_full_outage_batches_soon_stop_asking_again() {
    let upstream = Upstream::new([], Do::Status(503));
    let service = presets::batch().build().unwrap().layer(upstream.clone());
    let all: Vec<_> = (0..1_000).map(|_| tokio::spawn(service.clone().oneshot(get()))).collect();
    for call in all {
        call.await.unwrap().unwrap();
    }
    // The initial balance, and one a second for the waits of those that had a token.
    assert!(upstream.calls() <= 1_000 + 10 + 160, "{}", upstream.calls());
}
