//! What the terminal shows while the day passes: a few lines redrawn in place, or, where nobody watches, a line for each
//! phase.

use crate::agents::Recorder;
use crate::client::{CircuitState, Client};
use crate::clock::{Day, minutes};
use crate::script::{DAY, Script};
use std::convert::Infallible;
use std::io::{IsTerminal, Write as _};
use std::time::Duration;

const REDRAW: Duration = Duration::from_millis(150);
const BAR: usize = 36;
/// Back to the start of the three lines, and away with them.
const UP: &str = "\x1b[3A\r\x1b[J";

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
        let mut shown = "";
        loop {
            let now = day.now();
            let phase = script.phase(now).name;
            let begins = shown.is_empty();
            match self {
                Self::Live => {
                    let up = if begins { "" } else { UP };
                    print(&format!("{up}{}", live(run, now, phase, recorder.counts(), &client.circuits())));
                }
                Self::Lines if shown != phase => {
                    print(&line(run, now, phase, recorder.counts(), &client.circuits()));
                }
                Self::Lines | Self::Silent => {}
            }
            shown = phase;
            tokio::time::sleep(REDRAW).await;
        }
    }

    /// The run is over: its last state stays on the screen.
    pub(crate) fn finish<C: Client>(&self, run: &str, recorder: &Recorder, client: &C) {
        match self {
            Self::Live => {
                print(&format!("{UP}{}", live(run, DAY, "over", recorder.counts(), &client.circuits())));
            }
            Self::Lines => print(&line(run, DAY, "over", recorder.counts(), &client.circuits())),
            Self::Silent => {}
        }
    }
}

/// A display that cannot be written to is no reason to stop the ride.
fn print(text: &str) {
    let _written = std::io::stderr().lock().write_all(text.as_bytes());
}

type Circuits = [(&'static str, CircuitState)];

fn line(run: &str, now: Duration, phase: &str, counts: [usize; 3], circuits: &Circuits) -> String {
    let [right, wrong, failed] = counts;
    let mut line = format!(
        "{run:<6}{} of {}  {phase:<13}  right {right}  wrong {wrong}  failed {failed}",
        minutes(now.min(DAY)),
        minutes(DAY)
    );
    if !circuits.is_empty() {
        line.push_str("  ");
        line.push_str(&states(circuits));
    }
    line.push('\n');
    line
}

/// Three lines that fit into 80 columns: a line that wraps cannot be drawn over.
fn live(run: &str, now: Duration, phase: &str, counts: [usize; 3], circuits: &Circuits) -> String {
    let done = (now.as_secs_f64() / DAY.as_secs_f64()).min(1.0);
    let filled = (done * BAR as f64).round() as usize;
    let [right, wrong, failed] = [("right", "32"), ("wrong", "31;1"), ("failed", "33")];
    let coloured = |(what, code), count| match count {
        0 => format!("{what} 0"),
        count => format!("\x1b[{code}m{what} {count}\x1b[0m"),
    };
    format!(
        "{run:<6}{}{} {} of {}  {phase}\n      {}  {}  {}\n      {}\n",
        "█".repeat(filled),
        "░".repeat(BAR - filled),
        minutes(now.min(DAY)),
        minutes(DAY),
        coloured(right, counts[0]),
        coloured(wrong, counts[1]),
        coloured(failed, counts[2]),
        states(circuits)
    )
}

fn states(circuits: &Circuits) -> String {
    let sign = |state| match state {
        CircuitState::Closed => "●",
        CircuitState::HalfOpen => "◐",
        CircuitState::Open => "○",
    };
    let states: Vec<_> = circuits
        .iter()
        .map(|(target, state)| format!("{target} {} {}", sign(*state), state.name()))
        .collect();
    states.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CIRCUITS: [(&str, CircuitState); 3] =
        [("alder", CircuitState::Open), ("birch", CircuitState::HalfOpen), ("cedar", CircuitState::HalfOpen)];

    #[test]
    fn a_line_says_where_the_day_is_and_how_it_goes() {
        assert_eq!(
            line("stack", Duration::from_secs(521), "wrong answers", [12, 0, 3], &CIRCUITS[..2]),
            "stack 08:41 of 15:00  wrong answers  right 12  wrong 0  failed 3  alder ○ open, birch ◐ half-open\n"
        );
        let bare = line("bare", Duration::from_secs(9000), "recovery", [12, 0, 3], &[]);
        assert_eq!(bare, "bare  15:00 of 15:00  recovery       right 12  wrong 0  failed 3\n");
    }

    #[test]
    fn the_live_lines_fit_any_terminal() {
        for seconds in [0, 450, 900, 9000] {
            let now = Duration::from_secs(seconds);
            let drawn = live("stack", now, "wrong answers", [99_999, 9_999, 99_999], &CIRCUITS);
            assert_eq!(drawn.lines().count(), 3);
            let plain = drawn.replace("\x1b[32m", "").replace("\x1b[31;1m", "");
            let plain = plain.replace("\x1b[33m", "").replace("\x1b[0m", "");
            assert!(plain.lines().all(|line| line.chars().count() < 80), "{plain}");
        }
    }
}
