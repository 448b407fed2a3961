//! When one answer has taken too long: a state machine without a timer, and the alarm that it is read with.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use failsoft_core::{Blame, Class, Fault, Limit, Verdict};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::{LAYER, Limits};

/// A little time for what is on its way. A body that is over by its protocol may keep the socket open for so long: enough
/// for the last chunk of HTTP, so that the connection can be used again.
pub(crate) const LINGER: Duration = Duration::from_secs(1);

/// The limits of one answer, and how far it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
    limits: Limits,
    /// The call's deadline, until the answer is handed on.
    deadline: Option<Instant>,
    content: bool,
    /// The head says that the call has failed: there is nothing that a model has yet to think of.
    failed: bool,
    ended: bool,
    /// Since when the upstream has been asked and silent.
    silent_since: Option<Instant>,
    /// Silence before that, interrupted only by what is no progress.
    silent_for: Duration,
    /// In this silence we were late once, and gave the upstream more time.
    was_late: bool,
}

/// What comes next if nothing else does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) at: Instant,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Limit(Limit, Duration),
    /// The caller's deadline, and which limit it stands for.
    Deadline(Limit),
    Linger,
}

impl Clock {
    pub(crate) const fn new(start: Instant, limits: Limits, deadline: Option<Instant>) -> Self {
        Self {
            start,
            limits,
            deadline,
            content: false,
            failed: false,
            ended: false,
            silent_since: None,
            silent_for: Duration::ZERO,
            was_late: false,
        }
    }

    pub(crate) const fn start(&self) -> Instant {
        self.start
    }

    pub(crate) const fn has_content(&self) -> bool {
        self.content
    }

    /// Content came, or nobody tells: the limit on the first content is off, that on silence on.
    pub(crate) const fn content(&mut self) {
        self.content = true;
    }

    /// The head of the answer is there, and other limits hold from now on.
    pub(crate) const fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// The head says that the call has failed: the limit on silence holds, where none does on the first content.
    pub(crate) const fn failed(&mut self) {
        self.failed = true;
    }

    /// The soft limit on the first content, where that took longer.
    pub(crate) fn late_first_content(&self, after: Duration) -> Option<Duration> {
        self.limits.soft_first_content.filter(|limit| after > *limit)
    }

    /// The target gets on. Gives the silence before that, where it was longer than the soft limit; the clock is read only
    /// where there is one.
    pub(crate) fn progress(&mut self, now: impl FnOnce() -> Instant) -> Option<Duration> {
        // After the end nothing is one: a server that drips on must not keep the body open.
        if self.ended {
            return None;
        }
        let stall = match (self.silent_since, self.limits.soft_idle) {
            (Some(since), Some(limit)) => {
                let silence = self.silent_for.saturating_add(now().saturating_duration_since(since));
                Some(silence).filter(|silence| *silence > limit)
            }
            (None, Some(limit)) => Some(self.silent_for).filter(|silence| *silence > limit),
            (_, None) => None,
        };
        self.forget_silence();
        stall
    }

    const fn forget_silence(&mut self) {
        self.silent_since = None;
        self.silent_for = Duration::ZERO;
        self.was_late = false;
    }

    /// Something came that is no progress.
    ///
    /// Where the limit had passed before we looked, it was we who were late, and what came may have stood in the way
    /// of content: there is a little more time for that, once in a silence.
    pub(crate) fn noise(&mut self, now: impl FnOnce() -> Instant) {
        let Some(since) = self.silent_since.take() else { return };
        self.silent_for = self.silent_for.saturating_add(now().saturating_duration_since(since));
        if let Some(idle) = self.limits.idle.filter(|idle| self.silent_for >= *idle) {
            if !std::mem::replace(&mut self.was_late, true) {
                self.silent_for = idle.saturating_sub(LINGER);
            }
        }
    }

    /// The answer is handed on: the call's deadline was for that.
    pub(crate) const fn hand_on(&mut self) {
        self.deadline = None;
    }

