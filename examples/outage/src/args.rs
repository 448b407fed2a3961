//! The command line: four options, checked here, so that the rest of the program sees only sound values.

use std::path::PathBuf;

pub(crate) const HELP: &str = "\
One bad day of three model providers on loopback, lived through twice: bare, then through the stack.

Usage: cargo run --release -p outage -- [OPTIONS]

Options:
  --seconds N     length of the whole ride, both runs together (5 to 3600; default 60)
  --seed N        which bad day: the order and length of its phases, and who suffers (default 1)
  --report PATH   where to write the HTML report (default ./outage-report.html)
  --json          print one JSON object, last and alone on stdout; the table goes to stderr
  --help          print this

Exit code: 0; 1 if a wrong answer got through the stack or an error had no class; 2 for a bad option
or when the ride could not be run.
";

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Args {
    pub(crate) seconds: f64,
    pub(crate) seed: u64,
    pub(crate) report: PathBuf,
    pub(crate) json: bool,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Command {
    Ride(Args),
    Help,
}

/// Reads the arguments after the program's name; `Err` is a sentence for the user.
pub(crate) fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Command, String> {
    let mut args = Args { seconds: 60.0, seed: 1, report: PathBuf::from("outage-report.html"), json: false };
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        // Both `--seed 7` and `--seed=7` are customary.
        let (name, inline) = match argument.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (argument, None),
        };
        let mut value =
            || inline.clone().or_else(|| arguments.next()).ok_or_else(|| format!("`{name}` needs a value"));
        match name.as_str() {
            "--seconds" => args.seconds = seconds(&value()?)?,
            "--seed" => args.seed = seed(&value()?)?,
            "--report" => args.report = PathBuf::from(value()?),
            "--json" | "--help" | "-h" if inline.is_some() => {
                return Err(format!("`{name}` takes no value"));
            }
            "--json" => args.json = true,
            "--help" | "-h" => return Ok(Command::Help),
            _ => return Err(format!("there is no option `{name}`")),
        }
    }
    Ok(Command::Ride(args))
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (5.0..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!("`--seconds` is a number from 5 to 3600, not `{text}`")),
    }
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`--seed` is a whole number from 0 to {}, not `{text}`", u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    fn ride(line: &str) -> Args {
        match parsed(line) {
            Ok(Command::Ride(args)) => args,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn nothing_said_is_a_minute_of_day_one() {
        let args = ride("");
        assert_eq!((args.seconds, args.seed, args.json), (60.0, 1, false));
        assert_eq!(args.report, PathBuf::from("outage-report.html"));
    }

    #[test]
    fn values_come_after_a_space_or_an_equals_sign() {
        let args = ride("--seed=7 --seconds 20 --report=r.html --json");
        assert_eq!((args.seconds, args.seed, args.json), (20.0, 7, true));
        assert_eq!(args.report, PathBuf::from("r.html"));
    }

    #[test]
    fn help_wins() {
        assert_eq!(parsed("--json --help"), Ok(Command::Help));
    }

    #[test]
    fn a_bad_line_says_what_is_wrong() {
        for (line, says) in [
            ("--seconds", "needs a value"),
            ("--seconds soon", "from 5 to 3600"),
            ("--seconds NaN", "from 5 to 3600"),
            ("--seconds 0", "from 5 to 3600"),
            ("--seed -1", "whole number"),
            ("--json=yes", "takes no value"),
            ("--sed 1", "no option `--sed`"),
            ("60", "no option `60`"),
        ] {
            let error = parsed(line).expect_err(line);
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
