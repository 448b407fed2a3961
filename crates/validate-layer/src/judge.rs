//! [`Judge`]: a check that takes time, such as a model that is asked about the answer of another.
//!
//! It is a [`tower::Service`](tower_service::Service) from an [`Answer`] to a [`Report`], so a judge model is called through a stack of its
//! own, with retries, a circuit and a fallback. It is asked only about an answer that all other checks have passed.
//!
//! ```
//! use std::time::Duration;
//! use failsoft_core::{BoxError, Fault, Finding, Report, SoftKind};
//! use tower::{ServiceBuilder, ServiceExt as _, service_fn};
//! use validate_layer::{Answer, Judge, ValidateLayer};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! // In place of a model that is asked whether the text is polite:
//! let judge = service_fn(|answer: Answer| async move {
//!     let mut report = Report::new();
//!     if answer.text().is_some_and(|text| text.ends_with('!')) {
//!         report.push(Finding::new(SoftKind::Schema, "polite", "it shouts"));
//!     }
//!     Ok::<_, BoxError>(report)
//! });
//! let layer = ValidateLayer::values(|reply: &String| Answer::new(reply.as_str()))
//!     .judge(Judge::new(judge).timeout(Duration::from_secs(2)))
//!     .build()?;
//! let service = ServiceBuilder::new()
//!     .layer(layer)
//!     .service(service_fn(|reply: &'static str| async move { Ok::<_, BoxError>(reply.to_owned()) }));
//! assert!(service.clone().oneshot("It is 7.").await.is_ok());
//! let err = service.oneshot("It is 7!").await.unwrap_err();
//! assert_eq!(Fault::find(&*err).unwrap().report().unwrap().leading().unwrap().code(), "polite");
//! # Ok::<(), BoxError>(())
//! # }).unwrap();
//! ```
//!
//! # The contract
//!
//! | | |
//! |---|---|
//! | readiness | each answer is given to a clone that no other answer has used; it is asked to be ready, and then called |
//! | time | readiness and call together have [`timeout`](Judge::timeout), 10 s by default, and never longer than the deadline of the current [`Call`]: both by tokio's clock |
//! | a judge that fails | [`JudgeFailure::Warn`], the default: the answer passes, with a warning `judge.failed`. [`JudgeFailure::Fail`]: it is a soft failure that blames nobody and is not repeated |
//! | recursion | a judge's own calls carry [`Mark::Judging`]: a layer with judges that is further inside of them asks none |
//! | cost | what its calls used is added to the call whose answer is judged; its attempts and its trail are its own |
//! | dropped | with the response future, or the body |
//!
//! Its future is boxed, and nothing is where no judge is set.

use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use failsoft_core::{
    BoxError, Call, Class, ConfigError, Fault, Finding, Mark, Report, Severity, Slot, SoftKind, Verdict,
};
use tower_service::Service;

use crate::{Answer, Validator};

/// How long a judge may take: as long as a model needs for a short answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A service that looks at answers. See the [module](self).
#[derive(Clone)]
pub struct Judge {
    ask: Arc<dyn Ask>,
    timeout: Duration,
    failure: JudgeFailure,
}

/// What becomes of an answer whose judge failed, or took too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum JudgeFailure {
    /// It passes, with a warning `judge.failed` in its report.
    #[default]
    Warn,
    /// It is a failure, [`SoftKind::LowConfidence`] with the code `judge.failed`.
    Fail,
}

impl Judge {
    /// Asks this service. What it finds of [`Severity::Error`] fails the answer.
    pub fn new<S>(service: S) -> Self
    where
        S: Service<Answer, Response = Report, Error: Into<BoxError>, Future: Send> + Clone + Send + 'static,
    {
        let ask = Arc::new(Asking(Mutex::new(service)));
        Self { ask, timeout: TIMEOUT, failure: JudgeFailure::default() }
    }

    /// How long it may take, readiness included. More than zero; 10 s by default.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// What becomes of an answer when it fails. [`JudgeFailure::Warn`] by default.
    #[must_use]
    pub const fn on_failure(mut self, policy: JudgeFailure) -> Self {
        self.failure = policy;
        self
    }

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        if self.timeout.is_zero() {
            return Err(ConfigError::new("ValidateLayer", "judge", "a timeout of 0", "more than 0"));
        }
        Ok(())
    }

    fn failed(&self, error: &BoxError) -> Finding {
        // Its class and not its text: that may hold anything.
        let message = format!("the judge failed: {}", Verdict::of_error(&**error).class());
        let severity = match self.failure {
            JudgeFailure::Warn => Severity::Warning,
            JudgeFailure::Fail => Severity::Error,
        };
        Finding::new(SoftKind::LowConfidence, JUDGE_FAILED, message).with_severity(severity)
    }
}

pub(crate) const JUDGE_FAILED: &str = "judge.failed";

