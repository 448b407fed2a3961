//! What is counted.
#![cfg(feature = "metrics")]

use failsoft_core::{BoxError, Finding, Severity, SoftKind, ToolCall};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tower::{Layer, ServiceExt, service_fn};
use validate_layer::{
    Answer, Asked, Rails, ValidateLayer,
    metrics::{CHECKED, CONFIDENCE, FAILED, FINDINGS, RAILS_TRIPPED},
};

#[test]
fn each_answer_is_counted_with_its_confidence_and_what_was_found() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let layer = ValidateLayer::values(|reply: &&'static str| Answer::new(*reply))
                .name("a")
                .check_fn("polite", |answer: &Answer| {
                    let rude = answer.text() == Some("rude");
                    let finding =
                        || Finding::new(SoftKind::Schema, "polite", "").with_severity(Severity::Warning);
                    if rude { Err(finding()) } else { Ok(()) }
                })
                .build()
                .unwrap();
            let service =
                layer.layer(service_fn(|reply: &'static str| async move { Ok::<_, BoxError>(reply) }));
            service.clone().oneshot("good").await.unwrap();
            service.clone().oneshot("rude").await.unwrap();
            service.oneshot(" ").await.unwrap_err();
        });
    });
    let seen = snapshotter.snapshot().into_vec().into_iter().map(|(key, _, _, value)| {
        let labels: Vec<_> = key.key().labels().map(|label| label.value().to_owned()).collect();
        let value = match value {
            DebugValue::Counter(count) => count.to_string(),
            DebugValue::Histogram(values) => format!("{values:?}"),
            DebugValue::Gauge(value) => value.to_string(),
        };
        format!("{} {} {value}", key.key().name(), labels.join(","))
    });
    let mut seen: Vec<_> = seen.collect();
    seen.sort();
    let mut expected = [
        format!("{CHECKED} a 3"),
        format!("{CONFIDENCE} a [1.0, 0.7, 0.2]"),
        format!("{FAILED} a,soft.empty 1"),
        format!("{FINDINGS} a,polite,warning 1"),
        format!("{FINDINGS} a,empty,error 1"),
    ];
    expected.sort();
    assert_eq!(seen, expected);
}

#[test]
fn a_rail_that_trips_is_counted_with_its_severity() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let layer = ValidateLayer::values(|reply: &&'static str| Answer::new(*reply))
            .name("shell")
            .asked_fn(|tool: &&'static str| Asked::new().with_call(ToolCall::new(*tool, "{}")))
            .rails(Rails::new().forbid(["rm"]))
            .build()
            .unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let service = layer.layer(service_fn(|tool: &'static str| async move { Ok::<_, BoxError>(tool) }));
        for tool in ["rm", "ls", "rm"] {
            let _ = runtime.block_on(service.clone().oneshot(tool));
        }
    });
    let tripped =
        snapshotter.snapshot().into_vec().into_iter().find(|(key, ..)| key.key().name() == RAILS_TRIPPED);
    let (key, _, _, value) = tripped.unwrap();
    let labels: Vec<_> = key.key().labels().map(|label| label.value().to_owned()).collect();
    assert_eq!(
        (labels.join(","), value),
        ("shell,forbidden_tool,critical".to_owned(), DebugValue::Counter(2))
    );
}
