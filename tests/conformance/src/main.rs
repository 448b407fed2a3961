//! Replays the language-neutral cases through the crates' public API.
//!
//! `cargo run -q -p conformance -- KIND PATH [--json]` prints a line for each case that fails (id, step,
//! wanted, got), ends with `N passed, N failed, N skipped`, and exits 1 if any failed. With `--json` there is
//! one object a case on the standard output instead, and the last line goes to the standard error.

mod breaker;
mod case;
mod malformed;
mod not_yet;
mod retry;
mod wire;

use std::path::Path;
use std::process::ExitCode;

use serde_json::Value;

use crate::case::{Outcome, Tally};

const USAGE: &str = "usage: conformance KIND PATH [--json]";

/// A kind of cases: how to read them and how to run one.
struct Kind {
    name: &'static str,
    load: fn(&Path) -> Result<Vec<Value>, String>,
    run: fn(&Value) -> Outcome,
}

/// Every kind that can be replayed. A new one is a module and a line.
const KINDS: &[Kind] = &[
    Kind { name: "breaker", load: json_lines, run: breaker::run },
    Kind { name: "retry", load: json_lines, run: retry::run },
    Kind { name: "wire", load: wire::load, run: wire::run },
    Kind { name: "malformed", load: json_lines, run: malformed::run },
];

fn main() -> ExitCode {
    match replay(std::env::args().skip(1).collect()) {
        Ok(tally) if tally.failed == 0 => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

fn replay(mut args: Vec<String>) -> Result<Tally, String> {
    let before = args.len();
    args.retain(|arg| arg != "--json");
    let as_json = args.len() < before;
    let [kind, path] = args.as_slice() else { return Err(USAGE.to_owned()) };
    let kind = KINDS.iter().find(|known| known.name == kind).ok_or_else(|| {
        let known: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
        format!("no kind `{kind}`; known: {}", known.join(", "))
    })?;
    let waiting = not_yet::of(kind.name)?;
    let cases = (kind.load)(Path::new(path)).map_err(|problem| format!("{path}: {problem}"))?;
    if cases.is_empty() {
        return Err(format!("{path}: no cases"));
    }

    let mut tally = Tally::default();
    for (index, value) in cases.iter().enumerate() {
        let id = value
            .get("id")
            .or_else(|| value.get("name"))
            .and_then(Value::as_str)
            .map_or_else(|| format!("#{}", index + 1), str::to_owned);
        let outcome = (kind.run)(value);
        let outcome = match waiting.get(&id) {
            Some(reason) => outcome.waiting(reason),
            None => outcome,
        };
        tally.count(&outcome);
        if as_json {
            println!("{}", outcome.to_json(&id));
        } else {
            outcome.lines(&id).iter().for_each(|line| println!("{line}"));
        }
    }
    if as_json {
        eprintln!("{tally}");
    } else {
        println!("{tally}");
    }
    Ok(tally)
}

/// Reads a file of one JSON value a line.
fn json_lines(path: &Path) -> Result<Vec<Value>, String> {
    let text = std::fs::read_to_string(path).map_err(|problem| problem.to_string())?;
    let mut cases = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        cases.push(serde_json::from_str(line).map_err(|problem| format!("line {}: {problem}", index + 1))?);
    }
    Ok(cases)
}
