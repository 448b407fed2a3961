//! A circuit breaker as one would explain it: whole histories, no sums, no tricks. Times are milliseconds.

use std::time::Duration;

use breaker_layer::engine::{Mode, Outcome, Over, Probes, Settings, Snapshot, State, TripOn};
use proptest::prelude::*;

/// The settings of both.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    over: Over,
    min_calls: u32,
    soft_min_calls: u32,
    slow_min_calls: u32,
    failures_min_calls: u32,
    consecutive_min_calls: u32,
    failure_rate: Option<f64>,
    soft_failure_rate: Option<f64>,
    slow_rate: Option<f64>,
    slow_quantile: Option<f64>,
    failures: Option<u32>,
    soft_failures: Option<u32>,
    consecutive: Option<u32>,
    trip_on: TripOn,
    slow_after: Option<u64>,
    open_ms: u64,
    factor: u64,
    list: Option<Vec<u64>>,
    probes: Probes,
    lease_ms: u64,
    last_resort: u32,
    mode: Mode,
}

const CAP: u64 = 20_000;
const HOLD_FROM: u64 = 5_000;
const MAX_ADVICE: u64 = 15_000;
const IN_A_ROW: u32 = 3;

impl Plan {
    fn has_slow_rule(&self) -> bool {
        self.slow_rate.is_some() || self.slow_quantile.is_some()
    }

    pub(crate) fn any() -> impl Strategy<Value = Self> {
        let over = prop_oneof![
            (1..12_u32).prop_map(Over::Calls),
            (1..8_u32, 1..2_000_u64).prop_map(|(buckets, width)| Over::Time {
                span: Duration::from_millis(u64::from(buckets) * width),
                buckets
            }),
            Just(Over::SinceEntered),
        ];
        let probes =
            (1..6_u32, 1..6_u32, 0..=20_u32, 0..5_u8).prop_map(|(probes, some, good, kind)| match kind {
                0 => Probes::Ratio { probes, good: f64::from(good) / 20.0 },
                1 | 2 => Probes::Canary { one_in: some, calls: probes, good: f64::from(good) / 20.0 },
                3 => Probes::Failures { probes, to_open: some.min(probes) },
                _ => Probes::Successes { probes, to_close: some.min(probes) },
            });
        let rate = || prop::option::of((1..=20_u32).prop_map(|twentieth| f64::from(twentieth) / 20.0));
        let number = || prop::option::of(1..6_u32);
        let soft =
            (prop::option::weighted(0.3, (1..=20_u32).prop_map(|part| f64::from(part) / 20.0)), number());
        let quantile = prop::option::weighted(0.3, (1..=9_u32).prop_map(|tenth| f64::from(tenth) / 10.0));
        let rules = (rate(), rate(), number(), number(), soft, quantile);
        let minima = (0..8_u32, 0..8_u32, 10..20_u32, 0..8_u32, 0..8_u32);
        let slow_after = prop::option::of(500..2_500_u64);
        let open = (0..5_000_u64, 1..4_u64, prop::option::of(prop::collection::vec(0..5_000_u64, 1..4)));
        let mode =
            prop_oneof![4 => Just(Mode::Enforcing), 1 => Just(Mode::Advisory), 1 => Just(Mode::ObserveOnly)];
        let trip_on = prop_oneof![Just(TripOn::AnyOutcome), Just(TripOn::FailureOnly)];
        let rest = (minima, 500..8_000_u64, 0..3_u32);
        (over, probes, rules, slow_after, open, mode, trip_on, rest).prop_map(
            |(over, probes, rules, slow_after, open, mode, trip_on, rest)| {
                let (failure_rate, slow_rate, failures, consecutive, soft, quantile) = rules;
                let (soft_failure_rate, soft_failures) = soft;
                let (open_ms, factor, list) = open;
                let (minima, lease_ms, last_resort) = rest;
                let (min_calls, soft_min_calls, sees_quantile, failures_min_calls, consecutive_min_calls) =
                    minima;
                // the quantile is refused where the window is too small to see it
                let sees = !matches!(over, Over::Calls(size) if size < 10);
                let slow_quantile = quantile.filter(|_| slow_after.is_some() && sees);
                let slow_rate = slow_rate.filter(|_| slow_after.is_some() && slow_quantile.is_none());
                let slow_min_calls = if slow_quantile.is_some() { sees_quantile } else { min_calls };
                let at_most = |number: Option<u32>| match over {
                    Over::Calls(size) => number.map(|number| number.min(size)),
                    _ => number,
                };
                let (failures, soft_failures) = (at_most(failures), at_most(soft_failures));
                let none = slow_rate.is_none() && failures.is_none() && consecutive.is_none();
                let failure_rate = if none { failure_rate.or(Some(0.5)) } else { failure_rate };
                Self {
                    over,
                    min_calls,
                    soft_min_calls,
                    slow_min_calls,
                    failures_min_calls,
                    consecutive_min_calls,
                    failure_rate,
                    soft_failure_rate,
                    slow_rate,
                    slow_quantile,
                    failures,
                    soft_failures,
                    consecutive,
                    trip_on,
                    slow_after,
                    open_ms,
                    factor,
                    list,
                    probes,
                    lease_ms,
                    last_resort,
                    mode,
                }
            },
        )
    }