impl SlowCheck for Judge {
    fn begin(&self, answer: &Answer) -> Checking {
        let judge = self.clone();
        let answer = answer.clone();
        let spending = Spending::within(self.timeout);
        Box::pin(async move {
            // Outlives what spends.
            let spending = spending;
            let call = spending.call();
            let asked = call.enter(|| judge.ask.ask(answer));
            let outcome = match call.deadline() {
                Some(deadline) => match tokio::time::timeout_at(deadline, call.scope(asked)).await {
                    Ok(outcome) => outcome,
                    Err(_) => {
                        let limit = failsoft_core::Limit::Total;
                        Err(Fault::new(Class::Timeout(limit), env!("CARGO_PKG_NAME")).into())
                    }
                },
                None => call.scope(asked).await,
            };
            outcome.unwrap_or_else(|error| judge.failed(&error).into())
        })
    }
}

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judge")
            .field("timeout", &self.timeout)
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

/// The call of a check of its own, and whose tokens it spends: what it used by then is told when this drops, so also where
/// nobody waits for its end.
pub(crate) struct Spending {
    slot: Option<Slot>,
    call: Call,
}

impl Spending {
    /// Begins it, with as much time.
    pub(crate) fn within(timeout: Duration) -> Self {
        let slot = Call::slot();
        Self { slot, call: Call::options().isolated().mark(Mark::Judging).timeout(timeout).begin() }
    }

    pub(crate) const fn call(&self) -> &Call {
        &self.call
    }
}

impl Drop for Spending {
    fn drop(&mut self) {
        if let Some(slot) = &mut self.slot {
            slot.set(&self.call.usage());
        }
    }
}

/// A service of any type.
trait Ask: Send + Sync {
    fn ask(&self, answer: Answer) -> Pin<Box<dyn Future<Output = Result<Report, BoxError>> + Send>>;
}

/// The lock is held while it is cloned, never across a call.
struct Asking<S>(Mutex<S>);

impl<S> Ask for Asking<S>
where
    S: Service<Answer, Response = Report, Error: Into<BoxError>, Future: Send> + Clone + Send + 'static,
{
    fn ask(&self, answer: Answer) -> Pin<Box<dyn Future<Output = Result<Report, BoxError>> + Send>> {
        let mut service = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Box::pin(async move {
            poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
            service.call(answer).await.map_err(Into::into)
        })
    }
}

/// A check that takes time. It is only asked about what has passed all others.
pub(crate) trait SlowCheck: Send + Sync {
    fn begin(&self, answer: &Answer) -> Checking;
}

pub(crate) type Checking = Pin<Box<dyn Future<Output = Report> + Send>>;

/// What the checks of a layer say of one answer: at once, or when those that take time have ended.
pub(crate) enum Judgement {
    Done(Verdict, Report),
    Slow(Box<Judging>),
}

/// An answer that the slow checks look at, one after the other.
pub(crate) struct Judging {
    validator: Arc<Validator>,
    answer: Answer,
    report: Report,
    /// What was found in its alternatives, which takes nothing of the trust in the answer itself.
    alternatives: Report,
    next: usize,
    /// In a lock that is never taken, so that who holds this is `Sync` whatever the judge is.
    running: Mutex<Option<Checking>>,
}

impl Judgement {
    /// Looks at an answer, and asks the slow checks about one that passes, unless it is the answer of one itself.
    pub(crate) fn begin(validator: &Arc<Validator>, answer: &Answer) -> Self {
        let (first, mut report) = validator.judge_one(answer);
        let (others, alternatives) = validator.judge_alternatives(answer);
        let verdict = if first.is_success() { others } else { first };
        if !verdict.is_success() || validator.slow.is_empty() || Call::is_marked(Mark::Judging) {
            report.merge(alternatives);
            return Self::Done(verdict, report);
        }
        let (validator, answer) = (Arc::clone(validator), answer.clone());
        let running = Mutex::new(None);
        Self::Slow(Box::new(Judging { validator, answer, report, alternatives, next: 0, running }))
    }
}

impl Judging {
    /// The answer.
    pub(crate) const fn answer(&self) -> &Answer {
        &self.answer
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(Verdict, Report)> {
        loop {
            let running = self.running.get_mut().unwrap_or_else(PoisonError::into_inner);
            let Some(check) = running else {
                let Some(check) = self.validator.slow.get(self.next) else {
                    return self.conclude();
                };
                *running = Some(check.begin(&self.answer));
                self.next += 1;
                continue;
            };
            let found = ready!(check.as_mut().poll(cx));
            *running = None;
            self.report.extend(found.findings().iter().cloned());
            // Whoever comes next looks at good answers only: a judge costs, and drift learns.
            if !self.validator.conclude(&self.answer, &mut self.report.clone()).is_success() {
                return self.conclude();
            }
        }
    }

    fn conclude(&mut self) -> Poll<(Verdict, Report)> {
        let mut report = std::mem::take(&mut self.report);
        let verdict = self.validator.conclude(&self.answer, &mut report);
        report.merge(std::mem::take(&mut self.alternatives));
        Poll::Ready((verdict, report))
    }
}

impl fmt::Debug for Judging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judging")
            .field("answer", &self.answer)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}
