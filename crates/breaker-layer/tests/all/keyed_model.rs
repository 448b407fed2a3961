//! Random schedules of a keyed layer against a slow and obvious model: one engine for each key, by itself.
#![cfg(not(failsoft_loom))]

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use breaker_layer::engine::{Engine, Outcome, Over, Permit, Probes, Settings, SettingsBuilder, State};
use breaker_layer::{BreakerLayer, Circuit, Circuits};
use failsoft_core::{BoxError, ErrorsOnly};
use proptest::prelude::*;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tower::{Layer, Service};

#[derive(Debug, Clone, Copy)]
enum Step {
    /// A call begins.
    Start(u8),
    /// The oldest or the newest call in flight ends.
    End {
        oldest: bool,
        how: How,
    },
    Wait(u16),
}

#[derive(Debug, Clone, Copy)]
enum How {
    Good,
    Bad,
    Dropped,
}

fn step(keys: u8) -> impl Strategy<Value = Step> {
    let how = prop_oneof![Just(How::Good), Just(How::Bad), Just(How::Bad), Just(How::Dropped)];
    prop_oneof![
        4 => (0..keys).prop_map(Step::Start),
        4 => (any::<bool>(), how).prop_map(|(oldest, how)| Step::End { oldest, how }),
        1 => (0..1500u16).prop_map(Step::Wait),
    ]
}

/// Small numbers, so that everything happens: opens at 2 failures of the last 4, for 1 s; 2 probes; lease 2 s.
macro_rules! small {
    ($builder:expr) => {
        $builder
            .over(Over::Calls(4))
            .min_calls(2)
            .failure_rate(0.5)
            .open_time(Duration::from_secs(1))
            .jitter(0.0)
            .lease(Duration::from_secs(2))
            .probes(Probes::Failures { probes: 2, to_open: 1 })
    };
}

/// The key of a call and how it will end.
struct Request(Arc<str>, oneshot::Receiver<bool>);

type Answer = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

fn answer(Request(_, end): Request) -> Answer {
    Box::pin(async { if end.await? { Ok(()) } else { Err("bad".into()) } })
}

/// A circuit of the model.
struct Alone {
    engine: Engine,
    in_flight: usize,
}

impl Alone {
    fn new(settings: &SettingsBuilder) -> Self {
        Self { engine: Engine::new(settings.clone().build().unwrap(), Instant::now()), in_flight: 0 }
    }

    fn is_pinned(&self) -> bool {
        let _ = self.engine.refresh(Instant::now());
        self.in_flight > 0 || self.engine.state() != State::Closed
    }
}

/// A call in flight, on both sides.
struct Flight {
    circuit: Option<u8>,
    permit: Permit,
    /// Of the circuit's life: a permit of a forgotten circuit settles nowhere else.
    future: Pin<Box<dyn Future<Output = Result<(), BoxError>>>>,
    end: oneshot::Sender<bool>,
}

fn poll(future: &mut Pin<Box<dyn Future<Output = Result<(), BoxError>>>>) -> Poll<Result<(), BoxError>> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn key(of: u8) -> Arc<str> {
    format!("key {of}").into()
}

fn same(circuit: &Circuit, alone: &Alone) -> Result<(), TestCaseError> {
    let (expected, _) = alone.engine.snapshot(Instant::now());
    let found = circuit.snapshot();
    // since when a state lasts depends on when the circuit was made: on the first call, or with the model
    let at = |mut snapshot: breaker_layer::engine::Snapshot| {
        snapshot.time_in_state = Duration::ZERO;
        snapshot
    };
    prop_assert_eq!(at(found), at(expected));
    Ok(())
}

async fn run(steps: Vec<Step>, capacity: usize) -> Result<(), TestCaseError> {
    let settings = small!(Settings::builder());
    let layer = small!(BreakerLayer::builder().classify(ErrorsOnly))
        .key_fn(|request: &Request| Arc::clone(&request.0))
        .max_keys(capacity)
        .build()
        .unwrap();
    let circuits: Circuits = layer.circuits().clone();
    let mut service = layer.layer(tower::service_fn(answer));
    let mut model: HashMap<Option<u8>, Alone> = HashMap::from([(None, Alone::new(&settings))]);
    let mut flights: Vec<Flight> = Vec::new();

    for step in steps {
        match step {
            Step::Wait(millis) => tokio::time::advance(Duration::from_millis(millis.into())).await,
            Step::Start(of) => {
                let known = circuits.entries().iter().any(|(known, _)| *known == key(of));
                if !known {
                    // the model may forget as well, unless it may not
                    let forgotten = model.remove(&Some(of));
                    prop_assert!(!forgotten.is_some_and(|alone| alone.is_pinned()), "{of} was forgotten");
                }
                let pinned = model.iter_mut().filter(|(of, alone)| of.is_some() && alone.is_pinned()).count();
                let overflowed = circuits.overflowed();
                let (end, ends) = oneshot::channel();
                let _ = service.poll_ready(&mut Context::from_waker(Waker::noop()));
                let mut future: Pin<Box<dyn Future<Output = _>>> =
                    Box::pin(service.call(Request(key(of), ends)));
                let shares = circuits.overflowed() > overflowed;
                prop_assert_eq!(shares, !known && pinned == capacity, "only when no key can go");
                let circuit = (!shares).then_some(of);
                let alone = model.entry(circuit).or_insert_with(|| Alone::new(&settings));
                match (alone.engine.acquire(Instant::now).admission, poll(&mut future)) {
                    (Ok(permit), Poll::Pending) => {
                        alone.in_flight += 1;
                        flights.push(Flight { circuit, permit, future, end });
                    }
                    (Err(_), Poll::Ready(Err(_))) => {}
                    (expected, found) => prop_assert!(false, "{expected:?}, but {found:?}"),
                }
            }
            Step::End { .. } if flights.is_empty() => {}
            Step::End { oldest, how } => {
                let Flight { circuit, permit, mut future, end } =
                    flights.remove(if oldest { 0 } else { flights.len() - 1 });
                let outcome = match how {
                    How::Good => Outcome::Success,
                    How::Bad => Outcome::FAILURE,
                    How::Dropped => Outcome::Cancelled,
                };
                if !matches!(how, How::Dropped) {
                    end.send(matches!(how, How::Good)).unwrap();
                    prop_assert!(poll(&mut future).is_ready());
                }
                drop(future);
                let alone = model.get_mut(&circuit).expect("a call in flight keeps its circuit");
                alone.in_flight -= 1;
                let _ = alone.engine.settle(permit, outcome, Duration::ZERO, Instant::now);
            }
        }
        prop_assert!(circuits.len() <= capacity);
        same(circuits.overflow(), &model[&None])?;
        for (of, circuit) in circuits.entries() {
            let of: u8 = of.trim_start_matches("key ").parse().unwrap();
            same(&circuit, &model[&Some(of)])?;
        }
        for (of, alone) in &model {
            let known = of.is_none_or(|of| circuits.entries().iter().any(|(known, _)| *known == key(of)));
            prop_assert!(known || !alone.is_pinned(), "{of:?} was forgotten");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn each_key_is_as_if_it_were_alone(
        steps in prop::collection::vec(step(6), 1..150),
        capacity in 1..8usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(run(steps, capacity))?;
    }
}
