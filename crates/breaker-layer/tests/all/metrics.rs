//! What is counted, as a recorder sees it.
#![cfg(all(feature = "metrics", not(failsoft_loom)))]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use breaker_layer::engine::{Mode, Over, Probes};
use breaker_layer::metrics::*;
use breaker_layer::{BreakerBuilder, BreakerLayer, Registry};
use failsoft_core::{BoxError, Class, Fault, SoftKind, Verdict, classify_fn};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, SharedString, Unit};
use metrics_util::registry::AtomicStorage;
use tower::{Layer, Service, ServiceExt};

const SECOND: Duration = Duration::from_secs(1);

/// A recorder that can be read as often as one likes.
#[derive(Clone)]
struct Recorder(Arc<metrics_util::registry::Registry<Key, AtomicStorage>>);

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        self.0.get_or_create_counter(key, |counter| counter.clone().into())
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        self.0.get_or_create_gauge(key, |gauge| gauge.clone().into())
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        self.0.get_or_create_histogram(key, |histogram| histogram.clone().into())
    }
}

/// What a recorder has at one moment, by name and labels in the order of their names.
#[derive(Default)]
struct Seen {
    counters: BTreeMap<String, u64>,
    gauges: BTreeMap<String, f64>,
    histograms: BTreeMap<String, Vec<f64>>,
}

impl Seen {
    fn of(Recorder(registry): &Recorder) -> Self {
        let mut seen = Self::default();
        registry.visit_counters(|key, counter| {
            seen.counters.insert(text(key), counter.load(Relaxed));
        });
        registry.visit_gauges(|key, gauge| {
            seen.gauges.insert(text(key), f64::from_bits(gauge.load(Relaxed)));
        });
        registry.visit_histograms(|key, histogram| {
            seen.histograms.insert(text(key), histogram.data());
        });
        seen
    }

    fn keys(&self) -> impl Iterator<Item = &String> {
        self.counters.keys().chain(self.gauges.keys()).chain(self.histograms.keys())
    }

    fn counter(&self, name: &str, labels: &str) -> u64 {
        self.counters.get(&format!("{name} {labels}")).copied().unwrap_or(0)
    }

    fn gauge(&self, name: &str, labels: &str) -> Option<f64> {
        self.gauges.get(&format!("{name} {labels}")).copied()
    }

    fn histogram(&self, name: &str, labels: &str) -> Vec<f64> {
        self.histograms.get(&format!("{name} {labels}")).cloned().unwrap_or_default()
    }
}

fn text(key: &Key) -> String {
    assert!(NAMES.contains(&key.name()), "{} is not documented", key.name());
    let mut labels: Vec<String> =
        key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
    labels.sort();
    format!("{} {}", key.name(), labels.join(" "))
}

/// Runs with a recorder of its own and paused time.
fn recorded(test: impl AsyncFnOnce(&Recorder)) {
    let recorder = Recorder(Arc::new(metrics_util::registry::Registry::new(AtomicStorage)));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    metrics::with_local_recorder(&recorder, || runtime.block_on(test(&recorder)));
}

/// A call is how it ends.
async fn obey(class: Class) -> Result<Class, BoxError> {
    tokio::time::sleep(Duration::from_millis(100)).await;
    Ok(class)
}

/// Opens at 40 % from 5 calls, for 1 s; 2 probes.
fn builder() -> BreakerBuilder<impl failsoft_core::Classify<Class, Judge = failsoft_core::NoBody> + Clone> {
    BreakerLayer::builder()
        .name("it")
        .classify(classify_fn(|class: &Class| Verdict::of(*class)))
        .over(Over::Calls(10))
        .min_calls(5)
        .open_time(SECOND)
        .jitter(0.0)
        .probes(Probes::Failures { probes: 2, to_open: 1 })
}

async fn calls<S: Service<Class, Error = BoxError>>(service: &mut S, classes: &[Class]) {
    for class in classes {
        let _ = service.ready().await.unwrap().call(*class).await;
    }
}

const GOOD: Class = Class::Success;
const BAD: Class = Class::Overloaded;

