//! The settings of a circuit, checked when they are built.

use std::time::Duration;

use super::SettingsBuilder;
use super::half_open::Decision;
use super::open_time::OpenTime;
use super::outcome::Weight;
use super::report::Mode;
use super::rules::Rules;
use super::window::{CountWindow, Sums, TimeWindow, Window};

/// Which past calls are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Over {
    /// The last so many calls, 1 to 1 000 000; two bytes each.
    Calls(u32),
    /// The calls of the last span, 1 ms to 24 h, in 1 to 3 600 buckets; 48 bytes each.
    Time {
        /// How far back.
        span: Duration,
        /// In how many steps it slides.
        buckets: u32,
    },
    /// All calls since the state was entered.
    SinceEntered,
}

impl Over {
    /// The last 60 s in 10 buckets, the default.
    pub const MINUTE: Self = Self::Time { span: Duration::from_secs(60), buckets: 10 };
}

/// Which outcomes may open a closed circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TripOn {
    /// Any outcome that counts, also the success by which the minimum of calls is reached. The default.
    #[default]
    AnyOutcome,
    /// Anything but a success: not even a slow one.
    FailureOnly,
}

/// How a half-open period is decided. Each way says how many probes are let through in all, 1 to 1 000 000.
///
/// ```
/// use breaker_layer::{BreakerLayer, engine::Probes};
///
/// // 5 % of the traffic, until 20 calls have shown that at least 90 % are good
/// let canary = Probes::Canary { one_in: 20, calls: 20, good: 0.9 };
/// let layer = BreakerLayer::builder().probes(canary).build()?;
/// # Ok::<(), failsoft_core::ConfigError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Probes {
    /// Closes if at least this share of the probes is good (0 to 1). The default: 85 % of 3. Soft failures
    /// weigh less, so one of three leaves 80 % good. It is decided as soon as it is certain: of 3, the first
    /// failure opens again, and the others are not made. Slow probes open from the share that opens a closed
    /// circuit, if there is a slow rule.
    Ratio {
        /// How many.
        probes: u32,
        /// The share.
        good: f64,
    },
    /// Opens at so many failures, each a whole one, and closes when they can no longer be reached.
    Failures {
        /// How many.
        probes: u32,
        /// The failures that open.
        to_open: u32,
    },
    /// Closes at so many good probes, and opens when they can no longer be reached.
    Successes {
        /// How many.
        probes: u32,
        /// The good probes that close.
        to_close: u32,
    },
    /// A canary: one in so many calls is let through, and the others are refused, until enough have ended to
    /// decide. The first call is let through, then each `one_in`-th after it, so 20 is 5 %. Closes if at least
    /// a share of them is good, as by [`Ratio`](Self::Ratio).
    ///
    /// Takes longer than a few probes in a row, and shows more: how the target does under a part of the load.
    /// Its lease runs only while one of its calls does, and each of their results starts it again.
    Canary {
        /// One in so many, 1 to 1 000 000.
        one_in: u32,
        /// How many decide, and no more run at once.
        calls: u32,
        /// The share that must be good, 0 to 1.
        good: f64,
    },
}

/// The settings of a circuit. Make them with [`Settings::builder`].
///
/// ```
/// use breaker_layer::engine::Settings;
///
/// let settings = Settings::builder().failure_rate(0.5).min_calls(20).build()?;
/// assert!(Settings::builder().failure_rate(f64::NAN).build().is_err());
/// # Ok::<(), failsoft_core::ConfigError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Settings {
    pub(super) over: Over,
    pub(super) rules: Rules,
    pub(super) trip_on: TripOn,
    pub(super) soft_weight: Weight,
    pub(super) slow_after: Option<Duration>,
    pub(super) open: OpenTime,
    pub(super) at_once: Duration,
    pub(super) hold_from: Duration,
    pub(super) max_advice: Duration,
    pub(super) rate_limited_in_a_row: u32,
    pub(super) decision: Decision,
    pub(super) lease: Duration,
    pub(super) last_resort: u32,
    pub(super) mode: Mode,
    pub(super) seed: Option<u64>,
}

impl Settings {
    /// Starts from the defaults.
    pub fn builder() -> SettingsBuilder {
        SettingsBuilder::new()
    }

    /// How much a soft failure weighs.
    pub fn soft_weight(&self) -> Weight {
        self.soft_weight
    }

    /// The time above which a call is slow, if there is a slow rule.
    pub fn slow_after(&self) -> Option<Duration> {
        self.slow_after
    }

    /// Whether half-open takes a share of the calls.
    pub(crate) fn is_canary(&self) -> bool {
        self.decision.is_canary()
    }

    pub(super) fn window(&self) -> Window {
        match self.over {
            Over::Calls(size) => Window::Count(CountWindow::new(size as usize)),
            Over::Time { span, buckets } => {
                let width = span.as_nanos().div_ceil(u128::from(buckets.max(1)));
                Window::Time(TimeWindow::new(u64::try_from(width).unwrap_or(u64::MAX), buckets as usize))
            }
            Over::SinceEntered => Window::SinceEntered(Sums::default()),
        }
    }
}
