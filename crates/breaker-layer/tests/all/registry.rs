//! The view of all circuits of a process.
#![cfg(not(failsoft_loom))]

use std::time::Duration;

use breaker_layer::engine::{Mode, State};
use breaker_layer::{BreakerLayer, MAX_LISTED, Registry};
use failsoft_core::Condition;

const SECOND: Duration = Duration::from_secs(1);

type Key = &'static str;

#[tokio::test(start_paused = true)]
async fn it_lists_what_lives_in_the_order_of_registration() {
    let registry = Registry::new();
    let first = BreakerLayer::builder().name("first").registry(&registry).build().unwrap();
    let second = BreakerLayer::builder().registry(&registry).build().unwrap();
    let later = BreakerLayer::builder().name("later").build().unwrap();
    registry.add(later.circuit());
    registry.add(first.circuit()); // again: changes nothing
    second.circuit().open_for(SECOND).unwrap();
    tokio::time::advance(SECOND / 2).await;
    let all = registry.snapshot().circuits;
    let names: Vec<_> = all.iter().map(|one| one.name.as_deref()).collect();
    assert_eq!(names, [Some("first"), None, Some("later")]);
    assert_eq!((all[1].condition, all[1].snapshot.state), (Condition::Poor, State::Open));
    assert_eq!(all[1].snapshot.time_left, Some(SECOND / 2));
    drop(first);
    assert_eq!(registry.circuits().len(), 2);
}

#[test]
fn what_is_gone_takes_no_place() {
    let registry = Registry::new();
    for _ in 0..1_000 {
        let _ = BreakerLayer::builder().registry(&registry).build().unwrap();
        let _ = BreakerLayer::builder().key_fn(|key: &Key| *key).registry(&registry).build().unwrap();
    }
    assert!(registry.circuits().is_empty() && registry.keyed().is_empty());
    assert_eq!(format!("{registry:?}"), "Registry { circuits: [], keyed: [], .. }");
}

#[test]
fn a_keyed_layer_is_counted_by_state_and_lists_what_refuses_within_a_bound() {
    let registry = Registry::new();
    let layer =
        BreakerLayer::builder().name("it").key_fn(|key: &Key| *key).registry(&registry).build().unwrap();
    let circuits = layer.circuits();
    for key in 0..500 {
        circuits.of(&format!("{key:03}"));
    }
    for key in 0..150 {
        circuits.of(&format!("{key:03}")).open().unwrap();
    }
    circuits.of("200").half_open().unwrap();
    circuits.of("201").set_mode(Mode::ForcedOpen);
    circuits.overflow().open().unwrap();
    let keyed = registry.snapshot().keyed.remove(0);
    assert_eq!((keyed.name.as_deref(), keyed.keys, keyed.capacity), (Some("it"), 500, 10_000));
    assert_eq!((keyed.closed, keyed.open, keyed.half_open, keyed.forced_open), (348, 150, 1, 1));
    assert_eq!(keyed.circuits.len(), MAX_LISTED);
    assert_eq!(keyed.circuits[0].name.as_deref(), Some("it/(overflow)"));
    assert_eq!(keyed.circuits[1].name.as_deref(), Some("it/000"));
}

#[cfg(feature = "serde")]
#[tokio::test(start_paused = true)]
async fn the_json_is_as_documented() {
    use serde_json::json;

    let registry = Registry::new();
    let layer = BreakerLayer::builder().name("model-a").registry(&registry).build().unwrap();
    let keyed =
        BreakerLayer::builder().name("tools").key_fn(|key: &Key| *key).registry(&registry).build().unwrap();
    layer.circuit().open_for(30 * SECOND).unwrap();
    keyed.circuits().of("search").half_open().unwrap();
    tokio::time::advance(Duration::from_millis(1_200)).await;
    let open = json!({
        "name": "model-a", "state": "open", "mode": "enforcing", "condition": "poor", "reason": "by_hand",
        "time_in_state_ms": 1200, "time_left_ms": 28800, "consecutive_openings": 1, "probes": 0,
        "calls": 0, "failed": 0, "failed_weight": 0.0, "failure_rate": null,
        "soft": 0, "soft_failure_rate": null, "slow": 0, "slow_failed": 0, "slow_rate": null, "refused": 0, "refused_in_all": 0,
    });
    let json = serde_json::to_value(registry.snapshot()).unwrap();
    assert_eq!(json["circuits"], json!([open]));
    assert_eq!(json["keyed"][0]["circuits"][0]["state"], "half_open");
    assert_eq!(json["keyed"][0]["circuits"][0]["condition"], "degraded");
    let mut rest = json["keyed"][0].clone();
    rest["circuits"] = json!([]);
    let expected = json!({
        "name": "tools", "keys": 1, "capacity": 10000, "evicted": 0, "overflowed": 0,
        "closed": 0, "half_open": 1, "open": 0, "forced_open": 0, "circuits": [],
    });
    assert_eq!(rest, expected);
    let alone = serde_json::to_value(layer.circuit().snapshot()).unwrap();
    let mut without = open;
    without.as_object_mut().unwrap().retain(|field, _| field != "name" && field != "condition");
    assert_eq!(alone, without);
}
