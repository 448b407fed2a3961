//! One bad day of three model providers, lived through twice: with a bare HTTP client, and through a stack of Failsoft's
//! layers. Everything is real but the day: axum servers on loopback whose sockets fail by a script, `reqwest` clients,
//! and agents whose every answer is checked. See `--help`, and the README beside this package.

mod accounts;
mod agents;
mod args;
mod books;
mod chart;
mod client;
mod clock;
mod events;
mod job;
mod looping;
mod model;
mod oracle;
mod progress;
mod provider;
mod reading;
mod report;
mod ride;
mod script;
mod socket;
mod stack;
mod stats;
mod table;

use args::{Args, Command};
use progress::Progress;
use ride::{AGENTS, BoxError, Plan, Ride};
use serde_json::json;
use std::io::Write as _;
use std::process::ExitCode;

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    let args = match args::parse(std::env::args().skip(1)) {
        Ok(Command::Ride(args)) => args,
        Ok(Command::Help) => {
            print(args::HELP);
            return ExitCode::SUCCESS;
        }
        Err(wrong) => {
            complain(&format!("outage: {wrong}; see --help\n"));
            return ExitCode::from(2);
        }
    };
    match ride(&args).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            complain(&format!("outage: {}\n", client::chain(&*error)));
            ExitCode::from(2)
        }
    }
}

/// Whether the stack held: no wrong answer got through, every error had a class, and the budget's books are right.
async fn ride(args: &Args) -> Result<bool, BoxError> {
    let plan = Plan { seed: args.seed, seconds: args.seconds, agents: AGENTS };
    // A minute is long to wait for "no such directory".
    let unwritable = |error| format!("{} cannot be written: {error}", args.report.display());
    std::fs::OpenOptions::new().append(true).create(true).open(&args.report).map_err(unwritable)?;
    let ride = Ride::run(plan, &Progress::on_stderr()).await?;
    let (bare, stack) = (ride.bare.figures(), ride.stack.figures());
    let table = table::table(&ride);
    std::fs::write(&args.report, report::report(&ride)).map_err(unwritable)?;
    let table = format!("{table}\nreport: {}\n", args.report.display());
    if args.json {
        complain(&table);
        print(&format!("{}\n", json!({"bare": bare.json(), "stack": stack.json()})));
    } else {
        print(&table);
    }
    Ok(stack.wrong == 0 && stack.unclassed == 0 && stack.accounts.hold())
}

/// A reader that has gone away is no reason to fail.
fn print(text: &str) {
    let _written = std::io::stdout().lock().write_all(text.as_bytes());
}

fn complain(text: &str) {
    let _written = std::io::stderr().lock().write_all(text.as_bytes());
}
