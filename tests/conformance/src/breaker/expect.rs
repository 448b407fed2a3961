//! What is wanted after a step, and how it differs from what is.

use breaker_layer::engine::{Counts, Snapshot, State, Transition};
use serde_json::{Value, json};

use super::StepResult;
use crate::case::{Difference, Fields};

/// What is, after a step or at the end.
pub(super) struct Seen<'a> {
    pub(super) snapshot: Snapshot,
    pub(super) transitions: &'a [Transition],
    /// None at the end of the case.
    pub(super) result: Option<&'a StepResult>,
}

/// What is wanted.
pub(super) struct Expect<'a> {
    at: &'a str,
    fields: Fields<'a>,
    differences: Vec<Difference>,
}

/// Rates hold to this many per cent.
const TOLERANCE: f64 = 0.001;

impl<'a> Expect<'a> {
    pub(super) fn of(want: &'a Value, at: &'a str) -> Result<Self, String> {
        Ok(Self { at, fields: Fields::of(want, at)?, differences: Vec::new() })
    }

    pub(super) fn compare(mut self, seen: &Seen<'_>) -> Result<Vec<Difference>, String> {
        let Snapshot { state, counts, .. } = seen.snapshot;
        self.exactly("state", &json!(name(state)));
        self.exactly("rejected", &json!(counts.refused));
        // counters are checked in every state but open
        let counters = ["buffered", "failed", "slow", "slow_failed", "failure_rate_pct", "slow_rate_pct"];
        if state == State::Open {
            self.fields.ignore(&counters);
        } else {
            self.counters(&counts);
        }
        match seen.result {
            Some(result) => {
                self.exactly("admitted", &json!(result.admitted));
                self.exactly("retry_after_ms", &json!(result.retry_after.map(|left| left.as_millis())));
                self.exactly("error", &json!(result.error));
                self.exactly("admitted_total", &json!(result.admitted_total));
            }
            None => {
                let all = seen.transitions.iter().map(|one| format!("{}>{}", name(one.from), name(one.to)));
                self.exactly("transitions", &json!(all.collect::<Vec<_>>()));
            }
        }
        self.fields.all_known()?;
        Ok(self.differences)
    }

    fn counters(&mut self, counts: &Counts) {
        self.exactly("buffered", &json!(counts.total));
        self.exactly("failed", &json!(counts.failed));
        self.exactly("slow", &json!(counts.slow));
        self.exactly("slow_failed", &json!(counts.slow_failed));
        self.rate("failure_rate_pct", counts.failure_rate);
        self.rate("slow_rate_pct", counts.slow_rate);
    }

    fn exactly(&mut self, name: &str, got: &Value) {
        if let Some(wanted) = self.fields.get(name).filter(|wanted| *wanted != got) {
            self.differs(name, wanted, got);
        }
    }

    fn rate(&mut self, name: &str, got: Option<f64>) {
        let Some(wanted) = self.fields.get(name) else { return };
        let got = got.map(|rate| rate * 100.0);
        let same = match (wanted.as_f64(), got) {
            (Some(wanted), Some(got)) => (wanted - got).abs() <= TOLERANCE,
            (None, None) => wanted.is_null(),
            _ => false,
        };
        if !same {
            self.differs(name, wanted, &json!(got));
        }
    }

    fn differs(&mut self, name: &str, wanted: &Value, got: &Value) {
        let at = format!("{} {name}", self.at);
        self.differences.push(Difference { at, wanted: wanted.to_string(), got: got.to_string() });
    }
}

fn name(state: State) -> &'static str {
    match state {
        State::ObserveOnly => "metrics_only",
        state => state.as_str(),
    }
}