    /// The protocol's own end was seen.
    pub(crate) const fn end(&mut self) {
        self.ended = true;
        self.forget_silence();
    }

    pub(crate) const fn has_ended(&self) -> bool {
        self.ended
    }

    /// The upstream was asked and has nothing: what comes next. Reads the clock only where silence counts.
    pub(crate) fn pending(&mut self, now: impl FnOnce() -> Instant) -> Option<Due> {
        if self.ended {
            let since = *self.silent_since.get_or_insert_with(now);
            return due(since, LINGER, What::Linger);
        }
        let mut next = self.total();
        let mut sooner = |due: Option<Due>| {
            if due.is_some_and(|due| next.is_none_or(|next| due.at < next.at)) {
                next = due;
            }
        };
        if self.content || self.failed && self.limits.first_content.is_none() {
            let Limits { idle, soft_idle, .. } = self.limits;
            // A silence is also told of where none is too long.
            if idle.or(soft_idle).is_some() {
                let since = *self.silent_since.get_or_insert_with(now);
                let rest = |idle: Duration| idle.saturating_sub(self.silent_for);
                sooner(idle.and_then(|idle| due(since, rest(idle), What::Limit(Limit::Idle, idle))));
            }
        } else if let Some(limit) = self.limits.first_content {
            sooner(due(self.start, limit, What::Limit(Limit::FirstContent, limit)));
        }
        if let Some(at) = self.deadline {
            let first = !self.content && self.limits.first_content.is_some();
            let limit = if first { Limit::FirstContent } else { Limit::Total };
            sooner(Some(Due { at, what: What::Deadline(limit) }));
        }
        next
    }

    /// The total limit, which passes also while there is always something to read. After the protocol's own end that is a
    /// clean end.
    pub(crate) fn total(&self) -> Option<Due> {
        let total = self.limits.total?;
        due(self.start, total, if self.ended { What::Linger } else { What::Limit(Limit::Total, total) })
    }

    /// The error of what has passed; `None` where it is no error.
    pub(crate) fn fault(&self, due: Due, now: Instant, target: Option<Arc<str>>) -> Option<Fault> {
        let (limit, allowed, caller) = match due.what {
            What::Limit(limit, allowed) => (limit, allowed, false),
            What::Deadline(limit) => (limit, due.at.saturating_duration_since(self.start), true),
            What::Linger => return None,
        };
        let verdict = Verdict::of(Class::Timeout(limit));
        let verdict = if caller { verdict.with_blame(Blame::Caller) } else { verdict };
        let elapsed = match (limit, self.silent_since) {
            (Limit::Idle, Some(since)) => {
                self.silent_for.saturating_add(now.saturating_duration_since(since))
            }
            _ => now.saturating_duration_since(self.start),
        };
        let what = match (limit, caller) {
            (Limit::FirstContent, _) => "no content after",
            (Limit::Idle, _) => "no progress for",
            _ => "not over after",
        };
        let whose = if caller { "the caller's deadline" } else { "the limit" };
        let message = format!("{what} {elapsed:?}, {whose} is {allowed:?}");
        Some(Fault::with_verdict(verdict, LAYER).with_target_if(target).with_message(message))
    }
}

/// A limit so long that its end cannot be represented is none.
fn due(from: Instant, after: Duration, what: What) -> Option<Due> {
    from.checked_add(after).map(|at| Due { at, what })
}

