//! What keys cost, however many there are.
//! The allocator of the binary counts, for each thread alone.
#![cfg(not(failsoft_loom))]

use std::future::{Ready, ready};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use allocation_counter::measure;
use breaker_layer::engine::State;
use breaker_layer::{BreakerLayer, Circuits};
use failsoft_core::{DEFAULT_KEYS, ErrorsOnly};
use tower::{Layer, Service};

const MIB: u64 = 1024 * 1024;

#[derive(Clone)]
struct Answers;

/// A key, and the number of the call. Each tenth fails.
type Asked = (Arc<str>, usize);

/// Nothing is allocated to box it.
#[derive(Debug)]
struct Tenth;

impl std::error::Error for Tenth {}

impl std::fmt::Display for Tenth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the tenth")
    }
}

impl Service<Asked> for Answers {
    type Response = ();
    type Error = Tenth;
    type Future = Ready<Result<(), Tenth>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Tenth>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, (_, number): Asked) -> Self::Future {
        ready(if number % 10 == 9 { Err(Tenth) } else { Ok(()) })
    }
}

fn layer() -> (impl FnMut(&Arc<str>, usize), Circuits) {
    let layer = BreakerLayer::builder()
        .name("models")
        .classify(ErrorsOnly)
        .key_ref(|asked: &Asked| &*asked.0)
        .build()
        .unwrap();
    let circuits = layer.circuits().clone();
    let mut service = layer.layer(Answers);
    let call = move |key: &Arc<str>, number| {
        let mut cx = Context::from_waker(Waker::noop());
        assert!(service.poll_ready(&mut cx).is_ready());
        let future = pin!(service.call((Arc::clone(key), number)));
        assert!(future.poll(&mut cx).is_ready());
    };
    (call, circuits)
}

fn keys(count: usize) -> Vec<Arc<str>> {
    (0..count).map(|key| format!("tenant-{key:08}/model-with-a-long-name").into()).collect()
}

#[test]
fn ten_thousand_keys_take_less_than_16_mib() {
    let keys = keys(DEFAULT_KEYS);
    let taken = measure(|| {
        let (mut call, circuits) = layer();
        for number in 0..20 {
            keys.iter().for_each(|key| call(key, number));
        }
        assert_eq!((circuits.len(), circuits.evicted()), (DEFAULT_KEYS, 0));
    });
    println!("{} bytes for each key", taken.bytes_max / DEFAULT_KEYS as u64);
    assert!(taken.bytes_max < 16 * MIB, "{taken:?}");
}

#[test]
fn keys_of_any_length_take_no_more_than_others() {
    let keys: Vec<Arc<str>> = (0..100).map(|key| format!("{}{key}", "x".repeat(100_000)).into()).collect();
    let kept = measure(|| {
        let (mut call, circuits) = layer();
        keys.iter().for_each(|key| call(key, 9));
        assert_eq!(circuits.len(), keys.len(), "each has a circuit of its own");
        for (key, circuit) in circuits.entries() {
            assert!(key.len() <= 256 && circuit.name().unwrap().len() <= 300);
            assert_eq!((circuit.counts().failed, circuits.get(&key).unwrap().counts().failed), (1, 1));
        }
        assert_eq!(circuits.get(&keys[7]).unwrap().counts().failed, 1);
    });
    assert!(kept.bytes_max < MIB, "{kept:?}");
}

#[test]
fn a_million_keys_stay_within_the_bound_and_the_last_costs_what_the_first_did() {
    const BATCH: usize = 100_000;
    let keys = keys(1_000_000);
    let mut work = Vec::new();
    let taken = measure(|| {
        let (mut call, circuits) = layer();
        // the one that is open stays, however many others come
        circuits.of("it is down").open_for(std::time::Duration::from_secs(86_400)).unwrap();
        let mut batches = keys.chunks(BATCH);
        for key in batches.next().unwrap() {
            call(key, 0);
        }
        for batch in batches {
            let done = measure(|| batch.iter().for_each(|key| call(key, 0)));
            work.push((done.count_total, done.bytes_total));
            assert_eq!(circuits.len(), DEFAULT_KEYS);
        }
        assert_eq!(circuits.evicted(), (keys.len() - DEFAULT_KEYS + 1) as u64);
        assert_eq!((circuits.overflowed(), circuits.get("it is down").unwrap().state()), (0, State::Open));
    });
    println!(
        "{} allocations and {} bytes for each new key",
        work[0].0 / BATCH as u64,
        work[0].1 / BATCH as u64
    );
    assert!(taken.bytes_max < 16 * MIB, "{taken:?}");
    assert!(work.iter().all(|batch| *batch == work[0]), "{work:?}");
}

#[test]
fn a_call_of_a_known_key_allocates_nothing() {
    let (mut call, circuits) = layer();
    let keys = keys(100);
    let calls = |call: &mut dyn FnMut(&Arc<str>, usize)| {
        (0..2_000).for_each(|number| call(&keys[number / 20], number));
    };
    calls(&mut call);
    let taken = measure(|| calls(&mut call));
    assert_eq!(taken.count_total, 0, "{taken:?}");
    let counts = circuits.get(&keys[0]).unwrap().counts();
    assert_eq!((counts.total, counts.failed, circuits.len()), (40, 4, 100));
}
