//! Kind `retry`: back-off, budgets, throttles, server advice and flows, replayed through `failsoft-core` and `retry-layer`.

mod advice;
mod backoff;
mod budget;
mod flow;

use std::future::Future;
use std::time::Duration;

use serde_json::Value;

use crate::case::{Difference, Fields, Outcome};

/// Runs one case.
pub(crate) fn run(case: &Value) -> Outcome {
    match replay(case) {
        Ok(Some(differences)) => Outcome::of(differences),
        Ok(None) => Outcome::Skipped("variant: this mode is not offered".to_owned()),
        Err(problem) => Outcome::unreadable(problem),
    }
}

/// The differences; `None` for a variant that is not offered.
fn replay(case: &Value) -> Result<Option<Vec<Difference>>, String> {
    let fields = Fields::of(case, "case")?;
    fields.ignore(&["id", "source", "note"]);
    let tags = fields.read("tags", Value::as_array)?;
    let kind = fields.need("kind", Value::as_str)?;
    let variant = tags.is_some_and(|tags| tags.iter().any(|tag| tag == "variant"));
    if variant && kind != "backoff_jitter" {
        return Ok(None);
    }
    let parts = Parts {
        config: Fields::of(fields.need("config", Some)?, "config")?,
        steps: fields.need("steps", Value::as_array)?,
        expect: Fields::of(fields.need("expect", Some)?, "expect")?,
    };
    fields.all_known()?;
    let differences = match kind {
        "budget_ratio" | "budget_race" => budget::ratio(&parts),
        "grpc_throttle" => budget::throttle(&parts),
        "retry_flow" => flow::run(&parts),
        "backoff_nominal" => backoff::nominal(&parts),
        "backoff_bounds" => backoff::bounds(&parts),
        "backoff_jitter" => backoff::place(&parts),
        "retry_after" => advice::run(&parts),
        _ => Err(format!("unknown kind `{kind}`")),
    }?;
    parts.config.all_known()?;
    parts.expect.all_known()?;
    Ok(Some(differences))
}

struct Parts<'a> {
    config: Fields<'a>,
    steps: &'a [Value],
    expect: Fields<'a>,
}

impl Parts<'_> {
    fn no_steps(&self) -> Result<(), String> {
        if self.steps.is_empty() { Ok(()) } else { Err("this kind has no steps".to_owned()) }
    }
}

/// Collects what is not as wanted.
#[derive(Default)]
struct Checks(Vec<Difference>);

impl Checks {
    #[allow(clippy::needless_pass_by_value, reason = "a check reads better without references")]
    fn check(&mut self, at: impl Into<String>, holds: bool, wanted: impl ToString, got: impl ToString) {
        if !holds {
            self.0.push(Difference { at: at.into(), wanted: wanted.to_string(), got: got.to_string() });
        }
    }

    /// Whether two numbers are the same to `within`.
    fn near(&mut self, at: impl Into<String>, wanted: f64, got: f64, within: f64) {
        self.check(at, (wanted - got).abs() <= within, wanted, got);
    }
}

/// Runs on a clock that stands still until somebody sleeps.
fn on_a_test_clock<T>(run: impl Future<Output = T>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    Ok(runtime.map_err(|problem| problem.to_string())?.block_on(run))
}

/// Milliseconds, with a fraction.
fn duration(ms: &Value) -> Option<Duration> {
    Duration::try_from_secs_f64(ms.as_f64()? / 1e3).ok()
}

fn in_ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// `[from, to]` in milliseconds.
fn bounds(value: &Value) -> Option<(f64, f64)> {
    match value.as_array()?.as_slice() {
        [from, to] => Some((from.as_f64()?, to.as_f64()?)),
        _ => None,
    }
}
