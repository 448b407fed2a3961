//! Two sets of books side by side: what a ledger says each session spent, and what the providers bill for it.

use crate::agents::{Ending, Record};
use crate::books::{Ended, Entry};
use crate::client::Account;
use crate::job::Step;
use crate::looping::{LOOP, Peak};
use std::collections::HashMap;

/// What the providers know of one session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Billed {
    tokens: u64,
    /// A request of it was cut, or its answer did not say what it cost.
    is_cut: bool,
    /// The client of a streamed summary went away.
    saw_leave: bool,
}

/// The sessions of one kind, compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Compared {
    pub(crate) sessions: usize,
    pub(crate) spent: u64,
    pub(crate) billed: u64,
    /// Every request was complete, for the providers and in the ledger: the two must agree to the token.
    pub(crate) complete: usize,
    pub(crate) disagreeing: usize,
    /// Something was cut, or only estimated, and the ledger has less than the bill.
    pub(crate) below: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Accounts {
    pub(crate) jobs: Compared,
    pub(crate) looping: Compared,
    /// `None` where nobody keeps a budget.
    pub(crate) peak: Option<Peak>,
    pub(crate) denied: usize,
    pub(crate) hung_up: usize,
    /// Of those, whom a provider saw leaving.
    pub(crate) hung_up_seen: usize,
    /// Requests that providers were still busy with when all clients had gone.
    pub(crate) unnoticed: usize,
}

impl Accounts {
    pub(crate) fn draw_up(
        records: &[Record],
        entries: &[Entry],
        account: impl Fn(&str) -> Option<Account>,
        peak: Option<Peak>,
        unnoticed: usize,
    ) -> Self {
        let mut bill = HashMap::<&str, Billed>::new();
        for entry in entries {
            let billed = bill.entry(&entry.session).or_default();
            billed.tokens += entry.tokens;
            billed.is_cut |= matches!(entry.ended, Ended::Left | Ended::Untold);
            billed.saw_leave |= entry.step == Step::Summary && entry.ended == Ended::Left;
        }
        let mut accounts = Self { peak, unnoticed, ..Self::default() };
        for record in records {
            match record.ending {
                Ending::Denied => accounts.denied += 1,
                Ending::HungUp => {
                    accounts.hung_up += 1;
                    let billed = bill.get(&*record.session);
                    accounts.hung_up_seen += usize::from(billed.is_some_and(|billed| billed.saw_leave));
                }
                _ => {}
            }
            // Its calls may all have been refused: then there is no bill, and the ledger must say so too.
            bill.entry(&record.session).or_default();
        }
        for (session, billed) in bill {
            let class = if session == LOOP { &mut accounts.looping } else { &mut accounts.jobs };
            class.sessions += 1;
            class.billed += billed.tokens;
            let Some(account) = account(session) else { continue };
            class.spent += account.spent;
            if billed.is_cut || account.estimated > 0 {
                class.below += usize::from(account.spent < billed.tokens);
            } else {
                class.complete += 1;
                class.disagreeing += usize::from(account.spent != billed.tokens);
            }
        }
        accounts
    }

    /// By how much the looping agent had used up more than its limit.
    pub(crate) fn overspent(&self) -> u64 {
        self.peak.map_or(0, |peak| peak.used.max(self.looping.spent).saturating_sub(peak.limit))
    }

    /// Whether the limit held, and both sets of books say the same.
    pub(crate) fn hold(&self) -> bool {
        let [jobs, looping] = [&self.jobs, &self.looping];
        self.overspent() == 0 && jobs.disagreeing + looping.disagreeing + jobs.below + looping.below == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::tests::record;

    fn entry(session: &str, tokens: u64, ended: Ended) -> Entry {
        Entry { session: session.into(), step: Step::Summary, tokens, ended }
    }

    fn drawn_up(entries: &[Entry], ledger: &[(&str, u64, u64)]) -> Accounts {
        let account = |session: &str| {
            let (_, spent, estimated) = ledger.iter().find(|(name, ..)| *name == session)?;
            Some(Account { limit: 100, spent: *spent, reserved: 0, estimated: *estimated })
        };
        let mut records = vec![record(1, Ending::HungUp, 1), record(2, Ending::Denied, 0)];
        records[0].session = "A".into();
        records[1].session = LOOP.into();
        Accounts::draw_up(&records, entries, account, Some(Peak { limit: 100, used: 90 }), 0)
    }

    #[test]
    fn complete_sessions_must_agree_to_the_token() {
        let entries = [
            entry("A", 30, Ended::Told),
            entry("A", 0, Ended::TurnedDown),
            entry("B", 9, Ended::Left),
            entry(LOOP, 80, Ended::Told),
        ];
        let accounts = drawn_up(&entries, &[("A", 30, 0), ("B", 50, 1), (LOOP, 80, 0)]);
        assert!(accounts.hold(), "{accounts:?}");
        assert_eq!((accounts.jobs.sessions, accounts.jobs.complete, accounts.looping.complete), (2, 1, 1));
        assert_eq!((accounts.jobs.spent, accounts.jobs.billed), (80, 39));
        assert_eq!((accounts.hung_up, accounts.hung_up_seen, accounts.denied), (1, 0, 1));
        for wrong in [[("A", 31, 0), ("B", 50, 1)], [("A", 29, 0), ("B", 50, 1)], [("A", 30, 0), ("B", 8, 1)]]
        {
            assert!(!drawn_up(&entries, &wrong).hold(), "{wrong:?}");
        }
    }

    #[test]
    fn more_than_the_limit_is_overspent() {
        let entries = [entry(LOOP, 101, Ended::Told)];
        let accounts = drawn_up(&entries, &[(LOOP, 101, 0)]);
        assert_eq!((accounts.overspent(), accounts.hold()), (1, false));
    }

    #[test]
    fn a_provider_that_saw_the_client_leave_is_counted() {
        assert_eq!(drawn_up(&[entry("A", 3, Ended::Left)], &[("A", 9, 1)]).hung_up_seen, 1);
    }
}