#[test]
fn outcomes_have_their_class_their_weight_and_what_they_did() {
    recorded(async |seen| {
        let layer = builder().build().unwrap();
        let mut service = layer.layer(tower::service_fn(obey));
        let soft = Class::Soft(SoftKind::Truncated);
        let wrong = [Class::RateLimited, Class::Invalid, Class::Auth, soft, BAD];
        // the window is full of successes at the tenth: from then on a success takes the shortest way
        calls(&mut service, &[&[GOOD; 15][..], &wrong].concat()).await;
        drop(service.ready().await.unwrap().call(GOOD));
        let seen = Seen::of(seen);
        let outcome = |class: &str, counted: &str, weight: &str| {
            let labels = format!("class={class} counted={counted} target=it weight={weight}");
            seen.counter(OUTCOMES, &labels)
        };
        assert_eq!(outcome("success", "success", "0"), 15);
        assert_eq!(outcome("rate_limited", "rate_limited", "0"), 1);
        assert_eq!(outcome("invalid", "alive", "0"), 1);
        assert_eq!(outcome("auth", "neutral", "0"), 1);
        assert_eq!(outcome("soft.truncated", "failure", "0.6"), 1);
        assert_eq!(outcome("overloaded", "failure", "1"), 1);
        assert_eq!(outcome("cancelled", "cancelled", "0"), 1);
        assert!((seen.gauge(FAILURE_RATE, "target=it").unwrap() - 0.16).abs() < 1e-9);
        assert_eq!(seen.gauge(SOFT_FAILURE_RATE, "target=it"), Some(0.1));
        assert!(seen.gauge(SLOW_RATE, "target=it").unwrap() == 0.0);
    });
}

#[test]
fn a_transition_has_its_reason_and_there_is_one_state_at_a_time() {
    // P10: the state gauge showed three states at 1 at once
    recorded(async |seen| {
        let layer = builder().build().unwrap();
        let mut service = layer.layer(tower::service_fn(obey));
        let state = |expected: f64| {
            let seen = Seen::of(seen);
            assert_eq!(seen.gauge(STATE, "target=it"), Some(expected));
            seen
        };
        calls(&mut service, &[GOOD]).await;
        state(0.0);
        calls(&mut service, &[BAD; 4]).await;
        let opened = state(2.0);
        assert_eq!(opened.counter(TRANSITIONS, "from=closed reason=failure_rate target=it to=open"), 1);
        assert_eq!(opened.gauge(CONSECUTIVE_OPENINGS, "target=it"), Some(1.0));
        assert_eq!(opened.histogram(STATE_LASTED, "state=closed target=it"), [0.5]);

        calls(&mut service, &[GOOD; 3]).await;
        assert_eq!(state(2.0).counter(REFUSED, "state=open target=it"), 3);
        tokio::time::advance(SECOND).await;
        calls(&mut service, &[BAD]).await;
        let again = state(2.0);
        assert_eq!(again.counter(PROBES, "result=failed target=it"), 1);
        assert_eq!(again.gauge(CONSECUTIVE_OPENINGS, "target=it"), Some(2.0));

        tokio::time::advance(2 * SECOND).await;
        let mut other = service.clone();
        let given_back = service.ready().await.unwrap().call(GOOD);
        state(1.0);
        drop(given_back);
        calls(&mut other, &[GOOD; 2]).await;
        let closed = state(0.0);
        assert_eq!(closed.counter(PROBES, "result=good target=it"), 2);
        assert_eq!(closed.counter(PROBES, "result=given_back target=it"), 1);
        assert_eq!(closed.counter(TRANSITIONS, "from=half_open reason=probes_good target=it to=closed"), 1);
        layer.circuit().set_mode(Mode::ForcedOpen);
        state(3.0);
    });
}

#[test]
fn what_time_alone_changes_is_brought_up_to_date_for_a_scrape() {
    recorded(async |seen| {
        let registry = Registry::new();
        let layer = builder().over(Over::MINUTE).registry(&registry).build().unwrap();
        registry.publish();
        assert_eq!(Seen::of(seen).gauge(STATE, "target=it"), Some(0.0), "before the first call");
        calls(&mut layer.layer(tower::service_fn(obey)), &[GOOD, GOOD, GOOD, GOOD, BAD]).await;
        assert_eq!(Seen::of(seen).gauge(FAILURE_RATE, "target=it"), Some(0.2));
        tokio::time::advance(100 * SECOND).await;
        registry.publish();
        let later = Seen::of(seen);
        assert!(later.gauge(FAILURE_RATE, "target=it").unwrap().is_nan());
        assert_eq!(later.gauge(TIME_IN_STATE, "target=it"), Some(100.5));
    });
}

