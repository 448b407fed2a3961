//! The engine beside a slow, obvious model of it, over random schedules.
#![cfg(not(failsoft_loom))]

use std::time::Duration;

use breaker_layer::engine::{Changes, Engine, Mode, Outcome, Permit, State, Weight};
use proptest::prelude::*;
use tokio::time::Instant;

use crate::model::{Model, Plan, Ticket, View};

/// One step of a schedule.
#[derive(Debug, Clone)]
enum Step {
    /// Moves the clock, mostly forward, sometimes back.
    Wait(i64),
    Acquire {
        last_resort: bool,
    },
    /// Ends one of the running calls.
    Settle {
        which: usize,
        outcome: Outcome,
        took: u64,
    },
    Renew {
        which: usize,
    },
    Reset,
    SetMode(Mode),
    Open(Option<u64>),
    HalfOpen,
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    let advice =
        prop_oneof![3 => Just(None), 1 => (0..20_000_u64).prop_map(|ms| Some(Duration::from_millis(ms)))];
    prop_oneof![
        6 => Just(Outcome::Success),
        4 => Just(Outcome::FAILURE),
        2 => advice.clone().prop_map(|advice| Outcome::Failure { weight: Weight::SOFT, advice }),
        2 => advice.clone().prop_map(|advice| Outcome::RateLimited { advice }),
        1 => advice.prop_map(|advice| Outcome::AtOnce { advice }),
        1 => Just(Outcome::Alive),
        1 => Just(Outcome::Neutral),
        1 => Just(Outcome::Cancelled),
    ]
}

