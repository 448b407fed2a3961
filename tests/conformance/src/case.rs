//! What every kind shares: fields that must all be known, and the outcome of a case.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value, json};

/// How one case went.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    Passed,
    /// At least one difference.
    Failed(Vec<Difference>),
    /// A variant that is not offered, or a case that waits for a later step.
    Skipped(String),
}

/// One thing that was not as wanted.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Difference {
    /// Where: `step 3 (t=1000 acquire) state`, or `expect transitions`.
    pub(crate) at: String,
    pub(crate) wanted: String,
    pub(crate) got: String,
}

impl Outcome {
    /// Passed when nothing differs.
    pub(crate) fn of(differences: Vec<Difference>) -> Self {
        if differences.is_empty() { Self::Passed } else { Self::Failed(differences) }
    }

    /// A case that the runner could not read: always a failure, never a skip.
    pub(crate) fn unreadable(problem: impl Into<String>) -> Self {
        let wanted = "a case that the runner knows".to_owned();
        Self::Failed(vec![Difference { at: "case".to_owned(), wanted, got: problem.into() }])
    }

    /// The outcome of a case that stands in `not-yet.txt`: skipped, or a failure if it passes.
    pub(crate) fn waiting(self, reason: &str) -> Self {
        match self {
            Self::Passed => Self::Failed(vec![Difference {
                at: "not-yet.txt".to_owned(),
                wanted: format!("not yet: {reason}"),
                got: "passed: take its line out of not-yet.txt".to_owned(),
            }]),
            Self::Failed(_) | Self::Skipped(_) => Self::Skipped(format!("not yet: {reason}")),
        }
    }

    /// What is printed of it: nothing of a case that passed.
    pub(crate) fn lines(&self, id: &str) -> Vec<String> {
        match self {
            Self::Passed => Vec::new(),
            Self::Failed(differences) => differences
                .iter()
                .map(|one| format!("FAILED {id}: {}: wanted {}, got {}", one.at, one.wanted, one.got))
                .collect(),
            Self::Skipped(reason) => vec![format!("skipped {id}: {reason}")],
        }
    }

    pub(crate) fn to_json(&self, id: &str) -> Value {
        match self {
            Self::Passed => json!({"id": id, "outcome": "passed"}),
            Self::Failed(differences) => {
                let differences: Vec<_> = differences
                    .iter()
                    .map(|one| json!({"at": one.at, "wanted": one.wanted, "got": one.got}))
                    .collect();
                json!({"id": id, "outcome": "failed", "differences": differences})
            }
            Self::Skipped(reason) => json!({"id": id, "outcome": "skipped", "reason": reason}),
        }
    }
}

/// How many cases went how.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

impl Tally {
    pub(crate) fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Failed(_) => self.failed += 1,
            Outcome::Skipped(_) => self.skipped += 1,
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// A JSON object of which every field must be asked for: a field that nobody asked for is an error, never
/// ignored.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    at: String,
    object: &'a Map<String, Value>,
    asked: RefCell<BTreeSet<&'a str>>,
}

impl<'a> Fields<'a> {
    /// `at` is how error messages call this object.
    pub(crate) fn of(value: &'a Value, at: impl Into<String>) -> Result<Self, String> {
        let at = at.into();
        let object = value.as_object().ok_or_else(|| format!("{at} is not an object"))?;
        Ok(Self { at, object, asked: RefCell::default() })
    }

    /// The field, if there is one.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        let (name, value) = self.object.get_key_value(name)?;
        self.asked.borrow_mut().insert(name);
        Some(value)
    }

    /// The field, read by `read`; `None` if it is missing, an error if `read` cannot.
    pub(crate) fn read<T>(
        &self,
        name: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let Some(value) = self.get(name) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| format!("{}: {name} cannot be {value}", self.at))
    }

    /// As [`read`](Self::read), of a field that must be there.
    pub(crate) fn need<T>(&self, name: &str, read: impl Fn(&'a Value) -> Option<T>) -> Result<T, String> {
        self.read(name, read)?.ok_or_else(|| format!("{}: {name} is missing", self.at))
    }

    /// Fields that are for people only.
    pub(crate) fn ignore(&self, names: &[&str]) {
        for name in names {
            self.get(name);
        }
    }

    /// An error if a field was never asked for.
    pub(crate) fn all_known(&self) -> Result<(), String> {
        let asked = self.asked.borrow();
        match self.object.keys().find(|name| !asked.contains(name.as_str())) {
            Some(name) => Err(format!("{}: unknown field `{name}`", self.at)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_nobody_asked_for_is_an_error() {
        let value = json!({"a": 1, "b": 2});
        let fields = Fields::of(&value, "config").unwrap();
        assert_eq!(fields.need("a", Value::as_u64), Ok(1));
        assert_eq!(fields.all_known(), Err("config: unknown field `b`".to_owned()));
        fields.ignore(&["b"]);
        assert_eq!(fields.all_known(), Ok(()));
    }

    #[test]
    fn a_field_of_another_type_is_an_error() {
        let value = json!({"a": "one"});
        let fields = Fields::of(&value, "config").unwrap();
        assert!(fields.read("a", Value::as_u64).is_err());
        assert_eq!(fields.read("c", Value::as_u64), Ok(None));
        assert!(fields.need("c", Value::as_u64).is_err());
    }

    #[test]
    fn a_waiting_case_that_passes_is_a_failure() {
        assert!(matches!(Outcome::Passed.waiting("later"), Outcome::Failed(_)));
        assert!(matches!(Outcome::unreadable("x").waiting("later"), Outcome::Skipped(_)));
    }
}
