//! An engine to try things on. Each test uses a part of it.
#![allow(dead_code)]

use std::time::Duration;

use breaker_layer::engine::{
    Changes, Engine, Outcome, Over, Permit, Probes, Reason, Settings, SettingsBuilder, State,
};
use tokio::time::Instant;

/// An engine with a clock that the test moves.
pub(crate) struct Bench {
    pub(crate) engine: Engine,
    pub(crate) start: Instant,
    pub(crate) now: Instant,
}

impl Bench {
    pub(crate) fn new(settings: SettingsBuilder) -> Self {
        let start = Instant::now();
        Self { engine: Engine::new(settings.jitter(0.0).build().unwrap(), start), start, now: start }
    }

    pub(crate) fn at(&mut self, millis: u64) -> &mut Self {
        self.now = self.start + Duration::from_millis(millis);
        self
    }

    pub(crate) fn acquire(&self) -> Option<Permit> {
        self.engine.acquire(|| self.now).admission.ok()
    }

    pub(crate) fn settle(&self, permit: Permit, outcome: Outcome, took: Duration) -> Changes {
        self.engine.settle(permit, outcome, took, || self.now)
    }

    /// Acquires and settles at once; whether it was admitted.
    pub(crate) fn call(&self, outcome: Outcome) -> bool {
        self.acquire().map(|permit| self.settle(permit, outcome, Duration::ZERO)).is_some()
    }

    pub(crate) fn last_resort(&self) -> Option<Permit> {
        self.engine.acquire_as_last_resort(|| self.now).admission.ok()
    }

    /// One last-resort call, and why it closed if it did.
    pub(crate) fn last_resort_call(&self, outcome: Outcome) -> Option<Reason> {
        let permit = self.last_resort().expect("a slot is free");
        let told = self.settle(permit, outcome, Duration::ZERO).into_iter().next();
        told.map(|told| {
            assert_eq!((told.from, told.to), (State::Open, State::Closed));
            told.reason
        })
    }

    pub(crate) fn state(&self) -> State {
        let _ = self.engine.refresh(self.now);
        self.engine.state()
    }

    pub(crate) fn time_left(&self) -> Option<Duration> {
        self.engine.snapshot(self.now).0.time_left
    }
}

/// Opens at the first failure, for 1 s, then 2, 4, …; two probes, one failure opens again; lease 10 s.
pub(crate) fn touchy() -> SettingsBuilder {
    Settings::builder()
        .over(Over::Calls(4))
        .failure_rate(None)
        .failures(1)
        .soft_alone_may_not_open()
        .open_time(Duration::from_secs(1))
        .probes(Probes::Failures { probes: 2, to_open: 1 })
        .lease(Duration::from_secs(10))
}

pub(crate) fn advice(seconds: u64) -> Option<Duration> {
    Some(Duration::from_secs(seconds))
}