fn modes() -> impl Strategy<Value = Mode> {
    prop_oneof![
        Just(Mode::Enforcing),
        Just(Mode::Advisory),
        Just(Mode::ObserveOnly),
        Just(Mode::ForcedOpen),
        Just(Mode::Disabled)
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let settle = (any::<usize>(), outcomes(), 0..3_000_u64);
    let step = prop_oneof![
        6 => (0..1_500_i64).prop_map(Step::Wait),
        1 => (0..100_000_i64).prop_map(Step::Wait),
        1 => (-5_000..0_i64).prop_map(Step::Wait),
        12 => (prop::bool::weighted(0.1)).prop_map(|last_resort| Step::Acquire { last_resort }),
        12 => settle.prop_map(|(which, outcome, took)| Step::Settle { which, outcome, took }),
        1 => any::<usize>().prop_map(|which| Step::Renew { which }),
        1 => prop_oneof![
            2 => Just(Step::Reset),
            2 => modes().prop_map(Step::SetMode),
            2 => Just(Step::SetMode(Mode::Enforcing)),
            1 => (0..20_000_u64).prop_map(|ms| Step::Open(Some(ms))),
            1 => Just(Step::Open(None)),
            1 => Just(Step::HalfOpen)
        ],
    ];
    prop::collection::vec(step, 1..200)
}

/// Both, and the calls that run.
struct Pair {
    engine: Engine,
    model: Model,
    epoch: Instant,
    now: i64,
    running: Vec<(Permit, Ticket)>,
    /// Of everything that was told: what a gauge of the state would show, and the last number.
    told: (State, u64),
}

impl Pair {
    fn new(plan: Plan) -> Self {
        let epoch = Instant::now() + Duration::from_secs(86_400);
        let engine = Engine::new(plan.settings(), epoch);
        let told = (engine.state(), 0);
        Self { engine, model: Model::new(plan), epoch, now: 0, running: Vec::new(), told }
    }

    /// What is told is a chain without gaps: each step leaves the state that the one before it entered (P10).
    fn hear(&mut self, changes: Changes) -> Result<(), TestCaseError> {
        for told in changes {
            prop_assert_eq!(told.from, self.told.0);
            prop_assert!(told.sequence >= self.told.1 && told.time_in_state >= Duration::ZERO);
            prop_assert_eq!(told.open_for.is_some(), told.to == State::Open);
            prop_assert!(told.to != State::Open || told.consecutive_openings > 0);
            self.told = (told.to, told.sequence);
        }
        Ok(())
    }

    fn instant(&self) -> Instant {
        let away = Duration::from_millis(self.now.unsigned_abs());
        if self.now < 0 { self.epoch - away } else { self.epoch + away }
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let now = self.instant();
        let t = self.now;
        match *step {
            Step::Wait(ms) => self.now += ms,
            Step::Acquire { last_resort } => {
                let acquired = match last_resort {
                    true => self.engine.acquire_as_last_resort(|| now),
                    false => self.engine.acquire(|| now),
                };
                self.hear(acquired.changes)?;
                match (acquired.admission, self.model.acquire(last_resort, t)) {
                    (Ok(permit), Ok(ticket)) => {
                        prop_assert_eq!(permit.is_probe(), ticket.is_probe());
                        self.running.push((permit, ticket));
                    }
                    (Err(refusal), Err(left)) => {
                        prop_assert_eq!(refusal.retry_after.map(|left| left.as_millis() as i64), left);
                    }
                    (engine, model) => prop_assert!(false, "engine {:?}, model {:?}", engine, model),
                }
            }
            Step::Settle { which, outcome, took } if !self.running.is_empty() => {
                let (permit, ticket) = self.running.swap_remove(which % self.running.len());
                let changes = self.engine.settle(permit, outcome, Duration::from_millis(took), || now);
                self.hear(changes)?;
                self.model.settle(&ticket, outcome, took, t);
            }
            Step::Renew { which } if !self.running.is_empty() => {
                let (permit, ticket) = &self.running[which % self.running.len()];
                let changes = self.engine.renew(permit, || now);
                self.model.renew(ticket, t);
                self.hear(changes)?;
            }
            Step::Settle { .. } | Step::Renew { .. } => {}
            Step::Reset => {
                self.hear(self.engine.reset(now))?;
                self.model.reset(t);
            }
            Step::SetMode(mode) => {
                self.hear(self.engine.set_mode(mode, now))?;
                self.model.set_mode(mode, t);
            }
            Step::Open(ms) => {
                let done = self.engine.open(ms.map(Duration::from_millis), now);
                prop_assert_eq!(done.is_ok(), self.model.open(ms, t));
                self.hear(done.unwrap_or_default())?;
            }
            Step::HalfOpen => {
                let done = self.engine.half_open(now);
                prop_assert_eq!(done.is_ok(), self.model.half_open(t));
                self.hear(done.unwrap_or_default())?;
            }
        }
        self.compare()
    }

    fn compare(&mut self) -> Result<(), TestCaseError> {
        let (snapshot, changes) = self.engine.snapshot(self.instant());
        self.hear(changes)?;
        prop_assert_eq!(snapshot.state, self.told.0);
        prop_assert_eq!(View::of(&snapshot), self.model.view(self.now));
        let near = |rate: Option<f64>, other: Option<f64>| match (rate, other) {
            (Some(rate), Some(other)) => (rate - other).abs() < 1e-9,
            (rate, other) => rate == other,
        };
        let counts = snapshot.counts;
        let rates = [counts.failure_rate, counts.soft_failure_rate, counts.slow_rate];
        for (rate, other) in rates.into_iter().zip(self.model.rates()) {
            prop_assert!(near(rate, other), "{:?} {:?}", snapshot, other);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_engine_does_what_the_model_does(plan in Plan::any(), steps in steps()) {
        let mut pair = Pair::new(plan);
        for step in &steps {
            pair.step(step)?;
        }
    }

    #[test]
    fn a_healthy_upstream_always_closes_again(
        plan in Plan::any(),
        steps in steps(),
        // also with streams that last longer than any lease
        stream_ticks in prop_oneof![Just(0_i64), 1..60_i64],
    ) {
        let mut pair = Pair::new(plan);
        for step in &steps {
            pair.step(step)?;
        }
        // forced open, disabled and observe-only are ended by whoever began them
        if !matches!(pair.engine.mode(), Mode::Enforcing | Mode::Advisory) {
            let _ = pair.engine.reset(pair.instant());
        }
        // the calls that run still never end; new ones come at each tick, stream, and are good
        let mut streams: Vec<(i64, Permit)> = Vec::new();
        for tick in 0..2_000_i64 {
            pair.now += 400;
            let now = pair.instant();
            if let Ok(permit) = pair.engine.acquire(|| now).admission {
                streams.push((tick + stream_ticks, permit));
            }
            streams.iter().for_each(|(_, permit)| drop(pair.engine.renew(permit, || now)));
            let (over, on) = streams.into_iter().partition(|(end, _)| *end <= tick);
            streams = on;
            for (_, permit) in over as Vec<_> {
                let _ = pair.engine.settle(permit, Outcome::Success, Duration::ZERO, || now);
            }
            if pair.engine.state() == State::Closed {
                break;
            }
        }
        prop_assert_eq!(pair.engine.state(), State::Closed);
    }
}
