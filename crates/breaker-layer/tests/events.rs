//! What `tracing` is told, and at which level.
#![cfg(not(failsoft_loom))]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use breaker_layer::engine::{Over, Probes};
use breaker_layer::{BreakerBuilder, BreakerLayer};
use failsoft_core::{BoxError, Class, Classify, NoBody, SoftKind, Verdict, classify_fn};
use tower::{Layer, Service, ServiceExt};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

const SECOND: Duration = Duration::from_secs(1);

/// An event: its level, its name and its fields.
type Line = (Level, &'static str, String);

/// Keeps all events of this crate.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<Line>>>);

impl Told {
    /// What was told since the last time.
    fn take(&self) -> Vec<Line> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    /// Of one name, since the last time.
    fn of(&self, name: &str) -> Vec<(Level, String)> {
        let told = self.take().into_iter().filter(|(_, told, _)| *told == name);
        told.map(|(level, _, text)| (level, text)).collect()
    }
}

struct Text<'a>(&'a mut String);

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

impl Subscriber for Told {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.name().starts_with("failsoft_circuit")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = String::new();
        event.record(&mut Text(&mut text));
        let metadata = event.metadata();
        self.0.lock().unwrap().push((*metadata.level(), metadata.name(), text));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Runs with a subscriber of its own and paused time.
fn told(test: impl AsyncFnOnce(&Told)) {
    let told = Told::default();
    let _guard = tracing::subscriber::set_default(told.clone());
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(test(&told));
}

/// Opens at 50 % from 2 calls, for 1 s; one probe.
fn builder() -> BreakerBuilder<impl Classify<Class, Judge = NoBody> + Clone> {
    BreakerLayer::builder()
        .name("it")
        .classify(classify_fn(|class: &Class| Verdict::of(*class)))
        .over(Over::Calls(2))
        .min_calls(2)
        .failure_rate(0.5)
        .open_time(SECOND)
        .jitter(0.0)
        .probes(Probes::Failures { probes: 1, to_open: 1 })
}

async fn call<S: Service<Class, Error = BoxError>>(service: &mut S, class: Class) {
    let _ = service.ready().await.unwrap().call(class).await;
}

fn obey(class: Class) -> std::future::Ready<Result<Class, BoxError>> {
    std::future::ready(Ok(class))
}

#[test]
fn an_opening_is_a_warning_with_its_reason_and_its_numbers_and_a_closing_is_not() {
    told(async |told| {
        let layer = builder().build().unwrap();
        let mut service = layer.layer(tower::service_fn(obey));
        call(&mut service, Class::Success).await;
        call(&mut service, Class::Overloaded).await;
        let transitions = told.of("failsoft_circuit_transition");
        let [(level, text)] = &transitions[..] else { panic!("{transitions:?}") };
        assert_eq!(*level, Level::WARN);
        for part in [
            "circuit=\"it\"",
            "from=\"closed\"",
            "to=\"open\"",
            "reason=\"failure_rate\"",
            "calls=2",
            "failed=1",
            "failure_rate=0.5",
            "consecutive_openings=1",
            "open_ms=1000",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        tokio::time::advance(SECOND).await;
        call(&mut service, Class::Success).await;
        let levels: Vec<_> =
            told.of("failsoft_circuit_transition").into_iter().map(|(level, _)| level).collect();
        assert_eq!(levels, [Level::INFO, Level::INFO], "half-open and closed");
    });
}

#[test]
fn refusals_and_probes_are_told_for_debugging_and_outcomes_for_tracing() {
    told(async |told| {
        let layer = builder().build().unwrap();
        let mut service = layer.layer(tower::service_fn(obey));
        call(&mut service, Class::Soft(SoftKind::Empty)).await;
        let outcomes = told.of("failsoft_circuit_outcome");
        let [(Level::TRACE, text)] = &outcomes[..] else { panic!("{outcomes:?}") };
        for part in ["class=\"soft.empty\"", "counted=\"failure\"", "weight=0.6", "slow=false"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        layer.circuit().open().unwrap();
        call(&mut service, Class::Success).await;
        let refused = told.of("failsoft_circuit_refused");
        let [(Level::DEBUG, text)] = &refused[..] else { panic!("{refused:?}") };
        assert!(text.contains("state=\"open\"") && text.contains("retry_after_ms=1000"), "{text}");
        tokio::time::advance(SECOND).await;
        call(&mut service, Class::Overloaded).await;
        let probes = told.of("failsoft_circuit_probe");
        let [(Level::DEBUG, text)] = &probes[..] else { panic!("{probes:?}") };
        assert!(text.contains("class=\"overloaded\"") && text.contains("result=\"failed\""), "{text}");
    });
}

#[test]
fn plain_successes_are_not_told_one_by_one() {
    told(async |told| {
        let layer = builder().build().unwrap();
        let mut service = layer.layer(tower::service_fn(obey));
        for _ in 0..10 {
            call(&mut service, Class::Success).await;
        }
        assert_eq!(told.take(), []);
    });
}

#[test]
fn keys_that_overflow_are_told_once_until_there_is_room_again() {
    told(async |told| {
        let layer = builder().key_fn(|asked: &(&'static str, Class)| asked.0).max_keys(1).build().unwrap();
        let mut service = layer.layer(tower::service_fn(|(_, class)| obey(class)));
        let mut ask = async |key| {
            let _ = service.ready().await.unwrap().call((key, Class::Success)).await;
        };
        for round in 0..2 {
            let held = layer.circuits().of("held");
            for key in ["a", "b", "c"] {
                ask(key).await;
            }
            let overflows = told.of("failsoft_circuit_keys_overflow");
            let [(Level::WARN, text)] = &overflows[..] else { panic!("round {round}: {overflows:?}") };
            assert!(text.contains("layer=\"it\"") && text.contains("capacity=1"), "{text}");
            drop(held);
            ask("a").await;
        }
    });
}
