//! The day's time. A quarter of an hour of a bad day is lived through in seconds: everything that takes time in it, the
//! providers' latencies and advice, the clients' patience, the stack's windows, is a time *of the day*, and one factor
//! turns it into a real one.

use std::time::Duration;
use tokio::time::Instant;

/// How fast the day passes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pace {
    /// Seconds of the day in one real second.
    pub(crate) factor: f64,
}

impl Pace {
    /// A day of this length lived through in that real time.
    pub(crate) fn fitting(day: Duration, real: Duration) -> Self {
        Self { factor: day.as_secs_f64() / real.as_secs_f64() }
    }

    /// The real time that a time of the day takes.
    pub(crate) fn real(self, of_day: Duration) -> Duration {
        Duration::try_from_secs_f64(of_day.as_secs_f64() / self.factor).unwrap_or(Duration::MAX)
    }

    /// The time of the day that a real time is.
    pub(crate) fn of_day(self, real: Duration) -> Duration {
        real.mul_f64(self.factor)
    }
}

/// A day that has begun.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Day {
    began: Instant,
    pub(crate) pace: Pace,
}

impl Day {
    pub(crate) fn begin(pace: Pace) -> Self {
        Self { began: Instant::now(), pace }
    }

    /// Time of the day now.
    pub(crate) fn now(&self) -> Duration {
        self.time_of(Instant::now())
    }

    pub(crate) fn time_of(&self, instant: Instant) -> Duration {
        self.pace.of_day(instant.saturating_duration_since(self.began))
    }

    pub(crate) async fn sleep(&self, of_day: Duration) {
        tokio::time::sleep(self.pace.real(of_day)).await;
    }

    /// For ever, if the time is beyond all days.
    pub(crate) async fn sleep_until(&self, time: Duration) {
        match self.began.checked_add(self.pace.real(time)) {
            Some(instant) => tokio::time::sleep_until(instant).await,
            None => std::future::pending().await,
        }
    }
}

/// `08:41`, for people.
pub(crate) fn minutes(of_day: Duration) -> String {
    let seconds = of_day.as_secs();
    format!("{:02}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_an_hour_fits_into_half_a_minute() {
        let pace = Pace::fitting(Duration::from_secs(900), Duration::from_secs(30));
        assert_eq!(pace.factor, 30.0);
        assert_eq!(pace.real(Duration::from_secs(30)), Duration::from_secs(1));
        assert_eq!(pace.of_day(Duration::from_secs(1)), Duration::from_secs(30));
    }

    #[tokio::test(start_paused = true)]
    async fn the_day_passes_at_its_pace() {
        let day = Day::begin(Pace { factor: 60.0 });
        day.sleep(Duration::from_secs(120)).await;
        assert_eq!(day.now().as_secs(), 120);
        assert_eq!(minutes(day.now()), "02:00");
    }
}