    pub(crate) fn settings(&self) -> Settings {
        let mut builder = Settings::builder()
            .over(self.over)
            .min_calls(self.min_calls)
            .soft_min_calls(self.soft_min_calls)
            .slow_min_calls(self.slow_min_calls)
            .failures_min_calls(self.failures_min_calls)
            .consecutive_min_calls(self.consecutive_min_calls)
            .failure_rate(self.failure_rate)
            .soft_failure_rate(self.soft_failure_rate)
            .slow_rate(self.slow_rate)
            .failures(self.failures)
            .soft_failures(self.soft_failures)
            .consecutive_failures(self.consecutive)
            .trip_on(self.trip_on)
            .soft_alone_may_not_open()
            .open_time(Duration::from_millis(self.open_ms))
            .open_time_factor(self.factor as f64)
            .max_open_time(Duration::from_millis(CAP))
            .jitter(0.0)
            .hold_from(Duration::from_millis(HOLD_FROM))
            .max_advice(Duration::from_millis(MAX_ADVICE))
            .rate_limited_in_a_row(IN_A_ROW)
            .probes(self.probes)
            .lease(Duration::from_millis(self.lease_ms))
            .last_resort(self.last_resort)
            .mode(self.mode);
        let limit = self.slow_after.map(Duration::from_millis);
        builder = match self.slow_quantile.zip(limit) {
            Some((quantile, limit)) => builder.slow_quantile(quantile, limit),
            None => builder.slow_after(limit),
        };
        if let Some(list) = &self.list {
            builder = builder.open_times(list.iter().copied().map(Duration::from_millis));
        }
        builder.build().expect("the plan is sound")
    }
}

/// What a call was admitted as, in which period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ticket {
    kind: Kind,
    period: u64,
    round: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counted,
    Probe,
    Uncounted,
    LastResort,
}

impl Ticket {
    pub(crate) fn is_probe(&self) -> bool {
        self.kind == Kind::Probe
    }
}

#[derive(Debug, Clone, Copy)]
struct Call {
    bucket: i64,
    weight: u64,
    slow: bool,
}

/// What is compared after each step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct View {
    state: State,
    mode: Mode,
    total: u64,
    failed: u64,
    thousandths: u64,
    soft: u64,
    slow: u64,
    slow_failed: u64,
    refused: u64,
    openings: u32,
    time_left: Option<i64>,
    probes: u32,
    in_state: i64,
}

