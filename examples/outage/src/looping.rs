//! The agent that has lost its way: it asks the same again and again, three times at once, whatever it is told. Only a
//! budget stops it.

use crate::agents::Office;
use crate::client::Client;
use crate::job::{Conversation, Job, Step};
use std::sync::Arc;
use std::time::Duration;

/// Its session. The others are called by their orders, which are written in capitals.
pub(crate) const LOOP: &str = "loop";
/// Where nobody stops it, it goes on until it was answered so often, or for so long.
const ROUNDS: usize = 60;
const UNTIL: Duration = Duration::from_secs(600);
const AT_ONCE: usize = 3;
/// Even an agent that does not listen gives up when it has been denied for so many rounds.
const DENIED_ROUNDS: usize = 4;
const PAUSE: Duration = Duration::from_millis(500);
/// After a round without an answer.
const LONG_PAUSE: Duration = Duration::from_secs(3);

/// The most that was used up at any time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Peak {
    pub(crate) limit: u64,
    /// Spent and reserved together.
    pub(crate) used: u64,
}

impl<C: Client> Office<C> {
    /// It begins with the day, in the calm: a call whose attempts get lost costs an estimate for each of them, more than was
    /// reserved.
    pub(crate) async fn go_in_circles(self: Arc<Self>) -> Option<Peak> {
        let job = Job::draw(self.seed, usize::MAX >> 24, 0);
        let conversation = Conversation::in_session(LOOP, &job);
        let (mut peak, mut answered, mut denied) = (None, 0, 0);
        while answered < ROUNDS && denied < DENIED_ROUNDS && self.day.now() < UNTIL {
            let asking = (0..AT_ONCE).map(|_| async {
                let answer = self.ask(Step::Plan, &job, &conversation).await;
                (answer, self.peak())
            });
            let (mut all_denied, mut any_answered) = (true, false);
            for (answer, seen) in futures_util::future::join_all(asking).await {
                all_denied &= answer.is_err();
                any_answered |= matches!(answer, Ok(Some(_)));
                peak = peak.max(seen);
            }
            denied = if all_denied { denied + 1 } else { 0 };
            answered += usize::from(any_answered);
            self.day.sleep(if any_answered { PAUSE } else { LONG_PAUSE }).await;
        }
        peak
    }

    /// What is used up just now. Spent is read first: what is settled between the two is then missed, not counted twice.
    fn peak(&self) -> Option<Peak> {
        let spent = self.client.account(LOOP)?;
        Some(Peak { limit: spent.limit, used: spent.spent + spent.reserved })
    }
}
