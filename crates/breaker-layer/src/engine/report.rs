//! What the engine tells: states, modes, transitions with their reason, counts.

use std::fmt;
use std::time::Duration;

/// Where a circuit stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// Calls pass and are counted.
    Closed,
    /// Calls are refused until the open time is over. The next call after that moves on to half-open.
    Open,
    /// A few probes pass; their outcomes close or open it.
    HalfOpen,
    /// Refuses every call until told otherwise.
    ForcedOpen,
    /// Passes every call and counts none.
    Disabled,
    /// Passes and counts every call, and never opens.
    ObserveOnly,
}

impl State {
    /// The name used in events, metrics and snapshots.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
            Self::ForcedOpen => "forced_open",
            Self::Disabled => "disabled",
            Self::ObserveOnly => "observe_only",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a circuit acts on what it knows. Switched at run time; each switch forgets the calls made before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Mode {
    /// Refuses calls while open. The default.
    #[default]
    Enforcing,
    /// Goes through the same states but never refuses: for routers that prefer rather than block.
    Advisory,
    /// Counts only; says once when it would have opened.
    ObserveOnly,
    /// Refuses every call.
    ForcedOpen,
    /// Does nothing.
    Disabled,
}

/// Why a circuit changed its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The weighted failure rate reached its threshold.
    FailureRate,
    /// The share of slow calls reached its threshold.
    SlowRate,
    /// The weighted number of failures in the window reached its threshold.
    Failures,
    /// The weighted failures in a row reached their threshold.
    ConsecutiveFailures,
    /// The share of soft failures reached its threshold.
    SoftFailureRate,
    /// The number of soft failures in the window reached its threshold.
    SoftFailures,
    /// A rate limit whose advice was long enough to wait for.
    RateLimited,
    /// Rate limits in a row without advice.
    RateLimitedInARow,
    /// An outcome that opens at once, such as a spent quota.
    AtOnce,
    /// The open time is over: probing starts.
    OpenTimeOver,
    /// Enough probes were good.
    ProbesGood,
    /// Too many probes failed.
    ProbesFailed,
    /// Too many probes were slow.
    ProbesSlow,
    /// Enough last-resort calls that an open circuit let through were good.
    LastResortGood,
    /// The half-open period came to no decision within its lease.
    LeaseEnded,
    /// Somebody asked for it.
    ByHand,
    /// [`Engine::reset`](super::Engine::reset).
    Reset,
    /// [`Engine::set_mode`](super::Engine::set_mode).
    ModeChanged,
}

impl Reason {
    /// The name used in events and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FailureRate => "failure_rate",
            Self::SlowRate => "slow_rate",
            Self::Failures => "failures",
            Self::ConsecutiveFailures => "consecutive_failures",
            Self::SoftFailureRate => "soft_failure_rate",
            Self::SoftFailures => "soft_failures",
            Self::RateLimited => "rate_limited",
            Self::RateLimitedInARow => "rate_limited_in_a_row",
            Self::AtOnce => "at_once",
            Self::OpenTimeOver => "open_time_over",
            Self::ProbesGood => "probes_good",
            Self::ProbesFailed => "probes_failed",
            Self::ProbesSlow => "probes_slow",
            Self::LastResortGood => "last_resort_good",
            Self::LeaseEnded => "lease_ended",
            Self::ByHand => "by_hand",
            Self::Reset => "reset",
            Self::ModeChanged => "mode_changed",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One change of state, or one of three things worth telling that leave the state as it is (`from == to`): a
/// reset while closed, a switch between enforcing and advisory, and the first time an observe-only circuit
/// would have opened.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Transition {
    /// Grows by one with each change of one circuit: two listeners on two threads can put them in order.
    pub sequence: u64,
    /// The state that was left.
    pub from: State,
    /// The state that was entered.
    pub to: State,
    /// Why.
    pub reason: Reason,
    /// What had been counted in the state that was left, the outcome that decided included.
    pub counts: Counts,
    /// Openings in a row without closing in between, this one included.
    pub consecutive_openings: u32,
    /// How long it stays open, if it opened.
    pub open_for: Option<Duration>,
    /// How long the state that was left had lasted; up to now, if it was not left.
    pub time_in_state: Duration,
}

impl Transition {
    /// Whether the state is another one now.
    pub fn is_change(&self) -> bool {
        self.from != self.to
    }
}

impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {} ({})", self.from, self.to, self.reason)?;
        if let Some(open_for) = self.open_for {
            write!(f, " for {open_for:?}")?;
        }
        Ok(())
    }
}

/// The transitions that one step caused, in order: mostly none, at most two.
///
/// Two when a call finds a half-open period whose lease has ended and whose following open time is over as
/// well.
#[derive(Debug, Default, PartialEq)]
#[must_use = "listeners want to hear of transitions"]
pub struct Changes(Option<Box<(Transition, Option<Transition>)>>);

impl Changes {
    pub(super) fn push(&mut self, transition: Transition) {
        match &mut self.0 {
            None => self.0 = Some(Box::new((transition, None))),
            Some(pair) => pair.1 = Some(transition),
        }
    }

    /// Whether nothing changed.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl IntoIterator for Changes {
    type Item = Transition;
    type IntoIter = std::iter::Chain<std::option::IntoIter<Transition>, std::option::IntoIter<Transition>>;

    fn into_iter(self) -> Self::IntoIter {
        let (first, second) = match self.0 {
            None => (None, None),
            Some(pair) => (Some(pair.0), pair.1),
        };
        first.into_iter().chain(second)
    }
}

/// What a circuit has counted: of its window while closed or observing, of its probes while half-open, of
/// last-resort calls while open, nothing while forced open or disabled.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Outcomes that count: successes, failures, and dropped calls that were slow.
    pub total: u64,
    /// Failures among them, each as one.
    pub failed: u64,
    /// Failures among them, each by its weight.
    pub failed_weight: f64,
    /// Soft failures among them: those of less than full weight, each as one.
    pub soft: u64,
    /// Slow calls among them.
    pub slow: u64,
    /// Calls that were slow and failed.
    pub slow_failed: u64,
    /// Weighted failures by total, 0 to 1; none below the minimum of calls.
    pub failure_rate: Option<f64>,
    /// Soft failures by total, 0 to 1, each as one; none below the minimum of calls.
    pub soft_failure_rate: Option<f64>,
    /// Slow calls by total, 0 to 1; none below the minimum of calls.
    pub slow_rate: Option<f64>,
    /// Calls refused since the state was entered.
    pub refused: u64,
}

/// A view of one circuit at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Its state.
    pub state: State,
    /// Its mode.
    pub mode: Mode,
    /// What it has counted.
    pub counts: Counts,
    /// Openings in a row without closing in between; 0 while closed.
    pub consecutive_openings: u32,
    /// Until it admits a probe, while open; until the lease ends, while half-open.
    pub time_left: Option<Duration>,
    /// Probes that were admitted and not given back, while half-open.
    pub probes: u32,
    /// Calls refused since the circuit was made.
    pub refused_in_all: u64,
    /// How long the state has lasted.
    pub time_in_state: Duration,
    /// Why it was entered; none if it has been so since the circuit was made.
    pub reason: Option<Reason>,
}