impl View {
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        let counts = snapshot.counts;
        Self {
            state: snapshot.state,
            mode: snapshot.mode,
            total: counts.total,
            failed: counts.failed,
            thousandths: (counts.failed_weight * 1000.0).round() as u64,
            soft: counts.soft,
            slow: counts.slow,
            slow_failed: counts.slow_failed,
            refused: counts.refused,
            openings: snapshot.consecutive_openings,
            time_left: snapshot.time_left.map(|left| left.as_millis() as i64),
            probes: snapshot.probes,
            in_state: snapshot.time_in_state.as_millis() as i64,
        }
    }
}

/// The model.
pub(crate) struct Model {
    plan: Plan,
    state: State,
    advisory: bool,
    period: u64,
    first_period: u64,
    /// Every call that counts, since the state was entered.
    calls: Vec<Call>,
    newest_bucket: i64,
    streak: u64,
    limited: u32,
    probes: u32,
    /// Calls that asked since a canary took one; it takes the first.
    asked: Option<u32>,
    openings: u32,
    failed_half_opens: usize,
    refused: u64,
    entered: i64,
    opened_by_hand: bool,
    open_until: i64,
    lease_until: i64,
    advised_until: i64,
    running_last_resort: u32,
    last_resort_until: i64,
    round: u64,
}

impl Model {
    pub(crate) fn new(plan: Plan) -> Self {
        let state = if plan.mode == Mode::ObserveOnly { State::ObserveOnly } else { State::Closed };
        Self {
            advisory: plan.mode == Mode::Advisory,
            plan,
            state,
            period: 0,
            first_period: 0,
            calls: Vec::new(),
            newest_bucket: 0,
            streak: 0,
            limited: 0,
            probes: 0,
            asked: None,
            openings: 0,
            failed_half_opens: 0,
            refused: 0,
            entered: 0,
            opened_by_hand: false,
            open_until: 0,
            lease_until: 0,
            advised_until: 0,
            running_last_resort: 0,
            last_resort_until: 0,
            round: 0,
        }
    }

    fn ticket(&self, kind: Kind) -> Ticket {
        Ticket { kind, period: self.period, round: self.round }
    }

    fn enter(&mut self, state: State, now: i64) {
        self.entered = self.entered.max(now);
        self.opened_by_hand = false;
        self.period += 1;
        self.state = state;
        self.calls.clear();
        (self.streak, self.limited, self.probes, self.refused) = (0, 0, 0, 0);
        self.asked = None;
        if state != State::Open && state != State::HalfOpen {
            (self.openings, self.failed_half_opens, self.advised_until) = (0, 0, 0);
        }
    }

    fn open_time(&self) -> i64 {
        let time = match &self.plan.list {
            Some(list) => list[self.failed_half_opens.min(list.len() - 1)],
            None => (1..self.openings).fold(self.plan.open_ms, |time, _| (time * self.plan.factor).min(CAP)),
        };
        time.min(CAP) as i64
    }

    fn end_lease(&mut self, now: i64) {
        let good =
            self.calls.iter().all(|call| call.weight == 0 && !(call.slow && self.plan.has_slow_rule()));
        let nobody_runs = self.calls.len() as u64 == u64::from(self.probes);
        let waits = nobody_runs && (self.one_in().is_some() || good && !self.calls.is_empty());
        if self.state == State::HalfOpen && now.max(0) >= self.lease_until && !waits {
            self.openings = self.openings.max(1);
            self.open_until = (self.lease_until + self.open_time()).max(self.advised_until);
            self.enter(State::Open, self.lease_until);
        }
    }

