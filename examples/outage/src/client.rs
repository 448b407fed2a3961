//! What both runs call the providers with: a client takes a request and gives what it holds to be a good answer, or says
//! why there is none. This file has the bare one; the other is in `stack.rs`.

use crate::job::{Answer, Reader, Step};
use crate::reading::{Broken, Reading, read};
use reqwest::{Request, Response};
use std::error::Error;
use std::time::Duration;
use tokio::time::Instant;

/// How long anybody here waits for one answer, in the day's time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) trait Client: Clone + Send + Sync + 'static {
    /// Whoever reads a stream may have enough after so many bytes of text, and hang up.
    fn call(
        &self,
        step: Step,
        request: Request,
        leave_after: Option<usize>,
    ) -> impl Future<Output = Result<Reading, Failure>> + Send;

    /// Each circuit's target and state, for the display.
    fn circuits(&self) -> Vec<(&'static str, CircuitState)> {
        Vec::new()
    }

    /// What the circuits did, in order.
    fn transitions(&self) -> Vec<Transition> {
        Vec::new()
    }

    /// What a session spent, if anybody keeps a budget.
    fn account(&self, _session: &str) -> Option<Account> {
        None
    }
}

/// One session's line in a ledger, in tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) limit: u64,
    pub(crate) spent: u64,
    pub(crate) reserved: u64,
    /// Calls that did not tell all that they used: their estimate stands in.
    pub(crate) estimated: u64,
}

/// Why a call gave no answer, as the caller was told.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failure {
    pub(crate) class: String,
    /// Whether somebody knew what had happened. Through the stack, somebody always must.
    pub(crate) classed: bool,
    pub(crate) message: String,
    /// A part of the answer had been handed to whoever reads it; they were told that it is not all.
    pub(crate) shown: bool,
    /// A budget did not let the call through.
    pub(crate) denied: bool,
}

impl Failure {
    pub(crate) fn new(class: impl Into<String>, message: impl Into<String>) -> Self {
        Self { class: class.into(), classed: true, message: message.into(), shown: false, denied: false }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CircuitState {
    Closed,
    HalfOpen,
    Open,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Transition {
    /// Time of the day.
    pub(crate) at: Duration,
    pub(crate) circuit: &'static str,
    pub(crate) from: CircuitState,
    pub(crate) to: CircuitState,
    pub(crate) why: String,
}

impl CircuitState {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half-open",
            Self::Open => "open",
        }
    }
}

/// The client that both runs have: one pool, one limit on the whole exchange.
pub(crate) fn http_client(patience: Duration) -> reqwest::Result<reqwest::Client> {
    // Loopback needs no proxy, whatever the environment says.
    reqwest::Client::builder().timeout(patience).no_proxy().build()
}

/// The client as most programs have it: a timeout, a look at the status, and trust.
#[derive(Debug, Clone)]
pub(crate) struct Bare(pub(crate) reqwest::Client);

impl Client for Bare {
    async fn call(
        &self,
        step: Step,
        request: Request,
        leave_after: Option<usize>,
    ) -> Result<Reading, Failure> {
        let begun = Instant::now();
        let failed = |error| Failure::new(kind(&error), chain(&error));
        let response = self.0.execute(request).await.and_then(Response::error_for_status).map_err(failed)?;
        if step.reader() == Reader::Program {
            return whole(&response.bytes().await.map_err(failed)?);
        }
        let read = read(response, begun, leave_after).await;
        read.map_err(|broken| Failure { shown: is_shown(step, &broken), ..failed(broken.error) })
    }
}

/// Whether somebody had begun to read what broke off.
pub(crate) fn is_shown(step: Step, broken: &Broken) -> bool {
    step.reader() == Reader::Person && broken.reading.first_content.is_some()
}

/// Past every check that a client has, an answer that cannot even be read is an error nobody foresaw.
pub(crate) fn whole(body: &[u8]) -> Result<Reading, Failure> {
    match Answer::read(body) {
        Ok(answer) => Ok(Reading { answer, ..Reading::default() }),
        Err(message) => Err(Failure { classed: false, ..Failure::new("unreadable answer", message) }),
    }
}

fn kind(error: &reqwest::Error) -> String {
    if let Some(status) = error.status() {
        format!("status {}", status.as_u16())
    } else if error.is_timeout() {
        "timeout".into()
    } else if error.is_connect() {
        "connecting".into()
    } else {
        "broken exchange".into()
    }
}

/// An error with its causes, on one line. What several say alike in a row is said once.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut said = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        said.push(error.to_string());
        cause = error.source();
    }
    said.dedup();
    said.join(": ")
}
