//! What a server says is left of its own limit. Pure.

use std::time::Duration;

use tokio::time::Instant;

use super::{Account, Rules, Share};
use crate::window::Now;

/// What a server has said, and what was taken of it since.
///
/// An answer tells what was left when the server saw its call. What was reserved for calls after that one is not in that figure
/// yet, so all that is ever reserved is counted, and each call keeps the [`Mark`] that it began at.
#[derive(Debug, Default)]
pub(crate) struct Server {
    /// All that was ever reserved.
    taken: u64,
    said: Option<Said>,
}

/// How much had been reserved when a call was sent, itself included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark(u64);

impl Mark {
    /// Nobody counts.
    pub(crate) const NONE: Self = Self(0);
}

#[derive(Clone, Copy, Debug)]
struct Said {
    /// Of the call whose answer said so.
    mark: Mark,
    /// No more may be taken than this, in all,
    most: u64,
    /// until then.
    until: Instant,
}

impl Account {
    /// The answer to a call says that the server has so much left, until a reset that it names; of a reset further off than
    /// the window is long nobody waits for the end, since by then a new answer can say more.
    #[cfg_attr(not(feature = "http"), allow(dead_code))]
    pub(crate) fn server_says(
        &mut self,
        rules: &Rules,
        share: &Share,
        left: u64,
        reset: Option<Duration>,
        now: Now,
    ) {
        let (Some(server), Some(at), Some(length)) = (&mut self.server, now.at, rules.window.length()) else {
            return;
        };
        let holds = reset.map_or(length, |reset| reset.min(length));
        if let Some(until) = at.checked_add(holds) {
            server.says(share.mark, left, until, at);
        }
    }

    /// What the server said is left, where that still holds.
    pub(crate) fn server_left(&self, now: Now) -> Option<u64> {
        self.server.as_ref().and_then(|server| server.left(now)).map(|(left, _)| left)
    }
}

impl Server {
    /// Whether it lets so much through, whatever the time is.
    #[inline]
    pub(crate) fn has(&self, amount: u64) -> bool {
        self.said.is_none_or(|said| self.taken.saturating_add(amount) <= said.most)
    }

    /// What is left, and for how long yet, where what it said still holds.
    pub(crate) fn left(&self, now: Now) -> Option<(u64, Duration)> {
        let said = self.said?;
        let holds = said.until.checked_duration_since(now.at?).filter(|left| !left.is_zero())?;
        Some((said.most.saturating_sub(self.taken), holds))
    }

    /// Counts what is reserved.
    #[inline]
    pub(crate) fn take(&mut self, amount: u64) -> Mark {
        self.taken = self.taken.saturating_add(amount);
        Mark(self.taken)
    }

    /// An answer says that so much was left when its call was seen, until then. What a later call was told before stands, but
    /// where this is less.
    pub(crate) fn says(&mut self, mark: Mark, left: u64, until: Instant, at: Instant) {
        let most = mark.0.saturating_add(left);
        let later = self.said.filter(|said| said.mark > mark && said.until > at);
        self.said = Some(match later {
            Some(said) if said.most <= most => said,
            Some(said) => Said { most, until: until.max(said.until), ..said },
            None => Said { mark, most, until },
        });
    }

    /// Forgets what no longer holds.
    pub(crate) fn forget(&mut self, now: Now) {
        self.said = self.said.filter(|said| now.at.is_none_or(|at| said.until > at));
    }

    /// Whether something it said is kept.
    pub(crate) const fn says_something(&self) -> bool {
        self.said.is_some()
    }
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn now(at: Instant) -> Now {
        Now::at(at)
    }

    fn left(server: &Server, at: Instant) -> Option<u64> {
        server.left(now(at)).map(|(left, _)| left)
    }

    #[test]
    fn what_was_reserved_after_a_call_is_not_in_what_its_answer_says() {
        let (mut server, start) = (Server::default(), Instant::now());
        let first = server.take(10);
        server.take(30);
        server.says(first, 50, start + MINUTE, start);
        assert_eq!(left(&server, start), Some(20));
        assert!(server.has(20) && !server.has(21));
        server.take(15);
        assert_eq!(left(&server, start), Some(5));
        assert_eq!(left(&server, start + MINUTE), None, "it is over");
        server.forget(now(start + MINUTE));
        assert!(server.has(u64::MAX));
    }

    #[test]
    fn a_later_call_knows_better_and_an_earlier_one_only_makes_it_less() {
        let (mut server, start) = (Server::default(), Instant::now());
        let (first, second) = (server.take(1), server.take(1));
        server.says(second, 10, start + MINUTE, start);
        server.says(first, 50, start + 2 * MINUTE, start);
        assert_eq!(left(&server, start), Some(10));
        server.says(first, 3, start + MINUTE / 2, start);
        assert_eq!((left(&server, start), left(&server, start + MINUTE * 3 / 4)), (Some(2), Some(2)));
        let third = server.take(1);
        server.says(third, 100, start + MINUTE, start);
        assert_eq!(left(&server, start), Some(100));
    }

    #[test]
    fn figures_saturate() {
        let (mut server, start) = (Server::default(), Instant::now());
        let mark = server.take(u64::MAX);
        server.says(mark, u64::MAX, start + MINUTE, start);
        server.take(u64::MAX);
        assert!(server.has(u64::MAX));
        assert_eq!(left(&server, start), Some(0));
    }
}
