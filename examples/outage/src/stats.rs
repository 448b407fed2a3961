//! The figures of a run, from its records and from the providers' books.

use crate::accounts::Accounts;
use crate::agents::{Ending, Record};
use crate::client::Transition;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// One run through the day.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) records: Vec<Record>,
    /// Requests that reached a provider's socket.
    pub(crate) requests: u64,
    /// On the providers' bills.
    pub(crate) tokens: u64,
    pub(crate) transitions: Vec<Transition>,
    pub(crate) accounts: Accounts,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Figures {
    pub(crate) calls: usize,
    pub(crate) answerable: usize,
    pub(crate) answered: usize,
    pub(crate) wrong: usize,
    pub(crate) failed: usize,
    /// Failures that nobody had a class for.
    pub(crate) unclassed: usize,
    pub(crate) requests: u64,
    pub(crate) tokens: u64,
    /// Of all calls, until the agent had an answer or an error.
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    /// Of the calls that were answered rightly.
    pub(crate) right_p50: Duration,
    pub(crate) right_p99: Duration,
    /// Of the streams that a person read, until the first word.
    pub(crate) first_p50: Duration,
    pub(crate) first_p99: Duration,
    /// Of the failed: a part had been handed on, with an error at its end.
    pub(crate) cut_after_commit: usize,
    pub(crate) hung_up: usize,
    pub(crate) accounts: Accounts,
    pub(crate) wrong_kinds: BTreeMap<&'static str, usize>,
    pub(crate) failed_classes: BTreeMap<String, usize>,
    /// One message of each class, for whoever wants to know what it looked like.
    pub(crate) samples: BTreeMap<String, String>,
}

impl Run {
    pub(crate) fn figures(&self) -> Figures {
        let mut figures = Figures {
            calls: self.records.iter().filter(|record| record.ending != Ending::Denied).count(),
            accounts: self.accounts,
            answerable: self.records.iter().filter(|record| record.answerable).count(),
            requests: self.requests,
            tokens: self.tokens,
            ..Figures::default()
        };
        for record in &self.records {
            match &record.ending {
                Ending::Right => figures.answered += 1,
                Ending::Wrong(mistake) => {
                    figures.wrong += 1;
                    *figures.wrong_kinds.entry(mistake.name()).or_default() += 1;
                }
                Ending::HungUp => figures.hung_up += 1,
                Ending::Denied => {}
                Ending::Failed(failure) => {
                    figures.failed += 1;
                    figures.cut_after_commit += usize::from(failure.shown);
                    figures.unclassed += usize::from(!failure.classed);
                    *figures.failed_classes.entry(failure.class.clone()).or_default() += 1;
                    figures.samples.entry(failure.class.clone()).or_insert_with(|| failure.message.clone());
                }
            }
        }
        let took = |record: &Record| Some(record.took);
        let made = self.records.iter().filter(|record| record.ending != Ending::Denied);
        let all = sorted(made.clone().filter_map(took));
        let right = sorted(made.clone().filter(|record| record.ending == Ending::Right).filter_map(took));
        let first = sorted(made.filter_map(|record| record.first_content));
        [figures.first_p50, figures.first_p99] = [0.5, 0.99].map(|share| percentile(&first, share));
        [figures.p50, figures.p99] = [0.5, 0.99].map(|share| percentile(&all, share));
        [figures.right_p50, figures.right_p99] = [0.5, 0.99].map(|share| percentile(&right, share));
        figures
    }
}

impl Figures {
    pub(crate) fn attempts_per_call(&self) -> f64 {
        ratio(self.requests as f64, self.calls)
    }

    pub(crate) fn attempts_per_answer(&self) -> f64 {
        ratio(self.requests as f64, self.answered)
    }

    pub(crate) fn tokens_per_answer(&self) -> f64 {
        ratio(self.tokens as f64, self.answered)
    }

