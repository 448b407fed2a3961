//! The whole ride: the same day twice, first with the bare client, then through the stack.

use crate::accounts::Accounts;
use crate::agents::{Office, Recorder};
use crate::client::{Bare, Client, PATIENCE, http_client};
use crate::clock::{Day, Pace};
use crate::progress::Progress;
use crate::provider::Provider;
use crate::script::{DAY, PROVIDERS, Script};
use crate::stack::Stack;
use crate::stats::Run;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// Enough for dozens of calls at once, and few enough for two cores.
pub(crate) const AGENTS: usize = 32;

#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) seconds: f64,
    pub(crate) agents: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Ride {
    pub(crate) plan: Plan,
    pub(crate) pace: Pace,
    pub(crate) script: Arc<Script>,
    pub(crate) bare: Run,
    pub(crate) stack: Run,
}

impl Ride {
    pub(crate) async fn run(plan: Plan, progress: &Progress) -> Result<Self, BoxError> {
        let pace = Pace::fitting(DAY, Duration::from_secs_f64(plan.seconds / 2.0));
        let script = Arc::new(Script::new(plan.seed));
        let patience = pace.real(PATIENCE);
        let bare =
            live_through("bare", &plan, pace, &script, progress, |_, _| Ok(Bare(http_client(patience)?)));
        let bare = bare.await?;
        let stack = live_through("stack", &plan, pace, &script, progress, Stack::new).await?;
        Ok(Self { plan, pace, script, bare, stack })
    }
}

/// One run through the day, with providers of its own.
async fn live_through<C: Client>(
    name: &'static str,
    plan: &Plan,
    pace: Pace,
    script: &Arc<Script>,
    progress: &Progress,
    client: impl FnOnce(&[Provider], Day) -> Result<C, BoxError>,
) -> Result<Run, BoxError> {
    let day = Day::begin(pace);
    let providers = (0..PROVIDERS.len())
        .map(|index| Provider::start(index, script, day))
        .collect::<Result<Vec<_>, _>>()?;
    let client = client(&providers, day)?;
    let recorder = Arc::<Recorder>::default();
    let office = Office {
        client: client.clone(),
        url: providers[0].url.clone(),
        seed: plan.seed,
        script: Arc::clone(script),
        day,
        recorder: Arc::clone(&recorder),
    };
    let peak = tokio::select! {
        peak = office.work(plan.agents) => peak,
        never = progress.show(name, script, day, &recorder, &client) => match never {},
    };
    progress.finish(name, &recorder, &client);
    let mut bill = Vec::new();
    for provider in &providers {
        bill.extend(provider.bill().await);
    }
    let unnoticed = providers.iter().map(Provider::open).sum();
    let records = recorder.take();
    let account = |session: &str| client.account(session);
    Ok(Run {
        accounts: Accounts::draw_up(&records, &bill, account, peak, unnoticed),
        records,
        requests: providers.iter().map(Provider::requests).sum(),
        tokens: bill.iter().map(|entry| entry.tokens).sum(),
        transitions: client.transitions(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A day in six seconds, twice: too short for fair latencies on a busy machine, long enough for everything to happen.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_stack_holds_where_the_bare_client_does_not() {
        let plan = Plan { seed: 1, seconds: 12.0, agents: 8 };
        let ride = Ride::run(plan, &Progress::Silent).await.unwrap();
        let (bare, stack) = (ride.bare.figures(), ride.stack.figures());

        assert!(bare.wrong > 0 && bare.failed * 5 > bare.calls, "{bare:?}");
        assert_eq!((stack.wrong, stack.unclassed), (0, 0), "{stack:?}");
        // On a busy machine some time out: at this pace 20 s of the day are 133 ms.
        assert!(stack.answered * 100 > stack.answerable * 95, "{stack:?}");
        assert!(stack.answered * bare.answerable > bare.answered * stack.answerable, "{bare:?} {stack:?}");
        assert!(stack.attempts_per_call() < 1.5, "{stack:?}");

        // Streams: people see the first words of both; what breaks off later is told to them as such, and counted.
        assert!(bare.first_p50 > Duration::ZERO && stack.first_p50 > Duration::ZERO, "{stack:?}");
        assert!(stack.cut_after_commit <= stack.failed && stack.hung_up > 0, "{stack:?}");
        assert_eq!((stack.hung_up, stack.accounts.unnoticed), (stack.accounts.hung_up, 0), "{stack:?}");

        // Money: the agent that goes in circles is stopped at its limit, and both sets of books agree.
        let (accounts, peak) = (stack.accounts, stack.accounts.peak.unwrap());
        assert!(accounts.hold() && accounts.denied > 0, "{accounts:?}");
        assert!(peak.used <= peak.limit && peak.used * 10 > peak.limit * 6, "{accounts:?}");
        assert!(accounts.looping.billed < bare.accounts.looping.billed, "{accounts:?}");
        assert!(accounts.jobs.complete * 2 > accounts.jobs.sessions, "{accounts:?}");
        assert_eq!((bare.accounts.peak, bare.accounts.denied), (None, 0));

        assert!(ride.stack.transitions.iter().any(|transition| transition.circuit == PROVIDERS[0]));
    }
}
