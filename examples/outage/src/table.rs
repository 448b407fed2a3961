//! The table at the end, for a terminal.

use crate::accounts::Compared;
use crate::clock::{Pace, minutes};
use crate::ride::Ride;
use crate::script::DAY;
use crate::stats::Figures;
use std::fmt::Write as _;
use std::time::Duration;

/// Rows of the table, also in the report: name, bare, stack.
pub(crate) fn rows(bare: &Figures, stack: &Figures, pace: Pace) -> Vec<[String; 3]> {
    let row = |name: &str, value: &dyn Fn(&Figures) -> String| [name.to_owned(), value(bare), value(stack)];
    let share = |count: usize, of: usize| {
        if of == 0 { String::new() } else { format!("{:.1} %", 100.0 * count as f64 / of as f64) }
    };
    let times = |p50: Duration, p99: Duration| {
        let milliseconds = |time: Duration| format!("{:.0}", time.as_secs_f64() * 1000.0);
        let of_day = |time: Duration| format!("{:.1}", pace.of_day(time).as_secs_f64());
        format!(
            "{} / {} ms = {} / {} s of the day",
            milliseconds(p50),
            milliseconds(p99),
            of_day(p50),
            of_day(p99)
        )
    };
    vec![
        row("calls", &|f| f.calls.to_string()),
        row("answerable, by the script", &|f| f.answerable.to_string()),
        row("answered rightly", &|f| format!("{} = {}", f.answered, share(f.answered, f.calls))),
        row("wrong answers that were handed on", &|f| format!("{} = {}", f.wrong, share(f.wrong, f.calls))),
        row("failed, with an error", &|f| format!("{} = {}", f.failed, share(f.failed, f.calls))),
        row("streams cut after commit, shown as such (of the failed)", &|f| f.cut_after_commit.to_string()),
        row("readers that hung up, and seen by a provider", &|f| {
            format!("{}, {}", f.hung_up, f.accounts.hung_up_seen)
        }),
        row("p50 / p99 of a call", &|f| times(f.p50, f.p99)),
        row("p50 / p99 of a right answer", &|f| times(f.right_p50, f.right_p99)),
        row("p50 / p99 of the first word of a stream", &|f| times(f.first_p50, f.first_p99)),
        row("attempts per call", &|f| format!("{:.2}", f.attempts_per_call())),
        row("attempts per right answer", &|f| format!("{:.2}", f.attempts_per_answer())),
        row("tokens per right answer", &|f| format!("{:.0}", f.tokens_per_answer())),
        row("jobs: tokens by the ledger / by the bills", &|f| spend(f, &f.accounts.jobs)),
        row("looping agent: by the ledger / by the bills", &|f| spend(f, &f.accounts.looping)),
        row("looping agent: limit / most ever used up", &|f| match f.accounts.peak {
            Some(peak) => format!("{} / {}", peak.limit, peak.used),
            None => "none".into(),
        }),
        row("looping agent: calls that its budget denied", &|f| f.accounts.denied.to_string()),
        row("sessions complete, and agreeing to the token", &|f| match f.accounts.peak {
            Some(_) => {
                let [jobs, looping] = [&f.accounts.jobs, &f.accounts.looping];
                let complete = jobs.complete + looping.complete;
                let agreeing = complete - jobs.disagreeing - looping.disagreeing;
                format!("{complete} of {}, {agreeing}", jobs.sessions + looping.sessions)
            }
            None => "no ledger".into(),
        }),
        row("sessions with cut calls, below the bill", &|f| match f.accounts.peak {
            Some(_) => {
                let [jobs, looping] = [&f.accounts.jobs, &f.accounts.looping];
                let cut = jobs.sessions + looping.sessions - jobs.complete - looping.complete;
                format!("{cut}, {}", jobs.below + looping.below)
            }
            None => "no ledger".into(),
        }),
    ]
}

fn spend(figures: &Figures, class: &Compared) -> String {
    match figures.accounts.peak {
        Some(_) => format!("{} / {}", class.spent, class.billed),
        None => format!("– / {}", class.billed),
    }
}

/// What the ride was, in one sentence.
pub(crate) fn title(ride: &Ride) -> String {
    format!(
        "Bad day {}: {} minutes lived through twice in {:.0} s, by {} agents. One real second is {:.0} s of the day.",
        ride.plan.seed,
        DAY.as_secs() / 60,
        ride.plan.seconds,
        ride.plan.agents,
        ride.pace.factor
    )
}

pub(crate) fn table(ride: &Ride) -> String {
    let (bare, stack) = (ride.bare.figures(), ride.stack.figures());
    let rows = rows(&bare, &stack, ride.pace);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (names, values) = (width(0), width(1).max(width(2)));
    let mut text = format!("\n{}\n\n{:names$}  {:<values$}  {}\n", title(ride), "", "bare", "stack");
    for [name, bare, stack] in &rows {
        let _infallible = writeln!(text, "{name:names$}  {bare:<values$}  {stack}");
    }
    for (run, figures) in [("bare", &bare), ("stack", &stack)] {
        list(&mut text, &format!("{run}: wrong answers that got through"), &figures.wrong_kinds);
        list(&mut text, &format!("{run}: failed calls"), &figures.failed_classes);
    }
    if !stack.samples.is_empty() {
        text.push_str("\nstack: one error of each class\n");
        for (class, message) in &stack.samples {
            let _infallible = writeln!(text, "  {class}: {message}");
        }
    }
    if !ride.stack.transitions.is_empty() {
        text.push_str("\ncircuit transitions\n");
        for transition in &ride.stack.transitions {
            let _infallible = writeln!(
                text,
                "  {}  {:<6} {:>9} → {:<9}  {:<13}  {}",
                minutes(transition.at),
                transition.circuit,
                transition.from.name(),
                transition.to.name(),
                ride.script.phase(transition.at).name,
                transition.why
            );
        }
    }
    text
}

fn list<K: std::fmt::Display>(text: &mut String, title: &str, counts: &std::collections::BTreeMap<K, usize>) {
    if counts.is_empty() {
        return;
    }
    let counts: Vec<_> = counts.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    let _infallible = write!(text, "\n{title}: {}\n", counts.join(", "));
}
