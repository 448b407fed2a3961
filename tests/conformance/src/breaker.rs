//! Kind `breaker`: a config, steps on a test clock, wanted states and admissions; replayed through the pure
//! engine.

mod config;
mod expect;

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::time::Duration;

use breaker_layer::engine::{Changes, Engine, Mode, Outcome, Permit, Refusal, Transition};
use serde_json::Value;
use tokio::time::Instant;

use self::expect::{Expect, Seen};
use crate::case::{Difference, Fields, Outcome as CaseOutcome};

/// Runs one case.
pub(crate) fn run(case: &Value) -> CaseOutcome {
    replay(case).map_or_else(CaseOutcome::unreadable, CaseOutcome::of)
}

fn replay(case: &Value) -> Result<Vec<Difference>, String> {
    let case = Fields::of(case, "case")?;
    case.ignore(&["id", "source", "note", "tags"]);
    let config = case.need("config", Some)?;
    let steps = case.need("steps", Value::as_array)?;
    let expect = case.need("expect", Some)?;
    case.all_known()?;

    let mut replay = Replay::new(Engine::new(config::settings(config)?, epoch()), epoch());
    for (index, step) in steps.iter().enumerate() {
        replay.step(index, step)?;
    }
    replay.check("expect", expect, None)?;
    Ok(replay.differences)
}

/// The moment of `t` = 0: far enough from the clock's own beginning for the cases that go back before it.
fn epoch() -> Instant {
    static EPOCH: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *EPOCH.get_or_init(|| Instant::now() + Duration::from_secs(86_400))
}

struct Replay {
    engine: Engine,
    epoch: Instant,
    now: Instant,
    permits: BTreeMap<String, Permit>,
    transitions: Vec<Transition>,
    differences: Vec<Difference>,
}

/// What one step came to, besides the state.
#[derive(Default)]
struct StepResult {
    admitted: Option<bool>,
    retry_after: Option<Duration>,
    error: bool,
    admitted_total: Option<u64>,
}

impl Replay {
    fn new(engine: Engine, epoch: Instant) -> Self {
        let (permits, transitions, differences) = Default::default();
        Self { engine, epoch, now: epoch, permits, transitions, differences }
    }

    fn step(&mut self, index: usize, step: &Value) -> Result<(), String> {
        let at = format!("step {index}");
        let fields = Fields::of(step, at.as_str())?;
        let t = fields.need("t", Value::as_i64)?;
        let what = fields.need("do", Value::as_str)?;
        let at = format!("{at} (t={t} {what})");
        let away = Duration::from_millis(t.unsigned_abs());
        self.now = if t < 0 { self.epoch.checked_sub(away) } else { self.epoch.checked_add(away) }
            .ok_or_else(|| format!("{at}: no clock goes there"))?;

        let started = Instant::now();
        let result = self.act(what, &fields)?;
        let took = started.elapsed();
        let most = fields.read("max_ns", Value::as_u64)?;
        if let Some(most) = most.filter(|most| took > Duration::from_nanos(*most)) {
            let (wanted, got) = (format!("at most {most} ns"), format!("{} ns", took.as_nanos()));
            self.differences.push(Difference { at: at.clone(), wanted, got });
        }
        if let Some(want) = fields.get("want") {
            self.check(&at, want, Some(&result))?;
        }
        fields.all_known()
    }

    fn act(&mut self, what: &str, fields: &Fields<'_>) -> Result<StepResult, String> {
        let mut result = StepResult::default();
        let (word, argument) = what.split_once(':').unwrap_or((what, ""));
        match word {
            "acquire" => {
                let id = fields.need("id", Value::as_str)?;
                if let Some(permit) = self.acquire(&mut result) {
                    self.permits.insert(id.to_owned(), permit);
                }
            }
            "finish" => {
                let permit = self.permits.remove(fields.need("id", Value::as_str)?);
                let ending = Ending::of(fields)?;
                if let Some(permit) = permit {
                    self.finish(permit, &ending);
                }
            }
            "call" => {
                let ending = Ending::of(fields)?;
                if let Some(permit) = self.acquire(&mut result) {
                    self.finish(permit, &ending);
                }
            }
            "acquire_concurrently" => {
                let threads = fields.need("n", Value::as_u64)?;
                result.admitted_total = Some(self.acquire_concurrently(threads)?);
            }
            // every check of the state brings it up to now
            "probe_state" => {}
            // the engine never sees the wall clock
            "wall_clock_shift" => fields.ignore(&["ms"]),
            "open" => result.error = self.by_hand(|engine, now| engine.open(None, now)),
            "open_for" => {
                let millis = argument.parse().map_err(|_| format!("open_for: no time in `{what}`"))?;
                let open_for = Some(Duration::from_millis(millis));
                result.error = self.by_hand(|engine, now| engine.open(open_for, now));
            }
            "half_open" => result.error = self.by_hand(Engine::half_open),
            "force_open" => self.note(self.engine.set_mode(Mode::ForcedOpen, self.now)),
            "disable" => self.note(self.engine.set_mode(Mode::Disabled, self.now)),
            "metrics_only" => self.note(self.engine.set_mode(Mode::ObserveOnly, self.now)),
            "reset" => self.note(self.engine.reset(self.now)),
            _ => return Err(format!("unknown step `{what}`")),
        }
        Ok(result)
    }