    pub(crate) fn json(&self) -> Value {
        let milliseconds = |time: Duration| rounded(time.as_secs_f64() * 1000.0);
        let mut json = json!({
            "calls": self.calls,
            "answerable": self.answerable,
            "answered": self.answered,
            "wrong": self.wrong,
            "attempts_per_call": rounded(self.attempts_per_call()),
            "tokens": self.tokens,
            "p50_ms": milliseconds(self.p50),
            "p99_ms": milliseconds(self.p99),
            "first_content_p50_ms": milliseconds(self.first_p50),
            "first_content_p99_ms": milliseconds(self.first_p99),
            "cut_after_commit": self.cut_after_commit,
        });
        if let Some(peak) = self.accounts.peak {
            let looping = &self.accounts.looping;
            json["budget"] = json!({
                "limit": peak.limit,
                "spent": looping.spent,
                "billed": looping.billed,
                "overspent": self.accounts.overspent(),
            });
        }
        json
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn ratio(value: f64, of: usize) -> f64 {
    if of == 0 { 0.0 } else { value / of as f64 }
}

fn sorted(times: impl Iterator<Item = Duration>) -> Vec<Duration> {
    let mut times: Vec<_> = times.collect();
    times.sort_unstable();
    times
}

/// The smallest value that at least this share of the sorted values does not exceed.
fn percentile(sorted: &[Duration], share: f64) -> Duration {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::accounts::Compared;
    use crate::client::Failure;
    use crate::job::Step;
    use crate::looping::Peak;
    use crate::oracle::Mistake;

    pub(crate) fn record(at: u64, ending: Ending, milliseconds: u64) -> Record {
        let took = Duration::from_millis(milliseconds);
        Record {
            at: Duration::from_secs(at),
            step: Step::Summary,
            ending,
            took,
            answerable: true,
            first_content: Some(took / 2),
            session: "ORDER".into(),
        }
    }

    pub(crate) fn failure(class: &str, classed: bool) -> Ending {
        Ending::Failed(Failure { classed, shown: true, ..Failure::new(class, format!("a {class}")) })
    }

    pub(crate) fn run() -> Run {
        let records = vec![
            record(1, Ending::Right, 10),
            record(2, Ending::Right, 20),
            record(300, Ending::Wrong(Mistake::Empty), 30),
            record(400, failure("Timeout", true), 700),
            record(500, failure("unreadable <answer>", false), 40),
        ];
        let looping = Compared { spent: 80, billed: 79, ..Compared::default() };
        let accounts = Accounts { looping, peak: Some(Peak { limit: 100, used: 90 }), ..Accounts::default() };
        Run { records, requests: 7, tokens: 900, transitions: Vec::new(), accounts }
    }

    #[test]
    fn figures_count_every_ending() {
        let figures = run().figures();
        assert_eq!((figures.calls, figures.answerable), (5, 5));
        assert_eq!((figures.answered, figures.wrong, figures.failed, figures.unclassed), (2, 1, 2, 1));
        assert_eq!((figures.p50, figures.p99), (Duration::from_millis(30), Duration::from_millis(700)));
        assert_eq!(figures.right_p99, Duration::from_millis(20));
        assert_eq!(figures.tokens_per_answer(), 450.0);
        assert_eq!(figures.wrong_kinds["empty"], 1);
    }

    #[test]
    fn the_json_has_the_promised_names() {
        let expected = json!({
            "calls": 5, "answerable": 5, "answered": 2, "wrong": 1,
            "attempts_per_call": 1.4, "tokens": 900, "p50_ms": 30.0, "p99_ms": 700.0,
            "first_content_p50_ms": 15.0, "first_content_p99_ms": 350.0, "cut_after_commit": 2,
            "budget": {"limit": 100, "spent": 80, "billed": 79, "overspent": 0},
        });
        assert_eq!(run().figures().json(), expected);
    }

    #[test]
    fn percentiles_take_the_nearest_rank() {
        let values: Vec<_> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(percentile(&values, 0.5), Duration::from_millis(100));
        assert_eq!(percentile(&values, 0.99), Duration::from_millis(198));
        assert_eq!(percentile(&values[..1], 0.99), Duration::from_millis(1));
        assert_eq!(percentile(&[], 0.99), Duration::ZERO);
    }

    #[test]
    fn a_run_without_answers_divides_by_nothing() {
        let run = Run {
            records: Vec::new(),
            requests: 0,
            tokens: 0,
            transitions: Vec::new(),
            accounts: Accounts::default(),
        };
        let figures = run.figures();
        assert_eq!((figures.attempts_per_call(), figures.tokens_per_answer()), (0.0, 0.0));
    }
}
