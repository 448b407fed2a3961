//! [`Window`]: over which time a budget's limit holds.
//!
//! ```
//! use std::time::Duration;
//! use budget_layer::Window;
//!
//! let tokens_per_minute = Window::sliding(Duration::from_secs(60));
//! # let _ = tokens_per_minute;
//! ```

#[cfg(feature = "calendar")]
mod calendar;
#[cfg(all(test, feature = "calendar", not(failsoft_loom)))]
mod driven;
#[cfg(feature = "calendar")]
mod periods;
mod ring;

use std::{fmt, time::Duration};

#[cfg(feature = "calendar")]
use failsoft_core::ConfigError;
use tokio::time::Instant;

#[cfg(feature = "calendar")]
use self::calendar::{Calendar, Every};
pub(crate) use self::ring::Ring;

/// Over which time the limit of a budget holds.
///
/// | window | what a call counts against | renewed |
/// |---|---|---|
/// | lifetime | all that was ever spent | never |
/// | sliding | what was spent in any stretch of that length, from the beginning of each call on | bit by bit, a thirtieth at a time |
/// | calendar | the day or month in which the call began | at once, when the next one begins |
///
/// A calendar goes by the clock of the machine. One that is set ahead renews a budget; set back, it gives nothing back, and the day that it
/// comes back to ends at its own midnight, whatever the clock had shown.
#[derive(Clone)]
pub struct Window(pub(crate) Kind);

#[derive(Clone)]
pub(crate) enum Kind {
    Lifetime,
    Sliding(Duration),
    #[cfg(feature = "calendar")]
    Calendar(Calendar),
}

impl Window {
    /// What is spent is spent for good: the default.
    #[must_use]
    pub const fn lifetime() -> Self {
        Self(Kind::Lifetime)
    }

    /// Any stretch of time of this length, such as a minute for a provider's TPM and RPM. At least 1 ms; checked by `build()`. Never
    /// more than the limit lies in any such stretch; for that, what has left it counts for up to a thirtieth of it longer.
    #[must_use]
    pub const fn sliding(length: Duration) -> Self {
        Self(Kind::Sliding(length))
    }

    /// A day of the calendar, in a time zone by its name, such as `Europe/Berlin` or `UTC`. A day has 23 or 25 hours where the clocks
    /// change.
    ///
    /// # Errors
    ///
    /// There is no such time zone.
    #[cfg(feature = "calendar")]
    pub fn day(zone: &str) -> Result<Self, ConfigError> {
        Calendar::new(Every::Day, zone).map(|calendar| Self(Kind::Calendar(calendar)))
    }

    /// A month of the calendar, in a time zone by its name.
    ///
    /// # Errors
    ///
    /// There is no such time zone.
    #[cfg(feature = "calendar")]
    pub fn month(zone: &str) -> Result<Self, ConfigError> {
        Calendar::new(Every::Month, zone).map(|calendar| Self(Kind::Calendar(calendar)))
    }

    /// Whether its length makes sense.
    pub(crate) fn is_fit(&self) -> bool {
        const LONGEST: Duration = Duration::from_secs(10 * 366 * 86_400);
        match self.0 {
            Kind::Sliding(length) => (Duration::from_millis(1)..=LONGEST).contains(&length),
            _ => true,
        }
    }

    /// Of a sliding one.
    pub(crate) const fn length(&self) -> Option<Duration> {
        match self.0 {
            Kind::Sliding(length) => Some(length),
            _ => None,
        }
    }

    pub(crate) const fn is_lifetime(&self) -> bool {
        matches!(self.0, Kind::Lifetime)
    }

    /// Which clocks it needs.
    pub(crate) const fn clocks(&self) -> Clocks {
        match self.0 {
            Kind::Lifetime => Clocks::NONE,
            Kind::Sliding(_) => Clocks { steady: true, wall: false },
            #[cfg(feature = "calendar")]
            Kind::Calendar(_) => Clocks { steady: false, wall: true },
        }
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Lifetime => f.write_str("Lifetime"),
            Kind::Sliding(length) => f.debug_tuple("Sliding").field(length).finish(),
            #[cfg(feature = "calendar")]
            Kind::Calendar(calendar) => calendar.fmt(f),
        }
    }
}

/// Which clocks are read for a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clocks {
    pub(crate) steady: bool,
    pub(crate) wall: bool,
}

impl Clocks {
    pub(crate) const NONE: Self = Self { steady: false, wall: false };

    pub(crate) const fn and(self, other: Self) -> Self {
        Self { steady: self.steady || other.steady, wall: self.wall || other.wall }
    }

    /// Reads those that are needed: a lifetime needs none.
    #[inline]
    pub(crate) fn now(self) -> Now {
        Now {
            at: if self.steady { Some(Instant::now()) } else { None },
            #[cfg(feature = "calendar")]
            wall: if self.wall { Some(wall()) } else { None },
        }
    }
}

/// Milliseconds since 1970.
#[cfg(feature = "calendar")]
fn wall() -> i64 {
    #[cfg(all(test, not(failsoft_loom)))]
    if let Some(wall) = driven::wall() {
        return wall;
    }
    jiff::Timestamp::now().as_millisecond()
}

/// The time, as far as it was read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Now {
    pub(crate) at: Option<Instant>,
    /// Milliseconds since 1970.
    #[cfg(feature = "calendar")]
    pub(crate) wall: Option<i64>,
}

#[cfg(all(test, not(failsoft_loom)))]
impl Now {
    /// By the clock alone.
    pub(crate) const fn at(at: Instant) -> Self {
        Self {
            at: Some(at),
            #[cfg(feature = "calendar")]
            wall: None,
        }
    }
}
