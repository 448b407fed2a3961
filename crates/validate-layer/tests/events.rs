//! What `tracing` is told. A binary of its own, in which nothing runs without a subscriber: a callsite that is first reached where
//! there is none, on another test's thread, may stay silent for the subscriber that comes at the same moment.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use failsoft_core::{BoxError, ToolCall};
use tower::{Layer as _, ServiceExt as _, service_fn};
use validate_layer::{Answer, Asked, Rail, Rails, ValidateLayer};

/// Calls a tool that answers with nothing.
async fn call(name: &'static str, rails: Rails, call: ToolCall) {
    let layer = ValidateLayer::values(|result: &String| Answer::new(result.as_str()))
        .asked_fn(|call: &ToolCall| Asked::new().with_bytes(100).with_call(call.clone()))
        .rails(rails)
        .name(name)
        .build()
        .unwrap();
    let tool = service_fn(|_: ToolCall| std::future::ready(Ok::<_, Infallible>(String::new())));
    let outcome: Result<String, BoxError> = layer.layer(tool).oneshot(call).await;
    assert!(outcome.is_err(), "a rail trips");
}

#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Seen {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        struct Fields(String);
        impl tracing::field::Visit for Fields {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0.push_str(&format!(" {}={value:?}", field.name()));
            }
        }
        let meta = event.metadata();
        let mut fields = Fields(format!("{} {} {}", meta.level(), meta.target(), meta.name()));
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn a_tripped_rail_is_an_event_of_its_own_with_its_severity_and_nothing_of_the_request() {
    let seen = Seen::default();
    let guard = tracing::subscriber::set_default(seen.clone());
    let secret = ToolCall::new("rm", "{\"path\": \"/secret\"}");
    call("shell", Rails::new().forbid(["rm"]), secret).await;
    call("disk", Rails::new().mutations(["w"]), ToolCall::new("w", "{}")).await;
    drop(guard);
    let seen = seen.0.lock().unwrap();
    let tripped: Vec<_> = seen.iter().filter(|event| event.contains("failsoft_security")).collect();
    assert_eq!(tripped.len(), 2, "{seen:?}");
    assert!(
        tripped[0].starts_with("WARN failsoft_security failsoft_validate_rail_tripped"),
        "{}",
        tripped[0]
    );
    assert!(tripped[0].contains("upstream=\"shell\" rail=\"forbidden_tool\" severity=\"critical\""));
    assert!(tripped[1].contains("rail=\"empty_mutation\" severity=\"high\""));
    assert!(!seen.iter().any(|event| event.contains("secret")));
    assert_eq!(Rail::Arguments.to_string(), "arguments");
}
