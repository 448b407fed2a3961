//! What each class of outcome does to a circuit.

use failsoft_core::{Blame, Class, ConfigError, Verdict};

use crate::engine::{Outcome, Weight};

/// What a class of outcomes does to a circuit; [`BreakerBuilder::on`](crate::BreakerBuilder::on) sets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Row {
    /// The target did its work.
    Success,
    /// The target failed, by this much.
    Failure(Weight),
    /// Neutral, but a failed probe; opens for a long advice, or after some in a row without one.
    RateLimited,
    /// Opens at once.
    AtOnce,
    /// Neutral, but a good probe: the target lives.
    Alive,
    /// Says nothing; gives a probe back.
    Neutral,
}

/// The rows that were changed, and the weight of soft failures.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    rows: Box<[(Class, Row)]>,
    soft: Weight,
}

impl Table {
    /// Later rows win.
    pub(crate) fn new(rows: Vec<(Class, Row)>, soft: Weight) -> Result<Self, ConfigError> {
        match rows.iter().find(|(class, _)| class.is_success() || class.is_denied()) {
            Some((class, _)) => Err(ConfigError::new(
                "BreakerLayer",
                "on",
                class,
                "a class that can be changed: not success, not a denial",
            )),
            None => Ok(Self { rows: rows.into_iter().rev().collect(), soft }),
        }
    }

    /// `content_seen`: the target showed something before the end.
    pub(crate) fn outcome(&self, verdict: &Verdict, content_seen: bool) -> Outcome {
        let class = verdict.class();
        if class.is_success() {
            return Outcome::Success;
        }
        if class.is_denied() {
            return Outcome::Neutral;
        }
        let unseen = if content_seen { Outcome::Neutral } else { Outcome::Cancelled };
        // a caller in too much of a hurry, a limit of our own: nothing that the target did, no more than a
        // dropped call
        if class.blame() == Blame::Target && verdict.blame() != Blame::Target {
            return unseen;
        }
        if class == Class::Cancelled && (content_seen || self.changed(class).is_none()) {
            return unseen;
        }
        let advice = verdict.retry_after();
        match self.row(class) {
            Row::Success => Outcome::Success,
            Row::Failure(weight) => Outcome::Failure { weight, advice },
            Row::RateLimited => Outcome::RateLimited { advice },
            Row::AtOnce => Outcome::AtOnce { advice },
            Row::Alive => Outcome::Alive,
            Row::Neutral => Outcome::Neutral,
        }
    }

    fn row(&self, class: Class) -> Row {
        self.changed(class).unwrap_or_else(|| self.default_row(class))
    }

    fn changed(&self, class: Class) -> Option<Row> {
        self.rows.iter().find(|(of, _)| *of == class).map(|(_, row)| *row)
    }

    fn default_row(&self, class: Class) -> Row {
        match class {
            Class::Success => Row::Success,
            Class::Transient | Class::Overloaded | Class::Timeout(_) | Class::Unknown => {
                Row::Failure(Weight::FULL)
            }
            Class::Soft(_) => Row::Failure(self.soft),
            Class::RateLimited => Row::RateLimited,
            Class::Quota => Row::AtOnce,
            Class::Invalid => Row::Alive,
            // a class that this version does not know says nothing of the target
            _ => Row::Neutral,
        }
    }
}

#[cfg(test)]
#[cfg(not(failsoft_loom))]
mod tests {
    use std::time::Duration;

    use failsoft_core::{Denier, Limit, SoftKind};

    use super::*;

    fn table(rows: Vec<(Class, Row)>) -> Table {
        Table::new(rows, Weight::SOFT).unwrap()
    }

    #[test]
    fn each_class_has_its_row() {
        let failure = |weight| Outcome::Failure { weight, advice: None };
        let rows = [
            (Class::Success, Outcome::Success),
            (Class::Transient, Outcome::FAILURE),
            (Class::Overloaded, Outcome::FAILURE),
            (Class::Timeout(Limit::FirstContent), Outcome::FAILURE),
            (Class::RateLimited, Outcome::RateLimited { advice: None }),
            (Class::Quota, Outcome::AtOnce { advice: None }),
            (Class::Auth, Outcome::Neutral),
            (Class::ModelNotFound, Outcome::Neutral),
            (Class::ContextLength, Outcome::Neutral),
            (Class::Refused, Outcome::Neutral),
            (Class::Invalid, Outcome::Alive),
            (Class::Soft(SoftKind::Truncated), failure(Weight::SOFT)),
            (Class::Unknown, Outcome::FAILURE),
            (Class::Cancelled, Outcome::Cancelled),
            (Class::Denied(Denier::Circuit), Outcome::Neutral),
            (Class::Denied(Denier::Budget), Outcome::Neutral),
        ];
        for (class, outcome) in rows {
            assert_eq!(table(Vec::new()).outcome(&Verdict::of(class), false), outcome, "{class}");
        }
    }