/// The timer of one answer. It is made when it is first needed, and moved only when it must ring sooner or rang too
/// soon: progress, which moves what is due further out, costs nothing. Boxed, so that the body is `Unpin` where the
/// upstream's is, which others that read bodies want; the future hands it on to the body.
#[derive(Debug, Default)]
pub(crate) struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    /// Waits until `due`.
    pub(crate) fn poll(&mut self, due: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if sleep.deadline() > due {
            sleep.as_mut().reset(due);
        }
        loop {
            ready!(sleep.as_mut().poll(cx));
            if sleep.deadline() >= due {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(due);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn clock(limits: Limits) -> (Clock, Instant) {
        let start = Instant::now();
        (Clock::new(start, limits, None), start)
    }

    fn at(clock: &mut Clock, now: Instant) -> Option<Duration> {
        clock.pending(|| now).map(|due| due.at - now)
    }

    #[test]
    fn before_content_the_first_content_counts_from_the_call_and_silence_does_not() {
        let (mut clock, start) = clock(Limits::default());
        assert_eq!(at(&mut clock, start + SECOND * 4), Some(SECOND * 6));
        assert_eq!(clock.silent_since, None);
    }

    #[test]
    fn silence_counts_from_the_first_time_that_the_upstream_had_nothing() {
        let (mut clock, start) = clock(Limits::default());
        clock.content();
        assert_eq!(at(&mut clock, start + SECOND * 100), Some(SECOND * 30));
        assert_eq!(at(&mut clock, start + SECOND * 120), Some(SECOND * 10));
        assert_eq!(clock.progress(|| start + SECOND * 121), Some(SECOND * 21));
        assert_eq!(at(&mut clock, start + SECOND * 125), Some(SECOND * 30));
        assert_eq!(clock.progress(|| start + SECOND * 125), None);
    }

    #[test]
    fn a_stall_is_the_whole_silence_with_the_keepalives_in_it() {
        let (mut clock, start) = clock(Limits::default());
        clock.content();
        at(&mut clock, start);
        clock.noise(|| start + SECOND * 2);
        assert_eq!(clock.progress(|| unreachable!("nothing was asked for since then")), Some(SECOND * 2));
        assert_eq!(clock.progress(|| unreachable!()), None);
    }

    #[test]
    fn keepalives_interrupt_a_silence_but_do_not_end_it() {
        let (mut clock, start) = clock(Limits::default());
        clock.content();
        at(&mut clock, start);
        clock.noise(|| start + SECOND * 20);
        // The consumer takes its time; that is not the upstream's.
        assert_eq!(at(&mut clock, start + SECOND * 50), Some(SECOND * 10));
    }

    #[test]
    fn a_keepalive_found_too_late_leaves_content_a_second_to_follow_it_once() {
        let (mut clock, start) = clock(Limits::default());
        clock.content();
        at(&mut clock, start);
        clock.noise(|| start + SECOND * 60);
        assert_eq!(at(&mut clock, start + SECOND * 60), Some(SECOND));
        clock.noise(|| start + SECOND * 61);
        assert_eq!(at(&mut clock, start + SECOND * 61), Some(Duration::ZERO));
    }

    #[test]
    fn the_callers_deadline_is_the_callers_fault_only_where_it_is_the_smaller() {
        let start = Instant::now();
        for (deadline, blame) in [(SECOND * 3, Blame::Caller), (SECOND * 10, Blame::Target)] {
            let mut clock = Clock::new(start, Limits::default(), Some(start + deadline));
            let due = clock.pending(|| start).unwrap();
            let fault = clock.fault(due, due.at, None).unwrap();
            assert_eq!(fault.class(), Class::Timeout(Limit::FirstContent));
            assert_eq!(fault.verdict().blame(), blame);
        }
    }

    #[test]
    fn a_limit_beyond_all_time_is_none() {
        let limits = Limits {
            first_content: Some(Duration::MAX),
            idle: None,
            total: Some(Duration::MAX),
            ..Limits::default()
        };
        let (mut clock, start) = clock(limits);
        assert_eq!(at(&mut clock, start), None);
    }

    #[test]
    fn after_the_protocols_end_the_socket_may_linger_for_a_second() {
        let (mut clock, start) = clock(Limits { total: Some(SECOND), ..Limits::default() });
        clock.end();
        let due = clock.pending(|| start + SECOND * 5).unwrap();
        assert_eq!(due.at, start + SECOND * 6);
        assert!(clock.fault(due, due.at, None).is_none());
    }
}
