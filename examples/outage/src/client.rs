//! What both runs call the providers with: a client takes a request and gives a body that it holds to be a good answer,
//! or says why there is none. This file has the bare one; the other is in `stack.rs`.

use crate::job::Step;
use bytes::Bytes;
use reqwest::Request;
use std::error::Error;
use std::time::Duration;

/// How long anybody here waits for one answer, in the day's time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) trait Client: Clone + Send + Sync + 'static {
    fn call(&self, step: Step, request: Request) -> impl Future<Output = Result<Bytes, Failure>> + Send;

    /// Each circuit's target and state, for the display.
    fn circuits(&self) -> Vec<(&'static str, CircuitState)> {
        Vec::new()
    }

    /// What the circuits did, in order.
    fn transitions(&self) -> Vec<Transition> {
        Vec::new()
    }
}

/// Why a call gave no answer, as the caller was told.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failure {
    pub(crate) class: String,
    /// Whether somebody knew what had happened. Through the stack, somebody always must.
    pub(crate) classed: bool,
    pub(crate) message: String,
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
    async fn call(&self, _step: Step, request: Request) -> Result<Bytes, Failure> {
        let answer = async {
            let response = self.0.execute(request).await?.error_for_status()?;
            response.bytes().await
        };
        answer.await.map_err(|error| Failure { class: kind(&error), classed: true, message: chain(&error) })
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

/// An error with its causes, on one line.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