    pub(crate) fn acquire(&mut self, last_resort: bool, now: i64) -> Result<Ticket, Option<i64>> {
        let now = now.max(0);
        self.end_lease(now);
        if self.state == State::Open && now >= self.open_until {
            self.enter(State::HalfOpen, now);
            self.lease_until = now + self.plan.lease_ms as i64;
        }
        let takes = self.state == State::HalfOpen && self.probes < self.all_probes() && self.is_next();
        let left = match self.state {
            State::Closed | State::ObserveOnly => return Ok(self.ticket(Kind::Counted)),
            State::Disabled => return Ok(self.ticket(Kind::Uncounted)),
            State::HalfOpen if takes => {
                let nobody_runs = self.calls.len() as u64 == u64::from(self.probes);
                self.probes += 1;
                if now >= self.lease_until || self.one_in().is_some() && nobody_runs {
                    self.lease_until = now + self.plan.lease_ms as i64;
                }
                return Ok(self.ticket(Kind::Probe));
            }
            State::Open => Some(self.open_until - now),
            _ => None,
        };
        if self.state != State::ForcedOpen {
            if self.advisory {
                return Ok(self.ticket(Kind::Uncounted));
            }
            if last_resort && self.plan.last_resort > 0 {
                if self.running_last_resort >= self.plan.last_resort && now >= self.last_resort_until {
                    self.running_last_resort = 0;
                    self.round += 1;
                }
                if self.running_last_resort < self.plan.last_resort {
                    self.running_last_resort += 1;
                    self.last_resort_until = now + self.plan.lease_ms as i64;
                    return Ok(self.ticket(Kind::LastResort));
                }
            }
        }
        self.refused += 1;
        Err(left)
    }

    pub(crate) fn settle(&mut self, ticket: &Ticket, outcome: Outcome, took: u64, now: i64) {
        let now = now.max(0);
        let slow = self.plan.slow_after.is_some_and(|limit| took > limit);
        self.end_lease(now);
        if ticket.kind == Kind::LastResort && ticket.round == self.round {
            self.running_last_resort -= 1;
        }
        let advice = match outcome {
            Outcome::Failure { advice, .. }
            | Outcome::RateLimited { advice }
            | Outcome::AtOnce { advice } => advice.map(|advice| advice.as_millis() as u64),
            _ => None,
        };
        let until = advice.map_or(0, |advice| now + advice.min(MAX_ADVICE) as i64);
        let hold = advice.is_some_and(|advice| advice >= HOLD_FROM);
        let present = ticket.period == self.period;
        match (ticket.kind, self.state) {
            (Kind::Counted, State::Closed | State::ObserveOnly) if present => {
                self.advised_until = self.advised_until.max(until);
                self.counted(outcome, slow, hold, now);
            }
            (Kind::Probe, State::HalfOpen) if present => {
                self.advised_until = self.advised_until.max(until);
                self.probe(outcome, slow, hold, now);
            }
            (kind, State::Open) => {
                if hold && ticket.period >= self.first_period {
                    self.advised_until = self.advised_until.max(until);
                    self.open_until = self.open_until.max(self.advised_until);
                }
                if kind == Kind::LastResort && present {
                    self.last_resort(outcome, slow, now);
                }
            }
            _ => {}
        }
    }

    fn record(&mut self, weight: u64, slow: bool, now: i64) {
        let bucket = self.bucket(now);
        self.calls.push(Call { bucket, weight, slow });
    }

    fn bucket(&mut self, now: i64) -> i64 {
        if let Over::Time { span, buckets } = self.plan.over {
            let width = span.as_millis() as i64 / i64::from(buckets);
            self.newest_bucket = self.newest_bucket.max(now.max(0) / width);
        }
        self.newest_bucket
    }

    /// The calls that are looked at.
    fn window(&self) -> Vec<Call> {
        let all = self.calls.iter().copied();
        match self.plan.over {
            _ if matches!(self.state, State::HalfOpen | State::Open) => all.collect(),
            Over::Calls(size) => all.rev().take(size as usize).collect(),
            Over::Time { buckets, .. } => {
                all.filter(|call| call.bucket > self.newest_bucket - i64::from(buckets)).collect()
            }
            _ => all.collect(),
        }
    }

