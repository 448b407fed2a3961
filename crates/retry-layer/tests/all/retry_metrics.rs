//! What is counted.
#![cfg(feature = "metrics")]

use crate::common::{Do, Upstream, exact, get, retry_after};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use retry_layer::{RetryBudget, metrics::*};
use tower::{Layer, ServiceExt};

#[test]
fn retries_recoveries_and_reasons_to_stop_are_counted_by_target() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let budget = RetryBudget::builder().ratio(0.0).min_per_sec(0.0).initial(3.0).build().unwrap();
            let layer = exact().target("a").max_retries(2).budget(budget).build().unwrap();
            for script in [
                vec![],
                vec![Do::Status(500), Do::Status(503)],
                vec![Do::Status(400)],
                vec![Do::Status(500), Do::Status(500)],
                vec![retry_after("300")],
                vec![],
            ] {
                let upstream = Upstream::new(script, Do::Status(200));
                let _ = layer.layer(upstream).oneshot(get()).await;
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
                DebugValue::Counter(count) => count.to_string(),
                DebugValue::Histogram(values) => values.len().to_string(),
                DebugValue::Gauge(value) => value.to_string(),
            };
            format!("{} {} {value}", key.key().name(), labels.join(","))
        })
        .collect();
    seen.sort();
    // The last call was refused: the one before it had been told to wait for longer than anybody does.
    let expected = [
        format!("{BUDGET} a 0"),
        format!("{GAVE_UP} a,advice_too_long 2"),
        format!("{GAVE_UP} a,budget_empty 1"),
        format!("{GAVE_UP} a,final 1"),
        format!("{RECOVERED} a 1"),
        format!("{RETRIES} a,overloaded 1"),
        format!("{RETRIES} a,transient 2"),
        format!("{WAIT} a 3"),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn a_call_that_was_held_is_counted() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let layer = exact().max_retries(0).build().unwrap();
            let service = layer.layer(Upstream::new([retry_after("3")], Do::Status(200)));
            service.clone().oneshot(get()).await.unwrap();
            service.oneshot(get()).await.unwrap();
        });
    });
    let held = snapshotter.snapshot().into_vec().into_iter().find(|(key, ..)| key.key().name() == HELD);
    let (key, _, _, value) = held.unwrap();
    assert_eq!(key.key().labels().next().unwrap().value(), "unnamed");
    assert_eq!(value, DebugValue::Counter(1));
}
