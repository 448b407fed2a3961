//! What is counted.
#![cfg(feature = "metrics")]

use crate::support::{Does, Fit, Target};
use failsoft_core::{Class, Cloned, ErrorsOnly};
use fallback_layer::{
    FallbackLayer, Route,
    last_good::{self, Key},
    metrics::{ACTIVATIONS, COST_FACTOR, EXHAUSTED, LAST_GOOD, LAST_RESORTS},
};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tower::{Layer, ServiceExt};

#[test]
fn each_activation_is_counted_with_its_cost_and_so_is_what_comes_after_all_routes() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (a, b) = (Target::new("a", Does::Answer), Target::new("b", Does::Answer));
            let fit = Fit::new(failsoft_core::Condition::Good, None);
            let layer = FallbackLayer::builder()
                .classify(ErrorsOnly)
                .replay(Cloned)
                .name("a")
                .health(fit.clone())
                .route(Route::new("b", b.clone()).health(fit.clone()).cost_factor(2.5))
                .keep_last_good(last_good::cloned(|ask: &u8| Some(Key::new("t", [*ask]))))
                .build()
                .unwrap();
            let service = layer.layer(a.clone());
            // The first route works: nothing to count.
            service.clone().oneshot(1).await.unwrap();
            a.now(Does::Fail(Class::Overloaded));
            service.clone().oneshot(1).await.unwrap();
            b.now(Does::Fail(Class::Transient));
            service.clone().oneshot(1).await.unwrap();
            service.clone().oneshot(2).await.unwrap_err();
            // Both in poor health: the first one is a last resort, and then the other.
            fit.now(failsoft_core::Condition::Poor);
            service.oneshot(3).await.unwrap_err();
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
    let expected = [
        format!("{ACTIVATIONS} a,b,overloaded 4"),
        format!("{COST_FACTOR} a,b [2.5, 2.5, 2.5, 2.5]"),
        format!("{EXHAUSTED} a,overloaded 2"),
        format!("{LAST_GOOD} a,overloaded 1"),
        format!("{LAST_RESORTS} a,a 1"),
        format!("{LAST_RESORTS} a,b 1"),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn a_route_passed_over_for_its_health_is_an_activation_too() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let b = Target::new("b", Does::Answer);
            let layer = FallbackLayer::builder().classify(ErrorsOnly).name("a").health(Fit::poor(5));
            let layer = layer.route(Route::new("b", b)).build().unwrap();
            layer.layer(Target::new("a", Does::Answer)).oneshot(1_u8).await.unwrap();
        });
    });
    let seen = snapshotter.snapshot().into_vec();
    let (key, _, _, value) =
        seen.into_iter().find(|(key, ..)| key.key().name() == ACTIVATIONS).expect("an activation");
    let labels: Vec<_> = key.key().labels().map(|label| label.value().to_owned()).collect();
    assert_eq!((labels.join(","), value), ("a,b,denied.circuit".to_owned(), DebugValue::Counter(1)));
}

#[cfg(feature = "cache")]
#[test]
fn looks_into_a_cache_are_counted_and_what_it_does_not_keep() {
    use failsoft_core::{Insight, Verdict};
    use fallback_layer::{
        cache::{Cache, CacheLayer},
        metrics::{CACHE_BYTES, CACHE_ENTRIES, CACHE_LOOKUPS, CACHE_NOT_KEPT},
    };
    use http_body_util::{BodyExt as _, Full};

    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let model = tower::service_fn(|request: http::Request<String>| async move {
                let mut response = http::Response::new(Full::<bytes::Bytes>::from("{}"));
                if request.body() != "unjudged" {
                    let insight = Insight::new();
                    insight.learn(|facts| facts.verdict = Some(Verdict::SUCCESS));
                    response.extensions_mut().insert(insight);
                }
                Ok::<_, std::convert::Infallible>(response)
            });
            let cache = Cache::builder().shared_by_all().name("answers").build().unwrap();
            let service = CacheLayer::new(cache).layer(model);
            for body in ["a", "a", "a", "b", "unjudged"] {
                let request = http::Request::post("/").body(body.to_owned()).unwrap();
                service.clone().oneshot(request).await.unwrap().into_body().collect().await.unwrap();
            }
            let delete = http::Request::delete("/").body(String::new()).unwrap();
            service.oneshot(delete).await.unwrap();
        });
    });
    let mut seen = std::collections::BTreeMap::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let labels: Vec<_> = key.key().labels().map(|label| label.value().to_owned()).collect();
        let value = match value {
            DebugValue::Counter(count) => count as f64,
            DebugValue::Gauge(value) => value.into_inner(),
            DebugValue::Histogram(_) => continue,
        };
        seen.insert(format!("{} {}", key.key().name(), labels.join(" ")), value);
    }
    let expected = [
        (format!("{CACHE_LOOKUPS} answers hit"), 2.0),
        (format!("{CACHE_LOOKUPS} answers miss"), 3.0),
        (format!("{CACHE_LOOKUPS} answers bypass"), 1.0),
        (format!("{CACHE_NOT_KEPT} answers unjudged"), 1.0),
        (format!("{CACHE_ENTRIES} answers"), 2.0),
        (format!("{CACHE_BYTES} answers"), 2.0 * (2048.0 + 4.0)),
    ];
    assert_eq!(seen, expected.into_iter().collect());
}