    fn acquire(&mut self, result: &mut StepResult) -> Option<Permit> {
        let now = self.now;
        let acquired = self.engine.acquire(|| now);
        self.note(acquired.changes);
        result.admitted = Some(acquired.admission.is_ok());
        match acquired.admission {
            Ok(permit) => Some(permit),
            Err(Refusal { retry_after, .. }) => {
                result.retry_after = retry_after;
                None
            }
        }
    }

    fn finish(&mut self, permit: Permit, ending: &Ending) {
        let now = self.now;
        let changes = self.engine.settle(permit, ending.outcome, ending.took, || now);
        self.note(changes);
    }

    /// All threads ask at the same moment; what they get stays with the case.
    fn acquire_concurrently(&mut self, threads: u64) -> Result<u64, String> {
        let count = usize::try_from(threads).ok().filter(|count| (1..=1024).contains(count));
        let count = count.ok_or_else(|| format!("acquire_concurrently: {threads} threads"))?;
        let (engine, now, start) = (&self.engine, self.now, Barrier::new(count));
        let acquired: Vec<_> = std::thread::scope(|scope| {
            let ask = || {
                start.wait();
                engine.acquire(|| now)
            };
            let threads: Vec<_> = (0..count).map(|_| scope.spawn(ask)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().map_err(|_| "a thread panicked".to_owned()))
                .collect()
        });
        let mut admitted = 0;
        for (index, acquired) in acquired.into_iter().enumerate() {
            let acquired = acquired?;
            self.note(acquired.changes);
            if let Ok(permit) = acquired.admission {
                admitted += 1;
                self.permits.insert(format!("concurrent {index}"), permit);
            }
        }
        Ok(admitted)
    }

    /// Whether the step was refused as an invalid transition.
    fn by_hand<E>(&mut self, step: impl FnOnce(&Engine, Instant) -> Result<Changes, E>) -> bool {
        match step(&self.engine, self.now) {
            Ok(changes) => {
                self.note(changes);
                false
            }
            Err(_) => true,
        }
    }

    fn note(&mut self, changes: Changes) {
        self.transitions.extend(changes.into_iter().filter(Transition::is_change));
    }

    fn check(&mut self, at: &str, want: &Value, result: Option<&StepResult>) -> Result<(), String> {
        let (snapshot, changes) = self.engine.snapshot(self.now);
        self.note(changes);
        let seen = Seen { snapshot, transitions: &self.transitions, result };
        let differences = Expect::of(want, at)?.compare(&seen)?;
        self.differences.extend(differences);
        Ok(())
    }
}

/// How a call ends.
struct Ending {
    outcome: Outcome,
    took: Duration,
}

impl Ending {
    fn of(fields: &Fields<'_>) -> Result<Self, String> {
        let outcome = fields.need("out", |out| match out.as_str()? {
            "ok" => Some(Outcome::Success),
            // a panic of the call is a failure that propagates; the engine sees the failure
            "fail" | "panic" => Some(Outcome::FAILURE),
            // the dialect's cancelled is neutral whatever it took: it knows nothing of content
            "ignored" | "cancelled" => Some(Outcome::Neutral),
            _ => None,
        })?;
        Ok(Self { outcome, took: Duration::from_millis(fields.need("took", Value::as_u64)?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_of_the_repository_passes() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/cases/breaker.jsonl");
        for case in crate::json_lines(path.as_ref()).unwrap() {
            assert_eq!(run(&case), CaseOutcome::Passed, "{}", case["id"]);
        }
    }

    #[test]
    fn a_wrong_expectation_and_an_unknown_field_fail() {
        let case = r#"{"id":"x","config":{"window":{"kind":"none"},"min_calls":1,"trip_any":[{"failures_ge":1}],"trip_on":"failure_only",
            "open_ms":1000,"half_open":{"probes":1,"failures_to_open":1}},"steps":[{"t":0,"do":"probe_state","want":{"state":"open"}}],
            "expect":{"state":"closed"}}"#;
        assert!(
            matches!(run(&serde_json::from_str(case).unwrap()), CaseOutcome::Failed(all) if all.len() == 1)
        );
        let unknown = case.replace("\"trip_on\"", "\"colour\":1,\"trip_on\"");
        assert!(matches!(run(&serde_json::from_str(&unknown).unwrap()), CaseOutcome::Failed(_)));
    }
}