    fn counted(&mut self, outcome: Outcome, slow: bool, hold: bool, now: i64) {
        let opens = match outcome {
            Outcome::Success => {
                (self.streak, self.limited) = (0, 0);
                self.record(0, slow, now);
                self.plan.trip_on == TripOn::AnyOutcome && self.rule_met()
            }
            Outcome::Failure { weight, .. } => {
                let weight = (f64::from(weight) * 1000.0).round() as u64;
                self.limited = 0;
                self.streak += weight;
                self.record(weight, slow, now);
                self.rule_met()
            }
            Outcome::Cancelled if slow && self.plan.has_slow_rule() => {
                self.record(0, true, now);
                self.rule_met()
            }
            Outcome::AtOnce { .. } => true,
            Outcome::RateLimited { advice: Some(_) } => hold,
            Outcome::RateLimited { advice: None } => {
                self.limited += 1;
                self.limited >= IN_A_ROW
            }
            _ => false,
        };
        if opens && self.state == State::Closed {
            self.opens(outcome, hold, now);
        }
    }

    fn opens(&mut self, outcome: Outcome, hold: bool, now: i64) {
        self.openings += 1;
        let time = match outcome {
            Outcome::RateLimited { .. } if hold => 0,
            Outcome::AtOnce { .. } => CAP as i64,
            _ => self.open_time(),
        };
        self.open_until = (now + time).max(self.advised_until);
        self.enter(State::Open, now);
    }

    fn rule_met(&self) -> bool {
        let calls = self.window();
        let weight: u64 = calls.iter().map(|call| call.weight).sum();
        let soft = calls.iter().filter(|call| call.weight > 0 && call.weight < 1000).count() as u64;
        let [failure, soft_failure, slow] = self.rates();
        // a hair's breadth: here the rates are floating point
        let reached = |rate: Option<f64>, limit: Option<f64>| match (rate, limit) {
            (Some(rate), Some(limit)) => rate > limit - 1e-9,
            _ => false,
        };
        let plan = &self.plan;
        let over_quantile = plan.slow_quantile.zip(slow).is_some_and(|(quantile, _)| {
            // the quantile itself: the time that so many of the calls did not take longer than
            let mut slow: Vec<_> = calls.iter().map(|call| call.slow).collect();
            slow.sort_unstable();
            slow[((quantile * slow.len() as f64 - 1e-9).ceil() as usize).max(1) - 1]
        });
        let enough = |least| calls.len() >= self.clamped(least);
        (enough(plan.failures_min_calls)
            && (plan.failures.is_some_and(|failures| weight >= u64::from(failures) * 1000)
                || plan.soft_failures.is_some_and(|failures| soft >= u64::from(failures))))
            || (enough(plan.consecutive_min_calls)
                && plan.consecutive.is_some_and(|failures| self.streak >= u64::from(failures) * 1000))
            || reached(failure, plan.failure_rate)
            || reached(soft_failure, plan.soft_failure_rate)
            || reached(slow, plan.slow_rate)
            || over_quantile
    }

    fn clamped(&self, calls: u32) -> usize {
        match self.plan.over {
            Over::Calls(size) => calls.min(size) as usize,
            _ => calls as usize,
        }
    }

    /// Of failures by weight, of soft failures, of slow calls.
    pub(crate) fn rates(&self) -> [Option<f64>; 3] {
        let calls = self.window();
        let counts = !matches!(self.state, State::ForcedOpen | State::Disabled);
        let rate = |least, part: fn(&Call) -> u64| {
            let enough = counts && calls.len() >= self.clamped(least).max(1);
            let sum: u64 = calls.iter().map(part).sum();
            enough.then(|| sum as f64 / calls.len() as f64)
        };
        let plan = &self.plan;
        [
            rate(plan.min_calls, |call| call.weight).map(|thousandths| thousandths / 1000.0),
            rate(plan.soft_min_calls, |call| u64::from(call.weight > 0 && call.weight < 1000)),
            rate(plan.slow_min_calls, |call| u64::from(call.slow)),
        ]
    }

