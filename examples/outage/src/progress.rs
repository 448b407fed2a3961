//! What the terminal shows while the day passes: a few lines redrawn in place, or, where nobody watches, a line for each
//! phase.

use crate::agents::Recorder;
use crate::client::{CircuitState, Client};
use crate::clock::{Day, minutes};
use crate::script::{DAY, Script};
use std::convert::Infallible;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::time::Duration;

const REDRAW: Duration = Duration::from_millis(150);
const BAR: usize = 40;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Progress {
    /// Redrawn in place, in colour.
    Live,
    /// A line for each phase.
    Lines,
    #[cfg_attr(not(test), expect(dead_code, reason = "tests ride in silence"))]
    Silent,
}

impl Progress {
    pub(crate) fn on_stderr() -> Self {
        if std::io::stderr().is_terminal() { Self::Live } else { Self::Lines }
    }

    /// Shows a run until it is dropped.
    pub(crate) async fn show<C: Client>(
        &self,
        run: &str,
        script: &Script,
        day: Day,
        recorder: &Recorder,
        client: &C,
    ) -> Infallible {
        let mut phase = "";
        let mut drawn = false;
        loop {
            let now = day.now();
            let current = script.phase(now).name;
            match self {
                Self::Live => {
                    let up = if drawn { "\x1b[2A" } else { "" };
                    let [first, second] =
                        lines(run, now, current, recorder.counts(), &client.circuits(), true);
                    print(&format!("{up}\r\x1b[J{first}\n{second}\n"));
                    drawn = true;
                }
                Self::Lines if phase != current => {
                    let [first, second] =
                        lines(run, now, current, recorder.counts(), &client.circuits(), false);
                    print(&format!("{first}   {second}\n"));
                }
                Self::Lines | Self::Silent => {}
            }
            phase = current;
            tokio::time::sleep(REDRAW).await;
        }
    }

    /// The run is over: its last state stays on the screen.
    pub(crate) fn finish<C: Client>(&self, run: &str, recorder: &Recorder, client: &C) {
        let up = match self {
            Self::Live => "\x1b[2A\r\x1b[J",
            Self::Lines => "",
            Self::Silent => return,
        };
        let live = *self == Self::Live;
        let [first, second] = lines(run, DAY, "over", recorder.counts(), &client.circuits(), live);
        let between = if live { "\n" } else { "   " };
        print(&format!("{up}{first}{between}{second}\n"));
    }
}

/// A display that cannot be written to is no reason to stop the ride.
fn print(text: &str) {
    let _written = std::io::stderr().lock().write_all(text.as_bytes());
}

fn lines(
    run: &str,
    now: Duration,
    phase: &str,
    [right, wrong, failed]: [usize; 3],
    circuits: &[(&'static str, CircuitState)],
    live: bool,
) -> [String; 2] {
    let mut first = format!("{run:<6}");
    if live {
        let done = (now.as_secs_f64() / DAY.as_secs_f64()).min(1.0);
        let filled = (done * BAR as f64).round() as usize;
        let _infallible = write!(first, "[{}{}] ", "█".repeat(filled), "·".repeat(BAR - filled));
    }
    let _infallible = write!(first, "{} of {}  {phase:<13}", minutes(now.min(DAY)), minutes(DAY));
    let colour = |code: &str, count: usize, what: &str| {
        if live && count > 0 {
            format!("\x1b[{code}m{what} {count}\x1b[0m")
        } else {
            format!("{what} {count}")
        }
    };
    let mut second = format!(
        "{}  {}  {}",
        colour("32", right, "right"),
        colour("31;1", wrong, "wrong"),
        colour("33", failed, "failed"),
    );
    if live {
        second.insert_str(0, "      ");
    }
    for (index, (target, state)) in circuits.iter().enumerate() {
        let sign = match state {
            CircuitState::Closed => "●",
            CircuitState::HalfOpen => "◐",
            CircuitState::Open => "○",
        };
        second.push_str(if index == 0 { "   circuits: " } else { ", " });
        let _infallible = write!(second, "{target} {sign} {}", state.name());
    }
    [first, second]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_where_the_day_is_and_how_it_goes() {
        let circuits = [("alder", CircuitState::Open), ("birch", CircuitState::Closed)];
        let now = Duration::from_secs(521);
        let [first, second] = lines("stack", now, "wrong answers", [12, 0, 3], &circuits, false);
        assert_eq!(first, "stack 08:41 of 15:00  wrong answers");
        assert_eq!(second, "right 12  wrong 0  failed 3   circuits: alder ○ open, birch ● closed");
    }

    #[test]
    fn the_bar_stays_within_the_day() {
        for seconds in [0, 450, 900, 9000] {
            let [first, _] = lines("bare", Duration::from_secs(seconds), "over", [0; 3], &[], true);
            let bar = first.chars().filter(|sign| ['█', '·'].contains(sign)).count();
            assert_eq!(bar, BAR, "{first}");
        }
    }
}
