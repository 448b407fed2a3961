//! What hedging and re-asking count.
#![cfg(feature = "metrics")]

use std::time::Duration;

use crate::common::{Do, Upstream, get};
use failsoft_core::{BoxError, ErrorsOnly, Fault, SoftKind, Verdict};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use retry_layer::{
    HedgeLayer, ReflectLayer, RetryBudget,
    metrics::{HEDGES_SENT, HEDGES_SUPPRESSED, HEDGES_WON, REASKS_CURED, REASKS_GIVEN_UP, REASKS_SENT},
    reflect::reask_fn,
};
use tower::{Layer, ServiceExt};

/// Every counter with its labels, once this is over.
fn counted(run: impl Future<Output = ()>) -> Vec<String> {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap().block_on(run);
    });
    let seen = snapshotter.snapshot().into_vec().into_iter().map(|(key, _, _, value)| {
        let labels: Vec<_> = key.key().labels().map(|label| label.value().to_owned()).collect();
        let DebugValue::Counter(count) = value else { panic!("only counters are expected") };
        format!("{} {} {count}", key.key().name(), labels.join(","))
    });
    let mut seen: Vec<_> = seen.collect();
    seen.sort();
    seen
}

#[test]
fn hedges_are_counted_by_target_and_reason() {
    let seen = counted(async {
        let slow = || Do::After(Duration::from_secs(9), Box::new(Do::Status(200)));
        let upstream = Upstream::new([Do::Never, Do::Status(200), slow(), slow(), slow()], Do::Never);
        let budget = RetryBudget::builder().ratio(0.0).min_per_sec(0.0).initial(2.0).build().unwrap();
        let hedge = HedgeLayer::builder().delay(Duration::from_secs(1)).budget(budget).target("a");
        let service = hedge.build().unwrap().layer(upstream);
        for _ in 0..3 {
            service.clone().oneshot(get()).await.unwrap();
        }
    });
    let expected = [
        format!("{HEDGES_SENT} a 2"),
        format!("{HEDGES_SUPPRESSED} a,budget_empty 1"),
        format!("{HEDGES_WON} a 1"),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn changed_requests_are_counted_by_target_and_reason() {
    let seen = counted(async {
        // Right is what ends with a mark.
        let model = tower::service_fn(|question: String| async move {
            if question.ends_with('!') {
                return Ok(());
            }
            let fault = Fault::with_verdict(Verdict::soft(SoftKind::Schema), "validate-layer");
            Err::<_, BoxError>(fault.into())
        });
        let reask = reask_fn(|question: String, _| {
            let known = question.strip_prefix("ask ")?;
            Some(if known == "well" { "well!".to_owned() } else { "badly".to_owned() })
        });
        let layer = ReflectLayer::builder(reask).classify(ErrorsOnly).build().unwrap();
        for question in ["ask well", "ask badly", "never ask", "right!"] {
            let _ = layer.layer(model).oneshot(question.to_owned()).await;
        }
    });
    let expected = [
        format!("{REASKS_CURED} unnamed 1"),
        format!("{REASKS_GIVEN_UP} unnamed,attempts_spent 1"),
        format!("{REASKS_GIVEN_UP} unnamed,final 1"),
        format!("{REASKS_SENT} unnamed 2"),
    ];
    assert_eq!(seen, expected);
}
