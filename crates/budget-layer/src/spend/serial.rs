//! A [`Spend`] as it is written: the outcomes by their names, and only those that there were, so that more of them may come.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Outcome, Spend, Tally};

#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct Written {
    spent: u64,
    denied: u64,
    unknown: u64,
    late: u64,
    /// Of an outcome that this version does not know, only the sum counts.
    outcomes: BTreeMap<String, Tally>,
}

impl Serialize for Spend {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let there_were = self.outcomes().filter(|(_, tally)| *tally != Tally::default());
        Written {
            spent: self.spent,
            denied: self.denied,
            unknown: self.unknown,
            late: self.late,
            outcomes: there_were.map(|(outcome, tally)| (outcome.as_str().to_owned(), tally)).collect(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Spend {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Written { spent, denied, unknown, late, outcomes } = Written::deserialize(deserializer)?;
        let mut spend = Self { spent, denied, unknown, late, ..Self::default() };
        for outcome in Outcome::ALL {
            if let Some(tally) = outcomes.get(outcome.as_str()) {
                spend.tallies[outcome.index()] = *tally;
            }
        }
        Ok(spend)
    }
}