    #[test]
    fn a_changed_row_is_that_of_its_class_alone_and_the_last_one_wins() {
        let soft = Class::Soft(SoftKind::Empty);
        let table =
            table(vec![(Class::Auth, Row::Neutral), (Class::Auth, Row::AtOnce), (soft, Row::Success)]);
        let advised = Verdict::of(Class::Auth).with_retry_after(Duration::from_secs(1));
        assert_eq!(table.outcome(&advised, false), Outcome::AtOnce { advice: Some(Duration::from_secs(1)) });
        assert_eq!(table.outcome(&Verdict::of(soft), false), Outcome::Success);
        assert!(matches!(table.outcome(&Verdict::soft(SoftKind::Drift), false), Outcome::Failure { .. }));
    }

    #[test]
    fn each_row_can_be_changed_to_each_other() {
        let classes = [
            Class::Transient,
            Class::Overloaded,
            Class::Timeout(Limit::Connect),
            Class::Timeout(Limit::FirstContent),
            Class::Timeout(Limit::Idle),
            Class::Timeout(Limit::Total),
            Class::RateLimited,
            Class::Quota,
            Class::Auth,
            Class::ModelNotFound,
            Class::ContextLength,
            Class::Refused,
            Class::Invalid,
            Class::Soft(SoftKind::Truncated),
            Class::Soft(SoftKind::UnknownTool),
            Class::Unknown,
            Class::Cancelled,
        ];
        let (soft, advice) = (Weight::SOFT, Some(Duration::from_secs(1)));
        let rows = [
            (Row::Success, Outcome::Success),
            (Row::Failure(soft), Outcome::Failure { weight: soft, advice }),
            (Row::RateLimited, Outcome::RateLimited { advice }),
            (Row::AtOnce, Outcome::AtOnce { advice }),
            (Row::Alive, Outcome::Alive),
            (Row::Neutral, Outcome::Neutral),
        ];
        for class in classes {
            let verdict = Verdict::of(class).with_advice(advice);
            for (row, outcome) in rows {
                assert_eq!(table(vec![(class, row)]).outcome(&verdict, false), outcome, "{class}");
            }
        }
    }

    #[test]
    fn a_drop_after_content_says_nothing_whatever_its_row() {
        let table = table(vec![(Class::Cancelled, Row::Failure(Weight::FULL))]);
        assert_eq!(table.outcome(&Verdict::CANCELLED, false), Outcome::FAILURE);
        assert_eq!(table.outcome(&Verdict::CANCELLED, true), Outcome::Neutral);
        let hurry = Verdict::of(Class::Timeout(Limit::Total)).with_blame(Blame::Caller);
        assert_eq!(table.outcome(&hurry, false), Outcome::Cancelled, "nor is that a drop");
    }

    #[test]
    fn what_the_target_is_not_to_blame_for_is_no_failure() {
        // G27: a caller with a limit of 1 ms took a shared target down for everybody
        let hurry = Verdict::of(Class::Timeout(Limit::Total)).with_blame(Blame::Caller);
        let shed = Verdict::of(Class::Overloaded).with_blame(Blame::Nobody);
        for verdict in [hurry, shed] {
            assert_eq!(table(Vec::new()).outcome(&verdict, false), Outcome::Cancelled);
            assert_eq!(table(Vec::new()).outcome(&verdict, true), Outcome::Neutral);
        }
    }

    #[test]
    fn success_and_denials_cannot_be_changed() {
        for class in [Class::Success, Class::Denied(Denier::Circuit)] {
            assert!(Table::new(vec![(class, Row::AtOnce)], Weight::SOFT).is_err());
        }
    }
}