#[test]
fn slow_calls_and_slow_probes_are_counted() {
    recorded(async |seen| {
        let layer = builder().slow_after(Duration::from_millis(50)).slow_rate(1.0).build().unwrap();
        let mut service = layer.layer(tower::service_fn(obey));
        calls(&mut service, &[GOOD; 2]).await;
        layer.circuit().half_open().unwrap();
        calls(&mut service, &[GOOD]).await;
        let seen = Seen::of(seen);
        assert_eq!(seen.counter(SLOW, "target=it"), 3);
        assert_eq!(seen.counter(PROBES, "result=slow target=it"), 1);
    });
}

#[test]
fn a_circuit_without_a_name_is_unnamed_and_denials_are_no_outcomes() {
    recorded(async |seen| {
        let layer = BreakerLayer::builder().classify(failsoft_core::ErrorsOnly).build().unwrap();
        let mut service = layer.layer(tower::service_fn(|class: Class| async move {
            Err::<(), _>(BoxError::from(Fault::new(class, "x")))
        }));
        calls(&mut service, &[Class::Denied(failsoft_core::Denier::Budget), BAD]).await;
        let seen = Seen::of(seen);
        let outcomes: Vec<_> = seen.keys().filter(|key| key.starts_with(OUTCOMES)).collect();
        let expected = format!("{OUTCOMES} class=overloaded counted=failure target=unnamed weight=1");
        assert_eq!(outcomes, [&expected]);
    });
}

#[test]
fn keys_have_a_bounded_number_of_labels_and_their_layer_says_how_many_refuse() {
    recorded(async |seen| {
        let layer = builder()
            .failures(1)
            .soft_alone_may_not_open()
            .failure_rate(None)
            .key_fn(|asked: &(String, Class)| asked.0.clone())
            .max_keys(5)
            .metric_keys(2)
            .build()
            .unwrap();
        let mut service = layer.layer(tower::service_fn(|(_, class)| obey(class)));
        let mut call = async |key: usize, class| {
            let _ = service.ready().await.unwrap().call((format!("k{key}"), class)).await;
        };
        for key in 0..100 {
            call(key, GOOD).await;
        }
        // forgotten, and back under its old label
        call(0, BAD).await;
        for key in 100..104 {
            call(key, BAD).await;
        }
        call(104, GOOD).await;
        let now = Seen::of(seen);
        let targets: BTreeSet<_> =
            now.keys().filter_map(|key| key.split("target=").nth(1)?.split(' ').next()).collect();
        assert_eq!(targets.into_iter().collect::<Vec<_>>(), ["it", "it/(other)", "it/k0", "it/k1"]);
        let good = |target: &str| {
            let labels = format!("class=success counted=success target={target} weight=0");
            now.counter(OUTCOMES, &labels)
        };
        assert_eq!((good("it/k0"), good("it/k1"), good("it/(other)")), (1, 1, 99));
        assert_eq!(now.gauge(STATE, "target=it/k0"), Some(2.0));
        assert_eq!(now.gauge(STATE, "target=it/(other)"), None, "many have that label");
        assert_eq!(now.gauge(KEYS_IN_STATE, "state=open target=it"), Some(5.0));
        assert_eq!((now.gauge(KEYS, "target=it"), now.counter(KEYS_EVICTED, "target=it")), (Some(5.0), 100));
        assert_eq!(now.counter(KEYS_OVERFLOWED, "target=it"), 1);

        tokio::time::advance(SECOND).await;
        for key in 100..104 {
            call(key, GOOD).await;
            call(key, GOOD).await;
        }
        let later = Seen::of(seen);
        assert_eq!(later.gauge(KEYS_IN_STATE, "state=open target=it"), Some(1.0));
        assert_eq!(later.gauge(KEYS_IN_STATE, "state=half_open target=it"), Some(0.0));
        drop((service, layer));
        assert_eq!(Seen::of(seen).gauge(KEYS_IN_STATE, "state=open target=it"), Some(0.0));
    });
}

#[test]
fn a_handle_is_made_when_it_is_first_used_so_a_recorder_may_come_late() {
    let layer = builder().build().unwrap();
    recorded(async |seen| {
        calls(&mut layer.layer(tower::service_fn(obey)), &[GOOD]).await;
        assert_eq!(Seen::of(seen).keys().filter(|key| key.starts_with(OUTCOMES)).count(), 1);
    });
}