    fn one_in(&self) -> Option<u32> {
        match self.plan.probes {
            Probes::Canary { one_in, .. } => Some(one_in),
            _ => None,
        }
    }

    /// Whether a canary takes the call that asks: the first, and then one in so many.
    fn is_next(&mut self) -> bool {
        let Some(one_in) = self.one_in() else { return true };
        let asked = self.asked.map_or(one_in, |asked| asked + 1);
        let is_next = asked >= one_in;
        self.asked = Some(if is_next { 0 } else { asked });
        is_next
    }

    fn all_probes(&self) -> u32 {
        match self.plan.probes {
            Probes::Canary { calls, .. } => calls,
            Probes::Ratio { probes, .. }
            | Probes::Failures { probes, .. }
            | Probes::Successes { probes, .. } => probes,
            _ => unreachable!("no other kind is made"),
        }
    }

    /// A last-resort call ended while open: as a probe, but for what it does if it is bad.
    fn last_resort(&mut self, outcome: Outcome, slow: bool, now: i64) {
        if self.opened_by_hand || now < self.advised_until {
            return self.calls.clear();
        }
        match outcome {
            Outcome::Success | Outcome::Alive => self.record(0, slow, now),
            Outcome::Failure { weight, .. } => {
                self.record((f64::from(weight) * 1000.0).round() as u64, slow, now);
            }
            Outcome::RateLimited { .. } => self.record(1000, slow, now),
            Outcome::Cancelled if slow && self.plan.has_slow_rule() => self.record(0, true, now),
            Outcome::AtOnce { .. } => return self.calls.clear(),
            _ => return,
        }
        let to_come = u64::from(self.all_probes()) - self.calls.len() as u64;
        if !self.passes(0) {
            self.calls.clear();
        } else if self.passes(to_come) {
            self.enter(State::Closed, now);
        }
    }

    fn probe(&mut self, outcome: Outcome, slow: bool, hold: bool, now: i64) {
        let fails_at_once = matches!(outcome, Outcome::AtOnce { .. })
            || matches!(outcome, Outcome::RateLimited { advice: Some(_) } if hold);
        match outcome {
            _ if fails_at_once => {}
            Outcome::Success | Outcome::Alive => self.record(0, slow, now),
            Outcome::Failure { weight, .. } => {
                self.record((f64::from(weight) * 1000.0).round() as u64, slow, now);
            }
            Outcome::RateLimited { .. } => self.record(1000, slow, now),
            Outcome::Cancelled if slow && self.plan.has_slow_rule() => self.record(0, true, now),
            _ => {
                self.probes -= 1;
                return;
            }
        }
        // the best and the worst that can still come
        let to_come = u64::from(self.all_probes()) - self.calls.len() as u64;
        if fails_at_once || !self.passes(0) {
            self.failed_half_opens += 1;
            self.opens(outcome, hold, now);
        } else if self.passes(to_come) {
            self.enter(State::Closed, now);
        } else if self.one_in().is_some() {
            self.lease_until = self.lease_until.max(now + self.plan.lease_ms as i64);
        }
    }

    /// Whether the period would close if so many of those to come were as bad and slow as can be, and the others good.
    fn passes(&self, bad: u64) -> bool {
        let probes = u64::from(self.all_probes());
        let failed = self.calls.iter().filter(|call| call.weight > 0).count() as u64 + bad;
        let weight: u64 = self.calls.iter().map(|call| call.weight).sum::<u64>() + bad * 1000;
        let slow = self.calls.iter().filter(|call| call.slow).count() as u64 + bad;
        let good = match self.plan.probes {
            Probes::Ratio { good, .. } | Probes::Canary { good, .. } => {
                1.0 - weight as f64 / 1000.0 / probes as f64 > good - 1e-9
            }
            Probes::Failures { to_open, .. } => failed < u64::from(to_open),
            Probes::Successes { to_close, .. } => probes - failed >= u64::from(to_close),
            _ => unreachable!("no other kind is made"),
        };
        let share = slow as f64 / probes as f64;
        let too_slow = slow > 0
            && (self.plan.slow_rate.is_some_and(|rate| share > rate - 1e-9)
                || self.plan.slow_quantile.is_some_and(|quantile| share > 1.0 - quantile + 1e-9));
        good && !too_slow
    }

    pub(crate) fn renew(&mut self, ticket: &Ticket, now: i64) {
        if !matches!(ticket.kind, Kind::Probe | Kind::LastResort) {
            return;
        }
        let now = now.max(0);
        self.end_lease(now);
        let until = now + self.plan.lease_ms as i64;
        if ticket.kind == Kind::Probe && ticket.period == self.period && self.state == State::HalfOpen {
            self.lease_until = self.lease_until.max(until);
        }
        if ticket.kind == Kind::LastResort && ticket.round == self.round {
            self.last_resort_until = self.last_resort_until.max(until);
        }
    }

    fn mode(&self) -> Mode {
        match self.state {
            State::ObserveOnly => Mode::ObserveOnly,
            State::ForcedOpen => Mode::ForcedOpen,
            State::Disabled => Mode::Disabled,
            _ if self.advisory => Mode::Advisory,
            _ => Mode::Enforcing,
        }
    }

    pub(crate) fn reset(&mut self, now: i64) {
        self.enter(State::Closed, now.max(0));
        self.first_period = self.period;
    }

    pub(crate) fn set_mode(&mut self, mode: Mode, now: i64) {
        if mode == self.mode() {
            return;
        }
        let state = match mode {
            Mode::ObserveOnly => State::ObserveOnly,
            Mode::ForcedOpen => State::ForcedOpen,
            Mode::Disabled => State::Disabled,
            _ => State::Closed,
        };
        self.enter(state, now.max(0));
        self.first_period = self.period;
        if matches!(mode, Mode::Enforcing | Mode::Advisory) {
            self.advisory = mode == Mode::Advisory;
        }
    }

    pub(crate) fn open(&mut self, ms: Option<u64>, now: i64) -> bool {
        if self.state == State::ObserveOnly {
            return false;
        }
        self.openings += 1;
        self.open_until = now.max(0) + ms.map_or_else(|| self.open_time(), |ms| ms as i64);
        self.enter(State::Open, now.max(0));
        self.opened_by_hand = true;
        true
    }

    pub(crate) fn half_open(&mut self, now: i64) -> bool {
        if self.state == State::ObserveOnly {
            return false;
        }
        self.enter(State::HalfOpen, now.max(0));
        self.lease_until = now.max(0) + self.plan.lease_ms as i64;
        true
    }

    pub(crate) fn view(&mut self, now: i64) -> View {
        self.end_lease(now);
        self.bucket(now);
        let calls = match self.state {
            State::Closed | State::ObserveOnly | State::HalfOpen | State::Open => self.window(),
            _ => Vec::new(),
        };
        let time_left = match self.state {
            State::Open => Some((self.open_until - now.max(0)).max(0)),
            State::HalfOpen => Some((self.lease_until - now.max(0)).max(0)),
            _ => None,
        };
        let count = |which: fn(&Call) -> bool| calls.iter().filter(|call| which(call)).count() as u64;
        View {
            state: self.state,
            mode: self.mode(),
            total: calls.len() as u64,
            failed: count(|call| call.weight > 0),
            thousandths: calls.iter().map(|call| call.weight).sum(),
            soft: count(|call| call.weight > 0 && call.weight < 1000),
            slow: count(|call| call.slow),
            slow_failed: count(|call| call.slow && call.weight > 0),
            refused: self.refused,
            openings: self.openings,
            time_left,
            probes: if self.state == State::HalfOpen { self.probes } else { 0 },
            in_state: (now.max(0) - self.entered).max(0),
        }
    }
}
